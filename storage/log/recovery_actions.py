"""What recovery changes in a partition's directory: one action after the other, and doing them.

Actions come in stages. What is in a later stage must not be on the disk before what is in an
earlier one, so the directory is synced between them; in a stage the order does not matter. Stopped
anywhere, by a signal or a power cut, the next recovery finds a state from which it comes to the
same end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..durable import TEMPORARY_SUFFIX, WritableDirectory
from ..errors import printable

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Remove:
    """The file `name` goes."""

    name: str
    why: str

    def __str__(self) -> str:
        return f"remove {printable(self.name)}: {self.why}"

    def apply(self, directory: WritableDirectory) -> None:
        directory.remove(self.name, missing_ok=True)


@dataclass(frozen=True, slots=True)
class Rename:
    """`old` becomes `new`, in the place of what has that name."""

    old: str
    new: str
    why: str

    def __str__(self) -> str:
        return f"rename {self.old} to {self.new}: {self.why}"

    def apply(self, directory: WritableDirectory) -> None:
        directory.rename(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Cut:
    """Of the file `name`, which has `was` bytes, the first `size` stay."""

    name: str
    size: int
    was: int
    why: str

    def __str__(self) -> str:
        return f"cut {self.name} from {self.was} to {self.size} bytes: {self.why}"

    def apply(self, directory: WritableDirectory) -> None:
        file = directory.writable(self.name)
        file.truncate(self.size)
        file.sync()


@dataclass(frozen=True, slots=True)
class Write:
    """`data` becomes the whole content of the file `name`, in one step."""

    name: str
    data: bytes
    why: str

    def __str__(self) -> str:
        return f"write {self.name}, {len(self.data)} bytes: {self.why}"

    def apply(self, directory: WritableDirectory) -> None:
        temporary = self.name + TEMPORARY_SUFFIX
        file = directory.create(temporary)
        file.write(0, self.data)
        file.sync()
        directory.rename(temporary, self.name)


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes [start, end) of the file `source` become the file `target`, which gets the source's
    mtime."""

    source: str
    start: int
    end: int
    target: str
    why: str

    def __str__(self) -> str:
        what = f"bytes {self.start} to {self.end} of {self.source}"
        return f"copy {what} to {self.target}: {self.why}"

    def apply(self, directory: WritableDirectory) -> None:
        source = directory.open(self.source)
        target = directory.create(self.target)
        for position in range(self.start, self.end, _CHUNK_BYTES):
            data = source.read(position, min(_CHUNK_BYTES, self.end - position))
            target.write(position - self.start, data)
        target.set_mtime_ns(source.stat().st_mtime_ns)
        target.sync()


Action = Remove | Rename | Cut | Write | Copy
Stages = tuple[tuple[Action, ...], ...]


def apply_stages(stages: Iterable[Iterable[Action]], directory: WritableDirectory) -> None:
    """Carries them out, durably. OSError as it comes; what was done until then may stay."""
    for stage in stages:
        for action in stage:
            action.apply(directory)
        directory.sync()
