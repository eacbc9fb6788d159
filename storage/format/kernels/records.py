"""Decodes the records of magic 2 batches into columns.

One call decodes a run of batches, because a Python call per batch costs more than decoding a small
batch. Bounds: ``end`` never exceeds the buffer (checked on entry), every read is below ``end``,
every row below ``rows``.
"""

from __future__ import annotations

import cython

from ._primitives import after_headers, copy, plus, short_varint, varint

# Why a batch was rejected.
OK = 0
RECORD_LENGTH = 1  # a record's length is negative or extends past the batch
VARINT = 2  # a varint is too long, or cut off by the end of its record
KEY_LENGTH = 3
VALUE_LENGTH = 4
HEADERS = 5
RECORD_END = 6  # a record has more or fewer bytes than its length says
BATCH_END = 7  # bytes remain after the last record
OFFSET = 8  # offsets do not rise, or leave the batch's range


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _common_record(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    previous: cython.longlong,
    highest: cython.longlong,
    row: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
) -> cython.Py_ssize_t:
    """Does what ``_record`` does, for common records: less than 8 KiB, without headers, and valid.
    Returns -1 for all others, valid or not. It need not check for the end at each byte: at most 10
    bytes precede the key."""
    size: cython.uint
    timestamp: cython.uint
    offset: cython.uint
    key: cython.uint
    value: cython.uint
    last: cython.Py_ssize_t
    if end - at < 16:
        return -1
    size, at = short_varint(data, at)
    last = at + (size >> 1) - 1
    timestamp, at = short_varint(data, at + 1)
    offset, at = short_varint(data, at)
    key, at = short_varint(data, at)
    if (size | timestamp | offset | key) & 0x4000 or (size | offset) & 1 or last >= end:
        return -1
    if (offset >> 1) <= previous or (offset >> 1) > highest:
        return -1
    timestamps[row] = plus(
        base_timestamp,
        cython.cast(cython.longlong, timestamp >> 1) ^ -cython.cast(cython.longlong, timestamp & 1),
    )
    offsets[row] = offset >> 1
    spans[row, 0] = cython.cast(cython.int, at)
    spans[row, 1] = -1
    if key != 1:
        if key & 1:
            return -1
        spans[row, 1] = cython.cast(cython.int, key >> 1)
        at += key >> 1
    if last - at < 2:
        return -1
    value, at = short_varint(data, at)
    if value & 0x4001 or at + (value >> 1) != last or data[last] != 0:
        return -1
    spans[row, 2] = cython.cast(cython.int, at)
    spans[row, 3] = cython.cast(cython.int, value >> 1)
    spans[row, 4] = cython.cast(cython.int, last + 1)
    spans[row, 5] = 0
    return last + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _record(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    previous: cython.longlong,
    highest: cython.longlong,
    row: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
) -> cython.Py_ssize_t:
    """Reads the record at ``at``, of a batch that ends at ``end``, into a row. Its offset is
    written relative to the batch's, and must be above ``previous`` and at most ``highest``. Returns
    the position after it, or minus the error."""
    value: cython.longlong
    stop: cython.Py_ssize_t
    field: cython.int
    value, at = varint(data, at, end, 5)  # length
    if at < 0:
        return -2
    if value < 6 or value > end - at:
        return -1
    stop = at + value
    value, at = varint(data, at + 1, stop, 10)  # attributes (written 0, ignored), timestamp delta
    if at < 0:
        return -2
    timestamps[row] = plus(base_timestamp, value)
    value, at = varint(data, at, stop, 5)
    if at < 0:
        return -2
    if value < 0 or value <= previous or value > highest:
        return -8
    offsets[row] = value
    for field in range(2):  # key, value
        value, at = varint(data, at, stop, 5)
        if at < 0:
            return -2
        if value > stop - at:
            return -3 - field
        spans[row, 2 * field] = cython.cast(cython.int, at)
        spans[row, 2 * field + 1] = -1
        if value >= 0:
            spans[row, 2 * field + 1] = cython.cast(cython.int, value)
            at += value
    value, at = varint(data, at, stop, 5)  # number of headers
    if at < 0 or value < 0 or value > stop - at:
        return -5
    spans[row, 4] = cython.cast(cython.int, at)
    spans[row, 5] = cython.cast(cython.int, value)
    at = after_headers(data, at, stop, value)
    if at < 0:
        return -5
    return at if at == stop else -6


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _any_record(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_timestamp: cython.longlong,
    previous: cython.longlong,
    highest: cython.longlong,
    row: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
) -> cython.Py_ssize_t:
    """Does what ``_record`` does, trying ``_common_record`` first."""
    next_at: cython.Py_ssize_t = _common_record(
        data, at, end, base_timestamp, previous, highest, row, offsets, timestamps, spans
    )
    if next_at >= 0:
        return next_at
    return _record(
        data, at, end, base_timestamp, previous, highest, row, offsets, timestamps, spans
    )


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
    """Decodes the batches from ``first`` on, whose headers are the rows of ``table``; the records
    of batch i lie in ``data[starts[i]:ends[i]]``.

    Rows of ``spans`` are key start, key size, value start, value size, header start, header count;
    sizes are -1 for null. ``first_row[i]`` becomes the row where batch ``first + i`` begins or
    would begin. Returns (batches decoded, rows written, error, position in ``data`` of the bad
    record or, without an error, after the last record); a batch that fails leaves no rows.
    """
    batch: cython.Py_ssize_t = first
    batches: cython.Py_ssize_t = starts.shape[0]
    row: cython.Py_ssize_t = 0
    rows: cython.Py_ssize_t = offsets.shape[0]
    stop: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    next_at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    base: cython.longlong
    base_timestamp: cython.longlong
    has_append_time: cython.bint
    previous: cython.longlong  # this and the next are relative to the base
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
        first_row[0] = 0
        while batch < batches:
            at = starts[batch]
            end = ends[batch]
            if at < 0 or end > data.shape[0] or at > end:
                error = 7
                break
            if table[batch, 13] < 0 or table[batch, 13] > rows - row:
                error = 7
                break
            stop = row + table[batch, 13]
            base = table[batch, 2]
            base_timestamp = table[batch, 8]
            has_append_time = (table[batch, 7] & 8) != 0
            previous = -1
            highest = table[batch, 3] - base
            while row < stop:
                next_at = _any_record(
                    data, at, end, base_timestamp, previous, highest,
                    row, offsets, timestamps, spans,
                )  # fmt: skip
                if next_at < 0:
                    error = cython.cast(cython.int, -next_at)
                    break
                at = next_at
                previous = offsets[row]
                offsets[row] = base + previous
                if has_append_time:  # all records have the batch's
                    timestamps[row] = table[batch, 9]
                row += 1
            if error == 0 and at != end:
                error = 7
            if error != 0:
                row = first_row[batch - first]
                break
            batch += 1
            first_row[batch - first] = row
    return batch - first, row, error, at


