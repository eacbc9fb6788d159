"""Determines what of a log can be cleaned, whether that is worth it, and which segments are merged.

Follows Kafka's `LogCleanerManager.cleanableOffsets`, `LogToClean` and
`Cleaner.groupSegmentsBySize`. Nothing is cleaned here and no clock is read: `plan` with next week's
time returns what could be cleaned next week.

Offsets below `first_dirty` are already clean. The part to clean ends at `first_uncleanable`, the
base offset of the first segment that is active, reaches above the last stable offset or has a
record younger than `min.compaction.lag.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar

from ..config.kafka import UNLIMITED, TopicConfig
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from ..log.delete.retention import RetainableSegment, ViewSegment
from ..log.read.lookup import header_at
from ..log.read.view import View
from ..log.state.producer_state import ProducerStateEntry
from ..segment import offset_index, time_index

COMPACT = "compact"  # in cleanup.policy


def compacts(config: TopicConfig) -> bool:
    """Returns whether a log is compacted. One with remote storage never is, as Kafka permits no
    such topic: keys whose tombstones were discarded would have their values there again."""
    return COMPACT in config.cleanup_policy and not config.remote_storage_enable


class Bound(StrEnum):
    """The status of a segment for the next cleaning."""

    CLEAN = "it was cleaned before"
    DIRTY = "it can be cleaned"
    ACTIVE = "it is the active segment"
    UNSTABLE = "it reaches above the last stable offset"
    LAG = "it has records younger than min.compaction.lag.ms"
    OLDER_STAYS = "an older segment cannot be cleaned"


class Groupable(Protocol):
    """What grouping needs of a segment: sizes in bytes of its `.log` and of the entries in its
    indexes."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    @property
    def time_index_bytes(self) -> int: ...


class CleanableSegment(RetainableSegment, Protocol):
    """What planning needs of a segment. `first_timestamp`: that of its first batch in ms, -1 if it
    has none."""

    @property
    def first_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class SegmentToClean(ViewSegment):
    """A segment of a view with the properties that the cleaner needs."""

    @property
    def first_timestamp(self) -> int:
        header = header_at(self.segment.files.log(), 0) if self.size else None
        return NO_TIMESTAMP if header is None else header.max_timestamp

    @property
    def index_bytes(self) -> int:
        index = self.segment.offset_index()
        return 0 if index is None else len(index) * offset_index.ENTRY.size

    @property
    def time_index_bytes(self) -> int:
        index = self.segment.time_index()
        return 0 if index is None else len(index) * time_index.ENTRY.size

    @property
    def mtime_ms(self) -> int:
        """The mtime of the `.log` in ms since 1970."""
        return self.segment.mtime_ns // 1_000_000


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """The state of a log that planning needs; segments by ascending base offset, the last one
    active.

    `last_stable_offset`: the lower of the oldest open transaction's first offset and the high
    watermark; nothing above it is cleaned. `checkpoint`: from the `cleaner-offset-checkpoint`, None
    without an entry.
    """

    segments: Sequence[CleanableSegment]
    start_offset: int
    end_offset: int
    last_stable_offset: int
    checkpoint: int | None

    def upper_bound(self, index: int) -> int:
        """Returns the end offset of a segment: the next one's base offset, or the log end
        offset."""
        if index + 1 < len(self.segments):
            return self.segments[index + 1].base_offset
        return self.end_offset


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """What can be cleaned: offsets in [`first_dirty`, `first_uncleanable`).

    `bounds`: the status of each segment. `clean_bytes`, `cleanable_bytes`: sizes of the segments
    that begin below `first_dirty`, and of those to be cleaned (a segment that is both counts
    twice). `overdue_at_ms`: when `max.compaction.lag.ms` requires a cleaning, None for never.
    `resets_checkpoint`: the checkpoint is out of range and must be replaced by `first_dirty`.
    """

    first_dirty: int
    first_uncleanable: int
    bounds: tuple[Bound, ...]
    clean_bytes: int
    cleanable_bytes: int
    min_ratio: float
    overdue_at_ms: int | None
    is_overdue: bool
    resets_checkpoint: bool

    @property
    def ratio(self) -> float:
        """The dirty ratio: the dirty part of what is clean or cleanable, from 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether Kafka would clean the log now."""
        return self.ratio > self.min_ratio or (self.is_overdue and self.cleanable_bytes > 0)


def state_of(
    view: View, checkpoint: int | None, last_stable_offset: int | None = None
) -> CleanableLog:
    """Returns the state of a log as seen by a reader, who assumes that all of it is replicated, or
    by its writer, who passes the last stable offset."""
    stable = view.last_stable_offset
    if last_stable_offset is not None:
        stable = min(stable, last_stable_offset)
    return CleanableLog(segments_of(view), view.start_offset, view.end_offset, stable, checkpoint)


def segments_of(view: View) -> list[SegmentToClean]:
    """Returns the segments of a view as the cleaner needs them."""
    limit = view.context.limits.max_batch_bytes
    return [SegmentToClean(segment, limit) for segment in view.segments]


