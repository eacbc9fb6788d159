"""The only caller of `os` for the files of a log directory.

Everything is opened for reading alone, in a way that neither changes nor trusts the directory:

- `O_NOFOLLOW` at every step below the log directory, which is opened by `dir_fd` one name at a
  time: a symbolic link cannot lead out of it. The log directory itself is named by the user and may
  be a link.
- `O_NONBLOCK`, and `fstat` before the first read: a FIFO cannot hang it, a device is not read.
- `O_NOATIME` where the kernel allows it (owner or root), so that reading a broker's files leaves no
  trace.

A directory is found by its name each time, since a broker renames one (`-delete`) and makes it
anew. `Directory.hold` keeps a descriptor, for who opens many files of what it has just listed;
there are thousands of partitions, so it belongs into a `FileCache`.

Errors: what is not there, any more or at all, is `SegmentGone`; a name that is not the kind of
thing it must be is `LogDirError` (directories) or `CorruptError` (files); every other `OSError`
passes with its `filename` set.
"""

from __future__ import annotations

import errno
import os
import resource
import stat
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from .errors import CorruptError, LogDirError, SegmentGone

_READ = os.O_RDONLY | os.O_CLOEXEC
_FILE = _READ | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = _READ | os.O_DIRECTORY

# What opening says of a name that has gone: ESTALE is how a network file system says ENOENT.
_GONE = (errno.ENOENT, errno.ESTALE)
# ... and of one that is a link (ELOOP), no directory (ENOTDIR), a socket or a dead device (ENXIO,
# ENODEV).
_WRONG_KIND = (errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV)

# A single read larger than this is first clamped to the file's size, because the kernel is handed a
# buffer of the size asked for, and that may come from a length field that lies.
_TRUSTED_READ = 1 << 20

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kind(StrEnum):
    """What a name in a directory is, without following links. The value is its name in messages."""

    FILE = "regular file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"

    @classmethod
    def of(cls, mode: int) -> Kind:
        """The kind in `mode`, the `st_mode` of an `lstat`."""
        return _KINDS.get(stat.S_IFMT(mode), cls.DEVICE)


