"""Reads many small ranges of planned views at once.

To open a view and decode its batches alone costs as much as reading a megabyte of records. So the
bytes of small files are put together, and decoded like the batches of one file. Whatever is unusual
is left to `ReferencedViews.scan`: markers, damage, batches of magic 0 and 1, parts of files.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from ..format.kernels import headers
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..format.records.columns import Columns
from ..format.records.decoder import BadBatch, Decoder, are_plain
from ..format.records.joined_columns import JoinedColumns
from ..io.directory import ReadableFile
from .survey import ReferencedViews, ViewReference

# A larger file costs more to read than to open.
_SMALL_BYTES: Final = 64 << 10
# What is decoded at once: enough that this costs little, and little enough for a CPU cache.
_DECODED_BYTES: Final = 512 << 10
_BATCHES: Final = 4096


class SmallRanges:
    """Small ranges that are decoded together."""

    def __init__(self, views: ReferencedViews) -> None:
        self._views = views
        self._decoder = Decoder(views.max_batch_bytes)
        self._joined = JoinedColumns()
        self._data = memoryview(bytearray(_DECODED_BYTES + _SMALL_BYTES))
        self._table = BatchTable.empty(_BATCHES)
        self._size = 0
        self._batches = [0]  # before each range, and after the last

    @property
    def is_full(self) -> bool:
        """Whether the ranges should be taken before another is added."""
        return self._size >= _DECODED_BYTES or self._batches[-1] >= _BATCHES // 2

    def add(self, reference: ViewReference, start: int, end: int) -> bool:
        """Adds offsets [``start``, ``end``) of a view. Returns False, and adds nothing, if only
        `ReferencedViews.scan` can read them."""
        size = reference.files[0].size
        if len(reference.files) > 1 or not size or self._size + size > len(self._data):
            return False
        if size > min(_SMALL_BYTES, self._views.max_batch_bytes):
            return False
        file = self._views.open_single(reference)
        count = 0 if file is None else self._read(file, reference, start, end)
        if count:
            self._size += size
            self._batches.append(self._batches[-1] + count)
        return count > 0

    def _read(self, file: ReadableFile, reference: ViewReference, start: int, end: int) -> int:
        """Reads a file after the others. Returns its number of batches, 0 unless all of its bytes
        are valid batches of records, and all of these are in the range."""
        log, at, row = reference.files[0], self._size, self._batches[-1]
        stop = at + log.size
        if file.read_into(0, self._data[at:stop]) < log.size:
            return 0
        count, reached, _ = headers.scan_headers(
            self._data, at, stop, at, log.base_offset - 1, True, self._table.rows, row
        )
        if reached < stop:
            return 0
        batches = self._table.select(slice(row, row + count))
        first, last = int(batches.rows[0, b.BASE_OFFSET]), int(batches.rows[-1, b.LAST_OFFSET])
        if not max(start, reference.start_offset) <= first or not last < end:
            return 0
        if last >= reference.bound or 0 <= reference.next_base <= last:
            return 0
        return count if are_plain(self._data, batches, 0) else 0

    def take(self) -> tuple[Columns, list[int]] | None:
        """Removes the ranges. Returns their records, valid until the next call, and the number of
        each range's; None if `ReferencedViews.scan` must read them, because records are damaged."""
        table, edges = self._table.select(slice(0, self._batches[-1])), self._batches
        self._size, self._batches = 0, [0]
        self._joined.clear()
        for part in self._decoder.decode(self._data, 0, table, ""):
            if isinstance(part, BadBatch):
                return None
            assert isinstance(part, Columns)
            self._joined.add(part)
        columns = self._joined.columns("")
        rows = columns.first_row[edges].tolist()
        return columns, [high - low for low, high in pairwise(rows)]
