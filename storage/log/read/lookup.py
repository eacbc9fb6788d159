"""The two basic lookups: the batch of an offset, and the first record at or after a timestamp.

Both begin with a segment's sparse index and walk from there. An index is never trusted: it names a
position, and the walk begins there only if a matching batch header is found, otherwise at the
segment's start. A missing, stale, damaged or forged index therefore costs only time. (`LogSegment`:
translateOffset, findOffsetByTimestamp.)

A time index entry claims more than its batch can prove: that no earlier batch has a greater
timestamp. In a segment of a few megabytes all headers are read, once, to verify that; in a larger
one an entry is accepted if its own batch has the timestamp, as only an index forged for this very
log could be wrong there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import numpy as np

from ...errors import CorruptError
from ...format.layout import MAX_INT32, MAX_OFFSET, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable, parse_header
from ...io.directory import ReadableFile
from ...segment.extent import Extent, Fault
from ...segment.offset_index import OffsetPosition
from ...segment.segment import Segment
from ...segment.time_index import TimeIndex, TimestampOffset
from ...segment.walk import walk_headers

# The headers of a segment of this size are read within a few milliseconds.
_ALL_HEADERS_BYTES: Final = 4 << 20


def extent_from(
    segment: Segment, position: int, max_batch_bytes: int, previous_offset: int = -1
) -> Extent:
    """Returns the rest of a segment from a batch boundary on; ``previous_offset`` precedes it (-1:
    unknown)."""
    limit = segment.next_base
    if segment.is_active:  # Kafka rolls before offsets exceed the base by more than an int32
        limit = min(segment.base_offset + MAX_INT32 + 1, MAX_OFFSET)
    return Extent(
        segment.files.log(),
        segment.base_offset,
        position,
        segment.size,
        max_batch_bytes,
        previous_offset,
        limit,
    )


def position_for(segment: Segment, offset: int, max_batch_bytes: int) -> int:
    """Returns a batch boundary at or before the batch of ``offset``: from the index if its entry is
    valid, else 0."""
    index = segment.offset_index()
    if index is None or not len(index):
        return 0
    found = index.lookup(offset, segment.size)
    return found.position if _is_valid(segment, found) else 0


def boundary_before(segment: Segment, position: int) -> int:
    """Returns a batch boundary at or before a byte position of the log: from the index if its entry
    is valid, else 0."""
    index = segment.offset_index()
    if index is None or not len(index):
        return 0
    found = index.lookup_position(position, segment.size)
    return found.position if _is_valid(segment, found) else 0


def walk_from(segment: Segment, offset: int, max_batch_bytes: int) -> Iterator[BatchTable | Fault]:
    """Yields headers from a boundary at or before the batch of ``offset``, as ``position_for``."""
    index = segment.offset_index()
    if index is not None and len(index):
        walk = walk_from_entry(segment, index.lookup(offset, segment.size), max_batch_bytes)
        if walk is not None:
            yield from walk
            return
    yield from walk_headers(extent_from(segment, 0, max_batch_bytes))


def walk_from_entry(
    segment: Segment, entry: OffsetPosition, max_batch_bytes: int
) -> Iterator[BatchTable | Fault] | None:
    """Returns the headers from an offset index entry on; None if its position is 0, which stands
    for "no entry", or no matching batch is there."""
    if not entry.position:
        return None
    walk = walk_headers(extent_from(segment, entry.position, max_batch_bytes))
    first = next(walk, None)
    if isinstance(first, BatchTable) and _fits(segment, entry, first[0]):
        return chain([first], walk)
    return None


def _is_valid(segment: Segment, found: OffsetPosition) -> bool:
    """Whether the batch at an entry's position can be the one meant."""
    if not found.position:
        return False
    header = header_at(segment.files.log(), found.position)
    return header is not None and _fits(segment, found, header)


def _fits(segment: Segment, found: OffsetPosition, header: BatchHeader) -> bool:
    """Whether the batch at an entry's position can be the one meant. It must be followed by a batch
    of higher offsets or the end of the segment. Otherwise it may be part of a record's value, or
    its base offset may be wrong, which only a walk from the segment's start can tell."""
    if not segment.base_offset <= header.base_offset <= found.offset:
        return False
    if header.next_position >= segment.size:
        return header.next_position == segment.size
    follower = header_at(segment.files.log(), header.next_position)
    return follower is not None and follower.base_offset > header.last_offset


