"""Parses the header of a batch into a row of a table, and those that follow each other.

The callers check that the table has COLUMNS columns.
"""

from __future__ import annotations

import cython

from ._primitives import int32, int64, uint32


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def fill_legacy_row(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
) -> cython.int:
    """Writes the fields that a header of magic 0 or 1 has; the others get their "none" value."""
    greatest: cython.longlong = 9223372036854775807
    table[row, 5] = data[at + 16]
    table[row, 4] = -1
    table[row, 6] = uint32(data, at + 12)
    table[row, 7] = data[at + 17]
    table[row, 8] = -1
    table[row, 9] = -1
    if table[row, 5] == 1:
        table[row, 8] = int64(data, at + 18)
        table[row, 9] = table[row, 8]
    table[row, 3] = table[row, 2]  # a wrapper has the offset of its last message
    if table[row, 2] == greatest:  # the offset after it must fit in an int64, too
        return 5
    table[row, 10] = -1
    table[row, 11] = -1
    table[row, 12] = -1
    table[row, 13] = -1
    if (table[row, 7] & 7) == 0:
        table[row, 13] = 1
    elif (table[row, 7] & 7) > 3:
        return 7
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def fill_row(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
) -> cython.int:
    last_offset_delta: cython.longlong = int32(data, at + 23)
    greatest: cython.longlong = 9223372036854775807
    table[row, 4] = int32(data, at + 12)
    table[row, 5] = 2
    table[row, 6] = uint32(data, at + 17)
    table[row, 7] = data[at + 22]  # only the low byte of the int16 is used
    table[row, 8] = int64(data, at + 27)
    table[row, 9] = int64(data, at + 35)
    table[row, 10] = int64(data, at + 43)
    table[row, 11] = int32(data, at + 51) >> 16
    table[row, 12] = int32(data, at + 53)
    table[row, 13] = int32(data, at + 57)
    table[row, 3] = table[row, 2]
    # the offset after the last one must fit in an int64, too
    if last_offset_delta < 0 or table[row, 2] >= greatest - last_offset_delta:
        return 5
    table[row, 3] = table[row, 2] + last_offset_delta
    # a record takes at least 7 bytes, so the count is a safe size to allocate; in a compressed
    # batch the codec's limit bounds the output instead
    if table[row, 13] < 0:
        return 6
    if (table[row, 7] & 7) == 0 and table[row, 13] > (table[row, 1] - 61) // 7:
        return 6
    if table[row, 13] > last_offset_delta + 1:
        return 6
    if (table[row, 7] & 7) > 4:
        return 7
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.int))
def fill_rows(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    available: cython.Py_ssize_t,
    file_position: cython.longlong,
    previous_offset: cython.longlong,
    whole: cython.bint,
    table: cython.longlong[:, ::1],
    first_row: cython.Py_ssize_t,
):
    at: cython.Py_ssize_t = start
    row: cython.Py_ssize_t = first_row
    rows: cython.Py_ssize_t = table.shape[0]
    why: cython.int = 0
    size: cython.longlong
    need: cython.Py_ssize_t
    while at < available:
        if row >= rows:
            why = 1
            break
        if available - at < 17:
            why = 2
            break
        size = int32(data, at + 8) + 12
        table[row, 0] = file_position + (at - start)
        table[row, 1] = size
        table[row, 2] = int64(data, at)
        need = 61
        if data[at + 16] == 2:
            if size < 61:
                why = 3
                break
        elif data[at + 16] < 2:
            need = 18 if data[at + 16] == 0 else 26
            if size < (26 if data[at + 16] == 0 else 34):
                why = 3
                break
        else:
            # a size smaller than any message means zeros or garbage rather than an unknown magic
            why = 3 if size < 26 else 4
            break
        if available - at < need or (whole and size > available - at):
            why = 2
            break
        if data[at + 16] == 2:
            why = fill_row(data, at, table, row)
        else:
            why = fill_legacy_row(data, at, table, row)
        if why == 0 and (table[row, 2] < 0 or table[row, 2] <= previous_offset):
            why = 5
        if why != 0:
            break
        previous_offset = table[row, 3]
        row += 1
        at += size
    if why == 0 and at > available:
        why = 2
    return row - first_row, at, why
