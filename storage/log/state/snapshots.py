"""The ``.snapshot`` files of a partition, and those of one that is being written.

Follows Kafka's ``ProducerStateManager``. A snapshot is written at every roll, for the base of the
new segment, and at a clean shutdown, for the log's end; it is deleted with the segment of its base.
A snapshot holds the state *before* its offset. ``producer_rebuild`` determines which snapshots
exist after a load or truncation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...format.files.names import (
    FileKind,
    FileState,
    parse_segment_file,
    segment_file,
)
from ...format.files.snapshot import MAX_SNAPSHOT_BYTES
from ...io.directory import Directory, HeldDirectory

if TYPE_CHECKING:  # readers do not load the code that writes
    from ...io.durable import WritableDirFd, WritableFile
    from .producers import ProducerStateManager


class SnapshotFiles:
    """The snapshots in a partition's directory. Used under the lock of the partition's writer.

    ``newest``: the offset up to which no snapshot need be taken: that of the newest one, or the
    log's start if there is none.
    """

    def __init__(
        self,
        directory: WritableDirFd,
        start_offset: int,
        offsets: Iterable[int] | None = None,
    ) -> None:
        """`offsets`: those of the existing snapshots, None to list the directory."""
        self._directory = directory
        self.newest = start_offset
        self._offsets = set(snapshot_offsets(directory) if offsets is None else offsets)
        self.start_moved(start_offset)

    @property
    def offsets(self) -> list[int]:
        """The offsets of all snapshots, ascending."""
        return sorted(self._offsets)

    def take(self, producers: ProducerStateManager) -> WritableFile | None:
        """Writes a snapshot at the producers' offset, unless the last one is as new.

        It is durable only after the caller has synced the file and the directory. If it is torn,
        its checksum is wrong, and the previous one is loaded.
        """
        offset = producers.map_end_offset
        if offset <= self.newest:
            return None
        file = self._directory.create(segment_file(offset, FileKind.SNAPSHOT))
        file.write(0, producers.snapshot())
        self._offsets.add(offset)
        self.newest = offset
        return file

    def start_moved(self, start_offset: int) -> None:
        """Notes the new log start, which serves as a snapshot if none is left
        (``onLogStartOffsetIncremented``)."""
        self.newest = max(self._offsets, default=start_offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Renames the snapshot of ``offset`` to its ``.deleted`` name and returns that; None if
        there is no such snapshot."""
        if offset not in self._offsets:
            return None
        deleted = segment_file(offset, FileKind.SNAPSHOT, FileState.DELETED)
        try:
            self._directory.rename(segment_file(offset, FileKind.SNAPSHOT), deleted)
        except FileNotFoundError:  # as good as deleted; Kafka ignores it, too
            return None
        finally:
            self._offsets.discard(offset)
        return deleted

    def restore(self, offset: int) -> None:
        """Notes that the snapshot of ``offset`` has its name again."""
        self._offsets.add(offset)

    def change(self, written: Mapping[int, bytes], gone: Iterable[int]) -> None:
        """Durably writes the snapshots ``written`` and removes those ``gone`` at once, after a
        truncation."""
        for offset in gone:
            self._remove(offset)
        for offset, data in written.items():
            name = segment_file(offset, FileKind.SNAPSHOT)
            self._directory.write_in_place(name, data)
            self._offsets.add(offset)
        self.newest = max(self._offsets, default=self.newest)

    def remove_all(self) -> None:
        """Removes every snapshot, as the log starts over at another offset."""
        for offset in self.offsets:
            self._remove(offset)
        self.newest = 0

    def _remove(self, offset: int) -> None:
        self._directory.remove(segment_file(offset, FileKind.SNAPSHOT), missing_ok=True)
        self._offsets.discard(offset)


def snapshot_offsets(directory: Directory) -> list[int]:
    """Returns the offsets of a partition's snapshots, ascending."""
    names = (parse_segment_file(entry.name) for entry in directory.list())
    return sorted(
        name.base_offset
        for name in names
        if name and name.kind is FileKind.SNAPSHOT and name.state is FileState.LIVE
    )


def read_snapshot(directory: Directory | HeldDirectory, offset: int) -> bytes:
    """Returns the content of a snapshot. Raises SegmentGone if there is none."""
    return directory.read_small(segment_file(offset, FileKind.SNAPSHOT), MAX_SNAPSHOT_BYTES)
