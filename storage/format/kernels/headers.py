"""Walks batch headers in a buffer and writes their fields into the rows of a table.

Bounds: every read is preceded by a check against ``available``, every row by a check against the
length of the table.

The walk and the summary keep the GIL: they finish sooner than another thread would release it.
"""

from __future__ import annotations

import cython

from ._headers import fill_rows
from ._primitives import int32, int64

# Columns of the table, one int64 each; batch.py names them for other modules.
COLUMNS = 14

# Why a walk ended. The first three do not mean damage.
DONE = 0  # the buffer's end falls on a batch boundary
FULL = 1  # the table has no row left
MORE = 2  # the next batch (or its header) extends past the buffer
BAD_SIZE = 3
BAD_MAGIC = 4
BAD_OFFSET = 5
BAD_COUNT = 6
BAD_CODEC = 7


def scan_headers(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    available: cython.Py_ssize_t,
    file_position: cython.longlong,
    previous_offset: cython.longlong,
    whole: cython.bint,
    table: cython.longlong[:, ::1],
    first_row: cython.Py_ssize_t,
) -> tuple[int, int, int]:
    """Walks from ``data[start]`` (at ``file_position``) up to ``available``.

    With ``whole``, batches must lie in the buffer entirely; otherwise only their headers must, and
    the walk may end past the buffer's end. ``previous_offset`` is the last offset before the walk
    (-1 for none): offsets must rise. Returns (rows written, position in the buffer of the first
    batch without a row, why the walk ended).
    """
    if available > data.shape[0]:
        raise ValueError("available goes past the buffer")
    if start < 0 or first_row < 0 or table.shape[1] < 14:
        raise ValueError("negative start, or a table of too few columns")
    return fill_rows(
        data, start, available, file_position, previous_offset, whole, table, first_row
    )


def summary(table: cython.const[cython.longlong][:, ::1]) -> tuple[int, int, int, int, int]:
    """Returns of all batches in the table: the least magic, the attribute bits that any batch has,
    those that all have, the least number of records, and the sum of these numbers."""
    row: cython.Py_ssize_t
    magic: cython.longlong = 2
    any_has: cython.longlong = 0
    all_have: cython.longlong = -1
    least: cython.longlong = 9223372036854775807
    records: cython.longlong = 0
    if table.shape[1] != 14:
        raise ValueError("a table of too few columns")
    for row in range(table.shape[0]):
        magic = table[row, 5] if table[row, 5] < magic else magic
        any_has |= table[row, 7]
        all_have &= table[row, 7]
        least = table[row, 13] if table[row, 13] < least else least
        records += table[row, 13]
    return magic, any_has, all_have, least, records


def find_batch(
    data: cython.const[cython.uchar][::1],
    file_position: cython.longlong,
    previous_offset: cython.longlong,
    highest_offset: cython.longlong,
    offset: cython.longlong,
    end: cython.longlong,
    limit_offset: cython.longlong,
    table: cython.longlong[:, ::1],
) -> int:
    """Finds the first batch with a last offset >= ``offset`` among those that begin at ``data[0]``.
    Returns the row of ``table`` that has its header, -1 if anything is unusual.

    ``file_position`` and ``previous_offset`` are as for ``scan_headers``; ``highest_offset`` is the
    greatest allowed first base offset. The batch must be of magic 2 and be followed immediately by
    another header or by ``end``, the end of the file; both must be below ``limit_offset``.
    """
    count: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    behind: cython.longlong
    if table.shape[1] < 14:
        raise ValueError("a table of too few columns")
    count, _, _ = fill_rows(data, 0, data.shape[0], file_position, previous_offset, False, table, 0)
    if count == 0 or table[0, 2] > highest_offset:
        return -1
    while row < count and table[row, 3] < offset:
        row += 1
    if row == count or table[row, 5] != 2 or table[row, 3] >= limit_offset:
        return -1
    behind = table[row, 0] + table[row, 1]
    if row + 1 == count:
        return row if behind == end else -1
    if table[row + 1, 0] + table[row + 1, 1] > end or table[row + 1, 3] >= limit_offset:
        return -1
    return row


def find_header(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    available: cython.Py_ssize_t,
    remaining: cython.longlong,
    lowest_offset: cython.longlong,
    highest_offset: cython.longlong,
) -> int:
    """Returns the first position at or after ``start`` that may be a batch header, -1 if none.

    ``remaining`` is the number of bytes from ``data[start]`` to the end of the file: the batch must
    fit. Its base offset must lie in [lowest_offset, highest_offset]. This is a cheap test; the
    caller must verify the checksum.
    """
    at: cython.Py_ssize_t = start
    found: cython.Py_ssize_t = -1
    magic: cython.int
    size: cython.longlong
    offset: cython.longlong
    if start < 0 or available > data.shape[0]:
        raise ValueError("the search goes past the buffer")
    with cython.nogil:
        while available - at >= 26:
            magic = data[at + 16]
            if magic <= 2:
                size = int32(data, at + 8) + 12
                if size >= (61 if magic == 2 else 26) and size <= remaining - (at - start):
                    offset = int64(data, at)
                    if lowest_offset <= offset <= highest_offset:
                        found = at
                        break
            at += 1
    return found
