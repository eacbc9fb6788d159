"""Encodes columns of records into batches of magic 2, except for their checksums.

One call writes many batches. Bounds: before any byte of a record is written, its spans are checked
against their buffers and its size against the space left in ``out``.
"""

from __future__ import annotations

import cython

from ._primitives import copy, minus, put_int, put_sized, put_varint, sized, varint_size

# Why encoding ended; all codes but the first concern a single record.
DONE = 0
BAD_SPAN = 1  # a key, value or header lies outside its buffer
NO_ROOM = 2  # ``out`` or ``table`` is too small
NEGATIVE_TIMESTAMP = 3  # other than -1, which means no timestamp
TOO_LARGE = 4  # its batch's length would not fit in an int32


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _headers_size(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    low: cython.longlong,
    high: cython.longlong,
) -> cython.longlong:
    """Returns the encoded size of the headers in rows [low, high) of ``spans``, including their
    count; -1 if they lie outside ``data`` or ``spans``, or if a name is null."""
    total: cython.longlong
    name: cython.longlong
    value: cython.longlong
    row: cython.longlong
    if low < 0 or high < low or high > spans.shape[0]:
        return -1
    total = varint_size(high - low)
    for row in range(low, high):
        name = sized(data, spans[row, 0], spans[row, 1])
        value = sized(data, spans[row, 2], spans[row, 3])
        if spans[row, 1] < 0 or name < 0 or value < 0:
            return -1
        total += name + value
    return total


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_headers(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.longlong][:, ::1],
    low: cython.longlong,
    high: cython.longlong,
) -> cython.Py_ssize_t:
    row: cython.longlong
    at = put_varint(out, at, high - low)
    for row in range(low, high):
        at = put_sized(out, at, data, spans[row, 0], spans[row, 1])
        at = put_sized(out, at, data, spans[row, 2], spans[row, 3])
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sequence(base_sequence: cython.longlong, row: cython.Py_ssize_t) -> cython.longlong:
    """Returns the sequence of a record, -1 if it has none."""
    if base_sequence < 0:
        return -1
    return (base_sequence + row) & 2147483647


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _close_batch(
    out: cython.uchar[::1],
    table: cython.longlong[:, ::1],
    batch: cython.Py_ssize_t,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    base_offset: cython.longlong,
    delta: cython.longlong,
    count: cython.longlong,
    base_timestamp: cython.longlong,
    greatest: cython.longlong,
    base_sequence: cython.longlong,
) -> cython.void:
    """Sets the fields that differ from batch to batch, in the header at ``out[start]`` and in the
    batch's row of ``table``. ``delta`` is that of the last offset."""
    put_int(out, start, base_offset, 8)
    put_int(out, start + 8, end - start - 12, 4)
    put_int(out, start + 23, delta, 4)
    put_int(out, start + 27, base_timestamp, 8)
    put_int(out, start + 35, greatest, 8)
    put_int(out, start + 53, base_sequence, 4)
    put_int(out, start + 57, count, 4)
    table[batch, 0] = start
    table[batch, 1] = end - start
    table[batch, 2] = base_offset
    table[batch, 3] = base_offset + delta
    table[batch, 8] = base_timestamp
    table[batch, 9] = greatest
    table[batch, 12] = base_sequence
    table[batch, 13] = count


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_short(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong
) -> cython.Py_ssize_t:
    """Writes a number from 0 to 8191, as ``_put_varint`` does."""
    if value < 64:
        out[at] = cython.cast(cython.uchar, value << 1)
        return at + 1
    out[at] = cython.cast(cython.uchar, ((value << 1) & 127) | 128)
    out[at + 1] = cython.cast(cython.uchar, value >> 6)
    return at + 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_common(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    end: cython.longlong,
    delta: cython.longlong,
    offset: cython.longlong,
    keys: cython.const[cython.uchar][::1],
    key_start: cython.longlong,
    key_size: cython.longlong,
    values: cython.const[cython.uchar][::1],
    value_start: cython.longlong,
    value_size: cython.longlong,
) -> cython.Py_ssize_t:
    """Writes a common record: no headers, a value of a few KiB at most, a key size of one byte, all
    other numbers of one or two bytes. Returns the position after it. Writes nothing and returns -1
    for any other record, for spans outside their buffers, and if it would end after ``end``."""
    key: cython.longlong = key_size if key_size > 0 else 0
    size: cython.longlong
    if (
        (delta | offset | value_size) & -8192 != 0
        or key_size > 63
        or (key_start | value_start) < 0
        or value_size > values.shape[0] - value_start
        or key > keys.shape[0] - key_start
    ):
        return -1
    size = 6 + (delta > 63) + (offset > 63) + (value_size > 63) + key + value_size
    if size > 8191 or end - at < size + 1 + (size > 63):
        return -1
    at = _put_short(out, at, size)
    out[at] = 0  # attributes
    at = _put_short(out, at + 1, delta)
    at = _put_short(out, at, offset)
    if key_size < 0:
        out[at] = 1
    else:
        out[at] = cython.cast(cython.uchar, key_size << 1)
        copy(out, at + 1, keys, key_start, key_size)
    at = _put_short(out, at + 1 + key, value_size)
    copy(out, at, values, value_start, value_size)
    out[at + value_size] = 0  # headers
    return at + value_size + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _body_size(
    keys: cython.const[cython.uchar][::1],
    key_start: cython.longlong,
    key_size: cython.longlong,
    values: cython.const[cython.uchar][::1],
    value_start: cython.longlong,
    value_size: cython.longlong,
    headers: cython.const[cython.uchar][::1],
    header_spans: cython.const[cython.longlong][:, ::1],
    low: cython.longlong,
    high: cython.longlong,
) -> cython.longlong:
    """Returns the encoded size of a record without its length and its two deltas; its headers are
    in rows [low, high). Returns -1 if part of it lies outside its buffer."""
    key: cython.longlong = sized(keys, key_start, key_size)
    value: cython.longlong = sized(values, value_start, value_size)
    rest: cython.longlong = _headers_size(headers, header_spans, low, high)
    if key < 0 or value < 0 or rest < 0:
        return -1
    return 1 + key + value + rest


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_record(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    size: cython.longlong,
    delta: cython.longlong,
    offset: cython.longlong,
    keys: cython.const[cython.uchar][::1],
    key_start: cython.longlong,
    key_size: cython.longlong,
    values: cython.const[cython.uchar][::1],
    value_start: cython.longlong,
    value_size: cython.longlong,
    headers: cython.const[cython.uchar][::1],
    header_spans: cython.const[cython.longlong][:, ::1],
    low: cython.longlong,
    high: cython.longlong,
) -> cython.Py_ssize_t:
    """Writes any record, of ``size`` bytes after its length, and returns the position after it. The
    caller has checked that it fits."""
    at = put_varint(out, at, size)
    out[at] = 0  # attributes
    at = put_varint(out, at + 1, delta)
    at = put_varint(out, at, offset)
    at = put_sized(out, at, keys, key_start, key_size)
    at = put_sized(out, at, values, value_start, value_size)
    return _put_headers(out, at, headers, header_spans, low, high)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.longlong))
