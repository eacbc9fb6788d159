"""Elements of Kafka's protocol, as numbers and as JSON: integers, lengths, strings, UUIDs;
and its tagged fields (KIP-482).

A reader returns position -1 if the bytes end before the element, or are not one. A writer needs
space in ``out`` for the worst case, and returns the position after what it wrote.
"""

from __future__ import annotations

import cython

from ._primitives import copy, int32
from ._text import escape, utf8_length, write_base64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def int16(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = (cython.cast(cython.longlong, data[at]) << 8) | data[at + 1]
    return value - ((value >> 15) << 16)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def unsigned_varint(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
):
    """Reads a number of at most five bytes; returns it and the position after it."""
    value: cython.longlong = 0
    shift: cython.int = 0
    byte: cython.longlong
    while shift < 35 and at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def read_length(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    width: cython.int,
):
    """Reads the length of a string, bytes or an array, -1 or less for null: plus 1 as an unsigned
    varint if ``width`` is 0, else of so many bytes. Returns it and the position after it."""
    length: cython.longlong
    if width == 0:
        length, at = unsigned_varint(data, at, end)
        length -= 1
    elif width > end - at:
        return 0, -1
    elif width == 2:
        length = int16(data, at)
        at += 2
    else:
        length = int32(data, at)
        at += 4
    if length > end - at:
        return 0, -1
    return length, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_string(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a string in quotes, escaped as by Jackson; returns -1 if it is not UTF-8."""
    end: cython.Py_ssize_t = at + size
    length: cython.int
    out[pos] = 34
    pos += 1
    while at < end:
        if data[at] >= 128:
            length = utf8_length(data, at, end)
            if length == 0:
                return -1
            pos = copy(out, pos, data, at, length)
            at += length
            continue
        if data[at] >= 32 and data[at] != 34 and data[at] != 92:
            out[pos] = data[at]
            pos += 1
        else:
            pos = escape(data[at], 55, out, pos)
        at += 1
    out[pos] = 34
    return pos + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def write_null(out: cython.uchar[::1], pos: cython.Py_ssize_t) -> cython.Py_ssize_t:
    out[pos] = 110
    out[pos + 1] = 117
    out[pos + 2] = 108
    out[pos + 3] = 108
    return pos + 4


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def write_boolean(
    value: cython.bint, out: cython.uchar[::1], pos: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    if value:
        out[pos] = 116
        out[pos + 1] = 114
        out[pos + 2] = 117
    else:
        out[pos] = 102
        out[pos + 1] = 97
        out[pos + 2] = 108
        out[pos + 3] = 115
        pos += 1
    out[pos + 3] = 101
    return pos + 4


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_uuid(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes sixteen bytes as 22 characters of base64 for URLs, in quotes."""
    i: cython.Py_ssize_t
    out[pos] = 34
    pos += 1
    write_base64(data, at, 16, out, pos)
    for i in range(pos, pos + 22):
        if out[i] == 43:
            out[i] = 45
        elif out[i] == 47:
            out[i] = 95
    out[pos + 22] = 34
    return pos + 23


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def find_tag(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
    sought: cython.longlong,
):
    """Returns the bounds of the last of ``count`` tagged fields at ``at`` with that tag, -1 if
    there is none. The fields are well-formed."""
    _i: cython.longlong
    tag: cython.longlong
    size: cython.longlong
    start: cython.Py_ssize_t = -1
    stop: cython.Py_ssize_t = -1
    for _i in range(count):
        tag, at = unsigned_varint(data, at, end)
        size, at = unsigned_varint(data, at, end)
        if tag == sought:
            start = at
            stop = at + size
        at += size
    return start, stop


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def after_tags(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Returns the position after ``count`` tagged fields."""
    _i: cython.longlong
    number: cython.longlong
    for _i in range(count):
        number, at = unsigned_varint(data, at, end)
        if at < 0:
            return -1
        number, at = unsigned_varint(data, at, end)
        if at < 0 or number > end - at:
            return -1
        at += number
    return at
