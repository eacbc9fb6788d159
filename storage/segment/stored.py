"""The log writer's representation of an inactive segment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ..errors import CorruptError, SegmentGone
from ..format.files.names import FileKind, segment_file
from ..format.layout import NO_TIMESTAMP
from ..io.directory import Directory
from ..io.durable import WritableDirFd, WritableFile
from .time_index import TimeIndex

# In the order in which Kafka renames them.
FILES = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


class StoredSegment:
    """A segment that takes no more batches. `size`: bytes of its `.log`.

    `is_synced`: whether it is certainly durable. `unsynced`: its files that stay open until they
    are synced; if another process wrote the segment, they are opened for that instead.
    """

    __slots__ = ("_largest", "base_offset", "directory", "is_synced", "size", "unsynced")

    def __init__(
        self,
        directory: WritableDirFd,
        base_offset: int,
        size: int,
        is_synced: bool,
        largest_timestamp: int | None = None,
        unsynced: tuple[WritableFile, ...] = (),
    ) -> None:
        """If `largest_timestamp` is None, it is read from the time index when needed."""
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.is_synced = is_synced
        self.unsynced = unsynced
        self._largest = largest_timestamp

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records in ms, or the `.log`'s mtime if no record has one
        (LogSegment.largestTimestamp)."""
        if self._largest is None:
            self._largest = _last_time(self.directory, self.base_offset)
        if self._largest > NO_TIMESTAMP:
            return self._largest
        return modified_ms(self.directory, self.base_offset)

    def sync(self) -> None:
        """Makes the segment durable. Raises SyncFailed if that is uncertain."""
        for file in self.unsynced or self._opened():
            file.sync()
        self.unsynced, self.is_synced = (), True

    def _opened(self) -> Iterator[WritableFile]:
        for kind in FILES:
            with suppress(FileNotFoundError):
                yield self.directory.writable(segment_file(self.base_offset, kind))


def modified_ms(directory: Directory, base_offset: int) -> int:
    """Returns the mtime of a segment's `.log` in ms since 1970."""
    return directory.stat(segment_file(base_offset, FileKind.LOG)).st_mtime_ns // 1_000_000


def _last_time(directory: Directory, base_offset: int) -> int:
    """Returns the timestamp of the time index's last entry, -1 if there is none."""
    name = segment_file(base_offset, FileKind.TIMEINDEX)
    try:
        return TimeIndex.open(directory, name, base_offset).last_entry().timestamp
    except (SegmentGone, CorruptError):
        return NO_TIMESTAMP
