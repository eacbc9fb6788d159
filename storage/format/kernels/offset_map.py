# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""The loops of `cleaner.offset_map` and `cleaner.key_entries`: keys hashed, put and looked up.

A slot is three words: the hash's two and the offset plus one, 0 where nothing is. A slot is a miss
of every cache, so keys are taken a block at a time: all are hashed, then the slots where they begin
to look are touched, which has the misses overlap, and only then each is sought.

Bounds: ``table`` has 3 * ``slots`` words and ``scratch`` three a row (checked on entry), keys are
checked against ``data`` before they are hashed, and a search ends after ``slots`` steps.
"""

from __future__ import annotations

import cython


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _word(number: cython.ulonglong) -> cython.ulonglong:
    """The lowest 64 bits, which is all that there is of a C number."""
    if not cython.compiled:
        return number & ((1 << 64) - 1)
    return number


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _rotated(number: cython.ulonglong, bits: cython.int) -> cython.ulonglong:
    return _word(number << bits) | (number >> (64 - bits))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong))
def _round(a: cython.ulonglong, b: cython.ulonglong, c: cython.ulonglong, d: cython.ulonglong):
    """SipRound."""
    a = _word(a + b)
    c = _word(c + d)
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = _word(_rotated(a, 32) + d)
    c = _word(c + b)
    b = _rotated(b, 17) ^ c
    d = _rotated(d, 21) ^ a
    return a, b, _rotated(c, 32), d


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _little_endian(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t
) -> cython.ulonglong:
    """The eight bytes at ``at``; compilers make one load of it."""
    return (
        cython.cast(cython.ulonglong, data[at])
        | (cython.cast(cython.ulonglong, data[at + 1]) << 8)
        | (cython.cast(cython.ulonglong, data[at + 2]) << 16)
        | (cython.cast(cython.ulonglong, data[at + 3]) << 24)
        | (cython.cast(cython.ulonglong, data[at + 4]) << 32)
        | (cython.cast(cython.ulonglong, data[at + 5]) << 40)
        | (cython.cast(cython.ulonglong, data[at + 6]) << 48)
        | (cython.cast(cython.ulonglong, data[at + 7]) << 56)
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.ulonglong))
def _siphash(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
):
    """SipHash-2-4 with an output of 128 bits, of ``data[at : at + size]``, which must be there."""
    a: cython.ulonglong = 0x736F6D6570736575  # "somepseudorandomlygeneratedbytes"
    b: cython.ulonglong = 0x646F72616E646F6D
    c: cython.ulonglong = 0x6C7967656E657261
    d: cython.ulonglong = 0x7465646279746573
    end: cython.Py_ssize_t = at + size
    word: cython.ulonglong
    low: cython.ulonglong
    i: cython.Py_ssize_t
    _: cython.int
    a ^= key_low
    b ^= key_high
    b ^= 0xEE
    c ^= key_low
    d ^= key_high
    while end - at >= 8:
        word = _little_endian(data, at)
        at += 8
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    word = _word(cython.cast(cython.ulonglong, size) << 56)
    for i in range(end - at):
        word |= cython.cast(cython.ulonglong, data[at + i]) << (8 * i)
    d ^= word
    a, b, c, d = _round(a, b, c, d)
    a, b, c, d = _round(a, b, c, d)
    a ^= word
    c ^= 0xEE
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    low = a ^ b ^ c ^ d
    b ^= 0xDD
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return low, a ^ b ^ c ^ d


def siphash(
    data: cython.const[cython.uchar][::1], key_low: cython.ulonglong, key_high: cython.ulonglong
) -> tuple[int, int]:
    """SipHash-2-4-128 of ``data`` under a key of two little-endian words: the output's two."""
    low: cython.ulonglong
    high: cython.ulonglong
    low, high = _siphash(data, 0, data.shape[0], key_low, key_high)
    return low, high


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _hash_block(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    scratch: cython.ulonglong[:, ::1],
) -> cython.bint:
    """Hash and first slot of each keyed row into ``scratch``, and the slots touched. False when a
    key lies outside ``data``."""
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    first: cython.ulonglong
    second: cython.ulonglong
    touched: cython.ulonglong = 0
    for row in range(low, high):
        start = spans[row, 0]
        size = spans[row, 1]
        if size < 0:
            scratch[row - low, 2] = 0
            continue
        if start < 0 or size > data.shape[0] - start:
            return False
        first, second = _siphash(data, start, size, key_low, key_high)
        scratch[row - low, 0] = first
        scratch[row - low, 1] = second
        scratch[row - low, 2] = ((second >> 32) * slots) >> 32
    for row in range(high - low):
        touched ^= table[3 * scratch[row, 2]]
    scratch[high - low, 0] = touched  # or a compiler would find that nobody wants to know
    return True


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sought(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    first: cython.ulonglong,
    second: cython.ulonglong,
    slot: cython.ulonglong,
) -> cython.longlong:
    """The slot of a hash, or the empty one where it belongs; -1 when there is neither."""
    _: cython.ulonglong
    for _ in range(slots):
        if table[3 * slot + 2] == 0 or (table[3 * slot] == first and table[3 * slot + 1] == second):
            return cython.cast(cython.longlong, slot)
        slot += 1
        if slot == slots:
            slot = 0
    return -1


