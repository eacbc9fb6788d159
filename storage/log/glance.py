"""The batch of an offset from one read, where nothing is unusual: what nearly every look-up needs.

Two entries of the index enclose the batch, and one read brings all between them. What it shows must
hold together as a walk would demand: headers with rising offsets, one more behind the batch, the
right checksum. Where it does not, or where anything else is out of the ordinary, the answer is None
and the walk decides (`lookup.find_batch`). Nothing is found here that a walk would not find too; it
takes a third of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..format import batch as b
from ..format.batch import BatchTable
from ..format.checksum import crc32c
from ..format.layout import CRC_COVERS_FROM, MAX_OFFSET, RECORD_BATCH_OVERHEAD
from ..segment.segment import Segment

# More lies between three entries only where batches are so large that a walk does not count beside
# reading them.
_MOST_BYTES: Final = 128 << 10
_MOST_BATCHES: Final = 64
# Bytes that a read leaves out gladly, even if it was in vain now and then.
_WORTH_SKIPPING: Final = 8 << 10


@dataclass(frozen=True, slots=True)
class Glimpse:
    """A batch of magic 2 with the right checksum: its header, all its bytes, and its file."""

    header: tuple[int, ...]  # as the columns of a table
    data: memoryview
    file: str

    @property
    def size(self) -> int:
        return self.header[b.SIZE]

    @property
    def attributes(self) -> int:
        return self.header[b.ATTRIBUTES]


def glance(segment: Segment, offset: int) -> Glimpse | None:
    """The first batch with a last offset >= ``offset``, if that is easily had."""
    index = segment.files.offset_index()
    if index is None:
        return None
    found, middle, end = index.around(offset, segment.size)
    if offset > found.offset and middle - found.position > _WORTH_SKIPPING:
        # of large batches each has an entry, so that the second one's is the one that is wanted
        seen = _look(segment, offset, middle, end, found.offset + 1, found.offset + 1)
        if seen is not None:
            return seen
    highest = found.offset if found.position else MAX_OFFSET
    return _look(segment, offset, found.position, end, segment.base_offset, highest)


def _look(
    segment: Segment, offset: int, start: int, end: int, lowest: int, highest: int
) -> Glimpse | None:
    """The same, looking from ``start`` to behind ``end``, both places of batches. The first one's
    base offset must lie in [``lowest``, ``highest``]."""
    size = min(end + RECORD_BATCH_OVERHEAD, segment.size) - start
    if not 0 < size <= _MOST_BYTES:
        return None
    log = segment.files.log()
    data = memoryview(log.read(start, size))
    room = BatchTable.empty(_MOST_BATCHES)
    table, _ = b.scan(data, len(data), start, room, previous_offset=lowest - 1, whole=False)
    headers = table.rows.tolist()
    if not headers or headers[0][b.BASE_OFFSET] > highest:
        return None
    at = next((i for i, header in enumerate(headers) if header[b.LAST_OFFSET] >= offset), -1)
    if at < 0 or not _is_borne_out(headers, at, segment):
        return None
    header = headers[at]
    begin = header[b.POSITION] - start
    batch = data[begin : begin + header[b.SIZE]]
    if len(batch) < header[b.SIZE] or crc32c(batch[CRC_COVERS_FROM:]) != header[b.CRC]:
        return None
    # a batch that is kept must not keep all that was read with it
    return Glimpse(tuple(header), memoryview(bytes(batch)), log.path)


def _is_borne_out(headers: list[list[int]], at: int, segment: Segment) -> bool:
    """Whether a header of magic 2 is followed by another that could be there, or by nothing."""
    header = headers[at]
    limit = MAX_OFFSET if segment.is_active else segment.next_base
    if header[b.MAGIC] != 2 or header[b.LAST_OFFSET] >= limit:
        return False
    if at + 1 == len(headers):
        return bool(header[b.POSITION] + header[b.SIZE] == segment.size)
    follower = headers[at + 1]
    return bool(
        follower[b.POSITION] + follower[b.SIZE] <= segment.size and follower[b.LAST_OFFSET] < limit
    )
