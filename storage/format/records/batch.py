"""Parses the headers of record batches, into a table of many or a value for one.

The engine works on the table; a ``BatchHeader`` is built to inspect a single batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from .. import layout
from ..kernels import headers as kernel
from ..layout import Codec, TimestampType

# Columns of a BatchTable.
POSITION: Final = 0
SIZE: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
LEADER_EPOCH: Final = 4
MAGIC: Final = 5
CRC: Final = 6
ATTRIBUTES: Final = 7
BASE_TIMESTAMP: Final = 8
MAX_TIMESTAMP: Final = 9
PRODUCER_ID: Final = 10
PRODUCER_EPOCH: Final = 11
BASE_SEQUENCE: Final = 12
RECORD_COUNT: Final = 13

# Any buffer that a kernel accepts.
Bytes = bytes | bytearray | memoryview
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


class BatchHeader(NamedTuple):
    """The header of a batch (``RecordBatch``).

    ``position`` is the batch's position in its file and ``size`` its total length, both in bytes.
    Magic 0 and 1 have no leader epoch and no producer fields (-1) and, if compressed, no record
    count (-1); their ``base_offset`` equals ``last_offset`` until the wrapper is decompressed.
    ``base_timestamp`` is the delete horizon if ``has_delete_horizon``. Timestamps are milliseconds
    since 1970.
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        return Codec(self.attributes & layout.CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        if self.magic == 0:
            return TimestampType.NO_TIMESTAMP
        return TimestampType(int(bool(self.attributes & layout.TIMESTAMP_TYPE_MASK)))

    @property
    def is_transactional(self) -> bool:
        return self.magic > 1 and bool(self.attributes & layout.TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return self.magic > 1 and bool(self.attributes & layout.CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        return self.magic > 1 and bool(self.attributes & layout.DELETE_HORIZON_MASK)

    @property
    def next_position(self) -> int:
        return self.position + self.size

    def begins_after(self, offset: int) -> bool:
        """Returns whether all offsets of the batch are above ``offset``; False for a wrapper, whose
        base offset is unknown."""
        return self.record_count >= 0 and self.base_offset > offset

    def sequence(self, offset: int) -> int:
        """Returns the sequence number of the record at ``offset``, -1 if none. Wraps at 2**31."""
        if self.base_sequence < 0:
            return layout.NO_SEQUENCE
        return (self.base_sequence + offset - self.base_offset) & layout.MAX_INT32


class Walk(NamedTuple):
    """How a scan over headers ended: ``end`` is the buffer position where it stopped, ``why`` one
    of the kernel's reasons, ``what`` the message if the reason is a fault, else empty."""

    end: int
    why: int
    what: str

    @property
    def is_fault(self) -> bool:
        return bool(self.what)


class BatchSummary(NamedTuple):
    """What batches have together: the ``least_magic``, the attribute bits that ``any_has`` and that
    ``all_have``, the ``least_records`` of a batch and the sum of all, ``records``. A wrapper counts
    as -1 records."""

    least_magic: int
    any_has: int
    all_have: int
    least_records: int
    records: int


class BatchTable:
    """Headers of consecutive batches, one per row: an int64 array of shape (batches, columns)."""

    __slots__ = ("rows",)

    def __init__(self, rows: Int64s) -> None:
        self.rows = rows

    @classmethod
    def empty(cls, capacity: int = 0) -> BatchTable:
        """Returns a table of ``capacity`` uninitialized rows."""
        return cls(np.empty((capacity, kernel.COLUMNS), dtype=np.int64))

    @classmethod
    def of(cls, header: BatchHeader) -> BatchTable:
        """Returns a table of one batch."""
        return cls(np.array([header], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> BatchHeader:
        return BatchHeader(*self.rows[index].tolist())

    def __iter__(self) -> Iterator[BatchHeader]:
        for row in self.rows.tolist():
            yield BatchHeader(*row)

    def column(self, column: int) -> Int64s:
        return self.rows[:, column]

    def select(self, chosen: slice | NDArray[np.bool_] | Int64s) -> BatchTable:
        return BatchTable(self.rows[chosen])

    def summary(self) -> BatchSummary:
        """Summarizes the batches; of none, the least magic is 2."""
        return BatchSummary(*kernel.summary(self.rows))

    def flagged(self, mask: int) -> NDArray[np.bool_]:
        """Returns a mask of the batches with an attribute that only magic 2 has."""
        flagged: NDArray[np.bool_] = (self.rows[:, ATTRIBUTES] & mask) != 0
        return flagged & (self.rows[:, MAGIC] > 1)


def scan(
    data: Bytes,
    available: int,
    file_position: int,
    into: BatchTable,
    *,
    start: int = 0,
    previous_offset: int = -1,
    whole: bool,
) -> tuple[BatchTable, Walk]:
    """Parses the batch headers in ``data[start:available]`` into the first rows of ``into``, and
    returns a view of those rows.

    If ``whole``, a batch must end within the buffer; otherwise its header is enough.
    """
    count, end, why = kernel.scan_headers(
        data, start, available, file_position, previous_offset, whole, into.rows, 0
    )
    what = _fault(data, end, why) if why >= kernel.BAD_SIZE else ""
    return into.select(slice(0, count)), Walk(end, why, what)


def parse_header(data: Bytes, position: int = 0) -> BatchHeader:
    """Parses the header at ``data[0]``. Raises CorruptError if it is not a valid batch header."""
    table, walk = scan(data, len(data), position, BatchTable.empty(1), whole=False)
    if not len(table):
        raise CorruptError(walk.what or "too short for a batch header", position=position)
    return table[0]


def _fault(data: Bytes, at: int, why: int) -> str:
    size = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
    if why == kernel.BAD_SIZE:
        if not any(data[at : at + layout.MAGIC_END]):
            return "zeros where a batch should begin"
        return f"batch size field is {size}, too small for any batch of its magic"
    if why == kernel.BAD_MAGIC:
        return f"magic is {data[at + 16]}, expected 0, 1 or 2"
    if why == kernel.BAD_OFFSET:
        base = int.from_bytes(data[at : at + 8], "big", signed=True)
        return f"base offset {base} or the last offset delta is out of order"
    if why == kernel.BAD_COUNT:
        count = int.from_bytes(data[at + 57 : at + 61], "big", signed=True)
        return f"record count is {count}, more than the batch can hold"
    return f"codec {data[at + (22 if data[at + 16] == 2 else 17)] & 7} does not exist"
