"""Reads JSON lines of records, as ``render`` writes them, into columns.

The kernel reads only lines that are certainly records; it stops at any other line and leaves that
to a full JSON parser. Strings without escapes stay in place; others are unescaped into ``room``, a
copy of the lines, at the position where they began.

Bounds: a byte is read only below ``data.shape[0]`` and written only where a byte of the same string
was read; rows and headers are counted against their tables before they are written.
"""

from __future__ import annotations

import cython

from ._text import little_endian, utf8_length

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
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _byte(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """Returns the byte at ``at``, or 0 past the end; JSON has no byte 0."""
    return data[at] if at < data.shape[0] else 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_space(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Returns the position after white space, which does not include line breaks."""
    byte: cython.int = _byte(data, at)
    while byte == 32 or byte == 9 or byte == 13:
        at += 1
        byte = _byte(data, at)
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, wanted: cython.int
) -> cython.Py_ssize_t:
    """Returns the position after the byte ``wanted`` and the white space around it, -1 if there is
    another byte."""
    at = _skip_space(data, at)
    if _byte(data, at) != wanted:
        return -1
    return _skip_space(data, at + 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_text(
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
def _is_null(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
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
    byte = _byte(data, at)
    while byte >= 32 and byte < 128 and byte != 34 and byte != 92:
        if to != at:
            room[to] = cython.cast(cython.uchar, byte)
        at += 1
        to += 1
        byte = _byte(data, at)
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
        byte = _byte(data, at + i)
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
        if _byte(data, at) != 92 or _byte(data, at + 1) != 117:
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
    byte: cython.int = _byte(data, at + 1)
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
def _read_string(
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
        byte = _byte(data, at)
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
    """Does what ``_read_string`` does, for a base64 string, which it decodes."""
    start: cython.Py_ssize_t = at
    to: cython.Py_ssize_t = at
    first: cython.int
    second: cython.int
    third: cython.int
    fourth: cython.int
    if room.shape[0] == 0:
        return -3, -3
    while _byte(data, at) != 34:
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
def _read_bytes(
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
    byte: cython.int = _byte(data, at)
    if byte == 34:
        start = at + 1
        at, size = _read_string(data, start, room)
        return at, start, size
    if byte == 110 and _is_null(data, at):
        return at + 4, 0, -1
    at = _after(data, at, 123)
    if at < 0 or _byte(data, at) != 34 or not _is_text(data, at + 1, base64, 0, base64.shape[0]):
        return -1, 0, -1
    at = _after(data, at + 1 + base64.shape[0], 58)
    if at < 0 or _byte(data, at) != 34:
        return -1, 0, -1
    start = at + 1
    at, size = _read_base64(data, start, room)
    if at < 0:
        return at, 0, -1
    at = _skip_space(data, at)
    return (at + 1 if _byte(data, at) == 125 else -1), start, size


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
def _read_int(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    """Reads a non-negative number of up to 18 digits, -1, or null, which counts as -1. Returns
    (position after it, the number), position -1 for anything else."""
    start: cython.Py_ssize_t = at
    number: cython.longlong = 0
    byte: cython.int = _byte(data, at)
    if byte == 110:
        return (at + 4 if _is_null(data, at) else -1), -1
    if byte == 45:
        if _byte(data, at + 1) != 49:
            return -1, -1
        number = -1
        at += 2
    else:
        if data.shape[0] - at >= 8 and _are_digits(little_endian(data, at)):
            number = _eight_digits(little_endian(data, at))
            at += 8
            byte = _byte(data, at)
        while byte >= 48 and byte <= 57 and at - start < 18:
            number = number * 10 + byte - 48
            at += 1
            byte = _byte(data, at)
        # Only 0 itself begins with 0.
        if at == start or (data[start] == 48 and at - start > 1):
            return -1, -1
    byte = _byte(data, at)
    if byte != 44 and byte != 125 and byte != 32 and byte != 9 and byte != 13:
        return -1, -1  # more digits, a fraction, an exponent
    return at, number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_value(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, room: cython.uchar[::1]
) -> cython.Py_ssize_t:
    """Returns the position after a string, a number that ``_read_int`` accepts, or null; -1 for
    anything else, -3 if ``room`` is needed but empty."""
    _size: cython.Py_ssize_t
    _number: cython.longlong
    if _byte(data, at) == 34:
        at, _size = _read_string(data, at + 1, room)
    else:
        at, _number = _read_int(data, at)
    return at


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
    if _byte(data, at) == 110:
        return (at + 4 if _is_null(data, at) else -1), header
    at = _after(data, at, 91)
    if at >= 0 and _byte(data, at) == 93:
        return at + 1, header
    while at >= 0:
        if header >= spans.shape[0]:
            return -2, header
        for field in range(2):
            at = _after(data, at, 123 if field == 0 else 44)
            if (
                at < 0
                or _byte(data, at) != 34
                or not _is_text(data, at + 1, names, marks[field], marks[field + 1])
            ):
                return -1, header
            at = _after(data, at + 1 + marks[field + 1] - marks[field], 58)
            if at < 0:
                return -1, header
            at, start, size = _read_bytes(data, at, room, base64)
            if at < 0 or (field == 0 and size < 0):
                return min(at, -1), header
            spans[header, 2 * field] = start
            spans[header, 2 * field + 1] = size
        header += 1
        at = _after(data, at, 125)
        if at >= 0 and _byte(data, at) == 93:
            return at + 1, header
        if at >= 0:
            at = _after(data, at, 44)
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
        if _is_text(data, at, names, marks[field], marks[field + 1]):
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
        if not _is_text(data, at, data, shape[part, 0], shape[part, 1]):
            return -1
        at += shape[part, 1] - shape[part, 0]
        what = shape[part, 2]
        if what < 2:
            start = at
            at, size = _read_string(data, at, room)
            table[1 + 2 * what, row] = start
            table[2 + 2 * what, row] = size
        elif what == 5:
            at, table[0, row] = _read_int(data, at)
        elif what == 2:
            at, _number = _read_int(data, at)
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
    at = _after(data, at, 123)
    while at >= 0:
        if _byte(data, at) != 34:
            return -1, header
        field = _field(data, at + 1, names, marks, (field + 1) & 7)
        if field < 0:
            return -1, header
        at = _after(data, at + 1 + marks[field + 1] - marks[field], 58)
        if at < 0:
            return -1, header
        value_at = at
        byte = _byte(data, at)
        if field == 0 or field == 1:
            at, start, size = _read_bytes(data, at, room, base64)
            table[1 + 2 * field, row] = start
            table[2 + 2 * field, row] = size
            has_shape = has_shape and byte != 123
        elif field == 5:
            at, table[0, row] = _read_int(data, at)
        elif field == 7:
            at, header = _read_headers(data, at, room, names, marks, base64, spans, header)
            has_shape = has_shape and header == before_headers
        else:
            at = _skip_value(data, at, room)
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
        at = _skip_space(data, at)
        if _byte(data, at) == 125:
            at = _skip_space(data, at + 1)
            # A value is required, even if null, and the line must end here.
            if seen & 2 == 0 or (at < data.shape[0] and data[at] != 10):
                return -1, header
            if has_shape and at < data.shape[0]:
                _add_part(shape, text_at, at + 1, 3)
            else:
                shape[0, 0] = 0
            return min(at + 1, data.shape[0]), header
        at = _after(data, at, 44)
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
