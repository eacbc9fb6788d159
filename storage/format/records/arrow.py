"""Converts records to Arrow, in the schema of Spark's Kafka source.

A record batch is written once, into one piece of memory, as an encapsulated message of Arrow's
stream format: metadata, then a body with all buffers. The RecordBatch object is a view of that
message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ...errors import CorruptError
from ..kernels import gather as kernel
from ..primitives import decode_utf8
from .batch import Int32s, Int64s
from .buffer_pool import BUFFERS
from .columns import HEADER_COUNT, KEY_SIZE, KEY_START, VALUE_SIZE, VALUE_START, Columns

_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
RECORD_SCHEMA: Final = pa.schema(
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
# Buffers in a message body start at multiples of this.
_ALIGNMENT: Final = 8
_NOT_ASCII: Final = 0x80
# With more sizes of header keys, each key is checked by itself.
_KEY_SIZES: Final = 32
# A record with every field set, so that the template message has every buffer.
_SAMPLE: Final[dict[str, Any]] = {
    "key": b"k",
    "value": b"v",
    "topic": "t",
    "partition": 1,
    "offset": 1,
    "timestamp": 1,
    "timestampType": 1,
    "headers": [{"key": "h", "value": b"v"}],
}

_NOTHING: Final = memoryview(b"")
# How many buffers the kernel's ``write`` takes: all of a batch without keys and headers.
_WRITTEN: Final = 12
_PADDING: Final = bytes(_ALIGNMENT)
_NO_SPANS: Final[Int32s] = np.empty((0, 6), dtype=np.int32)
# Bytes counted per record and header, besides keys and values, to decide where a table ends.
_ROW_BYTES: Final = 64


class TableLimits(NamedTuple):
    """A table's limits: it ends with its `rows`-th record or the one that reaches `size` bytes."""

    rows: int
    size: int


#: For a record batch of an Arrow stream, and for a row group of a Parquet file.
RECORD_BATCH_LIMITS: Final = TableLimits(1 << 14, 4 << 20)
ROW_GROUP_LIMITS: Final = TableLimits(1 << 17, 16 << 20)


def schema_of(names: Sequence[str] | None = None) -> pa.Schema:
    """Returns RECORD_SCHEMA, or its fields in ``names``, in RECORD_SCHEMA's order. Raises KeyError
    for others."""
    return _form(None if names is None else tuple(names)).schema


