"""Encodes columns of records into as many batches of magic 2 as they need.

This produces, fast, what a producer would send; ``builder.py`` builds a single batch with anything
that a log may hold. Both produce the same bytes for the same batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidTimestamp, MessageTooLarge
from .. import layout
from ..checksum import crc32c
from ..kernels import encode as kernel
from ..kernels import gather
from ..layout import Codec, TimestampType
from . import batch as b
from .batch import BatchTable, Bytes, Int64s
from .builder import SimpleRecord
from .columns import (
    HEADER_COUNT,
    HEADER_START,
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
)
from .compress import compress

if TYPE_CHECKING:
    import pyarrow as pa

# The default of Kafka's batch.size, the maximum size of a producer's batch in bytes.
DEFAULT_BATCH_BYTES: Final = 16384
# The maximum size of a record in bytes without key, value and headers: length, attributes,
# timestamp delta, offset delta, key length, value length, header count. A header has two lengths.
RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD: Final = 5 + 5
# A batch header with the fields that all batches of a run share; the others are zero.
_TEMPLATE: Final = struct.Struct(">8xiiBIhiqqqhii")
_SIZE: Final = struct.Struct(">i")
_NOTHING: Final[Int64s] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The fields that all batches share, and their maximum size.

    `batch_bytes`: the maximum size of header and uncompressed records (a larger record gets a batch
    of its own). `level` None: Kafka's default for the codec. `append_time`: ms since 1970, the max
    timestamp of every batch with LogAppendTime. `base_sequence`: that of the first record; it
    continues from batch to batch and wraps at 2**31.
    """

    base_offset: int = 0
    leader_epoch: int = 0
    batch_bytes: int = DEFAULT_BATCH_BYTES
    codec: Codec = Codec.NONE
    level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    append_time: int = layout.NO_TIMESTAMP
    producer_id: int = layout.NO_PRODUCER_ID
    producer_epoch: int = layout.NO_PRODUCER_EPOCH
    base_sequence: int = layout.NO_SEQUENCE
    is_transactional: bool = False

    @property
    def attributes(self) -> int:
        """The attribute bits of the batch headers."""
        bits = int(self.codec)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            bits |= layout.TIMESTAMP_TYPE_MASK
        if self.is_transactional:
            bits |= layout.TRANSACTIONAL_MASK
        return bits


@dataclass(frozen=True, slots=True)
class Encoded:
    """Consecutive batches in ``data``, which shares no memory, and their headers in ``table``, with
    positions relative to ``data``."""

    data: memoryview
    table: BatchTable


