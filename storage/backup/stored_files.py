"""A log directory of a point in time, read in place like one on the disk.

Nothing in it ever changes. A file is put together from the pieces of its objects, which are opened
when they are first read. Only their sizes are checked here; `kafkafs backup verify` checks that
their bytes are those that were written.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from ..errors import CorruptError, LogDirError, SegmentGone
from ..format.checksum import crc32c
from ..io.directory import (
    Directory,
    DirectoryEntry,
    FilesByName,
    FileType,
    HeldDirectory,
    ReadableFile,
)
from ..io.disk import OpenFile
from ..io.file_cache import FileCache
from .manifest import Piece, Point, StoredFile, StoredLogDir
from .repository import Repository

_OPEN_OBJECTS: Final = 64
_DIRECTORY_INODE: Final = 1
_READ_MODE: Final = 0o444


class PointFiles:
    """What all files of a log directory of a point share: the open objects, and identities that no
    file of another one has."""

    def __init__(self, repository: Repository, point: Point, number: int) -> None:
        """`number`: that of the log directory in the point, from 0 on. Raises LogDirError if there
        is none."""
        if number >= len(point.log_dirs):
            path = f"{repository.manifest_path(point.time_ms)}/{number}"
            raise LogDirError(path, "this point in time has no such log directory")
        self.log_dir: StoredLogDir = point.log_dirs[number]
        self._repository, self._objects = repository, point.objects
        self._open: FileCache[str, OpenFile] = FileCache(_OPEN_OBJECTS)
        name = f"{repository.id}/{point.time_ms}/{number}".encode()
        self.device = 1 << 62 | crc32c(name) << 20
        self.time_ns = point.time_ms * 1_000_000
        self.inodes: dict[str, int] = {}
        self.directories: dict[str, dict[str, StoredFile]] = {"": {}}
        for file in self.log_dir.files:
            above, _, below = file.path.rpartition("/")
            self.directories.setdefault(above, {})[below] = file
            self.inodes[file.path] = _DIRECTORY_INODE + 1 + len(self.inodes)
        for name_above in self.directories:
            self.inodes[name_above] = self.inodes.get(name_above, len(self.inodes) + 2)

    def object(self, name: str) -> OpenFile:
        """Returns an object, opened. Raises CorruptError if it is missing or has another size."""
        stored = self._objects[name]
        return self._open.get(name, lambda: self._repository.open_object(stored))

    def status(self, kind: int, inode: int, size: int, mtime_ns: int) -> os.stat_result:
        """Returns the `lstat` of a file or directory of this log directory."""
        log_dir = self.log_dir
        mode = log_dir.mode if kind == stat.S_IFDIR else _READ_MODE
        seconds = mtime_ns // 1_000_000_000
        fields = (kind | mode, inode, self.device, 1, log_dir.uid, log_dir.gid, size)
        exact: dict[str, Any] = {f"st_{name}_ns": mtime_ns for name in ("atime", "mtime", "ctime")}
        return os.stat_result((*fields, seconds, seconds, seconds), exact)


class PointDirectory(Directory):
    """A log directory of a point in time, or the directory of a partition in it."""

    __slots__ = ("_content", "_files", "_parent", "name", "path")

    def __init__(self, path: str, files: PointFiles) -> None:
        self.path = path
        self.name = ""
        self._parent: PointDirectory | None = None
        self._files = files
        self._content: Mapping[str, StoredFile] | None = files.directories[""]

    @property
    def parent(self) -> PointDirectory | None:
        return self._parent

    def child(self, name: str) -> PointDirectory:
        directory = PointDirectory(self.path_of(name), self._files)
        directory.name = name
        directory._parent = self
        is_root = self._parent is None
        directory._content = self._files.directories.get(name) if is_root else None
        return directory

    def _here(self) -> Mapping[str, StoredFile]:
        if self._content is None:
            raise SegmentGone(self.path)
        return self._content

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return [
            entry._replace(stat=self.stat(entry.name))
            if wants_stat is not None and wants_stat(entry.name)
            else entry
            for entry in self._entries()
        ]

    def _entries(self) -> Iterator[DirectoryEntry]:
        inodes = self._files.inodes
        for name, file in self._here().items():
            yield DirectoryEntry(name, FileType.FILE, inodes[file.path])
        for name in self._below():
            yield DirectoryEntry(name, FileType.DIRECTORY, inodes[name])

    def _below(self) -> Iterable[str]:
        return filter(None, self._files.directories) if self._parent is None else ()

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        found = {
            name: self.stat(name) if name.endswith(examined) else None for name in self._here()
        }
        return found, [entry for entry in self._entries() if entry.is_dir]

    def stat(self, name: str | None = None) -> os.stat_result:
        content, files = self._here(), self._files
        if name is None:
            inode = files.inodes[self.name]
            return files.status(stat.S_IFDIR, inode, 0, files.time_ns)
        path = self.path_of(name)
        if name in content:
            file = content[name]
            return files.status(stat.S_IFREG, files.inodes[file.path], file.size, file.mtime_ns)
        if name in self._below():
            return files.status(stat.S_IFDIR, files.inodes[name], 0, files.time_ns)
        raise SegmentGone(path)

    def open(self, name: str) -> PointFile:
        path, content = self.path_of(name), self._here()
        if name in self._below():
            raise CorruptError(f"a {FileType.DIRECTORY}, not a regular file", path)
        if name not in content:
            raise SegmentGone(path)
        return PointFile(self._files, content[name], path)

    def hold(self, parent: HeldDirectory | None = None) -> HeldPointDirectory:
        self._here()
        return HeldPointDirectory(self)

    def __repr__(self) -> str:
        return f"PointDirectory({self.path!r})"


class HeldPointDirectory(HeldDirectory):
    """A directory of a point, which stays as it is anyway."""

    __slots__ = ("_point",)

    def __init__(self, directory: PointDirectory) -> None:
        self._point = directory

    def path_of(self, name: str) -> str:
        return self._point.path_of(name)

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return self._point.list(wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        return self._point.files(*examined)

    def stat(self) -> os.stat_result:
        return self._point.stat()

    def open(self, name: str) -> PointFile:
        return self._point.open(name)

    def is_removed(self) -> bool:
        return False


class PointFile(ReadableFile):
    """A file of a point, read from the pieces of its objects."""

    __slots__ = ("_ends", "_file", "_files")

    def __init__(self, files: PointFiles, file: StoredFile, path: str) -> None:
        self.path = path
        self.identity = (files.device, files.inodes[file.path])
        self._files, self._file = files, file
        self._ends = list(accumulate(piece.size for piece in file.pieces))

    def stat(self) -> os.stat_result:
        file = self._file
        return self._files.status(stat.S_IFREG, self.identity[1], file.size, file.mtime_ns)

    def size(self) -> int:
        return self._file.size

    def is_removed(self) -> bool:
        return False

    def next_data(self, position: int) -> int:
        return min(position, self._file.size)

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        for piece, start, size in self._within(position, len(view)):
            target = view[filled : filled + size]
            got = self._files.object(piece.object).read_into(piece.position + start, target)
            if got < size:
                raise self._cut(piece)
            filled += size
        return filled

    def read(self, position: int, size: int) -> bytes:
        parts = []
        for piece, start, count in self._within(position, size):
            parts.append(self._files.object(piece.object).read(piece.position + start, count))
            if len(parts[-1]) < count:
                raise self._cut(piece)
        return b"".join(parts)

    def content(self, size: int) -> bytes:
        if size > self._file.size:
            raise ValueError(f"{self.path}: has only {self._file.size} bytes")
        return self.read(0, size)

    def _within(self, position: int, size: int) -> Iterator[tuple[Piece, int, int]]:
        """Yields the pieces with bytes of a range of the file: of each, where in it they begin, and
        how many they are."""
        number = bisect_right(self._ends, position)
        while size > 0 and number < len(self._ends):
            piece = self._file.pieces[number]
            start = position - (self._ends[number] - piece.size)
            count = min(size, piece.size - start)
            yield piece, start, count
            position, size, number = position + count, size - count, number + 1

    def _cut(self, piece: Piece) -> CorruptError:
        return CorruptError("an object of the backup has become shorter", piece.object)

    def __repr__(self) -> str:
        return f"PointFile({self.path!r})"
