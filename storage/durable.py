"""Changing a log directory: the only caller of `os` for that, as `disk` is for reading.

Every system call that changes something goes through the module's current `Calls`, so that tests
can record them, or let any one of them fail.

Nothing here is durable until it is synced: a file's content by `WritableFile.sync`, a name that
came, went or changed by `WritableDirectory.sync` of the directory that it is in. What does more,
says so. No symbolic link below the log directory is followed.

Errors: every `OSError` passes with its `filename` set, a name that has gone as FileNotFoundError. A
failed fsync is `SyncFailed`, which is an OSError, too: what the kernel could not write it may have
thrown away, so that a second fsync would succeed and mean nothing. A name that is not the kind of
thing it must be is CorruptError or LogDirError, as in `disk`.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from .disk import Directory, OpenFile, located
from .errors import CorruptError, LogDirError, SegmentGone

Buffer = bytes | bytearray | memoryview

_FILE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# As Java makes them; the process's umask takes from it.
_FILE_MODE = 0o666
_DIRECTORY_MODE = 0o777

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")
# A partition's directory has no directories in it. Each level costs a descriptor.
_MAX_DEPTH = 32

TEMPORARY_SUFFIX = ".tmp"

# sync_file_range(2), which Python does not have, nor every C library; SYNC_FILE_RANGE_WRITE.
_BEGIN_SYNC = getattr(ctypes.CDLL(None), "sync_file_range", None)
_SYNC_WRITE = 2


class SyncFailed(OSError):
    """An fsync failed: what is on the disk is not known. Nothing may go on as if it had worked."""


class Calls:
    """The system calls, one method each. `directory` is the descriptor that a name is relative to;
    None is only for the path of the log directory itself."""

    def open(self, name: str, flags: int, mode: int = 0, directory: int | None = None) -> int:
        return os.open(name, flags, mode, dir_fd=directory)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers, position)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, old: str, new: str, directory: int) -> None:
        os.rename(old, new, src_dir_fd=directory, dst_dir_fd=directory)

    def move(self, name: str, source: int, target: int) -> None:
        os.rename(name, name, src_dir_fd=source, dst_dir_fd=target)

    def link(self, old: str, source: int, new: str, target: int) -> None:
        os.link(old, new, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)

    def unlink(self, name: str, directory: int) -> None:
        os.unlink(name, dir_fd=directory)

    def mkdir(self, name: str, mode: int, directory: int | None) -> None:
        os.mkdir(name, mode, dir_fd=directory)

    def rmdir(self, name: str, directory: int) -> None:
        os.rmdir(name, dir_fd=directory)

    def utime(self, fd: int, mtime_ns: int) -> None:
        os.utime(fd, ns=(mtime_ns, mtime_ns))


_calls = Calls()


@contextmanager
def replaced(calls: Calls) -> Iterator[None]:
    """Lets every thread make its system calls by `calls` for the time being."""
    global _calls
    before, _calls = _calls, calls
    try:
        yield
    finally:
        _calls = before


class WritableDirectory(Directory):
    """A log directory or one below it, to change. Any thread may call."""

    __slots__ = ()

    def child(self, name: str) -> WritableDirectory:
        directory = WritableDirectory(self.path_of(name))
        directory.name = name
        directory._parent = self
        return directory

    def create(self, name: str) -> WritableFile:
        """The file `name`, empty. What an old one of that name held is gone."""
        file = self.writable(name, create=True)
        if file.size():
            file.truncate(0)
        return file

    def writable(self, name: str, create: bool = False) -> WritableFile:
        """The regular file `name`, open for reading and writing. Unless `create`, it must exist."""
        flags = _FILE | os.O_CREAT if create else _FILE
        path = self.path_of(name)
        with self._changing(name) as directory, located(path, CorruptError):
            fd = _calls.open(name, flags, _FILE_MODE, directory)
        return WritableFile(fd, path)

    def write_atomically(self, name: str, data: bytes) -> None:
        """Makes `data` the content of `name`, durably: at every moment, also of a power cut, the
        file is the old or the new one. `NAME.tmp` is in use for it, and stays when it fails."""
        temporary = name + TEMPORARY_SUFFIX
        file = self.create(temporary)
        file.write(0, data)
        file.sync()
        self.rename(temporary, name)
        self.sync()

    def write_in_place(self, name: str, data: bytes) -> None:
        """Makes `data` the content of `name`, durably but for the name itself. Stopped in the
        middle, the file is empty or torn."""
        file = self.create(name)
        file.write(0, data)
        file.sync()

    def rename(self, old: str, new: str) -> None:
        """Gives `old` the name `new`, at once; another thing of that name is gone."""
        self.path_of(new)
        with self._changing(old) as directory:
            _calls.rename(old, new, directory)

    def take(self, name: str, source: WritableDirectory) -> None:
        """Moves the file `name` here, at once; another one of that name is gone. OSError (EXDEV)
        when `source` is on another file system."""
        self.path_of(name)
        with source._changing(name) as its, self._changing(name) as ours:
            _calls.move(name, its, ours)

    def link(self, new: str, source: WritableDirectory, old: str) -> None:
        """Lets the file `old` of `source` have the name `new` here, too. FileExistsError; OSError
        where that cannot be: EXDEV on another file system, EPERM for somebody else's file."""
        self.path_of(new)
        with source._changing(old) as its, self._changing(new) as ours:
            _calls.link(old, its, new, ours)

    def is_ours_alone(self, name: str) -> bool:
        """Whether a file is as if made by this process: this user's, and nowhere by another
        name."""
        found = self.stat(name)
        return found.st_nlink == 1 and found.st_uid == os.geteuid()

    def rename_child(self, old: str, new: str) -> None:
        """Gives the directory `old` the name `new`, durably. OSError when `new` exists and is not
        an empty directory."""
        self.rename(old, new)
        self.sync()

    def remove(self, name: str, missing_ok: bool = False) -> None:
        """Removes the file (or link) `name`."""
        try:
            with self._changing(name) as directory:
                _calls.unlink(name, directory)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def make(self, name: str) -> WritableDirectory:
        """A new directory `name`. FileExistsError when there is one."""
        with self._changing(name) as directory:
            _calls.mkdir(name, _DIRECTORY_MODE, directory)
        return self.child(name)

    def make_itself(self) -> None:
        """Makes the log directory, and those above it, durably where they do not exist yet."""
        with _named(self.path):
            _make_path(os.path.abspath(self.path))

    def remove_directory(self, name: str) -> None:
        """Removes the directory `name` and all that is in it. LogDirError when it is none, or is
        nested deeper than any that Kafka writes."""
        self._remove_directory(name, _MAX_DEPTH)

    def _remove_directory(self, name: str, depth: int) -> None:
        child = self.child(name)
        if depth == 0:
            raise LogDirError(child.path, f"directories nested more than {_MAX_DEPTH} deep")
        with _gone_as_os_error():
            entries = child.list()
        for entry in entries:
            if entry.is_dir:
                child._remove_directory(entry.name, depth - 1)
            else:
                child.remove(entry.name, missing_ok=True)
        with self._changing(name) as directory:
            _calls.rmdir(name, directory)

    def sync(self) -> None:
        """Makes durable which names are in the directory."""
        with self._changing(None) as directory:
            _sync(directory, self.path)

    @contextmanager
    def _changing(self, name: str | None) -> Iterator[int]:
        """A descriptor of the directory, for a call about `name` in it."""
        path = self.path if name is None else self.path_of(name)
        with _gone_as_os_error(), self._opened() as directory, _named(path):
            yield directory

    def _open(self) -> int:
        if self._parent is None:
            with located(self.path, LogDirError):
                return _calls.open(self.path, _DIRECTORY)
        with self._parent._opened() as parent, located(self.path, LogDirError):
            return _calls.open(self.name, _DIRECTORY | os.O_NOFOLLOW, directory=parent)


