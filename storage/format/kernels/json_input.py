"""Reads JSON lines of records, as ``render`` writes them, into columns.

The kernel reads only lines that are certainly records; it stops at any other line and leaves that
to a full JSON parser. Strings without escapes stay in place; others are unescaped into ``room``, a
copy of the lines, at the position where they began.

Bounds: a byte is read only below ``data.shape[0]`` and written only where a byte of the same string
was read; rows and headers are counted against their tables before they are written.
"""

from __future__ import annotations

import cython

from ._json import (
    after,
    byte_at,
    is_null,
    is_text,
    read_bytes,
    read_int,
    read_string,
    skip_space,
    skip_value,
)

# Why reading ended.
DONE = 0
UNSURE = 1  # the next line may or may not be a record
NO_ROOM = 2  # the tables are too small for the next line
NO_COPY = 3  # the next line has escapes or base64, and ``room`` is empty

# The fields of a record, numbered in this order; callers pass their names. The values of key (0),
# value (1), timestamp (5) and headers (7) are kept, all others are discarded.
FIELDS = (
    "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
)  # fmt: skip


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _read_headers(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    names: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    base64: cython.const[cython.uchar][::1],
    spans: cython.longlong[:, ::1],
    header: cython.Py_ssize_t,
):
    """Reads a list of ``{"key": …, "value": …}``, in this order, or null. Returns (position after
    it, the number of headers then in ``spans``); position -1 for anything else, -2 if ``spans`` is
    full, -3 if ``room`` is needed but empty."""
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    field: cython.int
    if byte_at(data, at) == 110:
        return (at + 4 if is_null(data, at) else -1), header
    at = after(data, at, 91)
    if at >= 0 and byte_at(data, at) == 93:
        return at + 1, header
    while at >= 0:
        if header >= spans.shape[0]:
            return -2, header
        for field in range(2):
            at = after(data, at, 123 if field == 0 else 44)
            if (
                at < 0
                or byte_at(data, at) != 34
                or not is_text(data, at + 1, names, marks[field], marks[field + 1])
            ):
                return -1, header
            at = after(data, at + 1 + marks[field + 1] - marks[field], 58)
            if at < 0:
                return -1, header
            at, start, size = read_bytes(data, at, room, base64)
            if at < 0 or (field == 0 and size < 0):
                return min(at, -1), header
            spans[header, 2 * field] = start
            spans[header, 2 * field + 1] = size
        header += 1
        at = after(data, at, 125)
        if at >= 0 and byte_at(data, at) == 93:
            return at + 1, header
        if at >= 0:
            at = after(data, at, 44)
    return -1, header


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _field(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    names: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    guess: cython.int,
) -> cython.int:
    """Returns the number of the field whose name is at ``at``, trying ``guess`` first; -1 if
    none."""
    i: cython.int
    field: cython.int
    for i in range(8):
        field = (guess + i) & 7
        if is_text(data, at, names, marks[field], marks[field + 1]):
            return field
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add_part(
    shape: cython.Py_ssize_t[:, ::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    what: cython.Py_ssize_t,
) -> cython.void:
    shape[0, 0] += 1
    shape[shape[0, 0], 0] = start
    shape[shape[0, 0], 1] = end
    shape[shape[0, 0], 2] = what


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_alike(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
    shape: cython.const[cython.Py_ssize_t][:, ::1],
) -> cython.Py_ssize_t:
    """Reads the record of a line of known shape into ``row``. Returns the start of the next line,
    -1 if the line has another shape or no shape is known.

    ``shape[0, 0]`` is the number of parts, and each following row is one: start and end of a
    constant text, and what follows it: a string that is a key (0) or a value (1), a timestamp (5),
    a number that is discarded (2) or, after the last text of the line, nothing (3).
    """
    part: cython.Py_ssize_t
    what: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    _number: cython.longlong
    if shape[0, 0] == 0:
        return -1
    table[0, row] = -1
    table[1, row] = 0
    table[2, row] = -1
    table[3, row] = 0
    table[4, row] = -1
    for part in range(1, shape[0, 0] + 1):
        if not is_text(data, at, data, shape[part, 0], shape[part, 1]):
            return -1
        at += shape[part, 1] - shape[part, 0]
        what = shape[part, 2]
        if what < 2:
            start = at
            at, size = read_string(data, at, room)
            table[1 + 2 * what, row] = start
            table[2 + 2 * what, row] = size
        elif what == 5:
            at, table[0, row] = read_int(data, at)
        elif what == 2:
            at, _number = read_int(data, at)
        if at < 0:
            return -1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _read_line(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    names: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    base64: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
    spans: cython.longlong[:, ::1],
    header: cython.Py_ssize_t,
    shape: cython.Py_ssize_t[:, ::1],
):
    """Reads the record of a line into ``row`` and the line's shape, if it has one, into ``shape``.
    Returns (start of the next line, number of headers); position -1, -2, -3 as in
    ``_read_headers``."""
    field: cython.int = -1
    seen: cython.int = 0
    value_at: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    text_at: cython.Py_ssize_t = at  # what follows the last part of the shape
    has_shape: cython.bint = True
    byte: cython.int
    before_headers: cython.Py_ssize_t = header
    shape[0, 0] = 0
    table[0, row] = -1
    table[1, row] = 0
    table[2, row] = -1
    at = after(data, at, 123)
    while at >= 0:
        if byte_at(data, at) != 34:
            return -1, header
        field = _field(data, at + 1, names, marks, (field + 1) & 7)
        if field < 0:
            return -1, header
        at = after(data, at + 1 + marks[field + 1] - marks[field], 58)
        if at < 0:
            return -1, header
        value_at = at
        byte = byte_at(data, at)
        if field == 0 or field == 1:
            at, start, size = read_bytes(data, at, room, base64)
            table[1 + 2 * field, row] = start
            table[2 + 2 * field, row] = size
            has_shape = has_shape and byte != 123
        elif field == 5:
            at, table[0, row] = read_int(data, at)
        elif field == 7:
            at, header = _read_headers(data, at, room, names, marks, base64, spans, header)
            has_shape = has_shape and header == before_headers
        else:
            at = skip_value(data, at, room)
        if at < 0:
            return at, header
        if byte == 34 and field < 2:
            _add_part(shape, text_at, value_at + 1, field)
            text_at = at
        elif field == 5 or (byte >= 48 and byte <= 57):
            _add_part(shape, text_at, value_at, 5 if field == 5 else 2)
            text_at = at
        if (seen >> field) & 1 != 0:
            return -1, header
        seen |= 1 << field
        at = skip_space(data, at)
        if byte_at(data, at) == 125:
            at = skip_space(data, at + 1)
            # A value is required, even if null, and the line must end here.
            if seen & 2 == 0 or (at < data.shape[0] and data[at] != 10):
                return -1, header
            if has_shape and at < data.shape[0]:
                _add_part(shape, text_at, at + 1, 3)
            else:
                shape[0, 0] = 0
            return min(at + 1, data.shape[0]), header
        at = after(data, at, 44)
    return -1, header


def read_lines(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    room: cython.uchar[::1],
    names: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    base64: cython.const[cython.uchar][::1],
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
    spans: cython.longlong[:, ::1],
    header: cython.Py_ssize_t,
    bounds: cython.longlong[::1],
    shape: cython.Py_ssize_t[:, ::1],
) -> tuple[int, int, int, int]:
    """Reads lines from ``at`` up to ``end``, each the start of a line or the end of the data, until
    a line is unsure or the tables are full.

    ``room`` is a copy of ``data``, at least of these lines, or empty.
    ``names[marks[i]:marks[i + 1]]`` is the name of field i and its closing quote, in the order of
    ``FIELDS``. ``base64``: that word and a quote. The columns of ``table`` from ``row`` on receive
    timestamp, key start, key size, value start, value size; starts refer to ``room``, or to
    ``data`` if that is empty, and size -1 is null. The rows of ``spans`` from ``header`` on receive
    name start and size, value start and size of headers; ``bounds[row + 1]`` is where the headers
    of the row end. ``shape`` holds the shape of the previous line: see ``_read_alike``. Returns
    (start of the first line that was not read, rows, headers, why reading ended).
    """
    next_at: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    field: cython.int
    why: cython.int = 0
    if (
        (room.shape[0] != data.shape[0] and room.shape[0] != 0)
        or marks.shape[0] != 9
        or marks[0] < 0
        or marks[8] > names.shape[0]
        or table.shape[0] != 5
        or spans.shape[1] != 4
        or bounds.shape[0] != table.shape[1] + 1
        or shape.shape[0] != 10
        or shape.shape[1] != 3
    ):
        raise ValueError("arrays of different lengths")
    if (
        end > data.shape[0]
        or at < 0
        or row < 0
        or row > table.shape[1]
        or header < 0
        or header > spans.shape[0]
    ):
        raise ValueError("a position outside its array")
    for field in range(8):
        if marks[field] > marks[field + 1]:
            raise ValueError("names in no order")
    shape[0, 0] = 0
    with cython.nogil:
        while at < end:
            if row >= table.shape[1]:
                why = 2
                break
            headers = header
            next_at = _read_alike(data, at, room, table, row, shape)
            if next_at < 0:
                next_at, headers = _read_line(
                    data, at, room, names, marks, base64, table, row, spans, header, shape
                )
            if next_at < 0:
                why = cython.cast(cython.int, -next_at)
                break
            at = next_at
            header = headers
            row += 1
            bounds[row] = header
    return at, row, header, why
