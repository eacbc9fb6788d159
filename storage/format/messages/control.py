"""Parses control batches: transaction markers and the control records of a KRaft quorum.

Rule: ``ControlRecordType``, ``EndTransactionMarker``. A control batch is never compressed and has
one record, or none after the log cleaner has emptied it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from ...errors import CorruptError
from ..layout import RECORD_BATCH_OVERHEAD, ControlType, TimestampType
from ..primitives import read_varint, read_varlong
from ..records.batch import Bytes, parse_header
from .fields import Fields

if TYPE_CHECKING:
    from .message import Message, MessageSchema

_KEY: Final = Struct(">hh")  # version, control type
_END_TXN_VALUE: Final = Struct(">hi")  # version, coordinator epoch
_KNOWN_TYPES: Final = {int(each): each for each in ControlType}


@dataclass(frozen=True, slots=True)
class EndTxnMarker:
    """The marker that ends a transaction: ``coordinator_epoch`` of the coordinator that wrote it,
    ``timestamp`` of its record in ms since 1970."""

    is_commit: bool
    coordinator_epoch: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class _ControlRecord:
    """Type (None: unknown), timestamp delta in ms, position of the value's size in the batch."""

    control_type: ControlType | None
    timestamp_delta: int
    value_at: int


def control_type(data: Bytes) -> ControlType | None:
    """Returns the type of a control batch's (first) record, None if truncated or unknown."""
    record = _read(data)
    return None if record is None else record.control_type


def end_txn_record(is_commit: bool, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Returns the key and value of the marker that ends a transaction."""
    kind = ControlType.COMMIT if is_commit else ControlType.ABORT
    return _KEY.pack(0, kind), _END_TXN_VALUE.pack(0, coordinator_epoch)


def parse_end_txn_marker(data: Bytes) -> EndTxnMarker | None:
    """Returns the marker in the control batch at the start of ``data``; None if the batch is empty,
    truncated or of another type.

    Raises CorruptError if there is no batch header.
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
    """Reads the epoch from a marker's value; None if it is too short or its version is negative."""
    try:
        size, at = read_varint(data, at)
    except IndexError:
        return None
    if size < _END_TXN_VALUE.size or len(data) - at < _END_TXN_VALUE.size:
        return None
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(data, at)
    return int(coordinator_epoch) if version >= 0 else None


def _read(data: Bytes) -> _ControlRecord | None:
    """Reads the record after a batch header, None if truncated. Key: int16 version, int16 type."""
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
    return _ControlRecord(_KNOWN_TYPES.get(number), timestamp_delta, at + size)


def quorum_message(number: int, value: bytes) -> str:
    """Formats a control record of a quorum's log as kafka-dump-log does, given its type number and
    value."""
    from .message import to_json

    messages = _quorum_messages()
    if number not in messages:
        known = {int(each): each.name for each in ControlType}
        return f"controlType: {known.get(number, 'UNKNOWN')}({number})"
    name, _ = messages[number]
    try:
        return f"{name} {to_json(parse_quorum_message(number, value))}"
    except CorruptError as error:
        return f"{name} (damaged: {error.what})"


def parse_quorum_message(number: int, value: bytes) -> Message | None:
    """Parses the value of a control record of a quorum's log; returns None if its type number is
    not one of a quorum. Raises CorruptError if it is malformed."""
    found = _quorum_messages().get(number)
    return found and found[1].read(value, Fields(value).int16())


def quorum_record(number: ControlType, message: Message) -> tuple[bytes, bytes]:
    """Returns the key and value of a control record of a quorum's log. Raises ValueError if it is
    not a message of this type."""
    from .writing import encode_message

    _, schema = _quorum_messages()[number]
    return _KEY.pack(0, number), encode_message(schema, message, message["version"])


@lru_cache(maxsize=1)
def _quorum_messages() -> dict[int, tuple[str, MessageSchema]]:
    """Returns, by control type, the name that kafka-dump-log prints and the schema of the value."""
    from .message import parse_schemas
    from .schemas import raft

    schemas = {schema.name: schema for schema in parse_schemas(raft.SCHEMAS)}
    return {
        ControlType.LEADER_CHANGE: ("LeaderChange:", schemas["LeaderChangeMessage"]),
        ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", schemas["SnapshotHeaderRecord"]),
        ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", schemas["SnapshotFooterRecord"]),
        ControlType.KRAFT_VERSION: ("KRaftVersion", schemas["KRaftVersionRecord"]),
        ControlType.KRAFT_VOTERS: ("KRaftVoters", schemas["VotersRecord"]),
    }
