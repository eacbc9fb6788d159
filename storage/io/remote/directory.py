"""Directories and files of a source (`source.py`)."""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import chain, islice
from os import stat_result

from ...errors import CorruptError, LogDirError, SegmentGone
from ..directory import (
    Directory,
    DirectoryEntry,
    FilesByName,
    FileType,
    HeldDirectory,
    ReadableFile,
)
from .source import SnapshotNode, Source

# How much is read ahead of a reader in order: so many times what it has read, up to a limit that
# keeps all threads of `block_source.py` busy: a server limits the speed of each connection.
_AHEAD_FACTOR = 16
_MOST_AHEAD = 64 << 20
# Of small segments, so many that follow are read ahead.
_FILES_AHEAD = 32
# Of so many readers it is remembered that they finished a segment.
_READERS = 64


class RemoteDirectory(Directory):
    """A directory at `parts` below the root of a source."""

    __slots__ = ("_parent", "_parts", "_source", "name", "path")

    def __init__(self, source: Source, parts: Sequence[str] = ()) -> None:
        self._source = source
        self._parts = tuple(parts)
        self._parent: RemoteDirectory | None = None
        self.path = "/".join((source.location, *self._parts))
        self.name = ""

    @property
    def parent(self) -> RemoteDirectory | None:
        return self._parent

    @property
    def problems(self) -> Sequence[str]:
        return self._source.snapshot().problems

    def child(self, name: str) -> RemoteDirectory:
        self.path_of(name)
        directory = RemoteDirectory(self._source, (*self._parts, name))
        directory.name = name
        directory._parent = self
        return directory

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        return self.hold().list(wants_stat)

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        return self.hold().files(*examined)

    def stat(self, name: str | None = None) -> stat_result:
        node = self._node()
        if name is None:
            return node.status
        path = self.path_of(name)
        found = node.get((name,))
        if found is None:
            raise SegmentGone(path)
        return found.status

    def open(self, name: str) -> RemoteFile:
        return self.hold().open(name)

    def hold(self, parent: HeldDirectory | None = None) -> HeldRemoteDirectory:
        node = self._node()
        if node.children is None:
            raise LogDirError(self.path, f"a {node.kind}, not a directory")
        if node.forbidden:
            raise PermissionError(errno.EACCES, node.forbidden, self.path)
        return HeldRemoteDirectory(self, node, self._source)

    def _node(self) -> SnapshotNode:
        node = self._source.snapshot().root.get(self._parts)
        if node is None:
            raise SegmentGone(self.path)
        return node

    def __repr__(self) -> str:
        return f"RemoteDirectory({self.path!r})"


class HeldRemoteDirectory(HeldDirectory):
    """A directory as it was listed."""

    __slots__ = ("_directory", "_node", "_source")

    def __init__(self, directory: RemoteDirectory, node: SnapshotNode, source: Source) -> None:
        self._directory = directory
        self._node = node
        self._source = source

    def path_of(self, name: str) -> str:
        return self._directory.path_of(name)

    def list(self, wants_stat: Callable[[str], bool] | None = None) -> list[DirectoryEntry]:
        children = (self._node.children or {}).items()
        return [_entry(name, node, wants_stat) for name, node in children]

    def files(self, *examined: str) -> tuple[FilesByName, Sequence[DirectoryEntry]]:
        found: FilesByName = {}
        others: list[DirectoryEntry] = []
        for name, node in (self._node.children or {}).items():
            if node.kind is FileType.FILE:
                found[name] = node.status if name.endswith(examined) else None
            else:
                others.append(_entry(name, node, lambda name: name.endswith(examined)))
        return found, others

    def stat(self) -> stat_result:
        return self._node.status

    def open(self, name: str) -> RemoteFile:
        path = self.path_of(name)
        node = self._node.get((name,))
        if node is None:
            raise SegmentGone(path)
        if node.kind is not FileType.FILE:
            raise CorruptError(f"a {node.kind}, not a regular file", path)
        return RemoteFile(self._source, path, node, self._node)

    def is_removed(self) -> bool:
        try:
            return self._directory.stat().st_ino != self._node.status.st_ino
        except (SegmentGone, LogDirError):
            return True
        except OSError:
            return False


