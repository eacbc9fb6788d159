"""Files that are no longer part of a log, and wait for `file.delete.delay.ms`: somebody may be
reading them, or want them back.

What another process has left of them waits for ever, until a purge removes it (see `leftovers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..durable import WritableDirectory
from ..errors import SegmentGone
from ..format.names import FileKind, FileState, segment_file
from ..segment.stored import FILES, StoredSegment
from .deletions import NEVER_MS
from .leftovers import Leftover, remove, set_aside

# That of a segment's start comes and goes with it.
_WITH_SNAPSHOT = (*FILES, FileKind.SNAPSHOT)
# When segments come back: the `.log` last, without which the others mean nothing.
_BESIDE_LOG = (FileKind.SNAPSHOT, FileKind.TXNINDEX, FileKind.TIMEINDEX, FileKind.INDEX)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A file that is removed at `due_ms`, NEVER_MS for one that this process has not deleted.
    `is_of_front`: of a segment that could come back."""

    due_ms: int
    is_of_front: bool


class DeletedFiles:
    """Those of one partition. Used under the lock of its writer.

    `front`: the segments that went from the log's front and could come back, by base offset.
    Between them, and up to the log, none is missing.
    """

    def __init__(self, directory: WritableDirectory) -> None:
        self.front: dict[int, StoredSegment] = {}
        self._directory = directory
        self._waiting: dict[str, _Waiting] = {}  # by name
        self._found: set[str] = set()  # names that this process has not given

    @property
    def has_due(self) -> bool:
        """Whether a file is removed at some time."""
        return any(waiting.due_ms != NEVER_MS for waiting in self._waiting.values())

    def mark(self, base_offset: int, due_ms: int, is_of_front: bool = False) -> None:
        """Takes a segment out of the log: its files, those that are there, get the suffix
        `.deleted` (LocalLog.deleteSegmentFiles), and go at `due_ms`. Can be repeated after an
        OSError."""
        for kind in FILES:
            name = segment_file(base_offset, kind, FileState.DELETED)
            self.make_way(name)
            try:
                self._directory.rename(segment_file(base_offset, kind), name)
            except FileNotFoundError:
                continue
            self.add(name, due_ms, is_of_front)

    def make_way(self, name: str) -> None:
        """Sets a leftover aside that has the name which a deleted file needs."""
        if name not in self._waiting:
            set_aside(self._directory, name)

    def add(self, name: str, due_ms: int, is_of_front: bool = False) -> None:
        """The file `name`, which has its suffix already, goes at `due_ms`, or not before a purge
        where it was found here."""
        self._waiting[name] = _Waiting(NEVER_MS if name in self._found else due_ms, is_of_front)

    def add_found(self, name: str) -> None:
        """The file `name`, of a segment that could come back, was here before."""
        self._found.add(name)
        self.add(name, NEVER_MS, is_of_front=True)

    def remove_due(self, now_ms: int) -> int:
        """Removes the files whose time has come; how many. An OSError leaves the rest for later."""
        due = [name for name, waiting in self._waiting.items() if waiting.due_ms <= now_ms]
        for name in due:
            self._give_up(name)
            self._directory.remove(name, missing_ok=True)
            del self._waiting[name]
        return len(due)

    def _give_up(self, name: str) -> None:
        """The file is about to go. Whatever comes of it: neither its segment comes back nor one in
        front of that."""
        waiting = self._waiting.get(name)
        if waiting is not None and waiting.is_of_front:
            own = int(name.partition(".")[0])
            self.front = {base: each for base, each in self.front.items() if base > own}

    def purge(self, leftovers: Sequence[Leftover]) -> None:
        """Removes files that other processes have left, durably."""
        for each in leftovers:
            self._give_up(each.name)
        remove(self._directory, leftovers)
        for each in leftovers:
            self._waiting.pop(each.name, None)
            self._found.discard(each.name)

    def is_left(self, name: str) -> bool:
        """Whether a `.deleted` file is not one that this process deleted and removes in time."""
        waiting = self._waiting.get(name)
        return waiting is None or waiting.due_ms == NEVER_MS

    def forget_front(self) -> None:
        """No segment can come back."""
        self.front.clear()
        for name, waiting in self._waiting.items():
            self._waiting[name] = _Waiting(waiting.due_ms, is_of_front=False)

    # -- bringing back ---------------------------------------------------------------------------

    def is_there(self, base_offset: int) -> bool:
        """Whether a segment of the front still has its files: they may have been removed by
        hand."""
        try:
            for _, name in self._files_of(base_offset, _WITH_SNAPSHOT):
                self._directory.stat(name)
        except SegmentGone:
            return False
        return True

    def sync(self, base_offset: int) -> None:
        """Makes a segment of the front durable, if it is not. SyncFailed."""
        segment = self.front[base_offset]
        if not segment.is_synced:
            for _, name in self._files_of(base_offset, FILES):
                self._directory.writable(name).sync()
            segment.unsynced, segment.is_synced = (), True

    def bring_back_indexes(self, base_offset: int) -> bool:
        """Gives a segment of the front its names again, but for the `.log`: it is not one of the
        log's yet. Whether a snapshot has come with it."""
        has_snapshot = False
        for kind, name in list(self._files_of(base_offset, _BESIDE_LOG)):
            self._rename_back(name, segment_file(base_offset, kind))
            has_snapshot = has_snapshot or kind is FileKind.SNAPSHOT
        return has_snapshot

    def bring_back_log(self, base_offset: int) -> StoredSegment:
        """Then its `.log`, with which it is one."""
        log = FileKind.LOG
        name = segment_file(base_offset, log, FileState.DELETED)
        self._rename_back(name, segment_file(base_offset, log))
        for kind in _WITH_SNAPSHOT:  # a later deletion is this process's own
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
