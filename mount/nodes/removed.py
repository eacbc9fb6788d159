"""The stand-in for a name that no longer exists but may still be removed by a process."""

from __future__ import annotations

from ..errnos import Stale
from ..handles import Handle
from ..lifetimes import NOT_AT_ALL
from ..partition import Partition
from .member import Member, member_inode
from .node import FILE_MODE, Attributes, File


class RemovedName(File):
    """One empty file for all such names of a partition."""

    def __init__(self, partition: Partition) -> None:
        self.inode = member_inode(partition, Member.REMOVED)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, FILE_MODE, 0, 0, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        raise Stale
