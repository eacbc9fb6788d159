"""Records of `__remote_log_metadata`: which segments a broker copied to remote storage, and deleted
there (KIP-405). Values are framed as those of cluster metadata: frame version, number and version
of the message as unsigned varints (RemoteLogMetadataSerde)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TypeVar

from ...errors import CorruptError
from ...wording import printable
from .fields import Fields
from .message import Message, MessageSchema, parse_schemas
from .metadata import FRAME_VERSION
from .schemas import remote_log_metadata


class RemoteLogSegmentState(IntEnum):
    """How far a segment's copy in remote storage is (Kafka's class of the same name)."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    """How far the deletion of a whole partition in remote storage is."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


@dataclass(frozen=True, slots=True)
class TopicIdPartition:
    """A partition of a topic. `topic_id` has 22 characters of URL-safe base64."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}:{printable(self.topic)}-{self.partition}"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """A segment in remote storage; `id` is formatted as a topic id."""

    partition: TopicIdPartition
    id: str

    def __str__(self) -> str:
        return f"RemoteLogSegmentId{{topicIdPartition={self.partition}, id={self.id}}}"


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """A segment with offsets from `start_offset` to `end_offset`, both included.

    `segment_leader_epochs`: pairs of leader epoch and its first offset in the segment, ascending.
    Times are in ms since 1970. `custom_metadata`: of the plugin, None if there is none.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp: int
    event_timestamp: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    is_txn_index_empty: bool = False

    def __str__(self) -> str:
        epochs = _epochs_text(self.segment_leader_epochs)
        return (
            f"RemoteLogSegmentMetadata{{remoteLogSegmentId={self.segment_id}"
            f", startOffset={self.start_offset}, endOffset={self.end_offset}"
            f", brokerId={self.broker_id}, maxTimestampMs={self.max_timestamp}"
            f", eventTimestampMs={self.event_timestamp}, segmentLeaderEpochs={epochs}"
            f", segmentSizeInBytes={self.segment_size}"
            f", customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}"
            f", txnIdxEmpty={str(self.is_txn_index_empty).lower()}}}"
        )


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A new state of a segment."""

    segment_id: RemoteLogSegmentId
    broker_id: int
    event_timestamp: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState

    def __str__(self) -> str:
        return (
            f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={self.segment_id}"
            f", customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}"
            f", eventTimestampMs={self.event_timestamp}, brokerId={self.broker_id}}}"
        )


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """A new state of a deletion of a whole partition."""

    partition: TopicIdPartition
    broker_id: int
    event_timestamp: int
    state: RemotePartitionDeleteState

    def __str__(self) -> str:
        return (
            f"RemotePartitionDeleteMetadata{{topicPartition={self.partition}"
            f", state={self.state.name}, eventTimestampMs={self.event_timestamp}"
            f", brokerId={self.broker_id}}}"
        )


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataSnapshot:
    """A segment's metadata without its partition, as a broker stored them in its own files."""

    segment_id: str
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp: int
    event_timestamp: int
    segment_leader_epochs: tuple[tuple[int, int], ...]
    segment_size: int
    custom_metadata: bytes | None
    state: RemoteLogSegmentState
    is_txn_index_empty: bool = False

    def __str__(self) -> str:
        epochs = _epochs_text(self.segment_leader_epochs)
        return (
            f"RemoteLogSegmentMetadataSnapshot{{segmentId={self.segment_id}"
            f", startOffset={self.start_offset}, endOffset={self.end_offset}"
            f", maxTimestampMs={self.max_timestamp}, segmentLeaderEpochs={epochs}"
            f", segmentSizeInBytes={self.segment_size}"
            f", customMetadata={_custom_text(self.custom_metadata)}, state={self.state.name}"
            f", txnIdxEmpty={str(self.is_txn_index_empty).lower()}}}"
        )


RemoteLogMetadata = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | RemoteLogSegmentMetadataSnapshot
)


def parse_remote_log_metadata(value: bytes | None) -> RemoteLogMetadata:
    """Parses the value of a record. Raises CorruptError if it is malformed or of an unknown
    type."""
    fields = Fields(value or b"")
    if (frame := fields.unsigned_varint()) != FRAME_VERSION:
        raise CorruptError(f"remote log metadata has frame version {frame}, not {FRAME_VERSION}")
    number, version = fields.unsigned_varint(), fields.unsigned_varint()
    schema = _schemas().get(number)
    if schema is None:
        raise CorruptError(f"unknown remote log metadata record type {number}")
    message = schema.read(fields.rest(), version)
    if number == 0:
        segment_id = _segment_id(message["remoteLogSegmentId"])
        return RemoteLogSegmentMetadata(segment_id, *_segment(message))
    if number == 1:
        return RemoteLogSegmentMetadataUpdate(
            _segment_id(message["remoteLogSegmentId"]),
            message["brokerId"],
            message["eventTimestampMs"],
            message["customMetadata"],
            _state(RemoteLogSegmentState, message["remoteLogSegmentState"]),
        )
    if number == 2:
        return RemotePartitionDeleteMetadata(
            _partition(message["topicIdPartition"]),
            message["brokerId"],
            message["eventTimestampMs"],
            _state(RemotePartitionDeleteState, message["remotePartitionDeleteState"]),
        )
    return RemoteLogSegmentMetadataSnapshot(message["segmentId"], *_segment(message))


@lru_cache(maxsize=1)
def _schemas() -> dict[int, MessageSchema]:
    return {schema.number: schema for schema in parse_schemas(remote_log_metadata.SCHEMAS)}


_Segment = tuple[
    int, int, int, int, int, tuple[tuple[int, int], ...], int, bytes | None, RemoteLogSegmentState,
    bool,
]  # fmt: skip


def _segment(message: Message) -> _Segment:
    epochs = {each["leaderEpoch"]: each["offset"] for each in message["segmentLeaderEpochs"]}
    return (
        message["startOffset"],
        message["endOffset"],
        message["brokerId"],
        message["maxTimestampMs"],
        message["eventTimestampMs"],
        tuple(sorted(epochs.items())),
        message["segmentSizeInBytes"],
        message["customMetadata"],
        _state(RemoteLogSegmentState, message["remoteLogSegmentState"]),
        message.get("txnIndexEmpty", False),
    )


def _segment_id(message: Message) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(_partition(message["topicIdPartition"]), message["id"])


def _partition(message: Message) -> TopicIdPartition:
    return TopicIdPartition(message["name"], message["id"], message["partition"])


State = TypeVar("State", RemoteLogSegmentState, RemotePartitionDeleteState)


def _state(kind: type[State], number: int) -> State:
    try:
        return kind(number)
    except ValueError:
        raise CorruptError(f"unknown {kind.__name__} {number}") from None


def _epochs_text(epochs: tuple[tuple[int, int], ...]) -> str:
    """Formats a map as Java's does."""
    return "{" + ", ".join(f"{epoch}={offset}" for epoch, offset in epochs) + "}"


def _custom_text(custom: bytes | None) -> str:
    if custom is None:
        return "Optional.empty"
    return f"Optional[CustomMetadata{{{len(custom)} bytes}}]"
