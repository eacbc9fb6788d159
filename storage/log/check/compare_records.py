"""Compares records that two copies of a log have at the same offsets."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from ...format.kernels import gather
from ...format.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from ...format.records import batch as b
from ...format.records.batch import Bytes, Int32s, Int64s
from ...format.records.columns import (
    HEADER_COUNT,
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
)

Bools = NDArray[np.bool_]

# A batch's fields that are the same in two copies of it; the CRC covers the others.
_BATCH_FIELDS: Final = (b.BASE_OFFSET, b.SIZE, b.CRC, b.MAGIC)
# Of a span: where a header's name and value begin.
_NAME: Final = 0
_HEADER_VALUE: Final = 2


def different_records(first: Columns, second: Columns) -> Bools:
    """Returns which rows differ in timestamp or its type, key, value, headers, or in whether the
    record is a control record or part of a transaction: bool of shape (n,). Both have the same
    offsets."""
    differ: Bools = first.timestamps != second.timestamps
    differ |= first.timestamp_types() != second.timestamp_types()
    differ |= _flags(first) != _flags(second)
    for column in (KEY_SIZE, VALUE_SIZE, HEADER_COUNT):
        differ |= first.spans[:, column] != second.spans[:, column]
    rows = np.flatnonzero(~differ)  # of the same sizes
    one, other = first.where(~differ), second.where(~differ)
    for start in (KEY_START, VALUE_START):
        bad = _different_bytes(one.data, one.spans, other.data, other.spans, start)
        differ[rows[bad]] = True
    if one.spans[:, HEADER_COUNT].any():
        differ[rows[_different_headers(one, other)]] = True
    return differ


def different_epochs(first: Columns, second: Columns) -> Bools:
    """Returns which rows were written in different leader epochs: bool of shape (n,)."""
    differ: Bools = _of_batches(first, b.LEADER_EPOCH) != _of_batches(second, b.LEADER_EPOCH)
    return differ


def different_batches(first: Columns, second: Columns) -> Bools:
    """Returns which rows are in batches whose bytes differ: bool of shape (n,)."""
    differ = different_epochs(first, second)
    for column in _BATCH_FIELDS:
        differ |= _of_batches(first, column) != _of_batches(second, column)
    return differ


def _flags(columns: Columns) -> Int64s:
    flags: Int64s = _of_batches(columns, b.ATTRIBUTES) & (CONTROL_MASK | TRANSACTIONAL_MASK)
    return flags


def _of_batches(columns: Columns, column: int) -> Int64s:
    """Returns a field of each row's batch: int64 of shape (n,)."""
    return np.repeat(columns.batches.column(column), np.diff(columns.first_row))


def _different_headers(first: Columns, second: Columns) -> Int64s:
    """Returns the rows whose headers differ, ascending, perhaps repeatedly; all have the same
    number of headers."""
    counts = first.spans[:, HEADER_COUNT]
    spans = [_header_spans(columns) for columns in (first, second)]
    row_of = np.repeat(np.arange(len(first)), counts)
    sizes = (spans[0][:, 1::2] != spans[1][:, 1::2]).any(axis=1)
    found = [row_of[sizes]]
    same = np.flatnonzero(~sizes)
    one, other = (np.ascontiguousarray(each[same]) for each in spans)
    for start in (_NAME, _HEADER_VALUE):
        bad = _different_bytes(first.data, one, second.data, other, start)
        found.append(row_of[same[bad]])
    return np.concatenate(found)


def _header_spans(columns: Columns) -> Int32s:
    found = np.empty((int(gather.count_headers(columns.spans)), 4), dtype=np.int32)
    if gather.header_spans(columns.data, columns.spans, found) != len(found):
        raise _changed(columns)
    return found


def _different_bytes(
    first: Bytes, first_spans: Int32s, second: Bytes, second_spans: Int32s, column: int
) -> Int64s:
    """Returns the rows whose bytes at `column` differ, ascending, perhaps repeatedly. Their sizes
    are the same."""
    one, ends = _gathered(first, first_spans, column)
    other, _ = _gathered(second, second_spans, column)
    differ = np.flatnonzero(one != other)
    return np.searchsorted(ends, differ, side="right") - 1


def _gathered(data: Bytes, spans: Int32s, column: int) -> tuple[NDArray[np.uint8], Int32s]:
    """Returns the bytes of all rows one after the other, and where each begins."""
    size, _ = gather.measure(spans, column)
    out, starts = np.empty(size, dtype=np.uint8), np.empty(len(spans) + 1, dtype=np.int32)
    if gather.gather(data, spans, column, starts, out) != size:
        raise CorruptError("records changed while they were compared")
    return out, starts


def _changed(columns: Columns) -> CorruptError:
    return CorruptError("records changed while they were compared", columns.file)
