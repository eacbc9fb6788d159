"""The intact batches of a segment, and the damage between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...errors import CorruptError
from ...format.files.names import FileKind, segment_file
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...io.directory import Directory
from ...io.preallocated import is_zero
from ...segment.extent import Extent, Fault
from ...segment.rebuild import large_batch
from ...segment.walk import BatchRun, read_runs


@dataclass(frozen=True, slots=True)
class Sound:
    """Consecutive intact batches: their bytes, and their headers with positions in the file. Both
    are valid until the next item is read."""

    data: memoryview
    table: BatchTable


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes [`position`, `resume`) of a `.log` that hold no intact batch, and the offsets [`first`,
    `next`) that are missing there; `next` is -1 after the last batch of a log."""

    error: CorruptError
    resume: int
    first: int
    next: int


def sound_batches(
    directory: Directory, base_offset: int, next_base: int, max_batch_bytes: int
) -> Iterator[Sound | Lost]:
    """Yields all of a segment; `next_base`: the following one's base, -1 for the last. Zeros at the
    end of the last segment are preallocated space, no loss. Raises SegmentGone if the file no
    longer exists."""
    file = directory.open(segment_file(base_offset, FileKind.LOG))
    limit = min(base_offset + MAX_INT32 + 1, MAX_OFFSET)
    if next_base >= 0:
        limit = min(limit, next_base)
    size = file.size()
    extent = Extent(file, base_offset, 0, size, max_batch_bytes, -1, limit)
    reached = base_offset
    lost: Lost | None = None
    for part in read_runs(extent):
        found = _sound(extent, part)
        if found is None:
            assert isinstance(part, Fault)
            lost = lost or Lost(part.error, part.resume, reached, next_base)
            lost = replace(lost, resume=part.resume)
            continue
        if lost is not None:
            yield replace(lost, next=int(found.table.rows[0, b.BASE_OFFSET]))
            lost = None
        yield found
        reached = int(found.table.rows[-1, b.LAST_OFFSET]) + 1
    is_room = lost is not None and next_base < 0 and lost.resume >= size
    if lost is not None and not (is_room and is_zero(file, lost.error.position, size)):
        yield lost


def _sound(extent: Extent, part: BatchRun | Fault) -> Sound | None:
    """Returns the batches of a part; None if it is damaged and not merely an oversized batch."""
    if isinstance(part, BatchRun):
        first, last = part.table.rows[0], part.table.rows[-1]
        start = int(first[b.POSITION]) - part.base
        end = int(last[b.POSITION] + last[b.SIZE]) - part.base
        return Sound(part.data[start:end], part.table)
    large = large_batch(replace(extent, start=part.error.position))
    if large is None:
        return None
    header = large[0]
    return Sound(memoryview(extent.file.read(header.position, header.size)), large)
