"""The stand-in for a name that no longer exists but may still be removed by a process."""

from __future__ import annotations

from ..node import FILE_MODE, Attributes, File
from ..partition import MountedPartition
from ..vfs.errnos import Stale
from ..vfs.handles import Handle
from ..vfs.lifetimes import NOT_AT_ALL
from .member import Member, member_inode


class RemovedName(File):
    """One empty file for all such names of a partition."""

    def __init__(self, partition: MountedPartition) -> None:
        self.inode = member_inode(partition, Member.REMOVED)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, FILE_MODE, 0, 0, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        raise Stale
