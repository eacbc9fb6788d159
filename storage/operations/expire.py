"""Deletes the segments that retention would delete now, or previews it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..config.kafka import TopicConfig
from ..errors import CleaningAborted
from ..format.files.names import TopicPartition
from ..io.retry import retry_if_gone
from ..log.delete import retention
from ..log.delete.retention import Hold, Outlook, RetentionPlan, RetentionState, Rule
from ..log_dirs.engine import Engine
from .remote import copied_until
from .request import (
    SILENT,
    PartitionFailed,
    PreviewableRequest,
    ProgressListener,
    damage,
    manager_of,
    per_partition,
    writable,
)


@dataclass(frozen=True, slots=True)
class Expire(PreviewableRequest):
    """Deletes what retention allows: by retention.ms, retention.bytes and log start offset; of a
    topic with remote storage, local segments that are also there, by local.retention.ms and .bytes.
    `everything`: also report the segments that are retained."""

    everything: bool = False


@dataclass(frozen=True, slots=True)
class ExpiredSegment:
    """What retention does with a segment. `size` (bytes of the `.log`) and `largest_timestamp` (ms)
    are the values before deletion."""

    topic: str
    partition: int
    base_offset: int
    size: int
    largest_timestamp: int
    outlook: Outlook

    @property
    def is_deleted(self) -> bool:
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
    def of_json(cls, row: Mapping[str, Any]) -> ExpiredSegment:
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
    """The facts of a segment that may no longer exist."""

    base_offset: int
    size: int
    largest_timestamp: int


def expire(
    engine: Engine, request: Expire, progress: ProgressListener = SILENT
) -> Iterator[ExpiredSegment | PartitionFailed]:
    """Applies retention to each partition; yields what it did with each segment, or would do. A
    partition that is being cleaned fails with CleaningAborted. A preview also yields the known
    damage of each log."""

    def work(key: TopicPartition) -> Iterator[ExpiredSegment | PartitionFailed]:
        rows = (
            _applied(engine, key, request) if request.writes else _previewed(engine, key, request)
        )
        yield from (row for row in rows if row.is_deleted or request.everything)
        if not request.writes:
            yield from damage(engine, key)

    doing = "deleting segments" if request.writes else "reading partitions"
    return per_partition(engine, request, doing, work, progress)


def _previewed(engine: Engine, key: TopicPartition, request: Expire) -> list[ExpiredSegment]:
    def look() -> list[ExpiredSegment]:
        config, state = _config_and_state(engine, key)
        now_ms = request.now_ms(engine)
        return _rows(key, config, state, now_ms, retention.plan(state, config, now_ms))

    return retry_if_gone(look)


def _applied(engine: Engine, key: TopicPartition, request: Expire) -> list[ExpiredSegment]:
    """Carries out the plan that a preview shows; it is made while nothing else changes the log."""
    manager = writable(engine)
    config, state = _config_and_state(engine, key)
    now_ms = request.now_ms(engine)
    planned = manager.cleaner.retain(key, manager.writer(*key), now_ms)
    if planned is None:
        raise CleaningAborted("the partition is already being cleaned or changed")
    return _rows(key, config, state, now_ms, planned)


def _config_and_state(engine: Engine, key: TopicPartition) -> tuple[TopicConfig, RetentionState]:
    """Returns what retention depends on. The facts of all segments are read here, because those of
    a deleted segment are no longer available."""
    manager = manager_of(engine)
    if manager is not None:
        writer = manager.writer(*key)
        config, state = writer.config, writer.retention_state()
    else:
        config = engine.topic_config(key[0]).config
        view = engine.log(*key).view()
        state = retention.state_of(view, copied_until(engine, view))
    known = [_Known(each.base_offset, each.size, each.largest_timestamp) for each in state.segments]
    return config, replace(state, segments=known)


def _rows(
    key: TopicPartition,
    config: TopicConfig,
    state: RetentionState,
    now_ms: int,
    planned: RetentionPlan,
) -> list[ExpiredSegment]:
    return [
        ExpiredSegment(
            *key, each.segment.base_offset, each.segment.size, each.segment.largest_timestamp, each
        )
        for each in retention.outlook(state, config, now_ms, planned)
    ]
