"""A view of a partition without what compaction, and then retention, would remove now."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..format import batch as b
from ..format.batch import BatchTable
from ..format.columns import Columns, Damage
from ..format.layout import CONTROL_MASK
from ..log import retention
from ..log.lookup import extent_from
from ..log.retention import Candidate, RetentionPlan
from ..log.segments import Segments
from ..log.transactions import Isolation
from ..log.view import View, last_offset
from ..segment.extent import Fault
from ..segment.segment import Segment
from ..segment.walk import walk_headers
from .counting import Totals
from .fates import Fate
from .plan import SegmentToClean, segments_of
from .preview import Preview, Question

#: What goes, by the names of `summary.json`.
REASONS: Final = {
    "superseded": Fate.SUPERSEDED,
    "tombstone": Fate.TOMBSTONE,
    "aborted": Fate.ABORTED,
    "keyless": Fate.KEYLESS,
}


@dataclass(frozen=True)
class CompactedView:
    """What `question` asks of, and a preview that answers it.

    As in Kafka's cleaner, retention comes before compaction and once more afterwards, when it
    deletes segments as the passes would write them.
    """

    question: Question
    preview: Preview

    @property
    def view(self) -> View:
        return self.question.view

    @property
    def segments(self) -> Segments:
        return self.view.segments

    def bound(self, isolation: Isolation) -> int:
        """The offset where reading stops."""
        return self.view.bound(isolation)

    def pinned(self) -> CompactedView:
        """The same with every `.log` held open, as `View.pin` does it, for as long as it lives.
        SegmentGone."""
        return CompactedView(self.question.pinned(), self.preview)

    @cached_property
    def start_offset(self) -> int:
        """The log start offset that retention leaves."""
        if self.preview.totals is None:
            return self.view.start_offset  # retention does not delete for size or time
        return max(self._retention.start_offset, self.view.start_offset)

    def keeps(self, offset: int) -> bool:
        """Whether the record at `offset`, where there is one, stays."""
        if offset < self.start_offset:
            return False
        return offset >= self.preview.end_offset or offset in self.preview.kept

    def mask(self, offsets: b.Int64s) -> NDArray[np.bool_]:
        """The same for some ascending offsets: bool of shape (n,)."""
        stays: NDArray[np.bool_] = self.preview.mask(offsets) & (offsets >= self.start_offset)
        return stays

    def scan(
        self,
        start: int | None = None,
        end: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
        *,
        ahead: bool = False,
    ) -> Generator[Columns | Damage]:
        """As `View.scan`: the records that stay."""
        low = self.start_offset if start is None else max(start, self.start_offset)
        for part in self.view.scan(low, end, isolation, ahead=ahead, choose=self._left_of):
            if isinstance(part, Columns):
                part = part.where(self.preview.mask(part.offsets))
                if not len(part):
                    continue
            yield part

    def _left_of(self, table: BatchTable) -> NDArray[np.bool_]:
        """Which batches may have records that stay; those of magic 0 and 1 do not say where they
        begin."""
        lows, highs = table.column(b.BASE_OFFSET), table.column(b.LAST_OFFSET)
        left = (highs >= self.preview.end_offset) | (table.column(b.MAGIC) < 2)
        return left | self.preview.kept.any_between(lows, highs)

    def first(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Offset of the first record that stays, None when none does. Damage is passed over."""
        kept = self.preview.kept.ceiling(self.start_offset)
        low = self.preview.end_offset if kept is None else kept
        for part in self.scan(low, isolation=isolation):
            if isinstance(part, Columns):
                return int(part.offsets[0])
        return None

    def last(self, isolation: Isolation = Isolation.READ_COMMITTED) -> int | None:
        """Offset of the last record that stays, None when none does. Damage is passed over."""
        scan = partial(self.scan, isolation=isolation)
        return last_offset(scan, self.start_offset, self.view.bound(isolation))

    # -- retention ------------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        """Those of a preview in full."""
        assert self.preview.totals is not None, "the preview was cut short"
        return self.preview.totals

    @cached_property
    def _left(self) -> Sequence[SegmentToClean]:
        """The segments that no pass goes over."""
        return [s for s in segments_of(self.view) if s.base_offset >= self.preview.end_offset]

    @cached_property
    def _retention(self) -> RetentionPlan:
        """What goes of the segments that the passes write and of those behind them."""
        end = self.view.end_offset
        segments: list[Candidate] = [*self.totals.groups, *self._left]
        log = retention.LogState(segments, self.view.start_offset, end, end)
        return retention.plan(log, self.question.config, self.question.now_ms)

    # -- the summary ----------------------------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        """What `summary.json` says, of a preview in full. Records are those from the log start
        offset on, those of aborted and of open transactions among them; bytes are those of the
        `.log` files."""
        question, planned = self.question, self.question.planned
        return {
            "topic": self.view.topic,
            "partition": self.view.partition,
            "at": question.now_ms,
            "isCompacted": question.is_compacted,
            **self._sizes(),
            "logStartOffset": self.start_offset,
            "firstDirtyOffset": planned.first_dirty,
            "firstUncleanableOffset": planned.first_uncleanable,
            "bound": self._bound(),
            "dirtyRatio": round(planned.ratio, 4),
            "minCleanableDirtyRatio": planned.min_ratio,
            "overdueAt": planned.overdue_at_ms,
            "isEligible": question.is_compacted and planned.is_eligible,
            "passes": self.totals.passes,
            "nextDeleteHorizon": self.totals.expires_at_ms,
        }

    def _sizes(self) -> dict[str, Any]:
        """How much there is before and after, and what goes by reason."""
        groups, left, deleted = self.totals.groups, self._left, self._retention.count
        of_groups = [group.records for group in groups]
        of_left = [records_in(segment.segment, self.view) for segment in left]
        gone = {reason: self.totals.gone[fate] for reason, fate in REASONS.items()}
        whole = self.question.whole
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
                "after": max(len(sizes) - deleted, 1),  # the last one is never missed
            },
            "gone": gone,
            "markersGone": self.totals.markers,
        }

    def _bound(self) -> str | None:
        """Why nothing is cleaned from `firstUncleanableOffset` on; None in an empty partition."""
        bounds = zip(self.view.segments, self.question.planned.bounds, strict=True)
        end = self.question.planned.first_uncleanable
        return next((str(bound) for segment, bound in bounds if segment.base_offset >= end), None)


def records_in(segment: Segment, view: View) -> int:
    """The records of a segment from the log start offset on, damaged ones left out."""

    def count() -> int:
        found = _counted_in_headers(segment, view)
        if found is not None:
            return found
        end = segment.next_base if not segment.is_active else None
        parts = view.scan(segment.base_offset, end, Isolation.READ_UNCOMMITTED)
        return sum(len(part) for part in parts if isinstance(part, Columns))

    return segment.files.remember("records", (segment.state, view.start_offset), count)


def _counted_in_headers(segment: Segment, view: View) -> int | None:
    """None where headers do not tell: wrappers do not say how many messages they hold, and the log
    may start within a batch."""
    if segment.base_offset < view.start_offset:
        return None
    count = 0
    for table in walk_headers(extent_from(segment, 0, view.context.limits.max_batch_bytes)):
        if isinstance(table, Fault):
            continue
        if int(table.column(b.MAGIC).min(initial=2)) < 2:
            return None
        count += int(table.column(b.RECORD_COUNT)[~table.flagged(CONTROL_MASK)].sum())
    return count