def plan(log: CleanableLog, config: TopicConfig, now_ms: int) -> CleanPlan:
    """Returns what can be cleaned at `now_ms`. Reads a segment's timestamps only if they matter."""
    first_dirty, resets = _first_dirty(log)
    bounds = _bounds(log, config, first_dirty, now_ms)
    first_uncleanable = _first_uncleanable(log, bounds)
    overdue_at = _overdue_at(log, config, first_dirty)
    low = min(first_dirty, first_uncleanable)
    cleanable = [
        segment.size
        for index, segment in enumerate(log.segments)
        if segment.base_offset < first_uncleanable and log.upper_bound(index) > low
    ]
    return CleanPlan(
        first_dirty,
        first_uncleanable,
        tuple(bounds),
        sum(s.size for s in log.segments if s.base_offset < first_dirty),
        sum(cleanable),
        config.min_cleanable_dirty_ratio,
        overdue_at,
        overdue_at is not None and overdue_at <= now_ms,
        resets,
    )


def _first_dirty(log: CleanableLog) -> tuple[int, bool]:
    """Returns where the dirty part begins, and whether the checkpoint is out of range."""
    if log.checkpoint is None:
        return log.start_offset, False
    if log.start_offset <= log.checkpoint <= log.end_offset:
        return log.checkpoint, False
    return log.start_offset, True


def _bounds(log: CleanableLog, config: TopicConfig, first_dirty: int, now_ms: int) -> list[Bound]:
    """Returns the status of each segment."""
    youngest = now_ms - config.min_compaction_lag_ms if config.min_compaction_lag_ms > 0 else None
    bounds: list[Bound] = []
    is_uncleanable = False
    for index, segment in enumerate(log.segments):
        upper = log.upper_bound(index)
        if index + 1 == len(log.segments):
            bound = Bound.ACTIVE
        elif upper <= first_dirty:
            bound = Bound.CLEAN
        elif upper > log.last_stable_offset:
            bound = Bound.UNSTABLE
        elif youngest is not None and segment.largest_timestamp > youngest:
            bound = Bound.LAG
        else:
            bound = Bound.OLDER_STAYS if is_uncleanable else Bound.DIRTY
        is_uncleanable |= bound not in (Bound.CLEAN, Bound.DIRTY)
        bounds.append(bound)
    return bounds


def _first_uncleanable(log: CleanableLog, bounds: Sequence[Bound]) -> int:
    """Returns the base offset of the first segment that cannot be cleaned; the log start offset
    without one."""
    for segment, bound in zip(log.segments, bounds, strict=True):
        if bound not in (Bound.CLEAN, Bound.DIRTY):
            return segment.base_offset
    return log.start_offset


def _overdue_at(log: CleanableLog, config: TopicConfig, first_dirty: int) -> int | None:
    """Returns when a cleaning becomes due: `max.compaction.lag.ms` after the oldest of the dirty
    segments' first timestamps."""
    if config.max_compaction_lag_ms == UNLIMITED:
        return None
    dirty = (
        segment.first_timestamp
        for index, segment in enumerate(log.segments[:-1])
        if log.upper_bound(index) > first_dirty
    )
    oldest = min((timestamp for timestamp in dirty if timestamp > 0), default=None)
    return None if oldest is None else oldest + config.max_compaction_lag_ms + 1


S = TypeVar("S", bound=Groupable)


def group(
    segments: Sequence[S], end_offset: int, first_uncleanable: int, config: TopicConfig
) -> list[list[S]]:
    """Groups the segments that begin below `end_offset`; each group is merged into one segment. A
    group has as many segments as fit into `segment.bytes`, and their indexes into
    `segment.index.bytes`, before anything is discarded."""
    taken = [segment for segment in segments if segment.base_offset < end_offset]
    lasts = [segment.base_offset - 1 for segment in taken[1:]] + [first_uncleanable - 1]
    groups: list[list[S]] = []
    room = _Room(config)
    for segment, last_offset in zip(taken, lasts, strict=False):
        if groups and room.takes(segment, last_offset - groups[-1][0].base_offset):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            room = _Room(config)
        room.fill(segment)
    return groups


class _Room:
    """The remaining capacity of a segment and its indexes, in bytes."""

    def __init__(self, config: TopicConfig) -> None:
        self._log = config.segment_size
        self._index = self._times = config.segment_index_bytes

    def takes(self, segment: Groupable, highest_delta: int) -> bool:
        """Returns whether a segment fits whose last offset is about `highest_delta` above the base
        offset."""
        return (
            segment.size <= self._log
            and segment.index_bytes <= self._index
            and segment.time_index_bytes <= self._times
            and (segment.size == 0 or highest_delta <= MAX_INT32)
        )

    def fill(self, segment: Groupable) -> None:
        self._log -= segment.size
        self._index -= segment.index_bytes
        self._times -= segment.time_index_bytes


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The input of a pass, which cleans the offsets [`first_dirty`, `first_uncleanable`) of a log
    and discards older records that they supersede. `now_ms`: since 1970.

    `producers` returns the active producers; it is called for each group. `check` raises an error
    to end the pass; `on_progress` is called with its progress: bytes read, and total bytes to read.
    `is_shown`: this is a preview for which a user waits: other threads read and hash keys, and
    checksums are verified together, as `read_runs` describes.
    """

    view: View
    config: TopicConfig
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    producers: Callable[[], Iterable[ProducerStateEntry]]
    check: Callable[[], None]
    on_progress: Callable[[int, int], None]
    is_shown: bool = False
