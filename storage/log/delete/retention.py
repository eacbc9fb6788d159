"""Retention: which segments it deletes by which rule, and when it will delete the others.

Kafka's `UnifiedLog.deleteOldSegments`: three passes, each from the oldest segment up to the first
that does not breach its rule. Nothing is deleted here, and no clock is read: `plan` with next
week's time returns next week's deletions.

1. The next segment begins at or below the log start offset.
2. `retention.bytes`: the segments after it have at least that many bytes.
3. `retention.ms`: its largest timestamp is older than that.

The second and third apply only if `cleanup.policy` includes `delete`. No pass deletes a segment
that reaches above the high watermark, nor an empty last one. If all segments are to be deleted, the
log is rolled first.

Of a topic with remote storage these are the local segments. There `local.retention.bytes` and
`local.retention.ms` take the place of the others, and a segment is only deleted if remote storage
has all of it, or if it is below the log start offset (UnifiedLog.isSegmentEligibleForDeletion).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

from ...config.kafka import TopicConfig
from ...format.layout import NO_TIMESTAMP
from ...segment.segment import Segment
from ..read import lookup
from ..read.view import View

DELETE = "delete"  # in cleanup.policy
_DERIVED = -2  # local.retention.bytes and .ms: as retention.bytes and .ms


class Rule(StrEnum):
    """Why a segment is deleted."""

    LOG_START = "log start offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    LOCAL_SIZE = "local.retention.bytes"
    LOCAL_TIME = "local.retention.ms"


class Hold(StrEnum):
    """Why a segment is retained."""

    EMPTY = "it is the last segment, and empty"
    HIGH_WATERMARK = "it reaches above the high watermark"
    NOT_COPIED = "it is not known to be in remote storage"
    POLICY = "cleanup.policy does not include delete"
    NO_BREACH = "no rule is breached"
    UNDELETED = "it was restored recently"
    OLDER_STAYS = "an older segment is retained"


class RetainableSegment(Protocol):
    """What retention needs of a segment. `size`: bytes of its `.log`. `largest_timestamp`: the
    greatest of its records in ms or, if none has one, the mtime of the `.log`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def largest_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RetentionState:
    """A log as retention sees it; segments by ascending base offset. A segment that begins below
    `held_below` was recently restored: only the log start offset rule applies to it.

    `copied_until`: if a broker copies the topic's segments to remote storage, the offset up to
    which that is known to have them, without a gap from the first segment on; else None."""

    segments: Sequence[RetainableSegment]
    start_offset: int
    end_offset: int
    high_watermark: int
    held_below: int = 0
    copied_until: int | None = None

    def upper_bound(self, index: int) -> int:
        """Returns the offset after a segment: the next one's base, or the log end offset."""
        if index + 1 < len(self.segments):
            return self.segments[index + 1].base_offset
        return self.end_offset

    def hold(self, index: int) -> Hold | None:
        """Returns why a segment is retained regardless of the rules, or None."""
        if index + 1 == len(self.segments) and self.segments[index].size == 0:
            return Hold.EMPTY
        if self.high_watermark < self.upper_bound(index):
            return Hold.HIGH_WATERMARK
        return Hold.NOT_COPIED if self._is_not_copied(index) else None

    def _is_not_copied(self, index: int) -> bool:
        """Whether a segment with records of the log may be the only copy of them."""
        if self.copied_until is None or self.upper_bound(index) <= self.start_offset:
            return False
        return self.upper_bound(index) > self.copied_until

    def is_held(self, index: int) -> bool:
        """Whether the segment was recently restored."""
        return self.segments[index].base_offset < self.held_below

    def bytes_behind(self) -> list[int]:
        """Returns for each segment the bytes of all segments after it."""
        sizes = [segment.size for segment in self.segments[:0:-1]]
        return list(accumulate(sizes, initial=0))[::-1]


@dataclass(frozen=True, slots=True)
class ViewSegment:
    """A segment of a log that is only read."""

    segment: Segment
    max_batch_bytes: int

    @property
    def base_offset(self) -> int:
        return self.segment.base_offset

    @property
    def size(self) -> int:
        return self.segment.size

    @property
    def largest_timestamp(self) -> int:
        largest = lookup.largest_timestamp(self.segment, self.max_batch_bytes)
        return largest if largest != NO_TIMESTAMP else self.segment.mtime_ns // 1_000_000


def state_of(view: View, copied_until: int | None = None) -> RetentionState:
    """Returns a log as its reader sees it, with everything taken as replicated. With `copied_until`
    (see RetentionState) only the segments that are not read from remote storage."""
    limit = view.context.limits.max_batch_bytes
    return RetentionState(
        [
            ViewSegment(segment, limit)
            for segment in view.segments
            if copied_until is None or not segment.is_remote
        ],
        view.start_offset,
        view.end_offset,
        view.end_offset,
        copied_until=copied_until,
    )


def copies(config: TopicConfig) -> bool:
    """Returns whether a broker copies a topic's segments to remote storage and then deletes them
    here (UnifiedLog.remoteLogEnabledAndRemoteCopyEnabled)."""
    return config.remote_storage_enable and not config.remote_log_copy_disable


