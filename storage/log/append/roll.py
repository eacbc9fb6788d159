"""Decides when a log rolls to a new segment: Kafka's RollParams and LogSegment.shouldRoll.

Only an append rolls a log, never the passing of time. A segment's age is measured by its records'
timestamps, if they have any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...config.kafka import TopicConfig
from ...format.layout import MAX_INT32
from ...segment.segment_writer import SegmentWriter


class RollParams(NamedTuple):
    """An append as seen by a segment: its bytes, last offset and largest timestamp."""

    size: int
    last_offset: int
    max_timestamp: int


class GroupRollParams(NamedTuple):
    """Consecutive appends: their total, their number, the bytes of the largest, and the largest
    timestamp of the first."""

    whole: RollParams
    appends: int
    largest: int
    first_timestamp: int


def max_segment_ms(config: TopicConfig) -> int:
    """Returns the maximum age at which a segment is rolled. In a compacted topic it must be closed
    in time for compaction."""
    if "compact" in config.cleanup_policy and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


class SegmentFill:
    """The active segment's fill level after appends that are about to be written to it.

    `first_timestamp`: the largest timestamp of its first append, -1 if there is none.
    """

    __slots__ = (
        "_created_ms", "_highest", "_limit_ms", "_now_ms", "_room", "_size", "_size_limit",
        "first_timestamp",
    )  # fmt: skip

    def __init__(self, segment: SegmentWriter, config: TopicConfig, now_ms: int) -> None:
        self._size = segment.size
        self.first_timestamp = segment.first_timestamp
        self._created_ms = segment.created_ms
        self._room = segment.room
        self._highest = segment.base_offset + MAX_INT32
        self._size_limit = config.segment_size
        self._limit_ms = max_segment_ms(config) - segment.jitter_ms
        self._now_ms = now_ms

    def add_all(self, group: GroupRollParams) -> bool:
        """Adds all these appends if they fit into the segment; returns whether they do.

        Returns False if the answer would require inspecting each of them.
        """
        first = self.first_timestamp if self._size else group.first_timestamp
        is_young = self._size == 0 and group.appends == 1
        if (
            self._size + group.whole.size > self._size_limit
            or not (is_young or self._waited_ms(first, group.whole.max_timestamp) <= self._limit_ms)
            or self._room < group.appends
            or group.whole.last_offset > self._highest
        ):
            return False
        self._size += group.whole.size
        self._room -= group.appends
        self.first_timestamp = first
        return True

    def add_until_full(self, appends: Sequence[RollParams]) -> int:
        """Adds appends in order until the segment must be rolled; returns how many were added.

        If its indexes fill up meanwhile it may be fewer, but at least one if the first fits.
        """
        count = 0
        for append in appends:
            if self.should_roll(append):
                break
            self.add(append)
            count += 1
        return count

    def add(self, append: RollParams) -> None:
        """Adds one append unconditionally, as the segment was created for it."""
        if self._size == 0:
            self.first_timestamp = append.max_timestamp
        self._size += append.size
        self._room -= 1

    def should_roll(self, append: RollParams) -> bool:
        return (
            self._size + append.size > self._size_limit
            or (
                self._size > 0
                and self._waited_ms(self.first_timestamp, append.max_timestamp) > self._limit_ms
            )
            or self._room <= 0
            or append.last_offset > self._highest
        )

    def _waited_ms(self, first_timestamp: int, timestamp: int) -> int:
        if first_timestamp >= 0:
            return timestamp - first_timestamp
        return self._now_ms - self._created_ms
