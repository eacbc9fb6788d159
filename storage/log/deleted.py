"""Files that are no longer part of a log, and wait for `file.delete.delay.ms`: somebody may be
reading them.

What is left of them after a crash is removed when the partition is loaded.
"""

from __future__ import annotations

from collections import deque

from ..durable import WritableDirectory
from ..format.names import FileState, segment_file
from ..segment.stored import FILES


class DeletedFiles:
    """Those of one partition. Used under the lock of its writer."""

    def __init__(self, directory: WritableDirectory) -> None:
        self._directory = directory
        self._waiting: deque[tuple[int, str]] = deque()  # due time in ms, name

    def __len__(self) -> int:
        return len(self._waiting)

    def mark(self, base_offset: int, due_ms: int) -> None:
        """Takes a segment out of the log: its files, those that are there, get the suffix
        `.deleted` (LocalLog.deleteSegmentFiles), and go at `due_ms`. Can be repeated after an
        OSError."""
        for kind in FILES:
            name = segment_file(base_offset, kind, FileState.DELETED)
            try:
                self._directory.rename(segment_file(base_offset, kind), name)
            except FileNotFoundError:
                continue
            self.add(name, due_ms)

    def add(self, name: str, due_ms: int) -> None:
        """The file `name`, which has its suffix already, goes at `due_ms`."""
        self._waiting.append((due_ms, name))

    def remove_due(self, now_ms: int) -> int:
        """Removes the files whose time has come; how many. An OSError leaves the rest for later."""
        count = 0
        for _ in range(len(self._waiting)):
            due_ms, name = self._waiting[0]
            if due_ms <= now_ms:
                self._directory.remove(name, missing_ok=True)
                count += 1
                self._waiting.popleft()
            else:
                self._waiting.rotate(-1)
        return count
