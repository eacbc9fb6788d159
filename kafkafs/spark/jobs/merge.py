"""The `merge` job: combines two replicas of the same partitions, each with damage, into a new log.

It maps the units of the operation (`storage.operations.merge`), partitions, to tasks. Both replicas
are only read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    FIRST,
    LEADER_EPOCH_FILE,
    Merge,
    MergedPartition,
    MergeUnit,
    Notes,
    Selected,
    Selection,
    local_path,
    merge_partition,
)

from .job_log_dirs import JobLogDirs
from .new_log_dir import NewLogDir
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = (
    *("topic", "partition", "segments", "bytes", "startOffset", "endOffset"),
    *("batches", "ofBoth", "ofFirst", "ofSecond", "cleanedOtherwise", "leftOut"),
)


def merge(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    other: str | Sequence[str],
    output: str,
    topics: Sequence[Selected] = (),
    *,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Creates the log directory `output` from the replicas in `log_dirs` and in `other`, of all
    partitions or of the selected `topics` (and partitions); a partition that only one has is taken
    from there. Offsets lost in both, and batches left out because one replica diverges from the
    other, are `wrong` in the report.

    Raises LogDirError if the two differ in cluster or topic ids, or if `output` exists.
    """
    both_dirs = JobLogDirs.of_both(log_dirs, other, configs)
    request = Merge(Selection(tuple(topics)))
    units = request.units((both_dirs[0].engine(), both_dirs[1].engine()))
    target = NewLogDir(os.path.abspath(local_path(output)))
    notes, _ = target.begin(
        {
            "job": "merge",
            "log_dirs": [list(dirs.log_dirs) for dirs in both_dirs],
            "topics": [list(choice) for choice in topics],
        },
        (*both_dirs[0].log_dirs, *both_dirs[1].log_dirs),
    )
    for unit in units:
        target.make_partition(both_dirs[unit.is_in], unit.key, without=(LEADER_EPOCH_FILE,))
    work = partial(_merge, both_dirs, target, notes)
    done = run(spark, "merge", units, work, lambda unit: unit.size, on_progress)
    target.finish([merged.settled for merged, _ in done], both_dirs[FIRST], notes)
    rows = [merged.row() for merged, _ in done]
    return Report(
        "merge",
        _COLUMNS,
        rows,
        [row for merged, _ in done for row in merged.wrong],
        units=len(units),
        skipped=sum(is_old for _, is_old in done),
        totals={"partitions": len(rows), "batches": sum(row["batches"] for row in rows)},
    )


def _merge(
    both_dirs: tuple[JobLogDirs, JobLogDirs], target: NewLogDir, notes: Notes, unit: MergeUnit
) -> tuple[MergedPartition, bool]:
    """Merges and recovers a partition, in a task; returns the result, and whether it is an earlier
    run's."""
    noted = notes.get(str(unit))
    if noted is not None:
        return MergedPartition.of_json(noted), True
    engines = (both_dirs[0].engine(), both_dirs[1].engine())
    result = merge_partition(engines, unit, target.partition(unit.key))
    notes.put(str(unit), result.as_json())
    return result, False
