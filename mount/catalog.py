"""The topics and partitions of an engine as the mount uses them, each with its inode numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkafs.storage import (
    Clock,
    Engine,
    GroupsReader,
    TopicPartition,
    UnknownPartition,
    UnknownTopic,
    reader_config,
)

from .monitoring.metrics import Metrics
from .monitoring.recent_log import RecentLog
from .options import MountOptions
from .partition import FRESH_SECONDS, InodePlace, MountedPartition, Topic
from .streams.key_histories import KeyHistories
from .streams.previews import Previews
from .streams.ranges import Ranges
from .streams.sizes import Speeds
from .streams.stream_index import StreamIndex
from .vfs.contents import Contents
from .vfs.inodes import Places, RecentPlaces

if TYPE_CHECKING:
    from kafkafs.storage import (
        DecodedColumns,
        DecodedTopics,
        DecoderCatalog,
        Decoders,
        RegistryReader,
    )

    from .node import FixedFile
    from .writes.changes import Changes

# Number of group names, topics and partitions, and of subjects, versions and schemas, with an inode
# number at a time.
_MOST_GROUP_PATHS: Final = 1 << 16
_MOST_SCHEMA_PATHS: Final = 1 << 16


class GroupPath(NamedTuple):
    """What a node below `.kafkafs/groups` shows: a group, or a topic of it, or a partition of that;
    or the group's status file."""

    group: str
    topic: str | None = None
    partition: int | None = None
    is_status: bool = False


class SchemaPath(NamedTuple):
    """What a node below `.kafkafs/subjects` shows, a subject or a version of it; or one below
    `.kafkafs/schemas`: an id in its context."""

    subject: str = ""
    version: int | None = None
    context: str = ""
    schema_id: int | None = None


class Catalog:
    """The state that all nodes share. Any thread may use it."""

    def __init__(
        self,
        engine: Engine,
        options: MountOptions,
        clock: Clock | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`clock`: gives the current time for `compacted` and `why.json`; that of the engine by
        default."""
        self.engine = engine
        self.clock = clock or engine.clock
        self.previews = Previews(engine, self.clock)
        self.ranges = Ranges(reader_config(engine.configs).kafkafs_range_parquet_bytes)
        self.histories = KeyHistories(engine)
        self.options = options
        self.metrics = Metrics()
        #: The daemon's log messages; empty without a daemon.
        self.recent_log = RecentLog()
        #: The operations of a writable mount; None on a read-only one.
        self.changes = changes
        self.places: Places[InodePlace | Topic] = Places()
        #: The files whose bytes are fixed when they are looked up.
        self.contents: Contents[FixedFile] = Contents()
        #: The sizes of parts of streams, and how fast they are measured.
        self.stream_index = StreamIndex()
        self.speeds = Speeds()
        #: The groups, and what each inode number in `.kafkafs/groups` shows.
        self.groups = GroupsReader(engine)
        self.group_paths: RecentPlaces[GroupPath] = RecentPlaces(_MOST_GROUP_PATHS)
        #: What each inode number in the directories of the schema registry shows.
        self.schema_paths: RecentPlaces[SchemaPath] = RecentPlaces(_MOST_SCHEMA_PATHS)
        self.started_ns = time.time_ns()
        self._partitions: dict[TopicPartition, MountedPartition] = {}
        self._lock = threading.Lock()  # guards _partitions

    @property
    def registry(self) -> RegistryReader:
        """The schema registry."""
        return self._decoders.schemas.reader

    @cached_property
    def _decoders(self) -> DecoderCatalog:
        from kafkafs.storage import DecoderCatalog  # which few mounts need

        return DecoderCatalog(self.engine)

    def decoders(self) -> Decoders:
        """Returns the decoders of keys and values as of now; the same object if no schema changed.
        May read the registry's topic. Raises LogDirError or OSError if it cannot be read."""
        return self._decoders.decoders()

    @property
    def last_decoders(self) -> Decoders | None:
        """The decoders returned last; None before. Costs nothing."""
        return self._decoders.last

    @cached_property
    def _decoded_topics(self) -> DecodedTopics:
        from kafkafs.storage import DecodedTopics  # with pyarrow

        return DecodedTopics(self.engine)

    def decoded_columns(self, decoders: Decoders, topic: str) -> DecodedColumns | None:
        """Returns the typed columns of a topic, always the same for the same decoders; None if it
        has no schema. Raises SchemaError if its schema cannot be used."""
        return self._decoded_topics.columns(decoders, topic)

    def topics(self) -> Mapping[str, list[int]]:
        """Returns the topics in order of name, each with its partition numbers in order."""
        return self.engine.topics()

    def topic(self, name: str) -> list[int]:
        """Returns the partitions of a topic, or that of a stray given by its directory's name.
        Raises UnknownTopic."""
        return self.engine.numbers_of(name)

    def topic_place(self, name: str) -> int:
        """Returns the number of the place of the topic that has this name now."""
        deleted = 0 if self.changes is None else self.changes.engine.incarnation(name)
        return self.places.number(Topic(name, deleted))

    def generation(self, inode: int) -> int:
        """Returns the generation of a directory's inode number: see `RecordDeletions.bury`."""
        return 0 if self.changes is None else self.changes.deletions.generation(inode)

    def partition(self, topic: str, number: int) -> MountedPartition:
        """Returns the current incarnation: another one after deletion and re-creation. Raises
        UnknownTopic or UnknownPartition."""
        log = self.engine.log(topic, number)
        key = (topic, number)
        known = self._partitions.get(key)
        if known is not None and known.log is log:
            return known
        with self._lock:
            known = self._partitions.get(key)
            if known is None or known.log is not log:
                known = MountedPartition(
                    log,
                    self.options.isolation,
                    self.places,
                    is_writable=self.changes is not None,
                )
                self._partitions[key] = known
            return known

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories and with changes made to them, one line each."""
        ours = self.changes.problems if self.changes is not None else []
        return [*self.engine.problems, *ours]

    def is_current(self, partition: MountedPartition) -> bool:
        """Returns whether `partition` is the current incarnation."""
        try:
            return self.partition(partition.topic, partition.number) is partition
        except (UnknownTopic, UnknownPartition):
            return False

    def was_current(self, partition: MountedPartition) -> bool:
        """Returns `is_current`, up to FRESH_SECONDS old; for thousands of calls a second."""
        now = monotonic()
        if now - partition.current_at < FRESH_SECONDS:
            return True
        if not self.is_current(partition):
            return False
        partition.current_at = now
        return True

    def in_use(self) -> list[MountedPartition]:
        """Returns the partitions used so far, each in the incarnation used last."""
        with self._lock:
            return list(self._partitions.values())

    def forget(self, partition: MountedPartition) -> None:
        """Drops a partition that no longer exists."""
        with self._lock:
            key = (partition.topic, partition.number)
            if self._partitions.get(key) is partition:
                del self._partitions[key]
        self.previews.forget(partition)
        self.histories.forget(partition)
