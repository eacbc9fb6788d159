"""The interface of the tree's nodes: directories, files and links, with inodes and attributes."""

from __future__ import annotations

import itertools
import os
import stat
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkafs.storage import did_you_mean, printable

from .streams.reported import Reported
from .streams.sizes import StreamSize
from .vfs.errnos import NoSuchName, NotPermitted
from .vfs.handles import Handle
from .vfs.pending import Pending
from .vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .vfs.write_handle import WriteHandle

DIRECTORY_MODE: Final = stat.S_IFDIR | 0o555
FILE_MODE: Final = stat.S_IFREG | 0o444
LINK_MODE: Final = stat.S_IFLNK | 0o777

# The I/O size that `stat` suggests: cat and cp then read this much at a time.
STREAM_BLOCK: Final = 1 << 20
#: The same for a directory: opendir(3) takes a buffer of this size, and newer kernels then request
#: as much at a time, some 1,500 names here.
LISTING_BLOCK: Final = 1 << 18
_BLOCK: Final = 4096
#: The size in a directory entry of a file whose size takes long to determine. An inexact size would
#: not do: the kernel would use it for the file, even while a program has it open. The kernel
#: discards a negative size with the entry's other attributes, and requests them when they are
#: needed.
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes that `stat` returns. `entry_timeout` and `attr_timeout`: for how many seconds
    the kernel may cache that the name leads to this inode, and the inode's attributes.
    `generation`: distinguishes inodes that had the same number."""

    inode: int
    mode: int
    size: int
    mtime_ns: int
    entry_timeout: float
    attr_timeout: float
    block_size: int = _BLOCK
    generation: int = 0


#: A name in a directory: its bytes, inode number, size (or UNKNOWN_SIZE), mtime in ns, and the
#: readdir offset after it, at which the listing continues.
DirEntry = tuple[bytes, int, int, int, int]


@dataclass(frozen=True, slots=True)
class DirEntries:
    """Entries in columnar form, because a directory may have millions of them."""

    names: Sequence[bytes] = ()
    inodes: Sequence[int] = ()
    sizes: Sequence[int] = ()
    mtimes_ns: Sequence[int] = ()
    readdir_offsets: Sequence[int] = ()

    @classmethod
    def of(cls, entries: Iterable[DirEntry]) -> DirEntries:
        return cls(*zip(*entries, strict=True))

    def first(self, count: int) -> DirEntries:
        """Returns the first `count` entries."""
        return DirEntries(
            self.names[:count],
            self.inodes[:count],
            self.sizes[:count],
            self.mtimes_ns[:count],
            self.readdir_offsets[:count],
        )

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[DirEntry]:
        return zip(
            self.names, self.inodes, self.sizes, self.mtimes_ns, self.readdir_offsets, strict=True
        )


@dataclass(frozen=True, slots=True)
class DirEntryRun:
    """Consecutive entries that share all `Attributes` that are not in a `DirEntry`."""

    entries: DirEntries
    mode: int = FILE_MODE
    entry_timeout: float = BRIEFLY
    attr_timeout: float = BRIEFLY
    block_size: int = _BLOCK
    generation: int = 0

    def up_to(self, readdir_offset: int) -> DirEntryRun:
        """Returns the entries that end at or before a readdir offset; itself if all do."""
        offsets = self.entries.readdir_offsets
        if not offsets or offsets[-1] <= readdir_offset:
            return self
        return replace(self, entries=self.entries.first(bisect_right(offsets, readdir_offset)))


#: Yields the entries of a directory from a readdir offset on.
Readdir = Callable[[int], Iterator[DirEntryRun]]


def readdir_until(end: int, readdir: Readdir, start: int) -> Iterator[DirEntryRun]:
    """Yields the entries from readdir offset `start` on that end at or before `end`."""
    for run in readdir(start):
        shown = run.up_to(end)
        yield shown
        if shown is not run:
            return


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """A directory entry with all its attributes. `readdir_offset`: the one after it."""

    name: str
    attributes: Attributes
    readdir_offset: int


@dataclass(frozen=True, slots=True)
class AttributeChanges:
    """The changes requested by chmod(2), chown(2) or utimensat(2); None means unchanged."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_ns: int | None = None


