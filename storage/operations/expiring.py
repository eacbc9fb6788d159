"""Applies retention to a log on request, or previews the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import CleaningAborted
from ..io.retry import look_again
from ..log.delete.retention import Hold, Outlook, Rule, outlook, state_of
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import TopicPartition
from ..log_manager import LogManager


@dataclass(frozen=True, slots=True)
class SegmentFuture:
    """What retention does with a segment. `size` (bytes of the `.log`) and `largest_timestamp` (ms)
    are the values before deletion."""

    topic: str
    partition: int
    base_offset: int
    size: int
    largest_timestamp: int
    outlook: Outlook

    @property
    def goes(self) -> bool:
        return self.outlook.rule is not None

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "baseOffset": self.base_offset,
            "size": self.size,
            "largestTimestamp": self.largest_timestamp,
            "rule": self.outlook.rule and str(self.outlook.rule),
            "hold": self.outlook.hold and str(self.outlook.hold),
            "expiresAt": self.outlook.expires_at_ms,
            "bytesToCome": self.outlook.bytes_to_come,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> SegmentFuture:
        """Restores an object from the result of `as_json`."""
        segment = _Known(row["baseOffset"], row["size"], row["largestTimestamp"])
        outlook = Outlook(
            segment,
            row["rule"] and Rule(row["rule"]),
            row["hold"] and Hold(row["hold"]),
            row["expiresAt"],
            row["bytesToCome"],
        )
        return cls(row["topic"], row["partition"], *segment, outlook)


class _Known(NamedTuple):
    """A segment restored from JSON."""

    base_offset: int
    size: int
    largest_timestamp: int


def foretell(engine: Engine, key: TopicPartition, now_ms: int) -> list[SegmentFuture]:
    """Returns what retention would do with each segment at `now_ms`; a broker may be writing to the
    log."""

    def look() -> list[SegmentFuture]:
        state = state_of(engine.log(*key).view())
        return _futures(key, outlook(state, engine.topic_config(key[0]).config, now_ms))

    return look_again(look)


def expire(engine: LogManager, key: TopicPartition) -> list[SegmentFuture]:
    """Applies retention now; returns what it did with each segment. Raises CleaningAborted while
    the log is being cleaned, and what `LogManager.writer` raises."""
    writer = engine.writer(*key)
    found = _futures(key, outlook(writer.retention_state(), writer.config, engine.clock.now_ms()))
    if engine.cleaner.retain(key, writer) is None:
        raise CleaningAborted("the partition is already being cleaned or changed")
    return found


def _futures(key: TopicPartition, outlooks: Iterable[Outlook]) -> list[SegmentFuture]:
    # Read now, because the timestamp of a deleted segment is no longer available.
    return [
        SegmentFuture(
            *key,
            each.segment.base_offset,
            each.segment.size,
            each.segment.largest_timestamp,
            each,
        )
        for each in outlooks
    ]
