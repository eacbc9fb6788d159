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
from typing import NamedTuple

from ..format.batch import LAST_OFFSET, MAX_TIMESTAMP, POSITION, BatchTable
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from . import offset_index, time_index
from .time_index import TimestampOffset


@dataclass(frozen=True, slots=True)
class NewEntries:
    """Entries as they follow in the files, in bytes; empty where there is none."""

    offsets: bytes = b""
    times: bytes = b""


class BuilderState(NamedTuple):
    """Where an IndexBuilder stands: the position indexed last, how many entries there are, the last
    in the time index, and the largest timestamp so far."""

    indexed: int
    offset_count: int
    time_count: int
    last_time: TimestampOffset
    largest: TimestampOffset


class IndexBuilder:
    """What the indexes of one segment hold, and what its next batches add to them.

    `largest` is the largest timestamp of the batches so far, with the last offset of the first
    batch that has it; (-1, base offset) while there is none.

    An index whose room is used up takes no further entry: what it says stays true, it only says
    less. Appending rolls the segment before that happens.
    """

    __slots__ = (
        "_indexed", "_interval", "base_offset", "largest", "last_time", "max_offsets", "max_times",
        "offset_count", "time_count",
    )  # fmt: skip

    def __init__(self, base_offset: int, interval_bytes: int, max_index_bytes: int) -> None:
        """For an empty segment, with indexes of at most `max_index_bytes` each."""
        self.base_offset = base_offset
        self.max_offsets = max_index_bytes // offset_index.ENTRY.size
        self.max_times = max_index_bytes // time_index.ENTRY.size
        self._interval = interval_bytes
        self.resume(0, 0, 0, TimestampOffset(NO_TIMESTAMP, base_offset))

    def resume(
        self, position: int, offset_count: int, time_count: int, last_time: TimestampOffset
    ) -> None:
        """Go on with a segment of `position` bytes whose indexes hold so many entries, `last_time`
        the last of the time index ((-1, base offset) without one).

        As in Kafka the interval begins anew here, and the last time entry counts as the largest
        timestamp.
        """
        self.offset_count = offset_count
        self.time_count = time_count
        self.last_time = self.largest = last_time
        self._indexed = position

    @property
    def state(self) -> BuilderState:
        """What `add` and `finish` change; set back, they have not been called."""
        return BuilderState(
            self._indexed, self.offset_count, self.time_count, self.last_time, self.largest
        )

    @state.setter
    def state(self, state: BuilderState) -> None:
        (self._indexed, self.offset_count, self.time_count, self.last_time, self.largest) = state

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
        if not len(table):
            return NewEntries()
        last_offset = int(table.rows[-1, LAST_OFFSET])
        if not 0 <= last_offset - self.base_offset <= MAX_INT32:
            raise ValueError(f"offset {last_offset} in a segment that begins at {self.base_offset}")
        offsets: list[bytes] = []
        times: list[bytes] = []
        largest, at = self.largest.timestamp, self.largest.offset
        fields = table.rows[:, (POSITION, LAST_OFFSET, MAX_TIMESTAMP)].tolist()
        for position, offset, timestamp in fields:
            if timestamp > largest:
                largest, at = timestamp, offset
            if position - self._indexed > self._interval:
                self.largest = TimestampOffset(largest, at)
                offsets.append(self._offset_entry(offset, position))
                times.append(self._time_entry(self.max_times - 1))
        self.largest = TimestampOffset(largest, at)
        return NewEntries(b"".join(offsets), b"".join(times))

    def finish(self) -> bytes:
        """The entry that closing the segment adds to the time index, b"" when there is none."""
        return self._time_entry(self.max_times)

    def _offset_entry(self, offset: int, position: int) -> bytes:
        self._indexed = position
        if self.offset_count >= self.max_offsets:
            return b""
        self.offset_count += 1
        return offset_index.ENTRY.pack(offset - self.base_offset, position)

    def _time_entry(self, room: int) -> bytes:
        """One for the largest timestamp, if it is later than the last one's (maybeAppend)."""
        if self.largest.timestamp <= self.last_time.timestamp or self.time_count >= room:
            return b""
        self.last_time = self.largest
        self.time_count += 1
        return time_index.ENTRY.pack(self.largest.timestamp, self.largest.offset - self.base_offset)
