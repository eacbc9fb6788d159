"""Where the files of a directory that is not local come from: an object store, or an archive.

A source lists everything below its root at once, as a tree (`Snapshot`), and reads byte ranges.
`directory.py` makes directories and files of that.
"""

from __future__ import annotations

import hashlib
import stat
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from ...errors import LogDirError
from ...wording import printable
from ..assembled import made_status
from ..directory import FileType

#: The most names in one listing: some hundred bytes of memory each.
MAX_NAMES: Final = 5_000_000
_MAX_SIZE: Final = (1 << 63) - 1
_MAX_PROBLEMS: Final = 100
_NAME_BYTES: Final = 255  # of a name in any file system


class Listed(NamedTuple):
    """One name as a source lists it: its path below the root, with slashes, whatever it contains.
    `version` changes with the content (an ETag). `handle` is what the source needs to read it.
    `forbidden`: why a directory cannot be listed, "" if it was."""

    path: str
    kind: FileType
    size: object
    mtime_ns: int
    version: str
    handle: object
    forbidden: str = ""


class SnapshotNode:
    """A file or directory of a snapshot. `children` is None for a file; `status` is an `lstat`,
    whose inode number stands for the path and, of a file, for its version. `forbidden` as in
    `Listed`."""

    __slots__ = ("_logs", "children", "forbidden", "handle", "kind", "size", "status", "version")

    def __init__(
        self, kind: FileType, size: int = 0, version: str = "", handle: object = None
    ) -> None:
        self.kind = kind
        self.size = size
        self.version = version
        self.handle = handle
        self.children: dict[str, SnapshotNode] | None = {} if kind is FileType.DIRECTORY else None
        self.forbidden = ""
        self.status = _NO_STATUS
        self._logs: list[str] | None = None

    def logs_after(self, name: str) -> Iterator[str]:
        """Yields the names of the segments' logs in this directory that follow `name`, in order."""
        if self._logs is None:
            self._logs = sorted(each for each in self.children or {} if each.endswith(".log"))
        yield from islice(self._logs, bisect_right(self._logs, name), None)

    def get(self, path: Iterable[str]) -> SnapshotNode | None:
        """Returns the node at a path below this one."""
        node: SnapshotNode | None = self
        for name in path:
            node = node.children.get(name) if node is not None and node.children else None
        return node


class Snapshot:
    """All names below a root at one time. `problems` says what is malformed, a line each."""

    def __init__(self, root: str, listed: Iterable[Listed]) -> None:
        """`root` is the location of the root, the same in every process. Raises LogDirError if
        there are more than MAX_NAMES."""
        self.root = SnapshotNode(FileType.DIRECTORY)
        self.problems: list[str] = []
        self._path = root
        self._device = number_of(root.partition("://")[0], root)
        times: dict[int, int] = {}
        for count, each in enumerate(listed):
            if count >= MAX_NAMES:
                raise LogDirError(root, f"has more than {MAX_NAMES} names; name a directory in it")
            self._add(each, times)
        self._complete(self.root, root, times)

    def _add(self, each: Listed, times: dict[int, int]) -> None:
        parts = each.path.rstrip("/").split("/")
        if not all(map(_is_name, parts)):
            if each.path.strip("/"):
                self._report(each, "not a valid file name, not served")
            return
        node = self.root
        for name in parts[:-1]:
            node = _directory_in(node, name)
        if each.kind is FileType.DIRECTORY or each.path.endswith("/"):
            _directory_in(node, parts[-1]).forbidden = each.forbidden
            return
        assert node.children is not None
        before = node.children.get(parts[-1])
        if before is not None and before.children is not None:
            self._report(each, "there is a directory of this name; the file is not served")
            return
        kind, size = each.kind, each.size
        if not isinstance(size, int) or not 0 <= size <= _MAX_SIZE:
            kind, size = FileType.MALFORMED, 0
        new = node.children[parts[-1]] = SnapshotNode(kind, size, each.version, each.handle)
        times[id(new)] = min(max(each.mtime_ns, 0), _MAX_SIZE)

    def _report(self, each: Listed, why: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(f"{printable(f'{self._path}/{each.path}')}: {why}")

    def _complete(self, node: SnapshotNode, path: str, times: Mapping[int, int]) -> None:
        """Gives a node and all below it their status."""
        pending = [(node, path, False)]
        while pending:
            node, path, is_second = pending.pop()
            if node.children is None:
                mtime = times[id(node)]
                number = number_of(path, node.version, str(node.size), str(mtime))
                mode = _MODES.get(node.kind, 0)
                node.status = made_status(mode, (self._device, number), node.size, mtime)
            elif not is_second:
                pending.append((node, path, True))
                pending += [(each, f"{path}/{name}", False) for name, each in node.children.items()]
            else:
                # The size stands for the content: `small_file.stamp` shows that it changed.
                content = (f"{n}/{c.status.st_ino}" for n, c in sorted(node.children.items()))
                mtime = max((c.status.st_mtime_ns for c in node.children.values()), default=0)
                size = number_of(*content)
                identity = (self._device, number_of(path))
                node.status = made_status(stat.S_IFDIR | 0o555, identity, size, mtime)


def _directory_in(node: SnapshotNode, name: str) -> SnapshotNode:
    """Returns the directory `name`, which replaces a file of that name: a store may have both, and
    only the directory leads to others."""
    assert node.children is not None
    found = node.children.get(name)
    if found is None or found.children is None:
        found = node.children[name] = SnapshotNode(FileType.DIRECTORY)
    return found


def _is_name(name: str) -> bool:
    """Whether a file system could have such a name."""
    is_there = name not in ("", ".", "..") and "\0" not in name
    return is_there and len(name.encode("utf-8", "surrogateescape")) <= _NAME_BYTES


def number_of(*texts: str) -> int:
    """Returns a number of 63 bits that stands for the texts, the same in every process."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape") + b"\0")
    return int.from_bytes(digest.digest(), "little") >> 1


_NO_STATUS: Final = made_status(0, (0, 0), 0, 0)
_MODES: Final = {
    FileType.FILE: stat.S_IFREG | 0o444,
    FileType.SYMLINK: stat.S_IFLNK | 0o777,
    FileType.FIFO: stat.S_IFIFO,
    FileType.DEVICE: stat.S_IFCHR,
}


class Source(ABC):
    """A tree of files that are only read. Thread-safe. `location` is a path or URL that opens it
    again, in any process."""

    location: str
    #: Whether several reads at a time are faster than one after the other.
    is_parallel = True

    def __init__(self) -> None:
        #: How much was read in order up to the beginning of a file, by the file's path. Of those
        #: that are read next; races between threads only cost speed.
        self.in_order: OrderedDict[str, int] = OrderedDict()

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Returns the names below the root, listed recently. Raises SegmentGone if there are none,
        and OSError."""

    @abstractmethod
    def read(self, path: str, node: SnapshotNode, position: int, buffer: memoryview) -> None:
        """Fills `buffer` from `position`; all of it is within the file's size. `path` is the file's
        location. Raises SegmentGone if the file vanished or changed since it was listed, and
        OSError with the reason."""

    @abstractmethod
    def will_read(self, path: str, node: SnapshotNode, position: int, size: int) -> None:
        """Says that these bytes are likely to be read soon."""
