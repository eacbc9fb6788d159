"""Log directories as topics and partitions: the read-only entry point of the storage layer.

Nothing is opened before it is used; a thousand partitions cost only their directory listing. A
read-only engine takes no lock and writes nothing, so it is safe beside the broker that owns the
directories.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..cleaner.preview.latest import LatestRecords
from ..clock import Clock, SetClock, SystemClock
from ..config.kafka import (
    Configs,
    ReaderConfig,
    Resolved,
    checked_topic_config,
    reader_config,
    run_configs,
    topic_config,
)
from ..errors import (
    CorruptError,
    LogDirError,
    StorageError,
)
from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..format.messages.metadata import ResourceType
from ..io.remote.settings import RemoteSettings, cache_of
from ..log.read.context import ReadContext, ReadLimits
from ..log.read.log import Log
from ..log.state.epochs import LeaderEpochFileCache
from ..metadata.cluster_metadata import ClusterMetadata
from ..metadata.image import ALL_BROKERS, MetadataImage
from .log_dir import LogDir, PartitionDir
from .log_dirs import LogDirs
from .past import Past

if TYPE_CHECKING:
    from ..format.messages.remote_log_metadata import TopicIdPartition
    from ..tier.copied import RemoteContents

#: How often to check whether open files were removed.
CLOSE_REMOVED_SECONDS = 2.0


def read_limits(config: ReaderConfig) -> ReadLimits:
    """Returns the limits that a configuration sets."""
    return ReadLimits(
        max_batch_bytes=config.kafkafs_max_batch_bytes,
        cache_bytes=config.kafkafs_cache_bytes,
        open_files=config.kafkafs_open_files,
        remote=remote_settings(config),
    )


def remote_settings(config: ReaderConfig) -> RemoteSettings:
    """Returns how a configuration has URLs and archives read."""
    cache = config.kafkafs_remote_cache
    directory, size = cache_of(cache) if cache else ("", 0)
    return RemoteSettings(
        list_ms=config.kafkafs_remote_list_ms,
        timeout_ms=config.kafkafs_remote_timeout_ms,
        memory_bytes=config.kafkafs_remote_memory_bytes,
        cache_dir=directory,
        cache_bytes=size,
    )


class Engine:
    """Log directories, opened read-only. None of its parts refers to it, so one that is dropped
    without `close` closes its files at once, not at the next garbage collection."""

    clock: Clock = SystemClock()

    def __init__(
        self,
        paths: str | Sequence[str],
        configs: Mapping[str, str] | None = None,
        at_ms: int | None = None,
    ) -> None:
        """Raises LogDirError if one of ``paths`` (a list, or comma-separated) is not a log
        directory, or if they are of different clusters, ConfigError if Kafka would refuse one of
        this run's ``configs``. With ``at_ms`` (ms since 1970) everything is shown as it was at that
        time, and `clock` stands still there: see `log/read/as_of.py`. Of a backup, the newest point
        is opened, or the newest one at or before that time."""
        self.at_ms = at_ms
        if at_ms is not None:
            self.clock = SetClock(at_ms)
        self.configs = run_configs((configs or {}).items())
        reader = reader_config(self.configs)
        self.context = ReadContext(read_limits(reader))
        self.log_dirs = LogDirs(paths, self.context, reader, at_ms)
        self._past = None if at_ms is None else Past(at_ms, self.log_dirs, self.context)
        self.latest = LatestRecords(reader.kafkafs_key_cache_bytes)
        self._logs: dict[TopicPartition, tuple[PartitionDir, Log]] = {}
        self._lock = threading.Lock()  # guards _logs
        self._closed_removed_at = monotonic()
        self._has_resolved_configs = False

    def as_of(self, at_ms: int) -> Engine:
        """Opens the same directories read-only, as of a time in ms since 1970."""
        return Engine([each.path for each in self.log_dirs.dirs], self.configs, at_ms)

    def topics(self) -> Mapping[str, list[int]]:
        """Returns the topics in order of name, with the numbers of their partitions here."""
        return self.log_dirs.topics() if self._past is None else self._past.topics()

    def partitions_of(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions here. Raises UnknownTopic."""
        there = self.topics()
        if topic not in there:
            if self._past is not None:
                self._past.check(topic)
            raise self.log_dirs.unknown_topic(topic)
        return there[topic]

    def numbers_of(self, topic: str) -> list[int]:
        """Returns the same as `partitions_of` or, for the name of a stray's directory, the stray's
        number."""
        strays = [number for name, number in self.log_dirs.strays() if name == topic]
        return strays or self.partitions_of(topic)

    def log(self, topic: str, partition: int, *, keep: bool = True) -> Log:
        """Returns one partition, or a stray, by the name of its directory and its number. It stays
        open, about 1.4 kB for each segment; unless `keep`, only if it is open already. Raises
        UnknownTopic or UnknownPartition, LogDirError if directories contradict each other."""
        found = self.partition_dir(topic, partition)
        key = (topic, partition)
        with self._lock:
            known = self._logs.get(key)
            if known is not None and known[0] == found:
                return known[1]
            start = self._log_start_offset(found.log_dir, key)
            log = Log(found.directory, topic, partition, start, self.context, self.at_ms)
            if keep:
                self._logs[key] = (found, log)
            return log

    def opened(self) -> list[Log]:
        """Returns the partitions opened so far that still exist."""
        with self._lock:
            is_there = self._is_there()
            return [log for key, (found, log) in self._logs.items() if is_there(key, found)]

    def close_removed(self) -> None:
        """Drops partitions that no longer exist, and closes removed files and directories unless
        they are still being read. To be called periodically."""
        with self._lock:  # a partition found meanwhile must not be mistaken for a removed one
            is_there = self._is_there()
            gone = [key for key, (found, _) in self._logs.items() if not is_there(key, found)]
            for key in gone:
                del self._logs[key]
        self.context.close_removed()

    def close_removed_if_due(self) -> None:
        """Calls `close_removed`, unless that was done recently: for calls that read the
        directories anyway, where no background thread does it."""
        now = monotonic()
        if now - self._closed_removed_at >= CLOSE_REMOVED_SECONDS:
            self._closed_removed_at = now
            with suppress(StorageError, OSError):  # the caller will hit it, too, if it matters
                self.close_removed()

    def _is_there(self) -> Callable[[TopicPartition, PartitionDir], bool]:
        """Returns a predicate: is a partition's directory still the one that was found?"""
        there, strays = self.log_dirs.partitions(), self.log_dirs.strays()
        return lambda key, found: found in (there.copies(key) or (strays.get(key),))

    def topic_id(self, topic: str) -> str:
        """Returns the topic's id, 22 characters of URL-safe base64, from the cluster's metadata or
        else from the topic's own directories; "" if neither has it, or if directories contradict
        each other. Raises UnknownTopic."""
        partitions = self.numbers_of(topic)
        known = self.metadata().topics.get(topic)
        if known is not None and known.topic_id:
            return known.topic_id
        try:
            return self.partition_dir(topic, partitions[0]).topic_id()
        except (CorruptError, LogDirError):
            return ""

    def copied_until(self, key: TopicPartition, epochs: LeaderEpochFileCache, first: int) -> int:
        """Returns the offset up to which remote storage is known to have the records of a log with
        these leader epochs, without a gap from `first` on; `first` if that is not known."""
        partition = self._with_topic_id(key)
        if partition is None:
            return first
        return self.log_dirs.remote_copies().until(partition, epochs.entries, first)

    def remote_contents(self, key: TopicPartition) -> RemoteContents | None:
        """Returns what remote storage has of a partition, None if that is not known. Raises
        UnknownTopic."""
        partition = self._with_topic_id(key)
        return None if partition is None else self.log_dirs.remote_copies().contents(partition)

    def _with_topic_id(self, key: TopicPartition) -> TopicIdPartition | None:
        """Returns a partition as remote storage knows it, None if its topic id is unknown."""
        from ..format.messages.remote_log_metadata import TopicIdPartition  # few logs are tiered

        topic_id = self.topic_id(key[0])
        return TopicIdPartition(key[0], topic_id, key[1]) if topic_id else None

    def topic_config(self, topic: str) -> Resolved:
        """Resolves the topic's configs from this run, kafkafs's own file, the cluster's metadata
        and Kafka's defaults. Raises UnknownTopic, or ConfigError if this run's configs contradict
        each other."""
        self.numbers_of(topic)
        self._has_resolved_configs = True
        return topic_config(self._configs_of(topic, self.log_dirs.stored_configs(topic)))

    def new_topic_config(self, configs: Mapping[str, str] = MappingProxyType({})) -> Resolved:
        """Resolves the configs of a topic that would be created with these of its own."""
        return topic_config(self._configs_of("", configs))

    def check_topic_configs(
        self, topic: str, configs: Mapping[str, str], *, carried_over: bool = False
    ) -> Resolved:
        """Resolves the configs of an existing or new topic with these in kafkafs's own file. Raises
        ConfigError; `carried_over` as in `config.check_topic_configs`."""
        sources = self._configs_of(topic, configs)
        return checked_topic_config(sources, carried_over=carried_over)

    def _configs_of(self, topic: str, topic_file: Mapping[str, str]) -> Configs:
        """Returns the sources of a topic's configs, with these for kafkafs's own file."""
        metadata = self.metadata()
        known = metadata.topics.get(topic)
        node_id = self.log_dirs.dirs[0].meta.node_id
        return Configs(
            run=self.configs,
            topic_file=topic_file,
            topic=known.configs if known is not None else {},
            broker=metadata.configs_of(ResourceType.BROKER, str(node_id)),
            all_brokers=metadata.configs_of(ResourceType.BROKER, ALL_BROKERS),
        )

    def metadata(self) -> MetadataImage:
        """Returns the cluster as `__cluster_metadata-0` describes it; empty if there is none.
        As of a time to which that does not reach back, returns the present."""
        then = None if self._past is None else self._past.metadata()
        return then or self.log_dirs.metadata()

    def cluster_metadata(self) -> ClusterMetadata:
        """Returns the reader of `__cluster_metadata-0`. Raises NoClusterMetadata, or LogDirError if
        directories contradict each other."""
        return (self._past or self.log_dirs).cluster_metadata()

    def forget(self, topic: str, partition: int) -> None:
        """Drops a deleted partition: a directory created later may have the same inode number."""
        with self._lock:
            self._logs.pop((topic, partition), None)

    def close(self) -> None:
        """Closes all files. They are opened again when needed."""
        self.context.files.drop_where(lambda key: True)
        with self._lock:
            self._logs.clear()

    def partition_dir(self, topic: str, partition: int) -> PartitionDir:
        """Returns the directory of one partition. Raises UnknownTopic or UnknownPartition."""
        if self._past is not None and topic != METADATA_TOPIC:
            self._past.check(topic, partition)
        return self.log_dirs.partition(topic, partition)

    def copies_of(self, topic: str, partition: int) -> tuple[PartitionDir, ...]:
        """Returns all directories of one partition, also those of replicas that are not served.
        Raises UnknownTopic or UnknownPartition."""
        return self.log_dirs.partitions().copies((topic, partition)) or (
            self.log_dirs.partition(topic, partition),
        )

    def _log_start_offset(self, log_dir: LogDir, key: TopicPartition) -> Callable[[], int]:
        """Returns a function that looks up a partition's checkpointed log start offset."""
        return lambda: log_dir.log_start_offsets.get(key, 0)

    @property
    def config_problems(self) -> list[str]:
        """The files that `topic_config` could not read, one line each, so that configs in them did
        not apply; none if it has not been called."""
        if not self._has_resolved_configs:
            return []
        stored = (log_dir.config_problem for log_dir in self.log_dirs.dirs)
        return [*filter(None, stored), *self._metadata_problems]

    @property
    def _metadata_problems(self) -> list[str]:
        return (self._past or self.log_dirs).metadata_problems

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories and the cluster's metadata, one line each."""
        return [*self.log_dirs.problems, *self._metadata_problems]
