"""Write access to a log directory; no other module changes it through `os` (`disk` is for reading).

Every system call that changes something is made by the module's current `Calls`, so that tests can
record calls or make any of them fail.

Nothing is durable until it is synced: a file's content by `WritableFile.sync`; a created, removed
or renamed name by `WritableDirFd.sync` of its directory. Methods that guarantee more say so. No
symbolic link below the log directory is followed.

Errors: every `OSError` propagates with its `filename` set; a name that does not exist is
FileNotFoundError. A failed fsync is `SyncFailed`, a subclass of OSError: the kernel may have
dropped the pages it could not write, so a second fsync would succeed without meaning anything. A
name of the wrong kind is CorruptError or LogDirError, as in `disk`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, cast

from ..errors import CorruptError, LogDirError, SegmentGone, StorageError, fresh
from . import openat
from .directory import ReadableFile
from .disk import DirFd, OpenFile, located, translated

Buffer = bytes | bytearray | memoryview

# Elsewhere the lock has another form, fsync() does not reach the disk (macOS), or the calls below
# do not exist (Windows).
_CAN_WRITE = sys.platform == "linux"

if _CAN_WRITE:
    _FILE = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    _DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
# As Java creates them; the process's umask applies.
_FILE_MODE = 0o666
_DIRECTORY_MODE = 0o777

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX") if _CAN_WRITE else 0
# A partition's directory contains no directories. Each level costs a descriptor.
_MAX_DEPTH = 32

TEMPORARY_SUFFIX = ".tmp"

# sync_file_range(2), which Python lacks, as do some C libraries; SYNC_FILE_RANGE_WRITE.
_BEGIN_SYNC: Callable[..., int] | None = (
    getattr(ctypes.CDLL(None), "sync_file_range", None) if _CAN_WRITE else None
)
_SYNC_WRITE = 2

# fallocate(2) with FALLOC_FL_KEEP_SIZE; Python's posix_fallocate would lengthen the file.
_FALLOCATE: Callable[..., int] | None = (
    getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None) if _CAN_WRITE else None
)
_KEEP_SIZE = 1
_CANNOT_RESERVE = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR)

# Another file system; one without links, or too many; or the kernel's protected_hardlinks.
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP)

# ioctl(2) with FICLONE, which Python names only since 3.12.
_CLONE = 0x40049409
_CANNOT_CLONE = (
    *(errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.EPERM),
    errno.EACCES,
)
_COPIED = 1 << 20  # bytes at a time


class SyncFailed(OSError):
    """An fsync failed: the state of the disk is unknown. Callers must not continue as if it had
    worked."""


class FileOwner(NamedTuple):
    """The ids of the user and of the group that own a file."""

    user: int
    group: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileOwner:
        return cls(status.st_uid, status.st_gid)

    def __str__(self) -> str:
        """As chown(1) takes them."""
        return f"{self.user}:{self.group}"


class Calls:
    """The system calls, one method each. `directory` is the descriptor that a name is relative to;
    None only for the path of the log directory itself."""

    def open(self, name: str, flags: int, mode: int = 0, directory: int | None = None) -> int:
        return os.open(name, flags, mode, dir_fd=directory)

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        return os.pwritev(fd, buffers, position)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def fallocate(self, fd: int, position: int, size: int) -> None:
        """Reserves space for bytes of a file, whose size stays as it is."""
        if _FALLOCATE is None:
            return
        if _FALLOCATE(fd, _KEEP_SIZE, ctypes.c_int64(position), ctypes.c_int64(size)):
            number = ctypes.get_errno()
            if number not in _CANNOT_RESERVE:
                raise OSError(number, os.strerror(number))

    def clone(self, fd: int, source: int) -> bool:
        """Makes a file share the blocks of another one. Returns False if the file system cannot."""
        import fcntl  # here, because Windows has no such module

        try:
            fcntl.ioctl(fd, _CLONE, source)
        except OSError as error:
            if error.errno not in _CANNOT_CLONE:
                raise
            return False
        return True

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

    def chown(self, name: str, user: int, group: int, directory: int) -> None:
        os.chown(name, user, group, dir_fd=directory, follow_symlinks=False)


_calls = Calls()


@contextmanager
def replaced(calls: Calls) -> Iterator[None]:
    """Makes all threads use `calls` for their system calls within the block."""
    global _calls
    before, _calls = _calls, calls
    try:
        yield
    finally:
        _calls = before


class WritableDirFd(DirFd):
    """A log directory or one below it, for writing. Thread-safe."""

    __slots__ = ()

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises LogDirError except on Linux, the only system where writing is durable."""
        super().__init__(path)
        if not _CAN_WRITE:
            raise LogDirError(self.path, "can be changed only on Linux; on this system, only read")

    def child(self, name: str) -> WritableDirFd:
        directory = WritableDirFd(self.path_of(name))
        directory.name = name
        directory._parent = self
        return directory

    def create(self, name: str) -> WritableFile:
        """Opens the file `name`, empty; truncates it if it exists."""
        file = self.writable(name, create=True)
        if file.size():
            file.truncate(0)
        return file

    def writable(self, name: str, create: bool = False) -> WritableFile:
        """Opens the regular file `name` for reading and writing. Unless `create`, it must exist."""
        flags = _FILE | os.O_CREAT if create else _FILE
        path = self.path_of(name)
        with self._changing(name) as directory, located(path, CorruptError):
            fd = _calls.open(name, flags, _FILE_MODE, directory)
        return WritableFile(fd, path)

    def write_atomically(self, name: str, data: bytes, *, concurrently: bool = False) -> None:
        """Replaces the content of `name` by `data`, durably: at every moment, including a power
        failure, the file is the old or the new one. Uses `NAME.tmp`, which remains if the call
        fails. With `concurrently`, several calls may do so at the same time: each uses a temporary
        file of its own, whose name begins with a dot, and removes it if it fails, since no later
        call would replace it."""
        if not concurrently:
            self._write_and_rename(name + TEMPORARY_SUFFIX, name, data)
            return
        own = f".{name}.{os.getpid()}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
        try:
            self._write_and_rename(own, name, data)
        except BaseException:
            with suppress(OSError, StorageError):
                self.remove(own, missing_ok=True)
            raise

    def _write_and_rename(self, temporary: str, name: str, data: bytes) -> None:
        file = self.create(temporary)
        file.write(0, data)
        file.sync()
        self.rename(temporary, name)
        self.sync()

    def write_in_place(self, name: str, data: bytes) -> None:
        """Replaces the content of `name` by `data`; the content is durable, the name itself is not.
        If interrupted, the file is empty or torn."""
        file = self.create(name)
        file.write(0, data)
        file.sync()

    def rename(self, old: str, new: str) -> None:
        """Renames `old` to `new` atomically, replacing any entry of that name."""
        self.path_of(new)
        with self._changing(old) as directory:
            _calls.rename(old, new, directory)

    def take(self, name: str, source: WritableDirFd) -> None:
        """Moves the file `name` here atomically, replacing any file of that name. Raises OSError
        (EXDEV) if `source` is on another file system."""
        self.path_of(name)
        with source._changing(name) as its, self._changing(name) as ours:
            _calls.move(name, its, ours)

    def link(self, new: str, source: WritableDirFd, old: str) -> bool:
        """Makes `new` a hard link here to the file `old` of `source`. Returns False if that is
        impossible: on another file system, or for another user's file. Raises FileExistsError."""
        self.path_of(new)
        with source._changing(old) as its, self._changing(new) as ours:
            try:
                _calls.link(old, its, new, ours)
            except OSError as error:
                if error.errno not in _CANNOT_LINK:
                    raise
                return False
        return True

    def is_ours_alone(self, name: str) -> bool:
        """Returns whether a file belongs to this user and has no other hard link."""
        found = self.stat(name)
        return found.st_nlink == 1 and found.st_uid == os.geteuid()

    def rename_child(self, old: str, new: str) -> None:
        """Renames the directory `old` to `new`, durably. Raises OSError if `new` exists and is not
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

    def make(self, name: str, mode: int = _DIRECTORY_MODE) -> WritableDirFd:
        """Creates the directory `name`, with the permissions that `mode` and the process's umask
        allow. Raises FileExistsError if the name exists."""
        with self._changing(name) as directory:
            _calls.mkdir(name, mode, directory)
        return self.child(name)

    def make_itself(self) -> None:
        """Creates the log directory and its missing parents, durably."""
        with _named(self.path):
            _make_path(os.path.abspath(self.path))

    def give_to(self, owner: FileOwner) -> None:
        """Makes a user and a group own the directory and all that is in it, except files that have
        other hard links, too. Raises PermissionError if this process may not, and LogDirError as
        `remove_directory` does."""
        self._give_to(owner, _MAX_DEPTH)

    def _give_to(self, owner: FileOwner, depth: int) -> None:
        if depth == 0:
            raise LogDirError(self.path, f"directories nested more than {_MAX_DEPTH} deep")
        with _gone_as_os_error():
            entries = self.list()
        for entry in entries:
            if entry.is_dir:
                self.child(entry.name)._give_to(owner, depth - 1)
            elif self.stat(entry.name).st_nlink == 1:
                self._chown(entry.name, owner)
        self._chown(".", owner)

    def _chown(self, name: str, owner: FileOwner) -> None:
        with self._changing(None if name == "." else name) as directory:
            _calls.chown(name, owner.user, owner.group, directory)

    def remove_directory(self, name: str) -> None:
        """Removes the directory `name` and its contents. Raises LogDirError if it is not a
        directory, or is nested deeper than any that Kafka writes."""
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
        """Makes the names in the directory durable."""
        with self._changing(None) as directory:
            _sync(directory, self.path)

    @contextmanager
    def _changing(self, name: str | None) -> Iterator[int]:
        """Yields a descriptor of the directory, for a call about `name` in it."""
        path = self.path if name is None else self.path_of(name)
        try:  # all in one, because every change comes through here
            directory = self._open()
            try:
                yield directory
            except OSError as error:
                _name(error, path)
                raise
            finally:
                openat.close(directory)
        except SegmentGone as gone:
            raise _as_os_error(gone) from None

    def _open(self) -> int:
        if self._parent is None:
            try:
                return _calls.open(self.path, _DIRECTORY)
            except OSError as error:
                raise translated(error, self.path, LogDirError) from None
        parent = cast(int, self._parent._open())
        try:
            return _calls.open(self.name, _DIRECTORY | os.O_NOFOLLOW, directory=parent)
        except OSError as error:
            raise translated(error, self.path, LogDirError) from None
        finally:
            openat.close(parent)


class WritableFile(OpenFile):
    """A regular file open for reading and writing, even after its name was removed."""

    __slots__ = ()

    def write(self, position: int, *buffers: Buffer) -> None:
        """Writes the buffers consecutively from byte `position` on. If it raises OSError, the
        number of bytes written is unknown."""
        with _named(self.path):
            written = _calls.pwritev(self.fd, buffers[:_MAX_BUFFERS], position)
            if written < sum(memoryview(buffer).nbytes for buffer in buffers):
                self._write_rest(position, buffers, written)

    def write_pieces(self, pieces: Iterable[tuple[int, Buffer]]) -> None:
        """Writes many small pieces, each at its own position; otherwise as `write`."""
        pwritev, fd = _calls.pwritev, self.fd
        with _named(self.path):
            for position, piece in pieces:
                written = pwritev(fd, (piece,), position)
                if written < len(piece):
                    self._write_rest(position, (piece,), written)

    def _write_rest(self, position: int, buffers: Sequence[Buffer], done: int) -> None:
        """Continues after the first `done` bytes of `buffers`."""
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            skipped = min(done, len(view))
            done -= skipped
            position += skipped
            view = view[skipped:]
            while view:
                count = _calls.pwritev(self.fd, [view], position)
                if count == 0:  # no file system does that; avoids an endless loop
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                position += count
                view = view[count:]

    def copy_from(self, source: ReadableFile, size: int) -> None:
        """Makes the first `size` bytes of another file the content of this one, which is empty.
        Shares the blocks where the file system can; holes stay holes. Raises CorruptError if part
        of it cannot be read."""
        with _named(self.path):
            is_clone = (
                isinstance(source, OpenFile)
                and size == source.size()
                and _calls.clone(self.fd, source.fd)
            )
        position = size if is_clone else source.next_data(0)
        while position < size:
            data = source.read(position, min(_COPIED, size - position))
            if not data:
                break
            if (error := source.error_between(position, position + len(data))) is not None:
                raise fresh(error)
            if data.strip(b"\0"):
                self.write(position, data)
            position = source.next_data(position + len(data))
        if self.size() != size:
            self.truncate(size)

    def truncate(self, size: int) -> None:
        """Sets the file's size to `size` bytes; an added part reads as zeros and occupies no disk
        space."""
        with _named(self.path):
            _calls.ftruncate(self.fd, size)

    def reserve(self, position: int, size: int) -> None:
        """Reserves disk space for these bytes, so that writing them will not fail for lack of it;
        does nothing if the file system cannot. Raises OSError if there is none."""
        with _named(self.path):
            _calls.fallocate(self.fd, position, size)

    def bypass_cache(self, on: bool) -> bool:
        """Makes writes go past the page cache, or no longer. They must be of whole pages then, at
        positions and in memory. Returns whether they do: a file system may refuse."""
        import fcntl  # here, because Windows has no such module

        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL) & ~os.O_DIRECT
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETFL, flags | (os.O_DIRECT if on else 0))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return on

    def begin_sync(self, position: int, size: int) -> None:
        """Asks the kernel to start writing these bytes to the disk, so that `sync` has less to do;
        guarantees nothing."""
        if _BEGIN_SYNC is not None:
            _BEGIN_SYNC(self.fd, ctypes.c_int64(position), ctypes.c_int64(size), _SYNC_WRITE)

    def sync(self) -> None:
        """Makes content and size durable. Raises SyncFailed if that is not certain."""
        _sync(self.fd, self.path)

    def set_mtime_ns(self, mtime_ns: int) -> None:
        """Sets the modification time, in nanoseconds since 1970."""
        with _named(self.path):
            _calls.utime(self.fd, mtime_ns)


def write_in_one_of(directories: Iterable[WritableDirFd], name: str, data: bytes) -> None:
    """Replaces the content of `name` atomically in the first directory that can be written. Raises
    OSError if none can be; SyncFailed if it is unknown whether one was."""
    failure = OSError(errno.EIO, "no log directory is online", name)
    for directory in directories:
        try:
            directory.write_atomically(name, data)
        except OSError as error:
            if not isinstance(failure, SyncFailed):  # an unknown outcome takes precedence
                failure = error
        else:
            return
    try:
        raise failure
    finally:
        del failure  # else it and this frame would form a cycle


def _make_path(path: str) -> None:
    above = os.path.dirname(path)
    try:
        _calls.mkdir(path, _DIRECTORY_MODE, None)
    except FileExistsError:
        if os.path.islink(path) and not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, "a symbolic link to nothing", path) from None
        return
    except FileNotFoundError:
        if os.path.isdir(above):  # as in /proc, where none can be created
            raise
        _make_path(above)
        _make_path(path)
        return
    WritableDirFd(above).sync()


def _sync(fd: int, path: str) -> None:
    try:
        _calls.fsync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from None


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Sets `path` as the filename of an OSError raised in the block."""
    try:
        yield
    except OSError as error:
        _name(error, path)
        raise


def _name(error: OSError, path: str) -> None:
    error.filename = path
    if error.filename2 is not None:
        del error.filename2  # None would be printed as a name


@contextmanager
def _gone_as_os_error() -> Iterator[None]:
    """Converts SegmentGone to FileNotFoundError: a reader retries when a file vanished; for a
    writer that is an ordinary error."""
    try:
        yield
    except SegmentGone as gone:
        raise _as_os_error(gone) from None


def _as_os_error(gone: SegmentGone) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), gone.file)