def find_record(
    data: cython.const[cython.uchar][::1],
    table: cython.const[cython.longlong][:, ::1],
    batch: cython.Py_ssize_t,
    offset: cython.longlong,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
) -> tuple[bool, int, int, int]:
    """Finds the record at ``offset`` in the uncompressed batch that fills ``data`` and whose header
    is row ``batch`` of ``table``. Returns (whether it was found, its timestamp, value start and
    size, -1 for null). If any record of the batch is bad, nothing is found. ``offsets``,
    ``timestamps`` and ``spans`` need one row, which is scratch space.
    """
    at: cython.Py_ssize_t = 61
    next_at: cython.Py_ssize_t
    end: cython.Py_ssize_t = data.shape[0]
    left: cython.longlong
    previous: cython.longlong = -1
    highest: cython.longlong
    wanted: cython.longlong
    is_found: cython.bint = False
    timestamp: cython.longlong = 0
    start: cython.int = 0
    size: cython.int = 0
    if (
        batch < 0
        or batch >= table.shape[0]
        or table.shape[1] != 14
        or offsets.shape[0] < 1
        or timestamps.shape[0] < 1
        or spans.shape[0] < 1
        or spans.shape[1] != 6
        or end > 2147483647
        or end < at
    ):
        raise ValueError("no such batch, no room, or a buffer past 2 GiB")
    left = table[batch, 13]
    highest = table[batch, 3] - table[batch, 2]
    wanted = offset - table[batch, 2]
    while left > 0:
        next_at = _any_record(
            data, at, end, table[batch, 8], previous, highest, 0, offsets, timestamps, spans
        )
        if next_at < 0:
            break
        at = next_at
        previous = offsets[0]
        if previous == wanted:
            is_found = True
            timestamp = timestamps[0]
            start = spans[0, 2]
            size = spans[0, 3]
        left -= 1
    if table[batch, 7] & 8:  # log append time: all records have the batch's
        timestamp = table[batch, 9]
    return is_found and left == 0 and at == end, timestamp, start, size


def copy_lines(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
    table: cython.const[cython.longlong][:, ::1],
    first: cython.Py_ssize_t,
    column: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    timestamps: cython.longlong[::1],
    spans: cython.int[:, ::1],
    out: cython.uchar[::1],
) -> tuple[int, int, int, int]:
    """Decodes like ``decode_records``, but writes only one field of each record to ``out``: the
    bytes whose start is in ``column`` of the spans, and a newline. ``offsets``, ``timestamps`` and
    ``spans`` need one row, which is scratch space.

    Returns (batches copied, bytes written, error, position in ``data`` as ``decode_records``
    does). ``out`` must have as many bytes as the records themselves.
    """
    batch: cython.Py_ssize_t = first
    batches: cython.Py_ssize_t = starts.shape[0]
    left: cython.longlong
    at: cython.Py_ssize_t = 0
    next_at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t = 0
    previous: cython.longlong
    highest: cython.longlong
    error: cython.int = 0
    if (
        first < 0
        or first > batches
        or ends.shape[0] != batches
        or table.shape[0] != batches
        or table.shape[1] != 14
        or (column != 0 and column != 2)
        or offsets.shape[0] < 1
        or timestamps.shape[0] < 1
        or spans.shape[0] < 1
        or spans.shape[1] != 6
        or data.shape[0] > 2147483647
    ):
        raise ValueError("arrays of different lengths, no such column, or a buffer past 2 GiB")
    with cython.nogil:
        while batch < batches:
            begin = to
            at = starts[batch]
            end = ends[batch]
            # a line is at least six bytes shorter than its record
            if at < 0 or end > data.shape[0] or at > end or end - at > out.shape[0] - to:
                error = 7
                break
            left = table[batch, 13]
            previous = -1
            highest = table[batch, 3] - table[batch, 2]
            while left > 0:
                next_at = _any_record(
                    data, at, end, table[batch, 8], previous, highest,
                    0, offsets, timestamps, spans,
                )  # fmt: skip
                if next_at < 0:
                    error = cython.cast(cython.int, -next_at)
                    break
                at = next_at
                previous = offsets[0]
                to = copy(out, to, data, spans[0, column], spans[0, column + 1])
                out[to] = 10
                to += 1
                left -= 1
            if error == 0 and at != end:
                error = 7
            if error != 0:
                to = begin
                break
            batch += 1
    return batch - first, to, error, at
