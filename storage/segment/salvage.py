"""Finding the way again after damage: the next place in a ``.log`` where a batch really begins.

A batch's length is not covered by its checksum, so after a bad one nothing says where the next
starts. Every place that could be a header is tried; one whose checksum is right is believed. The
work is bounded: a file made of false headers, each claiming to be long, is given up as damaged.
"""

from __future__ import annotations

from typing import Final

from ..disk import OpenFile
from ..errors import CorruptError
from ..format.batch import parse_header
from ..format.decoder import checksum_is_right
from ..format.kernels import headers as kernel
from ..format.layout import MAX_INT32, RECORD_BATCH_OVERHEAD

_CHUNK: Final = 1 << 20
# Bytes whose checksums may be computed for each byte searched, plus some for a short search.
_CHECKED_PER_BYTE: Final = 4
_CHECKED_FREE: Final = 64 << 20


def next_batch(
    file: OpenFile,
    start: int,
    end: int,
    base_offset: int,
    previous_offset: int,
    max_batch_bytes: int,
) -> int:
    """Position of the first whole batch at or after ``start`` with a right checksum and an offset
    above ``previous_offset`` that a segment at ``base_offset`` can hold; ``end`` if there is none.
    """
    lowest = max(base_offset, previous_offset + 1)
    highest = base_offset + MAX_INT32
    budget = _CHECKED_FREE
    position = start
    while position < end:
        # preallocated files are holes; the bytes before data belong to a header that begins in one
        position = max(position, min(file.next_data(position), end) - RECORD_BATCH_OVERHEAD)
        data = file.read(position, min(_CHUNK, end - position))
        if not data:
            return end
        at = 0
        while True:
            remaining = end - position - at
            at = int(kernel.find_header(data, at, len(data), remaining, lowest, highest))
            if at < 0:
                break
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            if size <= max_batch_bytes:
                budget -= size
                if budget < 0:
                    return end
                if _is_batch(file, position + at, size):
                    return position + at
            at += 1
        # a header may straddle two chunks: look at its length again with the next one
        step = len(data) if position + len(data) >= end else len(data) - RECORD_BATCH_OVERHEAD
        if step <= 0:
            return end
        budget += step * _CHECKED_PER_BYTE
        position += step
    return end


def _is_batch(file: OpenFile, position: int, size: int) -> bool:
    data = memoryview(file.read(position, size))
    try:
        header = parse_header(data, position)
    except CorruptError:
        return False
    return header.size == len(data) and checksum_is_right(data, header, position)