def _put_common_run(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    end: cython.longlong,
    row: cython.Py_ssize_t,
    first: cython.Py_ssize_t,
    base: cython.longlong,
    greatest: cython.longlong,
    timestamps: cython.const[cython.longlong][::1],
    keys: cython.const[cython.uchar][::1],
    key_starts: cython.const[cython.longlong][::1],
    key_sizes: cython.const[cython.longlong][::1],
    values: cython.const[cython.uchar][::1],
    value_starts: cython.const[cython.longlong][::1],
    value_sizes: cython.const[cython.longlong][::1],
):
    """Writes records from ``row`` on while they are common ones (see ``_put_common``) and fit
    before ``end``, into the batch that begins with record ``first``. Returns the row and the
    position after them, and the greatest of ``greatest`` and their timestamps."""
    has_keys: cython.bint = key_sizes.shape[0] != 0
    has_values: cython.bint = value_sizes.shape[0] != 0
    key_start: cython.longlong = 0
    key_size: cython.longlong = -1
    value_start: cython.longlong = 0
    value_size: cython.longlong = -1
    next_at: cython.Py_ssize_t
    while row < timestamps.shape[0] and timestamps[row] >= -1:
        if has_keys:
            key_start = key_starts[row]
            key_size = key_sizes[row]
        if has_values:
            value_start = value_starts[row]
            value_size = value_sizes[row]
        next_at = _put_common(
            out, at, end, minus(timestamps[row], base), row - first,
            keys, key_start, key_size, values, value_start, value_size,
        )  # fmt: skip
        if next_at < 0:
            break
        at = next_at
        if timestamps[row] > greatest:
            greatest = timestamps[row]
        row += 1
    return row, at, greatest


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t, cython.int))
def _encode(
    timestamps: cython.const[cython.longlong][::1],
    keys: cython.const[cython.uchar][::1],
    key_starts: cython.const[cython.longlong][::1],
    key_sizes: cython.const[cython.longlong][::1],
    values: cython.const[cython.uchar][::1],
    value_starts: cython.const[cython.longlong][::1],
    value_sizes: cython.const[cython.longlong][::1],
    headers: cython.const[cython.uchar][::1],
    header_spans: cython.const[cython.longlong][:, ::1],
    header_bounds: cython.const[cython.longlong][::1],
    offsets: cython.const[cython.longlong][::1],
    template: cython.const[cython.uchar][::1],
    base_offset: cython.longlong,
    base_sequence: cython.longlong,
    append_time: cython.longlong,
    batch_bytes: cython.longlong,
    out: cython.uchar[::1],
    table: cython.longlong[:, ::1],
):
    """Runs the loop of ``encode_batches``. It is a separate function so that the compiler knows
    that writing a byte changes none of the arguments."""
    rows: cython.Py_ssize_t = timestamps.shape[0]
    row: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t = 0
    batch: cython.Py_ssize_t = 0
    first: cython.Py_ssize_t = 0
    end: cython.longlong = 0
    limit: cython.longlong = 2147483647
    has_keys: cython.bint = key_sizes.shape[0] != 0
    has_values: cython.bint = value_sizes.shape[0] != 0
    has_headers: cython.bint = header_bounds.shape[0] != 0
    has_offsets: cython.bint = offsets.shape[0] != 0
    first_offset: cython.longlong = base_offset
    last: cython.longlong = 0
    delta: cython.longlong = 0
    is_far: cython.bint = False
    timestamp: cython.longlong = 0
    base: cython.longlong = 0
    greatest: cython.longlong = 0
    key_start: cython.longlong = 0
    key_size: cython.longlong = -1
    value_start: cython.longlong = 0
    value_size: cython.longlong = -1
    low: cython.longlong = 0
    high: cython.longlong = 0
    body: cython.longlong = 0
    size: cython.longlong
    while True:
        if row > first and not has_headers and not has_offsets:
            row, at, greatest = _put_common_run(
                out, at, end, row, first, base, greatest, timestamps,
                keys, key_starts, key_sizes, values, value_starts, value_sizes,
            )  # fmt: skip
        size = 0
        if row < rows:
            timestamp = timestamps[row]
            if timestamp < -1:
                return batch, start, row, 3
            if has_keys:
                key_start = key_starts[row]
                key_size = key_sizes[row]
            if has_values:
                value_start = value_starts[row]
                value_size = value_sizes[row]
            if has_headers:
                low = header_bounds[row]
                high = header_bounds[row + 1]
            body = _body_size(
                keys, key_start, key_size, values, value_start, value_size,
                headers, header_spans, low, high,
            )  # fmt: skip
            if body < 0:
                return batch, start, row, 1
            if row > first:
                delta = row - first
                if has_offsets:
                    delta = minus(offsets[row], first_offset)
                    is_far = delta <= 0 or delta > 2147483647
                size = body + varint_size(minus(timestamp, base))
                size += varint_size(delta)
        if row > first and (
            row == rows or at - start + size + varint_size(size) > batch_bytes or is_far
        ):
            if (template[22] & 8) != 0:
                greatest = append_time
            last = row - first - 1
            if has_offsets:
                last = minus(offsets[row - 1], first_offset)
            _close_batch(
                out, table, batch, start, at, first_offset, last, row - first,
                base, greatest, _sequence(base_sequence, first),
            )  # fmt: skip
            batch += 1
            first = row
            start = at
        if row == rows:
            return batch, start, row, 0
        if row == first:
            base = timestamp
            greatest = base
            first_offset = base_offset + row
            if has_offsets:
                first_offset = offsets[row]
            delta = 0
            is_far = False
            size = body + 2
            if batch >= table.shape[0] or out.shape[0] - at < 61:
                return batch, start, row, 2
            copy(out, at, template, 0, 61)
            at += 61
            end = min(start + batch_bytes, out.shape[0])
        if at - start + size + 5 > limit:
            return batch, start, row, 4
        if out.shape[0] - at < size + 5:
            return batch, start, row, 2
        at = _put_record(
            out, at, size, minus(timestamp, base), delta,
            keys, key_start, key_size, values, value_start, value_size,
            headers, header_spans, low, high,
        )  # fmt: skip
        if timestamp > greatest:
            greatest = timestamp
        row += 1


