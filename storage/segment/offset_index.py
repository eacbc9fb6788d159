"""`.index`: where in the segment's `.log` to start looking for an offset.

An entry is a relative offset (offset minus the segment's base) and the position of a batch: by 3.9
and 4.x that batch's own last offset; by 2.8 the last offset of a whole append, which the batch at
the position begins. Either way the batch at the position starts at or below the entry's offset, and
so does every one before it. An entry comes only after at least one batch, so both numbers are > 0.

Rebuilt from the `.log`, never truth: it has no checksum, it may be missing, short, or describe
another log. `lookup` gives a hint; the caller checks the batch that it finds there, and walks from
the start of the segment if it does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from ..disk import Directory, OpenFile
from ..format.kernels import search
from .index_file import WARM_BYTES, Entries, IndexFile

ENTRY = Struct(">ii")  # relative offset, position
_RELATIVE_OFFSET, _POSITION = 0, 1
# Where these are in an entry: first byte, and how many.
_PLACES = ((0, 4), (4, 4))


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """An absolute offset and a byte position in the `.log`."""

    offset: int
    position: int


class OffsetIndex:
    """The written entries of a segment's offset index, offsets and positions strictly ascending."""

    def __init__(self, file: OpenFile, base_offset: int) -> None:
        self.base_offset = base_offset
        self.start = OffsetPosition(base_offset, 0)  # the answer where no entry can be used
        self._file = IndexFile(file, ENTRY, _is_written)

    @classmethod
    def open(cls, directory: Directory, name: str, base_offset: int) -> OffsetIndex:
        """The index in file `name`. SegmentGone when there is no such file."""
        return cls(directory.open(name), base_offset)

    @property
    def path(self) -> str:
        return self._file.file.path

    def is_removed(self) -> bool:
        """See `OpenFile.is_removed`."""
        return self._file.file.is_removed()

    def refresh(self) -> bool:
        """Takes in what was written since; true when entries came or went."""
        return self._file.refresh()

    def __len__(self) -> int:
        return self._file.entries().count

    def entry(self, slot: int) -> OffsetPosition:
        """Entry `slot`, 0 <= slot < len. IndexError otherwise."""
        return self._entry(self._file.entries()[slot])

    def entries(self) -> Iterator[OffsetPosition]:
        """All entries in file order, as they are."""
        return map(self._entry, self._file.stream())

    def lookup(self, offset: int, log_size: int | None = None) -> OffsetPosition:
        """The greatest entry with an offset <= `offset`; (base offset, 0) when there is none.

        Also (base offset, 0) when that entry cannot be true: it does not ascend from its neighbour
        or to it, or lies beyond `log_size`, the bytes of the `.log`.
        """
        entries = self._file.entries()
        slot = entries.floor_slot(*_PLACES[_RELATIVE_OFFSET], offset - self.base_offset)
        return self._checked(entries, slot, log_size)

    def around(self, offset: int, log_size: int) -> tuple[int, int, int, int]:
        """Offset and position that ``lookup`` says, and the positions of the two entries behind it;
        `log_size` for one that is not there. If all entries are true, the batch of `offset` ends
        before the second."""
        entries = self._file.entries()
        relative, position, first, second = search.enclosing(
            entries.memory, entries.count, offset - self.base_offset, WARM_BYTES // ENTRY.size
        )
        if position >= log_size:
            relative = position = 0
        return (
            self.base_offset + relative,
            position,
            first if first >= 0 else log_size,
            second if second >= 0 else log_size,
        )

    def lookup_position(self, position: int, log_size: int | None = None) -> OffsetPosition:
        """As `lookup`, for the greatest entry with a position <= `position`."""
        entries = self._file.entries()
        slot = entries.floor_slot(*_PLACES[_POSITION], position)
        return self._checked(entries, slot, log_size)

    def floor_slot(self, offset: int) -> int:
        """The number of the greatest entry with an offset <= `offset`, -1 when there is none."""
        entries = self._file.entries()
        return entries.floor_slot(*_PLACES[_RELATIVE_OFFSET], offset - self.base_offset)

    def _checked(self, entries: Entries, slot: int, log_size: int | None) -> OffsetPosition:
        if slot < 0:
            return self.start
        near, at = entries.slice(max(slot - 1, 0), slot + 2), min(slot, 1)
        found = near[at]
        if not _ascends((0, 0), found):
            return self.start
        if at > 0 and not _ascends(near[at - 1], found):
            return self.start
        if at + 1 < len(near) and not _ascends(found, near[at + 1]):
            return self.start
        if log_size is not None and found[_POSITION] >= log_size:
            return self.start
        return self._entry(found)

    def _entry(self, fields: tuple[int, int]) -> OffsetPosition:
        return OffsetPosition(self.base_offset + fields[_RELATIVE_OFFSET], fields[_POSITION])


def _ascends(before: tuple[int, int], after: tuple[int, int]) -> bool:
    return before[0] < after[0] and before[1] < after[1]


def _is_written(data: bytes) -> bool:
    # The position is what a broker writes second, so it is what tells a whole entry from a half
    # one.
    return data[4:] != b"\0\0\0\0"
