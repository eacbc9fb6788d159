"""Writes records as text: lines of values or keys, and JSON lines.

Bounds: the decoding kernels, which produced the spans, checked them against the same ``data``; they
are checked again here, row by row. The space in ``out`` is checked before each row.
"""

from __future__ import annotations

import cython

from ._json_text import write_string
from ._primitives import copy, varint
from ._text import write_base64, write_int

NO_ROOM = -1
BAD_SPAN = -2


def write_lines(
    data: cython.const[cython.uchar][::1],
    spans: cython.int[:, ::1],
    column: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> int:
    """Writes one line per row: the bytes whose start is in ``column`` (their size in the next
    column) and a newline; only the newline for null. Returns the number of bytes written, or
    NO_ROOM or BAD_SPAN."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = spans.shape[0]
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    room: cython.Py_ssize_t = out.shape[0]
    if column < 0 or column + 1 >= spans.shape[1]:
        raise ValueError("no such column")
    with cython.nogil:
        for row in range(rows):
            start = spans[row, column]
            size = spans[row, column + 1]
            if size < 0:
                size = 0
            if start < 0 or size > data.shape[0] - start:
                at = -2
                break
            if size >= room - at:
                at = -1
                break
            at = copy(out, at, data, start, size)
            out[at] = 10
            at += 1
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_base64(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    opening: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes ``{"base64":"..."}``, which begins with ``opening``."""
    at = copy(out, at, opening, 0, opening.shape[0])
    at = write_base64(data, start, size, out, at)
    out[at] = 34
    out[at + 1] = 125
    return at + 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_bytes(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    null: cython.const[cython.uchar][::1],
    opening: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes null, a string if the bytes are UTF-8, or base64. ``out`` must have space for the
    worst case."""
    end: cython.Py_ssize_t
    if size < 0:
        return copy(out, at, null, 0, null.shape[0])
    end = write_string(data, start, size, quoting, out, at)
    return end if end >= 0 else _write_base64(data, start, size, opening, out, at)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_headers(
    data: cython.const[cython.uchar][::1],
    header_at: cython.Py_ssize_t,
    count: cython.int,
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    null: cython.const[cython.uchar][::1],
    opening: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the objects of a headers list, without its brackets. Returns the position after them,
    NO_ROOM if ``out`` may not suffice, or BAD_SPAN."""
    i: cython.int
    size: cython.Py_ssize_t
    for i in range(count):
        size, header_at = varint(data, header_at, data.shape[0], 5)
        if header_at < 0 or size < 0 or size > data.shape[0] - header_at:
            return -2
        if size * 6 + 64 > out.shape[0] - at:
            return -1
        if i > 0:
            out[at] = 44
            at += 1
        at = copy(out, at, texts, marks[7], marks[8] - marks[7])
        at = _write_bytes(data, header_at, size, null, opening, quoting, out, at)
        header_at += size
        size, header_at = varint(data, header_at, data.shape[0], 5)
        if header_at < 0 or size > data.shape[0] - header_at:
            return -2
        if (size if size > 0 else 0) * 6 + 64 > out.shape[0] - at:
            return -1
        at = copy(out, at, texts, marks[8], marks[9] - marks[8])
        at = _write_bytes(data, header_at, size, null, opening, quoting, out, at)
        if size > 0:
            header_at += size
        out[at] = 125
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _worst(
    spans: cython.const[cython.int][:, ::1],
    places: cython.const[cython.longlong][:, ::1],
    row: cython.Py_ssize_t,
    part: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Returns the most bytes that the key (0) or value (1) of a row may take."""
    size: cython.Py_ssize_t = spans[row, 2 * part + 1]
    if places.shape[0] > 0 and places[row, 2 * part + 1] >= 0:
        return places[row, 2 * part + 1]
    return size * 6 if size > 0 else 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _write_part(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    decoded: cython.const[cython.uchar][::1],
    places: cython.const[cython.longlong][:, ::1],
    row: cython.Py_ssize_t,
    part: cython.Py_ssize_t,
    null: cython.const[cython.uchar][::1],
    opening: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the key (0) or value (1) of a row: its text, or else its bytes."""
    if places.shape[0] > 0 and places[row, 2 * part + 1] >= 0:
        return copy(out, at, decoded, places[row, 2 * part], places[row, 2 * part + 1])
    return _write_bytes(
        data, spans[row, 2 * part], spans[row, 2 * part + 1], null, opening, quoting, out, at
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_inside(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    decoded: cython.const[cython.uchar][::1],
    places: cython.const[cython.longlong][:, ::1],
    row: cython.Py_ssize_t,
) -> cython.bint:
    """Returns whether all bytes of a row are in ``data`` and ``decoded``."""
    i: cython.Py_ssize_t
    if (
        spans[row, 0] < 0
        or spans[row, 2] < 0
        or spans[row, 4] < 0
        or spans[row, 1] > data.shape[0] - spans[row, 0]
        or spans[row, 3] > data.shape[0] - spans[row, 2]
    ):
        return False
    if places.shape[0] > 0:
        for i in range(3):
            if places[row, 2 * i] < 0 or (
                places[row, 2 * i + 1] > decoded.shape[0] - places[row, 2 * i]
            ):
                return False
    return True


def write_json(
    data: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    types: cython.const[cython.int][::1],
    spans: cython.const[cython.int][:, ::1],
    decoded: cython.const[cython.uchar][::1],
    places: cython.const[cython.longlong][:, ::1],
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    null: cython.const[cython.uchar][::1],
    opening: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    first: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Writes one JSON line per row, from row ``first`` on, until ``out`` is full.

    ``places`` has no rows, or for each row start and size in ``decoded`` of what is written in
    place of the key, in place of the value, and after the headers; size -1 for nothing.

    ``texts[marks[i]:marks[i + 1]]`` is the text before the key (0), the value (1), the offset (2;
    includes topic and partition) and the timestamp (3); that between timestamp and headers for
    timestamp type -1, 0, 1 (4, 5, 6); that before the name (7) and the value (8) of a header; and
    that after the headers (9) and at the end (10). ``opening`` begins a base64 object; ``quoting``
    is 1 for each byte that needs a backslash in a string. Returns (rows written, bytes written or
    BAD_SPAN).
    """
    row: cython.Py_ssize_t = first
    rows: cython.Py_ssize_t = spans.shape[0]
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    kind: cython.Py_ssize_t
    tail: cython.Py_ssize_t
    frame: cython.Py_ssize_t = texts.shape[0] + 160
    if (
        first < 0
        or offsets.shape[0] < rows
        or timestamps.shape[0] < rows
        or types.shape[0] < rows
        or marks.shape[0] < 12
        or quoting.shape[0] < 256
        or spans.shape[1] != 6
        or places.shape[1] != 6
        or (places.shape[0] != 0 and places.shape[0] < rows)
    ):
        raise ValueError("columns of different lengths")
    with cython.nogil:
        while row < rows:
            begin = at
            if not _is_inside(data, spans, decoded, places, row):
                at = -2
                break
            tail = places[row, 5] if places.shape[0] > 0 and places[row, 5] > 0 else 0
            if (
                _worst(spans, places, row, 0) + _worst(spans, places, row, 1) + tail + frame
                > out.shape[0] - at
            ):
                break
            at = copy(out, at, texts, marks[0], marks[1] - marks[0])
            at = _write_part(
                data, spans, decoded, places, row, 0, null, opening, quoting, out, at
            )  # fmt: skip
            at = copy(out, at, texts, marks[1], marks[2] - marks[1])
            at = _write_part(
                data, spans, decoded, places, row, 1, null, opening, quoting, out, at
            )  # fmt: skip
            at = copy(out, at, texts, marks[2], marks[3] - marks[2])
            at = write_int(offsets[row], out, at)
            at = copy(out, at, texts, marks[3], marks[4] - marks[3])
            at = write_int(timestamps[row], out, at)
            kind = types[row] + 5
            if kind < 4 or kind > 6:
                kind = 4
            at = copy(out, at, texts, marks[kind], marks[kind + 1] - marks[kind])
            if spans[row, 5] > 0:
                at = _write_headers(
                    data, spans[row, 4], spans[row, 5], texts, marks,
                    null, opening, quoting, out, at,
                )  # fmt: skip
                if at == -1 or (at >= 0 and marks[11] - marks[9] + tail > out.shape[0] - at):
                    at = begin  # the headers do not fit: the next call writes this row
                    break
                if at < 0:
                    break
            at = copy(out, at, texts, marks[9], marks[10] - marks[9])
            if tail > 0:
                at = copy(out, at, decoded, places[row, 4], tail)
            at = copy(out, at, texts, marks[10], marks[11] - marks[10])
            row += 1
    return row - first, at
