"""The topics and partitions of an engine as the mount uses them, each with its inode numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING

from kafkafs.storage.clock import Clock, SystemClock
from kafkafs.storage.config import reader_config
from kafkafs.storage.engine import Engine
from kafkafs.storage.errors import UnknownPartition, UnknownTopic

from .changing.changes import Changes
from .contents import Contents
from .inodes import Places
from .insight.metrics import Metrics
from .insight.recent_log import RecentLog
from .options import MountOptions
from .partition import FRESH_SECONDS, Partition, Place, Topic
from .reading.previews import Previews
from .reading.ranges import Ranges
from .reading.sizes import Speeds
from .reading.stream_index import StreamIndex

if TYPE_CHECKING:
    from .nodes.node import FixedFile


class Catalog:
    """What all nodes share. Any thread may use it."""

    def __init__(
        self,
        engine: Engine,
        options: MountOptions,
        clock: Clock | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`clock`: what `compacted` and `why.json` take for now."""
        self.engine = engine
        self.clock = clock or SystemClock()
        self.previews = Previews(engine, self.clock)
        self.ranges = Ranges(reader_config(engine.settings).kafkafs_range_parquet_bytes)
        self.options = options
        self.metrics = Metrics()
        #: What the daemon logged; nothing where there is no daemon.
        self.recent_log = RecentLog()
        #: What can be changed, on a writable mount; None on one that only reads.
        self.changes = changes
        self.places: Places[Place | Topic] = Places()
        #: The files whose bytes were fixed when they were looked up.
        self.contents: Contents[FixedFile] = Contents()
        #: How long the parts of streams are, and how fast that is found.
        self.stream_index = StreamIndex()
        self.speeds = Speeds()
        self.started_ns = time.time_ns()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._lock = threading.Lock()  # guards _partitions

    def topics(self) -> Mapping[str, list[int]]:
        """Topics in order of name, each with the numbers of its partitions in order."""
        return self.engine.topics()

    def topic(self, name: str) -> list[int]:
        """The partitions of a topic, or that of a stray, by the name of its directory.
        UnknownTopic."""
        return self.engine.numbers_of(name)

    def topic_place(self, name: str) -> int:
        """The number of the place of the topic that has this name now."""
        deleted = 0 if self.changes is None else self.changes.engine.incarnation(name)
        return self.places.number(Topic(name, deleted))

    def partition(self, topic: str, number: int) -> Partition:
        """The partition as it is now: another one after it was deleted and created again.
        UnknownTopic, UnknownPartition."""
        log = self.engine.log(topic, number)
        key = (topic, number)
        known = self._partitions.get(key)
        if known is not None and known.log is log:
            return known
        with self._lock:
            known = self._partitions.get(key)
            if known is None or known.log is not log:
                known = Partition(log, self.options.isolation, self.places, self.changes)
                self._partitions[key] = known
            return known

    @property
    def problems(self) -> list[str]:
        """What is wrong with the directories and with what was changed in them, a line each."""
        ours = self.changes.problems if self.changes is not None else []
        return [*self.engine.problems, *ours]

    def is_current(self, partition: Partition) -> bool:
        """Whether this incarnation is the one that is there."""
        try:
            return self.partition(partition.topic, partition.number) is partition
        except (UnknownTopic, UnknownPartition):
            return False

    def was_current(self, partition: Partition) -> bool:
        """The same, or that it was a moment ago. For what is asked thousands of times a second."""
        now = monotonic()
        if now - partition.current_at < FRESH_SECONDS:
            return True
        if not self.is_current(partition):
            return False
        partition.current_at = now
        return True

    def in_use(self) -> list[Partition]:
        """The partitions that somebody asked for, in their incarnation asked for last."""
        with self._lock:
            return list(self._partitions.values())

    def forget(self, partition: Partition) -> None:
        """Drop a partition that is no longer there."""
        with self._lock:
            key = (partition.topic, partition.number)
            if self._partitions.get(key) is partition:
                del self._partitions[key]
        self.previews.forget(partition)
