"""Parses the records of `__cluster_metadata`.

A record's value is a frame version, the number of a schema and its version, each an unsigned
varint, then the message in Kafka's flexible encoding (KIP-482). `schemas/metadata.py` has the
schemas. A log has a PartitionRecord for each partition and a PartitionChangeRecord for each change
of a leader, so that these two have readers of their own, several times as fast as
`MessageSchema.read`, which reads whatever they do not expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import lru_cache, partial
from struct import Struct, error
from typing import Final, NamedTuple

from ...errors import CorruptError
from ..primitives import UUID_BYTES, uuid_text
from .fields import Fields
from .message import Message, MessageSchema, parse_schemas
from .schemas import metadata
from .writing import encode_message, unsigned_varint

FRAME_VERSION: Final = 1
_FRAME_BYTES: Final = 3  # as long as number and version are below 128


class RecordType(IntEnum):
    """The number of a record's schema (MetadataRecordType)."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    FENCE_BROKER = 7
    UNFENCE_BROKER = 8
    REMOVE_TOPIC = 9
    DELEGATION_TOKEN = 10
    USER_SCRAM_CREDENTIAL = 11
    FEATURE_LEVEL = 12
    CLIENT_QUOTA = 14
    PRODUCER_IDS = 15
    BROKER_REGISTRATION_CHANGE = 17
    ACCESS_CONTROL_ENTRY = 18
    REMOVE_ACCESS_CONTROL_ENTRY = 19
    NO_OP = 20
    ZK_MIGRATION_STATE = 21
    REMOVE_USER_SCRAM_CREDENTIAL = 22
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25
    REMOVE_DELEGATION_TOKEN = 26
    REGISTER_CONTROLLER = 27
    CLEAR_ELR = 28


class ResourceType(IntEnum):
    """The type of resource that a config belongs to (ConfigResource.Type)."""

    TOPIC = 2
    BROKER = 4
    CLIENT_METRICS = 16
    GROUP = 32


class MetadataRecord(NamedTuple):
    """A record. `data`: its message as `MessageSchema.read` returns it, without the fields that its
    version lacks and the tagged fields with their default value; None if the type is unknown.
    `unknown`: what a newer broker wrote that is not understood, "" if nothing."""

    number: int
    data: Message | None
    unknown: str = ""


def parse_metadata_record(value: bytes) -> MetadataRecord:
    """Parses a record's value. A version newer than the schema is read as the newest known one.
    Raises CorruptError if it is malformed."""
    try:
        frame, number, version = value[:_FRAME_BYTES]
        read = _READERS.get((number, version)) if frame == FRAME_VERSION else None
        if read is not None:
            return MetadataRecord(number, read(value))
    except (IndexError, ValueError, error):
        pass  # truncated, or unusual
    return _by_schema(value)


@lru_cache(maxsize=1)
def metadata_schemas() -> Mapping[int, MessageSchema]:
    """Returns the schemas of all records by number."""
    return {schema.number: schema for schema in parse_schemas(metadata.SCHEMAS)}


def format_metadata_record(number: int, version: int, message: Message) -> bytes:
    """Returns the value of a record with a message as `MessageSchema.read` returns it. Raises
    ValueError if it is not a message of this type and version."""
    data = encode_message(metadata_schemas()[number], message, version)
    return b"".join(map(unsigned_varint, (FRAME_VERSION, number, version))) + data


def _by_schema(value: bytes) -> MetadataRecord:
    fields = Fields(value)
    frame = fields.unsigned_varint()
    if frame != FRAME_VERSION:
        what = f"metadata record has frame version {frame}, expected {FRAME_VERSION}"
        raise CorruptError(what, position=0)
    number, version = fields.unsigned_varint(), fields.unsigned_varint()
    schema = metadata_schemas().get(number)
    if schema is None:
        return MetadataRecord(number, None, f"unknown metadata record type {number}")
    newest = schema.versions[1]
    message, left = schema.read_first(fields.rest(), min(version, newest))
    if version > newest:
        what = f"version {version} of {schema.name}, read as version {newest}, the last known"
        return MetadataRecord(number, message, what)
    if left:
        what = f"{left} bytes after the end of a {schema.name}"
        raise CorruptError(what, position=len(value) - left)
    return MetadataRecord(number, message)


