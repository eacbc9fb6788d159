"""Looks at a partition's batch headers without walking large segments.

A small segment is walked whole. Of a larger one, the header of the first batch is read, and those
at offset index entries that are evenly spread, so that the time depends on the number of segments
and not on their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from ...format.layout import (
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    Codec,
)
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable, Int64s
from ...log.read.lookup import extent_from, header_at, note_headers
from ...log.read.view import View
from ...segment.extent import Fault
from ...segment.offset_index import OffsetIndex, OffsetPosition
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from .model import CodecUse, Disorder, Growth, TimeGap

# One or two reads return all headers of a segment of this size.
_WALKED_BYTES: Final = 64 << 10
# Headers to look at in a partition, at least one in each segment.
_HEADERS: Final = 128
#: Points of a log's growth that are kept.
MOST_POINTS: Final = 256
# A pause is a gap if it is so many times as long as the median one, and at least so long.
_GAP_RATIO: Final = 10
_GAP_MS: Final = 1000
_MOST_GAPS: Final = 3
# A longer part of a time index is not searched for the exact bounds of a gap.
_SEARCHED_ENTRIES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class SampledHeaders:
    """Headers of a partition's batches, in order; positions count from the first segment's start.
    `first_timestamps`: of each segment's first batch, -1 if there is none. `damage`: what was met
    instead of batches."""

    table: BatchTable
    first_timestamps: Sequence[int]
    damage: tuple[CorruptError, ...]

    @property
    def data(self) -> BatchTable:
        """Those of record batches. Markers have the coordinator's time, not the producer's."""
        return self.table.select(~self.table.flagged(CONTROL_MASK))


def sampled_headers(view: View) -> SampledHeaders:
    """Returns headers of a view's batches. Raises SegmentGone or OSError as reading does."""
    count = max(_HEADERS // max(len(view.segments), 1), 1)
    limit = view.context.limits.max_batch_bytes
    rows: list[Int64s] = [BatchTable.empty().rows]
    firsts: list[int] = []
    damage: list[CorruptError] = []
    before = 0
    for segment in view.segments:
        first = NO_TIMESTAMP
        for part in _headers(segment, count, limit):
            if isinstance(part, CorruptError):
                damage.append(part)
                continue
            if first == NO_TIMESTAMP:
                first = int(start_times(part)[0])
            moved = part.rows.copy()
            moved[:, b.POSITION] += before
            rows.append(moved)
        firsts.append(first)
        before += segment.size
    return SampledHeaders(BatchTable(np.concatenate(rows)), firsts, tuple(damage))


def _headers(segment: Segment, count: int, limit: int) -> Iterator[BatchTable | CorruptError]:
    if segment.size <= _WALKED_BYTES:
        walked = [
            part if isinstance(part, Fault) else BatchTable(part.rows.copy())
            for part in walk_headers(extent_from(segment, 0, limit))
        ]
        note_headers(segment, walked)
        yield from (part.error if isinstance(part, Fault) else part for part in walked)
        return
    found: list[BatchHeader] = []
    for position, highest in _places(segment, count):
        header = header_at(segment.files.log(), position)
        if header is None or not segment.base_offset <= header.base_offset <= highest:
            what = "no batch begins here" if position else "the segment begins with no batch"
            hint = ", where an entry of the offset index points" if position else ""
            yield CorruptError(f"{what}{hint}", segment.path, position)
        elif not found or header.position > found[-1].position:
            found.append(header)
    if found:
        yield BatchTable(np.array(found, dtype=np.int64))


def _places(segment: Segment, count: int) -> Iterator[tuple[int, int]]:
    """Yields positions of `count` batches and the first one, each with the highest base offset that
    the batch can have."""
    index = segment.offset_index()
    entries = [] if index is None else _spread(index, count)
    yield 0, entries[0].offset if entries else segment.base_offset + (1 << 31)
    yield from (
        (each.position, each.offset) for each in entries[1:] if each.position < segment.size
    )


def _spread(index: OffsetIndex, count: int) -> list[OffsetPosition]:
    """Returns the first entry of an index, if there is one, and then `count` evenly spread ones,
    or fewer if there are no more."""
    found: list[OffsetPosition] = []
    entries = len(index)
    most = min(count, entries)
    with suppress(IndexError):  # a broker may truncate the log meanwhile
        found += [index.entry(0)] if entries else []
        for number in range(most):
            found.append(index.entry((2 * number + 1) * entries // (2 * most)))
    return found


def start_times(table: BatchTable) -> Int64s:
    """Returns the timestamps of the first records of batches in ms or, where a header does not have
    it (a delete horizon is in its place, or the time is the broker's), the greatest of the batch's;
    int64 of shape (n,)."""
    has_none = table.flagged(DELETE_HORIZON_MASK) | (table.column(b.MAGIC) < 2)
    has_none |= table.flagged(TIMESTAMP_TYPE_MASK)
    return np.where(has_none, table.column(b.MAX_TIMESTAMP), table.column(b.BASE_TIMESTAMP))


def codecs_of(table: BatchTable) -> dict[str, CodecUse]:
    """Returns the use of each codec, by its name in Kafka."""
    codecs = table.column(b.ATTRIBUTES) & CODEC_MASK
    sizes = table.column(b.SIZE)
    return {
        Codec(code).kafka_name: CodecUse(
            int((codecs == code).sum()), int(sizes[codecs == code].sum())
        )
        for code in np.unique(codecs).tolist()
    }


def disorder_of(starts: Int64s, ends: Int64s, offsets: Int64s, now_ms: int) -> Disorder:
    """Returns how much timestamps go back. `starts`, `ends`: the first and the greatest of each
    batch, -1 for none; `offsets`: those of the first records."""
    before = np.maximum.accumulate(np.concatenate([[NO_TIMESTAMP], ends]))[:-1]
    steps = np.where(starts >= 0, before - starts, 0)
    is_back = steps > 0
    at = int(steps.argmax()) if is_back.any() else -1
    return Disorder(
        len(starts),
        int(is_back.sum()),
        int(steps[at]) if at >= 0 else 0,
        int(offsets[at]) if at >= 0 else -1,
        int((starts > now_ms).sum()),  # the rest of a batch may be later than an earlier time
    )


def added(one: Mapping[str, CodecUse], other: Mapping[str, CodecUse]) -> dict[str, CodecUse]:
    """Returns the sums of two uses of codecs."""
    total: defaultdict[str, CodecUse] = defaultdict(CodecUse)
    for uses in (one, other):
        for name, use in uses.items():
            total[name] += use
    return dict(sorted(total.items()))


def growth_of(samples: SampledHeaders, view: View, now_ms: int) -> Growth:
    """Returns how a log grew, as far as `samples` show it. Times after `now_ms` count as
    `now_ms`, since one record of next year would hide all others."""
    table = samples.data
    timestamps = table.column(b.MAX_TIMESTAMP)
    table, timestamps = table.select(timestamps >= 0), timestamps[timestamps >= 0]
    if not len(table):
        none = np.empty(0, dtype=np.int64)
        return Growth(none, none, none)
    starts = [int(start_times(table)[0]), int(timestamps[0])]
    first = min(each for each in starts if each >= 0)
    offsets = table.column(b.LAST_OFFSET) + 1
    sizes = table.column(b.POSITION) + table.column(b.SIZE)
    return growth(
        np.concatenate([[first], timestamps, timestamps[-1:]]),
        np.concatenate([[view.segments[0].base_offset], offsets, [view.end_offset]]),
        np.concatenate([[0], sizes, [view.size]]),
        now_ms,
    )


def growth(timestamps: Int64s, offsets: Int64s, sizes: Int64s, now_ms: int) -> Growth:
    """Returns the growth after each of some points, without limit."""
    ascending = np.maximum.accumulate(np.minimum(timestamps, now_ms))
    return Growth(ascending, np.asarray(offsets), np.asarray(sizes))


def thinned(whole: Growth) -> Growth:
    """Returns the same growth with at most `MOST_POINTS` points, the first and the last included,
    that are about equally many bytes apart."""
    if len(whole) <= MOST_POINTS:
        return whole
    marks = np.linspace(0, whole.sizes[-1], MOST_POINTS - 1)
    kept = np.unique(np.append(np.searchsorted(whole.sizes, marks), [0, len(whole) - 1]))
    kept = kept[kept < len(whole)]
    return Growth(whole.timestamps[kept], whole.offsets[kept], whole.sizes[kept])


def gaps_of(whole: Growth) -> tuple[TimeGap, ...]:
    """Returns the longest times between the points of a log's growth, the longest first."""
    times, offsets = whole.timestamps, whole.offsets
    return tuple(
        TimeGap(int(times[at]), int(times[at + 1]), int(offsets[at]))
        for at in unusual(np.diff(times))
    )


def unusual(pauses: Int64s) -> list[int]:
    """Returns the indices of the pauses, in ms, that are gaps: the longest ones, the longest
    first."""
    usual = float(np.median(pauses[pauses > 0])) if (pauses > 0).any() else 0.0
    is_gap: NDArray[np.bool_] = pauses >= max(_GAP_RATIO * usual, _GAP_MS)
    longest = sorted(np.flatnonzero(is_gap).tolist(), key=lambda at: -int(pauses[at]))
    return longest[:_MOST_GAPS]


def narrowed(gap: TimeGap, view: View) -> TimeGap:
    """Returns the longest pause within a gap between two sampled batches, as far as the time index
    of the segment shows it."""
    segment = view.segments[max(view.segments.floor_index(gap.offset), 0)]
    index = segment.time_index()
    if index is None or not len(index):
        return gap
    low, high = max(index.floor_slot(gap.from_ms), 0), index.floor_slot(gap.until_ms)
    if not 0 < high - low <= _SEARCHED_ENTRIES:
        return gap
    times, offsets = index.columns(low, high + 1)
    is_inside = (gap.from_ms <= times) & (times <= gap.until_ms)
    times = np.concatenate([[gap.from_ms], times[is_inside], [gap.until_ms]])
    offsets = np.concatenate([[gap.offset], offsets[is_inside] + 1])
    at = int(np.diff(times).argmax())
    return TimeGap(int(times[at]), int(times[at + 1]), int(offsets[at]))
