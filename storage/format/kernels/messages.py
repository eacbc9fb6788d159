"""Writes messages of Kafka's internal topics as JSON, by tables made from their schemas.

A row of ``fields`` is a field in a version of a message: 0 its kind (see ``_write_element``), 1 is
an array, 2 may be null, 3 its tag or -1, 4 and 5 start and size of its name in ``texts`` (with
quotes and colon), 6 and 7 of its default value as JSON, 8 and 9 the first row and the number of
its own fields. A head is what a message has in common: 0 and 1 its first row and the number of its
fields, -1 for none, 2 is in the flexible encoding, 3 and 4 start and size of the text before it.

What is malformed, and what needs more than these tables, is left to the caller: where a function
here returns a position, -1 stands for that, and NO_ROOM for ``out`` being too small.
"""

from __future__ import annotations

import cython

from ._primitives import copy, int32, int64
from ._protocol import (
    after_tags,
    find_tag,
    int16,
    read_length,
    unsigned_varint,
    write_boolean,
    write_null,
    write_string,
    write_uuid,
)
from ._text import write_base64, write_int

NO_ROOM = -2
# In place of a size: the row is left to the caller.
LEFT = -2


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _fixed_size(kind: cython.int) -> cython.Py_ssize_t:
    """Returns the size of a kind in bytes, 0 if it varies, -1 if it is left to the caller."""
    if kind < 2:
        return 1
    if kind < 4:
        return 2
    if kind == 4:
        return 4
    if kind == 5:
        return 8
    if kind == 6:
        return 16
    return 0 if kind < 10 else -1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _write_element(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    fields: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    may_be_null: cython.bint,
    is_flexible: cython.bint,
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
):
    """Writes a value that is no array. Kinds: 0 boolean, 1 int8, 2 int16, 3 uint16, 4 int32, 5
    int64, 6 uuid, 7 string, 8 bytes, 9 struct, 10 float64. Returns the positions after it in
    ``data`` and in ``out``."""
    kind: cython.int = fields[row, 0]
    size: cython.longlong = _fixed_size(kind)
    if size < 0 or size > end - at:
        return -1, pos
    if out.shape[0] - pos < 32:
        return -2, pos
    if kind == 9:
        return _write_struct(
            data, at, end, fields, fields[row, 8], fields[row, 9], is_flexible, texts, out, pos
        )
    if kind >= 7:
        size, at = read_length(data, at, end, 0 if is_flexible else 2 if kind == 7 else 4)
        if at < 0 or (size < 0 and not may_be_null):
            return -1, pos
        if size < 0:
            return at, write_null(out, pos)
        if size * 6 + 32 > out.shape[0] - pos:
            return -2, pos
        if kind == 7:
            pos = write_string(data, at, size, out, pos)
            return (at + size if pos >= 0 else -1), pos
        out[pos] = 34
        pos = write_base64(data, at, size, out, pos + 1)
        out[pos] = 34
        return at + size, pos + 1
    if kind == 0:
        pos = write_boolean(data[at] != 0, out, pos)
    elif kind == 1:
        pos = write_int(data[at] - 256 * (data[at] >> 7), out, pos)
    elif kind == 2:
        pos = write_int(int16(data, at), out, pos)
    elif kind == 3:
        pos = write_int(int16(data, at) & 0xFFFF, out, pos)
    elif kind == 4:
        pos = write_int(int32(data, at), out, pos)
    elif kind == 5:
        pos = write_int(int64(data, at), out, pos)
    else:
        pos = write_uuid(data, at, out, pos)
    return at + size, pos


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _write_value(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    fields: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    is_flexible: cython.bint,
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
):
    """Writes the value of a field. Returns the positions after it in ``data`` and in ``out``."""
    count: cython.longlong = 0
    i: cython.longlong
    is_nullable: cython.bint = fields[row, 2] != 0
    if out.shape[0] - pos < 32:
        return -2, pos
    if fields[row, 1] == 0:
        if fields[row, 0] == 9 and is_nullable:
            # Tagged structs encode null differently (MessageDataGenerator).
            if fields[row, 3] >= 0:
                count, at = unsigned_varint(data, at, end)
            elif at < end:
                count = 0 if data[at] > 127 else 1
                at += 1
            else:
                at = -1
            if at < 0 or count == 0:
                return at, write_null(out, pos)
        return _write_element(data, at, end, fields, row, is_nullable, is_flexible, texts, out, pos)
    count, at = read_length(data, at, end, 0 if is_flexible else 4)
    if at < 0 or (count < 0 and not is_nullable):
        return -1, pos
    if count < 0:
        return at, write_null(out, pos)
    out[pos] = 91
    pos += 1
    for i in range(count):
        if i > 0:
            out[pos] = 44  # there is space: an element leaves some, see below
            pos += 1
        at, pos = _write_element(data, at, end, fields, row, True, is_flexible, texts, out, pos)
        if at < 0:
            return at, pos
        if out.shape[0] - pos < 32:
            return -2, pos
    out[pos] = 93
    return at, pos + 1


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _is_default(
    fields: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.bint:
    """Returns whether the text of a value is that of the field's default."""
    i: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = fields[row, 7]
    if end - start != size:
        return False
    while i < size and out[start + i] == texts[fields[row, 6] + i]:
        i += 1
    return i == size


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _write_fields(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    fields: cython.const[cython.int][:, ::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    is_flexible: cython.bint,
    tags_at: cython.Py_ssize_t,
    tags: cython.longlong,
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
):
    """Writes the fields at ``at`` and, among them in the order of the schema, those of the ``tags``
    tagged fields at ``tags_at`` that differ from their default. Returns the positions after the
    former in ``data``, and in ``out``."""
    row: cython.Py_ssize_t
    begin: cython.Py_ssize_t = pos
    before: cython.Py_ssize_t
    start: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    for row in range(first, first + count):
        start = at
        stop = end
        if fields[row, 3] >= 0:
            start, stop = find_tag(data, tags_at, end, tags, fields[row, 3])
            if start < 0:
                continue
        if fields[row, 5] + 64 > out.shape[0] - pos:
            return -2, pos
        before = pos
        if pos > begin:
            out[pos] = 44
            pos += 1
        pos = copy(out, pos, texts, fields[row, 4], fields[row, 5])
        start, stop = _write_value(data, start, stop, fields, row, is_flexible, texts, out, pos)
        if start < 0:
            return start, pos
        if fields[row, 3] < 0:
            at = start
        elif _is_default(fields, row, texts, out, pos, stop):
            stop = before
        pos = stop
    return at, pos


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
@cython.returns((cython.Py_ssize_t, cython.Py_ssize_t))
def _write_struct(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    fields: cython.const[cython.int][:, ::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    is_flexible: cython.bint,
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
):
    """Writes an object. Returns the positions after it in ``data`` and in ``out``."""
    start: cython.Py_ssize_t = at
    begin: cython.Py_ssize_t
    tags_at: cython.Py_ssize_t
    tags: cython.longlong
    if out.shape[0] - pos < 64:
        return -2, pos
    out[pos] = 123
    pos += 1
    begin = pos
    at, pos = _write_fields(data, at, end, fields, first, count, is_flexible, 0, 0, texts, out, pos)
    if at >= 0 and is_flexible:
        tags, at = unsigned_varint(data, at, end)
        if at >= 0 and tags > 0:
            # Again, since some of them may come before others that were just written.
            tags_at = at
            at = after_tags(data, at, end, tags)
            if at >= 0:
                start, pos = _write_fields(
                    data, start, end, fields, first, count, is_flexible, tags_at, tags,
                    texts, out, begin,
                )  # fmt: skip
                if start < 0:
                    return start, pos
    if at < 0:
        return at, pos
    if out.shape[0] - pos < 32:
        return -2, pos
    out[pos] = 125
    return at, pos + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_message(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    heads: cython.const[cython.int][:, ::1],
    head: cython.longlong,
    fields: cython.const[cython.int][:, ::1],
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a message between the text of its head and a brace. Returns the position after it in
    ``out``."""
    if head < 0 or head >= heads.shape[0] or heads[head, 0] < 0:
        return -1
    if heads[head, 4] + 64 > out.shape[0] - pos:
        return -2
    pos = copy(out, pos, texts, heads[head, 3], heads[head, 4])
    at, pos = _write_struct(
        data, at, end, fields, heads[head, 0], heads[head, 1], heads[head, 2] != 0, texts, out, pos
    )
    if at < 0:
        return at
    out[pos] = 125  # there is space: see the end of _write_struct
    return pos + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_coordinator_value(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    number: cython.longlong,
    versions: cython.longlong,
    heads: cython.const[cython.int][:, ::1],
    fields: cython.const[cython.int][:, ::1],
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a value that begins with its version; null is the first text."""
    version: cython.longlong
    if size < 0:
        if out.shape[0] - pos < 32:
            return -2
        return copy(out, pos, texts, 0, 8)
    if size < 2:
        return -1
    version = int16(data, at)
    if version < 0 or version >= versions:
        return -1
    return _write_message(
        data, at + 2, at + size, heads, number * versions + version, fields, texts, out, pos
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _write_metadata_value(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    versions: cython.longlong,
    heads: cython.const[cython.int][:, ::1],
    fields: cython.const[cython.int][:, ::1],
    texts: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
    pos: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Writes a value that begins with frame version 1, its message's number and version."""
    end: cython.Py_ssize_t = at + size
    frame: cython.longlong
    number: cython.longlong
    version: cython.longlong
    if size < 0:
        return -1
    frame, at = unsigned_varint(data, at, end)
    if at < 0 or frame != 1:
        return -1
    number, at = unsigned_varint(data, at, end)
    if at < 0:
        return -1
    version, at = unsigned_varint(data, at, end)
    if at < 0 or version >= versions or number >= heads.shape[0]:
        return -1
    return _write_message(
        data, at, end, heads, number * versions + version, fields, texts, out, pos
    )


def write_messages(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    row: cython.Py_ssize_t,
    fields: cython.const[cython.int][:, ::1],
    keys: cython.const[cython.int][:, ::1],
    values: cython.const[cython.int][:, ::1],
    versions: cython.Py_ssize_t,
    texts: cython.const[cython.uchar][::1],
    results: cython.int[:, ::1],
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Writes the keys and values of records, from ``row`` on, to ``out[at:]`` until that is full.

    ``keys``: the heads of keys by number. Without any, keys are not written, and values are those
    of cluster metadata. ``values``: the heads of values, by number times ``versions`` plus version.
    ``results``: for each row start and size in ``out`` of its key, then of its value; size -1 for a
    key that is not written, LEFT in place of the key's for rows left to the caller. ``texts``
    begins with what stands for a null value. Returns the next row, and the end of what was written.
    """
    rows: cython.Py_ssize_t = spans.shape[0]
    pos: cython.Py_ssize_t
    middle: cython.Py_ssize_t
    number: cython.longlong
    if (
        row < 0
        or at < 0
        or versions < 1
        or spans.shape[1] < 6
        or fields.shape[1] < 10
        or keys.shape[1] < 5
        or values.shape[1] < 5
        or results.shape[0] < rows
        or results.shape[1] < 4
        or texts.shape[0] < 8
        or out.shape[0] > 0x7FFFFFFF
    ):
        raise ValueError("tables of different shapes")
    with cython.nogil:
        while row < rows:
            if (
                spans[row, 0] < 0
                or spans[row, 2] < 0
                or spans[row, 1] > data.shape[0] - spans[row, 0]
                or spans[row, 3] > data.shape[0] - spans[row, 2]
            ):
                pos = -1
                middle = at
            elif keys.shape[0] == 0:
                middle = at
                pos = _write_metadata_value(
                    data, spans[row, 2], spans[row, 3], versions, values, fields, texts, out, at
                )
            else:
                number = int16(data, spans[row, 0]) if spans[row, 1] >= 2 else -1
                middle = at
                pos = -1
                if number >= 0 and number < keys.shape[0]:
                    pos = _write_message(
                        data, spans[row, 0] + 2, spans[row, 0] + spans[row, 1],
                        keys, number, fields, texts, out, at,
                    )  # fmt: skip
                if pos >= 0:
                    middle = pos
                    pos = _write_coordinator_value(
                        data, spans[row, 2], spans[row, 3], number, versions,
                        values, fields, texts, out, middle,
                    )  # fmt: skip
            if pos == -2:
                break
            results[row, 0] = at
            results[row, 1] = middle - at if keys.shape[0] > 0 else -1
            results[row, 2] = middle
            results[row, 3] = pos - middle
            if pos < 0:
                results[row, 1] = -2
            else:
                at = pos
            row += 1
    return row, at
