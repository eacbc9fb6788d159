"""What every node of the tree is: a directory, a file or a link, with a number and attributes."""

from __future__ import annotations

import itertools
import os
import stat
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkafs.storage.errors import printable
from kafkafs.storage.nearest import did_you_mean

from ..errnos import Forbidden, NoSuchName
from ..handles import Handle
from ..lifetimes import BRIEFLY, NOT_AT_ALL
from ..pending import Pending
from ..reading.reported import Reported
from ..reading.sizes import StreamSize
from ..write_handle import WriteHandle

DIRECTORY_MODE: Final = stat.S_IFDIR | 0o555
FILE_MODE: Final = stat.S_IFREG | 0o444
LINK_MODE: Final = stat.S_IFLNK | 0o777

# What `stat` advises for reading: cat and cp then read this much at a time.
STREAM_BLOCK: Final = 1 << 20
#: The same of a directory: opendir(3) takes so much room for names, and newer kernels then ask for
# as much at a time, some 1,500 names here.
LISTING_BLOCK: Final = 1 << 18
_BLOCK: Final = 4096
#: The size in a row of a file whose size takes long to find out. No size that were not exact would
#: do: the kernel takes it for that of the file, also while a program has it open. One that is
#: negative it does not take, nor the row's other attributes, and so asks when they are needed.
UNKNOWN_SIZE: Final = -1


@dataclass(frozen=True, slots=True)
class Attributes:
    """What `stat` says. `name_lifetime` and `lifetime`: seconds for which the kernel may believe
    that the name leads to this inode, and that the inode has these attributes. `generation`: which
    of the inodes that had this number it is."""

    inode: int
    mode: int
    size: int
    mtime_ns: int
    name_lifetime: float
    lifetime: float
    block_size: int = _BLOCK
    generation: int = 0


# A name in a directory: its bytes, inode number, size (or UNKNOWN_SIZE), mtime in ns, and where a
# listing goes on behind it.
Row = tuple[bytes, int, int, int, int]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows as columns, because a directory may have millions of them."""

    names: Sequence[bytes] = ()
    inodes: Sequence[int] = ()
    sizes: Sequence[int] = ()
    mtimes_ns: Sequence[int] = ()
    next_starts: Sequence[int] = ()

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Rows:
        return cls(*zip(*rows, strict=True))

    def first(self, count: int) -> Rows:
        """So many of them."""
        return Rows(
            self.names[:count],
            self.inodes[:count],
            self.sizes[:count],
            self.mtimes_ns[:count],
            self.next_starts[:count],
        )

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[Row]:
        return zip(
            self.names, self.inodes, self.sizes, self.mtimes_ns, self.next_starts, strict=True
        )


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive names of a listing that have in common all that `Attributes` has beside a row."""

    rows: Rows
    mode: int = FILE_MODE
    name_lifetime: float = BRIEFLY
    lifetime: float = BRIEFLY
    block_size: int = _BLOCK
    generation: int = 0

    def up_to(self, place: int) -> Run:
        """The rows that go on at `place` or before it; itself if all do."""
        places = self.rows.next_starts
        if not places or places[-1] <= place:
            return self
        return replace(self, rows=self.rows.first(bisect_right(places, place)))


#: What gives the names of a listing from some place on.
Listing = Callable[[int], Iterator[Run]]


def ending_at(place: int, runs: Listing, start: int) -> Iterator[Run]:
    """Runs up to the last row that goes on at `place` or before it."""
    for run in runs(start):
        shown = run.up_to(place)
        yield shown
        if shown is not run:
            return


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a listing with its attributes. `next_start`: where to go on behind it."""

    name: str
    attributes: Attributes
    next_start: int


@dataclass(frozen=True, slots=True)
class AttributeChanges:
    """What chmod(2), chown(2) and utimensat(2) would set; None for what stays."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime_ns: int | None = None


