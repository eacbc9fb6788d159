"""The `salvage` job: copies every intact batch from damaged log directories to a new one.

A task copies the intact batches of a segment unchanged, and reports what is lost between them. Then
each partition is recovered (see `new_log_dir`). The source is only read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import (
    METADATA_TOPIC,
    FileKind,
    Lost,
    PartitionDir,
    PartitionListing,
    Selected,
    Sound,
    TopicPartition,
    local_path,
    segment_file,
    sound_batches,
)

from .job_log_dirs import JobLogDirs
from .new_log_dir import NewLogDir, Settled
from .notes import Notes
from .report import Report, Row
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = (
    *("topic", "partition", "segments", "bytes", "startOffset", "endOffset"),
    *("batches", "lostPlaces", "lostBytes"),
)


@dataclass(frozen=True, slots=True)
class SalvageUnit:
    """A segment of the source; `next_base`: the base offset of the one after it, -1 for the
    last."""

    topic: str
    partition: int
    base_offset: int
    next_base: int
    size: int
    mtime_ns: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


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
    partitions = _partitions(dirs, topics)
    notes, _ = target.begin(job, dirs.log_dirs)
    for found in partitions:
        target.make_partition(found)
    units = [unit for found in partitions for unit in _units(found)]
    done = run(
        spark,
        "salvage",
        units,
        partial(_copy, dirs, target, notes),
        lambda unit: unit.size,
        on_progress,
    )
    settled = target.settle_all(spark, dirs, partitions, on_progress)
    target.finish(settled, dirs.engine().log_dirs.dirs[0], notes)
    return _report(units, done, settled)


def _key(found: PartitionDir) -> TopicPartition:
    return found.topic, found.partition


def _partitions(dirs: JobLogDirs, topics: Sequence[Selected]) -> list[PartitionDir]:
    """Returns the selected partitions; without a selection also the quorum's own log, so that a
    node can start with the copy."""
    found = dirs.partitions(topics)
    every = dirs.engine().log_dirs.partitions()
    quorum = [each for key, each in every.items() if key[0] == METADATA_TOPIC and not topics]
    return [*quorum, *found]


def _units(found: PartitionDir) -> list[SalvageUnit]:
    listing = PartitionListing(found.directory)
    return [
        SalvageUnit(
            *_key(found),
            facts.base_offset,
            facts.next_base,
            facts.size,
            listing.mtimes[facts.base_offset],
        )
        for facts in listing.segments(True)
    ]


def _copy(dirs: JobLogDirs, target: NewLogDir, notes: Notes, unit: SalvageUnit) -> dict[str, Any]:
    """Copies the intact batches of a segment to one of the target, in a task; returns its
    result."""
    name = str(unit)
    noted: dict[str, Any] | None = notes.get(name)
    if noted is not None:
        return {**noted, "isOld": True}
    engine = dirs.engine()
    source = engine.partition_dir(*unit.key).directory
    limit = engine.context.limits.max_batch_bytes
    position = batches = 0
    lost: list[dict[str, Any]] = []
    with target.new_log(unit.key, unit.base_offset, unit.mtime_ns) as log:
        for part in sound_batches(source, unit.base_offset, unit.next_base, limit):
            if isinstance(part, Sound):
                log.write(position, part.data)
                position += len(part.data)
                batches += len(part.table)
            else:
                lost.append(_lost_row(unit, part))
    if lost and not position and unit.next_base >= 0:  # an empty segment is useless
        target.partition(unit.key).remove(segment_file(unit.base_offset, FileKind.LOG))
    result = {"batches": batches, "bytes": position, "lost": lost}
    notes.put(name, result)
    return result


def _lost_row(unit: SalvageUnit, lost: Lost) -> dict[str, Any]:
    return {
        "topic": unit.topic,
        "partition": unit.partition,
        "file": lost.error.file,
        "position": lost.error.position,
        "bytes": lost.resume - lost.error.position,
        "firstOffset": lost.first,
        "nextOffset": lost.next if lost.next >= 0 else None,
        "what": lost.error.what,
    }


def _report(
    units: Sequence[SalvageUnit], done: Sequence[Mapping[str, Any]], settled: Sequence[Settled]
) -> Report:
    rows: list[Row] = []
    results: dict[TopicPartition, list[Mapping[str, Any]]] = {}
    for unit, result in zip(units, done, strict=True):
        results.setdefault(unit.key, []).append(result)
    for each in settled:
        those = results.get(each.key, [])
        lost = [row for result in those for row in result["lost"]]
        values = (
            *(*each.key, each.segments, each.size, each.start_offset, each.end_offset),
            sum(result["batches"] for result in those),
            len(lost),
            sum(row["bytes"] for row in lost),
        )
        rows.append(dict(zip(_COLUMNS, values, strict=True)))
    return Report(
        "salvage",
        _COLUMNS,
        rows,
        [row for result in done for row in result["lost"]],
        units=len(units),
        skipped=sum("isOld" in result for result in done),
        totals={"partitions": len(rows), "bytes": sum(each.size for each in settled)},
    )