@dataclass(frozen=True, slots=True)
class Field:
    """A column of byte strings: int64 ``starts`` and ``sizes`` of shape (n,), which refer to
    ``data``; size -1 is null. If the arrays are empty, every row is null."""

    data: Bytes
    starts: Int64s
    sizes: Int64s

    @classmethod
    def of(cls, values: Sequence[bytes | None]) -> Field:
        sizes: Int64s = np.empty(len(values), dtype=np.int64)
        nulls = kernel.measure(values, sizes)
        if nulls:
            data = b"".join(value for value in values if value is not None)
            ends = np.cumsum(np.maximum(sizes, 0))
            return cls(data, ends - np.maximum(sizes, 0), sizes)
        data = b"".join(cast("list[bytes]", values))
        return cls(data, np.cumsum(sizes) - sizes, sizes)

    @classmethod
    def joined(cls, fields: Sequence[Field], rows: Sequence[int]) -> Field:
        """Concatenates fields, of which ``rows`` gives the row counts; copies all their bytes."""
        if not any(len(field.sizes) for field in fields):
            return cls.nulls()
        before = np.cumsum([0, *(len(field.data) for field in fields[:-1])])
        filled = [field.filled(count) for field, count in zip(fields, rows, strict=True)]
        return cls(
            b"".join(field.data for field in fields),
            np.concatenate([field.starts for field in filled]) + np.repeat(before, rows),
            np.concatenate([field.sizes for field in filled]),
        )

    @classmethod
    def nulls(cls) -> Field:
        """Returns a field that is null in every row."""
        return cls(b"", _NOTHING, _NOTHING)

    @property
    def nbytes(self) -> int:
        """An upper bound of the bytes of the values."""
        return int(self.sizes.sum()) + len(self.sizes) if len(self.sizes) else 0

    def is_null(self, rows: int) -> NDArray[np.bool_]:
        """Returns a mask of the null rows."""
        nulls: NDArray[np.bool_] = self.sizes < 0
        return nulls if len(nulls) else np.ones(rows, dtype=np.bool_)

    def filled(self, rows: int) -> Field:
        """Returns the field with a start and size for every row, even if all are null."""
        if len(self.sizes):
            return self
        nulls = np.full(rows, -1, dtype=np.int64)
        return Field(self.data, np.zeros_like(nulls), nulls)

    def slice(self, low: int, high: int) -> Field:
        """Returns rows [low, high), sharing the buffer."""
        return Field(self.data, self.starts[low:high], self.sizes[low:high])

    def take(self, rows: Int64s) -> Field:
        """Returns these rows, in this order, sharing the buffer."""
        if not len(self.sizes):
            return self
        return Field(self.data, self.starts[rows], self.sizes[rows])


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of n records: those of record i are rows [``bounds[i]``, ``bounds[i + 1]``) of
    ``spans``, int64 of shape (m, 4): key start and size, value start and size in ``data``."""

    data: Bytes
    spans: Int64s
    bounds: Int64s

    @classmethod
    def none(cls) -> Headers:
        """Returns headers of records that have none."""
        return cls(b"", np.empty((0, 4), dtype=np.int64), _NOTHING)

    @classmethod
    def of(cls, lists: Sequence[Sequence[tuple[str | bytes, bytes | None]]]) -> Headers:
        parts: list[bytes | None] = []
        for headers in lists:
            for name, value in headers:
                parts += name.encode() if isinstance(name, str) else name, value
        if not parts:
            return cls.none()
        field = Field.of(parts)
        spans = np.stack([field.starts, field.sizes], axis=1).reshape(-1, 4)
        return cls(field.data, spans, _bounds(list(map(len, lists))))

    @property
    def nbytes(self) -> int:
        """An upper bound of their encoded size in bytes."""
        if not len(self.spans):
            return 0
        return int(self.spans[:, 1::2].sum()) + (_HEADER_OVERHEAD + 1) * len(self.spans)

    def take(self, rows: Int64s) -> Headers:
        """Returns the headers of these records, in this order, sharing the buffer."""
        if not len(self.bounds):
            return self
        counts = np.diff(self.bounds)[rows]
        bounds = _bounds(counts)
        chosen = np.arange(bounds[-1]) + np.repeat(self.bounds[rows] - bounds[:-1], counts)
        return Headers(self.data, self.spans[chosen], bounds)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records to be written, one per row. ``timestamps``: int64, ms since 1970, -1 for none."""

    timestamps: Int64s
    keys: Field
    values: Field
    headers: Headers

    @classmethod
    def from_records(cls, records: Sequence[SimpleRecord]) -> RecordColumns:
        """Converts records, ignoring their offsets, which are assigned on append."""
        return cls(
            np.fromiter((record.timestamp for record in records), np.int64, len(records)),
            Field.of([record.key for record in records]),
            Field.of([record.value for record in records]),
            Headers.of([record.headers for record in records]),
        )

    @classmethod
    def from_values(
        cls,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        timestamp: int = layout.NO_TIMESTAMP,
    ) -> RecordColumns:
        """Converts lists of values and optional keys; all records get the same timestamp."""
        count = len(values)
        return cls(
            np.full(count, timestamp, dtype=np.int64),
            Field.nulls() if keys is None else Field.of(keys),
            Field.of(values),
            Headers.none(),
        )

    @classmethod
    def from_columns(cls, columns: Columns) -> RecordColumns:
        """Converts decoded records, sharing their buffer."""
        spans = columns.spans
        places = np.ascontiguousarray(spans[:, :HEADER_START].T, dtype=np.int64)
        counts = spans[:, HEADER_COUNT]
        headers = Headers.none()
        if counts.any():
            found = np.empty((int(counts.sum(dtype=np.int64)), 4), dtype=np.int32)
            gather.header_spans(columns.data, spans, found)
            headers = Headers(columns.data, found.astype(np.int64), _bounds(counts))
        return cls(
            np.array(columns.timestamps),
            Field(columns.data, places[KEY_START], places[KEY_SIZE]),
            Field(columns.data, places[VALUE_START], places[VALUE_SIZE]),
            headers,
        )

    @classmethod
    def from_arrow(cls, table: pa.Table | pa.RecordBatch) -> RecordColumns:
        """Converts the columns key, value, timestamp and headers of ``arrow.SCHEMA``, sharing their
        buffers. A missing column is null in every row; other columns are ignored."""
        from .arrow import to_record_columns  # pyarrow is slow to import

        return to_record_columns(table)

    @classmethod
    def joined(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """Concatenates records, dropping their headers."""
        rows = [len(part.timestamps) for part in parts]
        return cls(
            np.concatenate([part.timestamps for part in parts]),
            Field.joined([part.keys for part in parts], rows),
            Field.joined([part.values for part in parts], rows),
            Headers.none(),
        )

    def __len__(self) -> int:
        return len(self.timestamps)

    def stamped(self, now_ms: int) -> RecordColumns:
        """Returns the records with ``now_ms`` in place of missing timestamps, as a producer does on
        send."""
        if len(self) and self.timestamps.min() != layout.NO_TIMESTAMP:
            return self
        missing = self.timestamps == layout.NO_TIMESTAMP
        return replace(self, timestamps=np.where(missing, now_ms, self.timestamps))

    def slice(self, low: int, high: int) -> RecordColumns:
        """Returns rows [low, high), sharing the buffers."""
        headers = self.headers
        if len(headers.bounds):
            headers = replace(headers, bounds=headers.bounds[low : high + 1])
        return RecordColumns(
            self.timestamps[low:high],
            self.keys.slice(low, high),
            self.values.slice(low, high),
            headers,
        )

    def take(self, rows: Int64s) -> RecordColumns:
        """Returns these rows, in this order, sharing the buffers."""
        return RecordColumns(
            self.timestamps[rows],
            self.keys.take(rows),
            self.values.take(rows),
            self.headers.take(rows),
        )


def encode(records: RecordColumns, plan: BatchPlan) -> Encoded:
    """Encodes records as batches with checksums, at consecutive offsets from ``plan.base_offset``.

    Raises InvalidTimestamp for a timestamp below -1 and MessageTooLarge for a record that fits in
    no batch (2 GiB). ``validate.py`` checks the limits of the topic.
    """
    payload = records.keys.nbytes + records.values.nbytes + records.headers.nbytes
    most = payload + RECORD_OVERHEAD * len(records)
    # any two consecutive batches together exceed the limit
    batches = min(len(records), 2 * most // max(plan.batch_bytes, 1) + 1)
    out = np.empty(most + batches * layout.RECORD_BATCH_OVERHEAD, dtype=np.uint8)
    table = BatchTable.empty(batches)
    count, used, row, why = kernel.encode_batches(
        records.timestamps,
        records.keys.data,
        records.keys.starts,
        records.keys.sizes,
        records.values.data,
        records.values.starts,
        records.values.sizes,
        records.headers.data,
        records.headers.spans,
        records.headers.bounds,
        _template(plan),
        plan.base_offset,
        plan.base_sequence,
        plan.append_time,
        plan.batch_bytes,
        out,
        table.rows,
    )
    if why != kernel.DONE:
        raise _refusal(why, row, records)
    table = table.select(slice(0, count))
    _fill(table, plan)
    data = out[:used].data
    if plan.codec is not Codec.NONE:
        data = _compress(data, table, plan)
    put_checksums(data, table)
    return Encoded(data, table)


def put_checksums(data: memoryview, table: BatchTable) -> None:
    """Computes the CRC of every batch of magic 2, and stores it in ``data`` and the table."""
    kernel.put_checksums(data, table.rows, checksums(data, table))


def checksums(data: memoryview, table: BatchTable) -> list[int]:
    """Computes the CRC of every batch of magic 2; positions are relative to ``data``."""
    starts = (table.column(b.POSITION) + layout.CRC_COVERS_FROM).tolist()
    ends = (table.column(b.POSITION) + table.column(b.SIZE)).tolist()
    return [crc32c(data[start:end]) for start, end in zip(starts, ends, strict=True)]


def _fill(table: BatchTable, plan: BatchPlan) -> None:
    """Sets the columns that are the same in all rows."""
    table.rows[:, b.LEADER_EPOCH] = plan.leader_epoch
    table.rows[:, b.MAGIC] = 2
    table.rows[:, b.ATTRIBUTES] = plan.attributes
    table.rows[:, b.PRODUCER_ID] = plan.producer_id
    table.rows[:, b.PRODUCER_EPOCH] = plan.producer_epoch


def _template(plan: BatchPlan) -> bytes:
    return _TEMPLATE.pack(
        0, plan.leader_epoch, 2, 0, plan.attributes, 0, 0, 0,
        plan.producer_id, plan.producer_epoch, 0, 0,
    )  # fmt: skip


def _compress(data: memoryview, table: BatchTable, plan: BatchPlan) -> memoryview:
    """Returns the batches with compressed records, and updates the table to match."""
    out = bytearray()
    for row in table.rows:
        position, size = row[: b.SIZE + 1].tolist()
        body = bytes(data[position + layout.RECORD_BATCH_OVERHEAD : position + size])
        start = len(out)
        out += data[position : position + layout.RECORD_BATCH_OVERHEAD]
        out += compress(plan.codec, body, 2, plan.level)
        _SIZE.pack_into(out, start + 8, len(out) - start - layout.LOG_OVERHEAD)
        row[b.POSITION], row[b.SIZE] = start, len(out) - start
    return memoryview(out)


def _refusal(why: int, row: int, records: RecordColumns) -> Exception:
    if why == kernel.NEGATIVE_TIMESTAMP:
        return InvalidTimestamp(f"timestamp {records.timestamps[row]} is negative", row)
    if why == kernel.TOO_LARGE:
        return MessageTooLarge("the record takes more than 2 GiB, so it fits in no batch", row)
    return ValueError(f"record {row}: a key, value or header lies outside its buffer")


def _bounds(counts: Sequence[int] | NDArray[np.int32] | Int64s) -> Int64s:
    bounds: Int64s = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
