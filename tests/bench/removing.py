"""Row 21: removing the oldest records of a partition by name with one command."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from tests.bench import mounts
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, turns

_TOPIC = "removing"
_VALUE = b"v" * 100
#: Records in one append. A partition has twice as many records as are removed.
_APPENDED = 1000
_TARGET = 0.5


def oldest(plan: Plan) -> Outcomes:
    """Row 21: each turn has its own partition, or directory of files."""
    rounds = turns(plan.repetitions)
    names = [str(number) for number in range(plan.removed)]
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-") as place:
        log_dir, source = Path(place, "logs"), Path(place, "files")
        _make_logs(log_dir, rounds, 2 * plan.removed)
        directories = _make_files(source, rounds, names)
        with (
            mounts.kafkafs(log_dir, "--rw") as log_mount,
            mounts.pass_through(source) as file_mount,
        ):
            partitions = [log_mount.path / _TOPIC / str(turn) / "offset" for turn in range(rounds)]
            passed = [file_mount.path / each for each in directories]
            contenders = {
                "ours": Call(_removing(partitions, names)),
                "theirs": Call(_removing(passed, names)),
            }
            seconds = race(contenders, plan.repetitions)
    ours, theirs = (plan.removed / seconds[name] for name in ("ours", "theirs"))
    yield Outcome(
        21, f"rm of the {plan.removed:,} oldest offsets", Figure(ours, "names/s"),
        "pyfuse3 pass-through", Figure(theirs, "names/s"), ours / theirs, _TARGET,
    )  # fmt: skip


def _make_logs(log_dir: Path, partitions: int, records: int) -> None:
    columns = RecordColumns.from_values([_VALUE] * _APPENDED)
    with LogManager(str(log_dir)) as engine:
        engine.create_topic(_TOPIC, partitions)
        for number in range(partitions):
            writer = engine.writer(_TOPIC, number)
            while writer.end_offset < records:
                writer.append_records(columns)


def _make_files(source: Path, directories: int, names: Sequence[str]) -> list[str]:
    made = [str(number) for number in range(directories)]
    for directory in made:
        (source / directory).mkdir(parents=True)
        for name in names:
            (source / directory / name).write_bytes(_VALUE)
    return made


def _removing(directories: Sequence[Path], names: Sequence[str]) -> Callable[[], float]:
    left = iter(directories)

    def work() -> float:
        directory = next(left)
        started = time.perf_counter()
        subprocess.run(["rm", *names], cwd=directory, check=True)
        return time.perf_counter() - started

    return work
