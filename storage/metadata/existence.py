"""Which topics and partitions existed at an earlier time, as far as the cluster's metadata says.

A directory does not say when it was created, but the metadata log does. A topic that it knows now,
and did not know then, was created later; so was one of the same name with another id. Topics of
which it knows nothing, and all topics if it does not reach back that far, count as existing: then
all their records may be later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import CreatedLater, UnknownPartition
from ..format.files.names import METADATA_TOPIC
from .image import MetadataImage, TopicMetadata

Topics = Mapping[str, list[int]]


class Existence:
    """The topics of log directories at ``at_ms``, in ms since 1970. Any thread may use it."""

    def __init__(
        self,
        at_ms: int,
        image: Callable[[], MetadataImage | None],
        present: Callable[[], MetadataImage],
        topic_id: Callable[[str, int], str],
    ) -> None:
        """`image` returns the cluster at that time, None if it is unknown, and `present` the
        cluster now. `topic_id` returns the id in a partition's directory, "" if it has none."""
        self._at_ms = at_ms
        self._image = image
        self._present = present
        self._topic_id = topic_id
        self._known: tuple[Topics, MetadataImage, Topics] | None = None

    def of(self, there: Topics) -> Topics:
        """Returns those of the topics that existed, with those of their partitions that did."""
        image = self._image()
        if image is None:
            return there
        known = self._known
        if known is None or known[0] is not there or known[1] is not image:
            found = ((topic, self._numbers(image, topic, there[topic])) for topic in there)
            existing = {topic: numbers for topic, numbers in found if numbers}
            known = self._known = there, image, existing
        return known[2]

    def check(self, there: Topics, topic: str, partition: int | None = None) -> None:
        """Raises CreatedLater or UnknownPartition for a topic or partition that exists now, but did
        not."""
        existing = self.of(there)
        if topic in there and topic not in existing:
            raise CreatedLater(topic, self._at_ms, existing)
        if partition is None or partition not in there.get(topic, ()):
            return
        if partition not in existing[topic]:
            raise UnknownPartition(topic, partition, existing[topic])

    def _numbers(self, image: MetadataImage, topic: str, numbers: list[int]) -> list[int]:
        """Returns those of the partitions of a topic that existed."""
        if topic == METADATA_TOPIC:
            return numbers
        topic_id = self._topic_id(topic, numbers[0])
        then = _of_id(image, topic, topic_id)
        if then is not None and then.partitions.keys() >= set(numbers):
            return numbers
        now = _of_id(self._present(), topic, topic_id)
        if now is None:
            return numbers
        existing = then.partitions if then is not None else {}
        return [n for n in numbers if n in existing or n not in now.partitions]


def _of_id(image: MetadataImage, topic: str, topic_id: str) -> TopicMetadata | None:
    found = image.topics.get(topic)
    return found if found is not None and topic_id in ("", found.topic_id) else None
