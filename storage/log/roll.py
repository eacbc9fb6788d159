"""When a log goes on in a new segment: Kafka's RollParams and LogSegment.shouldRoll.

Only an append rolls a log, never the time that passes; and where records have timestamps it is they
that say how old a segment is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..config import TopicConfig
from ..format.layout import MAX_INT32
from ..segment.segment_writer import SegmentWriter


class Weight(NamedTuple):
    """What an append is to a segment: its bytes, last offset and largest timestamp."""

    size: int
    last_offset: int
    max_timestamp: int


class Load(NamedTuple):
    """Some appends, one after the other: what they weigh together, how many they are, the bytes of
    the largest, and the largest timestamp of the first."""

    whole: Weight
    appends: int
    largest: int
    first_timestamp: int


def max_segment_ms(config: TopicConfig) -> int:
    """The longest that a segment waits to be rolled. One of a compacted topic must be closed in
    time to be compacted."""
    if "compact" in config.cleanup_policy and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


class Filling:
    """The active segment as it would be after appends that are about to be written to it.

    `first_timestamp`: the largest timestamp of its first append, -1 without one.
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

    def take_all(self, load: Load) -> bool:
        """Whether all these appends go into the segment; then they are in.

        Where it would take a look at each of them to be certain, the answer is no.
        """
        first = self.first_timestamp if self._size else load.first_timestamp
        is_young = self._size == 0 and load.appends == 1
        if (
            self._size + load.whole.size > self._size_limit
            or not (is_young or self._waited_ms(first, load.whole.max_timestamp) <= self._limit_ms)
            or self._room < load.appends
            or load.whole.last_offset > self._highest
        ):
            return False
        self._size += load.whole.size
        self._room -= load.appends
        self.first_timestamp = first
        return True

    def take(self, appends: Sequence[Weight]) -> int:
        """How many of some appends, one after the other, go into the segment before it must be
        rolled; those are in.

        Where its indexes become full on the way it may be fewer, but at least one if that one goes
        in.
        """
        count = 0
        for append in appends:
            if self._must_roll(append):
                break
            self.put(append)
            count += 1
        return count

    def put(self, append: Weight) -> None:
        """Takes in one append whatever it is: the segment was made for it."""
        if self._size == 0:
            self.first_timestamp = append.max_timestamp
        self._size += append.size
        self._room -= 1

    def _must_roll(self, append: Weight) -> bool:
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
