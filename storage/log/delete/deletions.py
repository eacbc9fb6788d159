"""The recent deletions from the start of a log that can still be undone.

A deletion advances the log start offset; the files entirely below it are renamed, and removed after
`file.delete.delay.ms`. For that time this module remembers the earlier log start, also when the
records are in a segment that is retained. The latest deletion is undone first, since a log has no
gaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ...errors import CannotUndelete
from ..state.epochs import LeaderEpochFileCache

# Deletions with the same cause are merged when they follow each other within this fraction of
# file.delete.delay.ms, so that a thousand `rm` do not make a thousand entries.
_PARTS = 60
# The deletion time if it is unknown; and the expiry time of what never expires.
UNKNOWN_MS = -1
NEVER_MS = (1 << 63) - 1


#: Why nothing can be restored if nothing was deleted.
NOTHING_DELETED = "nothing was deleted recently"


class Cause(StrEnum):
    """Why something was deleted."""

    SIZE = "retention.bytes"
    TIME = "retention.ms"
    LOCAL_SIZE = "local.retention.bytes"
    LOCAL_TIME = "local.retention.ms"
    RECORDS = "DeleteRecords"
    TOPIC = "topic deleted"
    FOUND = "deleted before the directory was opened"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that can be undone before `until_ms`. One found when the directory was opened can
    be undone until it is purged: NEVER_MS.

    In a partition the records [`start_offset`, `end_offset`) were deleted; `segments` are the base
    offsets of the segments deleted as a whole. For a whole topic `partition` and both offsets are
    -1, and `partitions` lists its partition numbers. `size`: total bytes of the `.log` files. Times
    are in ms since 1970; `deleted_at_ms` may be UNKNOWN_MS.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    segments: tuple[int, ...]
    partitions: tuple[int, ...]
    size: int
    cause: Cause
    deleted_at_ms: int
    until_ms: int

    @property
    def path(self) -> str:
        """The display form: `orders/0`, or `orders` for a whole topic."""
        return self.topic if self.partition < 0 else f"{self.topic}/{self.partition}"

    def as_json(self) -> dict[str, Any]:
        """Returns a JSON object. For a whole topic, `partition` and the offsets are null; an
        unknown `deletedAt` and an `until` that never comes are null, too."""
        is_topic = self.partition < 0
        return {
            "topic": self.topic,
            "partition": None if is_topic else self.partition,
            "startOffset": None if is_topic else self.start_offset,
            "endOffset": None if is_topic else self.end_offset,
            "segments": list(self.segments),
            "partitions": list(self.partitions),
            "bytes": self.size,
            "cause": str(self.cause),
            "deletedAt": None if self.deleted_at_ms == UNKNOWN_MS else self.deleted_at_ms,
            "until": None if self.until_ms == NEVER_MS else self.until_ms,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Deletion:
        """Parses what `as_json` returned."""
        is_topic = row["partition"] is None
        return cls(
            row["topic"],
            -1 if is_topic else row["partition"],
            -1 if is_topic else row["startOffset"],
            -1 if is_topic else row["endOffset"],
            tuple(row["segments"]),
            tuple(row["partitions"]),
            row["bytes"],
            Cause(row["cause"]),
            UNKNOWN_MS if row["deletedAt"] is None else row["deletedAt"],
            NEVER_MS if row["until"] is None else row["until"],
        )


@dataclass(frozen=True, slots=True)
class DeletedRange:
    """The offsets [`start`, `end`) deleted for one `cause`, most recently at `at_ms`; forgotten at
    `until_ms`. Times as in `Deletion`. `log_start`: the log start offset before that, below `start`
    if older records were in remote storage. `is_local`: that was not changed, because remote
    storage has the deleted records, too."""

    start: int
    end: int
    cause: Cause
    at_ms: int
    until_ms: int
    log_start: int
    is_local: bool = False

    def log_start_at(self, offset: int) -> int:
        """Returns the log start offset if the log is to begin here at `offset` again."""
        return self.log_start if self.is_local or offset == self.start else offset


class Deletions:
    """The deleted ranges of one log, contiguous and ending at the log start offset.

    Used under its writer's lock. `epochs`: those of the deleted records. `why_none`: why older
    records cannot be restored. `held_below`: retention spares restored records below that offset
    until `held_until_ms`.
    """

    def __init__(self, path: str) -> None:
        """`path`: the partition's, for errors."""
        self._path = path
        self.epochs = LeaderEpochFileCache()
        self.why_none = NOTHING_DELETED
        self.held_below = self.held_until_ms = 0
        self._ranges: deque[DeletedRange] = deque()

    @property
    def has_due(self) -> bool:
        """Whether any range expires."""
        return any(each.until_ms != NEVER_MS for each in self._ranges)

    def __iter__(self) -> Iterator[DeletedRange]:
        """Iterates from the oldest."""
        return iter(self._ranges)

    def select_start(self, offset: int | None, start_offset: int) -> int:
        """Returns the start to restore for a log that begins at `start_offset`: `offset`, or the
        lowest possible one if it is None. Raises CannotUndelete if that is impossible."""
        if not self._ranges:
            raise CannotUndelete(self._path, self.why_none)
        return select_start(self._path, offset, self._ranges[0].start, start_offset)

    def add(self, deleted: DeletedRange, epochs: LeaderEpochFileCache) -> None:
        """Records that the log start moved from `deleted.start` to `deleted.end`; `epochs` are the
        log's before that."""
        entries = self.epochs.entries
        known = self.epochs.latest
        of_deleted = (e for e in epochs.entries if known < e.epoch and e.start_offset < deleted.end)
        self.epochs = LeaderEpochFileCache((*entries, *of_deleted))
        last = self._ranges[-1] if self._ranges else None
        if last is None or not _is_one(last, deleted):
            self._ranges.append(deleted)
        else:
            self._ranges[-1] = replace(deleted, start=last.start, log_start=last.log_start)

    def forget(self, now_ms: int, lowest: int) -> None:
        """Forgets what has expired, and what lies below `lowest` because its files no longer
        exist."""
        ranges = self._ranges
        while ranges and (ranges[0].until_ms <= now_ms or ranges[0].end <= lowest):
            ranges.popleft()
            self.why_none = "its files were removed, or file.delete.delay.ms has passed"
        if ranges and ranges[0].start < lowest:
            log_start = ranges[0].log_start_at(lowest)
            ranges[0] = replace(ranges[0], start=lowest, log_start=log_start)
        self.epochs = (
            self.epochs.cut_at_start(ranges[0].log_start) if ranges else LeaderEpochFileCache()
        )

    def forget_all(self, why: str) -> None:
        """Forgets all ranges; `why` is the reason reported from now on."""
        self._ranges.clear()
        self.epochs = LeaderEpochFileCache()
        self.why_none = why

    def log_start_at(self, offset: int) -> int:
        """Returns the log start offset that belongs to `offset`, which lies in one of the
        ranges."""
        return next(each for each in self._ranges if offset < each.end).log_start_at(offset)

    def take_back(self, offset: int, now_ms: int, delay_ms: int) -> list[DeletedRange]:
        """Moves the log start back to `offset`, which lies in one of the ranges; returns the
        restored ranges. Retention spares them for `delay_ms`."""
        back: deque[DeletedRange] = deque()
        while self._ranges and self._ranges[-1].end > offset:
            last = self._ranges.pop()
            start = max(last.start, offset)
            back.appendleft(replace(last, start=start, log_start=last.log_start_at(start)))
            if last.start < offset:
                self._ranges.append(replace(last, end=offset))
        self.epochs = self.epochs.cut_at_end(offset)
        self.held_below, self.held_until_ms = back[-1].end, now_ms + delay_ms
        return list(back)


def _is_one(last: DeletedRange, next_: DeletedRange) -> bool:
    part_ms = (next_.until_ms - next_.at_ms) // _PARTS
    return last.cause is next_.cause and 0 <= next_.at_ms - last.at_ms < part_ms


def select_start(path: str, offset: int | None, lowest: int, end: int) -> int:
    """Returns the start to restore in the partition at `path` if the offsets [`lowest`, `end`) were
    deleted: `offset`, or `lowest` if it is None. Raises CannotUndelete if that is impossible."""
    if offset is None or lowest <= offset < end:
        return lowest if offset is None else offset
    there = f"only the offsets {lowest} to {end - 1} can be"
    raise CannotUndelete(path, f"not from offset {offset} on, {there}")
