"""Reads the time index (`.timeindex`), which maps timestamps to offsets to search from.

An entry (timestamp, relative offset) says that every record up to that offset has at most that
timestamp: the timestamp is the largest of the segment so far, the offset the last one of the batch
with it. Timestamps ascend strictly; offsets do not descend. An entry is added after an entry of the
offset index, and when the segment is rolled or closed, but only if its timestamp exceeds the last
one.

The index is derived from the `.log` and never authoritative. It is empty if records have no
timestamps or if a broker found it missing, and a lookup in a wrong index must not lose a record:
the result is a hint that the caller checks against the batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ..io.directory import ReadableFile
from .index_file import Entries, Fields, SegmentIndex

ENTRY = Struct(">qi")  # timestamp, relative offset
_FIELDS = np.dtype([("timestamp", ">i8"), ("relative", ">i4")])  # the same for numpy
_TIMESTAMP, _RELATIVE_OFFSET = 0, 1
# First byte and width of the timestamp in an entry.
_TIMESTAMP_PLACE = (0, 8)


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A timestamp in milliseconds since 1970 (-1 for none) and an absolute offset."""

    timestamp: int
    offset: int


class TimeIndex(SegmentIndex[TimestampOffset]):
    """The written entries of a segment's time index.

    An entry of zeros, written for a record at the base offset with timestamp 0, looks like padding
    and is ignored if it is the last: it says no more than having no entry.
    """

    layout = ENTRY

    def __init__(self, file: ReadableFile, base_offset: int) -> None:
        super().__init__(file, base_offset)
        self.start = TimestampOffset(-1, base_offset)  # the result if no entry can be used
        self._risen = (0, True)  # number of entries checked by `ascends`, and the result

    @staticmethod
    def is_written(data: bytes) -> bool:
        return any(data)

    def last_entry(self) -> TimestampOffset:
        """Returns the entry with the largest indexed timestamp, (-1, base offset) if none."""
        entries = self._file.entries()
        return self._checked(entries, entries.count - 1)

    def ascends(self) -> bool:
        """Returns whether the whole index ascends in time and offset. Kafka's indexes do; a search
        in any other could find anything. Entries checked before are not read again."""
        count = self._file.entries().count
        checked, rises = self._risen
        if count != checked:
            if count < checked:
                checked, rises = 0, True
            first = max(checked - 1, 0)
            fields = self._fields(first, count)
            rises = (
                rises
                and bool((fields["timestamp"][1:] > fields["timestamp"][:-1]).all())
                and bool((fields["relative"][1:] >= fields["relative"][:-1]).all())
            )
            self._risen = (count, rises)
        return rises

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Returns the last entry with a timestamp <= `timestamp`, (-1, base offset) if none.

        Also returns (-1, base offset) if that entry cannot be right because it and its neighbours
        do not ascend.
        """
        entries = self._file.entries()
        return self._checked(entries, entries.floor_slot(*_TIMESTAMP_PLACE, timestamp))

    def floor_slot(self, timestamp: int) -> int:
        """Returns the slot of the last entry with a timestamp <= `timestamp`, -1 if none."""
        return self._file.entries().floor_slot(*_TIMESTAMP_PLACE, timestamp)

    def columns(self, low: int, high: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the timestamps and absolute offsets of slots [`low`, `high`), unchecked, or of
        fewer if there are no more; int64 of shape (n,)."""
        fields = self._fields(low, min(high, len(self)))
        offsets = fields["relative"].astype(np.int64) + self.base_offset
        return fields["timestamp"].astype(np.int64), offsets

    def _fields(self, low: int, high: int) -> NDArray[np.void]:
        size = ENTRY.size
        data = self._file.file.read(low * size, max(high - low, 0) * size)
        return np.frombuffer(data[: len(data) // size * size], dtype=_FIELDS)

    def _checked(self, entries: Entries, slot: int) -> TimestampOffset:
        found = entries.checked(slot, (-1, 0), _ascends)
        return self.start if found is None else self._entry(found)

    def _entry(self, fields: Fields) -> TimestampOffset:
        return TimestampOffset(fields[_TIMESTAMP], self.base_offset + fields[_RELATIVE_OFFSET])


def _ascends(before: Fields, after: Fields) -> bool:
    return before[0] < after[0] and before[1] <= after[1]
