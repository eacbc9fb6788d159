"""Writes Avro datums as JSON text, by the tables that the kernel ``avro`` walks them by.

Beside a row of ``nodes`` are two more tables. A row of ``forms`` says how a value is shown: its
form and two numbers ``c`` and ``d``.

    form                      c                   d             values
    0 as it is                records and enums: their first label
    1 date                                                      int
    2 time of day             units in a second                 int, long
    3 timestamp               units in a second   1 with a Z    long
    4 uuid                                                      fixed of 16 bytes
    5 decimal                 its precision       its scale     bytes, fixed
    6 left to the caller

Bytes and fixed as they are become base64. A row of ``labels`` is the start and size in ``texts`` of
what is written before a field, with the brace or comma before its name, or of a symbol.

A datum that needs what is not here is left to the caller: with a map that has many entries or one
key twice, or with a decimal that takes more than 64 bits.

Bounds: whatever writes a value has 64 bytes of room, and asks for more.
"""

from __future__ import annotations

import cython

from ._avro import (
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_INT,
    BAD_SIZE,
    BAD_SYMBOL,
    BAD_TEXT,
    BYTES_LEFT,
    MAX_DEPTH,
    TOO_DEEP,
    TOO_MANY_EMPTY,
    TOO_MANY_VALUES,
    TRUNCATED,
    check_tables,
    float_bits,
)
from ._calendar import (
    DAY_SECONDS,
    FIRST_DAY,
    LAST_DAY,
    floor_divided,
    put_digits,
    write_clock,
    write_date,
)
from ._double import POWERS, put_point, widened, write_double
from ._json_text import write_string
from ._primitives import copy, varint
from ._text import little_endian, write_base64, write_int

#: Codes beyond those of the kernel ``avro``: of values that fit their type and not its logical one.
OUTSIDE_DAY = cython.declare(cython.int, -12)
TOO_MANY_DIGITS = cython.declare(cython.int, -13)
#: The datum is left to the caller.
LEFT = cython.declare(cython.int, -14)
#: ``out`` is too small; the caller does not see this.
NO_ROOM = cython.declare(cython.int, -15)

#: What any number, time or name of a constant has room in, with the punctuation around it.
ROOM = cython.declare(cython.int, 64)
#: The most entries of a map that is written here: each key is compared with those before it.
MAX_ENTRIES = cython.declare(cython.int, 64)
#: The largest precision of a decimal whose form is 5: with all its digits, it has room.
MAX_PRECISION = cython.declare(cython.int, 38)