# -- readers of frequent records -------------------------------------------------------------------
# Each raises IndexError, ValueError or struct.error for what `MessageSchema.read` has to look at.

_PARTITION_HEAD: Final = Struct(">i16s")
_EPOCHS: Final = Struct(">iii")
_INT32: Final = Struct(">i")
_AFTER_HEAD: Final = _FRAME_BYTES + _PARTITION_HEAD.size
# Arrays of more nodes are rare.
_NODES: Final = tuple(Struct(f">{count}i") for count in range(16))
_NO_TAGS: Final = b"\0"


@lru_cache(maxsize=1 << 12)
def _uuid_text(data: bytes) -> str:
    return uuid_text(data)


def _nodes(value: bytes, at: int) -> tuple[list[int], int]:
    """Reads a compact array of nodes that is not null. Returns it, and the position after it."""
    count = value[at] - 1
    if count < 0:
        raise ValueError
    form = _NODES[count]
    return list(form.unpack_from(value, at + 1)), at + 1 + form.size


def _uuids(value: bytes, at: int) -> tuple[list[str], int]:
    count = value[at] - 1
    start, end = at + 1, at + 1 + UUID_BYTES * count
    if not 0 <= count < len(_NODES) or end > len(value):
        raise ValueError
    return [
        _uuid_text(value[each : each + UUID_BYTES]) for each in range(start, end, UUID_BYTES)
    ], end


def _partition(value: bytes, *, has_directories: bool) -> Message:
    partition, topic_id = _PARTITION_HEAD.unpack_from(value, _FRAME_BYTES)
    replicas, at = _nodes(value, _AFTER_HEAD)
    isr, at = _nodes(value, at)
    removing, at = _nodes(value, at)
    adding, at = _nodes(value, at)
    leader, leader_epoch, partition_epoch = _EPOCHS.unpack_from(value, at)
    at += _EPOCHS.size
    message: Message = {
        "partitionId": partition,
        "topicId": _uuid_text(topic_id),
        "replicas": replicas,
        "isr": isr,
        "removingReplicas": removing,
        "addingReplicas": adding,
        "leader": leader,
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
    }
    if has_directories:
        message["directories"], at = _uuids(value, at)
    if value[at:] != _NO_TAGS:
        raise ValueError
    return message


_LEADER_TAG: Final = 1
_NO_LEADER_CHANGE: Final = -2


def _partition_change(nodes_by_tag: Mapping[int, str], value: bytes) -> Message:
    """Reads a change of a leader and of the tagged arrays of nodes that have these names."""
    partition, topic_id = _PARTITION_HEAD.unpack_from(value, _FRAME_BYTES)
    message: Message = {"partitionId": partition, "topicId": _uuid_text(topic_id)}
    at = _AFTER_HEAD + 1
    for _ in range(value[_AFTER_HEAD]):
        tag, size = value[at], value[at + 1]
        at += 2
        if tag == _LEADER_TAG:
            (message["leader"],) = _INT32.unpack_from(value, at)
            end = at + _INT32.size
        elif (name := nodes_by_tag.get(tag)) is not None:
            message[name], end = _nodes(value, at)
        else:
            raise ValueError
        if end != at + size:
            raise ValueError
        at = end
    if at != len(value) or message.get("leader") == _NO_LEADER_CHANGE:
        raise ValueError
    return message


_first_change = partial(_partition_change, {0: "isr"})
_change = partial(_partition_change, {0: "isr", 6: "eligibleLeaderReplicas", 7: "lastKnownElr"})
# By schema and version.
_READERS: Final[Mapping[tuple[int, int], Callable[[bytes], Message]]] = {
    (RecordType.PARTITION, 0): partial(_partition, has_directories=False),
    (RecordType.PARTITION, 1): partial(_partition, has_directories=True),
    (RecordType.PARTITION, 2): partial(_partition, has_directories=True),
    (RecordType.PARTITION_CHANGE, 0): _first_change,
    (RecordType.PARTITION_CHANGE, 1): _first_change,
    (RecordType.PARTITION_CHANGE, 2): _change,
}
