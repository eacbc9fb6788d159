"""Log directories as topics and partitions: the front door of the storage layer, for reading.

Nothing is opened before it is asked for; a thousand partitions cost their listing. An engine that
reads takes no lock and writes nothing, so it is safe beside the broker that owns the directories.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import MappingProxyType

from .cleaner.latest import LatestRecords
from .cluster_metadata import ALL_BROKERS, ClusterMetadata, MetadataImage
from .config import (
    Resolved,
    Settings,
    checked_topic_config,
    reader_config,
    run_settings,
    topic_config,
)
from .errors import CorruptError, SegmentGone, StorageError, UnknownPartition, UnknownTopic
from .format.names import METADATA_TOPIC
from .log.context import ReadContext, ReadLimits
from .log.log import Log
from .log_dir import LogDir, LogDirs, PartitionDir

#: How often it is looked whether files that are open were removed.
LET_GO_SECONDS = 2.0


class Engine:
    """Several log directories, opened for reading."""

    def __init__(
        self, paths: str | Sequence[str], settings: Mapping[str, str] | None = None
    ) -> None:
        """LogDirError when one of ``paths`` (a list, or joined by commas) is no log directory,
        ConfigError for one of this run's ``settings`` that Kafka would refuse."""
        self.settings = run_settings((settings or {}).items())
        reader = reader_config(self.settings)
        self.log_dirs = LogDirs(paths)
        self.context = ReadContext(
            ReadLimits(
                max_batch_bytes=reader.kafkafs_max_batch_bytes,
                cache_bytes=reader.kafkafs_cache_bytes,
                open_files=reader.kafkafs_open_files,
            )
        )
        self.latest = LatestRecords(reader.kafkafs_key_cache_bytes)
        self._logs: dict[tuple[str, int], tuple[PartitionDir, Log]] = {}
        self._lock = threading.Lock()  # guards _logs
        self._let_go_at = monotonic()
        self._metadata: tuple[Log, ClusterMetadata] | None = None

    def topics(self) -> Mapping[str, list[int]]:
        """Topics in order of name, with the numbers of their partitions here."""
        return self.log_dirs.topics()

    def partitions_of(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions here. UnknownTopic."""
        there = self.topics()
        if topic not in there:
            raise UnknownTopic(topic, there)
        return there[topic]

    def numbers_of(self, topic: str) -> list[int]:
        """As `partitions_of`, and the number of the stray whose directory has that name."""
        strays = [number for name, number in self.log_dirs.strays() if name == topic]
        return strays or self.partitions_of(topic)

    def log(self, topic: str, partition: int) -> Log:
        """One partition, or a stray, by the name of its directory and its number. UnknownTopic,
        UnknownPartition."""
        found = self.log_dirs.partition(topic, partition)
        key = (topic, partition)
        with self._lock:
            known = self._logs.get(key)
            if known is not None and known[0] == found:
                return known[1]
            start = self._log_start_offset(found.log_dir, key)
            log = Log(found.directory, topic, partition, start, self.context)
            self._logs[key] = (found, log)
            return log

    def opened(self) -> list[Log]:
        """The partitions that were asked for so far and are still there."""
        with self._lock:
            is_there = self._is_there()
            return [log for key, (found, log) in self._logs.items() if is_there(key, found)]

    def let_go_of_removed(self) -> None:
        """Forgets partitions that are no longer there, and closes files and directories that were
        removed, unless they are still being read. To be called now and then."""
        with self._lock:  # no partition that is found meanwhile is taken for one that is gone
            is_there = self._is_there()
            gone = [key for key, (found, _) in self._logs.items() if not is_there(key, found)]
            for key in gone:
                del self._logs[key]
        self.context.let_go_of_removed()

    def let_go_now_and_then(self) -> None:
        """`let_go_of_removed`, unless that was done a moment ago: for calls that have to look at
        the directories anyway, where no thread does it in the background."""
        now = monotonic()
        if now - self._let_go_at >= LET_GO_SECONDS:
            self._let_go_at = now
            with suppress(StorageError, OSError):  # whoever called meets it, too, if it matters
                self.let_go_of_removed()

    def _is_there(self) -> Callable[[tuple[str, int], PartitionDir], bool]:
        """Tells whether a partition's directory is still the one that was found."""
        there, strays = self.log_dirs.partitions(), self.log_dirs.strays()
        return lambda key, found: (there.get(key) or strays.get(key)) == found

    def topic_id(self, topic: str) -> str:
        """The topic's id, 22 characters of URL-safe base64, as the cluster's metadata or else its
        own directories tell it; "" where neither does. UnknownTopic."""
        partitions = self.numbers_of(topic)
        known = self.metadata().topics.get(topic)
        if known is not None:
            return known.topic_id
        try:
            return self.partition_dir(topic, partitions[0]).topic_id()
        except CorruptError:
            return ""

    def topic_config(self, topic: str) -> Resolved:
        """The topic's settings from this run, kafkafs's own file, the cluster's metadata and
        Kafka's defaults.
        UnknownTopic, ConfigError when this run's settings contradict each other."""
        self.numbers_of(topic)
        return topic_config(self._settings_of(topic, self.log_dirs.topic_settings(topic)))

    def new_topic_config(self, settings: Mapping[str, str] = MappingProxyType({})) -> Resolved:
        """The settings of a topic that would be made with these of its own."""
        return topic_config(self._settings_of("", settings))

    def check_topic_settings(
        self, topic: str, settings: Mapping[str, str], *, carried_over: bool = False
    ) -> Resolved:
        """What would count for a topic, also for one to be made, with these in kafkafs's own file.
        ConfigError; `carried_over` as in `config.check_topic_settings`."""
        sources = self._settings_of(topic, settings)
        return checked_topic_config(sources, carried_over=carried_over)

    def _settings_of(self, topic: str, topic_file: Mapping[str, str]) -> Settings:
        """The sources of a topic's settings, with these for kafkafs's own file."""
        metadata = self.metadata()
        known = metadata.topics.get(topic)
        node_id = self.log_dirs.dirs[0].meta.node_id
        return Settings(
            run=self.settings,
            topic_file=topic_file,
            topic=known.configs if known is not None else {},
            broker=metadata.brokers.get(str(node_id), {}),
            all_brokers=metadata.brokers.get(ALL_BROKERS, {}),
        )

    def metadata(self) -> MetadataImage:
        """The cluster as `__cluster_metadata-0` describes it; empty where there is none."""
        try:
            log = self.log(METADATA_TOPIC, 0)
            if self._metadata is None or self._metadata[0] is not log:
                self._metadata = log, ClusterMetadata(log, self.context)
            return self._metadata[1].image()
        except (UnknownTopic, UnknownPartition, SegmentGone):
            return MetadataImage()

    def forget(self, topic: str, partition: int) -> None:
        """A partition is no more: a directory made later may have the same inode number."""
        with self._lock:
            self._logs.pop((topic, partition), None)

    def close(self) -> None:
        """Forget the open files. They are opened again when they are needed."""
        self.context.files.drop_where(lambda key: True)
        with self._lock:
            self._logs.clear()

    def partition_dir(self, topic: str, partition: int) -> PartitionDir:
        """The directory of one partition. UnknownTopic, UnknownPartition."""
        return self.log_dirs.partition(topic, partition)

    def _log_start_offset(self, log_dir: LogDir, key: tuple[str, int]) -> Callable[[], int]:
        """The log start offset of a partition, as checkpointed, when it is asked for."""
        return lambda: log_dir.log_start_offsets.get(key, 0)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories and the cluster's metadata, a line each."""
        metadata = self._metadata[1].problems if self._metadata is not None else []
        return [*self.log_dirs.problems, *metadata]
