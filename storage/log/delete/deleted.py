"""Files that are no longer part of a log and wait for `file.delete.delay.ms` before their removal,
since they may still be read or restored.

Those left by another process wait until a purge removes them (see `leftovers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...errors import SegmentGone
from ...format.files.names import FileKind, FileState, segment_file
from ...io.durable import WritableDirFd
from ...segment.stored import FILES, StoredSegment
from .deletions import NEVER_MS
from .leftovers import Leftover, remove, set_aside

# The snapshot at a segment's start is deleted and restored with the segment.
_WITH_SNAPSHOT = (*FILES, FileKind.SNAPSHOT)
# Restore order: the `.log` follows last, since the other files mean nothing without it.
_BESIDE_LOG = (FileKind.SNAPSHOT, FileKind.TXNINDEX, FileKind.TIMEINDEX, FileKind.INDEX)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file to be removed at `due_ms`; NEVER_MS if another process deleted it. `is_of_front`: it
    belongs to a segment that can be restored."""

    due_ms: int
    is_of_front: bool


class DeletedFiles:
    """The deleted files of one partition. Used under its writer's lock.

    `front`: the segments deleted from the start of the log that can be restored, by base offset.
    They form one run without gaps up to the log.
    """

    def __init__(self, directory: WritableDirFd) -> None:
        self.front: dict[int, StoredSegment] = {}
        self._directory = directory
        self._waiting: dict[str, _Waiting] = {}  # by name
        self._found: set[str] = set()  # names deleted by another process

    @property
    def has_due(self) -> bool:
        """Whether any file has a removal time."""
        return any(waiting.due_ms != NEVER_MS for waiting in self._waiting.values())

    def mark(self, base_offset: int, due_ms: int, is_of_front: bool = False) -> None:
        """Removes a segment from the log: renames its existing files with the suffix `.deleted`
        (LocalLog.deleteSegmentFiles) and schedules their removal at `due_ms`. Can be repeated
        after an OSError."""
        for kind in FILES:
            name = segment_file(base_offset, kind, FileState.DELETED)
            self.make_way(name)
            try:
                self._directory.rename(segment_file(base_offset, kind), name)
            except FileNotFoundError:
                continue
            self.add(name, due_ms, is_of_front)

    def make_way(self, name: str) -> None:
        """Moves a leftover aside if it has the name that a deleted file needs."""
        if name not in self._waiting:
            set_aside(self._directory, name)

    def add(self, name: str, due_ms: int, is_of_front: bool = False) -> None:
        """Schedules removal of the file `name`, already renamed, at `due_ms`; if another process
        deleted it, only a purge removes it."""
        self._waiting[name] = _Waiting(NEVER_MS if name in self._found else due_ms, is_of_front)

    def add_found(self, name: str) -> None:
        """Adds the file `name`, of a restorable segment, that another process deleted."""
        self._found.add(name)
        self.add(name, NEVER_MS, is_of_front=True)

    def remove_due(self, now_ms: int) -> int:
        """Removes the files that are due; returns how many. After an OSError the rest remain."""
        due = [name for name, waiting in self._waiting.items() if waiting.due_ms <= now_ms]
        for name in due:
            self._give_up(name)
            self._directory.remove(name, missing_ok=True)
            del self._waiting[name]
        return len(due)

    def _give_up(self, name: str) -> None:
        """Marks the segment of a file about to be removed, and all older ones, as not restorable,
        whether or not the removal succeeds."""
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.is_of_front:
            own = int(name.partition(".")[0])
            self.front = {base: each for base, each in self.front.items() if base > own}

    def purge(self, leftovers: Sequence[Leftover]) -> None:
        """Durably removes files that other processes left."""
        for each in leftovers:
            self._give_up(each.name)
        remove(self._directory, leftovers)
        for each in leftovers:
            self._waiting.pop(each.name, None)
            self._found.discard(each.name)

    def is_left(self, name: str) -> bool:
        """Whether a `.deleted` file is one that this process will not remove by itself."""
        waiting = self._waiting.get(name)
        return waiting is None or waiting.due_ms == NEVER_MS

    def forget_front(self) -> None:
        """Marks every deleted segment as not restorable."""
        self.front.clear()
        for name, waiting in self._waiting.items():
            self._waiting[name] = _Waiting(waiting.due_ms, is_of_front=False)

    # -- restoring -------------------------------------------------------------------------------

    def is_there(self, base_offset: int) -> bool:
        """Whether the files of a segment in `front` still exist: a user may have removed them."""
        try:
            for _, name in self._files_of(base_offset, _WITH_SNAPSHOT):
                self._directory.stat(name)
        except SegmentGone:
            return False
        return True

    def sync(self, base_offset: int) -> None:
        """Makes a segment in `front` durable if it is not. Raises SyncFailed if fsync fails."""
        segment = self.front[base_offset]
        if not segment.is_synced:
            for _, name in self._files_of(base_offset, FILES):
                self._directory.writable(name).sync()
            segment.unsynced, segment.is_synced = (), True

    def restore_indexes(self, base_offset: int) -> bool:
        """Restores the names of a segment's files except the `.log`, so it is not yet part of the
        log. Returns whether a snapshot was restored."""
        has_snapshot = False
        for kind, name in list(self._files_of(base_offset, _BESIDE_LOG)):
            self._rename_back(name, segment_file(base_offset, kind))
            has_snapshot = has_snapshot or kind is FileKind.SNAPSHOT
        return has_snapshot

    def restore_log(self, base_offset: int) -> StoredSegment:
        """Restores the `.log`, which makes the segment part of the log, and returns the segment."""
        log = FileKind.LOG
        name = segment_file(base_offset, log, FileState.DELETED)
        self._rename_back(name, segment_file(base_offset, log))
        for kind in _WITH_SNAPSHOT:  # this process owns any later deletion
            self._found.discard(segment_file(base_offset, kind, FileState.DELETED))
        return self.front.pop(base_offset)

    def _rename_back(self, name: str, live: str) -> None:
        self._directory.rename(name, live)
        del self._waiting[name]

    def _files_of(self, base: int, kinds: Sequence[FileKind]) -> Iterator[tuple[FileKind, str]]:
        for kind in kinds:
            name = segment_file(base, kind, FileState.DELETED)
            waiting = self._waiting.get(name)
            if waiting is not None and waiting.is_of_front:
                yield kind, name
