"""Disk faults: system calls that fail, and the states that a power cut may leave.

`FailingCalls` lets one call fail. `RecordingCalls` records every change below a directory, and
`crash_states` yields the trees that a power cut may leave at any moment of the recording. The model
of a disk is the weakest that POSIX and the file systems of Linux allow:

- A file's content and size are certain only as of its last fsync. Later changes are kept, lost, or
  torn by sectors; the size may change without the content (zeros) and vice versa.
- A directory's names are certain only as of its last fsync. Of later changes, a prefix is kept, in
  order; a rename is one step.
- Directories are independent: a later change in one may be kept, and an earlier one in another,
  even its parent, lost. An fsync of a file, or of another directory, makes no name certain.
- A file that was moved between directories is in the old one, in the new one, or in both, but never
  in neither: whatever makes the loss of the old name certain makes the new one certain, and earlier
  changes to the new directory, too. ext4, xfs and btrfs do this, since they log a rename as a
  whole; POSIX does not require it.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from kafkafs.storage.io.durable import Buffer, Calls

SECTOR = 512

T = TypeVar("T")


class FailingCalls(Calls):
    """System calls of which number `at` (from 0) of the `kinds` given (all if empty) fails with
    `errno`; if `lasting`, all from then on. A write that fails has written half of its bytes."""

    def __init__(
        self, at: int, errno: int, kinds: Collection[str] = (), lasting: bool = False
    ) -> None:
        self.at = at
        self.errno = errno
        self.kinds = kinds
        self.lasting = lasting
        self.made: list[str] = []  # the kinds of the calls counted so far, failed ones included
        self.failed: list[str] = []  # what has failed: kind and name or descriptor
        self._lock = threading.Lock()

    def _call(self, kind: str, about: str, call: Callable[[], T]) -> T:
        with self._lock:
            number = len(self.made)
            counts = not self.kinds or kind in self.kinds
            if counts:
                self.made.append(kind)
            fails = counts and (number == self.at or (self.lasting and number > self.at))
            if fails:
                self.failed.append(f"{kind} {about}")
        if fails:
            raise OSError(self.errno, os.strerror(self.errno))
        return call()

    def open(self, name: str, flags: int, mode: int = 0, directory: int | None = None) -> int:
        call = super().open
        return self._call("open", name, lambda: call(name, flags, mode, directory))

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        call = super().pwritev
        try:
            return self._call("pwritev", path_of(fd), lambda: call(fd, buffers, position))
        except OSError:
            data = joined(buffers)
            os.pwrite(fd, data[: len(data) // 2], position)
            raise

    def ftruncate(self, fd: int, size: int) -> None:
        call = super().ftruncate
        self._call("ftruncate", path_of(fd), lambda: call(fd, size))

    def fallocate(self, fd: int, position: int, size: int) -> None:
        call = super().fallocate
        self._call("fallocate", path_of(fd), lambda: call(fd, position, size))

    def clone(self, fd: int, source: int) -> bool:
        call = super().clone
        return self._call("clone", path_of(fd), lambda: call(fd, source))

    def fsync(self, fd: int) -> None:
        call = super().fsync
        self._call("fsync", path_of(fd), lambda: call(fd))

    def rename(self, old: str, new: str, directory: int) -> None:
        call = super().rename
        self._call("rename", old, lambda: call(old, new, directory))

    def move(self, name: str, source: int, target: int) -> None:
        call = super().move
        self._call("move", name, lambda: call(name, source, target))

    def link(self, old: str, source: int, new: str, target: int) -> None:
        call = super().link
        self._call("link", old, lambda: call(old, source, new, target))

    def unlink(self, name: str, directory: int) -> None:
        call = super().unlink
        self._call("unlink", name, lambda: call(name, directory))

    def mkdir(self, name: str, mode: int, directory: int | None) -> None:
        call = super().mkdir
        self._call("mkdir", name, lambda: call(name, mode, directory))

    def rmdir(self, name: str, directory: int) -> None:
        call = super().rmdir
        self._call("rmdir", name, lambda: call(name, directory))

    def utime(self, fd: int, mtime_ns: int) -> None:
        call = super().utime
        self._call("utime", path_of(fd), lambda: call(fd, mtime_ns))

    def chown(self, name: str, user: int, group: int, directory: int) -> None:
        call = super().chown
        self._call("chown", name, lambda: call(name, user, group, directory))


# What RecordingCalls records. Files and directories are numbers, which are never reused.


class Content(NamedTuple):
    """The content of a file: `data`, which does not end with a zero, and zeros up to `size`. A
    preallocated index has megabytes of them, and a state has many."""

    data: bytes
    size: int

    @classmethod
    def of(cls, data: bytes | bytearray, size: int) -> Content:
        return cls(bytes(data[:size]).rstrip(b"\0"), size)

    def whole(self) -> bytes:
        return self.data.ljust(self.size, b"\0")


@dataclass(frozen=True, slots=True)
class Write:
    file: int
    position: int
    data: bytes

    def apply(self, data: bytearray, size: int) -> int:
        """Changes the bytes of a file of that size, whose last zeros may be missing; returns its
        new size."""
        data.extend(bytes(max(self.position - len(data), 0)))
        data[self.position : self.position + len(self.data)] = self.data
        return max(size, len(data))


@dataclass(frozen=True, slots=True)
class Truncate:
    file: int
    size: int

    def apply(self, data: bytearray, size: int) -> int:
        del data[self.size :]
        return self.size


@dataclass(frozen=True, slots=True)
class Link:
    """`name` was given to `node`, a new file or directory, or an existing file."""

    directory: int
    name: str
    node: int
    is_directory: bool

    def apply(self, names: dict[str, int]) -> None:
        names[self.name] = self.node


@dataclass(frozen=True, slots=True)
class Rename:
    directory: int
    old: str
    new: str

    def apply(self, names: dict[str, int]) -> None:
        names[self.new] = names.pop(self.old)


@dataclass(frozen=True, slots=True)
class Unlink:
    """A name was removed. `arrival`: where the file is now, if it was moved."""

    directory: int
    name: str
    arrival: Link | None = None

    def apply(self, names: dict[str, int]) -> None:
        del names[self.name]


@dataclass(frozen=True, slots=True)
class Sync:
    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that the test wants to find again in a crash state."""

    what: object


