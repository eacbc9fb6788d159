"""Finds offsets of a partition that are in no batch."""

from __future__ import annotations

import numpy as np

from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import Finding


class Gaps:
    """Offsets that are in no batch, though there is no sign of compaction. `has_all`: every offset
    so far has its record."""

    def __init__(self, base_offset: int) -> None:
        self.has_all = True
        self._next = base_offset
        self._found: list[Finding] = []
        self._is_compacted = False
        self._is_behind_damage = False
        self._faults = 0  # seen in the current segment

    def batches(self, check: CheckedSegment, table: BatchTable) -> None:
        bases, lasts = table.column(b.BASE_OFFSET), table.column(b.LAST_OFFSET)
        counts = table.column(b.RECORD_COUNT)
        self._is_behind_damage |= check.faults > self._faults
        self._faults = check.faults
        before = np.concatenate(([self._next - 1], lasts[:-1]))
        # A wrapper records neither its first offset nor its number of records.
        is_wrapper = counts < 0
        missing = np.flatnonzero((bases != before + 1) & ~is_wrapper)
        if (is_wrapper | (counts != lasts - bases + 1)).any():
            self._is_compacted, self.has_all = True, False
        for row in missing.tolist():
            self.has_all = False
            if row or not self._is_behind_damage:
                first, last = int(before[row]) + 1, int(bases[row]) - 1
                what = f"the offsets {first} to {last} before it are in no batch"
                self._found.append(Finding(check.path, int(table.rows[row, b.POSITION]), what))
        self._is_behind_damage = False
        self._next = int(lasts[-1]) + 1

    def end_of(self, check: CheckedSegment) -> None:
        """Notes the end of a segment."""
        self._is_behind_damage |= check.faults > self._faults
        self._faults = 0
        self.has_all &= check.faults == 0

    def findings(self) -> list[Finding]:
        return [] if self._is_compacted else self._found
