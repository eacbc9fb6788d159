"""Finds where the next valid batch of a ``.log`` begins after damage.

A batch's checksum covers neither its length nor its base offset. They are trusted if what follows
confirms them: a header with a higher offset at the batch's end. If there is none, one of the two
batches is wrong, and checksums show which (`suspicion`). After a bad batch, every position that
could be a header is tried, and one with a right checksum is accepted (`next_batch`). This work is
bounded for a whole walk: a file made of false headers that each claim to be long is given up as
damaged.
"""

from __future__ import annotations

from typing import Final

from ..errors import CorruptError
from ..format.checksum import crc32, crc32c
from ..format.kernels import headers as kernel
from ..format.layout import (
    CRC_COVERS_FROM,
    LEGACY_CRC_COVERS_FROM,
    LOG_OVERHEAD,
    MAGIC_END,
    MAX_INT32,
    MIN_BATCH_BYTES,
    RECORD_BATCH_OVERHEAD,
)
from ..format.records.batch import BatchHeader, Bytes, parse_header
from ..format.records.decoder import checksum_error
from ..io.directory import ReadableFile
from .extent import Extent, Fault

# The next batch is usually near.
_FIRST_CHUNK: Final = 4096
_CHUNK: Final = 1 << 20
# Bytes whose checksums may be computed for each byte searched, in addition to `Effort`.
_CHECKED_PER_BYTE: Final = 4


def next_batch(extent: Extent, start: int, previous: int) -> int:
    """Returns the position of the first whole batch at or after ``start`` with a right checksum and
    an offset above ``previous`` that the segment can hold; the extent's end if there is none."""
    file, end = extent.file, extent.end
    lowest = max(extent.base_offset, previous + 1)
    highest = min(extent.base_offset + MAX_INT32, extent.limit_offset - 1)
    if lowest > highest:
        return end
    effort, chunk = extent.effort, _FIRST_CHUNK
    position = start
    while position < end:
        # preallocated files have holes; a header may begin in one, just before the data
        position = max(position, min(file.next_data(position), end) - RECORD_BATCH_OVERHEAD)
        data = file.read(position, min(chunk, end - position))
        if not data:
            return end
        at = 0
        while True:
            remaining = end - position - at
            at = int(kernel.find_header(data, at, len(data), remaining, lowest, highest))
            if at < 0:
                break
            size = int.from_bytes(data[at + 8 : at + 12], "big") + LOG_OVERHEAD
            if size <= extent.max_batch_bytes:
                effort.left -= size
                if effort.left < 0:
                    return end
                header = _header(file, position + at)
                if header is not None and is_intact(extent, header):
                    return position + at
            at += 1
        # a header may straddle two chunks: read the last bytes again with the next one
        step = len(data) if position + len(data) >= end else len(data) - RECORD_BATCH_OVERHEAD
        if step <= 0:
            return end
        effort.left += step * _CHECKED_PER_BYTE
        position += step
        chunk = min(4 * chunk, _CHUNK)
    return end


def after(extent: Extent, position: int, size: int, previous: int) -> int:
    """Returns where to continue after a bad batch that claims to have ``size`` bytes: at its end if
    there is a header, else at the next position that proves to be a batch."""
    following = position + size
    if size >= MIN_BATCH_BYTES and following <= extent.end:
        if following == extent.end:
            return following
        header = _header(extent.file, following)
        if header is not None and _fits(extent, header, previous):
            return following
    return next_batch(extent, position + 1, previous)