Operation = Write | Truncate | Link | Rename | Unlink | Sync | Mark


class RecordingCalls(Calls):
    """System calls that are recorded if they change something below `root`. Any thread may call;
    the calls are serialized, so that their order is certain."""

    def __init__(self, root: Path) -> None:
        """`root` exists; its contents count as durable."""
        self.operations: list[Operation] = []
        self.root = 0
        self.files: dict[int, Content] = {}  # at the start
        self.directories: dict[int, dict[str, int]] = {}  # at the start
        self._lock = threading.Lock()
        self._numbers: dict[int, int] = {}  # of the inodes in use
        self._count = 0
        self.root = self._take_up(root)

    def mark(self, what: object) -> None:
        """Records that `what` happened after the calls made so far."""
        with self._lock:
            self.operations.append(Mark(what))

    def _take_up(self, path: Path) -> int:
        number = self._number_new(os.lstat(path).st_ino)
        if path.is_dir():
            self.directories[number] = {
                name: self._take_up(path / name) for name in sorted(os.listdir(path))
            }
        else:
            data = path.read_bytes()
            self.files[number] = Content.of(data, len(data))
        return number

    def _number_new(self, inode: int) -> int:
        self._count += 1
        self._numbers[inode] = self._count
        return self._count

    def _number(self, fd: int) -> int:
        return self._numbers[os.fstat(fd).st_ino]

    def open(self, name: str, flags: int, mode: int = 0, directory: int | None = None) -> int:
        with self._lock:
            if not flags & os.O_CREAT:
                return super().open(name, flags, mode, directory)
            assert directory is not None
            assert not flags & os.O_TRUNC
            existed = exists(name, directory)
            fd = super().open(name, flags, mode, directory)
            if not existed:
                number = self._number_new(os.fstat(fd).st_ino)
                self.operations.append(Link(self._number(directory), name, number, False))
            return fd

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:
        with self._lock:
            count = super().pwritev(fd, buffers, position)
            self.operations.append(Write(self._number(fd), position, joined(buffers)[:count]))
            return count

    def ftruncate(self, fd: int, size: int) -> None:
        with self._lock:
            super().ftruncate(fd, size)
            self.operations.append(Truncate(self._number(fd), size))

    def clone(self, fd: int, source: int) -> bool:
        """Returns False, so that the bytes are written."""
        return False

    def fsync(self, fd: int) -> None:
        with self._lock:
            super().fsync(fd)
            self.operations.append(Sync(self._number(fd)))

    def rename(self, old: str, new: str, directory: int) -> None:
        with self._lock:
            super().rename(old, new, directory)
            self.operations.append(Rename(self._number(directory), old, new))

    def move(self, name: str, source: int, target: int) -> None:
        with self._lock:
            node = self._numbers[os.stat(name, dir_fd=source, follow_symlinks=False).st_ino]
            super().move(name, source, target)
            arrival = Link(self._number(target), name, node, False)
            self.operations += [arrival, Unlink(self._number(source), name, arrival)]

    def link(self, old: str, source: int, new: str, target: int) -> None:
        with self._lock:
            super().link(old, source, new, target)
            node = self._numbers[os.stat(new, dir_fd=target, follow_symlinks=False).st_ino]
            self.operations.append(Link(self._number(target), new, node, False))

    def unlink(self, name: str, directory: int) -> None:
        with self._lock:
            super().unlink(name, directory)
            self.operations.append(Unlink(self._number(directory), name))

    def mkdir(self, name: str, mode: int, directory: int | None) -> None:
        with self._lock:
            super().mkdir(name, mode, directory)
            above = os.stat(os.path.dirname(name)) if directory is None else os.fstat(directory)
            inode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_ino
            link = Link(
                self._numbers[above.st_ino], os.path.basename(name), self._number_new(inode), True
            )
            self.operations.append(link)

    def rmdir(self, name: str, directory: int) -> None:
        with self._lock:
            super().rmdir(name, directory)
            self.operations.append(Unlink(self._number(directory), name))