class RemoteFile(ReadableFile):
    """A file as it was listed: a read fails if it is another one by now."""

    __slots__ = ("_end", "_in_order", "_node", "_parent", "_source", "_start")

    def __init__(self, source: Source, path: str, node: SnapshotNode, parent: SnapshotNode) -> None:
        """`parent` is the directory."""
        self.path = path
        self.identity = (node.status.st_dev, node.status.st_ino)
        self._source = source
        self._node = node
        self._parent = parent
        # Start and end of the last read, and how much was read in order up to there. Races between
        # threads only cost speed.
        self._start = 0
        self._end = 0
        self._in_order = 0

    def stat(self) -> stat_result:
        return self._node.status

    def size(self) -> int:
        return self._node.size

    def is_removed(self) -> bool:
        return False  # it has no disk space of its own

    def next_data(self, position: int) -> int:
        return min(position, self._node.size)

    def read(self, position: int, size: int) -> bytes:
        size = min(size, self._node.size - position)
        if size <= 0:
            return b""
        data = bytearray(size)
        self._read(position, memoryview(data))
        return bytes(data)

    def read_into(self, position: int, buffer: memoryview | bytearray) -> int:
        view = memoryview(buffer).cast("B")
        size = max(min(len(view), self._node.size - position), 0)
        if size:
            self._read(position, view[:size])
        return size

    def content(self, size: int) -> bytes:
        if size > self._node.size:
            raise ValueError(f"{self.path}: shorter than {size} bytes")
        return self.read(0, size)

    def _read(self, position: int, view: memoryview) -> None:
        end = position + len(view)
        # A reader of batches goes back to the beginning of the one that it has only a part of.
        is_next = self._start < position <= self._end
        self._start, self._end = position, end
        before = self._in_order if is_next else 0
        if position == 0:
            before = self._source.in_order.pop(self.path, 0)
            is_next = before > 0
        self._in_order = before + len(view) if is_next or position == 0 else 0
        # A reader who went on where he had stopped will do so again.
        self._read_ahead(end, min(_AHEAD_FACTOR * self._in_order, _MOST_AHEAD) if is_next else 0)
        self._source.read(self.path, self._node, position, view)

    def _read_ahead(self, position: int, size: int) -> None:
        """Announces the next `size` bytes, of this file and of the segments that follow."""
        ahead = min(size, self._node.size - position)
        if ahead > 0:
            self._source.will_read(self.path, self._node, position, ahead)
        size -= self._node.size - position
        if not self.path.endswith(".log") or not self._source.is_parallel:
            return
        above, _, name = self.path.rpartition("/")
        following = self._parent.logs_after(name)
        if position >= self._node.size and (first := next(following, "")):
            _note(self._source.in_order, f"{above}/{first}", self._in_order)
            following = chain((first,), following)
        for name in islice(following, _FILES_AHEAD):
            node = self._parent.get((name,))
            if size <= 0 or node is None:
                return
            if node.kind is FileType.FILE and node.size:
                self._source.will_read(f"{above}/{name}", node, 0, min(size, node.size))
                size -= node.size

    def __repr__(self) -> str:
        return f"RemoteFile({self.path!r})"


def _note(in_order: OrderedDict[str, int], path: str, size: int) -> None:
    in_order[path] = size
    if len(in_order) > _READERS:
        in_order.popitem(last=False)


def _entry(
    name: str, node: SnapshotNode, wants_stat: Callable[[str], bool] | None
) -> DirectoryEntry:
    status = node.status if wants_stat is not None and wants_stat(name) else None
    return DirectoryEntry(name, node.kind, node.status.st_ino, status)