class WritableFile(OpenFile):
    """A regular file open for reading and writing. It stays so after the name was taken from it."""

    __slots__ = ()

    def write(self, position: int, *buffers: Buffer) -> None:
        """Writes the buffers one after the other from byte `position` on, all of them or, when it
        raises OSError, nobody knows how many bytes of them."""
        with _named(self.path):
            written = _calls.pwritev(self.fd, buffers[:_MAX_BUFFERS], position)
            if written < sum(memoryview(buffer).nbytes for buffer in buffers):
                self._write_rest(position, buffers, written)

    def write_pieces(self, pieces: Iterable[tuple[int, Buffer]]) -> None:
        """Writes many small pieces, each at its position; as `write`."""
        pwritev, fd = _calls.pwritev, self.fd
        with _named(self.path):
            for position, piece in pieces:
                written = pwritev(fd, (piece,), position)
                if written < len(piece):
                    self._write_rest(position, (piece,), written)

    def _write_rest(self, position: int, buffers: Sequence[Buffer], done: int) -> None:
        """Goes on after the first `done` bytes of `buffers`."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            skipped = min(done, len(view))
            done -= skipped
            position += skipped
            view = view[skipped:]
            while view:
                count = _calls.pwritev(self.fd, [view], position)
                if count == 0:  # no file system does that; it must not become an endless loop
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                position += count
                view = view[count:]

    def truncate(self, size: int) -> None:
        """Makes the file `size` bytes long; what is added reads as zeros and takes no room."""
        with _named(self.path):
            _calls.ftruncate(self.fd, size)

    def begin_sync(self, position: int, size: int) -> None:
        """Lets the kernel begin to write these bytes to the disk, that `sync` finds less to do; it
        promises nothing."""
        if _BEGIN_SYNC is not None:
            _BEGIN_SYNC(self.fd, ctypes.c_int64(position), ctypes.c_int64(size), _SYNC_WRITE)

    def sync(self) -> None:
        """Makes the content and the size durable. SyncFailed when that is not certain."""
        _sync(self.fd, self.path)

    def set_mtime_ns(self, mtime_ns: int) -> None:
        """Sets the time of the last change, in nanoseconds since 1970."""
        with _named(self.path):
            _calls.utime(self.fd, mtime_ns)


def _make_path(path: str) -> None:
    above = os.path.dirname(path)
    try:
        _calls.mkdir(path, _DIRECTORY_MODE, None)
    except FileExistsError:
        return
    except FileNotFoundError:
        if os.path.isdir(above):  # as in /proc: there are none to be made
            raise
        _make_path(above)
        _make_path(path)
        return
    WritableDirectory(above).sync()


def _sync(fd: int, path: str) -> None:
    try:
        _calls.fsync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from None


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Puts `path` into an OSError that comes out of it."""
    try:
        yield
    except OSError as error:
        error.filename = path
        if error.filename2 is not None:
            del error.filename2  # None would be told as a name
        raise


@contextmanager
def _gone_as_os_error() -> Iterator[None]:
    """A reader looks again when a file has gone; for a writer it is an error like others."""
    try:
        yield
    except SegmentGone as gone:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), gone.file) from None
