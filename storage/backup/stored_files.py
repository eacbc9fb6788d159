"""A log directory of a point in time, read in place like one on the disk.

Nothing in it ever changes. A file is put together from the pieces of its objects, which are opened
when they are first read. Only their sizes are checked here; `kafkafs backup verify` checks that
their bytes are those that were written.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from ..errors import CorruptError, LogDirError, SegmentGone
from ..format.checksum import crc32c
from ..io.assembled import AssembledDirectory, AssembledFile, AssembledListing, made_status
from ..io.directory import DirectoryEntry, FileType, HeldDirectory, ReadableFile
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
        self._log_dir: StoredLogDir = point.log_dirs[number]
        self._repository, self._objects = repository, point.objects
        self._open: FileCache[str, ReadableFile] = FileCache(_OPEN_OBJECTS)
        name = f"{repository.id}/{point.time_ms}/{number}".encode()
        self._device = 1 << 62 | crc32c(name) << 20
        self._time_ns = point.time_ms * 1_000_000
        #: Of files by their paths, and of directories by their names.
        self.inodes: dict[str, int] = {}
        self.directories: dict[str, dict[str, StoredFile]] = {"": {}}
        for file in self._log_dir.files:
            above, _, below = file.path.rpartition("/")
            self.directories.setdefault(above, {})[below] = file
            self.inodes[file.path] = _DIRECTORY_INODE + 1 + len(self.inodes)
        for name_above in self.directories:
            self.inodes[name_above] = self.inodes.get(name_above, len(self.inodes) + 2)

    def object(self, name: str) -> ReadableFile:
        """Returns an object, opened. Raises CorruptError if it is missing or has another size."""
        stored = self._objects[name]
        return self._open.get(name, lambda: self._repository.open_object(stored))

    def status_of_file(self, file: StoredFile) -> os.stat_result:
        identity = (self._device, self.inodes[file.path])
        return self._status(stat.S_IFREG | _READ_MODE, identity, file.size, file.mtime_ns)

    def status_of_directory(self, name: str) -> os.stat_result:
        identity = (self._device, self.inodes[name])
        return self._status(stat.S_IFDIR | self._log_dir.mode, identity, 0, self._time_ns)

    def _status(
        self, mode: int, identity: tuple[int, int], size: int, mtime_ns: int
    ) -> os.stat_result:
        owner = (self._log_dir.uid, self._log_dir.gid)
        return made_status(mode, identity, size, mtime_ns, owner)


class PointDirectory(AssembledDirectory):
    """A log directory of a point in time, or the directory of a partition in it."""

    __slots__ = ("_files",)

    def __init__(
        self, path: str, files: PointFiles, name: str = "", parent: PointDirectory | None = None
    ) -> None:
        super().__init__(path, name, parent)
        self._files = files

    def child(self, name: str) -> PointDirectory:
        return PointDirectory(self.path_of(name), self._files, name, self)

    def hold(self, parent: HeldDirectory | None = None) -> PointListing:
        is_above = self._parent is None or self._parent.parent is None
        content = self._files.directories.get(self.name) if is_above else None
        if content is None:
            raise SegmentGone(self.path)
        return PointListing(self, self._files, content)

    def __repr__(self) -> str:
        return f"PointDirectory({self.path!r})"


class PointListing(AssembledListing):
    """What a directory of a point has."""

    __slots__ = ("_below", "_content", "_files")

    def __init__(
        self, directory: PointDirectory, files: PointFiles, content: Mapping[str, StoredFile]
    ) -> None:
        super().__init__(directory)
        self._files, self._content = files, content
        self._below = [] if directory.name else [name for name in files.directories if name]

    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        inodes = self._files.inodes
        files = (
            DirectoryEntry(name, FileType.FILE, inodes[file.path])
            for name, file in self._content.items()
        )
        below = (DirectoryEntry(name, FileType.DIRECTORY, inodes[name]) for name in self._below)
        return [*files, *below]

    def status_of(self, name: str) -> os.stat_result:
        path = self.path_of(name)
        if name in self._content:
            return self._files.status_of_file(self._content[name])
        if name in self._below:
            return self._files.status_of_directory(name)
        raise SegmentGone(path)

    def stat(self) -> os.stat_result:
        return self._files.status_of_directory(self._directory.name)

    def open(self, name: str) -> PointFile:
        path = self.path_of(name)
        if name in self._below:
            raise CorruptError(f"a {FileType.DIRECTORY}, not a regular file", path)
        if name not in self._content:
            raise SegmentGone(path)
        return PointFile(self._files, self._content[name], path)


class PointFile(AssembledFile):
    """A file of a point, read from the pieces of its objects."""

    __slots__ = ("_ends", "_file", "_files")

    def __init__(self, files: PointFiles, file: StoredFile, path: str) -> None:
        super().__init__(path, files.status_of_file(file))
        self._files, self._file = files, file
        self._ends = list(accumulate(piece.size for piece in file.pieces))

    def pread(self, position: int, size: int) -> bytes:
        for piece, start, count in self._within(position, size):
            try:
                data = self._files.object(piece.object).read(piece.position + start, count)
            except SegmentGone as gone:
                raise _missing(gone) from None
            if len(data) < count:
                raise _cut(piece)
            return data
        return b""

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        for piece, start, count in self._within(position, len(view)):
            target = view[filled : filled + count]
            try:
                got = self._files.object(piece.object).read_into(piece.position + start, target)
            except SegmentGone as gone:
                raise _missing(gone) from None
            if got < count:
                raise _cut(piece)
            filled += count
        return filled

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

    def __repr__(self) -> str:
        return f"PointFile({self.path!r})"


def _cut(piece: Piece) -> CorruptError:
    return CorruptError("an object of the backup has become shorter", piece.object)


def _missing(gone: SegmentGone) -> CorruptError:
    """Returns what to raise for an object that a server no longer has, although it was listed."""
    what = "an object that a manifest lists is missing, or another one by now"
    return CorruptError(what, gone.file)
