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
from typing import ParamSpec, TypeVar
from weakref import WeakMethod

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
    MetadataUnavailable,
    NoClusterMetadata,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..format.messages.metadata import ResourceType
from ..log.read.context import ReadContext, ReadLimits
from ..log.read.log import Log
from ..metadata.cluster_metadata import ClusterMetadata
from ..metadata.existence import Existence
from ..metadata.image import ALL_BROKERS, MetadataImage
from .log_dir import LogDir, PartitionDir
from .log_dirs import LogDirs

P = ParamSpec("P")
T = TypeVar("T")

#: How often to check whether open files were removed.
CLOSE_REMOVED_SECONDS = 2.0


def read_limits(config: ReaderConfig) -> ReadLimits:
    """Returns the limits that a configuration sets."""
    return ReadLimits(
        max_batch_bytes=config.kafkafs_max_batch_bytes,
        cache_bytes=config.kafkafs_cache_bytes,
        open_files=config.kafkafs_open_files,
    )


def _weak(method: Callable[P, T]) -> Callable[P, T]:
    """Returns an engine's method for its own parts, which must not keep the engine alive: one that
    is dropped without `close` then closes its files at once, not at the next garbage collection.
    Raises ReferenceError when called after that."""
    found = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = found()
        if bound is None:
            raise ReferenceError("the engine no longer exists")
        return bound(*args, **kwargs)

    return call


def _reaches_back(metadata: ClusterMetadata) -> bool:
    """Returns whether the state of the cluster at the time that `metadata` shows is known."""
    try:
        metadata.image_at()
    except MetadataUnavailable:
        return False
    return True


