"""Reads the fixed-size, ordered entries of an `.index` or `.timeindex` file while a broker may be
writing it.

A live broker preallocates an index (10 MB), writes entries from the front through a memory map, and
truncates the zeros after the last one when the segment is rolled or closed; a crash leaves them.
Neither a header nor a count says where the entries end (Kafka's AbstractIndex keeps that in
memory), so:

1. The written prefix is found by bisection with `pread`: written entries, then zeros.
2. Only that prefix is mapped. The pages after it disappear when the broker truncates the file, and
   access to a mapped page past the end of the file is a SIGBUS, which no `except` catches.
3. Before each use of a map, the file's size is checked; if the file no longer holds the prefix, it
   is measured and mapped again.
4. Count and map change together, as one value, so that any thread may do lookups while another
   refreshes; the old map stays valid until its last user drops it.

An index uses two descriptors: the file's and the map's own duplicate of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from mmap import mmap
from struct import Struct
from typing import ClassVar, Generic, Self, TypeVar

from ..format.kernels import search
from ..format.layout import MAX_OFFSET
from ..io.disk import DirFd, OpenFile

E = TypeVar("E")
Fields = tuple[int, int]
# Whether an entry may be followed by another.
Ascends = Callable[[Fields, Fields], bool]

# Kafka's AbstractIndex.warmEntries: nearly all lookups fall into the last 8192 bytes (consumers
# read near the end), so these are searched separately and their pages stay in the cache. More would
# not fit in three 4096-byte pages; less would miss the lookups of replicas that lag a little.
WARM_BYTES = 8192

# Read size when all entries are read.
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Entries:
    """The written entries of an index file at one moment."""

    layout: Struct
    count: int
    memory: mmap | bytes  # at least count * layout.size bytes

    def __getitem__(self, slot: int) -> Fields:
        """Returns the fields of entry `slot`, 0 <= slot < count."""
        if not 0 <= slot < self.count:
            raise IndexError(f"entry {slot} of {self.count}")
        fields: Fields = self.layout.unpack_from(self.memory, slot * self.layout.size)
        return fields

    def slice(self, low: int, high: int) -> list[Fields]:
        """Returns the fields of entries `low` >= 0 up to `high`, or fewer if there are no more."""
        size = self.layout.size
        return list(self.layout.iter_unpack(self.memory[low * size : min(high, self.count) * size]))

    def checked(self, slot: int, lowest: Fields, ascends: Ascends) -> Fields | None:
        """Returns the fields of entry `slot`; None if there is none, or if it cannot be right
        because `lowest`, its neighbours and it do not ascend."""
        if slot < 0:
            return None
        near, at = self.slice(max(slot - 1, 0), slot + 2), min(slot, 1)
        found = near[at]
        if not ascends(lowest, found) or (at > 0 and not ascends(near[at - 1], found)):
            return None
        if at + 1 < len(near) and not ascends(found, near[at + 1]):
            return None
        return found

    def floor_slot(self, at: int, width: int, target: int) -> int:
        """Returns the greatest slot whose field, of `width` bytes from byte `at` on, is <=
        `target`, -1 if none. If the field does not ascend with the slot, the result is any slot or
        -1."""
        size = self.layout.size
        target = max(-MAX_OFFSET, min(target, MAX_OFFSET))
        slot: int = search.floor_slot(
            self.memory, self.count, size, at, width, target, WARM_BYTES // size
        )
        return slot


class IndexFile:
    """The written entries of one index file."""

    def __init__(self, file: OpenFile, layout: Struct, is_written: Callable[[bytes], bool]) -> None:
        """`is_written` distinguishes an entry's bytes from padding; it must be true for a prefix of
        the file's entries only."""
        self.file = file
        self._layout = layout
        self._is_written = is_written
        self._entries = Entries(layout, 0, b"")
        self.refresh()

    def refresh(self) -> bool:
        """Looks for entries written or truncated since the last call; returns whether their number
        changed.

        Takes three system calls if nothing changed.
        """
        old = self._entries
        while True:
            count = self._count_written(old.count)
            if count == old.count:
                return False
            try:
                self._entries = Entries(self._layout, count, self._map(count))
            except ValueError:  # the file was truncated after counting, so count again
                continue
            return True

    def entries(self) -> Entries:
        """Returns the entries found so far, which are safe to access now."""
        entries = self._entries
        if self.file.size() < entries.count * self._layout.size:
            self.refresh()
            entries = self._entries
        return entries

    def stream(self) -> Iterator[Fields]:
        """Yields the fields of all entries in order. Reads instead of mapping, because the caller
        may take long."""
        size = self._layout.size
        end = self._entries.count * size
        block = _BLOCK_BYTES // size * size
        for position in range(0, end, block):
            data = self.file.read(position, min(block, end - position))
            yield from self._layout.iter_unpack(data[: len(data) // size * size])

    def _map(self, count: int) -> mmap | bytes:
        """Maps `count` entries. mmap raises ValueError if the file is shorter by now."""
        if count == 0:
            return b""
        return self.file.content(count * self._layout.size)

    def _count_written(self, known: int) -> int:
        """Returns the number of written entries, of which `known` have been seen before."""
        slots = self.file.size() // self._layout.size
        # An entry of zeros followed by a written entry is itself written: a time index starts so
        # if the record at the base offset has timestamp 0.
        if known >= slots or not (self._written_at(known) or self._written_at(known + 1)):
            return min(known, slots)
        if self._written_at(slots - 1):
            return slots
        written, padding = known, slots - 1
        while padding - written > 1:
            middle = (written + padding) // 2
            if self._written_at(middle):
                written = middle
            else:
                padding = middle
        return padding

    def _written_at(self, slot: int) -> bool:
        size = self._layout.size
        data = self.file.read(slot * size, size)
        return len(data) == size and self._is_written(data)


class SegmentIndex(ABC, Generic[E]):
    """The written entries of one of a segment's indexes, as objects of the class `E`."""

    layout: ClassVar[Struct]

    def __init__(self, file: OpenFile, base_offset: int) -> None:
        self.base_offset = base_offset
        self._file = IndexFile(file, self.layout, self.is_written)

    @classmethod
    def open(cls, directory: DirFd, name: str, base_offset: int) -> Self:
        """Opens the index in file `name`. Raises SegmentGone if there is no such file."""
        return cls(directory.open(name), base_offset)

    @staticmethod
    @abstractmethod
    def is_written(data: bytes) -> bool:
        """Whether these are the bytes of an entry, not of padding; see IndexFile."""

    @property
    def path(self) -> str:
        return self._file.file.path

    @property
    def identity(self) -> tuple[int, int]:
        """The identity of the file."""
        return self._file.file.identity

    def is_removed(self) -> bool:
        """See `OpenFile.is_removed`."""
        return self._file.file.is_removed()

    def refresh(self) -> bool:
        """Picks up changes of the file; returns whether the number of entries changed."""
        return self._file.refresh()

    def __len__(self) -> int:
        return self._file.entries().count

    def entry(self, slot: int) -> E:
        """Returns entry `slot`, 0 <= slot < len. Raises IndexError otherwise."""
        return self._entry(self._file.entries()[slot])

    def entries(self) -> Iterator[E]:
        """Yields all entries in file order, unchecked."""
        return map(self._entry, self._file.stream())

    @abstractmethod
    def _entry(self, fields: Fields) -> E:
        """Returns the entry that a slot's fields are."""
