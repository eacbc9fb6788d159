"""Parses the `__cluster_metadata` records that define topic ids, partitions and configs.

A record's value is a frame version, an api key and a version, each an unsigned varint, then the
message in Kafka's flexible encoding (KIP-482), with fields in the order of its schema:

    key  message                  fields
    2    TopicRecord              name: compact string · topic id: 16 bytes
    3    PartitionRecord          partition: int32 · topic id: 16 bytes · replicas: array of int32
                                  · ...
    4    ConfigRecord             resource type: int8 · resource name, name: compact string
                                  · value: compact string or null
    5    PartitionChangeRecord    partition: int32 · topic id: 16 bytes · tagged fields, among them
                                  2, replicas: array of int32 or null
    9    RemoveTopicRecord        topic id: 16 bytes
    23   BeginTransactionRecord   later records apply only at its end (KIP-868)
    24   EndTransactionRecord
    25   AbortTransactionRecord

Each message ends in tagged fields. Newer brokers may add tagged fields, and message versions with
more fields after the known ones; both are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ...errors import CorruptError
from .fields import Fields

FRAME_VERSION = 1
_REPLICAS = 2  # tag in PartitionChangeRecord


class ResourceType(IntEnum):
    """The type of resource that a config belongs to (ConfigResource.Type); others are ignored."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic was created."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition was created, with replicas on these nodes."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartitionChangeRecord:
    """A partition's replicas moved to these nodes; None if something else changed."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A config was set, or removed (value None). For type BROKER, the resource name is a node id,
    or "" for all nodes."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted, and its configs with it."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """A transaction begins: the records that follow apply together."""


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """The transaction is complete, and its records apply."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """The transaction is aborted, and its records do not apply."""


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
)


def parse_metadata_record(data: bytes | memoryview) -> MetadataRecord | None:
    """Parses a record's value; returns None if it is of another type. Raises CorruptError, with a
    position in `data`, if it is malformed."""
    fields = Fields(data)
    frame = fields.unsigned_varint()
    if frame != FRAME_VERSION:
        raise CorruptError(f"metadata record has frame version {frame}, expected 1", position=0)
    api_key = fields.unsigned_varint()
    fields.unsigned_varint()  # the message's version
    match api_key:
        case 2:
            return TopicRecord(fields.string(), fields.uuid())
        case 3:
            partition = fields.int32()
            return PartitionRecord(fields.uuid(), partition, _nodes(fields) or ())
        case 4:
            resource = fields.int8(), fields.string()
            return ConfigRecord(*resource, fields.string(), fields.nullable_string())
        case 5:
            partition = fields.int32()
            topic_id = fields.uuid()
            moved = [_nodes(field) for tag, field in fields.tags() if tag == _REPLICAS]
            return PartitionChangeRecord(topic_id, partition, moved[-1] if moved else None)
        case 9:
            return RemoveTopicRecord(fields.uuid())
        case 23:
            return BeginTransactionRecord()
        case 24:
            return EndTransactionRecord()
        case 25:
            return AbortTransactionRecord()
    return None


def _nodes(fields: Fields) -> tuple[int, ...] | None:
    found = fields.nullable_array(fields.int32)
    return None if found is None else tuple(found)