class Engine:
    """Log directories, opened read-only."""

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
        time, and `clock` stands still there: see `log/read/as_of.py`."""
        self.at_ms = at_ms
        self._existence: Existence | None = None
        if at_ms is not None:
            self.clock = SetClock(at_ms)
            self._existence = Existence(
                at_ms, _weak(self._metadata_then), _weak(self._metadata_now), _weak(self._id_of)
            )
        self.configs = run_configs((configs or {}).items())
        reader = reader_config(self.configs)
        self.context = ReadContext(read_limits(reader))
        self.log_dirs = LogDirs(
            paths, self.context, reader.kafkafs_prefer_dir or "", _weak(self._registered_topic_id)
        )
        self.latest = LatestRecords(reader.kafkafs_key_cache_bytes)
        self._logs: dict[TopicPartition, tuple[PartitionDir, Log]] = {}
        self._lock = threading.Lock()  # guards _logs
        self._closed_removed_at = monotonic()
        self._metadata: tuple[Log, ClusterMetadata] | None = None
        # Used only as of a time: whether the metadata reach back that far, None if it is not known
        # yet, and the present.
        self._reaches_back: bool | None = None
        self._now: Engine | None = None
        self._has_resolved_configs = False

    def as_of(self, at_ms: int) -> Engine:
        """Opens the same directories read-only, as of a time in ms since 1970."""
        return Engine([each.path for each in self.log_dirs.dirs], self.configs, at_ms)

    def topics(self) -> Mapping[str, list[int]]:
        """Returns the topics in order of name, with the numbers of their partitions here."""
        there = self.log_dirs.topics()
        return there if self._existence is None else self._existence.of(there)

    def partitions_of(self, topic: str) -> list[int]:
        """Returns the numbers of a topic's partitions here. Raises UnknownTopic."""
        there = self.topics()
        if topic not in there:
            if self._existence is not None:
                self._existence.check(self.log_dirs.topics(), topic)
            raise self.log_dirs.unknown_topic(topic)
        return there[topic]

    def numbers_of(self, topic: str) -> list[int]:
        """Returns the same as `partitions_of` or, for the name of a stray's directory, the stray's
        number."""
        strays = [number for name, number in self.log_dirs.strays() if name == topic]
        return strays or self.partitions_of(topic)

    def log(self, topic: str, partition: int) -> Log:
        """Returns one partition, or a stray, by the name of its directory and its number. Raises
        UnknownTopic or UnknownPartition, LogDirError if directories contradict each other."""
        found = self.partition_dir(topic, partition)
        key = (topic, partition)
        with self._lock:
            known = self._logs.get(key)
            if known is not None and known[0] == found:
                return known[1]
            start = self._log_start_offset(found.log_dir, key)
            log = Log(found.directory, topic, partition, start, self.context, self.at_ms)
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
        known = self._registered_topic_id(topic)
        if known:
            return known
        try:
            return self.partition_dir(topic, partitions[0]).topic_id()
        except (CorruptError, LogDirError):
            return ""

    def _registered_topic_id(self, topic: str) -> str:
        """Returns the topic's id in the cluster's metadata, "" if it is not there."""
        known = self.metadata().topics.get(topic)
        return known.topic_id if known is not None else ""

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
        if self._existence is not None:
            return self._metadata_then() or self._metadata_now()
        try:
            return self.cluster_metadata().image()
        except (NoClusterMetadata, UnknownPartition, SegmentGone):
            return MetadataImage()

    def cluster_metadata(self) -> ClusterMetadata:
        """Returns the reader of `__cluster_metadata-0`. Raises NoClusterMetadata."""
        try:
            log = self.log(METADATA_TOPIC, 0)
        except (UnknownTopic, UnknownPartition):
            raise NoClusterMetadata(",".join(each.path for each in self.log_dirs.dirs)) from None
        if self._metadata is None or self._metadata[0] is not log:
            self._metadata = log, self._cluster_metadata(log)
        return self._metadata[1]

    def _metadata_then(self) -> MetadataImage | None:
        """Returns the cluster at `at_ms`; None if there is no record of it."""
        try:
            metadata = self.cluster_metadata()
            if self._reaches_back is None:
                self._reaches_back = _reaches_back(metadata)
            image = metadata.image() if self._reaches_back else None
        except (NoClusterMetadata, UnknownPartition, SegmentGone):
            return None
        return image if image is not None and image.offset > 0 else None

    def _metadata_now(self) -> MetadataImage:
        if self._now is None:
            self._now = Engine([each.path for each in self.log_dirs.dirs], self.configs)
        return self._now.metadata()

    def _id_of(self, topic: str, partition: int) -> str:
        try:
            return self.log_dirs.partition(topic, partition).topic_id()
        except (UnknownPartition, CorruptError, LogDirError):
            return ""

    def _cluster_metadata(self, log: Log) -> ClusterMetadata:
        if self.at_ms is None:
            return ClusterMetadata(log, self.context)
        found = self.log_dirs.partition(METADATA_TOPIC, 0)
        start = self._log_start_offset(found.log_dir, (METADATA_TOPIC, 0))
        whole = Log(found.directory, METADATA_TOPIC, 0, start, self.context)
        return ClusterMetadata(log, self.context, self.at_ms, whole)

    def forget(self, topic: str, partition: int) -> None:
        """Drops a deleted partition: a directory created later may have the same inode number."""
        with self._lock:
            self._logs.pop((topic, partition), None)

    def close(self) -> None:
        """Closes all files. They are opened again when needed."""
        if self._now is not None:
            self._now.close()
        self.context.files.drop_where(lambda key: True)
        with self._lock:
            self._logs.clear()

    def partition_dir(self, topic: str, partition: int) -> PartitionDir:
        """Returns the directory of one partition. Raises UnknownTopic or UnknownPartition."""
        if self._existence is not None and topic != METADATA_TOPIC:
            self._existence.check(self.log_dirs.topics(), topic, partition)
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
        return self._metadata[1].problems if self._metadata is not None else []

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories and the cluster's metadata, one line each."""
        return [*self.log_dirs.problems, *self._metadata_problems]
