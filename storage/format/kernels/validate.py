"""Validates batches of magic 2 before an append, and assigns their offsets.

Bounds: every access to a header is preceded by a check that all of it lies in the buffer, every
access to a record by a check of the bytes left.
"""

from __future__ import annotations

import cython

from ._primitives import int32, put_int, short_varint

# Why a walk ended.
DONE = 0  # at the end of the buffer
NO_BATCH = 1  # the bytes that follow are not a whole batch of magic 2
BASE_OFFSET = 2  # a batch does not begin at offset 0
COUNT = 3  # a batch has no records, or another number of records than of offsets


def number(data: cython.uchar[::1], from_zero: cython.bint) -> tuple[int, int, int]:
    """Writes consecutive base offsets, from 0 on, into batches with a correct record count. If
    ``from_zero`` is true, each batch must have base offset 0 before. Returns (batches, position
    where numbering ended, why)."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = data.shape[0]
    batches: cython.Py_ssize_t = 0
    offset: cython.longlong = 0
    why: cython.int = 0
    size: cython.longlong
    count: cython.longlong
    # Keeps the GIL: this finishes before another thread could acquire it.
    while at < end:
        if end - at < 61 or data[at + 16] != 2:
            why = 1
            break
        size = int32(data, at + 8) + 12
        if size < 61 or size > end - at:
            why = 1
            break
        if from_zero and (int32(data, at) != 0 or int32(data, at + 4) != 0):
            why = 2
            break
        count = int32(data, at + 57)
        if count < 1 or count != int32(data, at + 23) + 1:
            why = 3
            break
        put_int(data, at, offset, 8)
        offset += count
        batches += 1
        at += size
    return batches, at, why


def place(
    data: cython.uchar[::1],
    table: cython.longlong[:, ::1],
    distance: cython.longlong,
    leader_epoch: cython.longlong,
) -> None:
    """Adds ``distance`` to the offsets of the batches and sets the leader epoch, in their headers
    and in the rows of ``table``. The caller ensures that offsets stay in range."""
    row: cython.Py_ssize_t
    at: cython.longlong
    for row in range(table.shape[0]):
        at = table[row, 0]
        if at < 0 or at > data.shape[0] - 61:
            raise ValueError("a batch outside the buffer")
        table[row, 2] += distance
        table[row, 3] += distance
        table[row, 4] = leader_epoch
        put_int(data, at, table[row, 2], 8)
        put_int(data, at + 12, leader_epoch, 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _common_record(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offset: cython.uint,
    least_key: cython.uint,
):
    """Returns the timestamp delta of the record at ``at``, which must have the relative offset
    ``offset``, and the position after it; position -1 unless the record is shorter than 8 KiB,
    without headers, and valid. It need not check for the end at each byte: at most 10 bytes precede
    the key. ``least_key`` is 1 if the key may be null, which is encoded as 1. (Sharing this with
    the decoding kernel, which needs more of a record, would slow that down by a tenth.)"""
    size: cython.uint
    delta: cython.uint
    found: cython.uint
    key: cython.uint
    value: cython.uint
    last: cython.Py_ssize_t
    if data.shape[0] - at < 16:
        return 0, -1
    size, at = short_varint(data, at)
    last = at + (size >> 1) - 1
    delta, at = short_varint(data, at + 1)
    found, at = short_varint(data, at)
    key, at = short_varint(data, at)
    if (size | delta | key) & 0x4000 or size & 1 or found != offset << 1 or last >= end:
        return 0, -1
    if key & 1:
        if key != 1 or least_key != 1:
            return 0, -1
    else:
        at += key >> 1
    if last - at < 1:
        return 0, -1
    value, at = short_varint(data, at)
    if value & 1:
        if value != 1:
            return 0, -1
        value = 0
    if value & 0x4000 or at + (value >> 1) != last or data[last] != 0:
        return 0, -1
    return (
        cython.cast(cython.longlong, delta >> 1) ^ -cython.cast(cython.longlong, delta & 1),
        last + 1,
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _check_batches(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    least: cython.longlong,
    most: cython.longlong,
    least_key: cython.uint,
    greatest: cython.longlong[::1],
) -> cython.Py_ssize_t:
    batch: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    record: cython.longlong
    delta: cython.longlong
    base: cython.longlong
    low: cython.longlong
    high: cython.longlong
    # a base timestamp to which deltas can be added without overflow
    greatest_base: cython.longlong = 4611686018427387904
    while batch < table.shape[0]:
        at = table[batch, 0] + 61
        end = table[batch, 0] + table[batch, 1]
        if at < 61 or at > end or end > data.shape[0] or (table[batch, 7] & 15) != 0:
            break
        low = 8192
        high = -8192
        for record in range(table[batch, 13]):
            delta, at = _common_record(
                data, at, end, cython.cast(cython.uint, record & 0x7FFFFFFF), least_key
            )
            if at < 0:
                break
            if delta < low:
                low = delta
            if delta > high:
                high = delta
        base = table[batch, 8]
        if at != end or base < 0 or base > greatest_base:
            break
        low += base
        high += base
        if low < 0 or low < least or high > most:
            break
        greatest[batch] = high
        batch += 1
    return batch


def check_batches(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    least: cython.longlong,
    most: cython.longlong,
    needs_keys: cython.bint,
    greatest: cython.longlong[::1],
) -> int:
    """Checks that the records of the batches at the positions in ``table`` are whole and have the
    relative offsets 0, 1, 2 …, timestamps from ``least`` to ``most``, and, if ``needs_keys`` is
    true, a key. Returns how many batches, from the first on, are valid and common: uncompressed,
    without headers, records of less than 8 KiB. ``greatest`` receives their greatest timestamps.
    The next batch need not be invalid; the caller must examine it."""
    batches: cython.Py_ssize_t
    least_key: cython.uint = 0 if needs_keys else 1
    if table.shape[1] < 14 or greatest.shape[0] < table.shape[0]:
        raise ValueError("no room for the greatest timestamps, or a table of too few columns")
    with cython.nogil:
        batches = _check_batches(data, table, least, most, least_key, greatest)
    return batches
