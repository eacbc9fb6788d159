"""Reads values of JSON: strings, base64 in strings, numbers.

Strings without escapes stay in place; others are unescaped into ``room``, a copy of the data, at
the position where they began. The functions read only what is certainly valid and common, and leave
anything else to a full JSON parser.

Bounds: a byte is read only below ``data.shape[0]`` and written only where a byte of the same string
was read.
"""

from __future__ import annotations

import cython

from ._text import little_endian, utf8_length


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def byte_at(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """Returns the byte at ``at``, or 0 past the end; JSON has no byte 0."""
    return data[at] if at < data.shape[0] else 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def skip_space(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Returns the position after white space, which does not include line breaks."""
    byte: cython.int = byte_at(data, at)
    while byte == 32 or byte == 9 or byte == 13:
        at += 1
        byte = byte_at(data, at)
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def after(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, wanted: cython.int
) -> cython.Py_ssize_t:
    """Returns the position after the byte ``wanted`` and the white space around it, -1 if there is
    another byte."""
    at = skip_space(data, at)
    if byte_at(data, at) != wanted:
        return -1
    return skip_space(data, at + 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_text(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    text: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Returns whether ``data`` has ``text[start:end]`` at ``at``."""
    is_long: cython.bint = end - start >= 8
    if end - start > data.shape[0] - at:
        return False
    while end - start >= 8:
        if little_endian(data, at) != little_endian(text, start):
            return False
        at += 8
        start += 8
    if is_long:  # the last eight bytes, some of which were compared before
        return little_endian(data, at - (8 - (end - start))) == little_endian(text, end - 8)
    while start < end and data[at] == text[start]:
        at += 1
        start += 1
    return start == end


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_null(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
    return (
        data.shape[0] - at >= 4
        and data[at] == 110
        and data[at + 1] == 117
        and data[at + 2] == 108
        and data[at + 3] == 108
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_word(
    room: cython.uchar[::1], to: cython.Py_ssize_t, word: cython.ulonglong
) -> cython.void:
    i: cython.int
    for i in range(8):
        room[to + i] = cython.cast(cython.uchar, (word >> (8 * i)) & 255)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _copy_common(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    to: cython.Py_ssize_t,
):
    """Copies the most frequent contents of a string from ``at`` to ``to``, eight bytes at a time
    while there are more: ASCII, and escaped quotes and backslashes. Returns the positions after
    both.

    Overwrites bytes after the copied ones, up to six past the quote that ends the string. No other
    string is so close: at least ``,"key":"`` precedes it.
    """
    word: cython.ulonglong
    special: cython.ulonglong
    plain: cython.Py_ssize_t
    ones: cython.ulonglong = 0x0101010101010101
    byte: cython.int
    while data.shape[0] - at >= 9:
        word = little_endian(data, at)
        # Sets the high bit of the first byte that is not ASCII, below 32, a quote or a backslash;
        # later bytes may have theirs set wrongly, because subtraction borrowed from them.
        special = word | (word - ones * 32) | ((word ^ (ones * 34)) - ones)
        special = (special | ((word ^ (ones * 92)) - ones)) & (ones * 128)
        if to != at:
            _put_word(room, to, word)
        if special == 0:
            at += 8
            to += 8
            continue
        # One bit of each byte up to the first special one, summed in the highest byte.
        special = ((special - 1) & ~special) & ones
        plain = cython.cast(cython.Py_ssize_t, (((special * ones) >> 56) & 255) - 1)
        at += plain
        to += plain
        byte = data[at + 1]
        if data[at] != 92 or (byte != 34 and byte != 92) or room.shape[0] == 0:
            return at, to
        room[to] = cython.cast(cython.uchar, byte)
        at += 2
        to += 1
    byte = byte_at(data, at)
    while byte >= 32 and byte < 128 and byte != 34 and byte != 92:
        if to != at:
            room[to] = cython.cast(cython.uchar, byte)
        at += 1
        to += 1
        byte = byte_at(data, at)
    return at, to


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hex4(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """Reads four hexadecimal digits; returns -1 if there is anything else."""
    i: cython.Py_ssize_t
    byte: cython.int
    code: cython.int = 0
    for i in range(4):
        byte = byte_at(data, at + i)
        if byte >= 48 and byte <= 57:
            code = code * 16 + byte - 48
        elif (byte >= 65 and byte <= 70) or (byte >= 97 and byte <= 102):
            code = code * 16 + (byte & 15) + 9
        else:
            return -1
    return code


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_utf8(
    room: cython.uchar[::1], to: cython.Py_ssize_t, code: cython.int
) -> cython.Py_ssize_t:
    """Writes the character, which takes no more bytes than its escapes, and returns the position
    after it."""
    if code < 0x80:
        room[to] = cython.cast(cython.uchar, code)
        return to + 1
    if code < 0x800:
        room[to] = cython.cast(cython.uchar, 0xC0 | (code >> 6))
        room[to + 1] = cython.cast(cython.uchar, 0x80 | (code & 0x3F))
        return to + 2
    if code < 0x10000:
        room[to] = cython.cast(cython.uchar, 0xE0 | (code >> 12))
        room[to + 1] = cython.cast(cython.uchar, 0x80 | ((code >> 6) & 0x3F))
        room[to + 2] = cython.cast(cython.uchar, 0x80 | (code & 0x3F))
        return to + 3
    room[to] = cython.cast(cython.uchar, 0xF0 | (code >> 18))
    room[to + 1] = cython.cast(cython.uchar, 0x80 | ((code >> 12) & 0x3F))
    room[to + 2] = cython.cast(cython.uchar, 0x80 | ((code >> 6) & 0x3F))
    room[to + 3] = cython.cast(cython.uchar, 0x80 | (code & 0x3F))
    return to + 4


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _unescape_code(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    to: cython.Py_ssize_t,
):
    """Decodes the escape ``\\u`` with four digits at ``at``, or two that are a surrogate pair, to
    ``to``. Returns the positions after both, or (-1, -1) for anything else, such as a lone
    surrogate."""
    low: cython.int
    code: cython.int = _hex4(data, at + 2)
    if code < 0 or (code >= 0xDC00 and code <= 0xDFFF):
        return -1, -1
    at += 6
    if code >= 0xD800 and code <= 0xDBFF:
        if byte_at(data, at) != 92 or byte_at(data, at + 1) != 117:
            return -1, -1
        low = _hex4(data, at + 2)
        if low < 0xDC00 or low > 0xDFFF:
            return -1, -1
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
        at += 6
    return at, _put_utf8(room, to, code)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _unescape(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    to: cython.Py_ssize_t,
):
    """Decodes the escape at ``at`` to ``to``. Returns the positions after both, (-1, -1) if there
    is no valid escape."""
    byte: cython.int = byte_at(data, at + 1)
    if byte == 117:
        return _unescape_code(data, at, room, to)
    if byte == 110:
        byte = 10
    elif byte == 116:
        byte = 9
    elif byte == 114:
        byte = 13
    elif byte == 98:
        byte = 8
    elif byte == 102:
        byte = 12
    elif byte != 34 and byte != 92 and byte != 47:
        return -1, -1
    room[to] = cython.cast(cython.uchar, byte)
    return at + 2, to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def read_string(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, room: cython.uchar[::1]
):
    """Reads the string whose first byte, after the quote, is at ``at``, and writes its UTF-8 to the
    same position of ``room``. Returns (position after its quote, its size), -1 for both if it is
    no valid string, -3 if ``room`` is needed but empty."""
    start: cython.Py_ssize_t = at
    to: cython.Py_ssize_t = at
    byte: cython.int
    length: cython.int
    i: cython.int
    while True:
        at, to = _copy_common(data, at, room, to)
        byte = byte_at(data, at)
        if byte == 34:
            return at + 1, to - start
        if byte == 92:
            if room.shape[0] == 0:
                return -3, -3
            at, to = _unescape(data, at, room, to)
            if at < 0:
                return -1, -1
        elif byte >= 128:
            length = utf8_length(data, at, data.shape[0])
            if length == 0:
                return -1, -1
            if to != at:
                for i in range(length):
                    room[to + i] = data[at + i]
            at += length
            to += length
        else:
            return -1, -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _base64_value(byte: cython.int) -> cython.int:
    if byte >= 65 and byte <= 90:
        return byte - 65
    if byte >= 97 and byte <= 122:
        return byte - 71
    if byte >= 48 and byte <= 57:
        return byte + 4
    return 62 if byte == 43 else 63 if byte == 47 else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _read_base64(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, room: cython.uchar[::1]
):
    """Does what ``read_string`` does, for a base64 string, which it decodes."""
    start: cython.Py_ssize_t = at
    to: cython.Py_ssize_t = at
    first: cython.int
    second: cython.int
    third: cython.int
    fourth: cython.int
    if room.shape[0] == 0:
        return -3, -3
    while byte_at(data, at) != 34:
        if data.shape[0] - at < 5:
            return -1, -1
        first = _base64_value(data[at])
        second = _base64_value(data[at + 1])
        third = _base64_value(data[at + 2])
        fourth = _base64_value(data[at + 3])
        if first < 0 or second < 0:
            return -1, -1
        room[to] = cython.cast(cython.uchar, (first << 2) | (second >> 4))
        to += 1
        # Only the last group may be padded.
        if (third < 0 or fourth < 0) and (
            data[at + 3] != 61 or data[at + 4] != 34 or (third < 0 and data[at + 2] != 61)
        ):
            return -1, -1
        if third >= 0:
            room[to] = cython.cast(cython.uchar, ((second & 15) << 4) | (third >> 2))
            to += 1
        if fourth >= 0:
            room[to] = cython.cast(cython.uchar, ((third & 3) << 6) | fourth)
            to += 1
        at += 4
    return at + 1, to - start


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t))
def read_bytes(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    room: cython.uchar[::1],
    base64: cython.const[cython.uchar][::1],
):
    """Reads a string, ``{"base64": "…"}`` or null at ``at``. Returns (position after it, start and
    size in ``room``), size -1 for null; position -1 for anything else, -3 if ``room`` is needed but
    empty. ``base64``: that name and its closing quote."""
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    byte: cython.int = byte_at(data, at)
    if byte == 34:
        start = at + 1
        at, size = read_string(data, start, room)
        return at, start, size
    if byte == 110 and is_null(data, at):
        return at + 4, 0, -1
    at = after(data, at, 123)
    if at < 0 or byte_at(data, at) != 34 or not is_text(data, at + 1, base64, 0, base64.shape[0]):
        return -1, 0, -1
    at = after(data, at + 1 + base64.shape[0], 58)
    if at < 0 or byte_at(data, at) != 34:
        return -1, 0, -1
    start = at + 1
    at, size = _read_base64(data, start, room)
    if at < 0:
        return at, 0, -1
    at = skip_space(data, at)
    return (at + 1 if byte_at(data, at) == 125 else -1), start, size


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _are_digits(word: cython.ulonglong) -> cython.bint:
    """Returns whether all eight bytes are digits: the upper half of each is 3, also after adding 6.
    Only a byte that is no digit can cause a carry."""
    ones: cython.ulonglong = 0x0101010101010101
    halves: cython.ulonglong = ones * 0xF0
    return ((word & halves) | (((word + ones * 6) & halves) >> 4)) == ones * 0x33


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _eight_digits(word: cython.ulonglong) -> cython.longlong:
    """Returns the number of eight digits, combining neighbours: digits, pairs, fours."""
    of_digits: cython.ulonglong = 0x0F0F0F0F0F0F0F0F
    of_pairs: cython.ulonglong = 0x00FF00FF00FF00FF
    of_fours: cython.ulonglong = 0x0000FFFF0000FFFF
    digits: cython.ulonglong = word & of_digits
    pairs: cython.ulonglong = (digits * 10 + (digits >> 8)) & of_pairs
    fours: cython.ulonglong = (pairs * 100 + (pairs >> 16)) & of_fours
    return cython.cast(cython.longlong, (fours & 0xFFFF) * 10000 + (fours >> 32))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.longlong))
def read_int(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    """Reads a non-negative number of up to 18 digits, -1, or null, which counts as -1. Returns
    (position after it, the number), position -1 for anything else."""
    start: cython.Py_ssize_t = at
    number: cython.longlong = 0
    byte: cython.int = byte_at(data, at)
    if byte == 110:
        return (at + 4 if is_null(data, at) else -1), -1
    if byte == 45:
        if byte_at(data, at + 1) != 49:
            return -1, -1
        number = -1
        at += 2
    else:
        if data.shape[0] - at >= 8 and _are_digits(little_endian(data, at)):
            number = _eight_digits(little_endian(data, at))
            at += 8
            byte = byte_at(data, at)
        while byte >= 48 and byte <= 57 and at - start < 18:
            number = number * 10 + byte - 48
            at += 1
            byte = byte_at(data, at)
        # Only 0 itself begins with 0.
        if at == start or (data[start] == 48 and at - start > 1):
            return -1, -1
    byte = byte_at(data, at)
    if byte != 44 and byte != 125 and byte != 32 and byte != 9 and byte != 13:
        return -1, -1  # more digits, a fraction, an exponent
    return at, number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def skip_value(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, room: cython.uchar[::1]
) -> cython.Py_ssize_t:
    """Returns the position after a string, a number that ``read_int`` accepts, or null; -1 for
    anything else, -3 if ``room`` is needed but empty."""
    _size: cython.Py_ssize_t
    _number: cython.longlong
    if byte_at(data, at) == 34:
        at, _size = read_string(data, at + 1, room)
    else:
        at, _number = read_int(data, at)
    return at