def to_record_batch(
    columns: Columns, topic: str, partition: int, names: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Returns the records as one batch of the fields in ``names``, sharing no memory with
    ``columns``. A timestamp of -1 (none) becomes null."""
    message = pa.py_buffer(to_message(columns, topic, partition, names))
    return pa.ipc.read_record_batch(message, schema_of(names))


def to_message(
    columns: Columns, topic: str, partition: int, names: Sequence[str] | None = None
) -> memoryview:
    """Returns the same batch as an encapsulated message of an Arrow stream."""
    form = _form(None if names is None else tuple(names))
    body = _Body(columns)
    for write in form.writers:
        write(body, columns, topic, partition)
    return form.envelope.message(len(columns), body)


class _Totals(NamedTuple):
    """The result of the kernel's ``totals``."""

    key_bytes: int
    null_keys: int
    value_bytes: int
    null_values: int
    headers: int
    least_timestamp: int


class _Body:
    """The parts of a message body: the length and null count of each array (``nodes``, flattened)
    and the sizes of its buffers, each of which is copied or gathered from the records."""

    __slots__ = ("_columns", "_copied", "_gathered", "nodes", "sizes", "totals")

    def __init__(self, columns: Columns) -> None:
        self.totals = _Totals(*kernel.totals(columns.spans, columns.timestamps))
        self.nodes: list[int] = []
        self.sizes: list[int] = []
        self._columns = columns
        # With the number of the buffer; a column that is gathered has two: offsets and bytes.
        self._copied: list[tuple[int, memoryview]] = []
        self._gathered: list[tuple[int, Int32s, int]] = []

    def add(self, *buffers: memoryview) -> None:
        for buffer in buffers:
            if size := len(buffer):
                self._copied.append((len(self.sizes), buffer))
            self.sizes.append(size)

    def add_gathered(self, spans: Int32s, column: int, size: int) -> None:
        """Adds the offsets and the bytes, ``size`` in all, of a column of spans."""
        self._gathered.append((len(self.sizes), spans, column))
        self.sizes += (4 * (len(spans) + 1), size)

    def write(self, out: memoryview, starts: Sequence[int]) -> None:
        """Writes the buffers to ``out`` at ``starts``, whose last element is the body's end."""
        for end, size in zip(starts[1:], self.sizes, strict=True):
            if size % _ALIGNMENT:
                out[end - _ALIGNMENT : end] = _PADDING
        copied, numbers = self._copied, out.cast("i")
        places: list[tuple[Int32s, list[tuple[int, int, int, int]]]] = []
        for index, spans, column in self._gathered:
            at = starts[index + 1]
            place = column, starts[index] // 4, at, at + self.sizes[index + 1]
            if places and places[-1][0] is spans:
                places[-1][1].append(place)
            else:
                places.append((spans, [place]))
        while copied or places:
            some, copied = copied[:_WRITTEN], copied[_WRITTEN:]
            parts = [part for _, part in some] + [_NOTHING] * (_WRITTEN - len(some))
            positions = [starts[index] for index, _ in some] + [0] * (_WRITTEN - len(some))
            spans, gathered = places.pop() if places else (_NO_SPANS, [])
            if not kernel.write(
                out, numbers, np.array(positions, dtype=np.int64), *parts,
                self._columns.data, spans, np.array(gathered, dtype=np.int64).reshape(-1, 4),
            ):  # fmt: skip
                raise CorruptError("records changed while they were copied", self._columns.file)


@dataclass(frozen=True, slots=True)
class _Envelope:
    """A message's metadata as pyarrow writes it, and the positions in it of the numbers that vary
    between messages: all lengths and sizes."""

    metadata: bytes
    rows_at: int
    nodes_at: int
    buffers_at: int
    body_size_at: int

    def message(self, rows: int, body: _Body) -> memoryview:
        starts = [0, *accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in body.sizes)]
        begin = len(self.metadata)
        message = BUFFERS.acquire(begin + starts[-1])
        message[:begin] = self.metadata
        struct.pack_into("<q", message, self.rows_at, rows)
        struct.pack_into("<q", message, self.body_size_at, starts[-1])
        struct.pack_into(f"<{len(body.nodes)}q", message, self.nodes_at, *body.nodes)
        buffers = [number for pair in zip(starts, body.sizes, strict=False) for number in pair]
        struct.pack_into(f"<{len(buffers)}q", message, self.buffers_at, *buffers)
        body.write(message[begin:], starts)
        return message


_Writer = Callable[[_Body, Columns, str, int], None]


class _Form(NamedTuple):
    """What the batches of some fields have in common. ``writers`` add the fields to a body."""

    schema: pa.Schema
    envelope: _Envelope
    writers: tuple[_Writer, ...]


@lru_cache(maxsize=64)
def _form(names: tuple[str, ...] | None) -> _Form:
    """Returns the form of batches with these fields of RECORD_SCHEMA."""
    schema = RECORD_SCHEMA
    if names is not None:
        for name in names:
            if name not in RECORD_SCHEMA.names:
                raise KeyError(name)
        schema = pa.schema([field for field in RECORD_SCHEMA if field.name in names])
    return _Form(schema, _envelope(schema), tuple(_WRITERS[name] for name in schema.names))


def _envelope(schema: pa.Schema) -> _Envelope:
    """Derives the envelope from a message that pyarrow wrote: its flatbuffer has the same layout
    for any records."""
    data = pa.RecordBatch.from_pylist([_SAMPLE], schema).serialize().to_pybytes()
    (size,) = struct.unpack_from("<i", data, 4)
    message = _at(data, 8)
    header = _at(data, message + _field_at(data, message, 2))
    return _Envelope(
        metadata=data[: 8 + size],
        rows_at=header + _field_at(data, header, 0),
        # a vector is preceded by its length
        nodes_at=_at(data, header + _field_at(data, header, 1)) + 4,
        buffers_at=_at(data, header + _field_at(data, header, 2)) + 4,
        body_size_at=message + _field_at(data, message, 3),
    )


