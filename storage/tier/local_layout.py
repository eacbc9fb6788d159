"""The objects of LocalTieredStorage, a plugin in Kafka's own tests (RemoteLogSegmentFileset): the
files of a log directory under other names,

    <topic>-<partition>-<topic id>/<20-digit base offset>-<segment id>.<suffix>
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final

from ..errors import SegmentGone
from ..format.files.names import is_legal_topic
from ..format.layout import MAX_INT32, MAX_OFFSET
from ..format.messages.remote_log_metadata import TopicIdPartition
from ..format.primitives import is_uuid_text
from ..io.directory import Directory, ReadableFile
from .layout import ObjectId, RemoteFileKind, TierLayout

_DIRECTORY: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})-([A-Za-z0-9_-]{22})")
_FILE: Final = re.compile(r"([0-9]{20})-([A-Za-z0-9_-]{22})(\.[a-z_]+)")
_SUFFIXES: Final = {
    RemoteFileKind.LOG: ".log",
    RemoteFileKind.OFFSET_INDEX: ".index",
    RemoteFileKind.TIME_INDEX: ".timeindex",
    RemoteFileKind.TRANSACTION_INDEX: ".txnindex",
    RemoteFileKind.PRODUCER_SNAPSHOT: ".snapshot",
    RemoteFileKind.LEADER_EPOCHS: ".leader_epoch_checkpoint",
}
#: What every segment has. The snapshot is copied last.
_REQUIRED: Final = frozenset(_SUFFIXES.values()) - {_SUFFIXES[RemoteFileKind.TRANSACTION_INDEX]}
#: The plugin's default for the name of its directory.
_INNER: Final = "kafka-tiered-storage"


class LocalLayout(TierLayout):
    """LocalTieredStorage's directory, or the one above it."""

    def __init__(self, directory: Directory) -> None:
        """Raises LogDirError if it is not a directory."""
        super().__init__()
        self._directory = directory
        names = {entry.name for entry in directory.list() if entry.is_dir}
        if _INNER in names and not any(map(_parse_directory, names)):
            self._directory = directory.child(_INNER)

    @staticmethod
    def is_at(directory: Directory) -> bool:
        """Returns whether a directory has this layout. Raises as listing it does."""
        entries = [entry.name for entry in directory.list() if entry.is_dir]
        if _INNER in entries:
            return True
        return any(
            any(_FILE.fullmatch(each.name) for each in directory.child(name).list())
            for name in entries
            if _parse_directory(name)
        )

    def partitions(self) -> Sequence[TopicIdPartition]:
        names = sorted(entry.name for entry in self._directory.list() if entry.is_dir)
        parsed = filter(None, map(_parse_directory, names))
        return [found for found in parsed if self._has_files(found)]

    def _has_files(self, partition: TopicIdPartition) -> bool:
        """Returns whether a partition's directory has files: that of a deleted topic is left."""
        try:
            return bool(self.directory(partition).list())
        except SegmentGone:
            return False

    def objects(self, partition: TopicIdPartition) -> Sequence[ObjectId]:
        try:
            entries = self.directory(partition).list()
        except SegmentGone:
            return ()
        found: dict[tuple[int, str], set[str]] = {}
        for entry in entries:
            name = _FILE.fullmatch(entry.name)
            if name is not None and int(name[1]) <= MAX_OFFSET and is_uuid_text(name[2]):
                found.setdefault((int(name[1]), name[2]), set()).add(name[3])
        return [
            ObjectId(partition, segment_id, base)
            for (base, segment_id), suffixes in sorted(found.items())
            if suffixes >= _REQUIRED
        ]

    def path(self, found: ObjectId, kind: RemoteFileKind) -> str:
        return self.directory(found.partition).path_of(_file_name(found, kind))

    def status(self, found: ObjectId, kind: RemoteFileKind) -> os.stat_result:
        return self.directory(found.partition).stat(_file_name(found, kind))

    def open(self, found: ObjectId, kind: RemoteFileKind) -> ReadableFile:
        return self.directory(found.partition).open(_file_name(found, kind))

    def directory(self, partition: TopicIdPartition) -> Directory:
        name = f"{partition.topic}-{partition.partition}-{partition.topic_id}"
        return self._directory.child(name)


def _file_name(found: ObjectId, kind: RemoteFileKind) -> str:
    return f"{found.start_offset:020d}-{found.id}{_SUFFIXES[kind]}"


def _parse_directory(name: str) -> TopicIdPartition | None:
    parsed = _DIRECTORY.fullmatch(name)
    if parsed is None or not is_legal_topic(parsed[1]) or not is_uuid_text(parsed[3]):
        return None
    number = int(parsed[2])
    return TopicIdPartition(parsed[1], parsed[3], number) if number <= MAX_INT32 else None
