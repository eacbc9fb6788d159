"""The fixed names in a partition: what their inode numbers say, and what directories share."""

from __future__ import annotations

from enum import IntEnum
from time import monotonic

from ..inodes import Kind
from ..partition import Partition, Scope
from .node import Attributes, Directory, directory_attributes


class Member(IntEnum):
    """The number in an inode number of Kind.PARTITION."""

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
    KEY = 24
    WHY = 30
    APPEND = 40
    APPEND_JSONL = 41


def member_inode(partition: Partition, member: Member) -> int:
    return partition.inode(Kind.PARTITION, Scope.PARTITION, member)


def changed_ns(partition: Partition) -> int:
    """When the broker last wrote to the partition, in ns since 1970; 0 when it has no segment."""
    segments = partition.view().segments
    return segments[-1].mtime_ns if len(segments) else 0


class MemberDirectory(Directory):
    """A directory in a partition's."""

    member: Member

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.inode = member_inode(partition, self.member)
        self.parent_inode = member_inode(partition, Member.DIRECTORY)

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, changed_ns(self.partition))

    def visit(self) -> None:
        """Note that names from here may be kept by the kernel."""
        self.partition.visited_at = monotonic()

    def sync(self) -> None:
        if self.partition.changes is not None:
            self.partition.changes.sync(self.partition)

    def losses(self) -> int:
        seen = self.partition.last_seen
        return seen.losses if seen is not None else 0
