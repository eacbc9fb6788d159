"""The fixed names in a partition: their inode numbers, and what their directories share."""

from __future__ import annotations

from enum import IntEnum
from time import monotonic
from typing import TYPE_CHECKING

from kafkafs.storage import printable

from ..catalog import Catalog
from ..node import FILE_MODE, Attributes, DirectoryNode, File, directory_attributes
from ..partition import MountedPartition, Scope
from ..vfs.errnos import NotADirectory, NotEmpty, ReadOnly, Stale
from ..vfs.handles import Handle
from ..vfs.inodes import InodeKind
from ..vfs.timeouts import NOT_AT_ALL

if TYPE_CHECKING:
    from ..writes.changes import Changes
    from ..writes.removed import Removed


class Member(IntEnum):
    """The `number` in an inode number of InodeKind.PARTITION."""

    DIRECTORY = 0
    OFFSET = 1
    TIME = 2
    SEGMENTS = 3
    RECORDS_JSONL = 4
    RECORDS_ARROW = 5
    VALUES = 6
    KEYS = 7
    FOLLOW = 8
    FOLLOW_JSONL = 9
    STATUS = 10
    FIRST_RECORD = 11
    LAST_RECORD = 12
    COMPACTED = 13
    COMPACTED_OFFSET = 14
    COMPACTED_RECORDS_JSONL = 15
    COMPACTED_VALUES = 16
    COMPACTED_KEYS = 17
    COMPACTED_SUMMARY = 18
    COMPACTED_FIRST = 19
    COMPACTED_LAST = 20
    COMPACTED_LATEST = 21
    COMPACTED_DECODED_JSONL = 22
    DECODED_JSONL = 25
    FOLLOW_DECODED_JSONL = 26
    KEY = 24
    WHY = 30
    RANGE = 31
    APPEND = 40
    APPEND_JSONL = 41
    DUMP = 42
    REMOVED = 50


def member_inode(partition: MountedPartition, member: Member) -> int:
    return partition.inode(InodeKind.PARTITION, Scope.PARTITION, member)


def changed_ns(partition: MountedPartition) -> int:
    """Returns the time of the last write to the log, in ns since 1970; 0 without segments."""
    segments = partition.view().segments
    return segments[-1].mtime_ns if len(segments) else 0


class DirectoryInPartition(DirectoryNode):
    """A partition's directory, or one below it."""

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        self.catalog = catalog
        self.partition = partition

    @property
    def changes(self) -> Changes | None:
        """The operations of a writable mount; None on a read-only one."""
        return self.catalog.changes

    def writable(self) -> Changes:
        """Returns the operations of a writable mount. Raises ReadOnly on a read-only one."""
        if self.catalog.changes is None:
            raise ReadOnly
        return self.catalog.changes

    def removed_by(self, name: str, pid: int) -> Removed | None:
        """Returns what process `pid` recently removed, if `name` may have vanished with it."""
        if self.changes is None:
            return None
        return self.changes.deletions.removed_by(self.partition, pid, name)

    def sync(self) -> None:
        if self.changes is not None:
            self.changes.sync(self.partition)


class MemberDirectory(DirectoryInPartition):
    """A directory in a partition's directory."""

    member: Member

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        super().__init__(catalog, partition)
        self.inode = member_inode(partition, self.member)
        self.parent_inode = member_inode(partition, Member.DIRECTORY)

    def attributes(self) -> Attributes:
        generation = self.catalog.generation(self.inode)
        return directory_attributes(self.inode, changed_ns(self.partition), generation)

    def visit(self) -> None:
        """Notes that the kernel may cache names of this directory."""
        self.partition.visited_at = monotonic()

    def losses(self) -> int:
        return self.partition.losses


class FixedDirectory(DirectoryInPartition):
    """A directory with constant names. Removing them changes nothing, and is allowed only at the
    end of `rm -r`: when no record is left."""

    def remove(self, name: str, pid: int) -> None:
        self.child(name)
        self.writable().deletions.ignore_removal(self.partition, name)

    def remove_directory(self, name: str) -> None:
        directory = self.child(name)
        if not isinstance(directory, DirectoryNode):
            raise NotADirectory(f"{printable(name)} is not a directory")
        deletions = self.writable().deletions
        lists_nothing = next(directory.readdir(0), None) is None
        if not lists_nothing and not deletions.is_emptied(self.partition):
            raise NotEmpty(f"{printable(name)} is not empty")
        deletions.bury(directory.inode)


class RemovedName(File):
    """The stand-in for a name that no longer exists but may still be removed by a process: one
    empty file for all such names of a partition."""

    def __init__(self, partition: MountedPartition) -> None:
        self.inode = member_inode(partition, Member.REMOVED)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, FILE_MODE, 0, 0, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        raise Stale
