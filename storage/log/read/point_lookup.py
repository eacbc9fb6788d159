"""Point lookup: finds the batch of an offset with one read, in the common case.

Two index entries enclose the batch, and one read fetches everything between them. The data must
pass the checks of a walk: headers with rising offsets, including one after the batch, and a correct
checksum. If anything fails or is unusual, the result is None and the walk decides
(`lookup.find_batch`). A walk would find the same batch; a point lookup takes a third of the time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ...format.checksum import crc32c
from ...format.kernels import headers, records
from ...format.layout import CRC_COVERS_FROM, MAX_OFFSET, RECORD_BATCH_OVERHEAD
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...segment.segment import Segment

# Three entries span more only where batches are so large that reading them dwarfs the cost of a
# walk.
_MOST_BYTES: Final = 128 << 10
_MOST_BATCHES: Final = 64
# A read that saves this many bytes pays off even if it is sometimes wasted.
_WORTH_SKIPPING: Final = 8 << 10


class LookupBuffers:
    """Buffers for a point lookup. Used by one lookup at a time."""

    __slots__ = ("headers", "offsets", "spans", "timestamps")

    def __init__(self) -> None:
        self.headers = BatchTable.empty(_MOST_BATCHES).rows
        self.offsets, self.timestamps = np.empty((2, 1), dtype=np.int64)
        self.spans = np.empty((1, 6), dtype=np.int32)


class FoundBatch(NamedTuple):
    """A batch of magic 2 with a correct checksum: its row in the buffer's headers, that header as
    table columns, all its bytes, and its file."""

    row: int
    header: list[int]
    data: memoryview
    file: str

    @property
    def attributes(self) -> int:
        return self.header[b.ATTRIBUTES]


def point_lookup(segment: Segment, offset: int, buffers: LookupBuffers) -> FoundBatch | None:
    """Returns the first batch with a last offset >= ``offset``, if one read finds it."""
    index = segment.files.offset_index()
    if index is None:
        return None
    size = segment.size
    found, position, middle, end = index.around(offset, size)
    if offset > found and middle - position > _WORTH_SKIPPING:
        # Every large batch has an entry, so the batch requested is the second entry's.
        seen = _look(segment, offset, middle, end, found, found + 1, buffers)
        if seen is not None:
            return seen
    highest = found if position else MAX_OFFSET
    return _look(segment, offset, position, end, segment.base_offset - 1, highest, buffers)


def _look(
    segment: Segment,
    offset: int,
    start: int,
    end: int,
    previous: int,
    highest: int,
    buffers: LookupBuffers,
) -> FoundBatch | None:
    """Looks from ``start`` to just after ``end``, both batch positions. The first batch's base
    offset must be above ``previous`` and at most ``highest``."""
    size = min(end + RECORD_BATCH_OVERHEAD, segment.size) - start
    if not 0 < size <= _MOST_BYTES:
        return None
    log = segment.files.log()
    data = memoryview(log.read(start, size))
    limit = MAX_OFFSET if segment.is_active else segment.next_base
    row = headers.find_batch(
        data, start, previous, highest, offset, segment.size, limit, buffers.headers
    )
    if row < 0:
        return None
    header = buffers.headers[row].tolist()
    begin = header[b.POSITION] - start
    batch = data[begin : begin + header[b.SIZE]]
    if len(batch) < header[b.SIZE] or crc32c(batch[CRC_COVERS_FROM:]) != header[b.CRC]:
        return None
    return FoundBatch(row, header, batch, log.path)


def value_in(
    seen: FoundBatch, offset: int, buffers: LookupBuffers
) -> tuple[int, bytes | None] | None:
    """Returns timestamp and value of the record at ``offset`` in an uncompressed batch; None if
    there is no such record, or if any record is malformed."""
    is_there, timestamp, start, size = records.find_record(
        seen.data,
        buffers.headers,
        seen.row,
        offset,
        buffers.offsets,
        buffers.timestamps,
        buffers.spans,
    )
    if not is_there:
        return None
    return timestamp, bytes(seen.data[start : start + size]) if size >= 0 else None
