"""Row 46: a backup of a log directory, against `cp -a` of it, and what a second run adds."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import kafkafs
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.request import Backup, FinishedPoint
from tests.bench.data import TOPIC, cache, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus

_PERCENT = 100


def against_copy(plan: Plan) -> Outcomes:
    """Our time includes the SHA-256 of every byte, and what makes the objects durable; `cp -a`
    leaves its copy in the page cache, so it is measured with `sync -f` as well."""
    log = plain_log(plan.records)
    with tempfile.TemporaryDirectory(prefix="backup-", dir=cache()) as directory:
        above = Path(directory)
        seconds = race(
            {
                "ours": Call(lambda: _timed(above, lambda to: _back_up(log, to))),
                "copy": Call(lambda: _timed(above, lambda to: _copy(log, to))),
                "durable": Call(lambda: _timed(above, lambda to: _copy(log, to, "sync", "-f"))),
            },
            plan.repetitions,
        )
        size = sum(path.stat().st_size for path in log.rglob("*") if path.is_file())
        for peer, name, target in (
            ("copy", "cp -a", 0.8),
            ("durable", "cp -a and sync -f", None),
        ):
            pair = seconds["ours"], seconds[peer]
            yield versus(46, "backup", pair, name, target, amount=size / 1e6, unit="MB/s")
        yield _growth(log, above / "grown", above / "repository", plan.records // _PERCENT)


def _growth(log: Path, grown: Path, repository: Path, records: int) -> Outcome:
    """Returns what a second run adds, in percent, after so many records were appended."""
    shutil.copytree(log, grown)
    first = _back_up(grown, repository)
    with kafkafs.open(grown, writable=True) as d:
        values = ("x" * 100 for _ in range(records))
        d[TOPIC, 0].append([kafkafs.ProducerRecord(value) for value in values])
    second = _back_up(grown, repository)
    added = Figure(_PERCENT * second.stored / first.stored, "%")
    work = f"backup again, after {records:,} new records"
    return Outcome(46, work, added, limit=Figure(2.0, "%"))


def _back_up(source: Path, repository: Path) -> FinishedPoint:
    *_, point = make_point(Engine(str(source)), Backup(str(repository)))
    assert isinstance(point, FinishedPoint)
    return point


def _copy(source: Path, target: Path, *then: str) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    if then:
        subprocess.run([*then, str(target)], check=True)


def _timed(above: Path, work: Callable[[Path], object]) -> float:
    """Returns the seconds of `work` with a directory that does not exist yet."""
    target = above / "target"
    started = time.perf_counter()
    work(target)
    taken = time.perf_counter() - started
    shutil.rmtree(target)
    return taken
