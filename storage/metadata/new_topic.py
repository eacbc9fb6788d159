"""The records of a topic for a node that is the only replica of its partitions, and in sync."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ..format.messages.metadata import RecordType, ResourceType
from .bootstrap import NewRecord
from .image import NO_LEADER

#: The first metadata.version whose partitions name the log directories of their replicas (3.7-IV2).
DIRECTORIES_SINCE: Final = 17


def topic_record(name: str, topic_id: str) -> NewRecord:
    """Returns the record that creates a topic."""
    return NewRecord(RecordType.TOPIC, 0, {"name": name, "topicId": topic_id})


def partition_record(
    node_id: int,
    topic_id: str,
    number: int,
    leader_epoch: int,
    directory_id: str | None,
    partition_epoch: int = 0,
    leader: int = NO_LEADER,
) -> NewRecord:
    """Returns the record that creates a partition. `directory_id`: the log directory it is in, None
    for a cluster from before DIRECTORIES_SINCE.

    The `leader` must be the node if that is registered as a broker. If the broker's shutdown counts
    as unclean, Kafka 4 removes it from the ISR, and then elects only who was the leader before
    (PartitionChangeBuilder.maybeUpdateLastKnownLeader)."""
    message = {
        "partitionId": number,
        "topicId": topic_id,
        "replicas": [node_id],
        "isr": [node_id],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": leader,
        "leaderEpoch": leader_epoch,
        "partitionEpoch": partition_epoch,
    }
    if directory_id is None:
        return NewRecord(RecordType.PARTITION, 0, message)
    return NewRecord(RecordType.PARTITION, 1, {**message, "directories": [directory_id]})


def config_records(
    kind: ResourceType, resource: str, configs: Mapping[str, str]
) -> Iterator[NewRecord]:
    """Yields the records that set the configs of a resource."""
    for name, value in configs.items():
        message = {"resourceType": kind, "resourceName": resource, "name": name, "value": value}
        yield NewRecord(RecordType.CONFIG, 0, message)
