"""Row 35: compaction by Spark tasks against the single-threaded cleaner, and the time in which the
driver plans a compaction of 10 TiB.

Both take turns cleaning the very same files (links to them) in directories that are already open,
and end with the new segments swapped in and flushed. They clean 8 partitions, and then one
partition with all records, which is cleaned in pieces. The session is the one that `kafkafs spark
compact` makes, and free memory to write to is available.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kafkafs.cli.verbs.spark import session
from kafkafs.spark.jobs import tasks
from kafkafs.spark.jobs.compaction.job import CompactionJob, CompactOptions
from kafkafs.spark.jobs.compaction.pieces import Failed
from kafkafs.spark.jobs.job_log_dirs import JobLogDirs
from kafkafs.storage.errors import CleaningAborted
from kafkafs.storage.log_manager import LogManager
from tests.bench import trial
from tests.bench.compacting import linked, scratch_directory
from tests.bench.data import PART_SEGMENT_BYTES, keyed_topic, rolled_logs
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus
from tests.bench.sessions import spark_session
from tests.bench.sparse import sparse_partitions

_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(PART_SEGMENT_BYTES),
    "log.cleaner.dedupe.buffer.size": str(128 << 20),
}
_PARTITIONS = 8

_PLANNED_PARTITIONS = 10
_MOST_SECONDS = Figure(10, "s")
_MOST_MEMORY = Figure(1, "GB")

Work = Callable[[LogManager, Path], object]


def compaction(plan: Plan) -> Outcomes:
    # At its end that session stops Spark, which the later rows of a trial share.
    with spark_session() if trial.is_trial() else session("kafkafs", "local[2]") as spark:
        for partitions in (_PARTITIONS, 1):
            yield _against_the_cleaner(spark, partitions, plan)


def _against_the_cleaner(spark: SparkSession, partitions: int, plan: Plan) -> Outcome:
    source = keyed_topic(plan.spread, plan.keys, partitions)
    dirty = sum(path.stat().st_size for each in source.iterdir() for path in rolled_logs(each))
    left: dict[str, str] = {}
    with scratch_directory() as scratch:

        def measure(name: str, work: Work) -> float:
            log_dir = linked(scratch / name, source)
            with LogManager(str(log_dir), _SETTINGS) as engine:
                started = time.perf_counter()
                work(engine, log_dir)
                taken = time.perf_counter() - started
            left[name] = _digest(log_dir)
            return taken

        seconds = race(
            {
                "tasks": Call(lambda: measure("tasks", partial(_by_tasks, spark))),
                "cleaner": Call(lambda: measure("cleaner", _by_the_cleaner)),
            },
            plan.repetitions,
        )
    if left["tasks"] != left["cleaner"]:
        raise AssertionError("Spark and the cleaner left different segments")
    where = f"in {partitions} partitions" if partitions > 1 else "in one partition"
    return versus(
        35,
        f"Spark, {plan.spread / 1e6:g} M records, {plan.keys / 1e6:g} M keys {where}",
        (seconds["tasks"], seconds["cleaner"]),
        "the cleaner, one thread",
        1.5,
        amount=dirty / 1e6,
        unit="MB/s",
        note="segments are byte-identical",
    )


def _by_tasks(spark: SparkSession, engine: LogManager, log_dir: Path) -> None:
    processors = spark.sparkContext.defaultParallelism
    options = CompactOptions(force=True, processors=processors)
    place = JobLogDirs.of(str(log_dir), _SETTINGS)
    report = CompactionJob(engine, place, options, partial(tasks.run, spark)).compact(())
    assert report.exit_code == 0
    assert len(report.rows) == len(engine.writers())


def _by_the_cleaner(engine: LogManager, log_dir: Path) -> None:
    offset_map = engine.cleaner.new_map()
    for key in sorted(engine.writers()):
        chosen = engine.cleaner.candidate(key)
        assert chosen is not None
        result = engine.cleaner.clean(chosen, offset_map)
        assert result.end_offset == chosen.plan.first_uncleanable


def planning(plan: Plan) -> Outcomes:
    """In a separate process: opens the directory, selects and splits the work."""
    log_dir = sparse_partitions(_PLANNED_PARTITIONS, plan.planned)
    command = [sys.executable, "-m", "tests.bench.spreading", str(log_dir)]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    seconds, kibibytes, units = float(found[0]), int(found[1]), int(found[2])
    tebibytes = _PLANNED_PARTITIONS * plan.planned / 1024
    work = f"Spark, plan a compaction of {tebibytes:g} TiB in {_PLANNED_PARTITIONS} partitions"
    note = f"{units:,} tasks; sparse files"
    yield Outcome(35, work, Figure(seconds, "s"), limit=_MOST_SECONDS, note=note)
    memory = Figure(kibibytes / 1e6 * 1.024, "GB")
    yield Outcome(35, f"{work}: memory of the driver", memory, limit=_MOST_MEMORY)


def _plan(log_dir: str) -> None:
    """Prints the seconds, the peak memory in KiB, and the initial number of tasks."""
    units = 0

    def run(what: str, found: Sequence[Any], *work: Any) -> Any:
        nonlocal units
        units += len(found)
        return [Failed(CleaningAborted("it is only planned"))] * len(found)

    planned: Callable[..., Any] = run

    started = time.perf_counter()
    with LogManager(log_dir, {"cleanup.policy": "compact"}) as engine:
        place = JobLogDirs.of(log_dir, {"cleanup.policy": "compact"})
        CompactionJob(engine, place, CompactOptions(force=True, processors=1000), planned).compact(
            ()
        )
        taken = time.perf_counter() - started
    print(taken, _most_memory(), units)


def _most_memory() -> int:
    """Returns the peak memory of this program in KiB; `ru_maxrss` would include its parent's."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def _digest(log_dir: Path) -> str:
    """Returns a digest of the remaining segments."""
    digest = hashlib.sha256()
    for path in sorted(log_dir.glob("*/*.log")):
        digest.update(f"{path.parent.name}/{path.name}".encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    _plan(sys.argv[1])
