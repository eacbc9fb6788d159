"""Files and directories that are assembled from parts that lie elsewhere.

Readers use them as they use files and directories of a disk. An assembled file is never written to
by anybody, so it cannot become shorter (`ReadableFile.may_shrink`).
"""

from __future__ import annotations

import os
import stat
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from ..errors import CorruptError, SegmentGone
from .directory import (
    Directory,
    DirectoryEntry,
    FilesByName,
    FileType,
    HeldDirectory,
    ReadableFile,
)

_BLOCK: Final = 512  # the unit of st_blocks


def made_status(
    mode: int,
    identity: tuple[int, int],
    size: int,
    mtime_ns: int,
    owner: tuple[int, int] = (0, 0),
) -> os.stat_result:
    """Returns the `lstat` of something without an inode, as in an archive. `mode`: its kind and
    permissions; `identity`: device and inode; `mtime_ns`: also the time of the last access and
    change, in ns since 1970; `owner`: user and group."""
    device, inode = identity
    seconds = mtime_ns // 1_000_000_000
    fields = (mode, inode, device, 1, *owner, size, seconds, seconds, seconds)
    exact = {f"st_{kind}time_ns": mtime_ns for kind in "amc"}
    floats = {f"st_{kind}time": mtime_ns / 1e9 for kind in "amc"}
    return os.stat_result(fields, exact | floats | {"st_blocks": -(-size // _BLOCK)})


def file_status(identity: tuple[int, int], size: int, mtime_ns: int) -> os.stat_result:
    """Returns the status of a regular file that can only be read."""
    return made_status(stat.S_IFREG | 0o444, identity, size, mtime_ns)


def directory_status(identity: tuple[int, int], size: int, mtime_ns: int) -> os.stat_result:
    """Returns the status of a directory that can only be read."""
    return made_status(stat.S_IFDIR | 0o555, identity, size, mtime_ns)


class AssembledFile(ReadableFile):
    """A file without a descriptor of its own."""

    __slots__ = ("_status",)

    def __init__(self, path: str, status: os.stat_result) -> None:
        """`status`: with the size of what `pread` returns."""
        self.path = path
        self.identity = (status.st_dev, status.st_ino)
        self._status = status

    @abstractmethod
    def pread(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes from `position`, none only at the end. Raises CorruptError
        or OSError."""

    def read(self, position: int, size: int) -> bytes:
        missing = max(min(size, self.size() - position), 0)
        parts = []
        while missing and (data := self.pread(position, missing)):
            parts.append(data)
            position += len(data)
            missing -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def stat(self) -> os.stat_result:
        return self._status

    def size(self) -> int:
        return self._status.st_size

    def is_removed(self) -> bool:
        return False

    def next_data(self, position: int) -> int:
        return min(position, self.size())

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(position, len(view))
        view[: len(data)] = data
        return len(data)

    def content(self, size: int) -> bytes:
        if size > self.size():
            raise ValueError(f"{self.path}: shorter than {size} bytes")
        return self.read(0, size)


class FileOfBytes(AssembledFile):
    """A file whose content is in memory."""

    __slots__ = ("_data",)

    def __init__(self, path: str, data: bytes, identity: tuple[int, int], mtime_ns: int) -> None:
        super().__init__(path, file_status(identity, len(data), mtime_ns))
        self._data = data

    def pread(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]


class FilePart(AssembledFile):
    """Bytes [`start`, `start` + size) of another file."""

    __slots__ = ("_file", "_start")

    def __init__(self, file: ReadableFile, start: int, status: os.stat_result) -> None:
        super().__init__(file.path, status)
        self._file = file
        self._start = start

    def pread(self, position: int, size: int) -> bytes:
        return self._file.read(self._start + position, size)

    def error_between(self, start: int, end: int) -> CorruptError | None:
        return self._file.error_between(self._start + start, self._start + end)


class AssembledDirectory(Directory):
    """A directory whose listing, status and files come from `hold`. It has no directories unless a
    subclass has."""

    __slots__ = ("_parent", "name", "path")

    def __init__(self, path: str, name: str = "", parent: Directory | None = None) -> None:
        self.path = path
        self.name = name
        self._parent = parent

    @property
    def parent(self) -> Directory | None:
        return self._parent

    def child(self, name: str) -> Directory:
        raise SegmentGone(self.path_of(name))

    @abstractmethod
    def hold(self, parent: HeldDirectory | None = None) -> AssembledListing: ...

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return self.hold().list(wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        return self.hold().files(*examined)

    def stat(self, name: str | None = None) -> os.stat_result:
        held = self.hold()
        return held.stat() if name is None else held.status_of(name)

    def open(self, name: str) -> ReadableFile:
        return self.hold().open(name)

    def read_small(self, name: str, limit: int) -> bytes:
        return self.hold().read_small(name, limit)


class AssembledListing(HeldDirectory):
    """What an assembled directory has at one moment."""

    __slots__ = ("_directory",)

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def path_of(self, name: str) -> str:
        return self._directory.path_of(name)

    @abstractmethod
    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        """Returns all entries, some with their status where that is wanted."""

    @abstractmethod
    def status_of(self, name: str) -> os.stat_result:
        """Returns the status of `name`. Raises as `Directory.stat`."""

    @abstractmethod
    def stat(self) -> os.stat_result: ...

    @abstractmethod
    def open(self, name: str) -> ReadableFile: ...

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        found = []
        for entry in self.entries(wants_stat):
            if wants_stat is not None and entry.stat is None and wants_stat(entry.name):
                try:
                    entry = entry._replace(stat=self.status_of(entry.name))
                except SegmentGone:
                    continue
            found.append(entry)
        return found

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        regular: FilesByName = {}
        others: list[DirectoryEntry] = []
        for entry in self.list(lambda name: name.endswith(examined)):
            if entry.kind is FileType.FILE:
                regular[entry.name] = entry.stat if entry.name.endswith(examined) else None
            else:
                others.append(entry)
        return regular, others

    def is_removed(self) -> bool:
        return False
