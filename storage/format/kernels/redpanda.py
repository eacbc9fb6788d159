"""Walks the batches of Redpanda's segments, and turns them into Kafka's.

A batch of Redpanda has a header of 61 bytes, as one of Kafka has, and the same bytes after it. The
fields of the header are little-endian: 0 uint32 CRC-32C of [4, 61), 4 int32 size, 8 int64 base
offset, 16 int8 type, 17 uint32 Kafka's CRC-32C, 21 int16 attributes, 23 int32 last offset delta,
27 int64 base timestamp, 35 int64 max timestamp, 43 int64 producer id, 51 int16 producer epoch,
53 int32 base sequence, 57 int32 record count.

Bounds: a header is read only after a check that it lies within ``data``.
"""

from __future__ import annotations

import cython

from ._primitives import minus, plus, put_int

if cython.compiled:
    from cython.cimports.libc.string import memmove

# The type of the batches that have records of producers.
DATA = 1

# What a walk changes: the translated position and the number of uncounted offsets so far, the
# least base offset that may follow, the translated position of the last row, the largest timestamp
# so far, and the last offset of the first batch that has it.
OUT = 0
UNSEEN = 1
NEXT = 2
INDEXED = 3
LARGEST = 4
LARGEST_OFFSET = 5
STATE = 6

# Columns of a row: the position of a batch in the segment and in the translation, the uncounted
# offsets before it, its last offset without them, the largest timestamp up to it and the last
# offset, without them, of the first batch that has it, and whether it is to be copied as it is.
POSITION = 0
TRANSLATED = 1
UNSEEN_BEFORE = 2
LAST_OFFSET = 3
LARGEST_TIMESTAMP = 4
LARGEST_TIMESTAMP_OFFSET = 5
IS_RAW = 6
COLUMNS = 7