def header_at(log: ReadableFile, position: int) -> BatchHeader | None:
    try:
        return parse_header(log.read(position, RECORD_BATCH_OVERHEAD), position)
    except CorruptError:
        return None


def find_batch(
    segment: Segment, offset: int, max_batch_bytes: int
) -> tuple[BatchHeader | None, Fault | None]:
    """Returns the header of the first batch with a last offset >= ``offset``, None if there is
    none; and any damage directly before it, which may have held the offset if the batch does
    not."""
    fault: Fault | None = None
    for table in walk_from(segment, offset, max_batch_bytes):
        if isinstance(table, Fault):
            if fault is None or table.batch is None or table.batch.base_offset <= offset:
                fault = table
            continue
        at = int(np.searchsorted(table.column(b.LAST_OFFSET), offset))
        if at < len(table):
            return table[at], None if at else fault
        fault = None  # the damage lies before a batch that ends before the offset
    return None, fault


def find_batches_since(
    segment: Segment, timestamp: int, max_batch_bytes: int, start_offset: int = 0
) -> Iterator[BatchHeader | Fault]:
    """Yields, in order, the batches that may hold the first record at or above ``start_offset``
    with a timestamp >= ``timestamp`` (ms)."""
    for table in walk_for_time(segment, timestamp, start_offset, max_batch_bytes):
        if isinstance(table, Fault):
            yield table
            continue
        young = _greatest_timestamps(table) >= timestamp
        for index in np.flatnonzero(young).tolist():
            yield table[index]


def _greatest_timestamps(table: BatchTable) -> b.Int64s:
    return table.column(b.MAX_TIMESTAMP)


def walk_for_time(
    segment: Segment, timestamp: int, start: int, max_batch_bytes: int
) -> Iterator[BatchTable | Fault]:
    """Yields headers from the last valid time entry below ``timestamp`` (ms) or, if that is later,
    from the offset ``start`` on."""
    start = start_for_time(segment, start, entry_before(segment, timestamp, max_batch_bytes))
    if start < 0:
        return walk_headers(extent_from(segment, 0, max_batch_bytes))
    return walk_from(segment, start, max_batch_bytes)


def start_for_time(segment: Segment, start: int, entry: TimestampOffset | None) -> int:
    """Returns the offset to look up in the offset index before a walk for a timestamp begins, -1 to
    begin at position 0: the greater one of ``start`` and the offset of the time entry."""
    if entry is not None:
        return max(entry.offset, start)
    return start if start > segment.base_offset else -1


def entry_before(segment: Segment, timestamp: int, max_batch_bytes: int) -> TimestampOffset | None:
    """Returns the last valid time index entry below ``timestamp`` (ms), None if there is none."""
    index = segment.time_index()
    if index is None or not len(index) or not is_ascending(segment, index):
        return None
    found = index.lookup(timestamp - 1)
    used = 0 <= found.timestamp < timestamp and _bears_out(segment, found, max_batch_bytes)
    return found if used else None


def is_ascending(segment: Segment, index: TimeIndex) -> bool:
    """Caches `TimeIndex.ascends`, which reads a whole index, for a rolled segment, whose index may
    be opened many times."""
    if segment.is_active:
        return index.ascends()
    state = segment.state, index.identity, len(index)
    return segment.files.remember("rising time index", state, index.ascends)


def _bears_out(segment: Segment, entry: TimestampOffset, max_batch_bytes: int) -> bool:
    """Whether the batch that a time entry names has the entry's timestamp and, where that is known,
    no earlier batch has a greater one."""
    if not segment.base_offset <= entry.offset:
        return False
    header, fault = find_batch(segment, entry.offset, max_batch_bytes)
    return (
        header is not None
        and fault is None
        and not header.begins_after(entry.offset)
        and header.max_timestamp == entry.timestamp
        and not _is_surpassed(segment, header, max_batch_bytes)
    )