def encode_batches(
    timestamps: cython.const[cython.longlong][::1],
    keys: cython.const[cython.uchar][::1],
    key_starts: cython.const[cython.longlong][::1],
    key_sizes: cython.const[cython.longlong][::1],
    values: cython.const[cython.uchar][::1],
    value_starts: cython.const[cython.longlong][::1],
    value_sizes: cython.const[cython.longlong][::1],
    headers: cython.const[cython.uchar][::1],
    header_spans: cython.const[cython.longlong][:, ::1],
    header_bounds: cython.const[cython.longlong][::1],
    offsets: cython.const[cython.longlong][::1],
    template: cython.const[cython.uchar][::1],
    base_offset: cython.longlong,
    base_sequence: cython.longlong,
    append_time: cython.longlong,
    batch_bytes: cython.longlong,
    out: cython.uchar[::1],
    table: cython.longlong[:, ::1],
) -> tuple[int, int, int, int]:
    """Encodes the records, one per row of ``timestamps``, at the ascending ``offsets`` or, without
    these, at consecutive ones from ``base_offset``.

    Starts and sizes refer to the buffer passed before them; size -1 is null, and without sizes
    every record has null. Rows of ``header_spans`` are name start, name size, value start, value
    size; record i has the rows from ``header_bounds[i]`` up to ``header_bounds[i + 1]``; without
    bounds there are no headers. A batch is closed when another record would make it longer than
    ``batch_bytes`` or its offset delta would not fit in an int32; a record that exceeds the former
    alone gets a batch of its own. ``template`` is a batch header in which leader epoch, magic,
    attributes and producer are set; if it says LogAppendTime, ``append_time`` is the greatest
    timestamp of each batch. The rows of ``table`` receive the fields that differ from batch to
    batch. Sequences start at ``base_sequence``, -1 for none. Returns (batches, bytes, record at
    which encoding ended, why).
    """
    rows: cython.Py_ssize_t = timestamps.shape[0]
    batches: cython.Py_ssize_t
    used: cython.Py_ssize_t
    row: cython.Py_ssize_t
    why: cython.int
    if (
        (key_sizes.shape[0] != 0 and key_sizes.shape[0] != rows)
        or key_starts.shape[0] != key_sizes.shape[0]
        or (value_sizes.shape[0] != 0 and value_sizes.shape[0] != rows)
        or value_starts.shape[0] != value_sizes.shape[0]
        or (header_bounds.shape[0] != 0 and header_bounds.shape[0] != rows + 1)
        or (offsets.shape[0] != 0 and offsets.shape[0] != rows)
        or header_spans.shape[1] != 4
        or template.shape[0] != 61
        or table.shape[1] < 14
    ):
        raise ValueError("arrays of different lengths")
    if base_offset < 0 or base_offset > 9223372036854775807 - rows:
        raise ValueError("offsets leave the range of an int64")
    if batch_bytes < 0 or batch_bytes > 2147483647:
        raise ValueError("the size of a batch is an int32")
    with cython.nogil:
        batches, used, row, why = _encode(
            timestamps, keys, key_starts, key_sizes, values, value_starts, value_sizes, headers,
            header_spans, header_bounds, offsets, template, base_offset, base_sequence,
            append_time, batch_bytes, out, table,
        )  # fmt: skip
    return batches, used, row, why


def measure(values: list[bytes | None], sizes: cython.longlong[::1]) -> int:
    """Writes the sizes of the values into ``sizes``, -1 for None. Returns the number of Nones."""
    row: cython.Py_ssize_t
    nulls: cython.Py_ssize_t = 0
    if len(values) > sizes.shape[0]:
        raise ValueError("more values than sizes")
    for row in range(len(values)):
        value = values[row]
        if value is None:
            sizes[row] = -1
            nulls += 1
        else:
            sizes[row] = len(value)
    return nulls


def put_checksums(
    out: cython.uchar[::1], table: cython.longlong[:, ::1], crcs: list[cython.longlong]
) -> None:
    """Writes the CRC of each batch into its header and its row of ``table``."""
    row: cython.Py_ssize_t
    at: cython.longlong
    crc: cython.longlong
    for row in range(table.shape[0]):
        at = table[row, 0]
        if at < 0 or at > out.shape[0] - 61:
            raise ValueError("a batch outside the buffer")
        crc = crcs[row]
        put_int(out, at + 17, crc, 4)
        table[row, 6] = crc
