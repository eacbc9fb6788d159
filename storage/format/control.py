"""Control batches: the ends of transactions, and what Kafka's own quorum writes.

Rule: ``ControlRecordType``, ``EndTransactionMarker``. A control batch is never compressed and has
one record; a batch without one is what the cleaner left of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from .batch import Bytes, parse_header
from .layout import RECORD_BATCH_OVERHEAD, ControlType, TimestampType
from .varint import read_varint, read_varlong

_END_TXN_VALUE = Struct(">hi")  # version, coordinator epoch


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The end of a transaction: ``coordinator_epoch`` of who ordered it, ``timestamp`` of its
    record in ms since 1970."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class _ControlRecord:
    """Type (None: unknown), timestamp delta in ms, and where in its batch the value's size is."""

    control_type: ControlType | None
    timestamp_delta: int
    value_at: int


def control_type(data: Bytes) -> ControlType | None:
    """Type of the (first) record of a control batch, None for one that is cut off or unknown."""
    record = _read(data)
    return None if record is None else record.control_type


def parse_end_txn_marker(data: Bytes) -> EndTxnMarker | None:
    """The marker in the control batch that ``data`` begins with; None for a batch that is emptied,
    cut off or of another type.

    CorruptError when there is no batch header.
    """
    header = parse_header(data)
    if header.record_count == 0:
        return None
    record = _read(data)
    if record is None or record.control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    coordinator_epoch = _coordinator_epoch(data, record.value_at)
    if coordinator_epoch is None:
        return None
    timestamp = header.base_timestamp + record.timestamp_delta
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    return EndTxnMarker(record.control_type is ControlType.COMMIT, coordinator_epoch, timestamp)


def _coordinator_epoch(data: Bytes, at: int) -> int | None:
    """From the value of a marker; None when it is too short or of no version."""
    try:
        size, at = read_varint(data, at)
    except IndexError:
        return None
    if size < _END_TXN_VALUE.size or len(data) - at < _END_TXN_VALUE.size:
        return None
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(data, at)
    return int(coordinator_epoch) if version >= 0 else None


def _read(data: Bytes) -> _ControlRecord | None:
    """The record behind a batch header, None when it is cut off. Key: int16 version, int16 type."""
    at = RECORD_BATCH_OVERHEAD
    try:
        _, at = read_varint(data, at)
        timestamp_delta, at = read_varlong(data, at + 1)
        _, at = read_varint(data, at)
        size, at = read_varint(data, at)
        key = bytes(data[at : at + 4])
        if size < 4 or len(key) < 4:
            return None
    except IndexError:
        return None
    number = int.from_bytes(key[2:4], "big", signed=True)
    known = ControlType(number) if number in set(ControlType) else None
    return _ControlRecord(known, timestamp_delta, at + size)
