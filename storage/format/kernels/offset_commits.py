"""Reads offset commits, the records of `__consumer_offsets` with keys of type 0 or 1, into a table
with a row for each group, topic and partition, and one for each group.

The rows are found through a hash table of `slots`, whose number is a power of two. A slot is 0 if
it is empty, else the row plus 1 in its low 32 bits, and above them the high bits of the hash. A row
begins with 0 start and 1 size of its key in ``arena``, and 2 the hash of the key; the other columns
are those below. A key is the record's without its type, up to the partition; that of a group is the
beginning of it, up to the group's name. So no two keys are equal.

``state`` has the numbers of rows of the table and of bytes of the arena in use, and the two halves
of the key of the hash.

Bounds: the caller leaves space for every row of a call in all arrays, which is checked on entry.
Spans are checked against ``data`` before a byte of them is read.
"""

from __future__ import annotations

import cython

from ._primitives import copy, int32, int64
from ._protocol import int16, read_length, unsigned_varint
from ._siphash import siphash_128
from ._text import is_utf8

# Columns of the table. GROUP is the row of the group; -1 in the row of a group, which uses none of
# the following columns.
GROUP = 3
OFFSET = 4
LEADER_EPOCH = 5
METADATA_START = 6
METADATA_SIZE = 7
COMMIT_TIMESTAMP = 8
EXPIRE_TIMESTAMP = 9
TOPIC_ID_HIGH = 10
TOPIC_ID_LOW = 11
# The offset of the record that committed; -1 if nothing is committed.
RECORD = 12
# The offset of the last record whose transaction is open; -1 if there is none.
OPEN_RECORD = 13
# How many bytes there are for the metadata in the arena.
METADATA_SPACE = 14
COLUMNS = 15
# The outcomes of transactions. Records without one count as COMMITTED.
ABORTED = 0
COMMITTED = 1
OPEN = 2
# Kinds of rows: of another type, and malformed. Both are left to the caller.
OTHER = 1
MALFORMED = 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _hash(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    state: cython.longlong[::1],
) -> cython.longlong:
    """Returns 63 bits of the SipHash of bytes."""
    low: cython.ulonglong
    _high: cython.ulonglong
    low, _high = siphash_128(data, at, size, state[2], state[3])
    return cython.cast(cython.longlong, low >> 1)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _row_in(slot: cython.longlong) -> cython.Py_ssize_t:
    """Returns the row in a slot that is not empty."""
    return slot - ((slot >> 32) << 32) - 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _slot(
    slots: cython.longlong[::1],
    table: cython.longlong[:, ::1],
    arena: cython.uchar[::1],
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    hash_: cython.longlong,
) -> cython.Py_ssize_t:
    """Returns the slot of the key ``data[at : at + size]``, or the empty one where it belongs."""
    mask: cython.longlong = slots.shape[0] - 1
    slot: cython.Py_ssize_t = hash_ & mask
    row: cython.Py_ssize_t
    i: cython.Py_ssize_t
    start: cython.Py_ssize_t
    while slots[slot] != 0:
        if slots[slot] >> 32 == hash_ >> 32:
            row = _row_in(slots[slot])
            if table[row, 1] == size and table[row, 2] == hash_:
                start = table[row, 0]
                i = 0
                while i < size and arena[start + i] == data[at + i]:
                    i += 1
                if i == size:
                    break
        slot = (slot + 1) & mask
    return slot


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _after_key(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Returns the position after group, topic and partition, -1 if they are malformed. Whether the
    names are UTF-8 is not checked."""
    _: cython.int
    size: cython.longlong
    for _ in range(2):
        size, at = read_length(data, at, end, 2)
        if at < 0 or size < 0:
            return -1
        at += size
    return at + 4 if end - at >= 4 else -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _names_are_utf8(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
    """Returns whether group and topic of a key are UTF-8."""
    size: cython.Py_ssize_t = int16(data, at)
    if not is_utf8(data, at + 2, at + 2 + size):
        return False
    at += 2 + size
    size = int16(data, at)
    return is_utf8(data, at + 2, at + 2 + size)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _topic_id(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    """Returns the position of the topic id among the tagged fields at ``at``, -1 if there is none,
    and the position after the fields, -1 if they are malformed."""
    found: cython.Py_ssize_t = -1
    count: cython.longlong
    tag: cython.longlong
    size: cython.longlong
    count, at = unsigned_varint(data, at, end)
    while at >= 0 and count > 0:
        tag, at = unsigned_varint(data, at, end)
        if at < 0:
            return -1, -1
        size, at = unsigned_varint(data, at, end)
        if at < 0 or size > end - at or (tag == 0 and size < 16):
            return -1, -1
        if tag == 0:
            found = at
        at += size
        count -= 1
    return found, at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _read_value(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.int,
    value: cython.longlong[::1],
) -> cython.bint:
    """Reads a value of a version from 0 to ``most`` into the columns of the table from OFFSET to
    TOPIC_ID_LOW; the metadata's start is that in ``data``. Returns False if it is malformed."""
    version: cython.longlong
    size: cython.longlong
    found: cython.Py_ssize_t = -1
    if end - at < 10:
        return False
    version = int16(data, at)
    if version < 0 or version > most:
        return False
    value[4] = int64(data, at + 2)
    at += 10
    value[5] = -1
    if version >= 3:
        if end - at < 4:
            return False
        value[5] = int32(data, at)
        at += 4
    size, at = read_length(data, at, end, 0 if version >= 4 else 2)
    if at < 0 or size < 0 or not is_utf8(data, at, at + size):
        return False
    value[6] = at
    value[7] = size
    at += size
    if end - at < 8:
        return False
    value[8] = int64(data, at)
    at += 8
    value[9] = -1
    if version == 1:
        if end - at < 8:
            return False
        value[9] = int64(data, at)
    value[10] = 0
    value[11] = 0
    if version >= 4:
        found, at = _topic_id(data, at, end)
        if at < 0:
            return False
        if found >= 0:
            value[10] = int64(data, found)
            value[11] = int64(data, found + 8)
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_value(
    table: cython.longlong[:, ::1],
    row: cython.Py_ssize_t,
    value: cython.longlong[::1],
    data: cython.const[cython.uchar][::1],
    arena: cython.uchar[::1],
    state: cython.longlong[::1],
) -> cython.void:
    """Puts a value into a row of the table, and its metadata into the place of the former metadata
    if there is enough space, else after all bytes of the arena in use."""
    i: cython.int
    start: cython.Py_ssize_t = table[row, 6]
    if value[7] > table[row, 14]:
        start = state[1]
        state[1] += value[7]
        table[row, 14] = value[7]
    copy(arena, start, data, value[6], value[7])
    for i in range(4, 12):
        table[row, i] = value[i]
    table[row, 6] = start


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _add_row(
    slots: cython.longlong[::1],
    slot: cython.Py_ssize_t,
    table: cython.longlong[:, ::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    hash_: cython.longlong,
    state: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Adds a row for the key ``arena[start : start + size]``, which belongs in ``slot``. Returns
    the row."""
    row: cython.Py_ssize_t = state[0]
    state[0] += 1
    slots[slot] = ((hash_ >> 32) << 32) | state[0]
    table[row, 0] = start
    table[row, 1] = size
    table[row, 2] = hash_
    table[row, 3] = -1
    table[row, 6] = 0
    table[row, 7] = 0
    table[row, 12] = -1
    table[row, 13] = -1
    table[row, 14] = 0
    return row


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _add_key(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    hash_: cython.longlong,
    slot: cython.Py_ssize_t,
    slots: cython.longlong[::1],
    table: cython.longlong[:, ::1],
    arena: cython.uchar[::1],
    state: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Adds the key ``data[at : at + size]``, which belongs in ``slot``, and its group if that is
    new. Returns the row."""
    start: cython.Py_ssize_t = state[1]
    row: cython.Py_ssize_t = _add_row(slots, slot, table, start, size, hash_, state)
    copy(arena, start, data, at, size)
    state[1] += size
    size = 2 + int16(data, at)
    hash_ = _hash(data, at, size, state)
    slot = _slot(slots, table, arena, data, at, size, hash_)
    if slots[slot] != 0:
        table[row, 3] = _row_in(slots[slot])
    else:
        table[row, 3] = _add_row(slots, slot, table, start, size, hash_, state)
    return row


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _replay_row(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    offset: cython.longlong,
    outcome: cython.int,
    slots: cython.longlong[::1],
    table: cython.longlong[:, ::1],
    arena: cython.uchar[::1],
    state: cython.longlong[::1],
    value: cython.longlong[::1],
) -> cython.uchar:
    """Replays a record. Returns 0, or OTHER or MALFORMED."""
    at: cython.Py_ssize_t = spans[row, 2]
    start: cython.Py_ssize_t = spans[row, 0]
    end: cython.Py_ssize_t = start + spans[row, 1]
    number: cython.Py_ssize_t = -1
    slot: cython.Py_ssize_t
    kind: cython.longlong
    hash_: cython.longlong
    if start < 0 or spans[row, 1] < 2 or end > data.shape[0]:
        return 2
    kind = int16(data, start)
    if kind != 0 and kind != 1:
        return 1
    start += 2
    end = _after_key(data, start, end)
    if end < 0:
        return 2
    hash_ = _hash(data, start, end - start, state)
    slot = _slot(slots, table, arena, data, start, end - start, hash_)
    if slots[slot] != 0:
        number = _row_in(slots[slot])
    elif not _names_are_utf8(data, start):
        return 2
    if spans[row, 3] < 0:
        if number >= 0:
            table[number, 12] = -1
            table[number, 13] = -1
        return 0
    if at < 0 or spans[row, 3] > data.shape[0] - at:
        return 2
    if not _read_value(data, at, at + spans[row, 3], 4 if kind == 1 else 0, value):
        return 2
    if outcome == 0:
        return 0
    if number < 0:
        number = _add_key(data, start, end - start, hash_, slot, slots, table, arena, state)
    if outcome == 2:
        table[number, 13] = offset
    else:
        table[number, 12] = offset
        _put_value(table, number, value, data, arena, state)
    return 0


def replay(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    offsets: cython.const[cython.longlong][::1],
    outcomes: cython.const[cython.uchar][::1],
    slots: cython.longlong[::1],
    table: cython.longlong[:, ::1],
    arena: cython.uchar[::1],
    state: cython.longlong[::1],
    value: cython.longlong[::1],
    left: cython.uchar[::1],
) -> int:
    """Replays records in the order of their offsets.

    A value replaces what the key had, a null value removes it. ``outcomes``: that of each record's
    transaction. ``value``: COLUMNS words of working space. ``left``: receives OTHER or MALFORMED
    for each row that is left to the caller, else 0. Returns the number of these rows.
    """
    rows: cython.Py_ssize_t = spans.shape[0]
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    needed: cython.Py_ssize_t = 0
    if spans.shape[1] < 4:
        raise ValueError("spans have a column of values' sizes")
    for row in range(rows):
        needed += max(spans[row, 1], 0) + max(spans[row, 3], 0)
    if (
        offsets.shape[0] < rows
        or outcomes.shape[0] < rows
        or left.shape[0] < rows
        or state.shape[0] < 4
        or state[0] < 0
        or state[1] < 0
        or value.shape[0] < 15
        or table.shape[1] != 15
        or table.shape[0] - state[0] < 2 * rows
        or arena.shape[0] - state[1] < needed
        or slots.shape[0] <= state[0] + 2 * rows
        or slots.shape[0] & (slots.shape[0] - 1)
        or table.shape[0] > 2147483647
    ):
        raise ValueError("there is no space for all rows")
    with cython.nogil:
        for row in range(rows):
            left[row] = _replay_row(
                data, spans, row, offsets[row], outcomes[row],
                slots, table, arena, state, value,
            )  # fmt: skip
            count += left[row] != 0
    return count


def fill_slots(
    slots: cython.longlong[::1], table: cython.longlong[:, ::1], rows: cython.Py_ssize_t
) -> None:
    """Puts the first ``rows`` of a table into empty slots."""
    row: cython.Py_ssize_t
    slot: cython.Py_ssize_t
    mask: cython.longlong = slots.shape[0] - 1
    if (
        rows < 0
        or rows > table.shape[0]
        or table.shape[1] < 3
        or slots.shape[0] <= rows
        or slots.shape[0] & (slots.shape[0] - 1)
    ):
        raise ValueError("there is no space for all rows")
    with cython.nogil:
        for row in range(rows):
            slot = table[row, 2] & mask
            while slots[slot] != 0:
                slot = (slot + 1) & mask
            slots[slot] = ((table[row, 2] >> 32) << 32) | (row + 1)
