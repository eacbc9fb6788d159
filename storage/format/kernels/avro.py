"""Walks Avro datums by a table made from their schema, into columns of numbers or Python objects.

A row of ``nodes`` is a type: its kind, two numbers ``a`` and ``b``, and whether it emits slots; if
an array or map does, that is the number of values in columns that each item becomes. If an array,
map or record emits nothing, this number is negative: what each item, or the record itself, costs.

    kind              a                             b                    slots for each value
    0 null                                                               none
    1 boolean                                                            0 or 1
    2 int, 3 long                                                        the number
    4 float, 5 double                                                    its bits
    6 bytes, 7 string                                                    start, size
    8 fixed           its size                                           start
    9 enum            the number of symbols                              the symbol's index
    10 array          the row of its items                               the number of items
    11 map            the row of its values         the row of its keys  the number of entries
    12 union          the number of branches        their first link     the branch
    13 record         the number of fields          their first link     none
    14 span           the row of the type in it                          start, size

``links`` are rows of branches and fields. A span is a value of any type whose parts emit nothing.
Positions count from the start of ``data``, integers are Avro's: zigzag varints, little-endian
floats. A datum should end exactly where its span ends.

A walk is bounded: by the depth of values, by the number of array items without any bytes, of which
an array could otherwise claim 2^60, and by what values cost: those that items become in columns,
most of which may be defaults, and those of records, which need no bytes, and may have the same
record in several fields, and so on. ``most`` has what a datum may have: items without bytes, the
cost of values, and more of it for each of its bytes.
"""

from __future__ import annotations

