"""Gathers scattered keys, values and headers into the layout of Arrow's binary columns.

Functions that only count one column keep the GIL: they finish sooner than another thread would
release it.

Bounds: spans are checked against ``data``, the size of the results on entry or before each row.
"""

from __future__ import annotations

import cython

from ._primitives import copy, varint


def measure(spans: cython.const[cython.int][:, ::1], column: cython.Py_ssize_t) -> tuple[int, int]:
    """Returns the number of bytes that ``gather`` will write, and the number of null rows."""
    row: cython.Py_ssize_t
    size: cython.longlong
    total: cython.longlong = 0
    nulls: cython.longlong = 0
    if column < 0 or column + 1 >= spans.shape[1]:
        raise ValueError("no such column")
    for row in range(spans.shape[0]):
        size = spans[row, column + 1]
        nulls += size < 0
        total += size if size > 0 else 0
    return total, nulls


def count_headers(spans: cython.const[cython.int][:, ::1]) -> int:
    """Returns the number of headers of all rows."""
    row: cython.Py_ssize_t
    total: cython.longlong = 0
    if spans.shape[1] != 6:
        raise ValueError("spans have six columns")
    for row in range(spans.shape[0]):
        total += spans[row, 5]
    return total


def totals(
    spans: cython.const[cython.int][:, ::1], timestamps: cython.const[cython.longlong][::1]
) -> tuple[int, int, int, int, int, int]:
    """Returns of all rows: the bytes of the keys and the number of null keys, the same of the
    values, the number of headers, and the least of the timestamps and 0."""
    row: cython.Py_ssize_t
    size: cython.longlong
    keys: cython.longlong = 0
    null_keys: cython.longlong = 0
    values: cython.longlong = 0
    null_values: cython.longlong = 0
    headers: cython.longlong = 0
    least: cython.longlong = 0
    if spans.shape[1] != 6 or timestamps.shape[0] != spans.shape[0]:
        raise ValueError("spans have six columns, and each row has a timestamp")
    with cython.nogil:
        for row in range(spans.shape[0]):
            size = spans[row, 1]
            null_keys += size < 0
            keys += size if size > 0 else 0
            size = spans[row, 3]
            null_values += size < 0
            values += size if size > 0 else 0
            headers += spans[row, 5]
            least = timestamps[row] if timestamps[row] < least else least
    return keys, null_keys, values, null_values, headers, least


def write(
    out: cython.uchar[::1],
    at: cython.const[cython.longlong][::1],
    a: cython.const[cython.uchar][::1],
    b: cython.const[cython.uchar][::1],
    c: cython.const[cython.uchar][::1],
    d: cython.const[cython.uchar][::1],
) -> None:
    """Copies four buffers to ``out``, each to its position in ``at``. There are four, so that the
    GIL is released once for several."""
    if (
        at.shape[0] != 4
        or at[0] < 0
        or at[1] < 0
        or at[2] < 0
        or at[3] < 0
        or a.shape[0] > out.shape[0] - at[0]
        or b.shape[0] > out.shape[0] - at[1]
        or c.shape[0] > out.shape[0] - at[2]
        or d.shape[0] > out.shape[0] - at[3]
    ):
        raise ValueError("there is no room for four buffers at these positions")
    with cython.nogil:
        copy(out, at[0], a, 0, a.shape[0])
        copy(out, at[1], b, 0, b.shape[0])
        copy(out, at[2], c, 0, c.shape[0])
        copy(out, at[3], d, 0, d.shape[0])


def gather(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    column: cython.Py_ssize_t,
    out_offsets: cython.int[::1],
    out_data: cython.uchar[::1],
) -> int:
    """Concatenates the bytes whose start is in ``column`` (and size in the next column, negative
    for null) into ``out_data``, and writes where each begins and the last one ends into
    ``out_offsets`` (rows + 1). Returns the number of bytes, or -1 if a span lies outside ``data``
    or does not fit."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = spans.shape[0]
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    if (
        column < 0
        or column + 1 >= spans.shape[1]
        or out_offsets.shape[0] < rows + 1
        or out_data.shape[0] > 2147483647
    ):
        raise ValueError("no such column, or no room for its rows")
    with cython.nogil:
        out_offsets[0] = 0
        for row in range(rows):
            start = spans[row, column]
            size = spans[row, column + 1]
            if size < 0:
                size = 0
            if start < 0 or size > data.shape[0] - start or size > out_data.shape[0] - at:
                at = -1
                break
            at = copy(out_data, at, data, start, size)
            out_offsets[row + 1] = cython.cast(cython.int, at)
    return at


def header_spans(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    out: cython.int[:, ::1],
) -> int:
    """Writes the spans of all headers of all rows into ``out``, one per row: name start, name size,
    value start, value size. Returns the number of headers, or -1 if they do not fit."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = spans.shape[0]
    header: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    left: cython.int
    size: cython.Py_ssize_t
    if spans.shape[1] != 6 or out.shape[1] != 4:
        raise ValueError("spans have six columns, header spans four")
    with cython.nogil:
        for row in range(rows):
            at = spans[row, 4]
            left = spans[row, 5]
            if header < 0 or at < 0:
                header = -1
                break
            while left > 0:
                if header >= out.shape[0]:
                    header = -1
                    break
                size, at = varint(data, at, data.shape[0], 5)
                if at < 0 or size < 0 or size > data.shape[0] - at:
                    header = -1
                    break
                out[header, 0] = cython.cast(cython.int, at)
                out[header, 1] = cython.cast(cython.int, size)
                at += size
                size, at = varint(data, at, data.shape[0], 5)
                if at < 0 or size > data.shape[0] - at:
                    header = -1
                    break
                out[header, 2] = cython.cast(cython.int, at)
                out[header, 3] = cython.cast(cython.int, max(size, -1))
                if size > 0:
                    at += size
                header += 1
                left -= 1
    return header
