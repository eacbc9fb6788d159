"""Records as Arrow: the schema of Spark's Kafka source, and columns of records in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from ..errors import CorruptError
from .batch import Int32s, Int64s
from .columns import HEADER_COUNT, KEY_START, VALUE_START, Columns
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