import struct

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
    double_bits,
    float_bits,
)
from ._primitives import varint
from ._text import is_utf8

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
    from cython.cimports.libc.string import memcpy


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _emit(
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
    node: cython.Py_ssize_t,
    value: cython.longlong,
    mode: cython.int,
) -> cython.void:
    """Counts a slot of the node (mode 1) or also writes it (modes 2 and 3)."""
    at: cython.longlong = cursors[node]
    if mode >= 2 and 0 <= at < slots.shape[0]:
        slots[at] = value
    cursors[node] = at + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_scalar(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    node: cython.Py_ssize_t,
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
    mode: cython.int,
) -> cython.Py_ssize_t:
    """Walks a value of kind 0 to 9."""
    kind: cython.longlong = nodes[node, 0]
    value: cython.longlong = 0
    size: cython.longlong = 0
    if kind == 0:
        return at
    if kind == 1:
        if at >= end:
            return TRUNCATED
        value = data[at]
        if value > 1:
            return BAD_BOOLEAN
        at += 1
    elif kind == 4 or kind == 5 or kind == 8:
        size = 4 if kind == 4 else 8 if kind == 5 else nodes[node, 1]
        if size > end - at:
            return TRUNCATED
        if mode >= 2:
            value = (
                float_bits(data, at)
                if kind == 4
                else double_bits(data, at) if kind == 5 else at
            )  # fmt: skip
        at += size
    else:
        value, at = varint(data, at, end, 10)
        if at < 0:
            return TRUNCATED
        if kind == 2 and not (-2147483648 <= value <= 2147483647):
            return BAD_INT
        if kind == 9 and not (0 <= value < nodes[node, 1]):
            return BAD_SYMBOL
        if kind == 6 or kind == 7:
            size = value
            if size < 0:
                return BAD_SIZE
            if size > end - at:
                return TRUNCATED
            if kind == 7 and mode != 2 and not is_utf8(data, at, at + size):
                return BAD_TEXT
            if mode and nodes[node, 3]:
                _emit(cursors, slots, node, at, mode)
                _emit(cursors, slots, node, size, mode)
            return at + size
    if mode and nodes[node, 3]:
        _emit(cursors, slots, node, value, mode)
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_items(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    node: cython.Py_ssize_t,
    depth: cython.int,
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
    mode: cython.int,
    left: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Walks an array or a map: blocks of items, each preceded by their number (if negative, also by
    their size, which is not needed), the last of which has none."""
    is_map: cython.bint = nodes[node, 0] == 11
    count: cython.longlong
    size: cython.longlong
    total: cython.longlong = 0
    before: cython.Py_ssize_t
    slot: cython.longlong = cursors[node] if mode and nodes[node, 3] > 0 else -1
    cost: cython.longlong = 0
    # A second walk visits only what the first one has checked.
    if mode != 2:
        cost = nodes[node, 3] if nodes[node, 3] >= 0 else -nodes[node, 3]
    if slot >= 0:
        _emit(cursors, slots, node, 0, mode)
    while True:
        count, at = varint(data, at, end, 10)
        if at < 0:
            return TRUNCATED
        if count == 0:
            break
        if count < 0:
            size, at = varint(data, at, end, 10)
            if at < 0:
                return TRUNCATED
            if size < 0 or count < -2147483648:
                return BAD_SIZE
            count = -count
        while count > 0:
            before = at
            if is_map:
                at = _walk(
                    data, at, end, nodes, links, nodes[node, 2], depth, cursors, slots, mode, left
                )
                if at < 0:
                    return at
            at = _walk(
                data, at, end, nodes, links, nodes[node, 1], depth, cursors, slots, mode, left
            )
            if at < 0:
                return at
            if at == before:
                left[0] -= 1
                if left[0] < 0:
                    return TOO_MANY_EMPTY
            if cost > 1:
                left[1] -= cost
                if left[1] < 0:
                    return TOO_MANY_VALUES
            total += 1
            count -= 1
    if mode >= 2 and 0 <= slot < slots.shape[0]:
        slots[slot] = total
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    node: cython.Py_ssize_t,
    depth: cython.int,
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
    mode: cython.int,
    left: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Walks a value and returns the position after it, or why it does not fit. Mode 0 only checks,
    1 also counts slots, 2 writes those of a datum that was checked, 3 checks and writes."""
    kind: cython.longlong = nodes[node, 0]
    value: cython.longlong
    start: cython.Py_ssize_t = at
    i: cython.longlong
    if kind < 10:
        return _walk_scalar(data, at, end, nodes, node, cursors, slots, mode)
    if depth >= MAX_DEPTH:
        return TOO_DEEP
    if kind == 13:
        if mode != 2:
            left[1] += nodes[node, 3]
            if left[1] < 0:
                return TOO_MANY_VALUES
        for i in range(nodes[node, 1]):
            value = links[nodes[node, 2] + i]
            at = _walk(data, at, end, nodes, links, value, depth + 1, cursors, slots, mode, left)
            if at < 0:
                return at
        return at
    if kind == 12:
        value, at = varint(data, at, end, 10)
        if at < 0:
            return TRUNCATED
        if value < 0 or value >= nodes[node, 1]:
            return BAD_BRANCH
        if mode and nodes[node, 3]:
            _emit(cursors, slots, node, value, mode)
        value = links[nodes[node, 2] + value]
        return _walk(data, at, end, nodes, links, value, depth + 1, cursors, slots, mode, left)
    if kind == 14:
        at = _walk(data, at, end, nodes, links, nodes[node, 1], depth, cursors, slots, 0, left)
        if at >= 0 and mode and nodes[node, 3]:
            _emit(cursors, slots, node, start, mode)
            _emit(cursors, slots, node, at - start, mode)
        return at
    return _walk_items(data, at, end, nodes, links, node, depth + 1, cursors, slots, mode, left)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _walk_each(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
    mode: cython.int,
    saved: cython.longlong[::1],
    left: cython.longlong[::1],
    status: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Walks the datum between the start and end in each row of ``spans``, and writes 0 or why it
    does not fit into ``status``; what it adds to ``cursors`` is taken back then. Returns how many
    fit."""
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    fitting: cython.Py_ssize_t = 0
    for row in range(spans.shape[0]):
        if not (0 <= spans[row, 0] <= spans[row, 1] <= data.shape[0]):
            status[row] = TRUNCATED
            continue
        for i in range(nodes.shape[0]):
            saved[i] = cursors[i]
        left[0] = most[0]
        left[1] = most[1] + most[2] * (spans[row, 1] - spans[row, 0])
        at = _walk(
            data, spans[row, 0], spans[row, 1], nodes, links, root, 0, cursors, slots, mode, left
        )
        status[row] = 0 if at == spans[row, 1] else BYTES_LEFT if at >= 0 else at
        if at >= 0:
            fitting += 1
        else:
            for i in range(nodes.shape[0]):
                cursors[i] = saved[i]
    return fitting


def check(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    counts: cython.longlong[::1],
    saved: cython.longlong[::1],
    left: cython.longlong[::1],
    status: cython.longlong[::1],
) -> int:
    """Walks the datum between the start and end in each row of ``spans``. Writes 0 or why it does
    not fit into ``status``, and into ``counts`` the number of slots of each node in those that fit,
    also with bytes left over. Returns how many fit. ``saved`` (as long as ``counts``) and ``left``
    (two elements) are room to work in."""
    fitting: cython.Py_ssize_t
    size: cython.Py_ssize_t = nodes.shape[0]
    check_tables(nodes, links, root)
    if (
        spans.shape[1] != 2
        or status.shape[0] != spans.shape[0]
        or counts.shape[0] != size
        or saved.shape[0] != size
        or left.shape[0] != 2
        or most.shape[0] != 3
    ):
        raise ValueError("the tables for the results have other sizes than the arguments")
    with cython.nogil:
        fitting = _walk_each(
            data, spans, nodes, links, root, most, counts, counts, 1, saved, left,
            status,
        )  # fmt: skip
    return fitting


def shred(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    status: cython.const[cython.longlong][::1],
    cursors: cython.longlong[::1],
    left: cython.longlong[::1],
    slots: cython.longlong[::1],
) -> bool:
    """Writes the slots of each node, from its position in ``cursors`` on, which moves to their end.
    Only datums that fit by their status are walked. Returns False if one does not any more."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    is_right: cython.bint = True
    check_tables(nodes, links, root)
    if (
        spans.shape[1] != 2
        or status.shape[0] != spans.shape[0]
        or cursors.shape[0] != nodes.shape[0]
        or left.shape[0] != 2
        or most.shape[0] != 3
    ):
        raise ValueError("the tables have other sizes than those of the check")
    with cython.nogil:
        for row in range(spans.shape[0]):
            if status[row] != 0 and status[row] != BYTES_LEFT:
                continue
            left[0] = most[0]
            at = -1
            if 0 <= spans[row, 0] <= spans[row, 1] <= data.shape[0]:
                at = _walk(
                    data, spans[row, 0], spans[row, 1], nodes, links, root, 0, cursors, slots, 2,
                    left,
                )  # fmt: skip
            if at < 0 or (status[row] == 0) != (at == spans[row, 1]):
                is_right = False
                break
    return is_right


def check_and_shred(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    saved: cython.longlong[::1],
    left: cython.longlong[::1],
    status: cython.longlong[::1],
    cursors: cython.longlong[::1],
    slots: cython.longlong[::1],
) -> int:
    """Does in one walk what ``check`` and ``shred`` do, where room for the slots of each node is
    known before: from its position in ``cursors`` on, which moves to their end. Returns how many
    datums fit. ``saved`` and ``left`` are room to work in."""
    fitting: cython.Py_ssize_t
    size: cython.Py_ssize_t = nodes.shape[0]
    check_tables(nodes, links, root)
    if (
        spans.shape[1] != 2
        or status.shape[0] != spans.shape[0]
        or cursors.shape[0] != size
        or saved.shape[0] != size
        or left.shape[0] != 2
        or most.shape[0] != 3
    ):
        raise ValueError("the tables for the results have other sizes than the arguments")
    with cython.nogil:
        fitting = _walk_each(
            data, spans, nodes, links, root, most, cursors, slots, 3, saved, left,
            status,
        )  # fmt: skip
    return fitting


@cython.cfunc
def _text(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    if size == 0:
        return ""
    if cython.compiled:
        return PyUnicode_DecodeUTF8(
            cython.cast(cython.p_char, cython.address(data[at])), size, cython.NULL
        )
    return str(data[at : at + size], "utf-8")


@cython.cfunc
def _bytes(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    if size == 0:
        return b""
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(data[at])), size)
    return bytes(data[at : at + size])


@cython.cfunc
def _number(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, kind: cython.longlong):
    """Returns the float (kind 4) or double."""
    single: cython.float = 0
    double: cython.double = 0
    low: cython.uint
    bits: cython.longlong
    if not cython.compiled:
        size = 4 if kind == 4 else 8
        return struct.unpack("<f" if kind == 4 else "<d", data[at : at + size])[0]
    bits = float_bits(data, at) if kind == 4 else double_bits(data, at)
    if kind == 4:
        low = cython.cast(cython.uint, bits)
        memcpy(cython.address(single), cython.address(low), 4)
        return single
    memcpy(cython.address(double), cython.address(bits), 8)
    return double


@cython.cfunc
def _scalar(
    data: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    node: cython.Py_ssize_t,
    names: list,
    place: cython.longlong[::1],
):
    kind: cython.longlong = nodes[node, 0]
    at: cython.Py_ssize_t = place[0]
    value: cython.longlong
    size: cython.longlong
    if kind == 0:
        return None
    if kind == 1 or kind == 4 or kind == 5 or kind == 8:
        size = 1 if kind == 1 else 4 if kind == 4 else 8 if kind == 5 else nodes[node, 1]
        if size > end - at:
            raise ValueError("the datum changed while it was read")
        place[0] = at + size
        if kind == 1:
            return data[at] != 0
        return _bytes(data, at, size) if kind == 8 else _number(data, at, kind)
    value, at = varint(data, at, end, 10)
    if at < 0 or ((kind == 6 or kind == 7) and not (0 <= value <= end - at)):
        raise ValueError("the datum changed while it was read")
    if kind == 6 or kind == 7:
        place[0] = at + value
        return _bytes(data, at, value) if kind == 6 else _text(data, at, value)
    place[0] = at
    return names[node][value] if kind == 9 else value


@cython.cfunc
def _value(
    data: cython.const[cython.uchar][::1],
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    node: cython.Py_ssize_t,
    names: list,
    converters: list,
    place: cython.longlong[::1],
    depth: cython.int,
):
    """Returns the value at ``place[0]``, which moves after it."""
    kind: cython.longlong = nodes[node, 0]
    count: cython.longlong
    number: cython.longlong
    at: cython.Py_ssize_t
    i: cython.longlong
    if kind < 10:
        found = _scalar(data, end, nodes, node, names, place)
        convert = converters[node]
        return found if convert is None else convert(found)
    if depth >= MAX_DEPTH:
        raise ValueError("the datum changed while it was read")
    if kind == 13:
        record: dict = {}
        fields = names[node]
        for i in range(nodes[node, 1]):
            number = links[nodes[node, 2] + i]
            record[fields[i]] = _value(
                data, end, nodes, links, number, names, converters, place, depth + 1
            )
        return record
    if kind == 12:
        number, at = varint(data, place[0], end, 10)
        if at < 0 or not (0 <= number < nodes[node, 1]):
            raise ValueError("the datum changed while it was read")
        place[0] = at
        number = links[nodes[node, 2] + number]
        return _value(data, end, nodes, links, number, names, converters, place, depth + 1)
    if kind == 14:
        number = nodes[node, 1]
        return _value(data, end, nodes, links, number, names, converters, place, depth)
    items: list = []
    entries: dict = {}
    while True:
        count, at = varint(data, place[0], end, 10)
        if at >= 0 and count < 0:
            count = -count if count >= -2147483648 else 0
            number, at = varint(data, at, end, 10)
        if at < 0:
            raise ValueError("the datum changed while it was read")
        place[0] = at
        if count == 0:
            return entries if kind == 11 else items
        while count > 0:
            key = _scalar(data, end, nodes, nodes[node, 2], names, place) if kind == 11 else None
            found = _value(
                data, end, nodes, links, nodes[node, 1], names, converters, place, depth + 1
            )
            if kind == 11:
                entries[key] = found
            else:
                items.append(found)
            count -= 1


def value(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    nodes: cython.const[cython.longlong][:, ::1],
    links: cython.const[cython.longlong][::1],
    root: cython.Py_ssize_t,
    most: cython.const[cython.longlong][::1],
    names: list,
    converters: list,
    place: cython.longlong[::1],
) -> tuple[int, object]:
    """Returns 0 and the datum as Python objects, or why it does not fit and None; if only bytes are
    left over, that and the datum. ``names`` has for
    each node the names of its fields or symbols, ``converters`` what turns its value (bytes for
    bytes and fixed) into another one, or None. ``place`` is room for two numbers."""
    at: cython.Py_ssize_t
    check_tables(nodes, links, root)
    if (
        place.shape[0] != 2
        or most.shape[0] != 3
        or len(names) != nodes.shape[0]
        or len(converters) != nodes.shape[0]
        or not (0 <= start <= end <= data.shape[0])
    ):
        raise ValueError(
            "the tables have other sizes than the arguments, or the datum lies outside"
        )
    place[0] = most[0]
    place[1] = most[1] + most[2] * (end - start)
    at = _walk(data, start, end, nodes, links, root, 0, place, place, 0, place)
    if at < 0:
        return at, None
    place[0] = start
    found = _value(data, end, nodes, links, root, names, converters, place, 0)
    return (0 if at == end else BYTES_LEFT), found
