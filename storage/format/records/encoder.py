"""Encodes columns of records into as many batches of magic 2 as they need.

They are the batches that a producer would send, with gaps between offsets if needed; single control
records; and batches without records, as cleaning leaves them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...errors import InvalidTimestamp, MessageTooLarge
from .. import layout
from ..checksum import crc32c
from ..kernels import encode as kernel
from ..layout import Codec, TimestampType
from . import batch as b
from .batch import BatchTable, Int64s
from .compress import compress
from .record_columns import RecordColumns

# The default of Kafka's batch.size, the maximum size of a producer's batch in bytes.
DEFAULT_BATCH_BYTES: Final = 16384
# The maximum size of a record in bytes without key, value and headers: length, attributes,
# timestamp delta, offset delta, key length, value length, header count.
RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
_HEADER: Final = struct.Struct(">qiiBIhiqqqhii")
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
    is_control: bool = False

    @property
    def attributes(self) -> int:
        """The attribute bits of the batch headers."""
        bits = int(self.codec)
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            bits |= layout.TIMESTAMP_TYPE_MASK
        if self.is_transactional:
            bits |= layout.TRANSACTIONAL_MASK
        if self.is_control:
            bits |= layout.CONTROL_MASK
        return bits


@dataclass(frozen=True, slots=True)
class Encoded:
    """Consecutive batches in ``data``, which shares no memory, and their headers in ``table``, with
    positions relative to ``data``."""

    data: memoryview
    table: BatchTable


def encode(records: RecordColumns, plan: BatchPlan, offsets: Int64s = _NOTHING) -> Encoded:
    """Encodes records as batches with checksums, at ``offsets``, which ascend and may have gaps, or
    without these at consecutive offsets from ``plan.base_offset``.

    Raises InvalidTimestamp for a timestamp below -1 and MessageTooLarge for a record that fits in
    no batch (2 GiB). ``validate.py`` checks the limits of the topic.
    """
    payload = records.keys.nbytes + records.values.nbytes + records.headers.nbytes
    most = payload + RECORD_OVERHEAD * len(records)
    # any two consecutive batches together exceed the limit
    batches = 2 * most // max(plan.batch_bytes, 1) + 1
    base_offset = plan.base_offset
    if len(offsets):
        base_offset, end = int(offsets[0]), int(offsets[-1]) + 1
        batches += (end - base_offset) >> 31  # offset deltas are int32
        if end - base_offset == len(records):
            offsets = _NOTHING
    batches = min(len(records), batches)
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
        offsets,
        _template(plan),
        base_offset,
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


def empty_batch(base_offset: int, last_offset: int) -> bytes:
    """Returns a batch without records for these offsets, as the log cleaner leaves it
    (DefaultRecordBatch.writeEmptyHeader)."""
    none = layout.NO_TIMESTAMP
    data = bytearray(
        _HEADER.pack(
            base_offset, layout.RECORD_BATCH_OVERHEAD - layout.LOG_OVERHEAD, 0, 2, 0, 0,
            last_offset - base_offset, none, none, layout.NO_PRODUCER_ID,
            layout.NO_PRODUCER_EPOCH, layout.NO_SEQUENCE, 0,
        )
    )  # fmt: skip
    struct.pack_into(
        ">I", data, layout.CRC_POSITION, crc32c(memoryview(data)[layout.CRC_COVERS_FROM :])
    )
    return bytes(data)


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
    """Returns a header with the fields that all batches share; the others are zero."""
    return _HEADER.pack(
        0, 0, plan.leader_epoch, 2, 0, plan.attributes, 0, 0, 0,
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