class Node(ABC):
    """`inode` is the node's number for as long as the mount lasts."""

    inode: int

    @abstractmethod
    def attributes(self) -> Attributes: ...

    def xattrs(self) -> Mapping[str, bytes]:
        """Extended attributes by their full names."""
        return {}

    def pending(self) -> Pending | None:
        """What must be done before the node is asked for names, where it leads or, if it is a
        file, for its attributes; None when nothing has to be. Costs nothing."""
        return None

    def still_holds(self) -> bool:
        """False when something may have been removed or replaced since the node was made, so that
        it must be looked up again before the kernel may believe it for ever. Costs nothing."""
        return True

    def fixed(self) -> Node:
        """What the name leads to at this moment, where that is made from what changes: a node whose
        bytes never change. May take a moment, and read from disk."""
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether `fixed` is the node itself."""
        return True

    def change_attributes(self, changes: AttributeChanges) -> None:
        """On a writable mount: gives the node other attributes, where it can have any."""
        raise Forbidden("modes, owners and times are what they are")

    def sync(self) -> None:  # noqa: B027 - most nodes are made from what is durable already
        """Makes durable what was changed through this node."""


class Directory(Node):
    """`parent_inode`: the number of the directory above, its own at the top."""

    parent_inode: int
    #: Whether finding or listing its names may read all of a partition.
    reads_much = False

    @abstractmethod
    def child(self, name: str) -> Node:
        """The node called `name`. NoSuchName, or an error of the engine that says as much."""

    @abstractmethod
    def runs(self, start: int) -> Iterator[Run]:
        """The names from `start` on: 0, or what a row had as its last field. `.` and `..` are left
        out; their places are 1 and 2. Each step may read from disk."""

    def listing(self) -> Listing:
        """`runs` of a listing that begins now. Of a directory that may grow faster than somebody
        reads, they end with what is there now. May read from disk."""
        return self.runs

    def losses(self) -> int:
        """How often names may have gone from here. Costs nothing."""
        return 0

    def list(self, start: int = 0) -> Iterator[Entry]:
        """A listing name by name."""
        for run in self.listing()(start):
            for name, inode, size, mtime_ns, next_start in run.rows:
                attributes = Attributes(
                    inode,
                    run.mode,
                    size,
                    mtime_ns,
                    run.name_lifetime,
                    run.lifetime,
                    run.block_size,
                    run.generation,
                )
                yield Entry(os.fsdecode(name), attributes, next_start)

    def matching(self, start: str) -> Iterator[str]:
        """The listed names that begin with `start`; of a directory, with a slash behind. A name
        comes at once or not at all: what can only be found by reading all of a partition is left
        out, for a shell that completes a word."""
        for run in self.runs(0):
            slash = "/" if stat.S_ISDIR(run.mode) else ""
            for name in map(os.fsdecode, run.rows.names):
                if name.startswith(start):
                    yield name + slash

    def child_is_near(self, name: str) -> bool:
        """Whether `child(name)` needs no more than memory and pages that are mostly cached."""
        return True

    def knows(self, name: str) -> bool:
        """Of a directory that `reads_much`: whether `child(name)` needs nothing but memory."""
        return False

    # Changes, on a writable mount. A directory allows what it has a method of its own for. Each may
    # wait for the disk, and raise what the engine raises.

    def remove(self, name: str, pid: int) -> None:
        """Removes a file or a link; `pid` is the process that asks, 0 where it is not known.
        NoSuchName."""
        raise Forbidden(f"{printable(name)} cannot be removed")

    def removal_is_near(self, name: str) -> bool:
        """Whether `remove` needs no more than memory, and waits for nobody."""
        return False

    def removed(self, name: str, pid: int) -> Node | None:
        """What stands for a name that is not there any more, but that process `pid` may still
        remove; None where there is nothing of the kind."""
        return None

    def remove_directory(self, name: str) -> None:
        """NoSuchName, NotEmpty."""
        raise Forbidden(f"{printable(name)} cannot be removed")

    def make_directory(self, name: str) -> Node:
        """The directory that was made. Exists."""
        raise Forbidden(f"no directory can be made here: {printable(name)}")

    def create(self, name: str, flags: int) -> tuple[File, WriteHandle]:
        """Makes a file and opens it with open(2)'s `flags`; or opens it, where that is as good."""
        raise Forbidden(f"no file can be made here: {printable(name)}")

    def rename(self, name: str, target: Directory, new_name: str, flags: int) -> None:
        """`flags` are renameat2(2)'s. NoSuchName, Exists."""
        raise Forbidden(f"{printable(name)} cannot be renamed")