def _is_surpassed(segment: Segment, header: BatchHeader, max_batch_bytes: int) -> bool:
    if segment.size > _ALL_HEADERS_BYTES:
        return False
    last_offsets, maxima = _running_maxima(segment, max_batch_bytes)
    number = int(np.searchsorted(last_offsets, header.last_offset, side="right"))
    return number > 0 and bool(maxima[number - 1] > header.max_timestamp)


def _running_maxima(segment: Segment, max_batch_bytes: int) -> tuple[b.Int64s, b.Int64s]:
    """Returns last offset and timestamp of each batch whose timestamp exceeds all before it."""

    def compute() -> tuple[b.Int64s, b.Int64s]:
        return _maxima_of(walk_headers(extent_from(segment, 0, max_batch_bytes)))

    return segment.files.remember("running maxima", segment.state, compute)


def note_headers(segment: Segment, walked: Iterable[BatchTable | Fault]) -> None:
    """Remembers the timestamps of a segment all of whose headers were walked, so that
    `largest_timestamp` does not walk them again."""
    if segment.end is None:
        segment.files.remember("running maxima", segment.state, lambda: _maxima_of(walked))


def _maxima_of(walked: Iterable[BatchTable | Fault]) -> tuple[b.Int64s, b.Int64s]:
    none = np.empty(0, dtype=np.int64)
    last_offsets, maxima = [none], [none]
    largest = np.full(1, NO_TIMESTAMP)
    for table in walked:
        if isinstance(table, Fault):
            continue
        so_far = np.maximum.accumulate(np.concatenate([largest, _greatest_timestamps(table)]))
        rises = np.flatnonzero(so_far[1:] > so_far[:-1])
        last_offsets.append(table.column(b.LAST_OFFSET)[rises])
        maxima.append(so_far[rises + 1])
        largest = so_far[-1:]
    return np.concatenate(last_offsets), np.concatenate(maxima)


def largest_timestamp(segment: Segment, max_batch_bytes: int) -> int:
    """Returns the greatest timestamp of a segment's batches in ms, -1 if none has one.

    Uses the last time entry, if valid, and the batches after it; otherwise all batches.
    """
    if segment.end is not None:
        return segment.end.largest_timestamp
    if segment.size <= _ALL_HEADERS_BYTES:
        _, maxima = _running_maxima(segment, max_batch_bytes)
        return int(maxima[-1]) if len(maxima) else NO_TIMESTAMP

    def compute() -> int:
        index = segment.time_index()
        start, largest = 0, NO_TIMESTAMP
        if index is not None and len(index) and is_ascending(segment, index):
            entry = index.last_entry()
            if _bears_out(segment, entry, max_batch_bytes):
                largest = entry.timestamp
                start = position_for(segment, entry.offset, max_batch_bytes)
        for table in walk_headers(extent_from(segment, start, max_batch_bytes)):
            if not isinstance(table, Fault):
                largest = max(largest, int(_greatest_timestamps(table).max()))
        return largest

    return segment.files.remember("largest timestamp", segment.state, compute)


def timestamp_bound(segment: Segment, offset: int, max_batch_bytes: int) -> int:
    """Returns a timestamp (ms) that no record of a segment up to ``offset`` exceeds, -1 if none of
    them has one: from the next time entry, if valid, else the greatest of the segment."""
    if segment.end is not None:
        return largest_timestamp(segment, max_batch_bytes)
    if segment.size <= _ALL_HEADERS_BYTES:
        last_offsets, maxima = _running_maxima(segment, max_batch_bytes)
        if not len(maxima):
            return NO_TIMESTAMP
        # The batch that holds the offset ends at or after it.
        return int(maxima[min(int(np.searchsorted(last_offsets, offset)), len(maxima) - 1)])
    index = segment.time_index()
    if index is not None and len(index) and is_ascending(segment, index):
        slot = bisect_left(range(len(index)), offset, key=lambda at: _offset_at(index, at))
        timestamps, offsets = index.columns(slot, slot + 1)
        if len(timestamps):
            entry = TimestampOffset(int(timestamps[0]), int(offsets[0]))
            if _bears_out(segment, entry, max_batch_bytes):
                return entry.timestamp
    return largest_timestamp(segment, max_batch_bytes)


def _offset_at(index: TimeIndex, slot: int) -> int:
    return int(index.columns(slot, slot + 1)[1][0])
