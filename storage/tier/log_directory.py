"""Log directories with remote storage: a broker's, whose partitions continue there, or remote
storage alone, as the log directory of a broker that has all its partitions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final
from zlib import crc32

from ..errors import LogDirError, SegmentGone
from ..format.files.names import (
    PartitionState,
    is_legal_topic,
    parse_partition_dir,
    partition_dir,
)
from ..format.messages.remote_log_metadata import TopicIdPartition
from ..io.assembled import AssembledDirectory, AssembledListing, directory_status
from ..io.directory import (
    Directory,
    DirectoryEntry,
    FilesByName,
    FileType,
    HeldDirectory,
    ReadableFile,
)
from .directory import RemotePartitionDirectory, TieredDirectory
from .tier import Tier, by_topic, describe

#: Topics of the brokers themselves are never in remote storage (ConfigRepository, KIP-405).
_INTERNAL: Final = "__"


class TieredLogDirectory(Directory):
    """A broker's log directory."""

    __slots__ = ("_directory", "_tier", "name", "path")

    def __init__(self, directory: Directory, tier: Tier) -> None:
        self.path = directory.path
        self.name = directory.name
        self._directory = directory
        self._tier = tier

    @property
    def parent(self) -> Directory | None:
        return self._directory.parent

    @property
    def is_local(self) -> bool:
        return self._directory.is_local

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return self._directory.list(wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        return self._directory.files(*examined)

    def stat(self, name: str | None = None) -> os.stat_result:
        return self._directory.stat(name)

    def open(self, name: str) -> ReadableFile:
        return self._directory.open(name)

    def hold(self, parent: HeldDirectory | None = None) -> HeldDirectory:
        return self._directory.hold(parent)

    def child(self, name: str) -> Directory:
        local = self._directory.child(name)
        parsed = parse_partition_dir(name)
        if parsed is None or parsed.state is not PartitionState.NORMAL:
            return local
        if parsed.topic.startswith(_INTERNAL) or not is_legal_topic(parsed.topic):
            return local
        return TieredDirectory(local, self._tier)


class RemoteLogDirectory(AssembledDirectory):
    """Remote storage whose brokers are lost. Of a topic that was deleted and created again, the
    newer one is served, the one whose last segment was written last."""

    __slots__ = ("_directory", "_tier")

    def __init__(self, directory: Directory, tier: Tier) -> None:
        """`directory` is where remote storage is."""
        super().__init__(directory.path)
        self._directory = directory
        self._tier = tier

    def hold(self, parent: HeldDirectory | None = None) -> _RemoteListing:
        return _RemoteListing(self._directory, self._partitions())

    def child(self, name: str) -> Directory:
        found = self._partitions().get(name)
        if found is None:
            raise SegmentGone(self.path_of(name))
        return RemotePartitionDirectory(self, name, self._tier.partition(found))

    def _partitions(self) -> dict[str, TopicIdPartition]:
        served: dict[str, TopicIdPartition] = {}
        for (topic, number), found in by_topic(self._tier.layout.partitions()).items():
            served[partition_dir(topic, number)] = self._newest(found)
        return served

    def _newest(self, found: Sequence[TopicIdPartition]) -> TopicIdPartition:
        if len(found) == 1:
            return found[0]
        newest = max(found, key=lambda each: self._tier.layout.stamp(each)[-1:])
        for each in found:
            if each is not newest:
                self._tier.report(f"{describe(each)}: not served, {describe(newest)} is newer")
        return newest


class _RemoteListing(AssembledListing):
    __slots__ = ("_partitions",)

    def __init__(self, directory: Directory, partitions: dict[str, TopicIdPartition]) -> None:
        super().__init__(directory)
        self._partitions = partitions

    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        return [
            DirectoryEntry(name, FileType.DIRECTORY, crc32(found.topic_id.encode()))
            for name, found in self._partitions.items()
        ]

    def stat(self) -> os.stat_result:
        real = self._directory.stat()
        names = "\n".join(map(str, self._partitions.values()))
        identity = (real.st_dev, real.st_ino)
        return directory_status(identity, crc32(names.encode()), real.st_mtime_ns)

    def status_of(self, name: str) -> os.stat_result:
        raise SegmentGone(self._directory.path_of(name))

    def open(self, name: str) -> ReadableFile:
        raise SegmentGone(self._directory.path_of(name))


def not_a_tier(path: str) -> LogDirError:
    """Returns the error for a directory that no known plugin of remote storage has written."""
    return LogDirError(
        path,
        "not remote storage: it has neither the directories of LocalTieredStorage"
        " (<topic>-<partition>-<topic id>) nor those of Aiven's plugin (<topic>-<topic id>)",
    )
