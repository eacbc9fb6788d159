"""Partitions named by somebody, out of those that are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .errors import UnknownPartition, UnknownTopic
from .format.names import METADATA_TOPIC
from .log_dir import TopicPartition

#: A topic, and one of its partitions or all.
Choice = tuple[str, int | None]


def choose(there: Mapping[str, Sequence[int]], chosen: Sequence[Choice]) -> list[TopicPartition]:
    """The partitions `chosen` out of those that are there, all when nothing is; never the quorum's
    own log, which no engine writes to. UnknownTopic, UnknownPartition."""
    there = {topic: numbers for topic, numbers in there.items() if topic != METADATA_TOPIC}
    if not chosen:
        return [(topic, number) for topic, numbers in there.items() for number in numbers]
    found: dict[TopicPartition, None] = {}
    for topic, number in chosen:
        if topic not in there:
            raise UnknownTopic(topic, there)
        if number is not None and number not in there[topic]:
            raise UnknownPartition(topic, number, there[topic])
        numbers = there[topic] if number is None else [number]
        found.update(dict.fromkeys((topic, each) for each in numbers))
    return list(found)
