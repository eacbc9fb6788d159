"""Units of work as tasks of Spark: spread, carried out, and their results collected.

A unit and its result are small values that can be pickled; the work is a function of a module, so
that a worker needs no more than kafkafs and PySpark. What a unit fails with for reasons of its own
is part of its result; an exception fails the job, after the attempts that Spark makes.
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

#: How far a job is: tasks done, and tasks known of so far, 0 while there are none.
Told = Callable[[int, int], None]

# Bytes of segments that one task takes on, if they are many small ones: at most, and at least,
# because a task costs something, too.
TASK_BYTES: Final = 128 << 20
_LEAST_BYTES: Final = 4 << 20
_MOST_TASKS: Final = 100_000
_LOOK_SECONDS: Final = 0.2


def silent(done: int, total: int) -> None:
    """The `Told` of whoever does not want to know."""


def run(
    spark: SparkSession,
    what: str,
    units: Sequence[Unit],
    work: Callable[[Unit], Result],
    size: Callable[[Unit], int] = lambda unit: TASK_BYTES,
    told: Told = silent,
) -> list[Result]:
    """The results of `work` for all units, in their order. `what` is shown in Spark's own UI;
    `size` is bytes of a unit, by which small ones share a task."""
    if not units:
        return []
    return collect(spark, what, spread(spark, units, size).flatMap(partial(_each, work)), told)


def spread(
    spark: SparkSession, units: Sequence[Unit], size: Callable[[Unit], int]
) -> RDD[list[Unit]]:
    """Groups of the units, a task each: such that all processors have some, if there is enough, and
    come to the end together."""
    context = spark.sparkContext
    processors = context.defaultParallelism
    total = sum(map(size, units))
    task_bytes = min(max(total // (2 * processors), _LEAST_BYTES), TASK_BYTES)
    rounds = -(-total // (task_bytes * processors))
    groups = evenly(units, size, min(rounds * processors, _MOST_TASKS))
    return context.parallelize(groups, max(len(groups), 1)).map(_in_worker)


def evenly(units: Sequence[Unit], size: Callable[[Unit], int], groups: int) -> list[list[Unit]]:
    """The units in order, in so many groups, or fewer, that have about as much each."""
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
    """The units in order, as many together as have no more than `most_bytes`, or one."""
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


def collect(spark: SparkSession, what: str, rdd: RDD[Result], told: Told = silent) -> list[Result]:
    """All of an RDD's elements. Interrupted, its tasks are called off."""
    return watched(spark, what, rdd.collect, told)


def watched(
    spark: SparkSession, what: str, action: Callable[[], Result], told: Told = silent
) -> Result:
    """What `action` gives, which starts jobs of Spark; `told` how far they are."""
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
            told(*_progress(context, group))
    except BaseException:
        context.cancelJobGroup(group)
        raise
    if errors:
        try:
            raise errors[0]
        finally:
            del errors  # else they and this frame would keep each other
    return results[0]


def _progress(context: SparkContext, group: str) -> tuple[int, int]:
    """Tasks of a group's jobs that are done, and how many there are."""
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
