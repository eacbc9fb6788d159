"""The topics and partitions that a request names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import UnknownPartition, UnknownTopic
from ..format.files.names import METADATA_TOPIC, TopicPartition

#: A topic and one of its partitions, or None for all of them.
Selected = tuple[str, int | None]

_PARTITION_DIGITS: Final = 10  # of an int32


@dataclass(frozen=True, slots=True)
class Selection:
    """Topics and partitions by name; without `names` everything is selected. False if so."""

    names: tuple[Selected, ...] = ()

    @classmethod
    def of(cls, *texts: str) -> Selection:
        """Parses `orders`, `orders/` (both mean all partitions), `orders/0`, or several of them
        joined by commas. Raises ValueError for anything else."""
        return cls(tuple(_parse(part) for text in texts for part in text.split(",")))

    def __bool__(self) -> bool:
        return bool(self.names)

    def __str__(self) -> str:
        """Formats the names as `of` parses them, joined by spaces. A topic ends with a slash, so
        that no topic is taken for an option."""
        return " ".join(f"{topic}/{'' if part is None else part}" for topic, part in self.names)

    def includes(self, topic: str, partition: int) -> bool:
        """Whether a partition is selected; partition -1 is a whole topic."""
        names = self.names
        return not names or (topic, None) in names or (topic, partition) in names

    def has_topic(self, topic: str) -> bool:
        """Whether the topic, or a partition of it, is named."""
        return any(name == topic for name, _ in self.names)

    def partitions(self, there: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
        """Returns the selected partitions out of those in `there`, in the order of the names; never
        the KRaft quorum's own log, which no engine writes to. Raises UnknownTopic or
        UnknownPartition."""
        there = {topic: numbers for topic, numbers in there.items() if topic != METADATA_TOPIC}
        if not self.names:
            return [(topic, number) for topic, numbers in there.items() for number in numbers]
        found: dict[TopicPartition, None] = {}
        for topic, number in self.names:
            if topic not in there:
                raise UnknownTopic(topic, there)
            if number is not None and number not in there[topic]:
                raise UnknownPartition(topic, number, there[topic])
            numbers = there[topic] if number is None else [number]
            found.update(dict.fromkeys((topic, each) for each in numbers))
        return list(found)


#: Selects all topics and partitions.
EVERYTHING: Final = Selection()


def _parse(text: str) -> Selected:
    topic, _, number = text.partition("/")
    if topic and not number:
        return topic, None
    if not (topic and number.isascii() and number.isdigit()) or len(number) > _PARTITION_DIGITS:
        raise ValueError(f"{text!r} is not TOPIC/PARTITION")
    return topic, int(number)