def suspicion(
    extent: Extent, header: BatchHeader, before: int, behind: Bytes = b""
) -> Fault | None:
    """Returns why ``header`` cannot be trusted; None if it can, or if its successor, which has not
    been checked yet, is the wrong one. ``before``: the offset before it. ``behind``: the bytes of
    the successor that are in memory."""
    if header.last_offset >= extent.limit_offset:
        what = (
            f"batch {header.base_offset}-{header.last_offset} goes past {extent.limit_offset - 1}, "
            "the last offset that its segment can hold"
        )
        return _fault(extent, extent.error(what, header.position), header, before)
    if header.next_position >= extent.end or _seems_to_follow(extent, header, behind):
        return None
    successor = _header(extent.file, header.next_position)
    if successor is not None and _fits(extent, successor, header.last_offset):
        return None
    if not is_intact(extent, header):
        return _fault(extent, read_checksum_error(extent, header), header, before)
    if successor is None or not _fits(extent, successor, before):
        return None
    if not is_intact(extent, successor) or not _is_misplaced(extent, header, before, successor):
        return None
    what = (
        f"batch {header.base_offset}-{header.last_offset} is followed by "
        f"{successor.base_offset}-{successor.last_offset}: its base offset is wrong"
    )
    return Fault(extent.error(what, header.position), successor.position, header)


def _is_misplaced(extent: Extent, header: BatchHeader, before: int, successor: BatchHeader) -> bool:
    """Returns whether the first of two batches with right checksums but contradictory offsets is
    the wrong one: not if it follows the one before it without a gap; otherwise if its offsets would
    exactly fill the gap between its neighbours, or if no batch after both agrees with it."""
    if header.base_offset == before + 1:
        return False
    offsets = header.last_offset - header.base_offset + 1
    if header.record_count >= 0 and successor.base_offset - before - 1 == offsets:
        return True
    third = _header(extent.file, successor.next_position)
    return third is None or third.base_offset <= header.last_offset


def is_intact(extent: Extent, header: BatchHeader) -> bool:
    """Returns whether a batch is complete, has the checksum in its header, and does not exceed
    `max_batch_bytes`."""
    return header.size <= extent.max_batch_bytes and has_right_checksum(extent.file, header)


def has_right_checksum(file: ReadableFile, header: BatchHeader) -> bool:
    """Returns whether a batch of any size is complete and has the checksum in its header. Reads it
    piece by piece."""
    is_legacy = header.magic < 2
    compute = crc32 if is_legacy else crc32c
    at = header.position + (LEGACY_CRC_COVERS_FROM if is_legacy else CRC_COVERS_FROM)
    crc = 0
    while at < header.next_position:
        piece = file.read(at, min(_CHUNK, header.next_position - at))
        if not piece:
            return False
        crc = compute(piece, crc)
        at += len(piece)
    return crc == header.crc


def read_checksum_error(extent: Extent, header: BatchHeader) -> CorruptError:
    """Returns the error of a batch that fails `is_intact`."""
    if header.size > extent.max_batch_bytes:
        return too_large(extent, header.position, header.size)
    data = memoryview(extent.file.read(header.position, header.size))
    return checksum_error(data, header, header.position).at(extent.file.path)


def too_large(extent: Extent, position: int, size: int) -> CorruptError:
    """Returns the error of a batch that exceeds `max_batch_bytes`."""
    what = f"batch of {size} bytes is larger than {extent.max_batch_bytes}"
    return extent.error(f"{what} (config kafkafs.max.batch.bytes)", position)


def _seems_to_follow(extent: Extent, header: BatchHeader, behind: Bytes) -> bool:
    """Returns nearly always what parsing the successor would show, in a tenth of the time."""
    start = behind[:MAGIC_END]
    if len(start) < MAGIC_END:
        start = extent.file.read(header.next_position, MAGIC_END)
    return (
        len(start) == MAGIC_END
        and start[16] <= 2
        and int.from_bytes(start[8:12], "big") >= MIN_BATCH_BYTES - LOG_OVERHEAD
        and header.next_position + int.from_bytes(start[8:12], "big") < extent.end
        and header.last_offset < int.from_bytes(start[:8], "big") < extent.limit_offset
    )


def _fault(extent: Extent, error: CorruptError, header: BatchHeader, before: int) -> Fault:
    return Fault(error, after(extent, header.position, header.size, before), header)


def _fits(extent: Extent, header: BatchHeader, previous: int) -> bool:
    return (
        header.next_position <= extent.end
        and previous < header.base_offset
        and header.last_offset < extent.limit_offset
    )


def _header(file: ReadableFile, position: int) -> BatchHeader | None:
    try:
        return parse_header(file.read(position, RECORD_BATCH_OVERHEAD), position)
    except CorruptError:
        return None
