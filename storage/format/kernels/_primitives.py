"""Reads and writes the primitive types of Kafka's formats: big-endian integers, varints, bytes.

The callers check bounds, except where a function says that it does.
"""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.libc.string import memcpy


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def uint32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:  # C compilers turn this into one load
        return (
            cython.cast(cython.longlong, data[at]) << 24
            | cython.cast(cython.longlong, data[at + 1]) << 16
            | cython.cast(cython.longlong, data[at + 2]) << 8
            | cython.cast(cython.longlong, data[at + 3])
        )
    return int.from_bytes(data[at : at + 4], "big")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def int32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = uint32(data, at)
    return value - ((value >> 31) << 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def int64(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    # a multiplication, because shifting a negative number left is undefined in C
    return int32(data, at) * 65536 * 65536 + uint32(data, at + 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_int(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.void:
    """Writes the ``size`` low bytes of the number in big-endian order."""
    i: cython.int
    for i in range(size):
        out[at + i] = cython.cast(cython.uchar, (value >> (8 * (size - 1 - i))) & 0xFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def plus(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """Returns the sum as Java computes it: it wraps around and is never undefined."""
    if cython.compiled:
        return cython.cast(
            cython.longlong,
            cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b),
        )
    return ((a + b + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def minus(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """Returns the difference, wrapped around like the sum in ``plus``."""
    if cython.compiled:
        return cython.cast(
            cython.longlong,
            cython.cast(cython.ulonglong, a) - cython.cast(cython.ulonglong, b),
        )
    return ((a - b + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.Py_ssize_t))
def long_groups(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.int,
):
    """Reads an unsigned number of at most ``most`` groups of seven bits. Returns it and the
    position after it, -1 if it does not end in time. Like Kafka's ``ByteUtils``, drops bits beyond
    32 (64) in the last byte and accepts over-long encodings."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    while True:
        if at >= end or shift >= 7 * most:
            return 0, -1
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 128:
            break
    if not cython.compiled:
        raw &= (1 << 64) - 1
    if most == 5:
        raw &= (cython.cast(cython.ulonglong, 1) << 32) - 1
    return raw, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def varint(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.int,
):
    """Reads a zigzag varint of at most ``most`` bytes at ``at``. Returns (value, position after it;
    -1 if it is bad or does not end before ``end``). Nearly all take one byte or two."""
    raw: cython.ulonglong
    if at < end and data[at] < 128:
        raw = data[at]
        at += 1
    elif end - at >= 2 and data[at + 1] < 128:
        raw = (data[at] & 0x7F) | (cython.cast(cython.ulonglong, data[at + 1]) << 7)
        at += 2
    else:
        raw, at = long_groups(data, at, end, most)
    # zigzag without signed overflow: n / 2 if n is even, else -(n / 2) - 1
    if raw & 1:
        return -cython.cast(cython.longlong, raw >> 1) - 1, at
    return cython.cast(cython.longlong, raw >> 1), at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.uint, cython.Py_ssize_t))
def short_varint(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    """Reads an unsigned number of one byte or two at ``at``; returns it and the position after it.
    Bit 0x4000 is set if the number has more bytes."""
    raw: cython.uint = data[at]
    if raw < 128:
        return raw, at + 1
    return (raw & 127) | (cython.cast(cython.uint, data[at + 1]) << 7), at + 2


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def after_headers(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Returns the position after ``count`` headers, -1 if they do not fit before ``end``."""
    size: cython.longlong
    if at < 0:
        return -1
    while count > 0:
        size, at = varint(data, at, end, 5)
        if at < 0 or size < 0 or size > end - at:
            return -1
        at += size
        size, at = varint(data, at, end, 5)
        if at < 0 or size > end - at:
            return -1
        if size > 0:
            at += size
        count -= 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def zigzag(value: cython.longlong) -> cython.ulonglong:
    """Maps 0, -1, 1, -2 … to 0, 1, 2, 3 …, without shifting a negative number."""
    if value < 0:
        return 2 * cython.cast(cython.ulonglong, -(value + 1)) + 1
    return 2 * cython.cast(cython.ulonglong, value)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def varint_size(value: cython.longlong) -> cython.longlong:
    raw: cython.ulonglong = zigzag(value)
    size: cython.longlong = 1
    while raw >= 128:
        raw >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_varint(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Writes the number at ``at`` and returns the position after it."""
    raw: cython.ulonglong = zigzag(value)
    while raw >= 128:
        out[at] = cython.cast(cython.uchar, (raw & 0x7F) | 0x80)
        raw >>= 7
        at += 1
    out[at] = cython.cast(cython.uchar, raw)
    return at + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copies bytes, none if ``size`` is negative, and returns the position after them."""
    if size > 0:
        if cython.compiled:
            memcpy(cython.address(out[at]), cython.address(data[start]), size)
        else:
            out[at : at + size] = data[start : start + size]
        return at + size
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def sized(
    data: cython.const[cython.uchar][::1], start: cython.longlong, size: cython.longlong
) -> cython.longlong:
    """Returns the encoded size of length-prefixed bytes, of which size -1 is null; -1 if they lie
    outside ``data``."""
    if size < 0:
        return 1
    if start < 0 or start > data.shape[0] or size > data.shape[0] - start:
        return -1
    return varint_size(size) + size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_sized(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    """Writes length-prefixed bytes, of which size -1 is null, and returns the position after
    them."""
    at = put_varint(out, at, size if size >= 0 else -1)
    return copy(out, at, data, start, size)
