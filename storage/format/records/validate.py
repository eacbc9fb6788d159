"""Validates batches from outside before they are appended to a log, and assigns their offsets.

Rules: Kafka's LogValidator and UnifiedLog.analyzeAndValidateRecords. A batch is used unchanged
wherever Kafka does so: only its offset and leader epoch are set, and its max timestamp if that is
wrong or the topic uses LogAppendTime. It is rebuilt if it is of magic 0 or 1 or the topic requires
another codec.

Two things differ from Kafka. One append may hold many batches of magic 2, while Kafka's protocol
allows one. And the offset deltas within a batch must be 0, 1, 2 …, while Kafka ignores them in
uncompressed batches and fails with an unexpected error on wrong ones in compressed batches.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidRecord, InvalidTimestamp, MessageTooLarge, OffsetOutOfRange, Refused
from .. import layout
from ..kernels import validate as kernel
from ..layout import MAX_INT32, NO_TIMESTAMP, Codec, TimestampType
from . import batch as b
from .batch import BatchTable, Bytes, Int64s, scan
from .columns import KEY_SIZE, Columns
from .decoder import BadBatch, Decoder, first_bad_checksum
from .encoder import BatchPlan, checksums, encode, put_checksums
from .record_columns import RecordColumns

Bools = NDArray[np.bool_]

_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = layout.MAX_OFFSET
_ATTRIBUTES_AT: Final = layout.CRC_COVERS_FROM
_MAX_TIMESTAMP_AT: Final = 35
_INT16: Final = struct.Struct(">h")
_INT64: Final = struct.Struct(">q")
# Attribute bits that are defined.
_KNOWN_ATTRIBUTES: Final = 0x7F


class AppendOrigin(Enum):
    """The origin of an append, which determines how its batches are validated (Kafka's name).

    CLIENT: a producer; everything is validated, and offsets are assigned.
    COORDINATOR: a transaction marker or a group's offsets, without sequence numbers.
    REPLICATION: batches that a leader accepted; offsets kept, epochs and sequences unchecked.
    """

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


@dataclass(frozen=True, slots=True)
class ValidationRules:
    """The topic configs that restrict appends.

    `max_message_bytes` limits whole batches. `before_max_ms` and `after_max_ms` limit how far a
    timestamp may be from now. `codec` None leaves batches as their producers compressed them
    (compression.type=producer); `level` None is Kafka's default. `max_batch_bytes` limits the
    decompressed size of one batch.
    """

    max_message_bytes: int = 1048588
    is_compacted: bool = False
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    before_max_ms: int = _MAX_INT64
    after_max_ms: int = 3600000
    codec: Codec | None = None
    level: int | None = None
    max_batch_bytes: int = 128 << 20

    def allowed_timestamps(self, now_ms: int) -> tuple[int, int]:
        """Returns the smallest and largest timestamp allowed; -1 is always allowed."""
        if self.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return _MIN_INT64, _MAX_INT64
        low = _MIN_INT64 if self.before_max_ms == _MAX_INT64 else now_ms - self.before_max_ms
        return max(low, _MIN_INT64), min(now_ms + self.after_max_ms, _MAX_INT64)


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Validated batches, and their headers with positions relative to ``data``.

    ``append_time``: ms since 1970, the timestamp of all records with LogAppendTime, else -1.
    ``keeps_offsets``: the batches keep their offsets from another log.
    """

    data: memoryview
    table: BatchTable
    append_time: int = NO_TIMESTAMP
    keeps_offsets: bool = False

    @property
    def first_offset(self) -> int:
        return int(self.table.rows[0, b.BASE_OFFSET])

    @property
    def last_offset(self) -> int:
        return int(self.table.rows[-1, b.LAST_OFFSET])

    def place(self, next_offset: int, leader_epoch: int) -> None:
        """Assigns offsets from the log end offset ``next_offset`` on, and the leader epoch. No
        checksum covers these fields, so this is cheap, and it may be repeated.

        Raises OffsetOutOfRange if the batches keep offsets below ``next_offset``, or if the log
        runs out of offsets."""
        if self.keeps_offsets:
            if self.first_offset < next_offset:
                raise OffsetOutOfRange(
                    f"the first batch is at offset {self.first_offset}, "
                    f"the log end offset is {next_offset}"
                )
            return
        distance = next_offset - self.first_offset
        if self.last_offset + distance >= layout.MAX_OFFSET:
            raise OffsetOutOfRange("the log has no offsets left")
        kernel.place(self.data, self.table.rows, distance, leader_epoch)


def validate_batches(
    data: Bytes, rules: ValidationRules, origin: AppendOrigin, now_ms: int
) -> ValidationResult:
    """Validates the batches in ``data`` and prepares them for a log. ``ValidationResult.place``
    remains to be called; it is the only step that depends on the log's state.

    A writable buffer is modified, and its content is undefined afterwards, even after an error; a
    read-only buffer is copied. Raises a Refused: InvalidRecord, InvalidTimestamp or
    MessageTooLarge, whose index is that of a record among all in ``data``.
    """
    view = memoryview(data).cast("B")
    if not len(view):
        raise InvalidRecord("the data contains no batch")
    if origin is AppendOrigin.REPLICATION:
        return ValidationResult(view, _as_given(view), keeps_offsets=True)
    if view.readonly:
        view = memoryview(bytearray(view))
    if len(view) >= layout.MAGIC_END and view[layout.MAGIC_END - 1] < 2:
        return _converted(view, rules, now_ms)
    table = _numbered(view, origin)
    check_sizes(table, rules)
    _check_new_checksums(view, table)
    _check_batches(table, origin)
    greatest = _check_in_batches(view, table, rules, now_ms)
    if rules.codec is not None and (others := _other_codec(table, rules.codec)).any():
        return _rebuilt(view, table, others, greatest, rules, now_ms)
    _set_timestamps(view, table, greatest, rules, now_ms)
    return ValidationResult(view, table, _append_time(rules, now_ms))


def check_records(records: RecordColumns, rules: ValidationRules, now_ms: int) -> None:
    """Checks single records by the topic's rules. Raises InvalidRecord or InvalidTimestamp, with
    the index of the record."""
    if rules.is_compacted:
        _check_keys(records.keys.is_null(len(records)), 0)
    _check_timestamps(records.timestamps, rules, now_ms, 0)


def _append_time(rules: ValidationRules, now_ms: int) -> int:
    return now_ms if rules.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP


# Parsing the given batches


def _as_given(data: memoryview) -> BatchTable:
    """Parses batches of another log, which must be whole, intact, and ascending in offset."""
    table, walk = scan(data, len(data), 0, _room(data), whole=True)
    if walk.is_fault or walk.end != len(data):
        raise _not_whole(len(table), walk.what)
    _check_checksums(data, table)
    return table


def _numbered(data: memoryview, origin: AppendOrigin) -> BatchTable:
    """Assigns offsets from 0 on to the batches, and returns their headers."""
    batches, end, why = kernel.number(data, origin is AppendOrigin.CLIENT)
    table, walk = scan(data, end, 0, BatchTable.empty(batches), whole=True)
    if len(table) < batches:
        raise InvalidRecord(f"batch {len(table)}: {walk.what}")
    if why == kernel.NO_BATCH:
        _, walk = scan(data, len(data), 0, BatchTable.empty(1), start=end, whole=True)
        raise _not_whole(batches, walk.what or _other_magic(data, end))
    if why == kernel.BASE_OFFSET:
        raise InvalidRecord(f"batch {batches}: its base offset is not 0")
    if why == kernel.COUNT:
        raise InvalidRecord(f"batch {batches}: its record count does not match its offsets")
    return table


def _other_magic(data: memoryview, at: int) -> str:
    if len(data) - at < layout.MAGIC_END or data[at + layout.MAGIC_END - 1] == 2:
        return ""
    return f"magic is {data[at + layout.MAGIC_END - 1]}, the first batch has magic 2"


def _not_whole(batch: int, what: str) -> Refused:
    return InvalidRecord(f"batch {batch}: {what or 'it is truncated'}")


def _room(data: memoryview) -> BatchTable:
    return BatchTable.empty(len(data) // layout.MIN_BATCH_BYTES + 1)


# Checks


def check_sizes(table: BatchTable, rules: ValidationRules) -> None:
    sizes = table.column(b.SIZE)
    if int(sizes.max()) > rules.max_message_bytes:
        which = int(np.argmax(sizes > rules.max_message_bytes))
        raise MessageTooLarge(
            f"batch {which}: it has {sizes[which]} bytes, max.message.bytes is "
            f"{rules.max_message_bytes}"
        )


def _check_checksums(data: memoryview, table: BatchTable) -> None:
    bad = first_bad_checksum(data, table, 0)
    if bad < len(table):
        raise InvalidRecord(f"batch {bad}: its checksum is wrong")


def _check_new_checksums(data: memoryview, table: BatchTable) -> None:
    """Like ``_check_checksums``, for batches that all have magic 2."""
    wrong = np.array(checksums(data, table)) != table.column(b.CRC)
    if wrong.any():
        raise InvalidRecord(f"batch {np.argmax(wrong)}: its checksum is wrong")


def _check_batches(table: BatchTable, origin: AppendOrigin) -> None:
    if origin is not AppendOrigin.CLIENT:
        return
    if table.summary().any_has & layout.CONTROL_MASK:
        which = int(np.argmax(table.flagged(layout.CONTROL_MASK)))
        raise InvalidRecord(f"batch {which}: a client may not write control records")
    producers = table.column(b.PRODUCER_ID)
    if int(producers.max()) == layout.NO_PRODUCER_ID:  # the common case: skips the rest
        return
    unordered = (producers > layout.NO_PRODUCER_ID) & (table.column(b.BASE_SEQUENCE) < 0)
    if unordered.any():
        raise InvalidRecord(f"batch {np.argmax(unordered)}: it has a producer id, but no sequence")


def _check_in_batches(
    data: memoryview, table: BatchTable, rules: ValidationRules, now_ms: int
) -> Int64s:
    """Checks every record, and returns the largest timestamp of each batch. Decodes records only
    from the first batch on that the kernel does not accept."""
    greatest: Int64s = np.empty(len(table), dtype=np.int64)
    low, high = rules.allowed_timestamps(now_ms)
    batch = kernel.check_batches(data, table.rows, low, high, rules.is_compacted, greatest)
    if batch == len(table):
        return greatest
    index = int(table.rows[:batch, b.RECORD_COUNT].sum())
    for columns in _decoded(data, table.select(slice(batch, len(table))), rules):
        _check_columns(columns, rules, now_ms, index)
        stop = batch + len(columns.batches)
        greatest[batch:stop] = np.maximum.reduceat(columns.timestamps, columns.first_row[:-1])
        batch = stop
        index += len(columns)
    return greatest


def _decoded(data: memoryview, table: BatchTable, rules: ValidationRules) -> Iterator[Columns]:
    """Yields the columns of all batches, each valid until the next. Raises InvalidRecord if a
    batch is malformed."""
    for found in _decoder(rules.max_batch_bytes).decode(data, 0, table, ""):
        if isinstance(found, BadBatch):
            raise InvalidRecord(found.error.what)
        yield found


_decoders = threading.local()


def _decoder(max_batch_bytes: int) -> Decoder:
    """Returns this thread's decoder, whose buffers are reused."""
    decoder: Decoder | None = getattr(_decoders, "decoder", None)
    if decoder is None or _decoders.max_batch_bytes != max_batch_bytes:
        decoder = _decoders.decoder = Decoder(max_batch_bytes)
        _decoders.max_batch_bytes = max_batch_bytes
    return decoder


def _check_columns(columns: Columns, rules: ValidationRules, now_ms: int, first: int) -> None:
    if rules.is_compacted:
        _check_keys(columns.spans[:, KEY_SIZE] < 0, first)
    _check_timestamps(columns.timestamps, rules, now_ms, first)
    types = columns.batches.rows[:, b.ATTRIBUTES] & layout.TIMESTAMP_TYPE_MASK
    if types.any():
        _check_timestamp_types(columns, rules, first)


def _check_keys(nulls: Bools, first: int) -> None:
    if nulls.any():
        index = first + int(np.argmax(nulls))
        raise InvalidRecord("a record of a compacted topic must have a key", index)


def _check_timestamps(timestamps: Int64s, rules: ValidationRules, now_ms: int, first: int) -> None:
    low, high = rules.allowed_timestamps(now_ms)
    if not len(timestamps) or (low <= int(timestamps.min()) and int(timestamps.max()) <= high):
        return
    outside = ((timestamps < low) | (timestamps > high)) & (timestamps != NO_TIMESTAMP)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidTimestamp(
            f"timestamp {timestamps[row]} is not within [{low}, {high}]", first + row
        )


def _check_timestamp_types(columns: Columns, rules: ValidationRules, first: int) -> None:
    """Rejects LogAppendTime set by a producer, which is tolerated only in a topic with CreateTime
    and for records that have a timestamp."""
    claimed = columns.timestamp_types() == TimestampType.LOG_APPEND_TIME
    if rules.timestamp_type is TimestampType.CREATE_TIME:
        claimed &= columns.timestamps == NO_TIMESTAMP
    if claimed.any():
        index = first + int(np.argmax(claimed))
        raise InvalidTimestamp("a producer may not set LogAppendTime", index)


# Changes


def _set_timestamps(
    data: memoryview, table: BatchTable, greatest: Int64s, rules: ValidationRules, now_ms: int
) -> None:
    """Sets max timestamp and timestamp type of each batch; only batches that change get a new
    checksum (DefaultRecordBatch.setMaxTimestamp)."""
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        greatest = np.full(len(table), now_ms, dtype=np.int64)
        type_bit = layout.TIMESTAMP_TYPE_MASK
    else:
        type_bit = 0
    types = table.column(b.ATTRIBUTES) & layout.TIMESTAMP_TYPE_MASK
    changing = (table.column(b.MAX_TIMESTAMP) != greatest) | (types != type_bit)
    if not changing.any():
        return
    rows = table.rows[changing]
    rows[:, b.MAX_TIMESTAMP] = greatest[changing]
    rows[:, b.ATTRIBUTES] &= _KNOWN_ATTRIBUTES & ~layout.TIMESTAMP_TYPE_MASK
    rows[:, b.ATTRIBUTES] |= type_bit
    for position, attributes, timestamp in rows[
        :, (b.POSITION, b.ATTRIBUTES, b.MAX_TIMESTAMP)
    ].tolist():
        _INT16.pack_into(data, position + _ATTRIBUTES_AT, attributes)
        _INT64.pack_into(data, position + _MAX_TIMESTAMP_AT, timestamp)
    put_checksums(data, BatchTable(rows))
    table.rows[changing] = rows


# Rebuilding batches


def _other_codec(table: BatchTable, codec: Codec) -> Bools:
    """Returns a mask of the batches not in the topic's codec, except control batches."""
    codecs = table.column(b.ATTRIBUTES) & layout.CODEC_MASK
    others: Bools = (codecs != codec) & ~table.flagged(layout.CONTROL_MASK)
    return others


def _rebuilt(
    data: memoryview,
    table: BatchTable,
    chosen: Bools,
    greatest: Int64s,
    rules: ValidationRules,
    now_ms: int,
) -> ValidationResult:
    """Rebuilds the ``chosen`` batches with the topic's codec, and keeps the others."""
    _set_timestamps(data, table.select(~chosen), greatest[~chosen], rules, now_ms)
    parts: list[memoryview] = []
    for index, header in enumerate(table):
        if not chosen[index]:
            parts.append(data[header.position : header.next_position])
            continue
        [columns] = _decoded(data, table.select(slice(index, index + 1)), rules)
        plan = BatchPlan(
            base_offset=header.base_offset,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
        )
        parts.append(_one_batch(columns, plan, rules, now_ms))
    return _joined(parts, rules, now_ms)


def _converted(data: memoryview, rules: ValidationRules, now_ms: int) -> ValidationResult:
    """Converts messages of magic 0 and 1 to batches of magic 2: one for each run of uncompressed
    messages, one for each compressed message set."""
    table = _messages(data)
    check_sizes(table, rules)
    _check_checksums(data, table)
    parts: list[memoryview] = []
    index = 0
    for columns in _decoded(data, table, rules):
        _check_columns(columns, rules, now_ms, index)
        parts.append(_one_batch(columns, BatchPlan(base_offset=index), rules, now_ms))
        index += len(columns)
    return _joined(parts, rules, now_ms)


def _messages(data: memoryview) -> BatchTable:
    """Returns the headers of messages, which must share a magic. Their offsets may be anything,
    because some clients set all of them to 0."""
    rows: list[Int64s] = []
    at = 0
    while at < len(data):
        one, walk = scan(data, len(data), at, BatchTable.empty(1), start=at, whole=True)
        if not len(one):
            raise _not_whole(len(rows), walk.what)
        rows.append(one.rows)
        if rows[0][0, b.MAGIC] != one.rows[0, b.MAGIC]:
            raise InvalidRecord(f"batch {len(rows) - 1}: its magic differs from the first")
        at += int(one.rows[0, b.SIZE])
    return BatchTable(np.concatenate(rows))


def _one_batch(
    columns: Columns, plan: BatchPlan, rules: ValidationRules, now_ms: int
) -> memoryview:
    codec = columns.batches[0].codec if rules.codec is None else rules.codec
    whole = replace(
        plan,
        batch_bytes=MAX_INT32,
        codec=codec,
        level=rules.level,
        timestamp_type=rules.timestamp_type,
        append_time=_append_time(rules, now_ms),
    )
    return encode(RecordColumns.from_columns(columns), whole).data


def _joined(parts: list[memoryview], rules: ValidationRules, now_ms: int) -> ValidationResult:
    data = memoryview(bytearray().join(parts))
    table, _ = scan(data, len(data), 0, BatchTable.empty(len(parts)), whole=True)
    check_sizes(table, rules)
    return ValidationResult(data, table, _append_time(rules, now_ms))