@dataclass(slots=True)
class _File:
    durable: Content
    pending: list[Write | Truncate] = field(default_factory=list)

    def content(self, applied: int) -> Content:
        """Returns the durable content with the first `applied` pending changes."""
        if not applied:
            return self.durable
        data, size = bytearray(self.durable.data), self.durable.size
        for operation in self.pending[:applied]:
            size = operation.apply(data, size)
        return Content.of(data, size)

    def sync(self) -> None:
        self.durable = self.content(len(self.pending))
        self.pending = []


@dataclass(slots=True)
class _Directory:
    durable: dict[str, int]
    pending: list[Link | Rename | Unlink] = field(default_factory=list)

    def names(self, applied: int) -> dict[str, int]:
        """Returns the durable names with the first `applied` pending changes."""
        names = dict(self.durable)
        for operation in self.pending[:applied]:
            operation.apply(names)
        return names

    def count_to(self, arrival: Link) -> int:
        """Returns how many pending changes must be kept for a file that was moved here to be
        here."""
        found = (at for at, each in enumerate(self.pending, 1) if each is arrival)
        return next(found, 0)

    def sync(self, count: int) -> None:
        """Makes the first `count` pending changes durable."""
        self.durable = self.names(count)
        del self.pending[:count]


#: The content of a file.
Left = Callable[[_File], Content]
#: The number of pending changes that are kept in a directory, given its number.
Kept = Callable[[int, _Directory], int]


@dataclass(frozen=True, slots=True)
class CrashState:
    """A tree that a power cut may leave after the first `done` operations of a recording. `names`
    has the content of each file by its path, and None for directories."""

    done: int
    how: str
    marks: tuple[object, ...]
    names: dict[str, Content | None]

    def tree(self) -> dict[str, bytes | None]:
        """Returns all bytes of each file by its path, and None for directories."""
        return {name: each and each.whole() for name, each in self.names.items()}

    def write_to(self, path: Path) -> None:
        """Writes the tree to the empty directory `path`; preallocated files keep their holes."""
        for name, content in self.names.items():
            if content is None:
                (path / name).mkdir()
            else:
                with open(path / name, "wb") as file:
                    file.write(content.data)
                    file.truncate(content.size)


def crash_states(
    recording: RecordingCalls,
    samples: int = 2,
    seed: int = 0,
    prefixes: Iterable[int] | None = None,
) -> Iterator[CrashState]:
    """Yields what a power cut may leave after each number of operations, or after those in
    `prefixes`: all kept, all lost, names without content, content without names, all but the
    names in one directory, only those, and `samples` random mixtures. Identical states are
    yielded once."""
    disk = _Disk(recording)
    wanted = None if prefixes is None else frozenset(prefixes)
    before: tuple[object, ...] = ()
    seen: set[int] = set()
    for done in range(len(recording.operations) + 1):
        if wanted is None or done in wanted:
            for how, content, kept in _choices(disk, samples, random.Random(f"{seed} {done}")):
                state = CrashState(done, how, tuple(disk.marks), disk.names(content, kept))
                if state.marks != before:
                    before = state.marks
                    seen.clear()
                key = hash(tuple(state.names.items()))
                if key not in seen:
                    seen.add(key)
                    yield state
        if done < len(recording.operations):
            disk.apply(recording.operations[done])


