"""Explains why each segment of a partition still exists: what retention and the cleaner do with it.

Combines `log.retention.outlook` with `cleaner.plan`, and adds which transaction holds back the
cleaner, until when a segment is too young for it, when the next tombstones may be discarded, and
which segments a cleaner is rewriting. Everything is derived from files and a time, so that it works
for a future time, and beside a live broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..cleaner import plan as cleaning
from ..cleaner.horizons import NO_HORIZON, next_horizon
from ..cleaner.plan import COMPACT, Bound, CleanPlan
from ..config.kafka import TopicConfig
from ..format.files.names import FileKind, FileState, parse_segment_file
from ..io.directory import Directory
from ..io.retry import retry_if_gone
from ..log.delete import retention
from ..log.delete.retention import Outlook
from ..log.read.lookup import find_batch
from ..log.read.view import View
from ..log_dirs.engine import Engine
from .remote import copied_until
from .request import SILENT, PartitionFailed, ProgressListener, damage


@dataclass(frozen=True, slots=True)
class OldestTransaction:
    """The transaction that holds the last stable offset; `timestamp`, in ms since 1970, is the
    largest of its first batch."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class Standing:
    """How the cleaner treats a segment.

    `cleanable_at_ms`: when it is old enough to be cleaned, if that is what it waits for.
    `tombstones_go_at_ms`: the lowest delete horizon of its tombstones and markers, None if none has
    one, as before magic 2. An earlier cleaning retains them; reaching it does not start a cleaning.
    `is_being_written`: the cleaner is writing or swapping in a new segment with this base offset.
    """

    bound: Bound
    cleanable_at_ms: int | None
    producer_id: int | None
    tombstones_go_at_ms: int | None
    is_being_written: bool


