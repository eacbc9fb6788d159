"""How a plugin of remote storage (RemoteStorageManager) names and stores a segment's objects."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..errors import LogDirError, SegmentGone
from ..format.files.names import FileKind
from ..format.messages.remote_log_metadata import TopicIdPartition
from ..io.directory import Directory, ReadableFile
from .segments import RemoteSegment


class RemoteFileKind(StrEnum):
    """What a plugin stores of a segment: its log, RemoteStorageManager's types of indexes."""

    LOG = "log"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    LEADER_EPOCHS = "leader epochs"


#: The files of a segment in a log directory, and what they are here. The producer snapshot is the
#: one of the segment's end, which a log directory names after the next segment.
SEGMENT_FILES: Final = {
    FileKind.LOG: RemoteFileKind.LOG,
    FileKind.INDEX: RemoteFileKind.OFFSET_INDEX,
    FileKind.TIMEINDEX: RemoteFileKind.TIME_INDEX,
    FileKind.TXNINDEX: RemoteFileKind.TRANSACTION_INDEX,
}


@dataclass(frozen=True, slots=True)
class ObjectId:
    """Identifies the objects of a segment: its partition, id, and start offset, from which their
    names are made, and what the plugin noted of it (None if unknown)."""

    partition: TopicIdPartition
    id: str
    start_offset: int
    custom_metadata: bytes | None = None

    @classmethod
    def of(cls, partition: TopicIdPartition, segment: RemoteSegment) -> ObjectId:
        return cls(partition, segment.id, segment.start_offset, segment.custom_metadata)


class TierLayout(ABC):
    """One plugin's objects below one place. Any thread may use it.

    All methods raise CorruptError for an object that is not what the layout says, naming it,
    SegmentGone for one that does not exist, LogDirError if the place cannot be listed, and OSError.
    """

    def __init__(self) -> None:
        #: Takes what is wrong with an object that can be read nevertheless.
        self.report: Callable[[str], object] = lambda problem: None

    @abstractmethod
    def partitions(self) -> Sequence[TopicIdPartition]:
        """Returns the partitions that have objects."""

    @abstractmethod
    def directory(self, partition: TopicIdPartition) -> Directory:
        """Returns the directory that has the objects of a partition, which may not exist."""

    def stamp(self, partition: TopicIdPartition) -> tuple[int, ...]:
        """Returns what changes when objects of a partition come or go, the time (ns) last; () for a
        partition without objects."""
        try:
            status = self.directory(partition).stat()
        except (SegmentGone, LogDirError):
            return ()
        # On a server the size stands for the names: the time may stay when one of them goes.
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    @abstractmethod
    def objects(self, partition: TopicIdPartition) -> Sequence[ObjectId]:
        """Returns the segments of a partition whose objects are complete, () if there is none."""

    @abstractmethod
    def path(self, found: ObjectId, kind: RemoteFileKind) -> str:
        """Returns the path of the object that has this file of a segment."""

    @abstractmethod
    def status(self, found: ObjectId, kind: RemoteFileKind) -> os.stat_result:
        """Returns the status of a file, with its size as in a log directory."""

    @abstractmethod
    def open(self, found: ObjectId, kind: RemoteFileKind) -> ReadableFile:
        """Opens a file, whose content is that of a log directory."""

    def described(self, found: ObjectId) -> RemoteSegment | None:
        """Returns a segment as its objects describe it; None if they do not, so that its end and
        its leader epochs must be read from its files."""
        return None
