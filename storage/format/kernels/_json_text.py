"""Writes bytes as JSON strings."""

from __future__ import annotations

import cython

from ._primitives import copy
from ._text import escape, utf8_length


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _kind_of(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Classifies bytes: 0 if they need no escape in a string, 1 if only quotes or backslashes do, a
    greater number if others need attention."""
    i: cython.Py_ssize_t
    byte: cython.uchar
    quotes: cython.uchar = 0
    others: cython.uchar = 0
    for i in range(start, end):
        byte = data[i]
        quotes |= (byte == 34) | (byte == 92)
        others |= (byte < 32) | (byte > 127)
    return quotes | (others << 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_quoted(
    data: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes printable ASCII with a backslash before quotes and backslashes. JSON values have so
    many of them that a branch for each would be mispredicted too often."""
    i: cython.Py_ssize_t
    byte: cython.int
    more: cython.int
    for i in range(start, end):
        byte = data[i]
        more = quoting[byte]
        out[at] = 92
        out[at + more] = cython.cast(cython.uchar, byte)
        at += 1 + more
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_string(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    quoting: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a string, of which only quotes, backslashes and control characters are escaped, and
    returns the position after it; -1 if the bytes are not UTF-8. ``out`` must have space for six
    times the bytes and 2. ``quoting`` is 1 for each byte that needs a backslash."""
    i: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    stop: cython.Py_ssize_t
    kind: cython.int
    length: cython.int
    out[at] = 34
    at += 1
    while i < end:
        stop = i + 128 if end - i > 128 else end  # so that one odd byte does not slow down the rest
        kind = _kind_of(data, i, stop)
        if kind == 0:
            at = copy(out, at, data, i, stop - i)
            i = stop
        elif kind == 1:
            at = _put_quoted(data, quoting, i, stop, out, at)
            i = stop
        while i < stop:
            length = 1
            if data[i] >= 128:
                length = utf8_length(data, i, end)
                if length == 0:
                    return -1
                at = copy(out, at, data, i, length)
            elif data[i] >= 32 and data[i] != 34 and data[i] != 92:
                out[at] = data[i]
                at += 1
            else:
                at = escape(data[i], 87, out, at)
            i += length
    out[at] = 34
    return at + 1
