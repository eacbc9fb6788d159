"""Records to batches: columns in, the bytes of as many batches of magic 2 as they need out.

``builder.py`` makes one batch from values, with anything in it that a log may hold; this makes what
a producer makes, fast. The two give the same bytes for the same batch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidTimestamp, MessageTooLarge
from . import batch as b
from . import layout
from .batch import BatchTable, Bytes, Int64s
from .builder import SimpleRecord
from .checksum import crc32c
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
from .kernels import encode as kernel
from .kernels import gather
from .layout import Codec, TimestampType

if TYPE_CHECKING:
    import pyarrow as pa

# Kafka's batch.size, the most bytes of a producer's batch.
DEFAULT_BATCH_BYTES: Final = 16384
# The most bytes that a record takes beside its key, value and headers: length, attributes,
# timestamp and offset delta, lengths of key and value, number of headers. A header takes two
# lengths.
RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER_OVERHEAD: Final = 5 + 5
# From the leader epoch on, as a batch header has them: what is the same in all batches of a run.
_TEMPLATE: Final = struct.Struct(">8xiiBIhiqqqhii")
_SIZE: Final = struct.Struct(">i")
_NOTHING: Final[Int64s] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What batches have in common, and how large they get.

    `batch_bytes`: the most bytes of a batch, its header and its records before compression (a
    record that alone takes more gets a batch of its own). `level` None: Kafka's default for the
    codec. `append_time`: ms since 1970, the greatest timestamp of every batch with LogAppendTime.
    `base_sequence`: that of the first record; it goes on from batch to batch and wraps at 2**31.
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
    """Whole batches, one after the other in ``data``; their headers, positions from the start of
    ``data``. Whoever has it owns it: the memory is shared with nothing."""

    data: memoryview
    table: BatchTable


@dataclass(frozen=True, slots=True)
class Field:
    """A column of bytes: int64 ``starts`` and ``sizes`` of shape (n,), places in ``data``; size -1
    is null. Without any sizes every row is null."""

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
        """All of them one after the other, each of so many rows; all their bytes are copied."""
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
        """Null in every row."""
        return cls(b"", _NOTHING, _NOTHING)

    @property
    def nbytes(self) -> int:
        """At least the bytes that the values take."""
        return int(self.sizes.sum()) + len(self.sizes) if len(self.sizes) else 0

    def is_null(self, rows: int) -> NDArray[np.bool_]:
        """Which of the rows are null."""
        nulls: NDArray[np.bool_] = self.sizes < 0
        return nulls if len(nulls) else np.ones(rows, dtype=np.bool_)

    def filled(self, rows: int) -> Field:
        """The same, with a size for each of the rows."""
        if len(self.sizes):
            return self
        nulls = np.full(rows, -1, dtype=np.int64)
        return Field(self.data, np.zeros_like(nulls), nulls)

    def slice(self, low: int, high: int) -> Field:
        """Rows [low, high), sharing the buffer."""
        return Field(self.data, self.starts[low:high], self.sizes[low:high])

    def take(self, rows: Int64s) -> Field:
        """These rows, in this order, sharing the buffer."""
        if not len(self.sizes):
            return self
        return Field(self.data, self.starts[rows], self.sizes[rows])


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of n records: record i has those in rows [``bounds[i]``, ``bounds[i + 1]``) of
    ``spans``, int64 of shape (m, 4): name start and size, value start and size in ``data``."""

    data: Bytes
    spans: Int64s
    bounds: Int64s

    @classmethod
    def none(cls) -> Headers:
        """No record has any."""
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
        """The most bytes that they take encoded."""
        if not len(self.spans):
            return 0
        return int(self.spans[:, 1::2].sum()) + (_HEADER_OVERHEAD + 1) * len(self.spans)

    def take(self, rows: Int64s) -> Headers:
        """Those of these records, in this order, sharing the buffer."""
        if not len(self.bounds):
            return self
        counts = np.diff(self.bounds)[rows]
        bounds = _bounds(counts)
        chosen = np.arange(bounds[-1]) + np.repeat(self.bounds[rows] - bounds[:-1], counts)
        return Headers(self.data, self.spans[chosen], bounds)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records to be written, a row each. ``timestamps``: int64, ms since 1970, -1 none."""

    timestamps: Int64s
    keys: Field
    values: Field
    headers: Headers

    @classmethod
    def from_records(cls, records: Sequence[SimpleRecord]) -> RecordColumns:
        """From values. Offsets in them are not looked at: whoever writes the records gives them
        theirs."""
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
        """From lists of values, and of keys if there are any; all with the same timestamp."""
        count = len(values)
        return cls(
            np.full(count, timestamp, dtype=np.int64),
            Field.nulls() if keys is None else Field.of(keys),
            Field.of(values),
            Headers.none(),
        )

    @classmethod
    def from_columns(cls, columns: Columns) -> RecordColumns:
        """From records as they were read, sharing their buffer."""
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
        """From key, value, timestamp and headers as ``arrow.SCHEMA`` has them; a column that is
        missing is null in every row, other columns are not looked at. Buffers are shared."""
        from .arrow import to_record_columns  # pyarrow takes long to import

        return to_record_columns(table)

    @classmethod
    def joined(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """All of them one after the other; their headers are left out."""
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
        """The same, records without a timestamp having this one, as a producer's get the time when
        they are sent."""
        if len(self) and self.timestamps.min() != layout.NO_TIMESTAMP:
            return self
        missing = self.timestamps == layout.NO_TIMESTAMP
        return replace(self, timestamps=np.where(missing, now_ms, self.timestamps))

    def slice(self, low: int, high: int) -> RecordColumns:
        """Rows [low, high), sharing the buffers."""
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
        """These rows, in this order, sharing the buffers."""
        return RecordColumns(
            self.timestamps[rows],
            self.keys.take(rows),
            self.values.take(rows),
            self.headers.take(rows),
        )


def encode(records: RecordColumns, plan: BatchPlan) -> Encoded:
    """Batches of the records at consecutive offsets from ``plan.base_offset`` on, with checksums.

    InvalidTimestamp for one below -1, MessageTooLarge for a record that fits no batch at all (2
    GiB). Nothing else is judged here: limits of the topic are ``validate.py``'s.
    """
    payload = records.keys.nbytes + records.values.nbytes + records.headers.nbytes
    most = payload + RECORD_OVERHEAD * len(records)
    # two batches in a row are longer than the limit together
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
    """Compute the CRC of every batch of magic 2, and set it there and in the table."""
    kernel.put_checksums(data, table.rows, checksums(data, table))


def checksums(data: memoryview, table: BatchTable) -> list[int]:
    """The CRC of every batch of magic 2, as it is by its bytes; positions are those in ``data``."""
    starts = (table.column(b.POSITION) + layout.CRC_COVERS_FROM).tolist()
    ends = (table.column(b.POSITION) + table.column(b.SIZE)).tolist()
    return [crc32c(data[start:end]) for start, end in zip(starts, ends, strict=True)]


def _fill(table: BatchTable, plan: BatchPlan) -> None:
    """What is the same in all rows."""
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
    """The batches with their records compressed; the table is changed to fit."""
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
        return MessageTooLarge("the record fits no batch: it takes more than 2 GiB", row)
    return ValueError(f"record {row}: a key, value or header lies outside its buffer")


def _bounds(counts: Sequence[int] | NDArray[np.int32] | Int64s) -> Int64s:
    bounds: Int64s = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
