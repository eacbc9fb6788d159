"""Reads topic ids from `partition.metadata`, to find out which topic a directory belongs to.

A topic that is deleted and created again keeps its name and gets another id. Directories that
were only written by brokers before Kafka 2.8 have no id and cannot be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkafs.storage import (
    CorruptError,
    Engine,
    TopicPartition,
    id_of,
)

# How often contradicting ids are read: if a topic is created again while its partitions are read
# one after another, some have the old id and others the new one.
_ATTEMPTS: Final = 3


def read_ids(engine: Engine, keys: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Returns `id_of` each partition, without those that do not exist.

    Raises CorruptError if a partition.metadata is malformed, or if partitions of one topic have
    different ids.
    """
    selected = list(keys)
    for attempt in range(1, _ATTEMPTS + 1):
        read = ((key, id_of(engine, key)) for key in selected)
        ids = {key: topic_id for key, topic_id in read if topic_id is not None}
        different = _different(ids)
        if different is None:
            return ids
        if attempt == _ATTEMPTS:
            raise _contradiction(ids, *different)
    raise AssertionError("unreachable")


def by_topic(ids: Mapping[TopicPartition, str]) -> dict[str, str]:
    """Returns the id of each topic, "" if none of its partitions has one."""
    found: dict[str, str] = {}
    for (topic, _), topic_id in ids.items():
        found[topic] = found.get(topic) or topic_id
    return found


def _different(ids: Mapping[TopicPartition, str]) -> tuple[TopicPartition, TopicPartition] | None:
    """Returns two partitions of a topic that have different ids, or None."""
    first: dict[str, TopicPartition] = {}
    for key, topic_id in ids.items():
        if topic_id and ids[first.setdefault(key[0], key)] != topic_id:
            return first[key[0]], key
    return None


def _contradiction(
    ids: Mapping[TopicPartition, str], one: TopicPartition, other: TopicPartition
) -> CorruptError:
    topic = one[0]
    found = " and ".join(f"{topic}-{key[1]} has topic id {ids[key]}" for key in (one, other))
    return CorruptError(f"{found}: they belong to different topics; move the older directory away")
