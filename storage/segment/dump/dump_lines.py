"""Formats kafka-dump-log's lines for batches, records, aborted transactions and producers.

They are the lines that `DumpLogSegments` of Kafka 4.3 prints, whichever broker wrote the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...format.files.snapshot import ProducerSnapshotEntry
from ...format.layout import MAX_INT32, ControlType, TimestampType
from ...format.messages.control import quorum_message
from ...format.records.batch import BatchHeader
from ...format.records.columns import HEADER_COUNT, KEY_SIZE, VALUE_SIZE, Columns
from ...format.records.decoder import inner_messages
from ..txn_index import AbortedTxn

_TYPES: Final = {
    TimestampType.NO_TIMESTAMP: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}


def batch_line(batch: BatchHeader, is_valid: bool = True) -> str:
    begin = f"offset: {batch.last_offset}"
    if batch.magic > 1:
        horizon = batch.base_timestamp if batch.has_delete_horizon else None
        last_sequence = batch.sequence(batch.last_offset)
        begin = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} "
            f"count: {batch.record_count} baseSequence: {batch.base_sequence} "
            f"lastSequence: {last_sequence} producerId: {batch.producer_id} "
            f"producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {_java(batch.is_transactional)} "
            f"isControl: {_java(batch.is_control)} deleteHorizonMs: {_optional(horizon)}"
        )
    return (
        f"{begin} position: {batch.position} {_TYPES[batch.timestamp_type]}: "
        f"{batch.max_timestamp} size: {batch.size} magic: {batch.magic} "
        f"compresscodec: {batch.codec.kafka_name} crc: {batch.crc} isvalid: {_java(is_valid)}"
    )


def metadata_of(columns: Columns, batch: BatchHeader, low: int, high: int) -> Iterator[str]:
    """Yields the part of each record's line that precedes its contents."""
    offsets, timestamps = columns.offsets[low:high].tolist(), columns.timestamps[low:high].tolist()
    sizes = columns.spans[low:high, (KEY_SIZE, VALUE_SIZE, HEADER_COUNT)].tolist()
    kind, checksums = _TYPES[batch.timestamp_type], _legacy_checksums(columns, batch)
    for number, (key_size, value_size, headers) in enumerate(sizes):
        line = (
            f" offset: {offsets[number]} {kind}: {timestamps[number]} "
            f"keySize: {max(key_size, -1)} valueSize: {max(value_size, -1)}"
        )
        if batch.magic < 2:
            line += f" isValid: true crc: {checksums[number]}"
        else:
            names = [name for name, _ in columns.headers(low + number)] if headers else ()
            line += f" sequence: {batch.sequence(offsets[number])} headerKeys: [{','.join(names)}]"
        yield line + _control(columns, low + number) if batch.is_control else line


def _control(columns: Columns, row: int) -> str:
    """Returns the part of the line that describes a control record (`ControlRecordType`)."""
    key, value = columns.key(row) or b"", columns.value(row) or b""
    number = int.from_bytes(key[2:4], "big", signed=True) if len(key) >= 4 else -1
    if number in (ControlType.ABORT, ControlType.COMMIT):
        epoch = int.from_bytes(value[2:6], "big", signed=True)
        return f" endTxnMarker: {ControlType(number).name} coordinatorEpoch: {epoch}"
    return f" {quorum_message(number, value)}"


def _legacy_checksums(columns: Columns, batch: BatchHeader) -> list[int]:
    """Returns the CRCs of the messages of a batch of magic 0 or 1. The columns of a wrapper hold
    its inner messages."""
    if batch.magic > 1 or not batch.codec:
        return [batch.crc]
    return [inner.crc for inner in inner_messages(memoryview(columns.data), batch)]


def txn_line(txn: AbortedTxn) -> str:
    return (
        f"version: 0 producerId: {txn.producer_id} firstOffset: {txn.first_offset} "
        f"lastOffset: {txn.last_offset} lastStableOffset: {txn.last_stable_offset}"
    )


def producer_line(entry: ProducerSnapshotEntry) -> str:
    first = entry.current_txn_first_offset
    line = (
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
        f"coordinatorEpoch: {entry.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(first if first >= 0 else None)} "
        f"lastTimestamp: {entry.timestamp}"
    )
    if entry.has_batch:
        first_sequence = (entry.last_sequence - entry.offset_delta) & MAX_INT32
        line += (
            f" firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta} "
            f"timestamp: {entry.timestamp}"
        )
    return line


def _java(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    """Formats a number as Java prints an OptionalLong."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
