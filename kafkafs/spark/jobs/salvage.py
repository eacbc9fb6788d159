"""The `salvage` job: copies every intact batch from damaged log directories to a new one.

A task copies the intact batches of a segment unchanged, and reports what is lost between them. Then
each partition is recovered (see `new_log_dir`). The source is only read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    FileKind,
    Notes,
    Salvage,
    SalvagedSegment,
    SalvageUnit,
    Selected,
    Selection,
    Settled,
    TopicPartition,
    is_useless,
    local_path,
    salvage_segment,
    salvaged_partition,
    segment_file,
    segments_to_salvage,
)

from .job_log_dirs import JobLogDirs
from .new_log_dir import NewLogDir
from .report import Report
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = (
    *("topic", "partition", "segments", "bytes", "startOffset", "endOffset"),
    *("batches", "lostPlaces", "lostBytes"),
)


def salvage(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    output: str,
    topics: Sequence[Selected] = (),
    *,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Creates the log directory `output` from what is intact in `log_dirs`, or in the selected
    `topics` (and partitions). What is lost is `wrong` in the report: file, position and offsets.

    Raises LogDirError if `output` exists, OtherJob if an unfinished job with other arguments is
    there.
    """
    dirs = JobLogDirs.of(log_dirs, configs)
    target = NewLogDir(os.path.abspath(local_path(output)))
    job = {"job": "salvage", "log_dirs": list(dirs.log_dirs), "topics": [list(t) for t in topics]}
    engine = dirs.engine()
    keys = Salvage(Selection(tuple(topics))).units(engine)
    notes, _ = target.begin(job, dirs.log_dirs)
    for key in keys:
        target.make_partition(dirs, key)
    units = [unit for key in keys for unit in segments_to_salvage(engine, key)]
    work = partial(_copy, dirs, target, notes)
    done = run(spark, "salvage", units, work, lambda unit: unit.size, on_progress)
    partitions = [engine.partition_dir(*key) for key in keys]
    settled = target.settle_all(spark, dirs, partitions, on_progress)
    target.finish(settled, dirs, notes)
    return _report(units, done, settled)


# A result, and whether it is an earlier run's.
_Done = tuple[SalvagedSegment, bool]


def _copy(dirs: JobLogDirs, target: NewLogDir, notes: Notes, unit: SalvageUnit) -> _Done:
    """Copies the intact batches of a segment to one of the target, in a task."""
    noted = notes.get(str(unit))
    if noted is not None:
        return SalvagedSegment.of_json(noted), True
    with target.new_log(unit.key, unit.base_offset, unit.mtime_ns) as log:
        result = salvage_segment(dirs.engine(), unit, log)
    if is_useless(unit, result):
        target.partition(unit.key).remove(segment_file(unit.base_offset, FileKind.LOG))
    notes.put(str(unit), result.as_json())
    return result, False


def _report(
    units: Sequence[SalvageUnit], done: Sequence[_Done], settled: Sequence[Settled]
) -> Report:
    results: dict[TopicPartition, list[SalvagedSegment]] = {}
    for unit, (result, _) in zip(units, done, strict=True):
        results.setdefault(unit.key, []).append(result)
    rows = [salvaged_partition(each, results.get(each.key, [])) for each in settled]
    return Report(
        "salvage",
        _COLUMNS,
        rows,
        [row for result, _ in done for row in result.lost],
        units=len(units),
        skipped=sum(is_old for _, is_old in done),
        totals={"partitions": len(rows), "bytes": sum(each.size for each in settled)},
    )
