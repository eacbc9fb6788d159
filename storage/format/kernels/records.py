# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""Decode the records of magic 2 batches into columns.

One call takes a run of batches, because a Python call per batch costs more than decoding a small
batch. Bounds: ``end`` never exceeds the buffer (checked on entry), every read is below ``end``,
every row below ``rows``.
"""

from __future__ import annotations

import cython

# Why a batch was refused.
OK = 0
RECORD_LENGTH = 1  # a record's length is negative or goes past the batch
VARINT = 2  # a varint is too long, or cut off by the end of its record
KEY_LENGTH = 3
VALUE_LENGTH = 4
HEADERS = 5
RECORD_END = 6  # a record has more or fewer bytes than its length says
BATCH_END = 7  # bytes remain after the last record
OFFSET = 8  # offsets do not rise, or leave the batch's range


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.ulonglong, cython.Py_ssize_t))
def _groups(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.int,
):
    """The unsigned number of at most ``most`` groups of seven bits, and where it ends; -1 if it
    does not. As Kafka's ``ByteUtils``: bits beyond 32 (64) in the last byte are dropped, over-long
    encodings are taken."""
    raw: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    while True:
        if at >= end or shift >= 7 * most:
            return 0, -1
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 128:
            break
    if not cython.compiled:
        raw &= (1 << 64) - 1
    if most == 5:
        raw &= (cython.cast(cython.ulonglong, 1) << 32) - 1
    return raw, at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.longlong, cython.Py_ssize_t))
def _varint(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    most: cython.int,
):
    """Zigzag varint of at most ``most`` bytes at ``at``: (value, position after it; -1 if bad).
    Nearly all are of one byte or two."""
    raw: cython.ulonglong
    if at < end and data[at] < 128:
        raw = data[at]
        at += 1
    elif end - at >= 2 and data[at + 1] < 128:
        raw = (data[at] & 0x7F) | (cython.cast(cython.ulonglong, data[at + 1]) << 7)
        at += 2
    else:
        raw, at = _groups(data, at, end, most)
    # zigzag without a signed overflow: the half of an even number, or minus the half minus one
    if raw & 1:
        return -cython.cast(cython.longlong, raw >> 1) - 1, at
    return cython.cast(cython.longlong, raw >> 1), at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _skip_headers(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.longlong,
) -> cython.Py_ssize_t:
    """Position after ``count`` headers, -1 when they do not fit."""
    size: cython.longlong
    while count > 0:
        size, at = _varint(data, at, end, 5)
        if at < 0 or size < 0 or size > end - at:
            return -1
        at += size
        size, at = _varint(data, at, end, 5)
        if at < 0 or size > end - at:
            return -1
        if size > 0:
            at += size
        count -= 1
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _timestamp(base: cython.longlong, delta: cython.longlong) -> cython.longlong:
    """base + delta as Java adds longs: wrapping round, never undefined."""
    if cython.compiled:
        return cython.cast(
            cython.longlong,
            cython.cast(cython.ulonglong, base) + cython.cast(cython.ulonglong, delta),
        )
    return ((base + delta + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def decode_records(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
    table: cython.const[cython.longlong][:, ::1],
    first: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
    first_row: cython.longlong[::1],
) -> tuple[int, int, int, int]:
    """Decode the batches from ``first`` on, whose headers are the rows of ``table``; the records of
    batch i lie in ``data[starts[i]:ends[i]]``.

    Rows of ``spans`` are key start, key size, value start, value size, header start, header count;
    sizes are -1 for null. ``first_row[i]`` becomes the row where batch ``first + i`` begins, or
    would. Returns (batches decoded, rows written, error, position in ``data`` of the record with
    the error, or of what follows the last); a batch that fails leaves no rows.
    """
    batch: cython.Py_ssize_t
    batches: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t = 0
    rows: cython.Py_ssize_t = offsets.shape[0]
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    record_start: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    left: cython.longlong
    field: cython.int
    value: cython.longlong
    base: cython.longlong
    base_timestamp: cython.longlong
    append_time: cython.longlong
    has_append_time: cython.bint
    previous: cython.longlong
    highest: cython.longlong
    error: cython.int = 0
    if (
        first < 0
        or first > batches
        or ends.shape[0] != batches
        or table.shape[0] != batches
        or table.shape[1] != 14
        or first_row.shape[0] <= batches - first
        or timestamps.shape[0] < rows
        or spans.shape[0] < rows
        or spans.shape[1] != 6
        or data.shape[0] > 2147483647
    ):
        raise ValueError("arrays of different lengths, or a buffer past 2 GiB")
    with cython.nogil:
        batch = first
        at = 0
        first_row[0] = 0
        while batch < batches:
            at = starts[batch]
            end = ends[batch]
            left = table[batch, 13]
            if at < 0 or end > data.shape[0] or at > end or left < 0 or left > rows - row:
                error = 7
                break
            base = table[batch, 2]
            previous = -1  # this and the next relative to the base
            highest = table[batch, 3] - base
            base_timestamp = table[batch, 8]
            append_time = table[batch, 9]
            has_append_time = (table[batch, 7] & 8) != 0
            record_start = at
            while left > 0:
                record_start = at
                value, at = _varint(data, at, end, 5)  # length
                if at < 0:
                    error = 2
                    break
                if value < 6 or value > end - at:
                    error = 1
                    break
                record_end = at + value
                at += 1  # attributes: written 0, ignored
                value, at = _varint(data, at, record_end, 10)  # timestamp delta
                if at < 0:
                    error = 2
                    break
                timestamps[row] = (
                    append_time if has_append_time else _timestamp(base_timestamp, value)
                )
                value, at = _varint(data, at, record_end, 5)  # offset delta
                if at < 0:
                    error = 2
                    break
                if value < 0 or value <= previous or value > highest:
                    error = 8
                    break
                previous = value
                offsets[row] = base + value
                for field in range(2):  # key, value
                    value, at = _varint(data, at, record_end, 5)
                    if at < 0:
                        error = 2
                        break
                    if value > record_end - at:
                        error = 3 + field
                        break
                    spans[row, 2 * field] = cython.cast(cython.int, at)
                    spans[row, 2 * field + 1] = -1
                    if value >= 0:
                        spans[row, 2 * field + 1] = cython.cast(cython.int, value)
                        at += value
                if error != 0:
                    break
                value, at = _varint(data, at, record_end, 5)  # number of headers
                if at < 0 or value < 0 or value > record_end - at:
                    error = 5
                    break
                spans[row, 4] = cython.cast(cython.int, at)
                spans[row, 5] = cython.cast(cython.int, value)
                if value > 0:
                    at = _skip_headers(data, at, record_end, value)
                    if at < 0:
                        error = 5
                        break
                if at != record_end:
                    error = 6
                    break
                row += 1
                left -= 1
            if error != 0:
                at = record_start
            elif at != end:
                error = 7
            if error != 0:
                row = first_row[batch - first]
                break
            batch += 1
            first_row[batch - first] = row
    return batch - first, row, error, at
