"""A view of a partition without the records that compaction and retention would remove now."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...format.layout import CONTROL_MASK
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...format.records.columns import Columns, Damage
from ...log.delete import retention
from ...log.delete.retention import RetainableSegment, RetentionPlan
from ...log.read.lookup import extent_from
from ...log.read.segments import Segments
from ...log.read.transactions import Isolation
from ...log.read.view import View, last_offset
from ...segment.extent import Fault
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from ..plan import SegmentToClean, segments_of
from ..record_filter import RecordRetention
from .counting import Totals
from .preview import Preview, PreviewRequest

#: Why records are discarded, by the names in `summary.json`.
REASONS: Final = {
    "superseded": RecordRetention.SUPERSEDED,
    "tombstone": RecordRetention.TOMBSTONE,
    "aborted": RecordRetention.ABORTED,
    "keyless": RecordRetention.KEYLESS,
}


@dataclass(frozen=True)
class CompactedView:
    """The result of the preview that answers `request`.

    As in Kafka's cleaner, retention precedes compaction and also follows it, when it deletes
    segments as the passes would write them.
    """

    request: PreviewRequest
    preview: Preview

    @property
    def view(self) -> View:
        return self.request.view

    @property
    def segments(self) -> Segments:
        return self.view.segments

    @property
    def tail(self) -> Fault | None:
        """Damage after the last whole batch, which a cleaning leaves alone."""
        return self.view.tail

    def bound(self, isolation: Isolation) -> int:
        """Returns the offset where reading stops."""
        return self.view.bound(isolation)

    def pinned(self) -> CompactedView:
        """Returns the same view with every `.log` held open for its lifetime, as `View.pin` does.
        Raises SegmentGone if a segment no longer exists."""
        return CompactedView(self.request.pinned(), self.preview)

    @cached_property
    def start_offset(self) -> int:
        """The log start offset after retention."""
        if self.preview.totals is None:
            return self.view.start_offset  # retention does not delete for size or time
        return max(self._retention.start_offset, self.view.start_offset)

    def keeps(self, offset: int) -> bool:
        """Returns whether a record at `offset` would be retained."""
        if offset < self.start_offset:
            return False
        return offset >= self.preview.end_offset or offset in self.preview.kept

    def mask(self, offsets: b.Int64s) -> NDArray[np.bool_]:
        """Returns which of the ascending offsets would be retained: bool of shape (n,)."""
        is_kept: NDArray[np.bool_] = self.preview.mask(offsets) & (offsets >= self.start_offset)
        return is_kept

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        *,
        ahead: bool = False,
    ) -> Generator[Columns | Damage]:
        """Yields the records that would be retained, as `View.scan` does."""
        low = self.start_offset if start is None else max(start, self.start_offset)
        for part in self.view.scan(low, end, isolation, ahead=ahead, select=self._left_of):
            if isinstance(part, Columns):
                part = part.where(self.preview.mask(part.offsets))
                if not len(part):
                    continue
            yield part

    def _left_of(self, table: BatchTable) -> NDArray[np.bool_]:
        """Returns which batches may contain retained records. Batches of magic 0 and 1 are always
        included, because their headers lack the first offset."""
        lows, highs = table.column(b.BASE_OFFSET), table.column(b.LAST_OFFSET)
        left = (highs >= self.preview.end_offset) | (table.column(b.MAGIC) < 2)
        return left | self.preview.kept.any_between(lows, highs)

    def first(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Returns the offset of the first retained record, None without one. Skips damage."""
        kept = self.preview.kept.ceiling(self.start_offset)
        low = self.preview.end_offset if kept is None else kept
        for part in self.scan(low, isolation=isolation):
            if isinstance(part, Columns):
                return int(part.offsets[0])
        return None

    def last(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Returns the offset of the last retained record, None without one. Skips damage."""
        scan = partial(self.scan, isolation=isolation)
        return last_offset(scan, self.start_offset, self.view.bound(isolation))

    # -- retention ------------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        """The totals; only a full preview has them."""
        assert self.preview.totals is not None, "the preview was cut short"
        return self.preview.totals

    @cached_property
    def _left(self) -> Sequence[SegmentToClean]:
        """The segments that no pass covers."""
        return [s for s in segments_of(self.view) if s.base_offset >= self.preview.end_offset]

    @cached_property
    def _retention(self) -> RetentionPlan:
        """Which of the segments that the passes write, and of those after them, retention
        deletes."""
        end = self.view.end_offset
        segments: list[RetainableSegment] = [*self.totals.groups, *self._left]
        log = retention.RetentionState(segments, self.view.start_offset, end, end)
        return retention.plan(log, self.request.config, self.request.now_ms)

    # -- the summary ----------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """Returns the content of `summary.json`; needs a full preview. Records are counted from the
        log start offset, including those of aborted and open transactions; bytes are those of the
        `.log` files."""
        request, planned = self.request, self.request.planned
        return {
            "topic": self.view.topic,
            "partition": self.view.partition,
            "at": request.now_ms,
            "isCompacted": request.is_compacted,
            **self._sizes(),
            "logStartOffset": self.start_offset,
            "firstDirtyOffset": planned.first_dirty,
            "firstUncleanableOffset": planned.first_uncleanable,
            "bound": self._bound(),
            "dirtyRatio": round(planned.ratio, 4),
            "minCleanableDirtyRatio": planned.min_ratio,
            "overdueAt": planned.overdue_at_ms,
            "isEligible": request.is_compacted and planned.is_eligible,
            "passes": self.totals.passes,
            "nextDeleteHorizon": self.totals.expires_at_ms,
        }

    def _sizes(self) -> dict[str, Any]:
        """Returns the sizes before and after, and the number of records discarded by reason."""
        groups, left, deleted = self.totals.groups, self._left, self._retention.count
        of_groups = [group.records for group in groups]
        of_left = [records_in(segment.segment, self.view) for segment in left]
        gone = {reason: self.totals.gone[outcome] for reason, outcome in REASONS.items()}
        whole = self.request.whole
        expired = whole.segments[: len(whole.segments) - len(self.view.segments)]
        gone["expired"] = sum([*of_groups, *of_left][:deleted])
        gone["expired"] += sum(records_in(segment, whole) for segment in expired)
        stay = sum([*of_groups, *of_left][deleted:])
        sizes = [*(group.size for group in groups), *(segment.size for segment in left)]
        before, after = whole.size, sum(sizes[deleted:])
        return {
            "records": {"before": stay + sum(gone.values()), "after": stay},
            "bytes": {"before": before, "after": after, "saved": before - after},
            "segments": {
                "before": len(whole.segments),
                "after": max(len(sizes) - deleted, 1),  # a log always has a segment
            },
            "gone": gone,
            "markersGone": self.totals.markers,
        }

    def _bound(self) -> str | None:
        """Returns why nothing from `firstUncleanableOffset` on is cleaned; None if the partition is
        empty."""
        bounds = zip(self.view.segments, self.request.planned.bounds, strict=True)
        end = self.request.planned.first_uncleanable
        return next((str(bound) for segment, bound in bounds if segment.base_offset >= end), None)


def records_in(segment: Segment, view: View) -> int:
    """Returns the number of undamaged records of a segment from the log start offset on."""

    def count() -> int:
        found = _counted_in_headers(segment, view)
        if found is not None:
            return found
        end = segment.next_base if not segment.is_active else None
        parts = view.scan(segment.base_offset, end, Isolation.READ_UNCOMMITTED)
        return sum(len(part) for part in parts if isinstance(part, Columns))

    return segment.files.remember("records", (segment.state, view.start_offset), count)


def _counted_in_headers(segment: Segment, view: View) -> int | None:
    """Returns the number of records according to the headers. None if they do not suffice: headers
    of wrappers do not contain a count, and the log may start or end within a batch."""
    is_split = segment.end is not None and segment.end.is_split
    if is_split or segment.base_offset < view.start_offset:
        return None
    count = 0
    for table in walk_headers(extent_from(segment, 0, view.context.limits.max_batch_bytes)):
        if isinstance(table, Fault):
            continue
        if int(table.column(b.MAGIC).min(initial=2)) < 2:
            return None
        count += int(table.column(b.RECORD_COUNT)[~table.flagged(CONTROL_MASK)].sum())
    return count