class _Disk:
    """What is certain and what is pending at one moment of a recording."""

    def __init__(self, recording: RecordingCalls) -> None:
        self.root = recording.root
        self.files = {node: _File(content) for node, content in recording.files.items()}
        self.directories = {node: _Directory(n) for node, n in recording.directories.items()}
        self.marks: list[object] = []

    def apply(self, operation: Operation) -> None:
        match operation:
            case Write() | Truncate():
                self.files[operation.file].pending.append(operation)
            case Link(_, _, node, is_directory):
                if is_directory:
                    self.directories[node] = _Directory({})
                else:
                    self.files.setdefault(node, _File(Content(b"", 0)))
                self.directories[operation.directory].pending.append(operation)
            case Rename() | Unlink():
                self.directories[operation.directory].pending.append(operation)
            case Sync(node):
                self._sync(node)
            case Mark(what):
                self.marks.append(what)

    def _sync(self, node: int) -> None:
        if node in self.files:
            self.files[node].sync()
            return
        counts = dict.fromkeys(self.directories, 0)
        counts[node] = len(self.directories[node].pending)
        for each, count in self._with_arrivals(counts).items():
            self.directories[each].sync(count)

    def _with_arrivals(self, counts: dict[int, int]) -> dict[int, int]:
        """Returns how many changes to keep in each directory, given `counts`, so that no moved file
        is lost."""
        left = list(counts)
        while left:
            number = left.pop()
            for each in self.directories[number].pending[: counts[number]]:
                if isinstance(each, Unlink) and each.arrival is not None:
                    target = each.arrival.directory
                    least = self.directories[target].count_to(each.arrival)
                    if counts[target] < least:
                        counts[target] = least
                        left.append(target)
        return counts

    def changed_directories(self) -> list[int]:
        """Returns the directories with pending changes, unless they are certainly deleted."""
        links = (each for above in self.directories.values() for each in above.pending)
        there = {each.node for each in links if isinstance(each, Link)} | {self.root}
        there.update(*(above.durable.values() for above in self.directories.values()))
        return [
            number
            for number in self.directories
            if self.directories[number].pending and number in there
        ]

    def names(self, content: Left, kept: Kept) -> dict[str, Content | None]:
        found: dict[str, Content | None] = {}
        counts = self._with_arrivals({
            number: kept(number, each) for number, each in self.directories.items()
        })  # fmt: skip

        def add(node: int, path: str) -> None:
            for name, child in sorted(self.directories[node].names(counts[node]).items()):
                if child in self.files:
                    found[path + name] = content(self.files[child])
                else:
                    found[path + name] = None
                    add(child, f"{path}{name}/")

        add(self.root, "")
        return found


def _choices(disk: _Disk, samples: int, chance: random.Random) -> Iterator[tuple[str, Left, Kept]]:
    """Yields the ways in which a power cut may treat pending changes, each with a description."""
    yield "all kept", _all_content, _all_names
    yield "all lost", _no_content, _no_names
    yield "names without content", _no_content, _all_names
    yield "names and sizes without content", _sizes, _all_names
    yield "content without names", _all_content, _no_names
    for number in disk.changed_directories():
        yield f"all but the names in {number}", _all_content, _all_but(number)
        yield f"only the names in {number}", _all_content, _only(number)
    for number in range(samples):
        yield (
            f"mixture {number}",
            lambda file: _torn(file, chance),
            lambda _, directory: chance.randint(0, len(directory.pending)),
        )
    yield "torn content", lambda file: _torn(file, chance), _all_names


def _all_content(file: _File) -> Content:
    return file.content(len(file.pending))


def _no_content(file: _File) -> Content:
    return file.durable


def _sizes(file: _File) -> Content:
    return Content.of(file.durable.data, _all_content(file).size)


def _all_names(_: int, directory: _Directory) -> int:
    return len(directory.pending)


def _no_names(_: int, directory: _Directory) -> int:
    return 0


def _all_but(lost: int) -> Kept:
    return lambda number, directory: 0 if number == lost else len(directory.pending)


def _only(kept: int) -> Kept:
    return lambda number, directory: len(directory.pending) if number == kept else 0


def _torn(file: _File, chance: random.Random) -> Content:
    """Returns sectors of two moments since the last fsync, and a size between theirs."""
    if not file.pending:
        return file.durable
    moments = sorted(chance.randint(0, len(file.pending)) for _ in range(2))
    old, new = (file.content(applied) for applied in moments)
    low, high = sorted((old.size, new.size))
    size = chance.choice((low, high, chance.randint(low, high)))
    written = max(len(old.data), len(new.data))
    data, other = (bytearray(each.data.ljust(written, b"\0")) for each in (old, new))
    for at in range(0, min(size, written), SECTOR):
        if chance.random() < 0.5:
            data[at : at + SECTOR] = other[at : at + SECTOR]
    return Content.of(data, size)


def joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(bytes(memoryview(buffer)) for buffer in buffers)


def exists(name: str, directory: int) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")
