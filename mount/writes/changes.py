"""The engine of a writable mount and the state needed to change logs through files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..control.conversation import Control
from ..control.verbs import prepared
from ..options import MountOptions
from .config_file import ConfigFile
from .deleting import RecordDeletions
from .key_writing import KeyContents
from .scratch import ScratchFiles
from .topic_changes import TopicChanges

if TYPE_CHECKING:  # loading the writing engine is expensive for a read-only mount
    from kafkafs.storage import LogManager, LogWriter

    from ..partition import MountedPartition


class Changes:
    """The engine of a writable mount and the parts that change things through files. Any thread may
    use it."""

    def __init__(self, engine: LogManager, options: MountOptions) -> None:
        self.engine = engine
        self.options = options
        self.deletions = RecordDeletions(engine)
        self.keys = KeyContents(engine)
        self.control = Control(engine, prepared)
        self.topics = TopicChanges(engine)
        self.scratch = ScratchFiles()
        self._config_files: dict[int, ConfigFile] = {}

    def end(self) -> None:
        """Ends all waiting, because the mount ends. Does not block."""
        self.control.end()

    def close(self) -> None:
        """Cancels long operations and completes deferred ones. No call may follow."""
        self.control.close()
        self.deletions.close()

    def config_file(self, place: int, topic: str, mtime_ns: int) -> ConfigFile:
        """Returns the file with the configs of the topic at this place. `mtime_ns`: its mtime until
        it is changed."""
        file = self._config_files.get(place)
        if file is None:
            file = ConfigFile(self.engine, topic, mtime_ns)
            file = self._config_files.setdefault(place, file)
        return file

    def forget_topic(self, place: int) -> None:
        """Discards the state of the topic that had this place, because it was deleted."""
        self._config_files.pop(place, None)

    def writer(self, partition: MountedPartition) -> LogWriter:
        """Returns a partition's writer. Raises UnknownTopic, UnknownPartition, PartitionNotOpened
        or LogDirOffline."""
        return self.engine.writer(partition.topic, partition.number)

    def sync(self, partition: MountedPartition) -> None:
        """Makes all changes to a partition durable. Raises OSError or LogDirOffline."""
        self.writer(partition).flush()
        self.deletions.make_durable(partition)

    @property
    def problems(self) -> list[str]:
        """What could not be completed yet, a line each."""
        return self.deletions.problems
