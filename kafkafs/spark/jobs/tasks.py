"""Runs units of work as Spark tasks: distributes them, and collects their results.

A unit and its result are small values that can be pickled; the work is a module-level function, so
that a worker needs only kafkafs and PySpark. Expected failures of a unit are part of its result; an
exception fails the job, after Spark's retries.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ..workers import spare_collections

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Result = TypeVar("Result")

#: Called with the progress of a job: tasks done, and tasks known so far, 0 while there are none.
OnProgress = Callable[[int, int], None]

# Bytes of small segments that share a task: at most, and at least, because a task has overhead.
TASK_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 4 << 20
_MOST_TASKS: Final = 100_000
_LOOK_SECONDS: Final = 0.2


def silent(done: int, total: int) -> None:
    """Ignores progress."""


def run(
    spark: SparkSession,
    what: str,
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    size: Callable[[Unit], int] = lambda unit: TASK_BYTES,
    on_progress: OnProgress = silent,
) -> list[Result]:
    """Returns the results of `work` for all units, in their order. `what` is shown in Spark's UI;
    `size` returns the bytes of a unit, by which small units share a task."""
    if not units:
        return []
    return collect(
        spark, what, spread(spark, units, size).flatMap(partial(_each, work)), on_progress
    )


def spread(
    spark: SparkSession, units: Sequence[Unit], size: Callable[[Unit], int]
) -> RDD[list[Unit]]:
    """Returns groups of the units, one for each task, so that all processors are busy if there is
    enough work, and finish together."""
    context = spark.sparkContext
    processors = context.defaultParallelism
    total = sum(map(size, units))
    task_bytes = min(max(total // (2 * processors), _LEAST_BYTES), TASK_BYTES)
    rounds = -(-total // (task_bytes * processors))
    groups = evenly(units, size, min(rounds * processors, _MOST_TASKS))
    return context.parallelize(groups, max(len(groups), 1)).map(_in_worker)


def evenly(units: Sequence[Unit], size: Callable[[Unit], int], groups: int) -> list[list[Unit]]:
    """Returns the units in order, in at most `groups` groups of about the same size."""
    total = sum(map(size, units))
    found: dict[int, list[Unit]] = {}
    before = 0
    for unit in units:
        middle = 2 * before + size(unit)
        group = min(middle * groups // (2 * total), groups - 1) if total else 0
        found.setdefault(group, []).append(unit)
        before += size(unit)
    return list(found.values())


def _in_worker(group: list[Unit]) -> list[Unit]:
    spare_collections()
    return group


def _each(work: Callable[[Unit], Result], group: Iterable[Unit]) -> Iterator[Result]:
    return map(work, group)


def grouped(
    units: Sequence[Unit], size: Callable[[Unit], int], most_bytes: int
) -> Iterator[list[Unit]]:
    """Yields groups of the units in order, each with at most `most_bytes` or a single unit."""
    group: list[Unit] = []
    filled = 0
    for unit in units:
        if group and filled + size(unit) > most_bytes:
            yield group
            group, filled = [], 0
        group.append(unit)
        filled += size(unit)
    if group:
        yield group


def collect(
    spark: SparkSession, what: str, rdd: RDD[Result], on_progress: OnProgress = silent
) -> list[Result]:
    """Returns all elements of an RDD. If it is interrupted, the tasks are cancelled."""
    return watched(spark, what, rdd.collect, on_progress)


def watched(
    spark: SparkSession, what: str, action: Callable[[], Result], on_progress: OnProgress = silent
) -> Result:
    """Returns the result of `action`, which starts Spark jobs; reports their progress."""
    context = spark.sparkContext
    group = f"kafkafs-{uuid.uuid4()}"
    results: list[Result] = []
    errors: list[BaseException] = []

    def act() -> None:
        context.setJobGroup(group, what, interruptOnCancel=True)
        try:
            results.append(action())
        except BaseException as error:  # noqa: BLE001 raised again where somebody waits for it
            errors.append(error)

    thread = threading.Thread(target=act, name=group, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)
            on_progress(*_progress(context, group))
    except BaseException:
        context.cancelJobGroup(group)
        raise
    if errors:
        try:
            raise errors[0]
        finally:
            del errors  # avoids a reference cycle between the errors and this frame
    return results[0]


def _progress(context: SparkContext, group: str) -> tuple[int, int]:
    """Returns the number of completed tasks of a group's jobs, and the total."""
    tracker = context.statusTracker()
    done = total = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
    return done, total
