"""Resolves the topics and partitions that a user selected against those that exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import UnknownPartition, UnknownTopic
from ..format.files.names import METADATA_TOPIC
from .log_dir import TopicPartition

#: A topic and one of its partitions, or None for all of them.
Choice = tuple[str, int | None]


def choose(there: Mapping[str, Sequence[int]], chosen: Sequence[Choice]) -> list[TopicPartition]:
    """Returns the selected partitions out of those in `there`, or all if none are selected; never
    the KRaft quorum's own log, which no engine writes to. Raises UnknownTopic or
    UnknownPartition."""
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