@cython.cfunc
def _check(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    spans: cython.const[cython.int][:, ::1],
    scratch: cython.ulonglong[:, ::1],
) -> cython.Py_ssize_t:
    """Rows of a block. ValueError when the arrays are not what they must be."""
    if slots < 1 or slots >= 1 << 32 or slots > cython.cast(cython.ulonglong, table.shape[0] // 3):
        raise ValueError("no such slots in this memory")
    if spans.shape[1] < 2 or scratch.shape[1] != 3 or scratch.shape[0] < 2:
        raise ValueError("spans have a column of sizes, the scratch has three")
    return scratch.shape[0] - 1


def put(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    offsets: cython.const[cython.longlong][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    room: cython.longlong,
    scratch: cython.ulonglong[:, ::1],
) -> tuple[int, int]:
    """Put the keys of rows [``low``, ``high``) with their offsets (the greatest of a key's stays)
    until ``room`` keys more are there. Returns the first row that was not looked at, and how many
    keys are there more."""
    rows: cython.Py_ssize_t = _check(table, slots, spans, scratch)
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t = low
    added: cython.longlong = 0
    slot: cython.longlong
    offset: cython.ulonglong
    is_whole: cython.bint = True
    if low < 0 or high > spans.shape[0] or high > offsets.shape[0]:
        raise ValueError("no such rows")
    with cython.nogil:
        while low < high and row == low and is_whole:
            stop = min(high, low + rows)
            is_whole = _hash_block(table, slots, key_low, key_high, data, spans, low, stop, scratch)
            while row < stop and is_whole:
                if spans[row, 1] >= 0:
                    if added >= room or offsets[row] < 0:
                        break
                    slot = _sought(
                        table,
                        slots,
                        scratch[row - low, 0],
                        scratch[row - low, 1],
                        scratch[row - low, 2],
                    )
                    if slot < 0:
                        break
                    offset = cython.cast(cython.ulonglong, offsets[row]) + 1
                    if table[3 * slot + 2] == 0:
                        table[3 * slot] = scratch[row - low, 0]
                        table[3 * slot + 1] = scratch[row - low, 1]
                        added += 1
                    if table[3 * slot + 2] < offset:
                        table[3 * slot + 2] = offset
                row += 1
            low = stop
    if not is_whole:
        raise ValueError("a key goes past the end of its buffer")
    return row, added


def get(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    out: cython.longlong[::1],
    scratch: cython.ulonglong[:, ::1],
) -> None:
    """The offset of each row's key into ``out``; -1 where it is null or not there."""
    rows: cython.Py_ssize_t = _check(table, slots, spans, scratch)
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = spans.shape[0]
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t
    slot: cython.longlong
    is_whole: cython.bint = True
    if out.shape[0] < high:
        raise ValueError("no room for all rows")
    with cython.nogil:
        while low < high and is_whole:
            stop = min(high, low + rows)
            is_whole = _hash_block(table, slots, key_low, key_high, data, spans, low, stop, scratch)
            for row in range(low, stop):
                out[row] = -1
                if spans[row, 1] >= 0 and is_whole:
                    slot = _sought(
                        table,
                        slots,
                        scratch[row - low, 0],
                        scratch[row - low, 1],
                        scratch[row - low, 2],
                    )
                    if slot >= 0:
                        out[row] = cython.cast(cython.longlong, table[3 * slot + 2]) - 1
            low = stop
    if not is_whole:
        raise ValueError("a key goes past the end of its buffer")


def move(
    table: cython.const[cython.ulonglong][::1],
    slots: cython.ulonglong,
    into: cython.ulonglong[::1],
    into_slots: cython.ulonglong,
) -> int:
    """Put what is in one table into another. Returns the number of entries, -1 when the other has
    too few slots."""
    slot: cython.ulonglong
    found: cython.longlong
    count: cython.longlong = 0
    for size, words in ((slots, table.shape[0]), (into_slots, into.shape[0])):
        if size < 1 or size >= 1 << 32 or size > words // 3:
            raise ValueError("no such slots in this memory")
    with cython.nogil:
        for slot in range(slots):
            if table[3 * slot + 2] == 0:
                continue
            found = _sought(
                into,
                into_slots,
                table[3 * slot],
                table[3 * slot + 1],
                ((table[3 * slot + 1] >> 32) * into_slots) >> 32,
            )
            if found < 0:
                count = -1
                break
            into[3 * found] = table[3 * slot]
            into[3 * found + 1] = table[3 * slot + 1]
            into[3 * found + 2] = table[3 * slot + 2]
            count += 1
    return count


def classes(
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    out: cython.int[::1],
) -> None:
    """Sixteen bits of each row's hash, by which keys can be told apart into classes; 0 for a null
    key. (They are not those that choose a slot.)"""
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    first: cython.ulonglong
    is_whole: cython.bint = True
    if spans.shape[1] < 2 or out.shape[0] < spans.shape[0]:
        raise ValueError("no column of sizes, or no room for all rows")
    with cython.nogil:
        for row in range(spans.shape[0]):
            start = spans[row, 0]
            size = spans[row, 1]
            out[row] = 0
            if size < 0:
                continue
            if start < 0 or size > data.shape[0] - start:
                is_whole = False
                break
            first, _ = _siphash(data, start, size, key_low, key_high)
            out[row] = cython.cast(cython.int, first & 0xFFFF)
    if not is_whole:
        raise ValueError("a key goes past the end of its buffer")


def hashed(
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    offsets: cython.const[cython.longlong][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    out: cython.ulonglong[:, ::1],
    count: cython.Py_ssize_t,
    recent: cython.ulonglong[::1],
) -> tuple[int, int]:
    """Entries of rows [``low``, ``high``) behind the ``count`` that ``out`` has: the hash's two
    words and the offset, until ``out`` is full. Null keys are passed over. Returns the first row
    that was not looked at, and how many entries there are.

    ``recent`` tells where keys were put lately, so that one that comes again gets its new offset
    there and no other entry: of each place 32 bits of the hash and the row of ``out`` plus one. It
    has 2 ** n words, zeros for an empty ``out``; without any, each row gets its entry.
    """
    row: cython.Py_ssize_t = low
    start: cython.Py_ssize_t
    size: cython.Py_ssize_t
    known: cython.Py_ssize_t
    place: cython.ulonglong
    first: cython.ulonglong
    second: cython.ulonglong
    places: cython.ulonglong = recent.shape[0]
    half: cython.ulonglong = 0xFFFFFFFF
    is_whole: cython.bint = True
    if low < 0 or high > spans.shape[0] or high > offsets.shape[0] or spans.shape[1] < 2:
        raise ValueError("no such rows")
    if out.shape[1] != 3 or count < 0 or count > out.shape[0] or out.shape[0] >= 1 << 31:
        raise ValueError("no such entries")
    if places & (places - 1):
        raise ValueError("places are a power of two")
    with cython.nogil:
        while row < high:
            start = spans[row, 0]
            size = spans[row, 1]
            if size >= 0:
                if start < 0 or size > data.shape[0] - start:
                    is_whole = False
                    break
                if count == out.shape[0]:
                    break
                first, second = _siphash(data, start, size, key_low, key_high)
                known = -1
                if places:
                    place = second & (places - 1)
                    if recent[place] >> 32 == first & half:
                        known = cython.cast(cython.Py_ssize_t, recent[place] & half) - 1
                    if known >= count or (
                        known >= 0 and (out[known, 0] != first or out[known, 1] != second)
                    ):
                        known = -1
                if known < 0:
                    out[count, 0] = first
                    out[count, 1] = second
                    known = count
                    count += 1
                    if places:
                        recent[place] = _word(first << 32) | cython.cast(cython.ulonglong, count)
                out[known, 2] = cython.cast(cython.ulonglong, offsets[row])
            row += 1
    if not is_whole:
        raise ValueError("a key goes past the end of its buffer")
    return row, count


def by_slices(
    entries: cython.const[cython.ulonglong][:, ::1],
    out: cython.ulonglong[:, ::1],
    ends: cython.longlong[::1],
) -> None:
    """The entries in the order of their slices: those of slice i, of n, are then in rows
    ``ends[i]`` to ``ends[i + 1]`` of ``out``; ``ends`` has n + 2 places. The slice is drawn from
    other bits of the hash than the slot in a table."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = entries.shape[0]
    slices: cython.ulonglong = ends.shape[0] - 2
    chosen: cython.Py_ssize_t
    at: cython.Py_ssize_t
    if ends.shape[0] < 3 or slices >= 1 << 32:
        raise ValueError("there is one slice at least")
    if entries.shape[1] != 3 or out.shape[1] != 3 or out.shape[0] < rows:
        raise ValueError("no room for all entries")
    with cython.nogil:
        for at in range(ends.shape[0]):
            ends[at] = 0
        for row in range(rows):  # counted two places on, and summed up they are begins one place on
            chosen = cython.cast(cython.Py_ssize_t, ((entries[row, 0] >> 32) * slices) >> 32)
            ends[chosen + 2] += 1
        for at in range(2, ends.shape[0]):
            ends[at] += ends[at - 1]
        for row in range(rows):
            chosen = cython.cast(cython.Py_ssize_t, ((entries[row, 0] >> 32) * slices) >> 32)
            at = ends[chosen + 1]
            ends[chosen + 1] += 1
            out[at, 0] = entries[row, 0]
            out[at, 1] = entries[row, 1]
            out[at, 2] = entries[row, 2]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _touch(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    entries: cython.const[cython.ulonglong][:, ::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
) -> cython.ulonglong:
    """Look where a block's entries belong, which has the misses overlap."""
    row: cython.Py_ssize_t
    touched: cython.ulonglong = 0
    for row in range(low, high):
        touched ^= table[3 * (((entries[row, 1] >> 32) * slots) >> 32)]
    return touched


def put_entries(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    entries: cython.const[cython.ulonglong][:, ::1],
    low: cython.Py_ssize_t,
    least: cython.ulonglong,
    room: cython.longlong,
    scratch: cython.ulonglong[:, ::1],
) -> tuple[int, int]:
    """As ``put``, of entries from row ``low`` on whose offsets are not below ``least``."""
    rows: cython.Py_ssize_t = scratch.shape[0] - 1
    high: cython.Py_ssize_t = entries.shape[0]
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t = low
    added: cython.longlong = 0
    slot: cython.longlong
    offset: cython.ulonglong
    if slots < 1 or slots >= 1 << 32 or slots > cython.cast(cython.ulonglong, table.shape[0] // 3):
        raise ValueError("no such slots in this memory")
    if low < 0 or low > high or entries.shape[1] != 3 or rows < 1 or scratch.shape[1] < 1:
        raise ValueError("no such entries")
    with cython.nogil:
        while low < high and row == low:
            stop = min(high, low + rows)
            scratch[0, 0] = _touch(table, slots, entries, low, stop)
            while row < stop:
                offset = _word(entries[row, 2] + 1)
                if offset > least:  # a 0 would be no offset at all
                    if added >= room:
                        break
                    slot = _sought(
                        table,
                        slots,
                        entries[row, 0],
                        entries[row, 1],
                        ((entries[row, 1] >> 32) * slots) >> 32,
                    )
                    if slot < 0:
                        break
                    if table[3 * slot + 2] == 0:
                        table[3 * slot] = entries[row, 0]
                        table[3 * slot + 1] = entries[row, 1]
                        added += 1
                    if table[3 * slot + 2] < offset:
                        table[3 * slot + 2] = offset
                row += 1
            low = stop
    return row, added


def get_entries(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    entries: cython.const[cython.ulonglong][:, ::1],
    out: cython.longlong[::1],
) -> None:
    """As ``get``, of keys in entries."""
    row: cython.Py_ssize_t
    slot: cython.longlong
    if slots < 1 or slots >= 1 << 32 or slots > cython.cast(cython.ulonglong, table.shape[0] // 3):
        raise ValueError("no such slots in this memory")
    if entries.shape[1] != 3 or out.shape[0] < entries.shape[0]:
        raise ValueError("no room for all entries")
    with cython.nogil:
        for row in range(entries.shape[0]):
            out[row] = -1
            slot = _sought(
                table,
                slots,
                entries[row, 0],
                entries[row, 1],
                ((entries[row, 1] >> 32) * slots) >> 32,
            )
            if slot >= 0:
                out[row] = cython.cast(cython.longlong, table[3 * slot + 2]) - 1
