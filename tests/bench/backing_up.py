"""Row 46: a backup of a log directory, against `cp -a` of it, and what a second run adds."""

from __future__ import annotations

import os
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
from tests.bench.data import TOPIC, cache, evict, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus

_PERCENT = 100


def against_copy(plan: Plan) -> Outcomes:
    """Both read the log from the disk, as that of a broker whose old segments nobody reads, or both
    from the page cache. Our time includes the SHA-256 of every byte, and what makes the objects
    durable; `cp -a` leaves its copy in the page cache, so it is measured with `sync -f` as well."""
    log = plain_log(plan.records)
    size = sum(path.stat().st_size for path in log.rglob("*") if path.is_file())
    with tempfile.TemporaryDirectory(prefix="backup-", dir=cache()) as directory:
        above = Path(directory)
        for place, evicts, target in (("disk", True, 0.8), ("page cache", False, None)):
            seconds = race(_contenders(log, above, evicts=evicts), plan.repetitions)
            for peer, name, wanted in (
                ("copy", "cp -a", target),
                ("durable", "cp -a and sync -f", None),
            ):
                yield versus(
                    46, f"backup, read from the {place}", (seconds["ours"], seconds[peer]), name,
                    wanted, amount=size / 1e6, unit="MB/s",
                )  # fmt: skip
        yield _growth(log, above / "grown", above / "repository", plan.records // _PERCENT)


def _contenders(log: Path, above: Path, *, evicts: bool) -> dict[str, Call]:
    def call(work: Callable[[Path], object]) -> Call:
        return Call(lambda: _timed(log, above / "target", work, evicts=evicts))

    return {
        "ours": call(lambda to: _back_up(log, to)),
        "copy": call(lambda to: _copy(log, to)),
        "durable": call(lambda to: _copy(log, to, "sync", "-f")),
    }


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


def _timed(log: Path, target: Path, work: Callable[[Path], object], *, evicts: bool) -> float:
    """Returns the seconds of `work` with a directory that does not exist yet."""
    os.sync()  # the one before may have left something to write
    if evicts:
        evict(log)
    started = time.perf_counter()
    work(target)
    taken = time.perf_counter() - started
    shutil.rmtree(target)
    return taken