def _at(data: bytes, position: int) -> int:
    """Returns the target of the flatbuffer reference at ``position``."""
    return position + int(struct.unpack_from("<I", data, position)[0])


def _field_at(data: bytes, table: int, number: int) -> int:
    """Returns the position of a field in a flatbuffer table, relative to the table's start."""
    (back,) = struct.unpack_from("<i", data, table)
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return int(offset)


def _binary(body: _Body, spans: Int32s, column: int, size: int, nulls: int) -> None:
    """Adds the binary column whose spans are in ``column``: ``size`` bytes, ``nulls`` null rows."""
    rows = len(spans)
    body.nodes += (rows, nulls)
    if nulls == rows:
        body.add(_zeros((rows + 7) // 8), _zeros(4 * (rows + 1)), _NOTHING)
        return
    body.add(_bits(spans[:, column + 1] >= 0) if nulls else _NOTHING)
    body.add_gathered(spans, column, size)


def _key(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    totals = body.totals
    _binary(body, columns.spans, KEY_START, totals.key_bytes, totals.null_keys)


def _value(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    totals = body.totals
    _binary(body, columns.spans, VALUE_START, totals.value_bytes, totals.null_values)


def _topic(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    rows = len(columns)
    ends, names = _repeated(topic, _rounded(rows))
    body.nodes += (rows, 0)
    body.add(_NOTHING, ends[: 4 * (rows + 1)], names[: rows * (len(names) // _rounded(rows))])


def _partition(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    _fixed(body, _constant(partition, len(columns)))


def _offset(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    _fixed(body, columns.offsets)


def _timestamp(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    timestamps = columns.timestamps
    valid = None
    if body.totals.least_timestamp < 0:
        valid = timestamps != -1
    _fixed(body, timestamps, valid)


def _timestamp_type(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    of_all = columns.timestamp_type()
    _fixed(body, columns.timestamp_types() if of_all is None else _constant(of_all, len(columns)))


def _headers(body: _Body, columns: Columns, topic: str, partition: int) -> None:
    rows = len(columns)
    count = body.totals.headers
    body.nodes += (rows, 0, count, 0)  # the lists, and the (key, value) structs in them
    if not count:
        body.nodes += (0, 0, 0, 0)
        body.add(_NOTHING, _zeros(4 * (rows + 1)), _NOTHING)
        body.add(_NOTHING, _zeros(4), _NOTHING, _NOTHING, _zeros(4), _NOTHING)
        return
    spans = np.empty((count, 4), dtype=np.int32)
    ends = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(columns.spans[:, HEADER_COUNT], out=ends[1:])
    if kernel.header_spans(columns.data, columns.spans, spans) != count:
        raise CorruptError("records changed while they were copied", columns.file)
    body.add(_NOTHING, _bytes_of(ends), _NOTHING)
    if _are_utf8(columns, spans):
        _binary(body, spans, 0, *kernel.measure(spans, 0))
    else:
        _names_made_utf8(body, columns, spans)
    _binary(body, spans, 2, *kernel.measure(spans, 2))


def _are_utf8(columns: Columns, spans: Int32s) -> bool:
    """Returns whether all header keys are valid UTF-8. Almost all keys are ASCII and have one of a
    few sizes, which is checked without an object for each."""
    data = np.frombuffer(columns.data, dtype=np.uint8)
    sizes = np.unique(spans[:, 1])
    if len(sizes) <= _KEY_SIZES and all(
        sliding_window_view(data, size)[spans[spans[:, 1] == size, 0]].max() < _NOT_ASCII
        for size in sizes.tolist()
        if size
    ):
        return True
    for start, size in set(map(tuple, spans[:, :2].tolist())):
        try:
            str(columns.data[start : start + size], "utf-8")
        except UnicodeDecodeError:
            return False
    return True


def _names_made_utf8(body: _Body, columns: Columns, spans: Int32s) -> None:
    """Adds the header keys with replacement characters for invalid UTF-8, as Kafka does."""
    data = columns.data
    names = [
        decode_utf8(bytes(data[start : start + size])).encode()
        for start, size in spans[:, :2].tolist()
    ]
    ends = np.array([0, *accumulate(map(len, names))], dtype=np.int32)
    body.nodes += (len(names), 0)
    body.add(_NOTHING, _bytes_of(ends), memoryview(b"".join(names)))


def _fixed(body: _Body, values: Int64s | Int32s, valid: NDArray[np.bool_] | None = None) -> None:
    if valid is not None and valid.all():
        valid = None
    nulls = 0 if valid is None else len(values) - int(np.count_nonzero(valid))
    body.nodes += (len(values), nulls)
    body.add(_NOTHING if valid is None else _bits(valid), _bytes_of(values))


def _bits(valid: NDArray[np.bool_]) -> memoryview:
    return np.packbits(valid, bitorder="little").data


def _bytes_of(numbers: Int64s | Int32s) -> memoryview:
    return numbers.data.cast("B") if len(numbers) else _NOTHING


def _rounded(rows: int) -> int:
    """Rounds up to a power of two, so that a few cached constants serve all batches."""
    return 1 << max(rows - 1, 1).bit_length()


def _zeros(size: int) -> memoryview:
    return _bytes_of(_constant(0, (size + 3) // 4))[:size]


def _constant(value: int, rows: int) -> Int32s:
    return _constants(value, _rounded(rows))[:rows]


@lru_cache(maxsize=64)
def _constants(value: int, rows: int) -> Int32s:
    return np.full(rows, value, dtype=np.int32)


@lru_cache(maxsize=16)
def _repeated(text: str, rows: int) -> tuple[memoryview, memoryview]:
    """Returns the Arrow offsets (int32, ``rows`` + 1 of them) and bytes of ``text`` repeated."""
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return _bytes_of(ends), memoryview(data * rows)


_WRITERS: Final[dict[str, _Writer]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}


def record_tables(
    parts: Iterable[Columns], to_batch: Callable[[Columns], pa.RecordBatch], limits: TableLimits
) -> Iterator[tuple[int, pa.Table]]:
    """Yields single-chunk tables of what `to_batch` makes of records, such as `to_record_batch`,
    each with the offset of its first record.

    A scan yields columns whose boundaries depend on how the reads happened. Here a table's end
    depends only on its first record and those after it, so that every read of a log gives the same
    tables.
    """
    held: list[pa.RecordBatch] = []
    first = -1
    for columns, is_full in cut(parts, limits):
        if not held:
            first = int(columns.offsets[0])
        held.append(to_batch(columns))
        if is_full:
            yield first, _joined(held)
            held = []
    if held:
        yield first, _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches).combine_chunks()


def cut(parts: Iterable[Columns], limits: TableLimits) -> Iterator[tuple[Columns, bool]]:
    """Yields the columns, cut where a table ends, and whether they end one. Columns are valid until
    the next are requested."""
    rows = size = 0
    for part in parts:
        sizes = _sizes(part)
        low = 0
        while low < len(part):
            ahead = sizes[low : low + limits.rows - rows]
            totals = np.cumsum(ahead) + size
            filling = int(np.searchsorted(totals, limits.size))
            is_full = filling < len(ahead) or rows + len(ahead) == limits.rows
            high = low + min(filling + 1, len(ahead))
            yield part.slice(low, high), is_full
            rows, size = (0, 0) if is_full else (rows + high - low, int(totals[-1]))
            low = high


def _sizes(columns: Columns) -> Int64s:
    """Returns the counted size of each record in bytes: int64 of shape (n,)."""
    spans = columns.spans
    sizes: Int64s = np.maximum(spans[:, (KEY_SIZE, VALUE_SIZE)], 0).sum(axis=1, dtype=np.int64)
    sizes += _ROW_BYTES
    count = kernel.count_headers(spans)
    if count:
        headers = np.empty((count, 4), dtype=np.int32)
        kernel.header_spans(columns.data, spans, headers)
        of_each = np.maximum(headers[:, (1, 3)], 0).sum(axis=1, dtype=np.int64) + _ROW_BYTES
        rows = np.repeat(np.arange(len(columns)), spans[:, HEADER_COUNT])
        np.add.at(sizes, rows, of_each)
    return sizes