@cython.cclass
class _Writer:
    """What is the same for all datums, and what is remembered of one: how many more items without
    bytes it may have, and what more values may cost; the first code of a value that does not fit
    its logical type, 0 for none; and how many keys of maps around the present value are in
    ``keys``."""

    data: cython.const[cython.uchar][::1]
    nodes: cython.const[cython.longlong][:, ::1]
    links: cython.const[cython.longlong][::1]
    forms: cython.const[cython.longlong][:, ::1]
    labels: cython.const[cython.longlong][:, ::1]
    texts: cython.const[cython.uchar][::1]
    quoting: cython.const[cython.uchar][::1]
    powers: cython.const[cython.ulonglong][:, ::1]
    keys: cython.longlong[:, ::1]
    out: cython.uchar[::1]
    empty: cython.longlong
    cost: cython.longlong
    failed: cython.int
    key_count: cython.Py_ssize_t


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _has_room(w: _Writer, to: cython.Py_ssize_t, size: cython.longlong) -> cython.bint:
    """Returns whether so many bytes can be written, and then still a value."""
    return size <= w.out.shape[0] - to - ROOM


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_label(w: _Writer, label: cython.longlong, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Writes the name of a field or symbol. Returns the position after it, or NO_ROOM."""
    size: cython.longlong = w.labels[label, 1]
    if not _has_room(w, to, size):
        return NO_ROOM
    return copy(w.out, to, w.texts, w.labels[label, 0], size)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_letters(
    w: _Writer, letters: cython.ulonglong, count: cython.int, to: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes letters that are packed into a number, the first one in its lowest byte."""
    i: cython.int
    for i in range(count):
        w.out[to + i] = cython.cast(cython.uchar, (letters >> (8 * i)) & 0xFF)
    return to + count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_double(w: _Writer, bits: cython.ulonglong, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Writes a double, or as a string the name of one that JSON does not have."""
    if (bits >> 52) & 0x7FF != 0x7FF:
        return write_double(bits, w.powers, w.out, to)
    w.out[to] = 34
    to += 1
    if bits & ((cython.cast(cython.ulonglong, 1) << 52) - 1):
        to = _put_letters(w, 0x4E614E, 3, to)  # NaN
    else:
        if bits >> 63:
            w.out[to] = 45
            to += 1
        to = _put_letters(w, 0x7974696E69666E49, 8, to)  # Infinity
    w.out[to] = 34
    return to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_time(
    w: _Writer, value: cython.longlong, node: cython.Py_ssize_t, to: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Writes a date, a time of day or a timestamp; as a number one outside the years 1 to 9999, and
    nothing for a time outside the day."""
    form: cython.longlong = w.forms[node, 0]
    per_second: cython.longlong = w.forms[node, 1]
    day: cython.longlong = value
    second: cython.longlong = 0
    fraction: cython.longlong = 0
    if form != 1:
        second, fraction = floor_divided(value, per_second)
        day, second = floor_divided(second, DAY_SECONDS)
    if form == 2 and day != 0:
        if w.failed == 0:
            w.failed = OUTSIDE_DAY
        return to
    if day < FIRST_DAY or day > LAST_DAY:
        return write_int(value, w.out, to)
    w.out[to] = 34
    to += 1
    if form != 2:
        to = write_date(day, w.out, to)
    if form == 3:
        w.out[to] = 84
        to += 1
    if form != 1:
        to = write_clock(second, fraction, per_second, w.out, to)
    if form == 3 and w.forms[node, 2]:
        w.out[to] = 90
        to += 1
    w.out[to] = 34
    return to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_uuid(w: _Writer, at: cython.Py_ssize_t, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
    i: cython.int
    nibble: cython.int
    w.out[to] = 34
    to += 1
    for i in range(32):
        if i == 8 or i == 12 or i == 16 or i == 20:
            w.out[to] = 45
            to += 1
        nibble = w.data[at + i // 2]
        nibble = nibble & 15 if i & 1 else nibble >> 4
        w.out[to] = cython.cast(cython.uchar, 48 + nibble if nibble < 10 else 87 + nibble)
        to += 1
    w.out[to] = 34
    return to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.bint))
def _unscaled(w: _Writer, at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    """Returns a number in two's complement, big-endian, and whether it can be returned."""
    value: cython.longlong = 0
    sign: cython.int = 0
    i: cython.Py_ssize_t
    if size > 0 and w.data[at] > 127:
        sign = 255
        value = -1
    while size > 7 and w.data[at] == sign:
        at += 1
        size -= 1
    if size > 7:
        return 0, False
    for i in range(size):
        value = value * 256 + w.data[at + i]
    return value, True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_decimal(
    w: _Writer,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    to: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a decimal and returns the position after it, or LEFT; nothing for one that has too
    many digits."""
    scale: cython.int = cython.cast(cython.int, w.forms[node, 2])
    value: cython.longlong
    is_whole: cython.bint
    digits: cython.int = 1
    bound: cython.longlong = 10
    value, is_whole = _unscaled(w, at, size)
    if not is_whole:
        return LEFT
    w.out[to] = 34
    if value < 0:
        value = -value
        w.out[to + 1] = 45
        at = to + 2
    else:
        at = to + 1
    while value >= bound:  # seven bytes have 17 digits
        bound = bound * 10
        digits += 1
    if digits > w.forms[node, 1] and value != 0:
        if w.failed == 0:
            w.failed = TOO_MANY_DIGITS
        return to
    if digits <= scale:
        digits = scale + 1
    to = put_digits(value, digits, w.out, at)
    if scale > 0:
        to = put_point(to - scale, to, w.out)
    w.out[to] = 34
    return to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_bytes(
    w: _Writer,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    to: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes bytes or a fixed, and returns the position after it, NO_ROOM or LEFT."""
    form: cython.longlong = w.forms[node, 0]
    if form == 4:
        return _put_uuid(w, at, to)
    if form == 5:
        return _put_decimal(w, at, size, node, to)
    if form == 6:
        return LEFT
    if not _has_room(w, to, size // 3 * 4):
        return NO_ROOM
    w.out[to] = 34
    to = write_base64(w.data, at, size, w.out, to + 1)
    w.out[to] = 34
    return to + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _string(w: _Writer, at: cython.Py_ssize_t, end: cython.Py_ssize_t, to: cython.Py_ssize_t):
    size: cython.longlong
    size, at = varint(w.data, at, end, 10)
    if at < 0:
        return TRUNCATED, to
    if size < 0:
        return BAD_SIZE, to
    if size > end - at:
        return TRUNCATED, to
    if not _has_room(w, to, size * 6):
        return NO_ROOM, to
    to = write_string(w.data, at, size, w.quoting, w.out, to)
    return (at + size if to >= 0 else BAD_TEXT), to


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _fixed_size(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    to: cython.Py_ssize_t,
):
    """Writes a value of a kind whose size is known: null, boolean, float, double, fixed."""
    kind: cython.longlong = w.nodes[node, 0]
    size: cython.longlong = 0
    if kind != 0:
        size = 1 if kind == 1 else 4 if kind == 4 else 8 if kind == 5 else w.nodes[node, 1]
    if size > end - at:
        return TRUNCATED, to
    if kind == 0:
        to = _put_letters(w, 0x6C6C756E, 4, to)  # null
    elif kind == 1:
        if w.data[at] > 1:
            return BAD_BOOLEAN, to
        if w.data[at]:
            to = _put_letters(w, 0x65757274, 4, to)  # true
        else:
            to = _put_letters(w, 0x65736C6166, 5, to)  # false
    elif kind == 4:
        to = _put_double(w, widened(cython.cast(cython.uint, float_bits(w.data, at))), to)
    elif kind == 5:
        to = _put_double(w, little_endian(w.data, at), to)
    else:
        to = _put_bytes(w, at, size, node, to)
        if to < 0:
            return to, to
    return at + size, to


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _scalar(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    to: cython.Py_ssize_t,
):
    """Writes a value of kind 0 to 9."""
    kind: cython.longlong = w.nodes[node, 0]
    value: cython.longlong
    if kind == 7:
        return _string(w, at, end, to)
    if kind < 2 or kind == 4 or kind == 5 or kind == 8:
        return _fixed_size(w, at, end, node, to)
    value, at = varint(w.data, at, end, 10)
    if at < 0:
        return TRUNCATED, to
    if kind == 6:
        if value < 0:
            return BAD_SIZE, to
        if value > end - at:
            return TRUNCATED, to
        to = _put_bytes(w, at, value, node, to)
        return (at + value if to >= 0 else to), to
    if kind == 9:
        if not (0 <= value < w.nodes[node, 1]):
            return BAD_SYMBOL, to
        to = _put_label(w, w.forms[node, 1] + value, to)
        return (at if to >= 0 else to), to
    if kind == 2 and not (-2147483648 <= value <= 2147483647):
        return BAD_INT, to
    if w.forms[node, 0] == 0:
        return at, write_int(value, w.out, to)
    return at, _put_time(w, value, node, to)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_new_key(
    w: _Writer, first: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Remembers the key whose size is at ``at``, unless a key of the same map, the first of which
    is ``first`` of ``keys``, is the same, or there are too many."""
    size: cython.longlong
    i: cython.Py_ssize_t
    j: cython.longlong
    size, at = varint(w.data, at, end, 10)
    if w.key_count - first >= MAX_ENTRIES or w.key_count >= w.keys.shape[0]:
        return False
    for i in range(first, w.key_count):
        if w.keys[i, 1] != size:
            continue
        j = 0
        while j < size and w.data[w.keys[i, 0] + j] == w.data[at + j]:
            j += 1
        if j == size:
            return False
    w.keys[w.key_count, 0] = at
    w.keys[w.key_count, 1] = size
    w.key_count += 1
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _entry_key(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_key: cython.Py_ssize_t,
    to: cython.Py_ssize_t,
):
    """Writes the key of an entry and the colon after it."""
    start: cython.Py_ssize_t = at
    at, to = _string(w, at, end, to)
    if at < 0:
        return at, to
    if not _is_new_key(w, first_key, start, end):
        return LEFT, to
    if not _has_room(w, to, 1):
        return NO_ROOM, to
    w.out[to] = 58
    return at, to + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _block(w: _Writer, at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """Reads the number of items in a block, and their size, which follows a negative number.
    Returns the number and the position after it, or a code in place of that."""
    count: cython.longlong
    size: cython.longlong
    count, at = varint(w.data, at, end, 10)
    if at < 0:
        return 0, TRUNCATED
    if count < 0:
        size, at = varint(w.data, at, end, 10)
        if at < 0:
            return 0, TRUNCATED
        if size < 0 or count < -2147483648:
            return 0, BAD_SIZE
        count = -count
    return count, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _items(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    depth: cython.int,
    to: cython.Py_ssize_t,
):
    """Writes an array or a map."""
    is_map: cython.bint = w.nodes[node, 0] == 11
    opening: cython.int = 123 if is_map else 91
    first_key: cython.Py_ssize_t = w.key_count
    count: cython.longlong
    before: cython.Py_ssize_t
    is_first: cython.bint = True
    w.out[to] = opening
    to += 1
    while True:
        count, at = _block(w, at, end)
        if at < 0:
            return at, to
        if count == 0:
            break
        while count > 0:
            if not _has_room(w, to, 1):
                return NO_ROOM, to
            before = at
            if not is_first:
                w.out[to] = 44
                to += 1
            if is_map:
                at, to = _entry_key(w, at, end, first_key, to)
                if at < 0:
                    return at, to
            at, to = _value(w, at, end, w.nodes[node, 1], depth, to)
            if at < 0:
                return at, to
            if at == before:
                w.empty -= 1
                if w.empty < 0:
                    return TOO_MANY_EMPTY, to
            if w.nodes[node, 3] < -1:
                w.cost += w.nodes[node, 3]
                if w.cost < 0:
                    return TOO_MANY_VALUES, to
            is_first = False
            count -= 1
    w.key_count = first_key
    if not _has_room(w, to, 1):
        return NO_ROOM, to
    w.out[to] = opening + 2
    return at, to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _record(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    depth: cython.int,
    to: cython.Py_ssize_t,
):
    """Writes a record. Most of its values are scalars."""
    i: cython.longlong
    part: cython.longlong
    w.cost += w.nodes[node, 3]
    if w.cost < 0:
        return TOO_MANY_VALUES, to
    for i in range(w.nodes[node, 1]):
        to = _put_label(w, w.forms[node, 1] + i, to)
        if to < 0:
            return to, to
        part = w.links[w.nodes[node, 2] + i]
        if w.nodes[part, 0] < 10:
            at, to = _scalar(w, at, end, part, to)
        else:
            at, to = _value(w, at, end, part, depth, to)
        if at < 0:
            return at, to
    if not _has_room(w, to, 2):
        return NO_ROOM, to
    if w.nodes[node, 1] == 0:
        w.out[to] = 123
        to += 1
    w.out[to] = 125
    return at, to + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _value(
    w: _Writer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    node: cython.Py_ssize_t,
    depth: cython.int,
    to: cython.Py_ssize_t,
):
    """Writes a value. Returns the positions after it in ``data`` and ``out``; why it cannot be
    written in place of the first."""
    branch: cython.longlong
    while w.nodes[node, 0] == 12:
        if depth >= MAX_DEPTH:
            return TOO_DEEP, to
        branch, at = varint(w.data, at, end, 10)
        if at < 0:
            return TRUNCATED, to
        if branch < 0 or branch >= w.nodes[node, 1]:
            return BAD_BRANCH, to
        node = w.links[w.nodes[node, 2] + branch]
        depth += 1
    if w.nodes[node, 0] < 10:
        return _scalar(w, at, end, node, to)
    if depth >= MAX_DEPTH:
        return TOO_DEEP, to
    if w.nodes[node, 0] == 13:
        return _record(w, at, end, node, depth + 1, to)
    return _items(w, at, end, node, depth + 1, to)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _status(w: _Writer, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Returns why a datum does not fit, 0 if it does, when its writing ended with ``at``."""
    if at < 0:
        return at
    return w.failed if w.failed else 0 if at == end else BYTES_LEFT


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _write_each(
    w: _Writer,
    spans: cython.const[cython.longlong][:, ::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    places: cython.longlong[:, ::1],
    status: cython.longlong[::1],
):
    """Returns the first row that was not written, and the bytes that were."""
    row: cython.Py_ssize_t = first
    at: cython.Py_ssize_t
    to: cython.Py_ssize_t
    begin: cython.Py_ssize_t = 0
    code: cython.longlong
    while row < spans.shape[0] and _has_room(w, begin, 0):
        at = TRUNCATED
        to = begin
        w.empty = most[0]
        w.cost = most[1] + most[2] * (spans[row, 1] - spans[row, 0])
        w.failed = 0
        w.key_count = 0
        if 0 <= spans[row, 0] <= spans[row, 1] <= w.data.shape[0]:
            at, to = _value(w, spans[row, 0], spans[row, 1], root, 0, begin)
        code = _status(w, at, spans[row, 1])
        if code == NO_ROOM:
            break
        if code == 0 or code == BYTES_LEFT:
            places[row, 0] = begin
            places[row, 1] = to - begin
            begin = to
        else:
            places[row, 0] = 0
            places[row, 1] = -1
        status[row] = code
        row += 1
    return row, begin


def _check_forms(w: _Writer) -> None:
    """Raises ValueError if the tables do not belong together."""
    i: cython.Py_ssize_t
    is_right: cython.bint = (
        w.forms.shape[0] == w.nodes.shape[0]
        and w.forms.shape[1] == 3
        and w.labels.shape[1] == 2
        and w.keys.shape[1] == 2
        and w.quoting.shape[0] >= 256
        and w.powers.shape[0] == POWERS
        and w.powers.shape[1] == 2
    )
    for i in range(w.nodes.shape[0] if is_right else 0):
        kind: cython.longlong = w.nodes[i, 0]
        form: cython.longlong = w.forms[i, 0]
        c: cython.longlong = w.forms[i, 1]
        d: cython.longlong = w.forms[i, 2]
        if kind == 9 or kind == 13:
            is_right = is_right and 0 <= c <= w.labels.shape[0] - w.nodes[i, 1]
        elif kind == 11:
            is_right = is_right and w.nodes[w.nodes[i, 2], 0] == 7
        elif kind == 14:
            is_right = False
        if form == 2 or form == 3:
            is_right = is_right and (kind == 2 or kind == 3) and 0 < c <= 1000000000
        elif form == 4:
            is_right = is_right and kind == 8 and w.nodes[i, 1] == 16
        elif form == 5:
            is_right = is_right and (kind == 6 or kind == 8) and 0 <= d <= c <= MAX_PRECISION
        elif form == 1:
            is_right = is_right and kind == 2
        else:
            is_right = is_right and (form == 0 or (form == 6 and (kind == 6 or kind == 8)))
    for i in range(w.labels.shape[0] if is_right else 0):
        c = w.labels[i, 0]
        d = w.labels[i, 1]
        is_right = is_right and c >= 0 and 0 <= d <= w.texts.shape[0] - c
    if not is_right:
        raise ValueError("the tables of the forms do not belong to those of the types")


def write_texts(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    forms: cython.const[cython.longlong][:, ::1],
    labels: cython.const[cython.longlong][:, ::1],
    texts: cython.const[cython.uchar][::1],
    quoting: cython.const[cython.uchar][::1],
    powers: cython.const[cython.ulonglong][:, ::1],
    keys: cython.longlong[:, ::1],
    first: cython.Py_ssize_t,
    places: cython.longlong[:, ::1],
    status: cython.longlong[::1],
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Writes the datum between the start and end in each row of ``spans``, from row ``first`` on,
    until ``out`` is full. For each, ``status`` becomes 0, or the code why it does not fit, or LEFT;
    ``places`` start and size of its text in ``out``, size -1 unless it fits or only has bytes left
    over. ``powers``: see ``_double.py``; ``keys``, of shape (n, 2), is room to work in. Returns the
    first row that was not written, and the bytes that were."""
    row: cython.Py_ssize_t
    written: cython.Py_ssize_t
    check_tables(nodes, links, root)
    w: _Writer = _Writer()
    w.data = data
    w.nodes = nodes
    w.links = links
    w.forms = forms
    w.labels = labels
    w.texts = texts
    w.quoting = quoting
    w.powers = powers
    w.keys = keys
    w.out = out
    _check_forms(w)
    if (
        spans.shape[1] != 2
        or places.shape[1] != 2
        or places.shape[0] != spans.shape[0]
        or status.shape[0] != spans.shape[0]
        or most.shape[0] != 3
        or not (0 <= first <= spans.shape[0])
    ):
        raise ValueError("the tables for the results have other sizes than the arguments")
    with cython.nogil:
        row, written = _write_each(w, spans, root, most, first, places, status)
    return row, written
