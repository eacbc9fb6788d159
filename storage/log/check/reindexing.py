"""Rebuilds the indexes of a partition's segments from nothing but its batches.

Writes the same indexes as recovery after a crash, but does nothing else: nothing is truncated, and
a damaged segment keeps its present indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...config.kafka import TopicConfig
from ...errors import CorruptError, fresh
from ...format.files.names import FileKind, segment_file
from ...format.layout import MAX_OFFSET
from ...format.records import batch as b
from ...io.directory import Directory
from ...io.preallocated import is_zero
from ...segment.check.verify import SegmentFacts
from ...segment.extent import Extent
from ...segment.index_builder import IndexBuilder
from ...segment.rebuild import Rebuild
from ...segment.txn_index import format_aborted_txns
from ..load.loading_segment import LoadingSegment, check_log_size
from ..load.producer_rebuild import ProducerRebuild, Snapshots
from ..read.context import ReadLimits
from ..state.producers import EXPIRATION_MS
from ..state.snapshots import read_snapshot
from .partition_listing import PartitionListing


@dataclass(frozen=True, slots=True)
class Indexes:
    """The contents of a segment's `.index` and `.timeindex`. `has_producers`: whether it may need a
    `.txnindex`."""

    offsets: bytes
    times: bytes
    has_producers: bool

    def by_kind(self) -> Mapping[FileKind, bytes]:
        return {FileKind.INDEX: self.offsets, FileKind.TIMEINDEX: self.times}


def rebuild_indexes(
    directory: Directory, facts: SegmentFacts, config: TopicConfig, limits: ReadLimits
) -> Indexes:
    """Reads a whole segment. Raises CorruptError if it is damaged or its offsets span too much, and
    SegmentGone if it no longer exists."""
    base = facts.base_offset
    file = directory.open(segment_file(base, FileKind.LOG))
    check_log_size(facts.size, file.path)
    limit = MAX_OFFSET if facts.next_base < 0 else facts.next_base
    extent = Extent(file, base, 0, facts.size, limits.max_batch_bytes, limit_offset=limit)
    builder = IndexBuilder(base, config.index_interval_bytes, config.segment_index_bytes)
    rebuild = Rebuild(extent, builder)
    has_producers = False
    for table in rebuild.tables():
        has_producers |= bool((table.column(b.PRODUCER_ID) >= 0).any())
    if rebuild.overflows:
        what = "offsets more than 2**31 - 1 apart, too many for the index of one segment"
        raise CorruptError(what, file.path, rebuild.size)
    is_room = facts.next_base < 0 and is_zero(file, rebuild.size, facts.size)
    if rebuild.fault is not None and not is_room:
        raise fresh(rebuild.fault)
    return Indexes(rebuild.offsets, rebuild.times, has_producers)


def rebuild_aborts(
    directory: Directory, log_start: int, limits: ReadLimits, now_ms: int
) -> Iterator[tuple[int, bytes]]:
    """Yields the content of each segment's `.txnindex` by base offset, b"" if none is needed. Reads
    headers only. The segments must be intact (see `rebuild_indexes`)."""
    listing = PartitionListing(directory)
    segments = [_segment(directory, facts, limits) for facts in listing.segments(True)]
    if not segments:
        return
    snapshots = Snapshots(listing.snapshots, partial(read_snapshot, directory))
    first = segments[0].base_offset
    rebuild = ProducerRebuild(snapshots, log_start, EXPIRATION_MS, now_ms)
    producers = rebuild.at(first, (), False).producers
    for segment in segments:
        aborted = []
        for table in segment.tables(segment.base_offset):
            new = table.select(table.column(b.MAGIC) > 1)
            aborted += producers.replay(new, segment.read_marker)
        yield segment.base_offset, format_aborted_txns(aborted)


def _segment(directory: Directory, facts: SegmentFacts, limits: ReadLimits) -> LoadingSegment:
    limit = MAX_OFFSET if facts.next_base < 0 else facts.next_base
    name = segment_file(facts.base_offset, FileKind.LOG)
    size = limits.max_batch_bytes
    return LoadingSegment(directory, facts.base_offset, name, "", 0, facts.size, limit, size)


def stale_indexes(
    directory: Directory, base_offset: int, expected: Mapping[FileKind, bytes]
) -> Sequence[FileKind]:
    """Returns the kinds of index whose files differ from `expected`. A missing file is stale; a
    missing `.txnindex` counts as empty."""
    names = {entry.name for entry in directory.list() if entry.is_file}
    stale = []
    for kind, data in expected.items():
        name = segment_file(base_offset, kind)
        if name not in names:
            if data or kind is not FileKind.TXNINDEX:
                stale.append(kind)
            continue
        if not directory.open(name).holds(data):
            stale.append(kind)
    return stale
