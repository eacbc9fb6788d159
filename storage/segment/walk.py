"""Walking the batches of a segment: their headers alone, or whole runs of them.

Both go on after damage. What cannot be read comes out as a ``Fault`` between what can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..disk import OpenFile
from ..errors import CorruptError
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable, parse_header
from ..format.decoder import checksum_error, first_bad_checksum
from ..format.layout import LOG_OVERHEAD, MAGIC_END, RECORD_BATCH_OVERHEAD
from .salvage import next_batch

# Bytes read at a time. A run should fit a processor's cache, so that what was checked is still
# there when it is decoded.
RUN_BYTES: Final = 1 << 20
# A walk reads as much as a few headers need; small batches lie close together, large far apart.
_WALK_MIN: Final = 512
_WALK_MAX: Final = 256 << 10
_RUN_ROWS: Final = 8192
_WALK_ROWS: Final = 1024


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of an open ``.log`` to walk: [``start``, ``end``) in bytes, ``start`` being a batch
    boundary, of a segment at ``base_offset``, the offset before ``start`` being
    ``previous_offset`` (-1 unknown)."""

    file: OpenFile
    base_offset: int
    start: int
    end: int
    max_batch_bytes: int
    previous_offset: int = -1


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes [error.position, ``resume``) hold no batch that can be read; ``resume`` is where the
    next one begins, or the end of the extent. ``batch`` is the bad batch if it has a header."""

    error: CorruptError
    resume: int
    batch: BatchHeader | None = None

    def reaches(self, end: int) -> bool:
        return self.resume >= end


@dataclass(frozen=True, slots=True)
class Run:
    """Whole batches with right checksums: their bytes, of which ``data[0]`` is file position
    ``base``, good until the next run is asked for."""

    data: memoryview
    base: int
    table: BatchTable


def walk_headers(extent: Extent) -> Iterator[BatchTable | Fault]:
    """Headers of all batches, some at a time; each table is good until the next is asked for.

    Checksums are not looked at. A batch that goes past the extent's end is a fault.
    """
    room = BatchTable.empty(_WALK_ROWS)
    position, previous, chunk = extent.start, extent.previous_offset, 4096
    while position < extent.end:
        data = extent.file.read(position, min(chunk, extent.end - position))
        table, walk = b.scan(data, len(data), position, room, previous_offset=previous, whole=False)
        if len(table):
            last = table[-1]
            if last.next_position > extent.end:
                table = table.select(slice(0, len(table) - 1))
                if len(table):
                    yield table
                    previous = int(table.rows[-1, b.LAST_OFFSET])
                fault = _cut(extent, last.position, last.size, previous)
                yield fault
                position = fault.resume
                continue
            yield table
            position, previous = last.next_position, last.last_offset
            chunk = max(_WALK_MIN, min(_WALK_MAX, chunk // 2 if len(table) == 1 else chunk * 2))
            continue
        if not walk.is_fault and len(data) < min(RECORD_BATCH_OVERHEAD, extent.end - position):
            return  # the file became shorter: a live broker truncated it
        fault = _no_batch(extent, data, position, walk.what, previous)
        yield fault
        position = fault.resume


def read_runs(extent: Extent, run_bytes: int = RUN_BYTES) -> Iterator[Run | Fault]:
    """All batches with their bytes, checksums checked, about ``run_bytes`` at a time."""
    buffer = memoryview(bytearray(max(1, min(run_bytes, extent.end - extent.start))))
    room = BatchTable.empty(_RUN_ROWS)
    position, previous = extent.start, extent.previous_offset
    while position < extent.end:
        got = extent.file.read_into(position, buffer[: extent.end - position])
        table, walk = b.scan(buffer, got, position, room, previous_offset=previous, whole=True)
        good = first_bad_checksum(buffer, table, position)
        if good:
            yield Run(buffer[:got], position, table.select(slice(0, good)))
            previous = int(table.rows[good - 1, b.LAST_OFFSET])
        if good < len(table):
            fault = _bad_checksum(extent, buffer, table[good], position, previous)
            yield fault
            position = fault.resume
        elif len(table):
            position += walk.end
        elif (size := _larger_batch(extent, buffer, got, position, walk.is_fault)) > len(buffer):
            buffer = memoryview(bytearray(size))
        elif got == 0:
            return  # the file became shorter: a live broker truncated it
        else:
            fault = _no_batch(extent, buffer[:got], position, walk.what, previous)
            yield fault
            position = fault.resume


def _larger_batch(extent: Extent, data: memoryview, got: int, position: int, fault: bool) -> int:
    """Size of the batch at ``position`` when all that is wrong is the buffer being too small."""
    if fault or got < min(MAGIC_END, len(data)) or got < LOG_OVERHEAD:
        return 0
    size = int.from_bytes(data[8:12], "big", signed=True) + LOG_OVERHEAD
    return size if size <= min(extent.end - position, extent.max_batch_bytes) else 0


def _bad_checksum(
    extent: Extent, data: memoryview, header: BatchHeader, base: int, previous: int
) -> Fault:
    """The length of a batch with a wrong checksum is believed only if a batch follows there."""
    error = checksum_error(data, header, base).at(extent.file.path)
    following = header.next_position
    if following < extent.end and not _is_header(extent, following, previous):
        following = _resume(extent, header.position + 1, previous)
    return Fault(error, following, header)


def _is_header(extent: Extent, position: int, previous: int) -> bool:
    try:
        header = parse_header(extent.file.read(position, RECORD_BATCH_OVERHEAD), position)
    except CorruptError:
        return False
    return header.next_position <= extent.end and header.base_offset > previous


def _no_batch(
    extent: Extent, data: bytes | memoryview, position: int, what: str, previous: int
) -> Fault:
    """What is wrong at ``position``, where no batch could be taken from ``data``."""
    if what:
        error = CorruptError(what, extent.file.path, position)
        return Fault(error, _resume(extent, position + 1, previous))
    size = int.from_bytes(data[8:12], "big", signed=True) + LOG_OVERHEAD if len(data) > 11 else 0
    return _cut(extent, position, size, previous)


def _cut(extent: Extent, position: int, size: int, previous: int) -> Fault:
    """A batch that is longer than what is left, or than what may be held in memory."""
    left = extent.end - position
    if LOG_OVERHEAD < size <= left:
        what = (
            f"batch of {size} bytes is larger than {extent.max_batch_bytes} "
            "(setting kafkafs.max.batch.bytes)"
        )
        return Fault(CorruptError(what, extent.file.path, position), position + size)
    what = f"batch of {size} bytes is cut off: {left} are left" if size else f"{left} stray bytes"
    error = CorruptError(what, extent.file.path, position)
    return Fault(error, _resume(extent, position + 1, previous))


def _resume(extent: Extent, start: int, previous: int) -> int:
    return next_batch(
        extent.file, start, extent.end, extent.base_offset, previous, extent.max_batch_bytes
    )
