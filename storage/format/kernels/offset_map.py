"""Hashes keys, and inserts and looks them up, for the offset map and key entries of the cleaner.

A slot is three words: two of the hash, and the offset plus one, 0 in an empty slot. Every slot
access misses all caches, so keys are processed in blocks: all keys of a block are hashed, then
their first slots are touched so that the cache misses overlap, and only then is each looked up.

Bounds: ``table`` has 3 * ``slots`` words and ``scratch`` three per row (checked on entry), keys are
checked against ``data`` before they are hashed, and a search ends after ``slots`` steps.
"""

from __future__ import annotations

import cython

from ._siphash import low_64_bits, siphash_128


def siphash(
    data: cython.const[cython.uchar][::1], key_low: cython.ulonglong, key_high: cython.ulonglong
) -> tuple[int, int]:
    """Returns the two words of the SipHash-2-4-128 of ``data``; the key is two little-endian
    words."""
    low: cython.ulonglong
    high: cython.ulonglong
    low, high = siphash_128(data, 0, data.shape[0], key_low, key_high)
    return low, high


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _first_slot(second: cython.ulonglong, slots: cython.ulonglong) -> cython.ulonglong:
    """Returns the slot where the search for a hash begins, from its second word."""
    return ((second >> 32) * slots) >> 32


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
    """Writes the hash of each row with a key into ``scratch``, and touches its first slot. Returns
    False if a key lies outside ``data``."""
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
            continue
        if start < 0 or size > data.shape[0] - start:
            return False
        first, second = siphash_128(data, start, size, key_low, key_high)
        scratch[row - low, 0] = first
        scratch[row - low, 1] = second
    for row in range(high - low):
        touched ^= table[3 * _first_slot(scratch[row, 1], slots)]
    scratch[high - low, 0] = touched  # keeps compilers from dropping the loop above
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
) -> cython.longlong:
    """Returns the slot of a hash, or the empty slot where it belongs; -1 if there is neither."""
    slot: cython.ulonglong = _first_slot(second, slots)
    _: cython.ulonglong
    for _ in range(slots):
        if table[3 * slot + 2] == 0 or (table[3 * slot] == first and table[3 * slot + 1] == second):
            return cython.cast(cython.longlong, slot)
        slot += 1
        if slot == slots:
            slot = 0
    return -1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _insert(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    first: cython.ulonglong,
    second: cython.ulonglong,
    word: cython.ulonglong,
) -> cython.longlong:
    """Inserts a hash; ``word`` is its offset plus one, of which a slot retains the greatest.
    Returns 1 if the hash is new, else 0; -1 if it has no slot."""
    slot: cython.longlong = _sought(table, slots, first, second)
    if slot < 0:
        return -1
    if table[3 * slot + 2] == 0:
        table[3 * slot] = first
        table[3 * slot + 1] = second
        table[3 * slot + 2] = word
        return 1
    if table[3 * slot + 2] < word:
        table[3 * slot + 2] = word
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _found(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    first: cython.ulonglong,
    second: cython.ulonglong,
) -> cython.longlong:
    """Returns the offset of a hash, -1 if it is unknown."""
    slot: cython.longlong = _sought(table, slots, first, second)
    return cython.cast(cython.longlong, table[3 * slot + 2]) - 1 if slot >= 0 else -1


