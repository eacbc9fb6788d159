"""What can be read of directories and files, wherever they are.

A log directory is a local one (`disk.py`), or it is inside an archive or on a server
(`storage/io/remote/`). All code that only reads takes these classes, and gets the first of them
from `opening.open_directory`.

Errors are the same everywhere: a file or directory that does not exist (any more) raises
`SegmentGone`; a name of the wrong kind raises `LogDirError` (directories) or `CorruptError`
(files); every other failure is an `OSError` with its `filename` set.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from mmap import mmap
from typing import ClassVar, NamedTuple

from ..errors import CorruptError
from . import openat


class FileType(StrEnum):
    """The kind of a directory entry, without following links. The value is its name in messages."""

    FILE = "regular file"
    DIRECTORY = "directory"
    SYMLINK = "symbolic link"
    FIFO = "FIFO"
    SOCKET = "socket"
    DEVICE = "device"
    MALFORMED = "malformed entry"  # of a listing that no file system could have

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


class ReadableFile(ABC):
    """A regular file open for reading. It stays the same file, or its reads raise an error, if the
    file is deleted or replaced.

    ``path`` is for messages. ``identity`` is (device, inode); another file of the same name has
    another one.
    """

    __slots__ = ("identity", "path")

    #: Whether a broker may truncate the file while it is read.
    may_shrink: ClassVar[bool] = False

    path: str
    identity: tuple[int, int]

    @abstractmethod
    def stat(self) -> os.stat_result: ...

    @abstractmethod
    def size(self) -> int:
        """Returns the current size in bytes."""

    @abstractmethod
    def is_removed(self) -> bool:
        """Returns whether the file has no name any more; its disk space is freed when it is
        closed."""

    @abstractmethod
    def next_data(self, position: int) -> int:
        """Returns the first position at or after `position` that is not in a hole, or the file's
        size if only a hole follows. The bytes in between read as zeros. Where holes cannot be told
        from data, nothing is taken for a hole."""

    @abstractmethod
    def read(self, position: int, size: int) -> bytes:
        """Returns `size` bytes from `position`; fewer only at the end of the file."""

    @abstractmethod
    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        """Fills `buffer` from `position`. Returns the number of bytes read, less than the buffer's
        size only at the end of the file."""

    @abstractmethod
    def content(self, size: int) -> mmap | bytes:
        """Returns the first `size` > 0 bytes, for many small accesses in any order. Raises
        ValueError if the file has fewer."""

    def error_between(self, start: int, end: int) -> CorruptError | None:
        """Returns why bytes in [`start`, `end`) could not be read, None if they could: a file that
        is assembled from others may lack some of them."""
        return None

    def holds(self, data: bytes) -> bool:
        """Whether `data` is the file's whole content."""
        return self.size() == len(data) and self.read(0, len(data)) == data


class HeldDirectory(ABC):
    """A directory as it is now: it remains the same one if another gets its name. A file in it is
    opened in one step, not from the log directory down."""

    __slots__ = ()

    @abstractmethod
    def path_of(self, name: str) -> str:
        """Returns a path for messages, as `Directory.path_of`."""

    @abstractmethod
    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        """Returns the entries, as `Directory.list`."""

    @abstractmethod
    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        """Returns regular files and other entries, as `Directory.files`."""

    @abstractmethod
    def stat(self) -> os.stat_result:
        """Returns the status of this directory, whatever has its name now."""

    @abstractmethod
    def open(self, name: str) -> ReadableFile:
        """Opens a file, as `Directory.open`."""

    @abstractmethod
    def is_removed(self) -> bool:
        """Returns whether its name no longer exists or belongs to another directory; False if that
        cannot be determined."""

    def read_small(self, name: str, limit: int) -> bytes:
        """Returns the content of `name`, as `Directory.read_small`."""
        return read_all(self.open(name), limit)


class Directory(ABC):
    """A log directory, or a directory below one (from `child`). `path` is for messages and names it
    in other processes; `name` is "" unless it is from `child`."""

    __slots__ = ()

    path: str
    name: str

    @property
    @abstractmethod
    def parent(self) -> Directory | None:
        """The directory that it was obtained from; None if its own path was given."""

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine, which locks and writers can exist for."""
        return False

    @property
    def problems(self) -> Sequence[str]:
        """What is malformed in how it is listed, a line each."""
        return ()

    @property
    def may_have_gaps(self) -> bool:
        """Whether a partition's log may lack offsets although it is not compacted: its broker gives
        them to batches of its own, which are not in the directory."""
        return False

    def is_remote(self, name: str) -> bool:
        """Returns whether the file `name` is in remote storage (KIP-405)."""
        return False

    def has_indexes(self, name: str) -> bool:
        """Returns whether a `.log` has indexes. The end of a segment in remote storage has none,
        because the positions in those of the whole segment would be wrong."""
        return True

    def latest_remote_offset(self) -> int:
        """Returns the last offset of a partition that remote storage has, -1 if it has none."""
        return -1

    @abstractmethod
    def child(self, name: str) -> Directory:
        """Returns the directory `name` in this one. It is not checked for existence until its first
        use."""

    def path_of(self, name: str) -> str:
        """Returns the path of `name` in this directory, for messages. Raises ValueError if `name`
        is not a single plain name."""
        if not openat.is_name(name):
            raise ValueError(f"not a name in a directory: {name!r}")
        return f"{self.path}/{name}"

    @abstractmethod
    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        """Returns the entries in no particular order, with `stat` set for the names for which
        `wants_stat` returns true.

        Entries that vanish during the listing are left out.
        """

    @abstractmethod
    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        """Returns the regular files by name, and all other entries, the status of each only if its
        name ends in one of `examined`. A faster `list` for a directory with many files."""

    @abstractmethod
    def stat(self, name: str | None = None) -> os.stat_result:
        """Returns the `lstat` of `name`, or of this directory. A log directory that is itself a
        link is followed."""

    @abstractmethod
    def open(self, name: str) -> ReadableFile:
        """Opens the regular file `name` for reading."""

    @abstractmethod
    def hold(self, parent: HeldDirectory | None = None) -> HeldDirectory:
        """Opens this directory as it is now; files can be opened in it while the result exists.
        `parent`: the directory that contains this one, if the caller holds it, which is faster."""

    def read_small(self, name: str, limit: int) -> bytes:
        """Returns the content of `name`. Raises CorruptError if it has more than `limit` bytes."""
        return read_all(self.open(name), limit)


class NoFile(ReadableFile):
    """A stand-in for a regular file whose name belongs to something else, such as a symbolic link
    or a FIFO, which is neither followed nor opened. It has no bytes; `error` describes what is
    there."""

    __slots__ = ("_status", "error")

    def __init__(self, status: os.stat_result, error: CorruptError) -> None:
        """`status`: the `lstat` of the entry."""
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

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        return 0

    def content(self, size: int) -> bytes:
        raise ValueError(f"{self.path}: has no bytes")


def read_all(file: ReadableFile, limit: int) -> bytes:
    """Returns the content of a file. Raises CorruptError if it has more than `limit` bytes."""
    data = file.read(0, limit + 1)
    if len(data) > limit:
        raise CorruptError(f"larger than {limit} bytes, the limit for this file", file.path)
    return data
