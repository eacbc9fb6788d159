"""Joins the records of many small columns, so that they are converted at once.

To convert columns has a cost of its own, as high as that of converting a hundred records.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .batch import BatchTable
from .columns import HEADER_COUNT, Columns

_FIRST_ROWS: Final = 1024
_FIRST_BYTES: Final = 64 << 10


class JoinedColumns:
    """Copies of columns, of any partitions, as adjacent rows. The buffers are reused.

    ``nbytes``: how many bytes of ``data`` have been added.
    """

    __slots__ = (
        "_batches", "_count", "_data", "_first_row", "_offsets", "_rows", "_spans", "_timestamps",
        "nbytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.nbytes = self._rows = self._count = 0
        self._data = np.empty(_FIRST_BYTES, dtype=np.uint8)
        self._offsets = np.empty(_FIRST_ROWS, dtype=np.int64)
        self._timestamps = np.empty(_FIRST_ROWS, dtype=np.int64)
        self._spans = np.empty((_FIRST_ROWS, HEADER_COUNT + 1), dtype=np.int32)
        self._batches = BatchTable.empty(_FIRST_ROWS).rows
        self._first_row = np.empty(_FIRST_ROWS, dtype=np.int64)

    def __len__(self) -> int:
        return self._rows

    def clear(self) -> None:
        """Removes all rows."""
        self.nbytes = self._rows = self._count = 0

    def add(self, columns: Columns) -> None:
        """Adds a copy of the rows after all others."""
        at, row, batch = self.nbytes, self._rows, self._count
        self.nbytes = end = at + len(columns.data)
        self._rows = row_end = row + len(columns)
        self._count = batch_end = batch + len(columns.batches)
        self._reserve()
        self._data[at:end].data[:] = columns.data
        self._offsets[row:row_end] = columns.offsets
        self._timestamps[row:row_end] = columns.timestamps
        spans = self._spans[row:row_end]
        spans[:] = columns.spans
        spans[:, ::2] += np.int32(at)  # the starts; the others are sizes
        self._batches[batch:batch_end] = columns.batches.rows
        np.add(columns.first_row[:-1], row, out=self._first_row[batch:batch_end])

    def columns(self, file: str) -> Columns:
        """Returns all rows, valid until rows are added. ``file`` is for the messages of errors."""
        return Columns(
            self._data[: self.nbytes].data,
            self._offsets[: self._rows],
            self._timestamps[: self._rows],
            self._spans[: self._rows],
            BatchTable(self._batches[: self._count]),
            np.append(self._first_row[: self._count], self._rows),
            file,
        )

    def _reserve(self) -> None:
        """Makes room for the present numbers of bytes, rows and batches."""
        if self.nbytes > len(self._data):
            self._data = _grown(self._data, self.nbytes)
        if self._rows > len(self._offsets):
            self._offsets = _grown(self._offsets, self._rows)
            self._timestamps = _grown(self._timestamps, self._rows)
            self._spans = _grown(self._spans, self._rows)
        if self._count > len(self._first_row):
            self._batches = _grown(self._batches, self._count)
            self._first_row = _grown(self._first_row, self._count)


def _grown(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Returns a copy with room for at least ``length`` rows."""
    grown = np.empty((max(length, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    return grown
