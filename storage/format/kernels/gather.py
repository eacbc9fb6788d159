"""Gathers scattered keys, values and headers into the layout of Arrow's binary columns, or into
Python objects.

Functions that only count keep the GIL: they finish sooner than another thread would release it.

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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _gather(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    column: cython.Py_ssize_t,
    out_offsets: cython.int[::1],
    first: cython.Py_ssize_t,
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Does what ``gather`` does, with ``out_offsets`` from the element ``first`` on, and with
    ``out[start:end]``."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = start
    begin: cython.Py_ssize_t
    size: cython.Py_ssize_t
    out_offsets[first] = 0
    for row in range(spans.shape[0]):
        begin = spans[row, column]
        size = spans[row, column + 1]
        if size < 0:
            size = 0
        if begin < 0 or size > data.shape[0] - begin or size > end - at:
            return -1
        at = copy(out, at, data, begin, size)
        out_offsets[first + row + 1] = cython.cast(cython.int, at - start)
    return at - start


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
    size: cython.Py_ssize_t
    if (
        column < 0
        or column + 1 >= spans.shape[1]
        or out_offsets.shape[0] < spans.shape[0] + 1
        or out_data.shape[0] > 2147483647
    ):
        raise ValueError("no such column, or no room for its rows")
    with cython.nogil:
        size = _gather(data, spans, column, out_offsets, 0, out_data, 0, out_data.shape[0])
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fits(
    at: cython.longlong,
    part: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
) -> cython.bint:
    return at >= 0 and part.shape[0] <= out.shape[0] - at


def write(
    out: cython.uchar[::1],
    numbers: cython.int[::1],
    at: cython.const[cython.longlong][::1],
    a: cython.const[cython.uchar][::1],
    b: cython.const[cython.uchar][::1],
    c: cython.const[cython.uchar][::1],
    d: cython.const[cython.uchar][::1],
    e: cython.const[cython.uchar][::1],
    f: cython.const[cython.uchar][::1],
    g: cython.const[cython.uchar][::1],
    h: cython.const[cython.uchar][::1],
    i: cython.const[cython.uchar][::1],
    j: cython.const[cython.uchar][::1],
    k: cython.const[cython.uchar][::1],
    m: cython.const[cython.uchar][::1],
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    gathered: cython.const[cython.longlong][:, ::1],
) -> bool:
    """Copies twelve buffers to ``out``, each to its position in ``at``, and gathers columns of
    ``spans``: a row of ``gathered`` is a column, where in ``numbers`` its offsets begin, and where
    in ``out`` its bytes begin and end. ``numbers`` is ``out`` as numbers. Returns False if a span
    lies outside ``data``, or a column has another number of bytes.

    All this is one call, because the GIL must be acquired again after each, and another thread may
    hold it."""
    row: cython.Py_ssize_t
    rows: cython.longlong = spans.shape[0]
    is_right: cython.bint = True
    if at.shape[0] != 12 or not (
        _fits(at[0], a, out)
        and _fits(at[1], b, out)
        and _fits(at[2], c, out)
        and _fits(at[3], d, out)
        and _fits(at[4], e, out)
        and _fits(at[5], f, out)
        and _fits(at[6], g, out)
        and _fits(at[7], h, out)
        and _fits(at[8], i, out)
        and _fits(at[9], j, out)
        and _fits(at[10], k, out)
        and _fits(at[11], m, out)
    ):
        raise ValueError("there is no room for twelve buffers at these positions")
    if gathered.shape[1] != 4:
        raise ValueError("four numbers describe a column that is gathered")
    for row in range(gathered.shape[0]):
        if (
            gathered[row, 0] < 0
            or gathered[row, 0] + 1 >= spans.shape[1]
            or gathered[row, 1] < 0
            or gathered[row, 1] > numbers.shape[0] - rows - 1
            or gathered[row, 2] < 0
            or gathered[row, 3] < gathered[row, 2]
            or gathered[row, 3] > out.shape[0]
            or gathered[row, 3] - gathered[row, 2] > 2147483647
        ):
            raise ValueError("no such column, or no room for its rows")
    with cython.nogil:
        copy(out, at[0], a, 0, a.shape[0])
        copy(out, at[1], b, 0, b.shape[0])
        copy(out, at[2], c, 0, c.shape[0])
        copy(out, at[3], d, 0, d.shape[0])
        copy(out, at[4], e, 0, e.shape[0])
        copy(out, at[5], f, 0, f.shape[0])
        copy(out, at[6], g, 0, g.shape[0])
        copy(out, at[7], h, 0, h.shape[0])
        copy(out, at[8], i, 0, i.shape[0])
        copy(out, at[9], j, 0, j.shape[0])
        copy(out, at[10], k, 0, k.shape[0])
        copy(out, at[11], m, 0, m.shape[0])
        for row in range(gathered.shape[0]):
            if _gather(
                data, spans, gathered[row, 0], numbers, gathered[row, 1],
                out, gathered[row, 2], gathered[row, 3],
            ) != gathered[row, 3] - gathered[row, 2]:  # fmt: skip
                is_right = False
                break
    return is_right


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


@cython.cfunc
def _bytes_at(
    data: cython.const[cython.uchar][::1], start: cython.longlong, size: cython.longlong
) -> object:
    """Returns a copy of a span as bytes, None for one of size -1."""
    if size < 0:
        return None
    if start < 0 or start > data.shape[0] or size > data.shape[0] - start:
        raise ValueError("a key, value or header lies outside its buffer")
    if size == 0:
        return b""
    if cython.compiled:
        return cython.cast(cython.p_char, cython.address(data[start]))[:size]
    return bytes(data[start : start + size])


@cython.cfunc
def _headers_at(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.longlong,
    name_of: object,
) -> list:
    """Returns headers as pairs of name and value."""
    size: cython.longlong
    found: list = []
    if at < 0:
        raise ValueError("a key, value or header lies outside its buffer")
    while count > 0:
        count -= 1
        size, at = varint(data, at, data.shape[0], 5)
        if at < 0 or size < 0:
            raise ValueError("a key, value or header lies outside its buffer")
        name = _bytes_at(data, at, size)
        size, at = varint(data, at + size, data.shape[0], 5)
        if at < 0:
            raise ValueError("a key, value or header lies outside its buffer")
        found.append((name_of(name), _bytes_at(data, at, size)))
        if size > 0:
            at += size
    return found


def tuples(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    timestamps: cython.const[cython.longlong][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    name_of: object,
) -> list:
    """Returns for each row from ``low`` to ``high``, exclusive, a tuple of key, value, timestamp,
    and headers: None if there are none, else a list of pairs of name and value. ``name_of`` turns
    the bytes of a header's name into text."""
    row: cython.Py_ssize_t
    found: list = []
    if spans.shape[1] != 6 or timestamps.shape[0] != spans.shape[0]:
        raise ValueError("spans have six columns, and each row has a timestamp")
    if low < 0 or high > spans.shape[0]:
        raise ValueError("no such rows")
    for row in range(low, high):
        found.append(
            (
                _bytes_at(data, spans[row, 0], spans[row, 1]),
                _bytes_at(data, spans[row, 2], spans[row, 3]),
                timestamps[row],
                _headers_at(data, spans[row, 4], spans[row, 5], name_of)
                if spans[row, 5] > 0
                else None,
            )
        )
    return found