_KINDS = {
    stat.S_IFREG: Kind.FILE,
    stat.S_IFDIR: Kind.DIRECTORY,
    stat.S_IFLNK: Kind.SYMLINK,
    stat.S_IFIFO: Kind.FIFO,
    stat.S_IFSOCK: Kind.SOCKET,
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. `stat` (an `lstat`) is there where the listing was asked for it,
    else None. `inode` is the listing's; it tells a thing from its successor of the same name."""

    name: str
    kind: Kind
    inode: int
    stat: os.stat_result | None = None

    @property
    def is_dir(self) -> bool:
        return self.kind is Kind.DIRECTORY

    @property
    def is_file(self) -> bool:
        return self.kind is Kind.FILE


class Directory:
    """A log directory (made from the user's path), or a directory below one (made by `child`)."""

    __slots__ = ("_parent", "name", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.name = ""
        self._parent: Directory | None = None

    def child(self, name: str) -> Directory:
        """The directory `name` in this one. Whether it exists shows at the first use."""
        directory = Directory(self.path_of(name))
        directory.name = name
        directory._parent = self
        return directory

    def path_of(self, name: str) -> str:
        """The path of `name` in this directory, for messages. ValueError when `name` is not one
        plain name."""
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise ValueError(f"not a name in a directory: {name!r}")
        return os.path.join(self.path, name)

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[Entry]:
        """The entries in no order, with `stat` for the names that `wants_stat` answers true for.

        What vanishes while it is listed is left out.
        """
        with self._opened() as fd, located(self.path, LogDirError), os.scandir(fd) as scan:
            found = [_entry(item, wants_stat) for item in scan]
        return [entry for entry in found if entry is not None]

    def files(self, *sized: str) -> tuple[dict[str, int], Sequence[Entry]]:
        """The regular files by name, with the bytes in those whose names end in one of `sized` and
        -1 for the others; and all that is no regular file. As `list`, for a directory of many
        files."""
        found: dict[str, int] = {}
        others: list[Entry | None] = []
        with self._opened() as fd, located(self.path, LogDirError), os.scandir(fd) as scan:
            for item in scan:
                name = item.name
                try:
                    if not item.is_file(follow_symlinks=False):
                        others.append(_entry(item, None))
                    elif name.endswith(sized):
                        found[name] = item.stat(follow_symlinks=False).st_size
                    else:
                        found[name] = -1
                except FileNotFoundError:  # it has gone since the directory was read
                    continue
        return found, [entry for entry in others if entry is not None]

    def stat(self, name: str | None = None) -> os.stat_result:
        """`lstat` of `name`, or of this directory. A log directory itself may be a link and is
        followed."""
        if name is None:
            if self._parent is not None:
                return self._parent._stat(self.name, self.path)
            with located(self.path, LogDirError):
                return os.stat(self.path)
        return self._stat(name, self.path_of(name))

    def _stat(self, name: str, path: str) -> os.stat_result:
        if self._parent is None:
            # One call: the log directory's own path is the user's, so only the last step must not
            # be followed.
            try:
                return os.lstat(path)
            except OSError as error:
                raise _translated(error, path, CorruptError) from None
        with self._opened() as fd, located(path, CorruptError):
            return os.stat(name, dir_fd=fd, follow_symlinks=False)

    def open(self, name: str) -> OpenFile:
        """The regular file `name`, open for reading."""
        path = self.path_of(name)
        with self._opened() as directory:
            return _open_file(name, directory, path)

    def hold(self) -> HeldDirectory:
        """This directory as it is now, to open files in for as long as the result lives."""
        return HeldDirectory(self, self._open())

    def read_small(self, name: str, limit: int) -> bytes:
        """The whole of `name`. CorruptError when it holds more than `limit` bytes."""
        file = self.open(name)
        data = file.read(0, limit + 1)
        if len(data) > limit:
            raise CorruptError(f"more than {limit} bytes, too many for such a file", file.path)
        return data

    @contextmanager
    def _opened(self) -> Iterator[int]:
        fd = self._open()
        try:
            yield fd
        finally:
            os.close(fd)

    def _open(self) -> int:
        if self._parent is None:
            with located(self.path, LogDirError):
                return _open(self.path, _DIRECTORY, None)
        with self._parent._opened() as parent, located(self.path, LogDirError):
            return _open(self.name, _DIRECTORY | os.O_NOFOLLOW, parent)

    def __repr__(self) -> str:
        return f"Directory({self.path!r})"


class HeldDirectory:
    """A directory held open: a file in it is opened in one step, not from the log directory down.

    It stays the same directory when its name goes to another. Closed with its last reference.
    """

    __slots__ = ("_directory", "_fd")

    def __init__(self, directory: Directory, fd: int) -> None:
        """Takes over `fd`."""
        self._directory = directory
        self._fd = fd

    def open(self, name: str) -> OpenFile:
        """As `Directory.open`."""
        return _open_file(name, self._fd, self._directory.path_of(name))

    def is_removed(self) -> bool:
        """Whether its name is gone, or is another directory's by now. False where that cannot be
        found out."""
        held = os.fstat(self._fd)
        try:
            now = self._directory.stat()
        except (SegmentGone, LogDirError):
            return True
        except OSError:
            return False
        return (held.st_dev, held.st_ino) != (now.st_dev, now.st_ino)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)


class OpenFile:
    """A regular file open for reading. It stays readable after the file was deleted or replaced.

    The descriptor is closed when the last reference goes, so that whoever is still reading is safe
    from a cache that forgets the file.
    """

    __slots__ = ("fd", "identity", "path")

    def __init__(self, fd: int, path: str) -> None:
        """Takes over `fd`, also when it raises CorruptError because that is no regular file."""
        self.fd = fd
        self.path = path
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptError(f"a {Kind.of(status.st_mode)}, not a regular file", path)
        self.identity = (status.st_dev, status.st_ino)

    def stat(self) -> os.stat_result:
        return os.fstat(self.fd)

    def size(self) -> int:
        """Bytes in the file now."""
        return os.lseek(self.fd, 0, os.SEEK_END)  # where its offset is, nobody asks

    def is_removed(self) -> bool:
        """Whether it has no name any more: what it takes of the disk is free when it is closed."""
        return os.fstat(self.fd).st_nlink == 0

    def next_data(self, position: int) -> int:
        """The first position from `position` on that is not in a hole (Linux's SEEK_DATA); the
        file's size when only a hole follows. What lies between reads as zeros."""
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size()
            raise _translated(error, self.path, CorruptError) from None

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position`; fewer only where the file ends."""
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
        """Fills `buffer` from `position`. The number of bytes read is less only where the file
        ends."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            try:
                count = os.preadv(self.fd, [view[filled:]], position + filled)
            except OSError as error:
                raise _translated(error, self.path, CorruptError) from None
            if count == 0:
                break
            filled += count
        return filled

    def _pread(self, position: int, size: int) -> bytes:
        try:
            return os.pread(self.fd, size, position)
        except OSError as error:
            raise _translated(error, self.path, CorruptError) from None

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)

    def __repr__(self) -> str:
        return f"OpenFile({self.path!r})"


class NoFile(OpenFile):
    """Stands for a regular file where something else has its name, such as a symbolic link or a
    FIFO, which is neither followed nor opened. It has no bytes; `error` says what is there."""

    __slots__ = ("_status", "error")

    def __init__(self, status: os.stat_result, error: CorruptError) -> None:
        """`status`: `lstat` of what is there."""
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
        """There is nothing to be closed."""


class FileCache(Generic[K, V]):
    """The values used last, at most `capacity` of them: open files, indexes, whatever costs
    descriptors.

    Forgetting a value only drops the reference to it. Any thread may call; two that want the same
    absent value at once may both open it, and the later one stays.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[K, V] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # guards _values; never held while opening

    def get(self, key: K, open_value: Callable[[], V]) -> V:
        """The value of `key`, not None, from `open_value` when it is not here."""
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
                return known
        value = open_value()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            # Forgotten values are destroyed after the lock is released: a destructor may take its
            # time.
            forgotten = [self._values.popitem(last=False)[1] for _ in range(self._surplus())]
        del forgotten
        return value

    def drop(self, key: K) -> None:
        """Forgets `key`, if it is here."""
        with self._lock:
            value = self._values.pop(key, None)
        del value

    def drop_where(self, condition: Callable[[K], bool]) -> None:
        """Forgets the keys that `condition` answers true for."""
        with self._lock:
            keys = [key for key in self._values if condition(key)]
            forgotten = [self._values.pop(key) for key in keys]
        del forgotten

    def drop_values(self, condition: Callable[[V], bool]) -> None:
        """Forgets the values that `condition` answers true for; the others can be had meanwhile."""
        with self._lock:
            items = list(self._values.items())
        wanted = [(key, value) for key, value in items if condition(value)]
        with self._lock:
            for key, value in wanted:
                if self._values.get(key) is value:
                    del self._values[key]

    def __len__(self) -> int:
        return len(self._values)

    def _surplus(self) -> int:
        return max(len(self._values) - self._capacity, 0)


def most_open_files() -> int:
    """How many files, and indexes of two descriptors each, the process may well keep open: most of
    the rest is left to others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 3, 1) if soft != resource.RLIM_INFINITY else sys.maxsize


def _entry(item: os.DirEntry[str], wants_stat: Callable[[str], bool] | None) -> Entry | None:
    """None when the name has gone since the directory was read."""
    try:
        status = None
        if wants_stat is not None and wants_stat(item.name):
            status = item.stat(follow_symlinks=False)
            kind = Kind.of(status.st_mode)
        elif item.is_file(follow_symlinks=False):  # from the listing itself, no further call
            kind = Kind.FILE
        elif item.is_dir(follow_symlinks=False):
            kind = Kind.DIRECTORY
        else:
            kind = Kind.of(item.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None
    return Entry(item.name, kind, item.inode(), status)


def _open(name: str, flags: int, directory: int | None) -> int:
    """`os.open` without touching the access time, where we may ask for that."""
    try:
        return os.open(name, flags | os.O_NOATIME, dir_fd=directory)
    except PermissionError as error:
        if error.errno != errno.EPERM:  # only EPERM means "not the owner"; EACCES would come back
            raise
        return os.open(name, flags, dir_fd=directory)


def _open_file(name: str, directory: int, path: str) -> OpenFile:
    try:
        fd = _open(name, _FILE, directory)
    except OSError as error:
        raise _translated(error, path, CorruptError) from None
    return OpenFile(fd, path)


@contextmanager
def located(path: str, wrong_kind: type[CorruptError | LogDirError]) -> Iterator[None]:
    """Raises what this module promises for an OSError of opening `path`, of which `wrong_kind` says
    what it has to be."""
    try:
        yield
    except OSError as error:
        raise _translated(error, path, wrong_kind) from None


def _translated(
    error: OSError, path: str, wrong_kind: type[CorruptError | LogDirError]
) -> Exception:
    """What to raise instead of `error`, which a call for `path` gave."""
    if error.errno in _GONE:
        return SegmentGone(path)
    if error.errno in _WRONG_KIND:
        if wrong_kind is LogDirError:
            return LogDirError(path, f"a {_kind_at(path)}, not a directory")
        return CorruptError(f"a {_kind_at(path)}, not a regular file", path)
    error.filename = path
    return error


def _kind_at(path: str) -> str:
    """What is at `path`, for a message; it may be changing while we look."""
    try:
        return Kind.of(os.lstat(path).st_mode)
    except OSError:
        return "changing thing"
