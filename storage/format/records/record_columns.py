"""Columns of records to be written, one per row: the form in which the encoder takes records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from .. import layout
from ..kernels import encode as kernel
from ..kernels import gather, murmur2
from .batch import Bytes, Int64s
from .columns import (
    HEADER_COUNT,
    HEADER_START,
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
)

# The maximum size in bytes of a header's two lengths, and of its count of bytes rounded up.
_HEADER_BYTES: Final = 5 + 5 + 1
_POSITIVE: Final = 0x7FFFFFFF
_NOTHING: Final[Int64s] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SimpleRecord:
    """A record to be written (Kafka `SimpleRecord`).

    `timestamp` is milliseconds since 1970, or -1 for none. `key`, `value` and header values may be
    None. A header key is text, or bytes if it is not UTF-8. An `offset` of -1 means the previous
    record's plus 1 (for the first record: the batch's base offset).
    """

    timestamp: int = layout.NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str | bytes, bytes | None]] = ()
    offset: int = -1


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

    @classmethod
    def joined(cls, parts: Sequence[Headers], rows: Sequence[int]) -> Headers:
        """Concatenates headers, of which ``rows`` gives the record counts; copies all their
        bytes."""
        if not any(len(part.bounds) for part in parts):
            return cls.none()
        spans, bounds, size, count = [], [np.zeros(1, dtype=np.int64)], 0, 0
        for part, records in zip(parts, rows, strict=True):
            edges = part.bounds if len(part.bounds) else np.zeros(records + 1, dtype=np.int64)
            spans.append(part.spans[edges[0] : edges[-1]] + np.array([size, 0, size, 0]))
            bounds.append(edges[1:] - edges[0] + count)
            size, count = size + len(part.data), count + len(spans[-1])
        data = b"".join(part.data for part in parts)
        return cls(data, np.concatenate(spans), np.concatenate(bounds))

    @property
    def nbytes(self) -> int:
        """An upper bound of their encoded size in bytes."""
        if not len(self.spans):
            return 0
        return int(self.spans[:, 1::2].sum()) + _HEADER_BYTES * len(self.spans)

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
    def joined(cls, parts: Sequence[RecordColumns]) -> RecordColumns:
        """Concatenates records; copies all their bytes."""
        rows = [len(part.timestamps) for part in parts]
        return cls(
            np.concatenate([part.timestamps for part in parts]),
            Field.joined([part.keys for part in parts], rows),
            Field.joined([part.values for part in parts], rows),
            Headers.joined([part.headers for part in parts], rows),
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


def key_hashes(keys: Field, rows: int) -> Int64s:
    """Returns Utils.murmur2 of each key as a non-negative number, -1 for null."""
    found: Int64s = np.empty(rows, dtype=np.int64)
    filled = keys.filled(rows)
    murmur2.hashes(
        memoryview(filled.data),
        np.ascontiguousarray(filled.starts),
        np.ascontiguousarray(filled.sizes),
        found,
    )
    return found


def partitions_of(keys: Field, rows: int, count: int, turn: int = 0) -> Int64s:
    """Returns the partition, out of `count`, of each row, as Kafka's default partitioner assigns
    them (BuiltInPartitioner.partitionForKey). Rows without a key are spread evenly, in
    one run per partition, as a producer fills a batch before it switches; the first of them is in
    partition `turn` % `count`."""
    if not len(keys.sizes):
        return _dealt_out(rows, count, turn)
    found = key_hashes(keys, rows)
    keyless = found < 0
    found = (found & _POSITIVE) % count
    if keyless.any():
        found[keyless] = _dealt_out(int(np.count_nonzero(keyless)), count, turn)
    return found


def _dealt_out(rows: int, count: int, turn: int) -> Int64s:
    turns = np.arange(rows, dtype=np.int64)
    if rows > count:
        turns = turns * count // rows
    return (turn + turns) % count


def _bounds(counts: Sequence[int] | NDArray[np.int32] | Int64s) -> Int64s:
    bounds: Int64s = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
