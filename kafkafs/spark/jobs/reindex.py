"""The `reindex` job: rebuilds the indexes of all segments.

Tasks build the `.index` and `.timeindex` of one segment each, and then, for partitions with
producers, the `.txnindex` of all their segments. A correct index is kept; others are replaced
atomically. The driver holds the directories as a broker would.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import (
    TEMPORARY_SUFFIX,
    DirectoryLock,
    FileKind,
    PartitionDir,
    PartitionListing,
    SegmentFacts,
    Selected,
    TopicPartition,
    WritableDirFd,
    rebuild_aborts,
    rebuild_indexes,
    segment_file,
    stale_indexes,
)
from kafkafs.storage.errors import CorruptError, SegmentGone

from .job_log_dirs import JobLogDirs, replace_file
from .report import Report, Row
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_COLUMNS: Final = ("topic", "partition", "segments", "bytes", "written")


@dataclass(frozen=True, slots=True)
class ReindexUnit:
    """A segment."""

    topic: str
    partition: int
    facts: SegmentFacts

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Done:
    """`written`: names of the replaced files. `wrong`: why nothing could be done, else None."""

    written: tuple[str, ...] = ()
    has_producers: bool = False
    wrong: Mapping[str, Any] | None = None


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
    dirs.partitions(topics)  # rejects unknown topics before anything is locked
    with ExitStack() as held:
        for path in dirs.log_dirs:
            held.enter_context(DirectoryLock(WritableDirFd(path)))
        partitions = dirs.partitions(topics)
        for found in partitions:
            _remove_leftovers(found)
        units = [unit for found in partitions for unit in _units(found)]
        work = partial(_reindex, dirs)
        done = run(spark, "reindex", units, work, lambda unit: unit.facts.size, on_progress)
        with_producers = _with_producers(units, done)
        ends = run(
            spark,
            "reindex: transactions",
            list(with_producers.items()),
            partial(_reindex_aborts, dirs),
            lambda each: each[1] // 100,  # headers only
            on_progress,
        )
    return _report(partitions, units, done, dict(zip(with_producers, ends, strict=True)))


def _units(found: PartitionDir) -> list[ReindexUnit]:
    segments = PartitionListing(found.directory).segments(True)
    return [ReindexUnit(found.topic, found.partition, facts) for facts in segments]


def _remove_leftovers(found: PartitionDir) -> None:
    """Removes the unfinished files of attempts before this run."""
    directory = WritableDirFd(found.log_dir.path).child(found.name)
    for entry in directory.list():
        if entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX):
            directory.remove(entry.name, missing_ok=True)


def _with_producers(
    units: Sequence[ReindexUnit], done: Sequence[Done]
) -> dict[TopicPartition, int]:
    """Returns the partitions that may have aborted transactions, with their bytes. Damaged ones are
    excluded, because their transactions cannot be determined."""
    sizes: dict[TopicPartition, int] = {}
    for unit, result in zip(units, done, strict=True):
        if result.has_producers:
            sizes[unit.key] = sizes.get(unit.key, 0) + unit.facts.size
    for unit, result in zip(units, done, strict=True):
        if result.wrong is not None:
            sizes.pop(unit.key, None)
    return sizes


# -- in the tasks ----------------------------------------------------------------------------------


def _reindex(dirs: JobLogDirs, unit: ReindexUnit) -> Done:
    engine = dirs.engine()
    directory = _writable(dirs, unit.key)
    config = engine.topic_config(unit.topic).config
    try:
        found = rebuild_indexes(directory, unit.facts, config, engine.context.limits)
        written = _replace(directory, unit.facts.base_offset, found.by_kind())
        return Done(written, found.has_producers)
    except (CorruptError, SegmentGone, OSError) as error:
        return Done(wrong=_wrong(unit.key, error))


def _reindex_aborts(dirs: JobLogDirs, each: tuple[TopicPartition, int]) -> Done:
    key, _ = each
    found = dirs.engine().partition_dir(*key)
    start = found.log_dir.log_start_offsets.get(key, 0)
    directory = _writable(dirs, key)
    written: list[str] = []
    try:
        limits = dirs.engine().context.limits
        now_ms = time.time_ns() // 1_000_000
        for base, data in rebuild_aborts(directory, start, limits, now_ms):
            written += _replace(directory, base, {FileKind.TXNINDEX: data})
        return Done(tuple(written))
    except (CorruptError, SegmentGone, OSError) as error:
        return Done(tuple(written), wrong=_wrong(key, error))


def _writable(dirs: JobLogDirs, key: TopicPartition) -> WritableDirFd:
    found = dirs.engine().partition_dir(*key)
    return WritableDirFd(found.log_dir.path).child(found.name)


def _replace(
    directory: WritableDirFd, base: int, rebuilt: Mapping[FileKind, bytes]
) -> tuple[str, ...]:
    stale = [segment_file(base, kind) for kind in stale_indexes(directory, base, rebuilt)]
    for name in stale:
        data = rebuilt[FileKind(os.path.splitext(name)[1])]
        replace_file(directory, name, data)
    return tuple(stale)


def _wrong(key: TopicPartition, error: CorruptError | SegmentGone | OSError) -> Mapping[str, Any]:
    about: dict[str, Any] = {"topic": key[0], "partition": key[1]}
    if isinstance(error, CorruptError):
        what = f"{error.what}; its indexes were not changed"
        return {**about, "file": error.file, "position": error.position, "what": what}
    if isinstance(error, OSError):
        return {**about, "file": error.filename, "what": error.strerror}
    return {**about, "file": error.file, "what": "it was deleted while being read"}


def _report(
    partitions: Sequence[PartitionDir],
    units: Sequence[ReindexUnit],
    done: Sequence[Done],
    ends: Mapping[TopicPartition, Done],
) -> Report:
    results: dict[TopicPartition, list[Done]] = {}
    sizes: dict[TopicPartition, int] = {}
    for unit, result in zip(units, done, strict=True):
        results.setdefault(unit.key, []).append(result)
        sizes[unit.key] = sizes.get(unit.key, 0) + unit.facts.size
    rows: list[Row] = []
    wrong: list[Row] = []
    for found in partitions:
        key = (found.topic, found.partition)
        of_segments = results.get(key, [])
        every = [*of_segments, *([ends[key]] if key in ends else [])]
        written = sum(len(result.written) for result in every)
        values = (*key, len(of_segments), sizes.get(key, 0), written)
        rows.append(dict(zip(_COLUMNS, values, strict=True)))
        wrong += [result.wrong for result in every if result.wrong is not None]
    total = sum(row["written"] for row in rows)
    totals = {"segments": len(units), "written": total}
    return Report("reindex", _COLUMNS, rows, wrong, units=len(units), totals=totals)
