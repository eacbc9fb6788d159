"""The offset of a stream between two batches, and its JSON in the checkpoint.

The JSON has the form of Spark's KafkaSourceOffset, `{"orders": {"0": 23, "1": 42}}`, with one more
member whose name cannot be a topic's: `":topicIds": {"orders": "AbV…"}`. Spark's own source rejects
a checkpoint with this member, so it can be omitted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkafs.storage import (
    MAX_INT32,
    MAX_OFFSET,
    TopicPartition,
    is_legal_topic,
    is_uuid_text,
    printable,
)

from ..options import TOPIC_IDS

_SHOWN: Final = 200  # characters of a malformed offset


class CheckpointError(ValueError):
    """The checkpoint has an offset that this source cannot have written."""

    def __init__(self, what: str, value: object) -> None:
        super().__init__(what, value)
        self.what = what
        self.value = value

    def __str__(self) -> str:
        text = printable(json.dumps(self.value))
        text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        return f"the offset in the checkpoint {self.what}: {text}"


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The next offset to read of each partition, and the known ids of their topics."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[str]:
        """The topics, sorted by name."""
        return sorted({topic for topic, _ in self.offsets})


def to_json(
    partition_offsets: PartitionOffsets, with_ids: bool = True
) -> dict[str, dict[str, Any]]:
    """Returns the JSON object, always in the same order, since Spark compares texts."""
    found: dict[str, dict[str, Any]] = {}
    for topic, partition in sorted(partition_offsets.offsets):
        found.setdefault(topic, {})[str(partition)] = partition_offsets.offsets[topic, partition]
    ids = {
        topic: partition_offsets.topic_ids[topic]
        for topic in found
        if topic in partition_offsets.topic_ids
    }
    if with_ids and ids:
        found[TOPIC_IDS] = ids
    return found


def from_json(value: object) -> PartitionOffsets:
    """Parses `to_json`'s result. Raises CheckpointError if it is an offset neither of this source
    nor of Spark's Kafka source."""
    if not isinstance(value, dict):
        raise CheckpointError("is not a JSON object", value)
    offsets = {
        (topic, _partition(value, topic, number)): _offset(value, topic, number, offset)
        for topic, numbers in value.items()
        if topic != TOPIC_IDS
        for number, offset in _members(value, topic, numbers)
    }
    ids = dict(_members(value, TOPIC_IDS, value.get(TOPIC_IDS, {})))
    _check_ids(value, ids, {topic for topic, _ in offsets})
    return PartitionOffsets(offsets, ids)


def offsets_behind(source: Mapping[str, Any]) -> list[int]:
    """Returns how many offsets each partition's end was ahead of the last batch of a stream, by one
    source of its progress; empty before the first batch. As in KafkaMicroBatchStream.metrics, a
    partition that no batch has contained yet counts from offset 0. Raises CheckpointError if it is
    a source neither of kafkafs nor of Spark's Kafka source."""
    texts = (source["endOffset"], source["latestOffset"])
    if any(text in (None, "None", "null") for text in texts):
        return []
    read, latest = (from_json(json.loads(text)).offsets for text in texts)
    return [end - read.get(key, 0) for key, end in latest.items()]


def _members(value: object, name: str, member: object) -> list[tuple[str, Any]]:
    if name != TOPIC_IDS and not is_legal_topic(name):
        raise CheckpointError(f"has {name!r}, which cannot be a topic's name", value)
    if not isinstance(member, dict):
        raise CheckpointError(f"has a member {name} that is not a JSON object", value)
    return list(member.items())


def _partition(value: object, topic: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) <= 10):
        raise CheckpointError(f"has {number!r} as a partition of {topic}", value)
    if int(number) > MAX_INT32:
        raise CheckpointError(f"has {number} as a partition of {topic}", value)
    return int(number)


def _offset(value: object, topic: str, number: str, offset: object) -> int:
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise CheckpointError(f"has no offset for {topic}-{number}", value)
    return offset


def _check_ids(value: object, ids: Mapping[str, Any], topics: Collection[str]) -> None:
    for topic, topic_id in ids.items():
        if topic not in topics:
            raise CheckpointError(f"has an id of {topic!r} in {TOPIC_IDS}, but no offsets", value)
        if not isinstance(topic_id, str) or not is_uuid_text(topic_id):
            what = f"has a malformed topic id for {topic} in {TOPIC_IDS}"
            raise CheckpointError(f"{what}, which must be 22 characters of base64", value)