class Node(ABC):
    """`inode` is the node's number until the mount ends."""

    inode: int

    @abstractmethod
    def attributes(self) -> Attributes: ...

    @property
    def xattrs_may_block(self) -> bool:
        """False if `xattrs` needs only memory and pages that are mostly cached."""
        return False

    def xattrs(self) -> Mapping[str, bytes]:
        """Returns extended attributes by their full names."""
        return {}

    def pending(self) -> Pending | None:
        """Returns the work to be done before the node can return names, its target or, for a file,
        its attributes; None if there is none. Costs nothing."""
        return None

    def revalidate(self) -> bool:
        """Returns False if something may have been removed or replaced since the node was made, so
        that it must be looked up again before the kernel caches it forever. Costs nothing."""
        return True

    def fixed(self) -> Node:
        """Returns, for a name whose content changes, a node of the current content, whose bytes
        never change. May take a moment and read from disk."""
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether `fixed` returns the node itself."""
        return True

    def change_attributes(self, changes: AttributeChanges) -> None:
        """Changes attributes on a writable mount, if the node has changeable ones."""
        raise NotPermitted("modes, owners and times cannot be changed")

    def sync(self) -> None:  # noqa: B027 - most nodes are made from what is durable already
        """Makes changes made through this node durable."""


class DirectoryNode(Node):
    """`parent_inode`: the inode number of the parent directory; the root's is its own."""

    parent_inode: int
    #: Whether a lookup or listing may read all of a partition.
    reads_much = False

    @abstractmethod
    def child(self, name: str) -> Node:
        """Returns the node called `name`. Raises NoSuchName, or an equivalent engine error."""

    @abstractmethod
    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        """Yields the entries from readdir offset `start` on: 0, or that of an entry. `.` and `..`
        are left out; theirs are 1 and 2. Each step may read from disk."""

    def opendir(self) -> Readdir:
        """Returns `readdir` for a listing that starts now. If the directory may grow faster than it
        is read, it ends with the current names. May read from disk."""
        return self.readdir

    def losses(self) -> int:
        """Returns how often names may have vanished from here. Costs nothing."""
        return 0

    def list(self, start: int = 0) -> Iterator[ListedEntry]:
        """Yields the entries from readdir offset `start` on one by one."""
        for run in self.opendir()(start):
            for name, inode, size, mtime_ns, readdir_offset in run.entries:
                attributes = Attributes(
                    inode,
                    run.mode,
                    size,
                    mtime_ns,
                    run.entry_timeout,
                    run.attr_timeout,
                    run.block_size,
                    run.generation,
                )
                yield ListedEntry(os.fsdecode(name), attributes, readdir_offset)

    def matching(self, start: str) -> Iterator[str]:
        """Yields the listed names that begin with `start`, directories with a slash appended, for
        shell completion. It is quick: names that require reading all of a partition are left
        out."""
        for run in self.readdir(0):
            slash = "/" if stat.S_ISDIR(run.mode) else ""
            for name in map(os.fsdecode, run.entries.names):
                if name.startswith(start):
                    yield name + slash

    def child_may_block(self, name: str) -> bool:
        """Returns False if `child(name)` needs only memory and pages that are mostly cached."""
        return False

    def is_cached(self, name: str) -> bool:
        """Returns, if `reads_much`, whether `child(name)` needs only memory."""
        return False

    # Changes, on a writable mount. A directory overrides those that it allows. Each may block on
    # the disk, and raise the engine's errors.

    def remove(self, name: str, pid: int) -> None:
        """Removes a file or link for process `pid`, 0 if unknown. Raises NoSuchName."""
        raise NotPermitted(f"{printable(name)} cannot be removed")

    def remove_may_block(self, name: str) -> bool:
        """Returns False if `remove` needs only memory and waits for no other thread."""
        return True

    def removed(self, name: str, pid: int) -> Node | None:
        """Returns the stand-in for a name that no longer exists but that process `pid` may still
        remove; None if there is none."""
        return None

    def remove_directory(self, name: str) -> None:
        """Removes an empty directory. Raises NoSuchName or NotEmpty."""
        raise NotPermitted(f"{printable(name)} cannot be removed")

    def make_directory(self, name: str) -> Node:
        """Creates and returns a directory. Raises Exists."""
        raise NotPermitted(f"no directory can be created here: {printable(name)}")

    def create(self, name: str, flags: int) -> tuple[File, WriteHandle]:
        """Creates a file, or takes an equivalent existing one, and opens it with open(2)'s
        `flags`."""
        raise NotPermitted(f"no file can be created here: {printable(name)}")

    def rename(self, name: str, target: DirectoryNode, new_name: str, flags: int) -> None:
        """Renames a file with renameat2(2)'s `flags`. Raises NoSuchName or Exists."""
        raise NotPermitted(f"{printable(name)} cannot be renamed")