@cython.cfunc
def _check_slots(slots: cython.ulonglong, words: cython.Py_ssize_t) -> cython.void:
    """Raises ValueError unless a table of so many words has the slots."""
    if slots < 1 or slots >= 1 << 32 or slots > cython.cast(cython.ulonglong, words // 3):
        raise ValueError("no such slots in this memory")


@cython.cfunc
def _block_rows(
    spans: cython.const[cython.int][:, ::1], scratch: cython.ulonglong[:, ::1]
) -> cython.Py_ssize_t:
    """Returns the number of rows of a block. Raises ValueError if an array has a wrong shape."""
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
    """Inserts the keys of rows [``low``, ``high``) with their offsets (a key retains its greatest
    offset) until ``room`` keys have been added. Returns the first row that was not processed and
    the number of keys added."""
    rows: cython.Py_ssize_t = _block_rows(spans, scratch)
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t = low
    added: cython.longlong = 0
    new: cython.longlong
    is_whole: cython.bint = True
    _check_slots(slots, table.shape[0])
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
                    new = _insert(
                        table, slots, scratch[row - low, 0], scratch[row - low, 1],
                        cython.cast(cython.ulonglong, offsets[row]) + 1,
                    )  # fmt: skip
                    if new < 0:
                        break
                    added += new
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
    """Writes the offset of each row's key into ``out``, -1 if the key is null or unknown."""
    rows: cython.Py_ssize_t = _block_rows(spans, scratch)
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = spans.shape[0]
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t
    is_whole: cython.bint = True
    _check_slots(slots, table.shape[0])
    if out.shape[0] < high:
        raise ValueError("no room for all rows")
    with cython.nogil:
        while low < high and is_whole:
            stop = min(high, low + rows)
            is_whole = _hash_block(table, slots, key_low, key_high, data, spans, low, stop, scratch)
            for row in range(low, stop):
                out[row] = -1
                if spans[row, 1] >= 0 and is_whole:
                    out[row] = _found(table, slots, scratch[row - low, 0], scratch[row - low, 1])
            low = stop
    if not is_whole:
        raise ValueError("a key goes past the end of its buffer")


def move(
    table: cython.const[cython.ulonglong][::1],
    slots: cython.ulonglong,
    into: cython.ulonglong[::1],
    into_slots: cython.ulonglong,
) -> int:
    """Copies the entries of one table into another. Returns their number, -1 if the other table
    has too few slots."""
    slot: cython.ulonglong
    new: cython.longlong
    count: cython.longlong = 0
    _check_slots(slots, table.shape[0])
    _check_slots(into_slots, into.shape[0])
    with cython.nogil:
        for slot in range(slots):
            if table[3 * slot + 2] == 0:
                continue
            new = _insert(
                into, into_slots, table[3 * slot], table[3 * slot + 1], table[3 * slot + 2]
            )
            if new < 0:
                count = -1
                break
            count += 1
    return count


def classes(
    key_low: cython.ulonglong,
    key_high: cython.ulonglong,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    out: cython.int[::1],
) -> None:
    """Writes 16 bits of each row's hash into ``out``, by which keys can be divided into classes; 0
    for a null key. (These are not the bits that select a slot.)"""
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
            first, _ = siphash_128(data, start, size, key_low, key_high)
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
    """Appends entries of rows [``low``, ``high``) to the ``count`` entries in ``out`` until it is
    full: the two words of the hash, and the offset. Skips null keys. Returns the first row that was
    not processed and the number of entries in ``out``.

    ``recent`` is a cache of entries written recently: a key found in it gets its new offset there
    instead of another entry. Each place holds 32 bits of the hash and the row of ``out`` plus one.
    It has 2 ** n words, zeros for an empty ``out``; if it has none, each row gets its own entry.
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
                first, second = siphash_128(data, start, size, key_low, key_high)
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
                        recent[place] = low_64_bits(first << 32) | cython.cast(
                            cython.ulonglong, count
                        )
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
    """Sorts the entries by slice: the entries of slice i, of n, are then in rows ``ends[i]`` to
    ``ends[i + 1]`` of ``out``; ``ends`` has n + 2 elements. The slice comes from other bits of the
    hash than the slot in a table."""
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
        for row in range(rows):  # counts two places on: their sums are the starts, one place on
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
    """Reads the first slot of each entry of a block, so that the cache misses overlap."""
    row: cython.Py_ssize_t
    touched: cython.ulonglong = 0
    for row in range(low, high):
        touched ^= table[3 * _first_slot(entries[row, 1], slots)]
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
    """Does what ``put`` does, for entries from row ``low`` on with an offset >= ``least``."""
    rows: cython.Py_ssize_t = scratch.shape[0] - 1
    high: cython.Py_ssize_t = entries.shape[0]
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t = low
    added: cython.longlong = 0
    new: cython.longlong
    offset: cython.ulonglong
    _check_slots(slots, table.shape[0])
    if low < 0 or low > high or entries.shape[1] != 3 or rows < 1 or scratch.shape[1] < 1:
        raise ValueError("no such entries")
    with cython.nogil:
        while low < high and row == low:
            stop = min(high, low + rows)
            scratch[0, 0] = _touch(table, slots, entries, low, stop)
            while row < stop:
                offset = low_64_bits(entries[row, 2] + 1)
                if offset > least:  # 0 would mark an empty slot
                    if added >= room:
                        break
                    new = _insert(table, slots, entries[row, 0], entries[row, 1], offset)
                    if new < 0:
                        break
                    added += new
                row += 1
            low = stop
    return row, added


def get_entries(
    table: cython.ulonglong[::1],
    slots: cython.ulonglong,
    entries: cython.const[cython.ulonglong][:, ::1],
    out: cython.longlong[::1],
) -> None:
    """Does what ``get`` does, for the keys of entries."""
    row: cython.Py_ssize_t
    _check_slots(slots, table.shape[0])
    if entries.shape[1] != 3 or out.shape[0] < entries.shape[0]:
        raise ValueError("no room for all entries")
    with cython.nogil:
        for row in range(entries.shape[0]):
            out[row] = _found(table, slots, entries[row, 0], entries[row, 1])
