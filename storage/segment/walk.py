"""Walks the batches of a segment: only their headers, or whole runs of batches.

Both walks continue after damage, and yield a ``Fault`` for each unreadable range.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ..errors import fresh
from ..format.kernels import HAS_PREAD, header_reads
from ..format.layout import LOG_OVERHEAD, MAGIC_END, RECORD_BATCH_OVERHEAD
from ..format.records import batch as b
from ..format.records.batch import BatchHeader, BatchTable, Bytes, Walk
from ..format.records.buffer_pool import BUFFERS
from ..format.records.decoder import checksum_error, checksums_add_up, first_bad_checksum
from ..io.directory import NoFile
from ..io.disk import OpenFile
from .extent import Extent, Fault
from .salvage import after, next_batch, suspicion, too_large

# Bytes per read in a long walk: large enough that the Python code around a run, and waiting for the
# GIL if another thread is busy, cost little in comparison; small enough that a run is still in a
# CPU cache when it is decoded. The first run is smaller, for callers that need only a few records.
RUN_BYTES: Final = 6 << 20
_FIRST_RUN_BYTES: Final = 128 << 10
_RUN_GROWTH: Final = 4
# After damage there may be more, so reads are small; otherwise most bytes would be read repeatedly.
_AFTER_FAULT_BYTES: Final = 4096
_RUN_ROWS: Final = 8192
# A header walk begins with a few headers, for callers that need no more, and reads more each time.
_FIRST_WALK_ROWS: Final = 4
_WALK_ROWS: Final = 4096
_WALK_GROWTH: Final = 4
_WALK_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True)
class BatchRun:
    """Whole batches with right checksums. ``data``: their bytes from file position ``base`` on,
    valid until the next run is requested."""

    data: memoryview
    base: int
    table: BatchTable


def walk_headers(extent: Extent) -> Iterator[BatchTable | Fault]:
    """Yields the headers of all batches; each table is valid until the next is requested.

    Checksums are verified only if two neighbours contradict each other. A batch that extends past
    the extent's end is a fault.
    """
    if isinstance(extent.file, NoFile):
        yield Fault(fresh(extent.file.error), extent.end)
        return
    position, previous, rows = extent.start, extent.previous, _FIRST_WALK_ROWS
    room, buffer = BatchTable.empty(rows), bytearray(_WALK_BYTES)
    while position < extent.end:
        if rows > len(room):
            room = BatchTable.empty(rows)
        found = _headers(extent, position, previous, room, buffer)
        if found is None:
            yield from _missing_end(extent, position)
            return
        table, fault = found
        if len(table):
            yield table
            position, previous = _end_of(table)
            rows = min(_WALK_GROWTH * rows, _WALK_ROWS)
        if fault is not None:
            yield _with_cause(extent, fault)
            position, rows = fault.resume, _FIRST_WALK_ROWS


def _headers(
    extent: Extent, position: int, previous: int, room: BatchTable, buffer: bytearray
) -> tuple[BatchTable, Fault | None] | None:
    """Returns the trusted next headers, in `room`, and what is wrong with the one after them; None
    if the file is shorter than its extent by now."""
    if HAS_PREAD and isinstance(extent.file, OpenFile):
        fd, end = extent.file.fd, extent.end
        count = header_reads.read_headers(fd, position, end, previous, room.rows, buffer)
        if count:
            return _believed(extent, b"", room.select(slice(0, count)), position, previous)
    # Anything unusual, which the kernel leaves to what tells it apart.
    wanted = min(_WALK_BYTES, extent.end - position)
    data = extent.file.read(position, wanted)
    table, walk = b.scan(data, len(data), position, room, previous_offset=previous, whole=False)
    if len(table):
        return _believed(extent, data, table, position, previous)
    if not walk.is_fault and len(data) < min(wanted, RECORD_BATCH_OVERHEAD):
        return None
    return table, _no_batch(extent, data, position, walk, previous)


def read_runs(
    extent: Extent,
    run_bytes: int = RUN_BYTES,
    *,
    stay_valid: bool = False,
    together: bool = False,
) -> Generator[BatchRun | Fault]:
    """Yields all batches with their bytes, about ``run_bytes`` at a time, after verifying their
    checksums. If ``stay_valid`` is true, runs stay valid when the next is requested. ``together``:
    verify only the combined checksum of a run, which suffices for callers that only display it."""
    if isinstance(extent.file, NoFile):
        yield Fault(fresh(extent.file.error), extent.end)
        return
    largest = max(RECORD_BATCH_OVERHEAD, min(run_bytes, extent.end - extent.start))
    piece = min(largest, _FIRST_RUN_BYTES)
    buffer = memoryview(b"")
    room = BatchTable.empty(_RUN_ROWS)
    position, previous = extent.start, extent.previous
    while position < extent.end:
        if stay_valid:
            buffer, room = BUFFERS.acquire(piece), BatchTable.empty(_RUN_ROWS)
        elif piece > len(buffer):
            buffer = BUFFERS.acquire(piece)
        wanted = min(piece, extent.end - position)
        got = extent.file.read_into(position, buffer[:wanted])
        table, walk = b.scan(buffer, got, position, room, previous_offset=previous, whole=True)
        fault: Fault | None = None
        if len(table):
            if together and checksums_add_up(buffer[:got], table, position):
                good, fault = _believed(extent, buffer[:got], table, position, previous)
            else:
                good, fault = _good_batches(extent, buffer[:got], table, position, previous)
            if len(good):
                yield BatchRun(buffer[:got], position, good)
                position, previous = _end_of(good)
                piece = max(piece, min(largest, _RUN_GROWTH * piece))
        elif not walk.is_fault and got < wanted:
            # the file is shorter now: a live broker truncated it
            yield from _missing_end(extent, position)
            return
        elif (size := _larger_batch(extent, buffer[:got], walk, position)) > 0:
            piece = size
        else:
            fault = _no_batch(extent, buffer[:got], position, walk, previous)
        if fault is not None:
            yield _with_cause(extent, fault)
            position, piece = fault.resume, min(largest, _AFTER_FAULT_BYTES)


def _with_cause(extent: Extent, fault: Fault) -> Fault:
    """Returns a fault with the reason why its bytes could not be read, if that is known."""
    cause = extent.file.error_between(fault.error.position, fault.resume)
    return fault if cause is None else replace(fault, error=cause)


def _missing_end(extent: Extent, position: int) -> Iterator[Fault]:
    """Yields the fault of a file that ends before its extent, unless it was truncated meanwhile."""
    if not extent.file.may_shrink:
        what = f"ends at byte {extent.file.size()}, {extent.end} were expected"
        yield Fault(extent.error(what, position), extent.end)


def _end_of(table: BatchTable) -> tuple[int, int]:
    """Returns the position after the last batch, and its last offset."""
    last = table.rows[-1]
    return int(last[b.POSITION] + last[b.SIZE]), int(last[b.LAST_OFFSET])


def _believed(
    extent: Extent, data: Bytes, table: BatchTable, base: int, previous: int
) -> tuple[BatchTable, Fault | None]:
    """Returns the trusted first headers of a table, and what is wrong with the one after them. Each
    header is confirmed by the next one, the last by what `suspicion` finds after it."""
    last_offsets = table.column(b.LAST_OFFSET)
    count = len(table)
    if last_offsets[-1] >= extent.limit_offset:
        count = int(np.searchsorted(last_offsets, extent.limit_offset)) + 1
    fault: Fault | None = None
    while count:
        before = int(last_offsets[count - 2]) if count > 1 else previous
        header = table[count - 1]
        end = header.next_position - base
        found = _suspicion(extent, header, before, data[end : end + MAGIC_END])
        if found is None:
            break
        fault = found
        count -= 1
    return table if count == len(table) else table.select(slice(0, count)), fault


def _suspicion(extent: Extent, header: BatchHeader, before: int, behind: Bytes) -> Fault | None:
    if header.next_position > extent.end:
        return _cut(extent, header.position, header.size, before)
    return suspicion(extent, header, before, behind)


def _good_batches(
    extent: Extent, data: memoryview, table: BatchTable, base: int, previous: int
) -> tuple[BatchTable, Fault | None]:
    """Returns the valid first batches of a table, and what is wrong with the one after them."""
    count = first_bad_checksum(data, table, base)
    if count == len(table):
        return _believed(extent, data, table, base, previous)
    header = table[count]
    before = int(table.rows[count - 1, b.LAST_OFFSET]) if count else previous
    error = checksum_error(data, header, base).at(extent.file.path)
    fault = Fault(error, after(extent, header.position, header.size, before), header)
    return table.select(slice(0, count)), fault


def _larger_batch(extent: Extent, data: memoryview, walk: Walk, position: int) -> int:
    """Returns the size of the batch at ``position`` if it merely does not fit the buffer, else
    0."""
    size = _claimed_size(data)
    fits = len(data) < size <= min(extent.end - position, extent.max_batch_bytes)
    return size if fits and not walk.is_fault else 0


def _claimed_size(data: bytes | memoryview) -> int:
    """Returns the size that a batch at ``data[0]`` claims, 0 if there are too few bytes."""
    if len(data) < LOG_OVERHEAD:
        return 0
    return int.from_bytes(data[8:LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD


def _no_batch(
    extent: Extent, data: bytes | memoryview, position: int, walk: Walk, previous: int
) -> Fault:
    """Returns the fault at ``position``, where ``data`` has no usable batch."""
    size = _claimed_size(data)
    if walk.is_fault:
        error = extent.error(walk.what, position)
        return Fault(error, after(extent, position, size, previous))
    return _cut(extent, position, size, previous)


def _cut(extent: Extent, position: int, size: int, previous: int) -> Fault:
    """Returns the fault of a batch that is longer than the rest or than `max_batch_bytes`."""
    left = extent.end - position
    if extent.max_batch_bytes < size <= left:
        return Fault(too_large(extent, position, size), after(extent, position, size, previous))
    what = f"batch of {size} bytes is cut off: {left} are left" if size else f"{left} stray bytes"
    return Fault(extent.error(what, position), next_batch(extent, position + 1, previous))