class File(Node):
    @abstractmethod
    def open(self, *, waits: bool = True) -> Handle:
        """What is in the file now, for reading. `waits`: whether a read may wait for more."""

    def open_writing(self, flags: int) -> WriteHandle:
        """The file for writing, and for reading where open(2)'s `flags` ask for it."""
        raise Forbidden("what is in the file was appended to a log, and stays as it is")

    def take_mode(self, mode: int) -> None:
        """It was made by open(2) with this mode."""

    def opens_near(self, flags: int) -> bool:
        """Whether `open_writing(flags)` needs nothing but memory."""
        return False

    def truncate(self, size: int) -> None:
        """truncate(2), without the file being open."""
        raise Forbidden("what is in the file was appended to a log, and stays as it is")


class FixedFile(File):
    """A file whose bytes never change, of those that `Contents` knows."""

    #: Bytes of memory that it takes, roughly.
    memory = 1 << 10
    #: Whether it shows records, and so changes with each that is appended.
    shows_records = False

    @abstractmethod
    def check(self) -> None:
        """Raises Stale, or what says as much, when its name would no longer lead to a file with
        these bytes because something was removed."""


class MeasuredFile(FixedFile):
    """One whose size may take long to find."""

    shows_records = True

    @property
    @abstractmethod
    def stream_size(self) -> StreamSize | None:
        """None while it cannot be found yet."""

    @property
    @abstractmethod
    def exact(self) -> int | None:
        """The size in bytes; None while it is not known."""

    @property
    @abstractmethod
    def reported(self) -> Reported:
        """What programs were told of the size before it was known."""

    def search(self) -> Pending | None:
        """What has to be done before `stream_size` can be there; None when nothing has to be."""
        return None

    def found(self) -> None:
        """What `search` gave was done."""

    def hold(self) -> object:
        """Keeps what the file shows readable, whatever is deleted meanwhile, for as long as the
        result lives. Raises Stale if something of it has gone."""
        return None


class Link(Node):
    @abstractmethod
    def target(self) -> str:
        """Where the link leads, from the directory that it is in."""


def missing(name: str, directory: str, names: Iterable[str]) -> NoSuchName:
    """The error for a name that is not among the `names` of `directory`, which is called so in the
    message."""

    def why() -> str:
        there = list(names)
        hint = did_you_mean(name, there) or f"; it has {', '.join(there)}"
        return f"{directory} has no {name}{hint}"

    return NoSuchName(name, why)


#: Where the names of a listing begin: 0 is the start, 1 and 2 lie behind `.` and `..`.
FIRST: Final = 3


def directory_attributes(inode: int, mtime_ns: int, generation: int = 0) -> Attributes:
    lifetimes = (BRIEFLY, BRIEFLY)
    return Attributes(
        inode, DIRECTORY_MODE, 0, mtime_ns, *lifetimes, LISTING_BLOCK, generation=generation
    )


def link_attributes(inode: int, mtime_ns: int) -> Attributes:
    """A link's size is 0, because where it leads may change."""
    return Attributes(inode, LINK_MODE, 0, mtime_ns, NOT_AT_ALL, NOT_AT_ALL)


def stream_attributes(
    inode: int, mtime_ns: int, size: int = 0, *, name_lifetime: float = BRIEFLY
) -> Attributes:
    """Attributes that are to be asked for again."""
    return Attributes(inode, FILE_MODE, size, mtime_ns, name_lifetime, NOT_AT_ALL, STREAM_BLOCK)


def rows_of(nodes: Iterable[tuple[str, Node]], start: int) -> Iterator[Run]:
    """Runs of a directory with few names, always in the same order."""
    return rows_at(((at, name, node) for at, (name, node) in enumerate(nodes, FIRST)), start)


def rows_at(nodes: Iterable[tuple[int, str, Node]], start: int) -> Iterator[Run]:
    """The same of names with places of their own, in the order of these."""
    found = [(name, node.attributes(), at) for at, name, node in nodes if at >= start]
    for shared, entries in itertools.groupby(found, lambda entry: _shared(entry[1])):
        rows = [
            (os.fsencode(name), of.inode, of.size, of.mtime_ns, at + 1) for name, of, at in entries
        ]
        yield Run(Rows.of(rows), *shared)


def _shared(attributes: Attributes) -> tuple[int, float, float, int, int]:
    return (
        attributes.mode,
        attributes.name_lifetime,
        attributes.lifetime,
        attributes.block_size,
        attributes.generation,
    )
