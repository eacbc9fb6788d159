"""Converts Arrow tables to records that are to be written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from .batch import Int64s
from .record_columns import Field, Headers, RecordColumns

_WRITTEN: Final = ("key", "value", "timestamp", "headers")


def to_record_columns(table: pa.Table | pa.RecordBatch) -> RecordColumns:
    """Converts the columns key, value, timestamp and headers of ``table`` to records to be written;
    a missing column is null in every row. Contiguous values share the table's memory.

    key and value may be binary, string, their large variants or dictionaries of them; timestamp
    may have any unit and is truncated to ms. Raises TypeError for a column of another type.
    """
    rows = table.num_rows
    columns = {name: table.column(name) for name in _WRITTEN if name in table.schema.names}
    timestamps = np.full(rows, -1, dtype=np.int64)
    if "timestamp" in columns:
        timestamps = _milliseconds(columns["timestamp"])
    return RecordColumns(
        timestamps,
        _field(columns["key"]) if "key" in columns else Field.nulls(),
        _field(columns["value"]) if "value" in columns else Field.nulls(),
        _written_headers(columns["headers"]) if "headers" in columns else Headers.none(),
    )


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Returns a column as a single array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _milliseconds(column: pa.ChunkedArray | pa.Array) -> Int64s:
    array = _one_array(column)
    if not pa.types.is_timestamp(array.type):
        raise TypeError(f"timestamp is {array.type}, not a timestamp")
    unit = pa.timestamp("ms", array.type.tz)
    numbers = array.cast(unit, safe=False).cast(pa.int64()).fill_null(-1)
    result: Int64s = numbers.to_numpy(zero_copy_only=False)
    return result


def _field(column: pa.ChunkedArray | pa.Array) -> Field:
    array = _one_array(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        offset_type: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        offset_type = np.int64
    elif pa.types.is_null(kind):
        return Field.nulls()
    else:
        raise TypeError(f"a column of keys or values is {kind}, not binary or string")
    _, offsets, data = array.buffers()
    if not len(array):
        return Field.nulls()
    ends = np.frombuffer(offsets, dtype=offset_type)[array.offset : array.offset + len(array) + 1]
    starts = ends[:-1].astype(np.int64)
    sizes = ends[1:] - starts
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return Field(b"" if data is None else memoryview(data).cast("B"), starts, sizes)


def _written_headers(column: pa.ChunkedArray | pa.Array) -> Headers:
    array = _one_array(column)
    if pa.types.is_null(array.type):
        return Headers.none()
    if not (pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type)):
        raise TypeError(f"headers is {array.type}, not a list of structs")
    items = array.flatten()
    if not len(items):
        return Headers.none()
    names, values = _field(items.field("key")), _field(items.field("value"))
    if (names.sizes < 0).any():
        raise ValueError("a header's name is null")
    data = bytes(names.data) + bytes(values.data)
    moved = values.starts + len(names.data)
    spans = np.stack([names.starts, names.sizes, moved, values.sizes], axis=1)
    bounds = np.zeros(len(array) + 1, dtype=np.int64)
    np.cumsum(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), out=bounds[1:])
    return Headers(data, spans, bounds)