# Why a walk ended.
DONE = 0  # the buffer's end falls on a batch boundary
FULL = 1  # there is no row left
MORE = 2  # a header extends past the buffer
ZEROS = 3
CUT = 4  # a batch extends past the end of the file
BAD_CHECKSUM = 5
BAD_SIZE = 6
BAD_OFFSET = 7
BAD_TYPE = 8


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _unsigned(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.int
) -> cython.longlong:
    """Returns the little-endian number of ``size`` < 8 bytes."""
    i: cython.int
    raw: cython.longlong = 0
    for i in range(size - 1, -1, -1):
        raw = raw * 256 + data[at + i]
    return raw


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    raw: cython.longlong = _unsigned(data, at, 4)
    return raw - ((raw >> 31) << 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int64(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    return _int32(data, at + 4) * 65536 * 65536 + _unsigned(data, at, 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _checksum_is_right(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    steps: cython.const[cython.uint][::1],
) -> cython.bint:
    i: cython.Py_ssize_t
    ones: cython.uint = 0xFFFFFFFF
    crc: cython.uint = 0xFFFFFFFF
    for i in range(at + 4, at + 61):
        crc = steps[(crc ^ data[i]) & 255] ^ (crc >> 8)
    crc ^= ones
    return (
        data[at] == (crc & 255)
        and data[at + 1] == ((crc >> 8) & 255)
        and data[at + 2] == ((crc >> 16) & 255)
        and data[at + 3] == (crc >> 24)
    )


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_zero(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
    i: cython.Py_ssize_t
    either: cython.int = 0
    for i in range(at, at + 61):
        either |= data[i]
    return either == 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_unseen(kind: cython.int) -> cython.bint:
    """Returns whether Kafka's clients do not see the offsets of a type of batch
    (``offset_translator_batch_types``): raft_configuration, archival_metadata, version_fence,
    prefix_truncate, partition_properties_update and datalake_translation_state."""
    return kind == 2 or kind == 19 or kind == 23 or kind == 25 or kind == 34 or kind == 38


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fault(
    data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, least_offset: cython.longlong
) -> cython.int:
    """Returns what is wrong with the fields of a header, 0 if nothing is."""
    greatest: cython.longlong = 9223372036854775807
    base: cython.longlong = _int64(data, at + 8)
    delta: cython.longlong = _int32(data, at + 23)
    kind: cython.int = data[at + 16]
    if _int32(data, at + 4) < 61:
        return 6
    if base < least_offset or delta < 0 or base >= greatest - delta:
        return 7
    if kind < 1 or kind > 38:  # of record_batch_type
        return 8
    return 0


def is_unseen(kind: cython.int) -> bool:
    """Returns `_is_unseen`."""
    return bool(_is_unseen(kind))


def walk(
    data: cython.const[cython.uchar][::1],
    available: cython.Py_ssize_t,
    position: cython.longlong,
    end: cython.longlong,
    interval: cython.longlong,
    steps: cython.const[cython.uint][::1],
    state: cython.longlong[::1],
    rows: cython.longlong[:, ::1],
) -> tuple[int, int, int]:
    """Walks the batches from ``data[0]`` on, which is at ``position`` of a segment of ``end``
    bytes, as far as their headers lie in the first ``available`` bytes.

    A row is written for the first batch of records that begins at least ``interval`` translated
    bytes after the last row; ``state[INDEXED]`` is -1 if there is none yet. Returns the number of
    rows, the position in ``data`` of the first batch that was not walked, which may lie past the
    buffer, and why. A batch of records that is cut off counts with the bytes that there are.
    """
    at: cython.longlong = 0
    count: cython.Py_ssize_t = 0
    why: cython.int = 0
    size: cython.longlong
    base: cython.longlong
    delta: cython.longlong
    timestamp: cython.longlong
    kind: cython.int
    if available > data.shape[0] or steps.shape[0] != 256:
        raise ValueError("available goes past the buffer, or a table has other than 256 steps")
    if state.shape[0] != 6 or rows.shape[1] != 7:
        raise ValueError("a state or table of another number of columns")
    while at < available:
        if available - at < 61:
            why = 2
            break
        if count >= rows.shape[0]:
            why = 1
            break
        if not _checksum_is_right(data, at, steps):
            why = 3 if _is_zero(data, at) else 5
            break
        why = _fault(data, at, state[2])
        if why != 0:
            break
        size = _int32(data, at + 4)
        base = _int64(data, at + 8)
        kind = data[at + 16]
        delta = _int32(data, at + 23)
        if size > end - position - at:
            size = end - position - at
            why = 4
        if kind == 1:  # raft_data
            timestamp = _int64(data, at + 35)
            if timestamp > state[4]:
                state[4] = timestamp
                state[5] = base + delta - state[1]
            if state[3] < 0 or state[0] - state[3] >= interval:
                state[3] = state[0]
                rows[count, 0] = position + at
                rows[count, 1] = state[0]
                rows[count, 2] = state[1]
                rows[count, 3] = base + delta - state[1]
                rows[count, 4] = state[4]
                rows[count, 5] = state[5]
                rows[count, 6] = 0
                count += 1
            state[0] += size
        elif _is_unseen(kind):
            state[1] += delta + 1
        state[2] = base + delta + 1
        at += size
        if why != 0:
            break
    return count, at, why


def find_header(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    available: cython.Py_ssize_t,
    remaining: cython.longlong,
    least_offset: cython.longlong,
    steps: cython.const[cython.uint][::1],
) -> int:
    """Returns the first position from ``start`` on of a header with a right checksum, a known type
    and a base offset from ``least_offset`` on, of a batch that ends within ``remaining`` bytes from
    ``data[start]``; -1 if there is none in the first ``available`` bytes."""
    at: cython.Py_ssize_t = start
    found: cython.Py_ssize_t = -1
    if start < 0 or available > data.shape[0] or steps.shape[0] != 256:
        raise ValueError("the search goes past the buffer, or a table has other than 256 steps")
    with cython.nogil:
        while available - at >= 61:
            if (
                1 <= data[at + 16] <= 38
                and _fault(data, at, least_offset) == 0
                and _int32(data, at + 4) <= remaining - (at - start)
                and _checksum_is_right(data, at, steps)
            ):
                found = at
                break
            at += 1
    return found


def translate(
    data: cython.uchar[::1],
    start: cython.Py_ssize_t,
    available: cython.Py_ssize_t,
    unseen: cython.longlong,
    epoch: cython.longlong,
) -> int:
    """Turns the batches that begin at ``data[start]`` into Kafka's, in place, and drops those that
    have no records of producers. ``unseen`` is what is to be subtracted from the first offset,
    ``epoch`` the leader epoch of all batches. The last batch may be cut off, but not its header,
    which would be left out. Returns the number of translated bytes.
    """
    at: cython.longlong = start
    out: cython.longlong = start
    size: cython.longlong
    here: cython.longlong
    base: cython.longlong
    crc: cython.longlong
    attributes: cython.longlong
    delta: cython.longlong
    first: cython.longlong
    last: cython.longlong
    producer: cython.longlong
    producer_epoch: cython.longlong
    sequence: cython.longlong
    records: cython.longlong
    kind: cython.int
    if start < 0 or available > data.shape[0]:
        raise ValueError("the batches go past the buffer")
    while available - at >= 61:
        size = _int32(data, at + 4)
        if size < 61:
            break
        kind = data[at + 16]
        delta = _int32(data, at + 23)
        here = size if size < available - at else available - at
        if kind == 1:  # raft_data
            base = minus(_int64(data, at + 8), unseen)
            crc = _unsigned(data, at + 17, 4)
            attributes = _unsigned(data, at + 21, 2)
            first = _int64(data, at + 27)
            last = _int64(data, at + 35)
            producer = _int64(data, at + 43)
            producer_epoch = _unsigned(data, at + 51, 2)
            sequence = _int32(data, at + 53)
            records = _int32(data, at + 57)
            put_int(data, out, base, 8)
            put_int(data, out + 8, size - 12, 4)
            put_int(data, out + 12, epoch, 4)
            data[out + 16] = 2
            put_int(data, out + 17, crc, 4)
            put_int(data, out + 21, attributes, 2)
            put_int(data, out + 23, delta, 4)
            put_int(data, out + 27, first, 8)
            put_int(data, out + 35, last, 8)
            put_int(data, out + 43, producer, 8)
            put_int(data, out + 51, producer_epoch, 2)
            put_int(data, out + 53, sequence, 4)
            put_int(data, out + 57, records, 4)
            if out != at and here > 61:
                if cython.compiled:
                    memmove(
                        cython.address(data[out + 61]), cython.address(data[at + 61]), here - 61
                    )
                else:
                    data[out + 61 : out + here] = bytes(data[at + 61 : at + here])
            out += here
        elif _is_unseen(kind):
            unseen = plus(unseen, delta + 1)
        at += size
    return out - start