class File(Node):
    @abstractmethod
    def open(self, *, waits: bool = True) -> Handle:
        """Opens the current content for reading. `waits`: whether a read may wait for more."""

    def open_writing(self, flags: int) -> WriteHandle:
        """Opens the file for writing, and for reading if open(2)'s `flags` include it."""
        raise NotPermitted("the file shows records of a log, which cannot be changed")

    def take_mode(self, mode: int) -> None:
        """Sets the mode passed to the open(2) that created the file."""

    def open_may_block(self, flags: int) -> bool:
        """Returns False if `open_writing(flags)` needs only memory."""
        return True

    def truncate(self, size: int) -> None:
        """Implements truncate(2) on a file that is not open."""
        raise NotPermitted("the file shows records of a log, which cannot be changed")


class FixedFile(File):
    """A file in `Contents`, whose bytes never change."""

    #: Memory used, in bytes, roughly.
    memory = 1 << 10
    #: Whether it shows records, and so is outdated by each append.
    shows_records = False

    @property
    def is_made(self) -> bool:
        """Whether its bytes exist; until then, the size in `attributes` is a bound."""
        return True

    @abstractmethod
    def check(self) -> None:
        """Raises Stale, or an equivalent error, if its name no longer leads to a file with these
        bytes because something was removed."""


class MeasuredFile(FixedFile):
    """A fixed file whose size may take long to determine."""

    shows_records = True

    @property
    @abstractmethod
    def stream_size(self) -> StreamSize | None:
        """The size of the stream; None while it cannot be determined yet."""

    @property
    @abstractmethod
    def exact(self) -> int | None:
        """The size in bytes; None while it is not known."""

    @property
    @abstractmethod
    def reported(self) -> Reported:
        """Sizes reported before the size was known."""

    def search(self) -> Pending | None:
        """Returns the work that must be done before `stream_size` is available; None if none."""
        return None

    def found(self) -> None:
        """Notes that the work of `search` was done."""

    def hold(self) -> object:
        """Keeps the file's content readable, whatever is deleted, for as long as the result is
        alive. Raises Stale if some of it no longer exists."""
        return None


class Link(Node):
    @abstractmethod
    def target(self) -> str:
        """Returns the target of the link, relative to its directory."""


def missing(name: str, directory: str, names: Iterable[str]) -> NoSuchName:
    """Returns the error for a name that is not among the `names` of the directory that the
    message calls `directory`."""

    def why() -> str:
        there = list(names)
        hint = did_you_mean(name, there) or f"; it has {', '.join(there)}"
        return f"{directory} has no {name}{hint}"

    return NoSuchName(name, why)


#: The readdir offset of the first name: 0 is the start, 1 and 2 follow `.` and `..`.
FIRST_READDIR_OFFSET: Final = 3


def directory_attributes(inode: int, mtime_ns: int, generation: int = 0) -> Attributes:
    return Attributes(
        inode, DIRECTORY_MODE, 0, mtime_ns, BRIEFLY, BRIEFLY, LISTING_BLOCK, generation
    )


def link_attributes(inode: int, mtime_ns: int) -> Attributes:
    """Returns a link's attributes. The size is 0, because the target may change."""
    return Attributes(inode, LINK_MODE, 0, mtime_ns, NOT_AT_ALL, NOT_AT_ALL)


def stream_attributes(
    inode: int, mtime_ns: int, size: int = 0, *, entry_timeout: float = BRIEFLY
) -> Attributes:
    """Returns attributes that the kernel must not cache."""
    return Attributes(inode, FILE_MODE, size, mtime_ns, entry_timeout, NOT_AT_ALL, STREAM_BLOCK)


def entries_of(nodes: Iterable[tuple[str, Node]], start: int) -> Iterator[DirEntryRun]:
    """Yields the entries of a directory with few names in a constant order."""
    return entries_at(
        ((at, name, node) for at, (name, node) in enumerate(nodes, FIRST_READDIR_OFFSET)), start
    )


def entries_at(nodes: Iterable[tuple[int, str, Node]], start: int) -> Iterator[DirEntryRun]:
    """Yields the entries of names that have readdir offsets of their own, in order of these."""
    found = [(name, node.attributes(), at) for at, name, node in nodes if at >= start]
    for shared, alike in itertools.groupby(found, lambda each: _shared(each[1])):
        entries = [
            (os.fsencode(name), of.inode, of.size, of.mtime_ns, at + 1) for name, of, at in alike
        ]
        yield DirEntryRun(DirEntries.of(entries), *shared)


def _shared(attributes: Attributes) -> tuple[int, float, float, int, int]:
    return (
        attributes.mode,
        attributes.entry_timeout,
        attributes.attr_timeout,
        attributes.block_size,
        attributes.generation,
    )
