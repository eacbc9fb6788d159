"""The topics and the cluster at an earlier time, as far as the cluster's metadata say.

A directory does not say when it was created, but the metadata log does. A topic that it knows now,
and did not know then, was created later; so was one of the same name with another id. Topics of
which it knows nothing, and all topics if it does not reach back that far, count as existing: then
all their records may be later.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import (
    CorruptError,
    CreatedLater,
    LogDirError,
    MetadataUnavailable,
    NoClusterMetadata,
    SegmentGone,
    UnknownPartition,
)
from ..format.files.names import METADATA_TOPIC
from ..log.read.context import ReadContext
from ..metadata.cluster_metadata import ClusterMetadata
from ..metadata.image import MetadataImage, TopicMetadata
from ..metadata.served_metadata import ServedMetadata
from .log_dirs import LogDirs

Topics = Mapping[str, list[int]]


class Past:
    """Log directories at `at_ms`, in ms since 1970. Any thread may use it."""

    def __init__(self, at_ms: int, log_dirs: LogDirs, context: ReadContext) -> None:
        self._at_ms = at_ms
        self._log_dirs = log_dirs
        self._metadata = ServedMetadata(context, at_ms)
        # Whether the metadata reach back that far, None if that is not known yet.
        self._reaches_back: bool | None = None
        self._existing: tuple[Topics, MetadataImage, Topics] | None = None

    def topics(self) -> Topics:
        """Returns the topics that existed, with those of their partitions that did."""
        return self._existed(self._log_dirs.topics())

    def check(self, topic: str, partition: int | None = None) -> None:
        """Raises CreatedLater or UnknownPartition for a topic or partition that exists now, but did
        not."""
        there = self._log_dirs.topics()
        existing = self._existed(there)
        if topic in there and topic not in existing:
            raise CreatedLater(topic, self._at_ms, existing)
        if partition is None or partition not in there.get(topic, ()):
            return
        if partition not in existing[topic]:
            raise UnknownPartition(topic, partition, existing[topic])

    def metadata(self) -> MetadataImage | None:
        """Returns the cluster at that time; None if there is no record of it."""
        try:
            metadata = self.cluster_metadata()
            if self._reaches_back is None:
                self._reaches_back = _reaches_back(metadata)
            image = metadata.image() if self._reaches_back else None
        except (NoClusterMetadata, UnknownPartition, SegmentGone):
            return None
        return image if image is not None and image.offset > 0 else None

    def cluster_metadata(self) -> ClusterMetadata:
        """Returns the reader of `__cluster_metadata-0`. Raises what `LogDirs.metadata_partition`
        raises."""
        return self._metadata.of(self._log_dirs.metadata_partition())

    @property
    def metadata_problems(self) -> list[str]:
        """What could not be read of the cluster's metadata so far, one line each."""
        return self._metadata.problems

    def _existed(self, there: Topics) -> Topics:
        image = self.metadata()
        if image is None:
            return there
        known = self._existing
        if known is None or known[0] is not there or known[1] is not image:
            found = ((topic, self._numbers(image, topic, there[topic])) for topic in there)
            existing = {topic: numbers for topic, numbers in found if numbers}
            known = self._existing = there, image, existing
        return known[2]

    def _numbers(self, image: MetadataImage, topic: str, numbers: list[int]) -> list[int]:
        """Returns those of the partitions of a topic that existed."""
        if topic == METADATA_TOPIC:
            return numbers
        topic_id = self._topic_id(topic, numbers[0])
        then = _of_id(image, topic, topic_id)
        if then is not None and then.partitions.keys() >= set(numbers):
            return numbers
        now = _of_id(self._log_dirs.metadata(), topic, topic_id)
        if now is None:
            return numbers
        existing = then.partitions if then is not None else {}
        return [n for n in numbers if n in existing or n not in now.partitions]

    def _topic_id(self, topic: str, partition: int) -> str:
        """Returns the id in a partition's directory, "" if it has none."""
        try:
            return self._log_dirs.partition(topic, partition).topic_id()
        except (UnknownPartition, CorruptError, LogDirError):
            return ""


def _reaches_back(metadata: ClusterMetadata) -> bool:
    """Returns whether the state of the cluster at the time that `metadata` shows is known."""
    try:
        metadata.image_at()
    except MetadataUnavailable:
        return False
    return True


def _of_id(image: MetadataImage, topic: str, topic_id: str) -> TopicMetadata | None:
    found = image.topics.get(topic)
    return found if found is not None and topic_id in ("", found.topic_id) else None
