"""Records of `__cluster_metadata`: the few kinds that tell a topic's id, partitions and settings.

A record's value is a frame version, an api key and a version, each an unsigned varint, then that
message in Kafka's flexible encoding (KIP-482), fields in the order of its schema:

    key  message                  fields
    2    TopicRecord              name: compact string · topic id: 16 bytes
    3    PartitionRecord          partition: int32 · topic id: 16 bytes · replicas: array of int32
                                  · ...
    4    ConfigRecord             resource type: int8 · resource name, name: compact string
                                  · value: compact string or null
    5    PartitionChangeRecord    partition: int32 · topic id: 16 bytes · tagged fields, of which 2
                                  is replicas: array of int32 or null
    9    RemoveTopicRecord        topic id: 16 bytes
    23   BeginTransactionRecord   what follows counts only once it is ended (KIP-868)
    24   EndTransactionRecord
    25   AbortTransactionRecord

Each message ends in tagged fields, which newer brokers may add to, as they may add versions that
put fields behind the known ones; neither is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ..errors import CorruptError
from .fields import Fields

FRAME_VERSION = 1
_REPLICAS = 2  # the tag of a PartitionChangeRecord's field


class ResourceType(IntEnum):
    """What a setting is of (ConfigResource.Type); other numbers are of no interest here."""

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
    """A partition's replicas moved to these nodes; None: something else of it changed."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting was given a value, or removed (None). Of type BROKER, the resource is a node's id,
    or "" for all nodes."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted, and its settings with it."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class BeginTransactionRecord:
    """What follows belongs together."""


@dataclass(frozen=True, slots=True)
class EndTransactionRecord:
    """What belongs together is complete."""


@dataclass(frozen=True, slots=True)
class AbortTransactionRecord:
    """What belongs together does not count."""


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
    """The record in a value, None when it is of another kind. CorruptError, position in `data`."""
    fields = Fields(data)
    frame = fields.unsigned_varint()
    if frame != FRAME_VERSION:
        raise CorruptError(f"frame version {frame} of a metadata record, not 1", position=0)
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
