"""What a writable mount can do to the logs that it shows. Any thread may use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.conversation import Control
from ..control.verbs import prepared
from ..options import MountOptions
from .deleting import Deletions
from .key_writing import KeyContents
from .scratch import ScratchFiles
from .topic_changes import TopicChanges
from .topic_settings import TopicSettingsFile

if TYPE_CHECKING:  # an engine that writes is much to load for who only reads
    from kafkafs.storage.log.writer import LogWriter
    from kafkafs.storage.writable_engine import WritableEngine

    from ..partition import Partition


class Changes:
    """The engine of a writable mount, and what is specific to changing things through files."""

    def __init__(self, engine: WritableEngine, options: MountOptions) -> None:
        self.engine = engine
        self.options = options
        self.deletions = Deletions(engine)
        self.keys = KeyContents(engine.clock.now_ms)
        self.control = Control(engine, prepared)
        self.topics = TopicChanges(engine)
        self.scratch = ScratchFiles()
        self._settings_files: dict[int, TopicSettingsFile] = {}

    def end(self) -> None:
        """The mount ends: nobody waits any longer. Waits for nothing itself."""
        self.control.end()

    def close(self) -> None:
        """Gives up what takes long, and finishes what was put off. No call may follow."""
        self.control.close()
        self.deletions.close()

    def settings_file(self, place: int, topic: str, mtime_ns: int) -> TopicSettingsFile:
        """The file with the settings of the topic that has this place; `mtime_ns`: its time as long
        as it was not changed."""
        file = self._settings_files.get(place)
        if file is None:
            file = TopicSettingsFile(self.engine, topic, mtime_ns)
            file = self._settings_files.setdefault(place, file)
        return file

    def forget_topic(self, place: int) -> None:
        """The topic that had this place is no more."""
        self._settings_files.pop(place, None)

    def writer(self, partition: Partition) -> LogWriter:
        """One partition, to append to. UnknownTopic, UnknownPartition, LogDirOffline."""
        return self.engine.writer(partition.topic, partition.number)

    def sync(self, partition: Partition) -> None:
        """Makes durable what was changed in a partition. OSError, LogDirOffline."""
        self.writer(partition).flush()
        self.deletions.settle(partition)

    @property
    def problems(self) -> list[str]:
        """What could not be done yet, a line each."""
        return self.deletions.problems
