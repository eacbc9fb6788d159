"""`time/`: links from a time to the first record at or after it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from kafkafs.storage import MAX_OFFSET, CorruptError, View, not_a_time, parse_time, time_text

from ..node import (
    FIRST_READDIR_OFFSET,
    LINK_MODE,
    Attributes,
    DirEntries,
    DirEntry,
    DirEntryRun,
    Link,
    Readdir,
    link_attributes,
    readdir_until,
)
from ..partition import MountedPartition, Scope
from ..vfs.errnos import NoSuchName
from ..vfs.inodes import InodeKind
from ..vfs.timeouts import NOT_AT_ALL
from .member import Member, MemberDirectory, RemovedName

# Number of entries made at a time, which bounds the memory of a listing.
_MOST_ENTRIES: Final = 4096


class TimeDirectory(MemberDirectory):
    member = Member.TIME

    def child(self, name: str) -> TimeLink:
        timestamp = _timestamp(name)
        if first_since(self.partition, timestamp) is None:
            raise _none_since(self.partition, name, timestamp)
        return TimeLink(self.partition, timestamp)

    def remove(self, name: str, pid: int) -> None:
        """Deletes the records before the one that the link leads to."""
        partition, deletions = self.partition, self.writable().deletions
        timestamp = _timestamp(name)
        offset = first_since(partition, timestamp)
        if offset is not None:
            deletions.refuse_remote(partition, name)
            deletions.delete_below(partition, offset, name, pid)
        elif self.removed(name, pid) is not None:
            deletions.removed_again(partition, pid, name)
        else:
            raise _none_since(partition, name, timestamp)

    def removed(self, name: str, pid: int) -> RemovedName | None:
        """Returns a stand-in if the records since then may have been removed by offset."""
        if self.removed_by(name, pid) is None or parse_time(name) is None:
            return None
        return RemovedName(self.partition)

    def child_may_block(self, name: str) -> bool:
        return True

    def opendir(self) -> Readdir:
        """Returns a listing that ends with the current latest time; otherwise it might not end."""
        end = _readdir_offset_after(self.partition.view().max_timestamp)
        return partial(readdir_until, end, self.readdir)

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        """Yields the times; the readdir offsets are the times + 1, after those of `.` and `..`."""
        partition = self.partition
        view = partition.view()
        latest = _latest_served(partition, view)
        after = max(start - FIRST_READDIR_OFFSET, 0) - 1
        entries: list[DirEntry] = []
        for timestamp in _indexed(view, after, latest):
            inode = partition.inode(InodeKind.TIME, Scope.PARTITION, timestamp)
            readdir_offset = _readdir_offset_after(timestamp)
            entries.append((b"%d" % timestamp, inode, 0, timestamp * 1_000_000, readdir_offset))
            if len(entries) == _MOST_ENTRIES:
                yield DirEntryRun(DirEntries.of(entries), LINK_MODE, NOT_AT_ALL, NOT_AT_ALL)
                entries = []
        if entries:
            yield DirEntryRun(DirEntries.of(entries), LINK_MODE, NOT_AT_ALL, NOT_AT_ALL)


def _timestamp(name: str) -> int:
    """Returns milliseconds since 1970. Raises NoSuchName if `name` is not a time."""
    timestamp = parse_time(name)
    if timestamp is None:
        raise NoSuchName(name, lambda: not_a_time(name))
    return timestamp


def _none_since(partition: MountedPartition, name: str, timestamp: int) -> NoSuchName:
    """Returns the error if no record is as late as `name`, which means `timestamp`."""

    def why() -> str:
        latest = _latest_served(partition, partition.view())
        if latest < 0:
            return f"no record of {partition.name} has a timestamp"
        since = time_text(timestamp)
        missing = f"no record of {partition.name} has a timestamp of {since} or later"
        return f"{missing}; the last is {time_text(latest)}"

    return NoSuchName(name, why)


def _readdir_offset_after(timestamp: int) -> int:
    return min(timestamp + 1 + FIRST_READDIR_OFFSET, MAX_OFFSET)


def _indexed(view: View, after: int, latest: int) -> Iterator[int]:
    """Yields the times in the indexes of a view that exceed `after` and all earlier ones, and are
    <= `latest`."""
    for segment in view.segments:
        index = segment.files.time_index()
        if index is None:
            continue
        for entry in index.entries():
            if after < entry.timestamp <= latest and entry.offset >= view.start_offset:
                yield entry.timestamp
                after = entry.timestamp


def _latest_served(partition: MountedPartition, view: View) -> int:
    """Returns the greatest timestamp at or after which a record is served; -1 if there is none.

    It is mostly the view's greatest timestamp. If the newest records are hidden or damaged, it is
    found by bisection, as a later time never finds more records than an earlier one.
    """
    high = view.max_timestamp
    if high < 0 or _is_found(partition, high):
        return high
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        if _is_found(partition, middle):
            low = middle
        else:
            high = middle
    return low


def _is_found(partition: MountedPartition, timestamp: int) -> bool:
    try:
        return first_since(partition, timestamp) is not None
    except CorruptError:
        return False


def first_since(partition: MountedPartition, timestamp: int) -> int | None:
    """Returns the offset of the first record served at or after a time, or None. Raises
    CorruptError if it may be damaged."""
    try:
        return partition.view().offset_for_time(timestamp, partition.isolation)
    except CorruptError as error:
        partition.note_damage(error)
        raise


class TimeLink(Link):
    """A link whose target is determined at each use, because retention moves it."""

    def __init__(self, partition: MountedPartition, timestamp: int) -> None:
        """`timestamp` is in ms since 1970, not negative."""
        self.partition = partition
        self.timestamp = timestamp
        self.inode = partition.inode(InodeKind.TIME, Scope.PARTITION, timestamp)

    def attributes(self) -> Attributes:
        return link_attributes(self.inode, self.timestamp * 1_000_000)

    def target(self) -> str:
        offset = first_since(self.partition, self.timestamp)
        if offset is None:
            raise _none_since(self.partition, str(self.timestamp), self.timestamp)
        return f"../offset/{offset}"
