"""Rebuilds the indexes of all segments as recovery would, and changes nothing else.

The units are segments, whose `.index` and `.timeindex` are rebuilt, and then partitions with
producers, for the `.txnindex` of all their segments. Correct indexes are left alone; others are
replaced atomically. A damaged segment keeps its indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import CorruptError, SegmentGone
from ..format.files.names import FileKind, TopicPartition, segment_file
from ..io.durable import TEMPORARY_SUFFIX, WritableDirFd
from ..io.lock import DirectoryLock
from ..log.check.partition_listing import PartitionListing
from ..log.check.reindexing import rebuild_aborts, rebuild_indexes, stale_indexes
from ..log_dirs.engine import Engine
from ..segment.check.verify import SegmentFacts
from .request import PartitionsRequest


@dataclass(frozen=True, slots=True)
class Reindex(PartitionsRequest):
    """Rebuilds the indexes of the selected partitions, or of all."""

    @property
    def writes(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class ReindexUnit:
    """A segment or, if `facts` is None, the transactions of a partition. `size`: its bytes to
    read."""

    topic: str
    partition: int
    size: int
    facts: SegmentFacts | None = None

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class NotReindexed:
    """Why a file's indexes could not be rebuilt. `position` is None if no byte is at fault."""

    topic: str
    partition: int
    what: str
    file: str
    position: int | None = None

    @classmethod
    def of(cls, key: TopicPartition, error: CorruptError | SegmentGone | OSError) -> NotReindexed:
        if isinstance(error, CorruptError):
            what = f"{error.what}; its indexes were not changed"
            return cls(*key, what, error.file, error.position)
        if isinstance(error, OSError):
            return cls(*key, error.strerror or str(error), error.filename)
        return cls(*key, "it was deleted while being read", error.file)

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class UnitReindexed:
    """`written`: the number of replaced files. `has_producers`: the segment may need a `.txnindex`.
    `wrong`: why not everything could be rebuilt, else None."""

    unit: ReindexUnit
    written: int = 0
    has_producers: bool = False
    wrong: NotReindexed | None = None


@dataclass(frozen=True, slots=True)
class ReindexedPartition:
    """A partition, and the number of its index files that were replaced."""

    topic: str
    partition: int
    segments: int
    bytes: int
    written: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@contextmanager
def locked_segments(engine: Engine, request: Reindex) -> Iterator[list[ReindexUnit]]:
    """Locks the directories as a broker would, for the block, removes unfinished files of earlier
    attempts, and yields the segments. Raises LogDirLocked, UnknownTopic or UnknownPartition."""
    request.check(engine)
    with ExitStack() as held:
        for log_dir in engine.log_dirs.dirs:
            held.enter_context(DirectoryLock(WritableDirFd(log_dir.path)))
        keys = request.units(engine)
        for key in keys:
            _remove_leftovers(_writable(engine, key))
        yield [
            ReindexUnit(*key, facts.size, facts)
            for key in keys
            for facts in PartitionListing(engine.partition_dir(*key).directory).segments(True)
        ]


def reindex_unit(engine: Engine, unit: ReindexUnit) -> UnitReindexed:
    """Rebuilds the indexes of a segment, or the transaction indexes of a partition, whose segments
    must all be intact."""
    directory = _writable(engine, unit.key)
    written = 0
    has_producers = False
    try:
        for base, rebuilt, with_producers in _rebuilt(engine, directory, unit):
            has_producers |= with_producers
            for kind in stale_indexes(directory, base, rebuilt):
                name = segment_file(base, kind)
                directory.write_atomically(name, rebuilt[kind], concurrently=True)
                written += 1
    except (CorruptError, SegmentGone, OSError) as error:
        return UnitReindexed(unit, written, wrong=NotReindexed.of(unit.key, error))
    return UnitReindexed(unit, written, has_producers)


def _rebuilt(
    engine: Engine, directory: WritableDirFd, unit: ReindexUnit
) -> Iterator[tuple[int, Mapping[FileKind, bytes], bool]]:
    """Yields the base offset of a segment, the content of its indexes, and whether it may need a
    `.txnindex`."""
    limits = engine.context.limits
    if unit.facts is not None:
        config = engine.topic_config(unit.topic).config
        found = rebuild_indexes(directory, unit.facts, config, limits)
        yield unit.facts.base_offset, found.by_kind(), found.has_producers
        return
    start = engine.partition_dir(*unit.key).log_dir.log_start_offsets.get(unit.key, 0)
    for base, data in rebuild_aborts(directory, start, limits, engine.clock.now_ms()):
        yield base, {FileKind.TXNINDEX: data}, True


def transactions_to_reindex(done: Iterable[UnitReindexed]) -> list[ReindexUnit]:
    """Returns the partitions that may have aborted transactions, without the damaged ones, whose
    transactions cannot be determined."""
    sizes: dict[TopicPartition, int] = {}
    damaged = set()
    for each in done:
        if each.has_producers:
            sizes[each.unit.key] = sizes.get(each.unit.key, 0) + each.unit.size
        if each.wrong is not None:
            damaged.add(each.unit.key)
    # Only headers are read.
    return [ReindexUnit(*key, size // 100) for key, size in sizes.items() if key not in damaged]


def reindexed_partitions(
    keys: Sequence[TopicPartition], done: Iterable[UnitReindexed]
) -> list[ReindexedPartition]:
    """Combines the results of all units, of segments and of transactions."""
    results: dict[TopicPartition, list[UnitReindexed]] = {key: [] for key in keys}
    for each in done:
        results[each.unit.key].append(each)
    rows = []
    for key, every in results.items():
        sizes = [each.unit.size for each in every if each.unit.facts is not None]
        written = sum(each.written for each in every)
        rows.append(ReindexedPartition(*key, len(sizes), sum(sizes), written))
    return rows


def _writable(engine: Engine, key: TopicPartition) -> WritableDirFd:
    found = engine.partition_dir(*key)
    return WritableDirFd(found.log_dir.path).child(found.name)


def _remove_leftovers(directory: WritableDirFd) -> None:
    for entry in directory.list():
        if entry.name.startswith(".") and entry.name.endswith(TEMPORARY_SUFFIX):
            directory.remove(entry.name, missing_ok=True)
