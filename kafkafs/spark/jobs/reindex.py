"""The `reindex` job: rebuilds the indexes of all segments.

It maps the units of the operation (`storage.operations.reindex`) to tasks, in two rounds: segments,
then transactions. The driver holds the directories as a broker would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    Reindex,
    ReindexedPartition,
    ReindexUnit,
    Selected,
    Selection,
    UnitReindexed,
    locked_segments,
    reindex_unit,
    reindexed_partitions,
    transactions_to_reindex,
)

from .job_log_dirs import JobLogDirs
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = tuple(each.name for each in fields(ReindexedPartition))


def reindex(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    topics: Sequence[Selected] = (),
    *,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Rebuilds the indexes of all segments in `log_dirs`, or of the selected `topics` (and
    partitions), as recovery would. Damaged segments are `wrong` in the report and keep their
    indexes.

    Raises LogDirLocked if a broker or another writer holds one of the directories.
    """
    dirs = JobLogDirs.of(log_dirs, configs)
    request = Reindex(Selection(tuple(topics)))
    with locked_segments(dirs.engine(), request) as units:
        keys = request.units(dirs.engine())
        work = partial(_reindex, dirs)
        done = run(spark, "reindex", units, work, _size, on_progress)
        ends = transactions_to_reindex(done)
        done += run(spark, "reindex: transactions", ends, work, _size, on_progress)
    rows = [row.as_json() for row in reindexed_partitions(keys, done)]
    wrong = [each.wrong.as_json() for each in done if each.wrong is not None]
    totals = {"segments": len(units), "written": sum(row["written"] for row in rows)}
    return Report("reindex", _COLUMNS, rows, wrong, units=len(units), totals=totals)


def _size(unit: ReindexUnit) -> int:
    return unit.size


def _reindex(dirs: JobLogDirs, unit: ReindexUnit) -> UnitReindexed:
    return reindex_unit(dirs.engine(), unit)
