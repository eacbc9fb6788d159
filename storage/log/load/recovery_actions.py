"""The actions by which recovery changes a partition's directory, and their execution.

Actions are grouped into stages. No action may reach the disk before those of earlier stages, so the
directory is synced between stages; within a stage the order does not matter. If a signal or power
failure interrupts it anywhere, the next recovery reaches the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...io.durable import TEMPORARY_SUFFIX, WritableDirFd
from ...wording import printable

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Remove:
    """Removes the file `name`."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"remove {printable(self.name)}: {self.why}"

    def apply(self, directory: WritableDirFd) -> None:
        directory.remove(self.name, missing_ok=True)


@dataclass(frozen=True, slots=True)
class Rename:
    """Renames `old` to `new`, replacing an existing file."""

    old: str
    new: str
    why: str

    def __str__(self) -> str:
        return f"rename {self.old} to {self.new}: {self.why}"

    def apply(self, directory: WritableDirFd) -> None:
        directory.rename(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Cut:
    """Truncates the file `name` from `was` to `size` bytes."""

    name: str
    size: int
    was: int
    why: str

    def __str__(self) -> str:
        return f"cut {self.name} from {self.was} to {self.size} bytes: {self.why}"

    def apply(self, directory: WritableDirFd) -> None:
        file = directory.writable(self.name)
        file.truncate(self.size)
        file.sync()


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Replaces the content of the file `name` with `data`, atomically."""

    name: str
    data: bytes
    why: str

    def __str__(self) -> str:
        return f"write {self.name}, {len(self.data)} bytes: {self.why}"

    def apply(self, directory: WritableDirFd) -> None:
        temporary = self.name + TEMPORARY_SUFFIX
        file = directory.create(temporary)
        file.write(0, self.data)
        file.sync()
        directory.rename(temporary, self.name)


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """Copies bytes [start, end) of the file `source` to the file `target`, which gets the same
    mtime."""

    source: str
    start: int
    end: int
    target: str
    why: str

    def __str__(self) -> str:
        what = f"bytes {self.start} to {self.end} of {self.source}"
        return f"copy {what} to {self.target}: {self.why}"

    def apply(self, directory: WritableDirFd) -> None:
        source = directory.open(self.source)
        target = directory.create(self.target)
        for position in range(self.start, self.end, _CHUNK_BYTES):
            data = source.read(position, min(_CHUNK_BYTES, self.end - position))
            target.write(position - self.start, data)
        target.set_mtime_ns(source.stat().st_mtime_ns)
        target.sync()


Action = Remove | Rename | Cut | WriteFile | CopyBytes
Stages = tuple[tuple[Action, ...], ...]


def apply_stages(stages: Iterable[Iterable[Action]], directory: WritableDirFd) -> None:
    """Performs all stages durably. An OSError is passed on; earlier actions may remain applied."""
    for stage in stages:
        for action in stage:
            action.apply(directory)
        directory.sync()
