"""The write lock of a log directory: a lock on the file `.lock` in it, as Kafka's.

It is Kafka's own lock (FileLock), so that a broker and an engine exclude each other: an exclusive
POSIX record lock over the whole file, which does not conflict with `flock`. Such a lock belongs to
the process, with two consequences. The process itself is never refused, so the locks it holds are
recorded here. And the lock is lost as soon as the process closes any descriptor of the file: no
other code may open it, and no descriptor of it may outlive an error here, to be closed later.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from typing import Self

from ..errors import LogDirLocked, SegmentGone
from .directory import Directory
from .disk import DirFd
from .durable import WritableDirFd, WritableFile

LOCK_FILE = ".lock"

_FLOCK = struct.Struct("@hhqqi0q")  # type, whence, start, length, pid: struct flock of 64-bit Linux

_held: set[tuple[int, int]] = set()  # device and inode of the directories that this process holds
_guard = threading.Lock()  # guards _held and each open and close of a lock file


class DirectoryLock:
    """The lock on a directory, held from construction until `release`. A context manager."""

    def __init__(self, directory: WritableDirFd) -> None:
        """Raises LogDirLocked if it is already locked, also by this process."""
        self._directory = directory
        status = directory.stat()
        self._identity = (status.st_dev, status.st_ino)
        with _guard:
            if self._identity in _held:
                raise _locked(directory, os.getpid())
            self._file: WritableFile | None = _acquired(directory)
            _held.add(self._identity)

    def release(self) -> None:
        """Releases the lock, and removes the file, as Kafka does. Idempotent."""
        with _guard:
            file, self._file = self._file, None
            if file is None:
                return
            try:
                # Before unlocking: afterwards the file may belong to another holder.
                self._directory.remove(LOCK_FILE, missing_ok=True)
            finally:
                del file  # closes it
                _held.discard(self._identity)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def who_holds(directory: Directory) -> int:
    """Returns the pid of the directory's holder, -1 if the system does not report it, 0 if there is
    none. Changes nothing. Other systems than Linux report no holder: there, the lock file, which a
    holder removes in the end, is taken as a sign of one."""
    if not isinstance(directory, DirFd):
        return 0  # no process of this machine writes to an archive or a server's directory
    status = directory.stat()
    with _guard:
        if (status.st_dev, status.st_ino) in _held:
            return os.getpid()
        try:
            file = directory.open(LOCK_FILE)
        except SegmentGone:
            return 0
        return _holder(file.fd) if sys.platform == "linux" else -1


def _acquired(directory: WritableDirFd) -> WritableFile:
    """Returns the lock file, locked. Its name is looked up again, because a holder that released it
    between our opening and our locking has removed the file: a lock on that would exclude
    nobody."""
    while True:
        file = directory.writable(LOCK_FILE, create=True)
        try:
            holder = _lock(file.fd)
            if not holder and _is_in(directory, file.identity):
                return file
        finally:
            del file  # closes it unless it is returned
        if holder:
            raise _locked(directory, holder)


def _lock(fd: int) -> int:
    """Returns 0 if the lock was acquired, else the holder's pid."""
    import fcntl  # here, because Windows has no such module

    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return 0
        except (BlockingIOError, PermissionError):  # POSIX allows both
            if holder := _holder(fd):
                return holder


def _holder(fd: int) -> int:
    """Returns the pid of the lock's holder, 0 if there is none, -1 if it is on another machine or
    in another container."""
    import fcntl

    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, *_, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return 0
    return pid if pid > 0 else -1


def _is_in(directory: WritableDirFd, identity: tuple[int, int]) -> bool:
    try:
        status = directory.stat(LOCK_FILE)
    except SegmentGone:
        return False
    return identity == (status.st_dev, status.st_ino)


def _locked(directory: WritableDirFd, pid: int) -> LogDirLocked:
    if pid == os.getpid():
        who = f"this process ({pid}) has it open for writing already"
    elif pid > 0:
        who = f"process {pid} has it locked, a broker or another engine"
    else:
        who = "a process that the system does not name has it locked, a broker or another engine"
    return LogDirLocked(directory.path, who, pid)
