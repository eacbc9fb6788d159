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
from mmap import ACCESS_READ, mmap

from ..errors import CorruptError, LogDirError, SegmentGone
from . import openat
from .directory import (
    Directory,
    DirectoryEntry,
    FilesByName,
    FileType,
    HeldDirectory,
    ReadableFile,
    read_all,
)
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


class DirFd(Directory):
    """A log directory (constructed from the user's path), or a directory below one (from
    `child`)."""

    __slots__ = ("_parent", "_prefix", "name", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._prefix = os.path.join(self.path, "")
        self.name = ""
        self._parent: DirFd | None = None

    @property
    def is_local(self) -> bool:
        return True

    def child(self, name: str) -> DirFd:
        directory = DirFd(self.path_of(name))
        directory.name = name
        directory._parent = self
        return directory

    @property
    def parent(self) -> DirFd | None:
        return self._parent

    def path_of(self, name: str) -> str:
        if not openat.is_name(name):
            raise ValueError(f"not a name in a directory: {name!r}")
        return self._prefix + name

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        with self._opened() as directory:
            return _list(directory, self.path, wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        with self._opened() as directory:
            return _files(directory, self.path, examined)

    def stat(self, name: str | None = None) -> os.stat_result:
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
                raise translated(error, path, CorruptError) from None
        with self._opened() as directory, located(path, CorruptError):
            return openat.lstat(name, directory)

    def open(self, name: str) -> OpenFile:
        path = self.path_of(name)
        with self._opened() as directory:
            return _open_file(name, directory, path)

    def hold(self, parent: HeldDirectory | None = None) -> OpenDirFd:
        if parent is None:
            return OpenDirFd(self, self._open())
        assert isinstance(parent, OpenDirFd)
        try:
            return OpenDirFd(self, openat.open_directory(self.name, parent.opened))
        except OSError as error:
            raise translated(error, self.path, LogDirError) from None

    @contextmanager
    def _opened(self) -> Iterator[OpenedDirectory]:
        directory = self._open()
        try:
            yield directory
        finally:
            openat.close(directory)

    def _open(self) -> OpenedDirectory:
        if self._parent is None:
            try:
                return openat.open_root(self.path)
            except OSError as error:
                raise translated(error, self.path, LogDirError) from None
        parent = self._parent._open()
        try:  # without `located`, because most of the engine's calls come through here
            return openat.open_directory(self.name, parent)
        except OSError as error:
            raise translated(error, self.path, LogDirError) from None
        finally:
            openat.close(parent)

    def __repr__(self) -> str:
        return f"DirFd({self.path!r})"


class OpenDirFd(HeldDirectory):
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
        return self._directory.path_of(name)

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return _list(self.opened, self._directory.path, wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        return _files(self.opened, self._directory.path, examined)

    def stat(self) -> os.stat_result:
        return openat.status_of(self.opened)

    def open(self, name: str) -> OpenFile:
        return _open_file(name, self.opened, self._directory.path_of(name))

    def is_removed(self) -> bool:
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


class OpenFile(ReadableFile):
    """A regular file open for reading. It stays readable after the file is deleted or replaced.

    The descriptor is closed with the last reference, so that a reader is safe when a cache evicts
    the file.
    """

    __slots__ = ("fd",)

    may_shrink = True

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

    def size(self) -> int:
        if _HAS_PREAD:
            return os.lseek(self.fd, 0, os.SEEK_END)  # the file offset is not used
        return os.fstat(self.fd).st_size

    def is_removed(self) -> bool:
        return os.fstat(self.fd).st_nlink == 0

    def next_data(self, position: int) -> int:
        if not _HAS_SEEK_DATA:
            return min(position, self.size())
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size()
            raise translated(error, self.path, CorruptError) from None

    def read(self, position: int, size: int) -> bytes:
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
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            try:
                if _HAS_PREADV:
                    count = os.preadv(self.fd, [view[filled:]], position + filled)
                else:
                    count = self._copy_into(view[filled:], position + filled)
            except OSError as error:
                raise translated(error, self.path, CorruptError) from None
            if count == 0:
                break
            filled += count
        return filled

    def content(self, size: int) -> mmap | bytes:
        return mmap(self.fd, size, access=ACCESS_READ)

    def _pread(self, position: int, size: int) -> bytes:
        try:
            if _HAS_PREAD:
                return os.pread(self.fd, size, position)
            with _seeking:
                os.lseek(self.fd, position, os.SEEK_SET)
                return os.read(self.fd, size)
        except OSError as error:
            raise translated(error, self.path, CorruptError) from None

    def _copy_into(self, view: memoryview, position: int) -> int:
        data = self._pread(position, len(view))
        view[: len(data)] = data
        return len(data)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    def __repr__(self) -> str:
        return f"OpenFile({self.path!r})"


def _list(
    directory: OpenedDirectory, path: str, wants_stat: Callable[[str], bool] | None
) -> list[DirectoryEntry]:
    try:
        with os.scandir(directory) as scan:
            found = [_entry(item, wants_stat) for item in scan]
    except OSError as error:
        raise translated(error, path, LogDirError) from None
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
        raise translated(error, path, LogDirError) from None
    return found, [entry for entry in others if entry is not None]


def read_given(path: str, limit: int) -> bytes:
    """Returns the content of a file outside the log directories that the user named. Raises
    CorruptError if it has more than `limit` bytes or is not a file, SegmentGone if there is none,
    and OSError."""
    with located(path, CorruptError):
        descriptor = openat.open_given(path)
    return read_all(OpenFile(descriptor, path), limit)


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
        raise translated(error, path, CorruptError) from None
    return OpenFile(fd, path)


@contextmanager
def located(path: str, wrong_kind: type[CorruptError | LogDirError]) -> Iterator[None]:
    """Converts an OSError from opening `path` as this module's docstring describes; `wrong_kind` is
    the error for a name of the wrong kind."""
    try:
        yield
    except OSError as error:
        raise translated(error, path, wrong_kind) from None


def translated(
    error: OSError, path: str, wrong_kind: type[CorruptError | LogDirError]
) -> Exception:
    """Returns the exception to raise instead of `error`, which a call for `path` raised, as
    `located` does."""
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
