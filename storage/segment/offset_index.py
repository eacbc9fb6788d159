"""Reads the offset index (`.index`), which says where in a `.log` to start looking for an offset.

An entry is a relative offset (offset minus the segment's base) and the position of a batch. Brokers
3.9 and 4.x write the last offset of that batch; 2.8 writes the last offset of the whole append that
begins with that batch. Either way, the batch at the position starts at or below the entry's offset,
and so do all before it. The first entry comes after at least one batch, so both numbers are > 0.

The index is derived from the `.log` and never authoritative: it has no checksum, and may be
missing, short, or describe another log. `lookup` returns a hint; the caller checks the batch found
there, and walks from the start of the segment if it does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ..format.kernels import search
from ..io.directory import ReadableFile
from .index_file import WARM_BYTES, Entries, Fields, SegmentIndex

ENTRY = Struct(">ii")  # relative offset, position
_RELATIVE_OFFSET, _POSITION = 0, 1
# First byte and width of each field in an entry.
_PLACES = ((0, 4), (4, 4))


@dataclass(frozen=True, slots=True)
class OffsetPosition:
    """An absolute offset and a byte position in the `.log`."""

    offset: int
    position: int


class OffsetIndex(SegmentIndex[OffsetPosition]):
    """The written entries of a segment's offset index, offsets and positions strictly ascending."""

    layout = ENTRY

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        super().__init__(file, base_offset)
        self.start = OffsetPosition(base_offset, 0)  # the result if no entry can be used

    @staticmethod
    def is_written(data: bytes) -> bool:
        # A broker writes the position second, so it distinguishes a whole entry from a half one.
        return data[4:] != b"\0\0\0\0"

    def lookup(self, offset: int, log_size: int | None = None) -> OffsetPosition:
        """Returns the greatest entry with an offset <= `offset`, (base offset, 0) if none.

        Also returns (base offset, 0) if that entry cannot be right: it and its neighbours do not
        ascend, or its position is not below `log_size`, the size of the `.log` in bytes.
        """
        entries = self._file.entries()
        slot = entries.floor_slot(*_PLACES[_RELATIVE_OFFSET], offset - self.base_offset)
        return self._checked(entries, slot, log_size)

    def around(self, offset: int, log_size: int) -> tuple[int, int, int, int]:
        """Returns the offset and position that `lookup` returns, and the positions of the next two
        entries, `log_size` for a missing one. If all entries are right, the batch of `offset` ends
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
        """Does what `lookup` does, for the greatest entry with a position <= `position`."""
        entries = self._file.entries()
        slot = entries.floor_slot(*_PLACES[_POSITION], position)
        return self._checked(entries, slot, log_size)

    def floor_slot(self, offset: int) -> int:
        """Returns the slot of the greatest entry with an offset <= `offset`, -1 if none."""
        entries = self._file.entries()
        return entries.floor_slot(*_PLACES[_RELATIVE_OFFSET], offset - self.base_offset)

    def _checked(self, entries: Entries, slot: int, log_size: int | None) -> OffsetPosition:
        found = entries.checked(slot, (0, 0), _ascends)
        if found is None or (log_size is not None and found[_POSITION] >= log_size):
            return self.start
        return self._entry(found)

    def _entry(self, fields: Fields) -> OffsetPosition:
        return OffsetPosition(self.base_offset + fields[_RELATIVE_OFFSET], fields[_POSITION])


def _ascends(before: Fields, after: Fields) -> bool:
    return before[0] < after[0] and before[1] < after[1]
