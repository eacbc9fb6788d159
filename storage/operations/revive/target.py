"""The new directory while it is being made: marked as unfinished until it is complete.

The mark is the file that becomes `server.properties`, under another name, with the request in its
first line. Renaming it is the last step, so that Kafka cannot be started on half a directory, and
the same request may start again at any time before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...errors import LogDirError, SegmentGone
from ...io.directory import Directory
from ...io.durable import TEMPORARY_SUFFIX, FileOwner, WritableDirFd
from ...io.lock import LOCK_FILE, DirectoryLock
from ..output_dir import refuse_in_log_dir

PROPERTIES_FILE: Final = "server.properties"
DATA_DIRECTORY: Final = "data"
_MARK: Final = f"{PROPERTIES_FILE}.unfinished"
# What a directory may have that counts as empty: a file system's own entry, and what is left of an
# attempt that ended before the mark.
_NOTHING: Final = ("lost+found", LOCK_FILE, _MARK + TEMPORARY_SUFFIX)
_MAX_MARK: Final = 1 << 20


class NewNodeDir:
    """The new directory at `path`, which is absolute."""

    def __init__(self, path: str, sources: Sequence[Directory]) -> None:
        """Raises LogDirError if the directory would be inside a log directory, or cannot be named
        in log.dirs."""
        self.path = path
        self._directory = WritableDirFd(path)
        self._lock: DirectoryLock | None = None
        if "," in path:
            raise LogDirError(path, "has a comma, which separates the directories in log.dirs")
        refuse_in_log_dir(path, sources)

    @property
    def properties_path(self) -> str:
        return self._directory.path_of(PROPERTIES_FILE)

    @property
    def data_path(self) -> str:
        return self._directory.path_of(DATA_DIRECTORY)

    def check(self, identity: str) -> None:
        """Raises LogDirError if the path exists and is neither empty nor what an earlier attempt of
        the same request left. Only reads."""
        try:
            names = {entry.name for entry in self._directory.list()} - set(_NOTHING)
        except SegmentGone:
            return
        if _MARK in names:
            mark = self._directory.read_small(_MARK, _MAX_MARK)
            first = mark.partition(b"\n")[0].decode("utf-8", "replace")
            if first != _first_line(identity):
                why = "another command left it unfinished; repeat that one, or remove the directory"
                raise LogDirError(self.path, why)
        elif names:
            raise LogDirError(self.path, "already exists and is not empty; choose a new directory")

    def begin(self, identity: str, mode: int) -> WritableDirFd:
        """Locks the directory, marks it, and returns the log directory in it, which is empty and
        has the permissions `mode`, as far as the umask allows."""
        self._directory.make_itself()
        self._lock = DirectoryLock(self._directory)
        self.check(identity)
        self._directory.write_atomically(_MARK, _first_line(identity).encode() + b"\n")
        names = {entry.name for entry in self._directory.list()}
        if DATA_DIRECTORY in names:
            self._directory.remove_directory(DATA_DIRECTORY)
        data = self._directory.make(DATA_DIRECTORY, mode)
        self._directory.sync()
        return data

    def finish(self, identity: str, properties: str, owner: FileOwner | None) -> bool:
        """Writes server.properties: from then on, the directory is complete. Before that gives all
        of it to `owner`, unless that is None; returns False if this process may not."""
        content = f"{_first_line(identity)}\n{properties}"
        self._directory.write_atomically(_MARK, content.encode())
        is_given = owner is None or self._give_to(owner)
        self._directory.rename(_MARK, PROPERTIES_FILE)
        self._directory.sync()
        return is_given

    def _give_to(self, owner: FileOwner) -> bool:
        if FileOwner.of(self._directory.stat(DATA_DIRECTORY)) == owner:
            return True
        try:
            self._directory.give_to(owner)
        except PermissionError:
            return False
        return True

    def release(self) -> None:
        """Releases the lock. Idempotent."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


def _first_line(identity: str) -> str:
    return f"# kafkafs revive {identity}"
