"""The entries of a segment's two indexes, from the headers of its batches.

The rule of Kafka 3.9 and 4.x (LogSegment.append, LogSegment.recover), batch by batch: a batch that
begins more than `index.interval.bytes` behind the one indexed before it (the first batch, where
there is none) gets an entry in the offset index, its last offset and its position, and then the
largest timestamp so far gets one in the time index, if it is larger than that index's last. When
the segment is closed the largest timestamp is added once more. Appending, recovery and cleaning
index alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..format.batch import LAST_OFFSET, BatchTable, Int64s
from ..format.kernels import index as kernel
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from . import offset_index, time_index
from .time_index import TimestampOffset


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Entries as they follow in the files, in bytes; empty where there is none."""

    offsets: bytes = b""
    times: bytes = b""


class IndexBuilder:
    """What the indexes of one segment hold, and what its next batches add to them.

    An index whose room is used up takes no further entry: what it says stays true, it only says
    less. Appending rolls the segment before that happens.
    """

    __slots__ = ("_interval", "_state", "base_offset", "max_offsets", "max_times")

    def __init__(self, base_offset: int, interval_bytes: int, max_index_bytes: int) -> None:
        """For an empty segment, with indexes of at most `max_index_bytes` each."""
        self.base_offset = base_offset
        self.max_offsets = max_index_bytes // offset_index.ENTRY.size
        self.max_times = max_index_bytes // time_index.ENTRY.size
        self._interval = interval_bytes
        self._state: Int64s = np.zeros(kernel.STATE_SIZE, dtype=np.int64)
        self.resume(0, 0, 0, TimestampOffset(NO_TIMESTAMP, base_offset))

    def resume(
        self, position: int, offset_count: int, time_count: int, last_time: TimestampOffset
    ) -> None:
        """Go on with a segment of `position` bytes whose indexes hold so many entries, `last_time`
        the last of the time index ((-1, base offset) without one).

        As in Kafka the interval begins anew here, and the last time entry counts as the largest
        timestamp.
        """
        last = (last_time.timestamp, last_time.offset)
        self._state[:] = (position, offset_count, time_count, *last, *last)

    @property
    def state(self) -> Int64s:
        """What `add` and `finish` change; set back, they have not been called."""
        return self._state.copy()

    @state.setter
    def state(self, state: Int64s) -> None:
        self._state = state

    @property
    def offset_count(self) -> int:
        """Entries in the offset index."""
        return int(self._state[kernel.OFFSET_COUNT])

    @property
    def time_count(self) -> int:
        """Entries in the time index."""
        return int(self._state[kernel.TIME_COUNT])

    @property
    def last_time(self) -> TimestampOffset:
        """The last entry of the time index, (-1, base offset) when there is none."""
        return self._pair(kernel.LAST_TIME)

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp of the batches so far, with the last offset of the first batch that
        has it; (-1, base offset) while there is none."""
        return self._pair(kernel.LARGEST)

    @largest.setter
    def largest(self, largest: TimestampOffset) -> None:
        self._state[kernel.LARGEST :] = (largest.timestamp, largest.offset)

    @property
    def room(self) -> int:
        """How many batches can be added before `is_full` can become true, at least."""
        return min(self.max_offsets - self.offset_count, self.max_times - 1 - self.time_count)

    @property
    def is_full(self) -> bool:
        """Whether no further batch can be indexed (OffsetIndex.isFull, TimeIndex.isFull). The last
        place of the time index is kept for `finish`."""
        return self.room <= 0

    def add(self, table: BatchTable) -> NewEntries:
        """The entries that these batches add; they must follow those before in the segment's file.

        ValueError when a batch ends more than 2**31 - 1 offsets above the base: it belongs into
        another segment.
        """
        count = len(table)
        if not count:
            return NewEntries()
        last_offset = int(table.rows[-1, LAST_OFFSET])
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            raise ValueError(f"offset {last_offset} in a segment that begins at {self.base_offset}")
        offsets = bytearray(count * offset_index.ENTRY.size)
        times = bytearray(count * time_index.ENTRY.size)
        offset_bytes, time_bytes = kernel.index_batches(
            table.rows, self._state, self.base_offset, self._interval,
            self.max_offsets, self.max_times - 1, offsets, times,
        )  # fmt: skip
        return NewEntries(bytes(offsets[:offset_bytes]), bytes(times[:time_bytes]))

    def finish(self) -> bytes:
        """The entry that closing the segment adds to the time index, b"" when there is none."""
        largest = self.largest
        if largest.timestamp <= self.last_time.timestamp or self.time_count >= self.max_times:
            return b""
        self._state[kernel.LAST_TIME : kernel.LARGEST] = (largest.timestamp, largest.offset)
        self._state[kernel.TIME_COUNT] += 1
        return time_index.ENTRY.pack(largest.timestamp, largest.offset - self.base_offset)

    def _pair(self, at: int) -> TimestampOffset:
        timestamp, offset = self._state[at : at + 2].tolist()
        return TimestampOffset(timestamp, offset)
