"""Log directories as topics and partitions: the front door of the storage layer, for reading.

Nothing is opened before it is asked for; a thousand partitions cost their listing. An engine that
reads takes no lock and writes nothing, so it is safe beside the broker that owns the directories.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from .cluster_metadata import ClusterMetadata, MetadataImage
from .errors import CorruptError, UnknownPartition, UnknownTopic
from .log.context import ReadContext, ReadLimits
from .log.log import Log
from .log_dir import LogDir, LogDirs, PartitionDir

METADATA_TOPIC = "__cluster_metadata"


class Engine:
    """Several log directories, opened for reading."""

    def __init__(self, paths: str | Sequence[str], limits: ReadLimits | None = None) -> None:
        """LogDirError when one of ``paths`` (a list, or joined by commas) is no log directory."""
        self.log_dirs = LogDirs(paths)
        self.context = ReadContext(limits)
        self._logs: dict[tuple[str, int], tuple[PartitionDir, Log]] = {}
        self._lock = threading.Lock()  # guards _logs
        self._metadata: tuple[Log, ClusterMetadata] | None = None

    def topics(self) -> Mapping[str, list[int]]:
        """Topics in order of name, with the numbers of their partitions here."""
        return self.log_dirs.topics()

    def log(self, topic: str, partition: int) -> Log:
        """One partition. UnknownTopic, UnknownPartition."""
        found = self.log_dirs.partition(topic, partition)
        key = (topic, partition)
        with self._lock:
            known = self._logs.get(key)
            if known is not None and known[0] == found:
                return known[1]
            log = Log(
                found.directory, topic, partition, _start_of(found.log_dir, key), self.context
            )
            self._logs[key] = (found, log)
            return log

    def opened(self) -> list[Log]:
        """The partitions that were asked for so far and are still there."""
        there = self.log_dirs.partitions()
        with self._lock:
            return [log for key, (found, log) in self._logs.items() if there.get(key) == found]

    def topic_id(self, topic: str) -> str:
        """The topic's id, 22 characters of URL-safe base64, as the cluster's metadata or else its
        own directories tell it; "" where neither does. UnknownTopic."""
        partitions = self.topics().get(topic)
        if partitions is None:
            raise UnknownTopic(topic)
        known = self.metadata().topics.get(topic)
        if known is not None:
            return known.topic_id
        try:
            return self.partition_dir(topic, partitions[0]).topic_id()
        except CorruptError:
            return ""

    def metadata(self) -> MetadataImage:
        """The cluster as `__cluster_metadata-0` describes it; empty where there is none."""
        try:
            log = self.log(METADATA_TOPIC, 0)
            if self._metadata is None or self._metadata[0] is not log:
                self._metadata = log, ClusterMetadata(log, self.context)
            return self._metadata[1].image()
        except (UnknownTopic, UnknownPartition):
            return MetadataImage()

    def close(self) -> None:
        """Forget the open files. They are opened again when they are needed."""
        self.context.files.drop_where(lambda key: True)
        with self._lock:
            self._logs.clear()

    def partition_dir(self, topic: str, partition: int) -> PartitionDir:
        """The directory of one partition. UnknownTopic, UnknownPartition."""
        return self.log_dirs.partition(topic, partition)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories, a line each."""
        return self.log_dirs.problems


def _start_of(log_dir: LogDir, key: tuple[str, int]) -> Callable[[], int]:
    """The checkpointed log start offset of a partition, read when asked for."""
    return lambda: log_dir.log_start_offsets.get(key, 0)
