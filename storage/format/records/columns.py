"""Decoded records in columnar form, which is what bulk reads return.

One ``Columns`` holds records of consecutive batches. Keys, values and headers are not copied out of
their buffer; a record is a row of positions in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from .. import layout
from ..layout import TimestampType
from ..primitives import decode_utf8, read_varint
from . import batch as batch_columns
from .batch import BatchHeader, BatchTable, Bytes, Int32s, Int64s

# Columns of ``spans``; a size of -1 is null, HEADER_START is the position of the first header.
KEY_START, KEY_SIZE, VALUE_START, VALUE_SIZE, HEADER_START, HEADER_COUNT = range(6)

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record, with the header of its batch.

    ``timestamp`` is milliseconds since 1970, -1 if the format has none. Invalid UTF-8 in a header
    key becomes replacement characters, as in Kafka's own consumer.
    """

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    batch: BatchHeader

    @property
    def sequence(self) -> int:
        """The producer's sequence number, -1 if none."""
        return self.batch.sequence(self.offset)


@dataclass(frozen=True, slots=True)
class Damage:
    """A place where a read found bytes that are not valid records.

    Offsets in [``first_offset``, ``next_offset``) are lost; ``next_offset`` is -1 if nothing
    readable follows in the segment.
    """

    error: CorruptError
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Lines:
    """One field of the records of whole batches, each followed by a newline; null is an empty line.
    The first line belongs to the first record at or after ``first_offset``."""

    data: memoryview
    first_offset: int


class Columns:
    """Records as rows, in ascending order of offset.

    ``data``: the buffer. ``offsets``, ``timestamps``: int64 of shape (n,), ms since 1970 or -1.
    ``spans``: int32 of shape (n, 6), positions and sizes in ``data``. ``batches``: the b batches
    of the rows; batch i has rows [``first_row[i]``, ``first_row[i + 1]``) (int64 of shape
    (b + 1,)). ``file``: path of the segment.
    """

    __slots__ = ("batches", "data", "file", "first_row", "offsets", "spans", "timestamps")

    def __init__(
        self,
        data: Bytes,
        offsets: Int64s,
        timestamps: Int64s,
        spans: Int32s,
        batches: BatchTable,
        first_row: Int64s,
        file: str,
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.timestamps = timestamps
        self.spans = spans
        self.batches = batches
        self.first_row = first_row
        self.file = file

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return (
            len(self.data)
            + self.offsets.nbytes
            + self.timestamps.nbytes
            + self.spans.nbytes
            + self.batches.rows.nbytes
        )

    def key(self, row: int) -> bytes | None:
        return self._bytes(row, KEY_START)

    def value(self, row: int) -> bytes | None:
        return self._bytes(row, VALUE_START)

    def _bytes(self, row: int, column: int) -> bytes | None:
        start, size = self.spans[row, column : column + 2].tolist()
        return None if size < 0 else bytes(self.data[start : start + size])

    def headers(self, row: int) -> list[Header]:
        at, count = self.spans[row, HEADER_START:].tolist()
        headers: list[Header] = []
        for _ in range(count):
            size, at = read_varint(self.data, at)
            name = decode_utf8(bytes(self.data[at : at + size]))
            size, at = read_varint(self.data, at + size)
            headers.append((name, bytes(self.data[at : at + size]) if size >= 0 else None))
            at += max(size, 0)
        return headers

    def batch_of(self, row: int) -> BatchHeader:
        return self.batches[int(np.searchsorted(self.first_row, row, side="right")) - 1]

    def timestamp_types(self) -> Int32s:
        """Returns the ``TimestampType`` of every row, int32 of shape (n,)."""
        rows = self.batches.rows
        types = ((rows[:, batch_columns.ATTRIBUTES] >> 3) & 1).astype(np.int32)
        types[rows[:, batch_columns.MAGIC] == 0] = TimestampType.NO_TIMESTAMP
        return np.repeat(types, np.diff(self.first_row))

    def timestamp_type(self) -> TimestampType | None:
        """Returns the type that all rows share, None if they differ (or may: magic 0 and 1)."""
        summary = self.batches.summary()
        is_of_any = summary.any_has & layout.TIMESTAMP_TYPE_MASK
        if summary.least_magic < 2 or is_of_any != summary.all_have & layout.TIMESTAMP_TYPE_MASK:
            return None
        return TimestampType(int(is_of_any != 0))

    def record(self, row: int) -> Record:
        batch = self.batch_of(row)
        return Record(
            offset=int(self.offsets[row]),
            timestamp=int(self.timestamps[row]),
            timestamp_type=batch.timestamp_type,
            key=self.key(row),
            value=self.value(row),
            headers=self.headers(row),
            batch=batch,
        )

    def row_of(self, offset: int) -> int:
        """Returns the row of the record at ``offset``, -1 if there is none."""
        row = int(self.offsets.searchsorted(offset))
        return row if row < len(self) and self.offsets[row] == offset else -1

    def slice(self, low: int, high: int) -> Columns:
        """Returns rows [low, high), sharing the buffers; batches without a row are omitted."""
        first = max(int(np.searchsorted(self.first_row, low, side="right")) - 1, 0)
        last = max(int(np.searchsorted(self.first_row, high, side="left")), first)
        return Columns(
            self.data,
            self.offsets[low:high],
            self.timestamps[low:high],
            self.spans[low:high],
            self.batches.select(slice(first, last)),
            np.clip(self.first_row[first : last + 1], low, high) - low,
            self.file,
        )

    def with_nulls(self, nulls: Mapping[int, NDArray[np.bool_]]) -> Columns:
        """Returns the rows with a null key or value wherever ``nulls`` says so: for KEY_SIZE or
        VALUE_SIZE, whether that of each row is left out. All but the spans is shared."""
        spans = self.spans.copy()
        for size, chosen in nulls.items():
            spans[chosen, size] = -1
        return Columns(
            self.data,
            self.offsets,
            self.timestamps,
            spans,
            self.batches,
            self.first_row,
            self.file,
        )

    def where(self, chosen: NDArray[np.bool_]) -> Columns:
        """Returns the rows that ``chosen`` selects, sharing ``data``. Unless it selects all,
        batches without a row are omitted."""
        rows = np.flatnonzero(chosen)
        if len(rows) == len(self):
            return self
        first_row = rows.searchsorted(self.first_row)
        has_rows = first_row[1:] > first_row[:-1]
        return Columns(
            self.data,
            self.offsets[rows],
            self.timestamps[rows],
            self.spans[rows],
            self.batches.select(has_rows),
            np.append(first_row[:-1][has_rows], len(rows)),
            self.file,
        )

    def copy(self) -> Columns:
        """Returns a copy that owns its buffers and so outlives the decoder's next run."""
        return Columns(
            bytes(self.data),
            self.offsets.copy(),
            self.timestamps.copy(),
            self.spans.copy(),
            BatchTable(self.batches.rows.copy()),
            self.first_row.copy(),
            self.file,
        )
