"""Where a log ended at a time T: before the first record, in offset order, that is later than T.

A log has no other trace of when a record was appended. With LogAppendTime the end is exact. With
CreateTime the timestamps are the producers', and may go backwards: a record up to T that follows a
later one is left out, since the log could not have it without that one. Control records count, so
that a transaction is open at T if its marker is later, and so does a batch that compaction emptied,
whose header keeps its largest timestamp. Records without a timestamp (magic 0) are never later.
Records below the log start offset count as long as they are on the disk.

The end is found by the lookup by time, through the sparse time indexes; one batch is decoded. Once
found it is remembered, so that neither appends nor a cleaning move it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ...errors import CorruptError, OffsetNotFound
from ...format.files.names import FileState
from ...format.layout import MAX_OFFSET, NO_TIMESTAMP
from ...format.records import batch as b
from ...format.records.batch import BatchHeader
from ...format.records.columns import Columns
from ...segment.extent import Fault
from ...segment.segment import Segment, SegmentEnd
from . import lookup
from .segments import Segments
from .transactions import Isolation
from .view import View

_NS_PER_MS: Final = 1_000_000


class LogEnd:
    """The end of one log as of ``at_ms`` (ms since 1970). Used by one thread at a time.

    ``offset``: that of the first record later than ``at_ms``, None as long as there is none.
    """

    def __init__(self, at_ms: int) -> None:
        self.at_ms = max(at_ms, NO_TIMESTAMP)
        self.offset: int | None = None
        self._ended: Segments | None = None
        self._made_of: list[tuple[int, tuple[int, int], FileState]] = []
        # The last batch before the end, and its segment's base offset.
        self._last: BatchHeader | None = None
        self._last_base = -1

    def segments_of(self, view: View) -> Segments | None:
        """Returns the segments of a view of the whole log up to the end: those after it are left
        out, and the last one ends with the last batch that has a record before it. Returns None if
        the log has no later record. The same object is returned while nothing changed before the
        end."""
        if self.offset is None:
            self.offset = first_later(view, self.at_ms)
        if self.offset is None:
            return None
        below = view.segments.floor_index(self.offset - 1)
        kept = view.segments[: max(below, 0) + 1]
        files = [(s.base_offset, s.files.identity, s.files.state) for s in kept]
        if self._ended is None or files != self._made_of:
            self._ended, self._made_of = self._segments(view, kept), files
        return self._ended

    def forget_if_truncated(self, segments: Segments) -> bool:
        """Forgets the end, and returns True, if the log was truncated below it: it then has other
        records there. A truncated log ends with the segment that was."""
        if self.offset is None or self._ended is None:
            return False
        now = segments[max(segments.floor_index(self.offset - 1), 0)]
        before, *_ = self._made_of[-1]
        if not now.is_active or now.base_offset > before:
            return False
        if now.base_offset == before and self._is_intact(now):
            return False
        self.offset = self._ended = self._last = None
        return True

    def _is_intact(self, segment: Segment) -> bool:
        """Whether the last batch before the end is where it was, if it is in the segment."""
        last = self._last
        if last is None or segment.base_offset != self._last_base:
            return True
        if segment.size < last.next_position:
            return False
        return lookup.header_at(segment.files.log(), last.position) == last

    def _segments(self, view: View, kept: Sequence[Segment]) -> Segments:
        last = self._ended_segment(view, kept[-1])
        if not last.size and len(kept) > 1:  # its first record rolled the log
            kept = kept[:-1]
            last = self._ended_segment(view, kept[-1])
        return Segments([*kept[:-1], last])

    def _ended_segment(self, view: View, segment: Segment) -> Segment:
        """Returns the segment as the active one at the time, up to the end."""
        assert self.offset is not None
        later, limit = self.at_ms + 1, view.context.limits.max_batch_bytes
        entry = lookup.entry_before(segment, later, limit)
        largest = NO_TIMESTAMP if entry is None else entry.timestamp
        size, is_split = segment.size, False
        self._last, self._last_base = None, segment.base_offset
        for table in lookup.walk_for_time(segment, later, 0, limit):
            if isinstance(table, Fault):
                continue
            count = int(np.searchsorted(table.column(b.LAST_OFFSET), self.offset))
            if count:
                self._last = table[count - 1]
                # A batch that claims a later one, and has none, is damaged.
                latest = int(table.column(b.MAX_TIMESTAMP)[:count].max())
                largest = max(largest, min(latest, self.at_ms))
            if count == len(table):
                continue
            header = table[count]
            columns = _columns(view, segment, header)
            rows = 0 if columns is None else int(columns.offsets.searchsorted(self.offset))
            if columns is not None and rows:
                self._last, is_split = header, True
                largest = max(largest, int(columns.timestamps[:rows].max()))
            size = header.next_position if is_split else header.position
            break
        end = SegmentEnd(self.offset, largest, is_split)
        mtime_ns = min(segment.mtime_ns, self.at_ms * _NS_PER_MS)
        return replace(segment, size=size, mtime_ns=mtime_ns, next_base=-1, end=end)


def first_later(view: View, at_ms: int) -> int | None:
    """Returns the offset of the first record in the segments of a view that is later than `at_ms`
    (ms since 1970), None if there is none."""
    later = at_ms + 1
    limit = view.context.limits.max_batch_bytes
    whole = replace(view, start_offset=0, end_offset=MAX_OFFSET)
    for _, segment in whole.segments_reaching(later, Isolation.READ_UNCOMMITTED):
        for header in lookup.find_batches_since(segment, later, limit):
            if isinstance(header, Fault):
                continue
            if not header.record_count:
                return header.base_offset
            columns = _columns(view, segment, header)
            if columns is not None and (is_later := columns.timestamps >= later).any():
                return int(columns.offsets[is_later.argmax()])
    return None


def _columns(view: View, segment: Segment, header: BatchHeader) -> Columns | None:
    """Returns a decoded batch, None if it is damaged or compaction removed all its records."""
    try:
        return view.batch(segment, header)
    except (CorruptError, OffsetNotFound):
        return None
