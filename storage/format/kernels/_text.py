"""Reads bytes that may be text (words of eight bytes, UTF-8) and writes numbers as text."""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def little_endian(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.ulonglong:
    """Reads the eight bytes at ``at``."""
    if cython.compiled:
        # Written out with a single pointer so that C compilers turn it into one load.
        first: cython.p_uchar = cython.cast(cython.p_uchar, cython.address(data[at]))
        return (
            cython.cast(cython.ulonglong, first[0])
            | cython.cast(cython.ulonglong, first[1]) << 8
            | cython.cast(cython.ulonglong, first[2]) << 16
            | cython.cast(cython.ulonglong, first[3]) << 24
            | cython.cast(cython.ulonglong, first[4]) << 32
            | cython.cast(cython.ulonglong, first[5]) << 40
            | cython.cast(cython.ulonglong, first[6]) << 48
            | cython.cast(cython.ulonglong, first[7]) << 56
        )
    return int.from_bytes(data[at : at + 8], "little")


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def utf8_length(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.int:
    """Returns the size of the non-ASCII character at ``at``, 0 if it is not UTF-8 (RFC 3629:
    neither over-long forms nor surrogates)."""
    first: cython.int = data[at]
    second: cython.int
    need: cython.int
    i: cython.int
    if first < 0xC2 or first > 0xF4:
        return 0
    need = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if end - at < need:
        return 0
    second = data[at + 1]
    if (
        (first == 0xE0 and second < 0xA0)
        or (first == 0xED and second > 0x9F)
        or (first == 0xF0 and second < 0x90)
        or (first == 0xF4 and second > 0x8F)
    ):
        return 0
    for i in range(1, need):
        if (data[at + i] & 0xC0) != 0x80:
            return 0
    return need


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def malformed_length(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Returns how many bytes at ``at``, where no UTF-8 character begins, Java replaces by one
    U+FFFD: the longest beginning of a character, or an encoded surrogate."""
    first: cython.int = data[at]
    second: cython.int = data[at + 1] if at + 1 < end else 0
    length: cython.Py_ssize_t = 1
    low: cython.int = 0x80
    high: cython.int = 0xBF
    has_third: cython.bint
    if first < 0xE0 or first > 0xF4:
        return 1
    if first == 0xE0:
        low = 0xA0
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if second < low or second > high:
        return 1
    length = 2
    has_third = first >= 0xF0 or (first == 0xED and second >= 0xA0)
    if has_third and at + 2 < end and (data[at + 2] & 0xC0) == 0x80:
        length = 3
    return length


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def write_int(
    value: cython.longlong, out: cython.uchar[::1], at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes the number in decimal and returns the position after it."""
    digits: cython.int = 1
    end: cython.Py_ssize_t
    pair: cython.int
    rest: cython.ulonglong
    limit: cython.ulonglong = 10
    if value < 0:
        out[at] = 45
        at += 1
        # -(value + 1) + 1, because the smallest int64 has no positive counterpart
        rest = cython.cast(cython.ulonglong, -(value + 1)) + 1
    else:
        rest = cython.cast(cython.ulonglong, value)
    while rest >= limit:  # at most 19 digits, so no limit exceeds 64 bits
        limit = limit * 10
        digits += 1
    at += digits
    end = at
    while rest >= 10:  # two digits at a time: each division waits for the previous one
        pair = cython.cast(cython.int, rest % 100)
        rest = rest // 100
        out[end - 1] = cython.cast(cython.uchar, 48 + pair % 10)
        out[end - 2] = cython.cast(cython.uchar, 48 + pair // 10)
        end -= 2
    if digits & 1:
        out[end - 1] = cython.cast(cython.uchar, 48 + rest)
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def escape(
    byte: cython.int, letters: cython.int, out: cython.uchar[::1], at: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes a quote, a backslash or a control character as a JSON escape. ``letters``: the code of
    the hexadecimal digit 10, minus 10: 55 for upper case, 87 for lower case."""
    nibble: cython.int
    out[at] = 92
    if byte == 34 or byte == 92:
        out[at + 1] = cython.cast(cython.uchar, byte)
        return at + 2
    if byte == 10 or byte == 13 or byte == 9 or byte == 8 or byte == 12:
        if byte == 8:
            out[at + 1] = 98
        elif byte == 9:
            out[at + 1] = 116
        elif byte == 10:
            out[at + 1] = 110
        elif byte == 12:
            out[at + 1] = 102
        else:
            out[at + 1] = 114
        return at + 2
    out[at + 1] = 117
    out[at + 2] = 48
    out[at + 3] = 48
    out[at + 4] = cython.cast(cython.uchar, 48 + (byte >> 4))
    nibble = byte & 15
    out[at + 5] = cython.cast(cython.uchar, 48 + nibble if nibble < 10 else letters + nibble)
    return at + 6


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _base64_digit(value: cython.int) -> cython.uchar:
    if value < 26:
        return cython.cast(cython.uchar, 65 + value)
    if value < 52:
        return cython.cast(cython.uchar, 71 + value)
    if value < 62:
        return cython.cast(cython.uchar, value - 4)
    return 43 if value == 62 else 47


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_base64(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes bytes in base64, and returns the position after them."""
    i: cython.Py_ssize_t = 0
    group: cython.int
    while i < size:
        group = cython.cast(cython.int, data[start + i]) << 16
        if i + 1 < size:
            group |= cython.cast(cython.int, data[start + i + 1]) << 8
        if i + 2 < size:
            group |= data[start + i + 2]
        out[at] = _base64_digit(group >> 18)
        out[at + 1] = _base64_digit((group >> 12) & 63)
        out[at + 2] = _base64_digit((group >> 6) & 63) if i + 1 < size else 61
        out[at + 3] = _base64_digit(group & 63) if i + 2 < size else 61
        at += 4
        i += 3
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_utf8(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Returns whether the bytes are UTF-8."""
    length: cython.int
    while at < end:
        if data[at] < 128:
            at += 1
            continue
        length = utf8_length(data, at, end)
        if length == 0:
            return False
        at += length
    return True
