"""Which records are to be erased."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..format.kernels import keys as kernel
from ..format.layout import CONTROL_MASK
from ..format.records.batch import Int64s
from ..format.records.columns import KEY_SIZE, KEY_START, Columns


@dataclass(frozen=True, slots=True)
class RecordSelector:
    """Selects the records with a key, those whose key begins with `prefix`, or the one at `offset`;
    never control records. Exactly one of the three is given."""

    key: bytes | None = None
    prefix: bytes | None = None
    offset: int | None = None

    def rows(self, columns: Columns) -> Int64s:
        """Returns the selected rows, ascending."""
        rows = self._matching(columns)
        if not len(rows):
            return rows
        batches = columns.first_row.searchsorted(rows, side="right") - 1
        return rows[~columns.batches.flagged(CONTROL_MASK)[batches]]

    def _matching(self, columns: Columns) -> Int64s:
        if self.offset is not None:
            low, high = columns.offsets.searchsorted((self.offset, self.offset + 1)).tolist()
            return np.arange(low, high, dtype=np.int64)
        if self.key is not None:
            return _rows_of(columns, self.key)
        assert self.prefix is not None
        return _rows_with_prefix(columns, self.prefix)


def _rows_of(columns: Columns, key: bytes) -> Int64s:
    rows: list[int] = []
    row = kernel.last_row(columns.data, columns.spans, key)
    while row >= 0:
        rows.append(row)
        row = kernel.last_row(columns.data, columns.spans[:row], key)
    return np.array(rows[::-1], dtype=np.int64)


def _rows_with_prefix(columns: Columns, prefix: bytes) -> Int64s:
    rows = np.flatnonzero(columns.spans[:, KEY_SIZE] >= len(prefix)).astype(np.int64)
    if not len(rows):
        return rows
    data = np.frombuffer(columns.data, dtype=np.uint8)
    # The last byte first: it is the one in which keys differ most.
    for at in reversed(range(len(prefix))):
        starts = columns.spans[rows, KEY_START].astype(np.int64)
        rows = rows[data[starts + at] == prefix[at]]
    return rows
