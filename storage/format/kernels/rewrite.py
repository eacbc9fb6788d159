"""Rewrites batches without the records that compaction discards, except for their checksums.

One call rewrites many batches. Bounds: before a byte of a batch or record is written, its rows and
spans are checked against their buffers, and its size against the space left in ``out``.
"""

from __future__ import annotations

import cython

from ._primitives import (
    after_headers,
    copy,
    minus,
    put_int,
    put_sized,
    put_varint,
    sized,
    varint_size,
)

# Why rewriting ended before the last batch.
DONE = 0
BAD_SPAN = 1  # a batch, key, value or header lies outside its buffer
NO_ROOM = 2  # the results are too small
EMPTY_MESSAGE = 3  # a batch of magic 0 or 1 cannot be retained without records
WRAPPER = 4  # only part of a batch of magic 0 or 1 is retained: use `encode_messages`

# What to do with a batch (Kafka's BatchRetention).
DROP = 0
KEEP = 1
RETAIN_EMPTY = 2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_in(
    data: cython.const[cython.uchar][::1], start: cython.longlong, size: cython.longlong
) -> cython.bint:
    """Returns whether the span lies in ``data``; one of size -1, which is null, always does."""
    return size < 0 or (0 <= start <= data.shape[0] and size <= data.shape[0] - start)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_record(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    timestamp: cython.longlong,
    offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Writes a record of magic 2; ``timestamp`` and ``offset`` are relative to its batch's. Returns
    the position after it, or minus the reason why nothing was written."""
    headers: cython.longlong = spans[row, 4]
    headers_end: cython.longlong = headers
    key: cython.longlong = sized(data, spans[row, 0], spans[row, 1])
    value: cython.longlong = sized(data, spans[row, 2], spans[row, 3])
    size: cython.longlong
    if key < 0 or value < 0:
        return -1
    if spans[row, 5] > 0:
        headers_end = after_headers(data, headers, data.shape[0], spans[row, 5])
        if headers_end < 0:
            return -1
    size = 1 + varint_size(timestamp) + varint_size(offset) + key + value
    size += varint_size(spans[row, 5]) + headers_end - headers
    if out.shape[0] - at < size + 5 or size > 2147483647:
        return -2
    at = put_varint(out, at, size)
    out[at] = 0  # attributes
    at = put_varint(out, at + 1, timestamp)
    at = put_varint(out, at, offset)
    at = put_sized(out, at, data, spans[row, 0], spans[row, 1])
    at = put_sized(out, at, data, spans[row, 2], spans[row, 3])
    at = put_varint(out, at, spans[row, 5])
    return copy(out, at, data, headers, headers_end - headers)


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
    attributes: cython.longlong,
    base_timestamp: cython.longlong,
    greatest: cython.longlong,
    count: cython.longlong,
) -> cython.void:
    """Sets the fields that have changed, in the header at ``out[start]`` and in its row."""
    put_int(out, start + 8, end - start - 12, 4)
    put_int(out, start + 21, attributes, 2)
    put_int(out, start + 27, base_timestamp, 8)
    put_int(out, start + 35, greatest, 8)
    put_int(out, start + 57, count, 4)
    table[batch, 1] = end - start
    table[batch, 7] = attributes
    table[batch, 8] = base_timestamp
    table[batch, 9] = greatest
    table[batch, 13] = count


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _rebuild(
    records: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    spans: cython.const[cython.int][:, ::1],
    keep: cython.const[cython.uchar][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    kept: cython.longlong,
    horizon: cython.longlong,
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
    table: cython.longlong[:, ::1],
    batch: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the retained rows of [low, high) after the header at ``out[start]``, and updates the
    header and its row. Returns the position after them, or minus a reason."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t = start + 61
    base_offset: cython.longlong = table[batch, 2]
    base: cython.longlong = horizon
    greatest: cython.longlong = -1
    is_first: cython.bint = True
    for row in range(low, high):
        if not keep[row]:
            continue
        if is_first and horizon < 0:
            base = timestamps[row]
        is_first = False
        at = _put_record(
            out, at, records, spans, row, minus(timestamps[row], base), offsets[row] - base_offset
        )
        if at < 0:
            return at
        if timestamps[row] > greatest:
            greatest = timestamps[row]
    if table[batch, 7] & 8:  # log append time: all records have the batch's
        greatest = table[batch, 9]
    _close_batch(
        out, table, batch, start, at,
        (table[batch, 7] & 0x3F) | (0x40 if horizon >= 0 else 0), base, greatest, kept,
    )  # fmt: skip
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t, cython.Py_ssize_t, cython.int))
def _rewrite(
    data: cython.const[cython.uchar][::1],
    base: cython.longlong,
    table: cython.const[cython.longlong][:, ::1],
    records: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    spans: cython.const[cython.int][:, ::1],
    first_row: cython.const[cython.longlong][::1],
    keep: cython.const[cython.uchar][::1],
    actions: cython.const[cython.schar][::1],
    horizons: cython.const[cython.longlong][::1],
    out: cython.uchar[::1],
    out_table: cython.longlong[:, ::1],
    is_made: cython.uchar[::1],
):
    """Runs the loop of ``rewrite_batches``. It is a separate function so that the compiler knows
    that writing a byte changes none of the arguments."""
    batch: cython.Py_ssize_t
    batches: cython.Py_ssize_t = table.shape[0]
    count: cython.Py_ssize_t = 0
    used: cython.Py_ssize_t = 0
    at: cython.longlong
    size: cython.longlong
    row: cython.Py_ssize_t
    low: cython.longlong
    high: cython.longlong
    kept: cython.longlong
    horizon: cython.longlong
    end: cython.Py_ssize_t
    field: cython.int
    for batch in range(batches):
        if actions[batch] == 0:
            continue
        low = first_row[batch]
        high = first_row[batch + 1]
        at = table[batch, 0] - base
        size = table[batch, 1]
        if low < 0 or high < low or high > keep.shape[0] or size < 26 or not _is_in(data, at, size):
            return count, used, batch, 1
        kept = 0
        for row in range(low, high):
            kept += 1 if keep[row] else 0
        if kept == 0 and actions[batch] == 1:
            continue
        if count >= out_table.shape[0] or count >= is_made.shape[0]:
            return count, used, batch, 2
        for field in range(14):
            out_table[count, field] = table[batch, field]
        out_table[count, 0] = used
        horizon = horizons[batch] if table[batch, 5] > 1 else -1
        if kept > 0 and kept == high - low and horizon < 0:
            if out.shape[0] - used < size:
                return count, used, batch, 2
            used = copy(out, used, data, at, size)
            is_made[count] = 0
            count += 1
            continue
        if table[batch, 5] < 2:
            return count, used, batch, 4 if kept > 0 else 3
        if size < 61:
            return count, used, batch, 1
        if out.shape[0] - used < 61:
            return count, used, batch, 2
        end = copy(out, used, data, at, 61)
        if kept == 0:  # header only: neither codec nor horizon, no base timestamp
            _close_batch(
                out, out_table, count, used, end, table[batch, 7] & 0x38, -1, table[batch, 9], 0
            )
        else:
            if horizon < 0 and table[batch, 7] & 0x40:
                horizon = table[batch, 8]
            end = _rebuild(
                records, offsets, timestamps, spans, keep, low, high, kept, horizon,
                out, used, out_table, count,
            )  # fmt: skip
            if end < 0:
                return count, used, batch, cython.cast(cython.int, -end)
        used = end
        is_made[count] = 1
        count += 1
    return count, used, batches, 0


def rewrite_batches(
    data: cython.const[cython.uchar][::1],
    base: cython.longlong,
    table: cython.const[cython.longlong][:, ::1],
    records: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    spans: cython.const[cython.int][:, ::1],
    first_row: cython.const[cython.longlong][::1],
    keep: cython.const[cython.uchar][::1],
    actions: cython.const[cython.schar][::1],
    horizons: cython.const[cython.longlong][::1],
    out: cython.uchar[::1],
    out_table: cython.longlong[:, ::1],
    is_made: cython.uchar[::1],
) -> tuple[int, int, int, int]:
    """Writes the retained part of the batches in ``table``, whose bytes lie in ``data``
    (``data[0]`` is at file position ``base``), into ``out`` and ``out_table``, whose positions
    refer to ``out``.

    The rows of batch i are ``first_row[i]`` up to ``first_row[i + 1]``; their ``spans`` lie in
    ``records``. ``keep`` has a byte per row, ``actions`` and ``horizons`` a number per batch. An
    unchanged batch is copied; any other is rebuilt: its records are not compressed yet, although
    its attributes say so, and its checksum is still the old one; ``is_made`` marks these. Returns
    (batches written, bytes written, batch at which rewriting ended, why).
    """
    rows: cython.Py_ssize_t = keep.shape[0]
    batches: cython.Py_ssize_t = table.shape[0]
    count: cython.Py_ssize_t
    used: cython.Py_ssize_t
    batch: cython.Py_ssize_t
    why: cython.int
    if (
        offsets.shape[0] != rows
        or timestamps.shape[0] != rows
        or spans.shape[0] != rows
        or spans.shape[1] != 6
        or first_row.shape[0] != batches + 1
        or actions.shape[0] != batches
        or horizons.shape[0] != batches
        or table.shape[1] != 14
        or out_table.shape[1] != 14
    ):
        raise ValueError("arrays of different lengths")
    with cython.nogil:
        count, used, batch, why = _rewrite(
            data, base, table, records, offsets, timestamps, spans, first_row, keep, actions,
            horizons, out, out_table, is_made,
        )  # fmt: skip
    return count, used, batch, why


def encode_messages(
    records: cython.const[cython.uchar][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    spans: cython.const[cython.int][:, ::1],
    keep: cython.const[cython.uchar][::1],
    first_offset: cython.longlong,
    magic: cython.longlong,
    attributes: cython.longlong,
    out: cython.uchar[::1],
    ends: cython.longlong[::1],
) -> tuple[int, int]:
    """Writes the retained rows into ``out`` as messages of magic 0 or 1, with offsets relative to
    ``first_offset`` and checksums 0. ``ends`` receives the position after each. Returns (messages,
    why encoding ended)."""
    rows: cython.Py_ssize_t = keep.shape[0]
    row: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    key: cython.longlong
    value: cython.longlong
    field: cython.int
    why: cython.int = 0
    if (
        offsets.shape[0] != rows
        or timestamps.shape[0] != rows
        or spans.shape[0] != rows
        or spans.shape[1] != 6
        or ends.shape[0] < rows
        or magic < 0
        or magic > 1
    ):
        raise ValueError("arrays of different lengths, or no magic of messages")
    with cython.nogil:
        for row in range(rows):
            if not keep[row]:
                continue
            key = spans[row, 1]
            value = spans[row, 3]
            if not _is_in(records, spans[row, 0], key) or not _is_in(records, spans[row, 2], value):
                why = 1
                break
            if out.shape[0] - at < 34 + max(key, 0) + max(value, 0):
                why = 2
                break
            start = at
            put_int(out, at, minus(offsets[row], first_offset), 8)
            put_int(out, at + 12, 0, 4)
            out[at + 16] = cython.cast(cython.uchar, magic)
            out[at + 17] = cython.cast(cython.uchar, attributes & 0xFF)
            at += 18
            if magic == 1:
                put_int(out, at, timestamps[row], 8)
                at += 8
            for field in range(0, 4, 2):  # key, value
                put_int(out, at, spans[row, field + 1], 4)
                at = copy(out, at + 4, records, spans[row, field], spans[row, field + 1])
            put_int(out, start + 8, at - start - 12, 4)
            ends[count] = at
            count += 1
    return count, why
