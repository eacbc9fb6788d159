"""Which topic a partition's directory belongs to: the id in its `partition.metadata`.

A topic that is deleted and created again keeps its name and gets another id. Directories that
only a broker before Kafka 2.8 has written have no id, and nothing can be said about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkafs.storage.engine import Engine
from kafkafs.storage.errors import CorruptError, SegmentGone, UnknownPartition, UnknownTopic

from .options import TopicPartition

# How often ids are read again that contradict each other: a topic that is created again while its
# partitions are read, one after the other, shows the old id in some and the new one in others.
_ATTEMPTS: Final = 3


def id_of(engine: Engine, key: TopicPartition) -> str | None:
    """The topic id in a partition's directory, "" where it has none; None if the partition does not
    exist. Raises CorruptError if its partition.metadata is malformed."""
    try:
        found = engine.partition_dir(*key)
        topic_id = found.topic_id()
        if not topic_id:
            found.directory.stat()  # no id is also what a directory has that was just deleted
    except (UnknownTopic, UnknownPartition, SegmentGone):
        return None
    return topic_id


def read_ids(engine: Engine, keys: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """`id_of` each partition, without those that do not exist.

    Raises CorruptError if a partition.metadata is malformed, or if partitions of one topic have
    different ids.
    """
    wanted = list(keys)
    for attempt in range(1, _ATTEMPTS + 1):
        read = ((key, id_of(engine, key)) for key in wanted)
        ids = {key: topic_id for key, topic_id in read if topic_id is not None}
        different = _different(ids)
        if different is None:
            return ids
        if attempt == _ATTEMPTS:
            raise _contradiction(ids, *different)
    raise AssertionError("unreachable")


def by_topic(ids: Mapping[TopicPartition, str]) -> dict[str, str]:
    """The id of each topic, "" where none of its partitions has one."""
    found: dict[str, str] = {}
    for (topic, _), topic_id in ids.items():
        found[topic] = found.get(topic) or topic_id
    return found


def _different(ids: Mapping[TopicPartition, str]) -> tuple[TopicPartition, TopicPartition] | None:
    """Two partitions of a topic that have different ids."""
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
    return CorruptError(f"{found}: they are of different topics; move the older directory away")
