"""Splits logs into ranges of offsets, by bytes at entries of the sparse indexes.

A range is a unit of work that any process can read on its own (`range_reader`): a thread of this
one, or a Spark task on another machine. Splitting reads a few index entries for each cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..segment.segment import Segment
from .survey import ViewReference, reference_to


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """A part of a partition that a task reads: offsets [`start`, `end`), about `size` bytes of
    `.log`.

    `is_last`: the log ended at `end` when this was planned, so damage after its last batch is part
    of the range. `topic_id`: the id in the partition's directory at that time, "" if it had none.
    Offsets of a topic with another id are not read instead. `view`: the files that contained the
    range at that time, for a task to open without listing any directory; None if it must.
    """

    topic: str
    partition: int
    start: int
    end: int
    size: int
    is_last: bool = False
    topic_id: str = ""
    view: ViewReference | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}, offsets {self.start} to {self.end - 1}"


class OffsetSpan(NamedTuple):
    """Offsets [`start`, `end`) of a partition to read, and where their bytes are; `topic_id` as in
    OffsetRange.

    `segments` contain them; `ends[i]` is the number of the span's bytes in segments up to `i`,
    where the first segment is counted from position `skipped` on.
    """

    view: View
    start: int
    end: int
    topic_id: str = ""
    segments: Sequence[Segment] = ()
    ends: Sequence[int] = ()
    skipped: int = 0

    @classmethod
    def of(cls, view: View, start: int, end: int, topic_id: str) -> OffsetSpan:
        segments = [s for s in view.segments.from_offset(start) if s.base_offset < end]
        first, last = segments[0], segments[-1]
        skipped = _position_of(first, start) if start > first.base_offset else 0
        sizes = [segment.size for segment in segments]
        if end < (view.end_offset if last.is_active else last.next_base):
            sizes[-1] = min(sizes[-1], _position_of(last, end, up=True))
        sizes[0] -= skipped
        ends = list(accumulate(max(size, 0) for size in sizes))
        return cls(view, start, end, topic_id, segments, ends, skipped)

    @property
    def size(self) -> int:
        return self.ends[-1]

    def offset_at(self, byte: int) -> int:
        """Returns an offset near the record that is `byte` bytes after the start."""
        number = min(bisect_right(self.ends, byte), len(self.segments) - 1)
        before = self.ends[number - 1] if number else -self.skipped
        segment, position = self.segments[number], byte - before
        index = segment.offset_index()
        entry = index.lookup_position(position, segment.size) if index is not None else None
        if entry is None or not entry.position:
            return segment.base_offset
        return entry.offset + 1


def _position_of(segment: Segment, offset: int, up: bool = False) -> int:
    """Returns an offset's approximate position in a segment by its index; with `up` one at or
    after it."""
    index = segment.offset_index()
    if index is None or not len(index):
        return segment.size if up else 0
    if up:
        slot = index.floor_slot(offset) + 1
        return index.entry(slot).position if slot < len(index) else segment.size
    return index.lookup(offset, segment.size).position


def cut_by_bytes(span: OffsetSpan, target: int, isolation: Isolation) -> Iterator[OffsetRange]:
    """Yields the span in pieces of about `target` bytes, cut at the offsets of index entries."""
    view, size = span.view, span.size
    edges = [span.start, span.end]
    if size > target:
        parts = -(-size // target)
        cuts = (span.offset_at(size * part // parts) for part in range(1, parts))
        edges[1:1] = sorted({offset for offset in cuts if span.start < offset < span.end})
    for low, high in pairwise(edges):
        yield OffsetRange(
            topic=view.topic,
            partition=view.partition,
            start=low,
            end=high,
            size=size // (len(edges) - 1),
            is_last=high == view.end_offset,
            topic_id=span.topic_id,
            view=reference_to(view, span.topic_id, low, high, isolation),
        )