@dataclass(frozen=True, slots=True)
class SegmentWhy:
    """`upper_bound`: the offset after the segment. `largest_timestamp`: of its records, in ms since
    1970, read when the segment existed. `standing` is None if the topic is never compacted.
    `is_remote`: it is in remote storage."""

    upper_bound: int
    largest_timestamp: int
    outlook: Outlook
    standing: Standing | None
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """Explains a partition's segments as of the engine's time."""

    topic: str
    partition: int

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition."""
        engine.partition_dir(self.topic, self.partition)
        return ()


@dataclass(frozen=True, slots=True)
class ExplainedPartition:
    """A partition at `now_ms`. `plan` is None if `cleanup.policy` does not include compact."""

    view: View
    config: TopicConfig
    now_ms: int
    plan: CleanPlan | None
    transaction: OldestTransaction | None
    segments: tuple[SegmentWhy, ...]

    def as_json(self) -> dict[str, Any]:
        """Returns JSON; times are milliseconds since 1970, null means never, none or not
        applicable."""
        return {
            "topic": self.view.topic,
            "partition": self.view.partition,
            "at": self.now_ms,
            "logStartOffset": self.view.start_offset,
            "localLogStartOffset": self.view.local_start_offset,
            "logEndOffset": self.view.end_offset,
            "lastStableOffset": self.view.last_stable_offset,
            "cleanupPolicy": list(self.config.cleanup_policy),
            "retentionMs": self.config.retention_ms,
            "retentionBytes": self.config.retention_bytes,
            "compaction": self.plan and _plan_json(self.plan),
            "oldestTransaction": self.transaction and _transaction_json(self.transaction),
            "segments": [_segment_json(each) for each in self.segments],
        }


def why(
    engine: Engine, request: Why, progress: ProgressListener = SILENT
) -> Iterator[ExplainedPartition | PartitionFailed]:
    """Yields what keeps each segment, see `explained`, and then the known damage of the log."""
    topic, partition = request.topic, request.partition
    now_ms = engine.clock.now_ms()

    def look() -> ExplainedPartition:
        view = engine.log(topic, partition).view()
        log_dir = engine.partition_dir(topic, partition).log_dir
        checkpoint = log_dir.cleaner_offsets.get((topic, partition))
        config, copied = engine.topic_config(topic).config, copied_until(engine, view)
        return explained(view, config, checkpoint, now_ms, copied)

    yield retry_if_gone(look)
    yield from damage(engine, (topic, partition))


def explained(
    view: View,
    config: TopicConfig,
    checkpoint: int | None,
    now_ms: int,
    copied: int | None = None,
) -> ExplainedPartition:
    """Returns what keeps each segment at `now_ms`. `checkpoint`: the partition's offset in the
    cleaner-offset-checkpoint, None if it has none; `copied`: see `copied_until`.

    Raises CorruptError, OSError or SegmentGone as reading does.
    """
    outlooks = retention.outlook_of(view, config, now_ms, copied)
    transaction = _oldest_transaction(view)
    planned = None
    standings: list[Standing | None] = [None] * len(outlooks)
    if COMPACT in config.cleanup_policy:
        state = cleaning.state_of(view, checkpoint)
        planned = cleaning.plan(state, config, now_ms)
        standings = list(_standings(view, config, planned, transaction))
    bounds = [segment.base_offset for segment in view.segments[1:]] + [view.end_offset]
    largest = [each.segment.largest_timestamp for each in outlooks]
    remote = [each.is_remote for each in view.segments]
    segments = tuple(map(SegmentWhy, bounds, largest, outlooks, standings, remote))
    return ExplainedPartition(view, config, now_ms, planned, transaction, segments)


def _standings(
    view: View, config: TopicConfig, planned: CleanPlan, transaction: OldestTransaction | None
) -> Iterator[Standing]:
    written = _being_written(view.segments[0].files.directory) if len(view.segments) else set()
    producer_id = transaction.producer_id if transaction is not None else None
    for segment, bound in zip(cleaning.segments_of(view), planned.bounds, strict=True):
        old_enough = None
        if bound is Bound.LAG:
            old_enough = segment.largest_timestamp + config.min_compaction_lag_ms
        horizon = next_horizon(segment.segment, view.context)
        yield Standing(
            bound,
            old_enough,
            producer_id if bound is Bound.UNSTABLE else None,
            None if horizon == NO_HORIZON else horizon,
            segment.base_offset in written,
        )


def _being_written(directory: Directory) -> set[int]:
    """Returns the base offsets of segments that a cleaner has not yet swapped in, including those
    of a cleaner that was killed."""
    names = (parse_segment_file(entry.name) for entry in directory.list())
    return {
        name.base_offset
        for name in names
        if name is not None
        and name.kind is FileKind.LOG
        and name.state in (FileState.CLEANED, FileState.SWAP)
    }


def _oldest_transaction(view: View) -> OldestTransaction | None:
    """Returns the transaction whose first batch is at the last stable offset, None if there is
    none."""
    offset = view.last_stable_offset
    if offset >= view.end_offset:
        return None
    segment = view.segments[max(view.segments.floor_index(offset), 0)]
    header, _ = find_batch(segment, offset, view.context.limits.max_batch_bytes)
    if header is None or not header.is_transactional:
        return None
    return OldestTransaction(
        header.producer_id, header.producer_epoch, header.base_offset, header.max_timestamp
    )


def _plan_json(planned: CleanPlan) -> dict[str, Any]:
    return {
        "firstDirtyOffset": planned.first_dirty,
        "firstUncleanableOffset": planned.first_uncleanable,
        "cleanBytes": planned.clean_bytes,
        "cleanableBytes": planned.cleanable_bytes,
        "dirtyRatio": round(planned.ratio, 4),
        "minCleanableDirtyRatio": planned.min_ratio,
        "overdueAt": planned.overdue_at_ms,
        "isOverdue": planned.is_overdue,
        "isEligible": planned.is_eligible,
    }


def _transaction_json(found: OldestTransaction) -> dict[str, int]:
    return {
        "producerId": found.producer_id,
        "producerEpoch": found.producer_epoch,
        "firstOffset": found.first_offset,
        "timestamp": found.timestamp,
    }


def _segment_json(found: SegmentWhy) -> dict[str, Any]:
    outlook, standing = found.outlook, found.standing
    return {
        "baseOffset": outlook.segment.base_offset,
        "upperBound": found.upper_bound,
        "size": outlook.segment.size,
        "isRemote": found.is_remote,
        "largestTimestamp": found.largest_timestamp,
        "retention": {
            "rule": outlook.rule and str(outlook.rule),
            "hold": outlook.hold and str(outlook.hold),
            "expiresAt": outlook.expires_at_ms,
            "bytesToCome": outlook.bytes_to_come,
        },
        "compaction": standing and _standing_json(standing),
    }


def _standing_json(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.bound.name.lower(),
        "why": str(standing.bound),
        "cleanableAt": standing.cleanable_at_ms,
        "producerId": standing.producer_id,
        "tombstonesGoAt": standing.tombstones_go_at_ms,
        "isBeingWritten": standing.is_being_written,
    }
