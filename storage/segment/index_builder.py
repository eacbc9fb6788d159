"""Computes the entries of a segment's offset and time index from the headers of its batches.

The rule is that of Kafka 3.9 and 4.x (LogSegment.append, LogSegment.recover), batch by batch: a
batch that begins more than `index.interval.bytes` after the last indexed one (or after the first
batch, if none is indexed) gets an entry in the offset index, its last offset and its position; then
the largest timestamp so far gets an entry in the time index if it exceeds that index's last. When
the segment is closed, the largest timestamp is added under the same condition. Append, recovery and
cleaning all use this rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..format.kernels import index as kernel
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from ..format.records.batch import LAST_OFFSET, BatchTable, Int64s
from . import offset_index, time_index
from .time_index import TimestampOffset


@dataclass(frozen=True, slots=True)
class NewEntries:
    """The bytes to append to the two index files; empty if there is no entry."""

    offsets: bytes = b""
    times: bytes = b""


class IndexBuilder:
    """Tracks the indexes of one segment and computes the entries that its next batches add.

    A full index takes no further entries: it stays correct but becomes less precise. Appending
    rolls the segment before that happens.
    """

    __slots__ = ("_interval", "_state", "base_offset", "max_offsets", "max_times")

    def __init__(self, base_offset: int, interval_bytes: int, max_index_bytes: int) -> None:
        """Starts with an empty segment, whose indexes may have `max_index_bytes` each."""
        self.base_offset = base_offset
        self.max_offsets = max_index_bytes // offset_index.ENTRY.size
        self.max_times = max_index_bytes // time_index.ENTRY.size
        self._interval = interval_bytes
        self._state: Int64s = np.zeros(kernel.STATE_SIZE, dtype=np.int64)
        self.resume(0, 0, 0, TimestampOffset(NO_TIMESTAMP, base_offset))

    def resume(
        self, position: int, offset_count: int, time_count: int, last_time: TimestampOffset
    ) -> None:
        """Continues a segment of `position` bytes whose indexes hold `offset_count` and
        `time_count` entries; `last_time` is the last of the time index, (-1, base offset) if none.

        As in Kafka, the interval restarts here, and the last time entry counts as the largest
        timestamp.
        """
        last = (last_time.timestamp, last_time.offset)
        self._state[:] = (position, offset_count, time_count, *last, *last)

    @property
    def state(self) -> Int64s:
        """The state that `add` and `finish` change; restoring an old value undoes their calls."""
        return self._state.copy()

    @state.setter
    def state(self, state: Int64s) -> None:
        self._state = state

    @property
    def offset_count(self) -> int:
        """The number of entries in the offset index."""
        return int(self._state[kernel.OFFSET_COUNT])

    @property
    def time_count(self) -> int:
        """The number of entries in the time index."""
        return int(self._state[kernel.TIME_COUNT])

    @property
    def last_time(self) -> TimestampOffset:
        """The last entry of the time index, (-1, base offset) if it is empty."""
        return self._pair(kernel.LAST_TIME)

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp of the batches so far and the last offset of the first batch that
        has it; (-1, base offset) if there is none."""
        return self._pair(kernel.LARGEST)

    @largest.setter
    def largest(self, largest: TimestampOffset) -> None:
        self._state[kernel.LARGEST :] = (largest.timestamp, largest.offset)

    @property
    def room(self) -> int:
        """The number of batches that can certainly be added before `is_full` becomes true."""
        return min(self.max_offsets - self.offset_count, self.max_times - 1 - self.time_count)

    @property
    def is_full(self) -> bool:
        """Whether no further batch can be indexed (OffsetIndex.isFull, TimeIndex.isFull). The last
        slot of the time index is reserved for `finish`."""
        return self.room <= 0

    def add(self, table: BatchTable) -> NewEntries:
        """Returns the entries that these batches add; they must directly follow the earlier ones in
        the segment's file.

        Raises ValueError if a batch ends more than 2**31 - 1 offsets above the base: it belongs
        into another segment.
        """
        count = len(table)
        if not count:
            return NewEntries()
        last_offset = int(table.rows[-1, LAST_OFFSET])
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            raise ValueError(f"offset {last_offset} is out of range of segment {self.base_offset}")
        offsets = bytearray(count * offset_index.ENTRY.size)
        times = bytearray(count * time_index.ENTRY.size)
        offset_bytes, time_bytes = kernel.index_batches(
            table.rows, self._state, self.base_offset, self._interval,
            self.max_offsets, self.max_times - 1, offsets, times,
        )  # fmt: skip
        return NewEntries(bytes(offsets[:offset_bytes]), bytes(times[:time_bytes]))

    def finish(self) -> bytes:
        """Returns the entry that closing the segment adds to the time index, b"" if none."""
        largest = self.largest
        if largest.timestamp <= self.last_time.timestamp or self.time_count >= self.max_times:
            return b""
        self._state[kernel.LAST_TIME : kernel.LARGEST] = (largest.timestamp, largest.offset)
        self._state[kernel.TIME_COUNT] += 1
        return time_index.ENTRY.pack(largest.timestamp, largest.offset - self.base_offset)

    def _pair(self, at: int) -> TimestampOffset:
        timestamp, offset = self._state[at : at + 2].tolist()
        return TimestampOffset(timestamp, offset)
