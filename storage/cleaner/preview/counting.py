"""A cleaner sink that counts what passes would write and discard, for a dry run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from ...format.layout import CONTROL_MASK, DELETE_HORIZON_MASK, MAX_OFFSET, NO_TIMESTAMP
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...format.records.columns import Columns
from ...format.records.rewrite import rewrite
from ...log.read.view import View
from ..kept_offsets import KeptOffsets
from ..plan import SegmentToClean
from ..record_filter import FilterResult, RecordRetention

_DATA_RETENTIONS: Final = (
    RecordRetention.SUPERSEDED,
    RecordRetention.TOMBSTONE,
    RecordRetention.ABORTED,
    RecordRetention.KEYLESS,
)


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """A segment that a pass would write. `records` counts from the log start offset on;
    `largest_timestamp` in ms is that of its batches or, if none has one, the mtime it would get."""

    base_offset: int
    size: int
    largest_timestamp: int
    records: int


@dataclass(frozen=True, slots=True)
class Totals:
    """What passes over a log would write and discard.

    `gone`: the number of discarded records, by retention. `markers`: the number of discarded
    transaction markers, which are not records. `expires_at_ms`: when the next delete horizon
    passes, None for never. `tombstones`: the number retained.
    """

    groups: tuple[CleanedGroup, ...]
    gone: Mapping[RecordRetention, int]
    markers: int
    passes: int
    expires_at_ms: int | None
    tombstones: int


class Counting:
    """A cleaner sink that counts its input and remembers the retained offsets."""

    def __init__(self, start_offset: int, now_ms: int) -> None:
        self._start_offset = start_offset
        self._now_ms = now_ms
        self._counts = np.zeros(len(RecordRetention), dtype=np.int64)
        self._expires_at = MAX_OFFSET
        # Of the previous passes: the retained offsets, and the end of what they covered.
        self._before = KeptOffsets()
        self._before_end = 0
        self.begin_pass()

    def begin_pass(self) -> None:
        self._kept = KeptOffsets()
        self._tombstones = 0
        self._groups: list[CleanedGroup] = []

    def end_pass(self, end_offset: int, view: View) -> None:
        """Ends a pass whose map held the keys below `end_offset`, so that it covered the segments
        that begin below it."""
        self._kept.finish()
        self._before = self._kept
        at = view.segments.floor_index(end_offset - 1)
        self._before_end = view.segments[at].next_base

    @property
    def kept(self) -> KeptOffsets:
        """The offsets that the last pass retained."""
        return self._before

    def totals(self, passes: int) -> Totals:
        counts = self._counts.tolist()
        return Totals(
            tuple(self._groups),
            {retention: counts[retention] for retention in _DATA_RETENTIONS},
            counts[RecordRetention.MARKER],
            passes,
            self._expires_at if self._expires_at < MAX_OFFSET else None,
            self._tombstones,
        )

    # -- Sink -----------------------------------------------------------------------------------

    def begin(self, group: Sequence[SegmentToClean]) -> None:
        self._group = group
        self._size = self._records = 0
        self._largest = NO_TIMESTAMP

    def put(self, filtered: FilterResult) -> int:
        columns = filtered.columns
        there = self._there(columns.offsets)
        keep = filtered.keep if there is None else filtered.keep & there
        self._count(filtered, there)
        self._remember(columns, keep)
        self._tombstones += filtered.tombstones(keep)
        written = rewrite(
            filtered.data, filtered.base, columns, keep, filtered.actions, filtered.horizons,
            checked=False,
        )  # fmt: skip
        self._size += len(written.data)
        if len(written.table):
            largest = int(written.table.column(b.MAX_TIMESTAMP).max())
            self._largest = max(self._largest, largest)
        self._note_horizons(columns.batches)
        return len(written.data)

    def end(self) -> None:
        mtime_ms = self._group[-1].mtime_ms
        largest = self._largest if self._largest != NO_TIMESTAMP else mtime_ms
        base = self._group[0].base_offset
        self._groups.append(CleanedGroup(base, self._size, largest, self._records))

    def discard(self) -> None:
        """Does nothing: nothing was written."""

    def _there(self, offsets: b.Int64s) -> NDArray[np.bool_] | None:
        """Returns which rows the previous passes retained; None for all."""
        below = int(offsets.searchsorted(self._before_end))
        if not below:
            return None
        there = np.ones(len(offsets), dtype=np.bool_)
        there[:below] = self._before.mask(offsets[:below])
        return there

    def _count(self, filtered: FilterResult, there: NDArray[np.bool_] | None) -> None:
        """Counts each record from the log start offset on once, by its retention."""
        columns = filtered.columns
        first = int(columns.offsets.searchsorted(self._start_offset))
        if first or there is not None:
            retentions = (
                filtered.retentions[first:]
                if there is None
                else filtered.retentions[first:][there[first:]]
            )
            self._counts += np.bincount(retentions, minlength=len(RecordRetention))
        else:
            self._counts += filtered.counted
        unread = filtered.batch_retentions != RecordRetention.KEPT
        if unread.any():
            batches = columns.batches.rows[unread]
            new = batches[:, b.BASE_OFFSET] >= max(self._start_offset, self._before_end)
            np.add.at(
                self._counts, filtered.batch_retentions[unread][new], batches[new, b.RECORD_COUNT]
            )

    def _remember(self, columns: Columns, keep: NDArray[Any]) -> None:
        """Remembers what is retained, including markers, because later passes find it there.
        Markers do not count as records."""
        rows = keep.astype(np.bool_)
        offsets = columns.offsets[rows]
        try:
            self._kept.add(offsets)
        except ValueError as error:
            position = int(columns.batches.rows[0, b.POSITION])
            raise CorruptError(str(error), columns.file, position) from None
        if columns.batches.summary().any_has & CONTROL_MASK:
            is_control = columns.batches.flagged(CONTROL_MASK)
            rows &= ~np.repeat(is_control, np.diff(columns.first_row))
            offsets = columns.offsets[rows]
        self._records += len(offsets) - int(offsets.searchsorted(self._start_offset))

    def _note_horizons(self, table: BatchTable) -> None:
        """Updates when the next of the batches' present delete horizons passes."""
        if table.summary().any_has & DELETE_HORIZON_MASK:
            horizons = table.select(table.flagged(DELETE_HORIZON_MASK)).column(b.BASE_TIMESTAMP)
            to_come = horizons[horizons > self._now_ms]
            self._expires_at = min(self._expires_at, int(to_come.min(initial=MAX_OFFSET)))
