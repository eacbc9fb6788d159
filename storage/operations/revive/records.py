"""The records from which the new node's controller makes its metadata log.

They describe the old cluster as one stopped node would have left it: every partition has this node
as its only replica, in the one log directory, in sync, and without a leader until it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...format.files.names import TopicPartition
from ...format.messages.metadata import RecordType, ResourceType
from ...metadata.bootstrap import NewRecord
from ...metadata.new_topic import config_records, partition_record, topic_record
from .releases import features_for
from .sources import SourceCluster, SourceTopic, other_configs

# A controller allocates producer ids in blocks of this size (ProducerIdsBlock).
_PRODUCER_ID_BLOCK: Final = 1000


def bootstrap_records(
    cluster: SourceCluster,
    directory_id: str,
    epochs: Mapping[TopicPartition, int],
    last_producer_id: int,
) -> Iterator[NewRecord]:
    """Yields the records. `epochs`: the last leader epoch of each partition;
    `last_producer_id`: the greatest one in the logs, -1 if there is none."""
    levels = features_for(cluster.image.features, cluster.release)
    for name, level in levels.items():
        yield NewRecord(RecordType.FEATURE_LEVEL, 0, {"name": name, "featureLevel": level})
    for topic in cluster.topics:
        yield from _topic(cluster, topic, directory_id, epochs)
    for resource, configs in cluster.broker_configs.items():
        yield from config_records(ResourceType.BROKER, resource, configs)
    for message in other_configs(cluster.settings):
        yield NewRecord(RecordType.CONFIG, 0, message)
    for number in (
        *(RecordType.CLIENT_QUOTA, RecordType.ACCESS_CONTROL_ENTRY),
        *(RecordType.USER_SCRAM_CREDENTIAL, RecordType.DELEGATION_TOKEN),
    ):
        for message in cluster.settings.of(number):
            yield NewRecord(number, 0, message)
    next_id = max(cluster.image.next_producer_id, next_block(last_producer_id))
    if next_id >= 0:
        ids = {"brokerId": cluster.node_id, "brokerEpoch": 0, "nextProducerId": next_id}
        yield NewRecord(RecordType.PRODUCER_IDS, 0, ids)


def _topic(
    cluster: SourceCluster,
    topic: SourceTopic,
    directory_id: str,
    epochs: Mapping[TopicPartition, int],
) -> Iterator[NewRecord]:
    yield topic_record(topic.name, topic.topic_id)
    known = cluster.image.topics.get(topic.name)
    for number in topic.partitions:
        old = known.partitions.get(number) if known is not None else None
        yield partition_record(
            cluster.node_id,
            topic.topic_id,
            number,
            epochs[topic.name, number],
            directory_id,
            partition_epoch=0 if old is None else old.partition_epoch + 1,
        )
    yield from config_records(ResourceType.TOPIC, topic.name, topic.configs)


def next_block(last_id: int) -> int:
    """Returns the beginning of the first block of producer ids that is unused for certain."""
    return -1 if last_id < 0 else (last_id // _PRODUCER_ID_BLOCK + 1) * _PRODUCER_ID_BLOCK
