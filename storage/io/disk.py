"""Read access to the files of a log directory; no other module reads them through `os`.

Everything is opened read-only, without changing or trusting the directory:

- `O_NOFOLLOW` at every step below the log directory, which is walked one name at a time with
  `dir_fd`: no symbolic link can lead out of it. The log directory itself is named by the user and
  may be a link.
- `O_NONBLOCK`, and `fstat` before the first read: a FIFO cannot block, a device is not read.
- `O_NOATIME` where the kernel allows it (owner or root), so that reading leaves no trace on a
  broker's files.

Other systems than Linux lack parts of this; `openat` has the details. Where a call is missing, this
module does without it, and reading has the same results.

A directory is looked up by name each time, because a broker renames it (`-delete`) and may create
it again. `DirFd.hold` keeps a descriptor, for callers that open many files of a directory just
listed; with thousands of partitions, put the result into a `FileCache`.

Errors: a file or directory that does not exist (any more) raises `SegmentGone`; a name of the wrong
kind raises `LogDirError` (directories) or `CorruptError` (files); every other `OSError` propagates
with its `filename` set.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from mmap import ACCESS_READ, mmap
from typing import NamedTuple

from ..errors import CorruptError, LogDirError, SegmentGone
from . import openat
from .openat import OpenedDirectory

# errno values for a name that is gone; network file systems report ESTALE for ENOENT.
_GONE = (errno.ENOENT, errno.ESTALE)
# errno values for the wrong kind: a link (ELOOP), not a directory (ENOTDIR), a socket or a dead
# device (ENXIO, ENODEV).
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV)

# A single read larger than this is first clamped to the file's size, because the kernel is given a
# buffer of the requested size, which may come from a corrupt length field.
_TRUSTED_READ = 1 << 20

_HAS_PREAD = hasattr(os, "pread")
_HAS_PREADV = hasattr(os, "preadv")
_HAS_SEEK_DATA = hasattr(os, "SEEK_DATA")
_seeking = threading.Lock()  # held for each seek and read of a system without pread(): Windows


def absolute_path(path: str) -> str:
    """Returns a path as a process with another working directory needs it."""
    return os.path.abspath(path)


class FileType(StrEnum):
    """The kind of a directory entry, without following links. The value is its name in messages."""

    FILE = "regular file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"

    @classmethod
    def of(cls, mode: int) -> FileType:
        """Returns the kind for `mode`, the `st_mode` of an `lstat`."""
        return _KINDS.get(stat.S_IFMT(mode), cls.DEVICE)


_KINDS = {
    stat.S_IFREG: FileType.FILE,
    stat.S_IFDIR: FileType.DIRECTORY,
    stat.S_IFLNK: FileType.SYMLINK,
    stat.S_IFIFO: FileType.FIFO,
    stat.S_IFSOCK: FileType.SOCKET,
}


class DirectoryEntry(NamedTuple):
    """One name in a directory. `stat` (an `lstat`) is set if the caller of the listing requested
    it, else None. `inode` is the listing's; it distinguishes an entry from its successor of the
    same name."""

    name: str
    kind: FileType
    inode: int
    stat: os.stat_result | None = None

    @property
    def is_dir(self) -> bool:
        return self.kind is FileType.DIRECTORY

    @property
    def is_file(self) -> bool:
        return self.kind is FileType.FILE


# The status of regular files by name, None where none was requested.
FilesByName = dict[str, os.stat_result | None]


class DirFd:
    """A log directory (constructed from the user's path), or a directory below one (from
    `child`)."""

    __slots__ = ("_parent", "_prefix", "name", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._prefix = os.path.join(self.path, "")
        self.name = ""
        self._parent: DirFd | None = None

    def child(self, name: str) -> DirFd:
        """Returns the directory `name` in this one. It is not checked for existence until its first
        use."""
        directory = DirFd(self.path_of(name))
        directory.name = name
        directory._parent = self
        return directory

    @property
    def parent(self) -> DirFd | None:
        """The directory that it was obtained from; None if its own path was given."""
        return self._parent

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine, which locks and writers can exist for."""
        return True

    def path_of(self, name: str) -> str:
        """Returns the path of `name` in this directory, for messages. Raises ValueError if `name`
        is not a single plain name."""
        if not openat.is_name(name):
            raise ValueError(f"not a name in a directory: {name!r}")
        return self._prefix + name

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        """Returns the entries in no particular order, with `stat` set for the names for which
        `wants_stat` returns true.

        Entries that vanish during the listing are left out.
        """
        with self._opened() as directory:
            return _list(directory, self.path, wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        """Returns the regular files by name, and all other entries, the status of each only if its
        name ends in one of `examined`. A faster `list` for a directory with many files."""
        with self._opened() as directory:
            return _files(directory, self.path, examined)

    def stat(self, name: str | None = None) -> os.stat_result:
        """Returns the `lstat` of `name`, or of this directory. A log directory that is itself a
        link is followed."""
        if name is None:
            if self._parent is not None:
                return self._parent._stat(self.name, self.path)
            with located(self.path, LogDirError):
                return os.stat(self.path)
        return self._stat(name, self.path_of(name))

    def _stat(self, name: str, path: str) -> os.stat_result:
        if self._parent is None:
            # One call: the log directory's path is the user's, so only the last step must not be
            # followed.
            try:
                return os.lstat(path)
            except OSError as error:
                raise _translated(error, path, CorruptError) from None
        with self._opened() as directory, located(path, CorruptError):
            return openat.lstat(name, directory)

    def open(self, name: str) -> OpenFile:
        """Opens the regular file `name` for reading."""
        path = self.path_of(name)
        with self._opened() as directory:
            return _open_file(name, directory, path)

    def hold(self, parent: OpenDirFd | None = None) -> OpenDirFd:
        """Opens this directory as it is now; files can be opened in it while the result exists.
        `parent`: the directory that contains this one, if the caller holds it, which is faster."""
        if parent is None:
            return OpenDirFd(self, self._open())
        try:
            return OpenDirFd(self, openat.open_directory(self.name, parent.opened))
        except OSError as error:
            raise _translated(error, self.path, LogDirError) from None

    def read_small(self, name: str, limit: int) -> bytes:
        """Returns the content of `name`. Raises CorruptError if it has more than `limit` bytes."""
        return read_small(self.open(name), limit)

    @contextmanager
    def _opened(self) -> Iterator[OpenedDirectory]:
        directory = self._open()
        try:
            yield directory
        finally:
            openat.close(directory)

    def _open(self) -> OpenedDirectory:
        if self._parent is None:
            with located(self.path, LogDirError):
                return openat.open_root(self.path)
        with self._parent._opened() as parent, located(self.path, LogDirError):
            return openat.open_directory(self.name, parent)

    def __repr__(self) -> str:
        return f"DirFd({self.path!r})"


class OpenDirFd:
    """A directory that is held open: a file in it is opened in one step, not from the log directory
    down.

    It remains the same directory if another one gets its name. Closed with its last reference.
    """

    __slots__ = ("_directory", "opened")

    def __init__(self, directory: DirFd, opened: OpenedDirectory) -> None:
        """Takes ownership of `opened`."""
        self._directory = directory
        self.opened = opened

    def path_of(self, name: str) -> str:
        """Returns a path for messages, as `DirFd.path_of`."""
        return self._directory.path_of(name)

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        """Returns the entries, as `DirFd.list`."""
        return _list(self.opened, self._directory.path, wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        """Returns regular files and other entries, as `DirFd.files`."""
        return _files(self.opened, self._directory.path, examined)

    def stat(self) -> os.stat_result:
        """Returns the status of this directory, whatever has its name now."""
        return openat.status_of(self.opened)

    def open(self, name: str) -> OpenFile:
        """Opens a file, as `DirFd.open`."""
        return _open_file(name, self.opened, self._directory.path_of(name))

    def read_small(self, name: str, limit: int) -> bytes:
        """Returns the content of `name`, as `DirFd.read_small`."""
        return read_small(self.open(name), limit)

    def is_removed(self) -> bool:
        """Returns whether its name no longer exists or belongs to another directory; False if that
        cannot be determined."""
        try:
            now = self._directory.stat()
            held = self.stat()
        except (SegmentGone, LogDirError):
            return True
        except OSError:
            return False
        return (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino)

    def __del__(self, close: Callable[[OpenedDirectory], None] = openat.close) -> None:
        close(self.opened)


class OpenFile:
    """A regular file open for reading. It stays readable after the file is deleted or replaced.

    The descriptor is closed with the last reference, so that a reader is safe when a cache evicts
    the file.
    """

    __slots__ = ("fd", "identity", "path")

    def __init__(self, fd: int, path: str) -> None:
        """Takes ownership of `fd`, even when it raises CorruptError because it is not a regular
        file."""
        self.fd = fd
        self.path = path
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptError(f"a {FileType.of(status.st_mode)}, not a regular file", path)
        self.identity = (status.st_dev, status.st_ino)

    def stat(self) -> os.stat_result:
        return os.fstat(self.fd)

    def holds(self, data: bytes) -> bool:
        """Whether `data` is the file's whole content."""
        return self.size() == len(data) and self.read(0, len(data)) == data

    def size(self) -> int:
        """Returns the current size in bytes."""
        if _HAS_PREAD:
            return os.lseek(self.fd, 0, os.SEEK_END)  # the file offset is not used
        return os.fstat(self.fd).st_size

    def is_removed(self) -> bool:
        """Returns whether the file has no name any more; its disk space is freed when it is
        closed."""
        return os.fstat(self.fd).st_nlink == 0

    def next_data(self, position: int) -> int:
        """Returns the first position at or after `position` that is not in a hole (Linux's
        SEEK_DATA), or the file's size if only a hole follows. The bytes in between read as
        zeros. Where the system does not tell holes from data, nothing is taken for a hole."""
        if not _HAS_SEEK_DATA:
            return min(position, self.size())
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size()
            raise _translated(error, self.path, CorruptError) from None

    def read(self, position: int, size: int) -> bytes:
        """Returns `size` bytes from `position`; fewer only at the end of the file."""
        if size > _TRUSTED_READ:
            size = min(size, max(self.size() - position, 0))
        data = self._pread(position, size)
        if not data or len(data) == size:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := self._pread(position + size - missing, missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        """Fills `buffer` from `position`. Returns the number of bytes read, less than the buffer's
        size only at the end of the file."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            try:
                if _HAS_PREADV:
                    count = os.preadv(self.fd, [view[filled:]], position + filled)
                else:
                    count = self._copy_into(view[filled:], position + filled)
            except OSError as error:
                raise _translated(error, self.path, CorruptError) from None
            if count == 0:
                break
            filled += count
        return filled

    def content(self, size: int) -> mmap | bytes:
        """Returns the first `size` > 0 bytes, for many small accesses in any order. Raises
        ValueError if the file has fewer."""
        return mmap(self.fd, size, access=ACCESS_READ)

    def _pread(self, position: int, size: int) -> bytes:
        try:
            if _HAS_PREAD:
                return os.pread(self.fd, size, position)
            with _seeking:
                os.lseek(self.fd, position, os.SEEK_SET)
                return os.read(self.fd, size)
        except OSError as error:
            raise _translated(error, self.path, CorruptError) from None

    def _copy_into(self, view: memoryview, position: int) -> int:
        data = self._pread(position, len(view))
        view[: len(data)] = data
        return len(data)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    def __repr__(self) -> str:
        return f"OpenFile({self.path!r})"


class NoFile(OpenFile):
    """A stand-in for a regular file whose name belongs to something else, such as a symbolic link
    or a FIFO, which is neither followed nor opened. It has no bytes; `error` describes what is
    there."""

    __slots__ = ("_status", "error")

    def __init__(self, status: os.stat_result, error: CorruptError) -> None:
        """`status`: the `lstat` of the entry."""
        self.fd = -1
        self.path = error.file
        self.identity = (status.st_dev, status.st_ino)
        self.error = error
        self._status = status

    def stat(self) -> os.stat_result:
        return self._status

    def size(self) -> int:
        return 0

    def is_removed(self) -> bool:
        return False

    def next_data(self, position: int) -> int:
        return 0

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        return 0

    def _pread(self, position: int, size: int) -> bytes:
        return b""

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Does nothing: there is no descriptor to close."""


def _list(
    directory: OpenedDirectory, path: str, wants_stat: Callable[[str], bool] | None
) -> list[DirectoryEntry]:
    try:
        with os.scandir(directory) as scan:
            found = [_entry(item, wants_stat) for item in scan]
    except OSError as error:
        raise _translated(error, path, LogDirError) from None
    return [entry for entry in found if entry is not None]


def _files(
    directory: OpenedDirectory, path: str, examined: tuple[str, ...]
) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
    found: FilesByName = {}
    others: list[DirectoryEntry | None] = []
    try:
        with os.scandir(directory) as scan:
            for item in scan:
                name = item.name
                try:
                    if not item.is_file(follow_symlinks=False):
                        others.append(_entry(item, lambda name: name.endswith(examined)))
                    elif name.endswith(examined):
                        found[name] = item.stat(follow_symlinks=False)
                    else:
                        found[name] = None
                except FileNotFoundError:  # it vanished after the directory was read
                    continue
    except OSError as error:
        raise _translated(error, path, LogDirError) from None
    return found, [entry for entry in others if entry is not None]


def read_given(path: str, limit: int) -> bytes:
    """Returns the content of a file outside the log directories that the user named. Raises
    CorruptError if it has more than `limit` bytes or is not a file, SegmentGone if there is none,
    and OSError."""
    with located(path, CorruptError):
        descriptor = openat.open_given(path)
    return read_small(OpenFile(descriptor, path), limit)


def read_small(file: OpenFile, limit: int) -> bytes:
    data = file.read(0, limit + 1)
    if len(data) > limit:
        raise CorruptError(f"larger than {limit} bytes, the limit for this file", file.path)
    return data


def _entry(
    item: os.DirEntry[str], wants_stat: Callable[[str], bool] | None
) -> DirectoryEntry | None:
    """Returns None if the name vanished after the directory was read."""
    try:
        status = None
        if wants_stat is not None and wants_stat(item.name):
            status = item.stat(follow_symlinks=False)
            kind = FileType.of(status.st_mode)
        elif item.is_file(follow_symlinks=False):  # from the listing, no system call
            kind = FileType.FILE
        elif item.is_dir(follow_symlinks=False):
            kind = FileType.DIRECTORY
        else:
            kind = FileType.of(item.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
    return DirectoryEntry(item.name, kind, item.inode(), status)


def _open_file(name: str, directory: OpenedDirectory, path: str) -> OpenFile:
    try:
        fd = openat.open_file(name, directory)
    except OSError as error:
        raise _translated(error, path, CorruptError) from None
    return OpenFile(fd, path)


@contextmanager
def located(path: str, wrong_kind: type[CorruptError | LogDirError]) -> Iterator[None]:
    """Converts an OSError from opening `path` as this module's docstring describes; `wrong_kind` is
    the error for a name of the wrong kind."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path, wrong_kind) from None


def _translated(
    error: OSError, path: str, wrong_kind: type[CorruptError | LogDirError]
) -> Exception:
    """Returns the exception to raise instead of `error`, which a call for `path` raised."""
    if error.errno in _GONE:
        return SegmentGone(path)
    if error.errno in _WRONG_KIND:
        if wrong_kind is LogDirError:
            return LogDirError(path, f"a {_kind_at(path)}, not a directory")
        return CorruptError(f"a {_kind_at(path)}, not a regular file", path)
    error.filename = path
    return error


def _kind_at(path: str) -> str:
    """Describes what is at `path`, for a message; it may be changing."""
    try:
        status = os.lstat(path)
        return FileType.SYMLINK if openat.is_link(status) else FileType.of(status.st_mode)
    except OSError:
        return "file that is being replaced"