@dataclass(frozen=True, slots=True)
class RetentionDeletion:
    """The deletions of one pass: the oldest `count` segments of those that earlier passes left."""

    rule: Rule
    count: int


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The passes that delete something, in order. `rolls`: all segments are deleted, so an empty
    one must be created first. `start_offset`: the resulting log start offset."""

    deletions: tuple[RetentionDeletion, ...]
    rolls: bool
    start_offset: int

    @property
    def count(self) -> int:
        """The number of segments to delete, from the oldest on."""
        return sum(deletion.count for deletion in self.deletions)


@dataclass(frozen=True, slots=True)
class Outlook:
    """A segment's future: the `rule` that deletes it now, or the `hold` that retains it.

    `expires_at_ms`: when `retention.ms` first deletes it, if nothing is appended. `bytes_to_come`:
    how many bytes must be appended after it before `retention.bytes` deletes it (or their local
    counterparts). Either is None if that rule does not apply or the segment is deleted now.
    """

    segment: RetainableSegment
    rule: Rule | None = None
    hold: Hold | None = None
    expires_at_ms: int | None = None
    bytes_to_come: int | None = None


def plan(log: RetentionState, config: TopicConfig, now_ms: int) -> RetentionPlan:
    """Returns what retention deletes at `now_ms`. Reads a segment's timestamp only if needed."""
    deletions = []
    gone = 0
    for rule, breaches in _rules(log, config, now_ms):
        end = gone
        while end < len(log.segments) and log.hold(end) is None and breaches(end):
            end += 1
        if end > gone:
            deletions.append(RetentionDeletion(rule, end - gone))
            gone = end
    start = log.upper_bound(gone - 1) if gone else log.start_offset
    return RetentionPlan(tuple(deletions), gone == len(log.segments), max(log.start_offset, start))


def outlook(
    log: RetentionState, config: TopicConfig, now_ms: int, planned: RetentionPlan | None = None
) -> list[Outlook]:
    """Returns the future of every segment, as of `now_ms`; `planned`: the plan of that time, None
    to make it here."""
    by_rule = _rules_of(planned or plan(log, config, now_ms))
    futures = [Outlook(segment, rule) for segment, rule in zip(log.segments, by_rule, strict=False)]
    rules, limits = _rules(log, config, now_ms), _limits(log, config)
    behind = log.bytes_behind()
    latest = 0
    for index in range(len(by_rule), len(log.segments)):
        segment = log.segments[index]
        latest = max(latest, segment.largest_timestamp)
        held = Hold.UNDELETED if log.is_held(index) else None
        hold = log.hold(index) or held or _why_kept(index, index == len(by_rule), rules, limits)
        when = _when(latest, behind[index], limits) if hold is not Hold.EMPTY else (None, None)
        futures.append(Outlook(segment, None, hold, *when))
    return futures


@dataclass(frozen=True, slots=True)
class _Limits:
    """By what a log is deleted beside its log start offset. `deletes`: the rules apply; a size or
    time of -1 is no limit."""

    deletes: bool
    size: int
    time_ms: int
    size_rule: Rule
    time_rule: Rule


def _limits(log: RetentionState, config: TopicConfig) -> _Limits:
    deletes = DELETE in config.cleanup_policy
    size, time_ms = config.retention_bytes, config.retention_ms
    if log.copied_until is None:
        return _Limits(deletes, size, time_ms, Rule.SIZE, Rule.TIME)
    # Those that are -2 follow the others (LogConfig.localRetentionBytes). An empty policy retains
    # records for ever, in remote storage.
    deletes |= not config.cleanup_policy
    if config.local_retention_bytes != _DERIVED:
        size = config.local_retention_bytes
    if config.local_retention_ms != _DERIVED:
        time_ms = config.local_retention_ms
    return _Limits(deletes, size, time_ms, Rule.LOCAL_SIZE, Rule.LOCAL_TIME)


def outlook_of(
    view: View, config: TopicConfig, now_ms: int, copied_until: int | None
) -> list[Outlook]:
    """Returns the future of every segment of a view: of those that are read from remote storage by
    the rules for the whole log, which a broker applies there; of the others by those for local
    segments, if there is a `copied_until` (see RetentionState)."""
    local = outlook(state_of(view, copied_until), config, now_ms)
    remote = len(view.segments) - len(local)
    return [*outlook(state_of(view), config, now_ms)[:remote], *local] if remote else local


def _when(latest: int, behind: int, limits: _Limits) -> tuple[int | None, int | None]:
    """Returns `expires_at_ms` and `bytes_to_come` of a segment that has `behind` bytes after it; no
    timestamp in it or in older segments exceeds `latest`."""
    return (
        latest + limits.time_ms + 1 if limits.deletes and limits.time_ms >= 0 else None,
        max(limits.size - behind, 0) if limits.deletes and limits.size >= 0 else None,
    )


_Rules = list[tuple[Rule, Callable[[int], bool]]]


def _rules(log: RetentionState, config: TopicConfig, now_ms: int) -> _Rules:
    """Returns the passes that the config enables, each with its condition by segment index."""
    behind = log.bytes_behind()
    last = len(log.segments) - 1
    rules: _Rules = [
        (Rule.LOG_START, lambda i: i < last and log.upper_bound(i) <= log.start_offset)
    ]
    limits = _limits(log, config)
    if limits.deletes and limits.size >= 0:
        least = limits.size
        rules.append((limits.size_rule, lambda i: not log.is_held(i) and behind[i] >= least))
    if limits.deletes and limits.time_ms >= 0:
        oldest = now_ms - limits.time_ms
        rules.append((limits.time_rule, lambda i: not log.is_held(i) and _is_older(log, i, oldest)))
    return rules


def _is_older(log: RetentionState, index: int, than_ms: int) -> bool:
    return log.segments[index].largest_timestamp < than_ms


def _rules_of(planned: RetentionPlan) -> list[Rule]:
    """Returns the rule of each segment that is deleted."""
    return [deletion.rule for deletion in planned.deletions for _ in range(deletion.count)]


def _why_kept(index: int, is_oldest: bool, rules: _Rules, limits: _Limits) -> Hold:
    if not is_oldest and any(breaches(index) for _, breaches in rules):
        return Hold.OLDER_STAYS
    return Hold.NO_BREACH if limits.deletes else Hold.POLICY
