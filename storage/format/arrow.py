"""Records as Arrow: the schema of Spark's Kafka source, and columns of records in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..errors import CorruptError
from .batch import Int32s, Int64s
from .columns import HEADER_COUNT, KEY_START, VALUE_START, Columns
from .encoder import Field, Headers, RecordColumns
from .kernels import gather as kernel

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(_HEADER)),
    ]
)


def schema_of(names: Sequence[str] | None = None) -> pa.Schema:
    """SCHEMA, or the fields of it that ``names`` chooses, in its order. KeyError for others."""
    if names is None:
        return SCHEMA
    unknown = [name for name in names if name not in SCHEMA.names]
    if unknown:
        raise KeyError(unknown[0])
    return pa.schema([field for field in SCHEMA if field.name in set(names)])


def to_record_batch(
    columns: Columns, topic: str, partition: int, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    """The records as one batch, sharing no memory with ``columns``; only the chosen fields are
    made. A timestamp of -1 (none) is null."""
    schema = schema_of(names)
    arrays = [_MAKERS[field.name](columns, topic, partition) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(columns: Columns, spans: Int32s, start: int, kind: pa.DataType) -> pa.Array:
    rows = len(spans)
    sizes = spans[:, start + 1]
    total = int(np.maximum(sizes, 0).sum(dtype=np.int64))
    offsets = pa.allocate_buffer(4 * (rows + 1))
    data = pa.allocate_buffer(total)
    valid = np.zeros((rows + 7) // 8, dtype=np.uint8)
    nulls = kernel.gather(
        columns.data,
        spans,
        start,
        np.frombuffer(offsets, dtype=np.int32),
        np.frombuffer(data, dtype=np.uint8),
        valid,
    )
    if nulls < 0:
        raise CorruptError("records changed while they were copied", columns.file)
    validity = pa.py_buffer(valid) if nulls else None
    return pa.Array.from_buffers(kind, rows, [validity, offsets, data], nulls)


def _key(columns: Columns, topic: str, partition: int) -> pa.Array:
    return _binary(columns, columns.spans, KEY_START, pa.binary())


def _value(columns: Columns, topic: str, partition: int) -> pa.Array:
    return _binary(columns, columns.spans, VALUE_START, pa.binary())


def _topic(columns: Columns, topic: str, partition: int) -> pa.Array:
    return _constant(topic, pa.string(), _rounded(len(columns))).slice(0, len(columns))


def _partition(columns: Columns, topic: str, partition: int) -> pa.Array:
    return _constant(partition, pa.int32(), _rounded(len(columns))).slice(0, len(columns))


def _offset(columns: Columns, topic: str, partition: int) -> pa.Array:
    return _fixed(pa.int64(), columns.offsets)


def _timestamp(columns: Columns, topic: str, partition: int) -> pa.Array:
    kind = SCHEMA.field("timestamp").type
    if len(columns) and columns.timestamps.min() < 0:
        missing = columns.timestamps == -1
        return pa.array(columns.timestamps, mask=missing).cast(kind)
    return _fixed(kind, columns.timestamps)


def _timestamp_type(columns: Columns, topic: str, partition: int) -> pa.Array:
    types = columns.timestamp_types()
    if len(types) and (types == types[0]).all():
        return _constant(int(types[0]), pa.int32(), _rounded(len(types))).slice(0, len(types))
    return _fixed(pa.int32(), types)


def _fixed(kind: pa.DataType, values: Int64s | Int32s) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values.tobytes())], 0)


def _rounded(rows: int) -> int:
    """A power of two, so that few constants serve all batches."""
    return 1 << max(rows - 1, 1).bit_length()


@lru_cache(maxsize=64)
def _constant(value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), rows)


def _headers(columns: Columns, topic: str, partition: int) -> pa.Array:
    counts = columns.spans[:, HEADER_COUNT]
    ends = np.zeros(len(columns) + 1, dtype=np.int32)
    np.cumsum(counts, out=ends[1:])
    spans = np.empty((int(ends[-1]), 4), dtype=np.int32)
    if kernel.header_spans(columns.data, columns.spans, spans) != len(spans):
        raise CorruptError("records changed while they were copied", columns.file)
    fields = [_names(columns, spans), _binary(columns, spans, 2, pa.binary())]
    items = pa.StructArray.from_arrays(fields, fields=list(_HEADER))
    return pa.ListArray.from_arrays(pa.array(ends), items, type=SCHEMA.field("headers").type)


def _names(columns: Columns, spans: Int32s) -> pa.Array:
    """Names of headers. Those that are not UTF-8 get replacement characters, as in Kafka."""
    names = _binary(columns, spans, 0, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        raw = names.view(pa.binary()).to_pylist()
        return pa.array([name.decode("utf-8", "replace") for name in raw], pa.string())
    return names


_MAKERS: Final[dict[str, Callable[[Columns, str, int], pa.Array]]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}


def to_record_columns(table: pa.Table | pa.RecordBatch) -> RecordColumns:
    """Records to be written, from the columns key, value, timestamp and headers of ``table``; what
    is missing is null in every row. Values share the table's memory where they lie in one piece.

    TypeError for a column of another type: key and value may be binary or string, of either size;
    timestamp any timestamp (more precise ones are cut down to ms).
    """
    rows = table.num_rows
    columns = {name: table.column(name) for name in _WRITTEN if name in table.schema.names}
    timestamps = np.full(rows, -1, dtype=np.int64)
    if "timestamp" in columns:
        timestamps = _milliseconds(columns["timestamp"])
    return RecordColumns(
        timestamps,
        _field(columns["key"]) if "key" in columns else Field.nulls(rows),
        _field(columns["value"]) if "value" in columns else Field.nulls(rows),
        _written_headers(columns["headers"]) if "headers" in columns else Headers.none(),
    )


_WRITTEN: Final = ("key", "value", "timestamp", "headers")


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column of a table in one piece."""
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
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        offset_type: type[np.signedinteger[Any]] = np.int32
    elif pa.types.is_large_binary(kind) or pa.types.is_large_string(kind):
        offset_type = np.int64
    elif pa.types.is_null(kind):
        return Field.nulls(len(array))
    else:
        raise TypeError(f"a column of keys or values is {kind}, not binary or string")
    _, offsets, data = array.buffers()
    if not len(array):
        return Field.nulls(0)
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
