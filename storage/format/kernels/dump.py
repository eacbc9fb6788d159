"""Writes batches and records as kafka-dump-log prints them.

Both functions take ``texts``, of which ``texts[marks[i]:marks[i + 1]]`` is text i:

- 0 to 7 precede a batch's base offset, last offset, count, first and last sequence, producer id,
  producer epoch and leader epoch; 8 and 9 say that it is transactional, or not; 10 and 11 that it
  is a control batch, or not; 12 precedes a delete horizon, 13 says that there is none; 14 precedes
  the offset of a message set
- 15 precedes a position; 16, 17 and 18 a timestamp of type -1, 0 and 1; 19 a size, 20 a magic; 21
  to 25 name the codecs; 26 precedes a CRC; 27 and 28 say that it is valid, or not
- 29 to 33 precede a record's offset, the sizes of its key and value, its sequence and the names of
  its headers, 34 the CRC of a message, 35 and 36 a key and a payload

Bounds: as in ``render``.
"""

from __future__ import annotations

import cython

from ._primitives import copy, varint
from ._text import malformed_length, utf8_length, write_int

BAD_SPAN = -2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put(
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    number: cython.Py_ssize_t,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    return copy(out, at, texts, marks[number], marks[number + 1] - marks[number])


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int(
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    number: cython.Py_ssize_t,
    value: cython.longlong,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    return write_int(value, out, _put(texts, marks, number, out, at))


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _sequence(
    batches: cython.const[cython.longlong][:, ::1],
    batch: cython.Py_ssize_t,
    offset: cython.longlong,
) -> cython.longlong:
    """Returns the sequence number of the record at ``offset``, -1 if none."""
    if batches[batch, 12] < 0:
        return -1
    return (batches[batch, 12] + offset - batches[batch, 2]) & 0x7FFFFFFF


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _timestamp_text(
    batches: cython.const[cython.longlong][:, ::1], batch: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Returns the number of the text that precedes the timestamps of a batch."""
    if batches[batch, 5] == 0:
        return 16
    return 18 if batches[batch, 7] & 8 else 17


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_batch(
    batches: cython.const[cython.longlong][:, ::1],
    batch: cython.Py_ssize_t,
    is_valid: cython.bint,
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the line of a batch, for which ``out`` must have space."""
    flags: cython.longlong = batches[batch, 7]
    if batches[batch, 5] > 1:
        at = _put_int(texts, marks, 0, batches[batch, 2], out, at)
        at = _put_int(texts, marks, 1, batches[batch, 3], out, at)
        at = _put_int(texts, marks, 2, batches[batch, 13], out, at)
        at = _put_int(texts, marks, 3, batches[batch, 12], out, at)
        at = _put_int(texts, marks, 4, _sequence(batches, batch, batches[batch, 3]), out, at)
        at = _put_int(texts, marks, 5, batches[batch, 10], out, at)
        at = _put_int(texts, marks, 6, batches[batch, 11], out, at)
        at = _put_int(texts, marks, 7, batches[batch, 4], out, at)
        at = _put(texts, marks, 8 if flags & 0x10 else 9, out, at)
        at = _put(texts, marks, 10 if flags & 0x20 else 11, out, at)
        if flags & 0x40:
            at = _put_int(texts, marks, 12, batches[batch, 8], out, at)
            out[at] = 93
            at += 1
        else:
            at = _put(texts, marks, 13, out, at)
    else:
        at = _put_int(texts, marks, 14, batches[batch, 3], out, at)
    at = _put_int(texts, marks, 15, batches[batch, 0], out, at)
    at = _put_int(texts, marks, _timestamp_text(batches, batch), batches[batch, 9], out, at)
    at = _put_int(texts, marks, 19, batches[batch, 1], out, at)
    at = _put_int(texts, marks, 20, batches[batch, 5], out, at)
    at = _put(texts, marks, 21 + (flags & 7), out, at)
    at = _put_int(texts, marks, 26, batches[batch, 6], out, at)
    return _put(texts, marks, 27 if is_valid else 28, out, at)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_text(
    data: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes bytes as Java decodes them from UTF-8: what is malformed becomes U+FFFD. ``out`` must
    have space for three times as many."""
    i: cython.Py_ssize_t = start
    end: cython.Py_ssize_t = start + size
    stop: cython.Py_ssize_t
    k: cython.Py_ssize_t
    length: cython.Py_ssize_t
    others: cython.uchar
    while i < end:
        stop = i + 128 if end - i > 128 else end
        others = 0
        for k in range(i, stop):
            others |= data[k]
        if others < 128:
            at = copy(out, at, data, i, stop - i)
            i = stop
        while i < stop:
            if data[i] < 128:
                out[at] = data[i]
                at += 1
                i += 1
                continue
            length = utf8_length(data, i, end)
            if length > 0:
                at = copy(out, at, data, i, length)
            else:
                length = malformed_length(data, i, end)
                out[at] = 0xEF
                out[at + 1] = 0xBF
                out[at + 2] = 0xBD
                at += 3
            i += length
    return at


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_names(
    data: cython.const[cython.uchar][::1],
    header_at: cython.Py_ssize_t,
    count: cython.int,
    room: cython.Py_ssize_t,
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes the names of headers, separated by commas. Returns the position after them, -1 if that
    might leave less than ``room`` bytes of ``out``, or BAD_SPAN."""
    i: cython.int
    size: cython.Py_ssize_t
    for i in range(count):
        size, header_at = varint(data, header_at, data.shape[0], 5)
        if header_at < 0 or size < 0 or size > data.shape[0] - header_at:
            return -2
        if size * 3 + 1 + room > out.shape[0] - at:
            return -1
        if i > 0:
            out[at] = 44
            at += 1
        at = _write_text(data, header_at, size, out, at)
        header_at += size
        size, header_at = varint(data, header_at, data.shape[0], 5)
        if header_at < 0 or size > data.shape[0] - header_at:
            return -2
        if size > 0:
            header_at += size
    return at


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _space(
    data: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Returns the space that bytes may need as text, BAD_SPAN if they lie outside ``data``."""
    if start < 0 or size > data.shape[0] - start:
        return -2
    return size * 3 if size > 0 else 0


def write_batches(
    batches: cython.const[cython.longlong][:, ::1],
    first: cython.Py_ssize_t,
    is_valid: cython.bint,
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    out: cython.uchar[::1],
) -> tuple[int, int]:
    """Writes a line per batch, from batch ``first`` on, until ``out`` may be too small for another.
    Returns (batches written, bytes written)."""
    batch: cython.Py_ssize_t = first
    at: cython.Py_ssize_t = 0
    # sixteen numbers of at most twenty characters
    frame: cython.Py_ssize_t = texts.shape[0] + 320
    if first < 0 or batches.shape[1] < 14 or marks.shape[0] < 38:
        raise ValueError("columns of different lengths")
    with cython.nogil:
        while batch < batches.shape[0] and frame <= out.shape[0] - at:
            at = _write_batch(batches, batch, is_valid, texts, marks, out, at)
            batch += 1
    return batch - first, at


def write_records(
    data: cython.const[cython.uchar][::1],
    batches: cython.const[cython.longlong][:, ::1],
    first_row: cython.const[cython.longlong][::1],
    offsets: cython.const[cython.longlong][::1],
    timestamps: cython.const[cython.longlong][::1],
    spans: cython.const[cython.int][:, ::1],
    contents: cython.const[cython.uchar][::1],
    content_spans: cython.const[cython.int][:, ::1],
    checksums: cython.const[cython.longlong][::1],
    extras: cython.const[cython.uchar][::1],
    extra_ends: cython.const[cython.longlong][::1],
    has_metadata: cython.bint,
    has_contents: cython.bint,
    texts: cython.const[cython.uchar][::1],
    marks: cython.const[cython.int][::1],
    batch: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    out: cython.uchar[::1],
) -> tuple[int, int, int]:
    """Writes a line per batch, followed by one for each of its rows, from ``row`` on and with the
    batch lines from ``batch`` on, until ``out`` is full.

    ``content_spans``: start and size in ``contents`` of each row's key and payload, size -1 for
    what is not printed. ``checksums``: the CRC of each message, empty if all batches have magic 2.
    ``extras[extra_ends[i - 1]:extra_ends[i]]`` ends the metadata of row i, from row 0 on; empty if
    there is no control batch, whose contents are never printed. Returns (next batch, next row,
    bytes written or BAD_SPAN).
    """
    rows: cython.Py_ssize_t = spans.shape[0]
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    last: cython.Py_ssize_t
    key: cython.Py_ssize_t
    payload: cython.Py_ssize_t
    extra: cython.Py_ssize_t
    extra_size: cython.Py_ssize_t
    frame: cython.Py_ssize_t = texts.shape[0] + 320
    is_shown: cython.bint
    if (
        batch < 0
        or row < 0
        or first_row.shape[0] <= batches.shape[0]
        or batches.shape[1] < 14
        or offsets.shape[0] < rows
        or timestamps.shape[0] < rows
        or spans.shape[1] < 6
        or (has_contents and (content_spans.shape[0] < rows or content_spans.shape[1] < 4))
        or (checksums.shape[0] > 0 and checksums.shape[0] < rows)
        or (extra_ends.shape[0] > 0 and extra_ends.shape[0] < rows)
        or marks.shape[0] < 38
    ):
        raise ValueError("columns of different lengths")
    with cython.nogil:
        while True:
            limit = first_row[batch]
            if limit > rows:
                at = -2
                break
            if row >= limit:  # all rows of the batch before are written
                if batch == batches.shape[0] or frame > out.shape[0] - at:
                    break
                at = _write_batch(batches, batch, True, texts, marks, out, at)
                batch += 1
                continue
            if batch == 0:
                at = -2
                break
            last = batch - 1
            is_shown = has_contents and not (
                batches[last, 5] > 1 and (batches[last, 7] & 0x20) != 0
            )
            key = 0
            payload = 0
            if is_shown:
                key = _space(contents, content_spans[row, 0], content_spans[row, 1])
                payload = _space(contents, content_spans[row, 2], content_spans[row, 3])
            extra = 0
            extra_size = 0
            if extra_ends.shape[0] > 0:
                extra = extra_ends[row - 1] if row > 0 else 0
                extra_size = extra_ends[row] - extra
            if (
                key < 0
                or payload < 0
                or extra < 0
                or extra_size < 0
                or extra_size > extras.shape[0] - extra
                or spans[row, 4] < 0
            ):
                at = -2
                break
            if key + payload + extra_size + frame > out.shape[0] - at:
                break
            begin = at
            if has_metadata:
                at = _put_int(texts, marks, 29, offsets[row], out, at)
                at = _put_int(
                    texts, marks, _timestamp_text(batches, last), timestamps[row], out, at
                )
                at = _put_int(texts, marks, 30, max(spans[row, 1], -1), out, at)
                at = _put_int(texts, marks, 31, max(spans[row, 3], -1), out, at)
                if batches[last, 5] < 2:
                    if checksums.shape[0] == 0:
                        at = -2
                        break
                    at = _put_int(texts, marks, 34, checksums[row], out, at)
                else:
                    at = _put_int(texts, marks, 32, _sequence(batches, last, offsets[row]), out, at)
                    at = _put(texts, marks, 33, out, at)
                    at = _write_names(
                        data, spans[row, 4], spans[row, 5],
                        key + payload + extra_size + frame, out, at,
                    )  # fmt: skip
                    if at == -1:
                        at = begin  # the names do not fit: the next call writes this row
                        break
                    if at < 0:
                        break
                    out[at] = 93
                    at += 1
                at = copy(out, at, extras, extra, extra_size)
            elif is_shown and (content_spans[row, 1] >= 0 or content_spans[row, 3] >= 0):
                out[at] = 124
                at += 1
            if is_shown and content_spans[row, 1] >= 0:
                at = _put(texts, marks, 35, out, at)
                at = _write_text(contents, content_spans[row, 0], content_spans[row, 1], out, at)
            if is_shown and content_spans[row, 3] >= 0:
                at = _put(texts, marks, 36, out, at)
                at = _write_text(contents, content_spans[row, 2], content_spans[row, 3], out, at)
            out[at] = 10
            at += 1
            row += 1
    return batch, row, at
