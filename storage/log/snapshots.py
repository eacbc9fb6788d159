"""The ``.snapshot`` files of a partition that is being written.

Rules: Kafka's ``ProducerStateManager``. One is written at every roll, for the base of the new
segment, and at a clean stop, for the log's end; a segment takes the one of its base with it. A
snapshot says what was known *before* its offset. Which ones there are to be after a partition was
loaded or cut is ``producer_rebuild``'s to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..durable import WritableDirectory, WritableFile
from ..format.names import FileKind, FileState, parse_segment_file, segment_file
from .producers import Producers


class SnapshotFiles:
    """The snapshots in a partition's directory. Used under the lock of the partition's writer.

    ``newest``: the offset up to which none need be taken, that of the newest one; without any, of
    the log's start.
    """

    def __init__(
        self,
        directory: WritableDirectory,
        start_offset: int,
        offsets: Iterable[int] | None = None,
    ) -> None:
        """`offsets`: those of the snapshots that are there, where they are known."""
        self._directory = directory
        self.newest = start_offset
        self._offsets = _listed(directory) if offsets is None else set(offsets)
        self.start_moved(start_offset)

    @property
    def offsets(self) -> list[int]:
        """Of all snapshots, ascending."""
        return sorted(self._offsets)

    def take(self, producers: Producers) -> WritableFile | None:
        """Writes the snapshot of the producers' offset, unless nothing was counted since the last.

        It is not durable before the caller has synced the file and the directory. Torn, it has a
        wrong checksum, and the one before it is loaded.
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
        """The log begins at ``start_offset`` now: where no snapshot is left it is as good as one
        (``onLogStartOffsetIncremented``)."""
        self.newest = max(self._offsets, default=start_offset)

    def mark_deleted(self, offset: int) -> str | None:
        """Gives the snapshot of ``offset`` its ``.deleted`` name, which is returned; None when
        there is no such snapshot."""
        if offset not in self._offsets:
            return None
        deleted = segment_file(offset, FileKind.SNAPSHOT, FileState.DELETED)
        try:
            self._directory.rename(segment_file(offset, FileKind.SNAPSHOT), deleted)
        except FileNotFoundError:  # it is as good as deleted; Kafka passes over it, too
            return None
        finally:
            self._offsets.discard(offset)
        return deleted

    def bring_back(self, offset: int) -> None:
        """The snapshot of ``offset`` has its name again."""
        self._offsets.add(offset)

    def change(self, written: Mapping[int, bytes], gone: Iterable[int]) -> None:
        """Removes those ``gone`` at once and writes others, durably, as they are to be after the
        log was cut."""
        for offset in gone:
            self._remove(offset)
        for offset, data in written.items():
            name = segment_file(offset, FileKind.SNAPSHOT)
            self._directory.write_in_place(name, data)
            self._offsets.add(offset)
        self.newest = max(self._offsets, default=self.newest)

    def remove_all(self) -> None:
        """Removes every snapshot: the log begins anew, elsewhere."""
        for offset in self.offsets:
            self._remove(offset)
        self.newest = 0

    def _remove(self, offset: int) -> None:
        self._directory.remove(segment_file(offset, FileKind.SNAPSHOT), missing_ok=True)
        self._offsets.discard(offset)


def _listed(directory: WritableDirectory) -> set[int]:
    return {
        name.base_offset
        for entry in directory.list()
        if (name := parse_segment_file(entry.name)) is not None
        and name.kind is FileKind.SNAPSHOT
        and name.state is FileState.LIVE
    }
