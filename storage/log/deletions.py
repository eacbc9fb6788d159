"""What went from the front of a log a moment ago, and can still be brought back.

A deletion moves the log start offset up; the files of what lies wholly below it are renamed, and
removed when `file.delete.delay.ms` has passed. For so long it is remembered here where the log
began before, also where the records are in a segment that stays. What went last comes back first:
a log has no holes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..errors import CannotUndelete
from .epochs import LeaderEpochs

# Deletions for one cause that follow each other within this part of file.delete.delay.ms are one:
# a thousand `rm` need not be remembered one by one.
_PARTS = 60
# When something was deleted, where nobody knows; and until when it can be brought back, where no
# time removes it.
UNKNOWN_MS = -1
NEVER_MS = (1 << 63) - 1


#: Why nothing can be brought back where nothing was deleted.
NOTHING_DELETED = "nothing was deleted a moment ago"


class Cause(StrEnum):
    """Why something was deleted."""

    SIZE = "retention.bytes"
    TIME = "retention.ms"
    RECORDS = "DeleteRecords"
    TOPIC = "topic deleted"
    FOUND = "deleted before the directory was opened"


@dataclass(frozen=True, slots=True)
class Deletion:
    """Something that was deleted, and can be brought back before `until_ms`. What was found when
    the directory was opened can be until it is purged: NEVER_MS.

    Of a partition the records [`start_offset`, `end_offset`) went; `segments` are the base offsets
    of the segments that went wholly with them. A whole topic has the partition -1, and both offsets
    too; `partitions` are its numbers. `size`: bytes of all `.log` files that this is about. Times
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
        """As people write it: `orders/0`, or `orders` for a whole topic."""
        return self.topic if self.partition < 0 else f"{self.topic}/{self.partition}"

    def as_json(self) -> dict[str, Any]:
        """Of a whole topic, `partition` and the offsets are null; so are times that are not known
        and an end that no time brings."""
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
        """What `as_json` gave."""
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
    """The offsets [`start`, `end`) that were deleted for one `cause`, at last at `at_ms`; they are
    forgotten at `until_ms`. Times as in `Deletion`."""

    start: int
    end: int
    cause: Cause
    at_ms: int
    until_ms: int


class Deletions:
    """Those of one log, each beginning where the one before it ends, up to the log start offset.

    Used under the lock of its writer. `epochs`: those of what was deleted. `why_none`: why what
    cannot be brought back cannot. `held_below`: retention leaves alone what lies below that offset
    until `held_until_ms`, for it has been brought back.
    """

    def __init__(self, path: str) -> None:
        """`path`: of the partition, for errors."""
        self._path = path
        self.epochs = LeaderEpochs()
        self.why_none = NOTHING_DELETED
        self.held_below = self.held_until_ms = 0
        self._ranges: deque[DeletedRange] = deque()

    @property
    def has_due(self) -> bool:
        """Whether one of them is forgotten at some time."""
        return any(each.until_ms != NEVER_MS for each in self._ranges)

    def __iter__(self) -> Iterator[DeletedRange]:
        """The oldest first."""
        return iter(self._ranges)

    def choose(self, offset: int | None, start_offset: int) -> int:
        """Where a log that begins at `start_offset` could begin again, if `offset` is wanted, or
        None: as far down as it can. CannotUndelete."""
        if not self._ranges:
            raise CannotUndelete(self._path, self.why_none)
        lowest = self._ranges[0].start
        if offset is None or lowest <= offset < start_offset:
            return lowest if offset is None else offset
        there = f"only the offsets {lowest} to {start_offset - 1} can be"
        raise CannotUndelete(self._path, f"not from offset {offset} on, {there}")

    def add(self, deleted: DeletedRange, epochs: LeaderEpochs) -> None:
        """The log, whose epochs were these, began at `deleted.start` and does at `deleted.end`."""
        entries = self.epochs.entries
        known = self.epochs.latest
        of_deleted = (e for e in epochs.entries if known < e.epoch and e.start_offset < deleted.end)
        self.epochs = LeaderEpochs((*entries, *of_deleted))
        last = self._ranges[-1] if self._ranges else None
        if last is None or not _is_one(last, deleted):
            self._ranges.append(deleted)
        else:
            self._ranges[-1] = replace(deleted, start=last.start)

    def forget(self, now_ms: int, lowest: int) -> None:
        """Forgets what is too long ago, and what lies below `lowest`, because its files are there
        no more."""
        ranges = self._ranges
        while ranges and (ranges[0].until_ms <= now_ms or ranges[0].end <= lowest):
            ranges.popleft()
            self.why_none = "its files were removed, or it is too long ago"
        if ranges and ranges[0].start < lowest:
            ranges[0] = replace(ranges[0], start=lowest)
        self.epochs = self.epochs.cut_at_start(ranges[0].start) if ranges else LeaderEpochs()

    def forget_all(self, why: str) -> None:
        """Nothing can be brought back any more, because of `why`."""
        self._ranges.clear()
        self.epochs = LeaderEpochs()
        self.why_none = why

    def take_back(self, offset: int, now_ms: int, delay_ms: int) -> list[DeletedRange]:
        """The log begins at `offset` again, which is in one of them; what came back. Retention
        shall leave it alone for `delay_ms`."""
        back: deque[DeletedRange] = deque()
        while self._ranges and self._ranges[-1].end > offset:
            last = self._ranges.pop()
            back.appendleft(replace(last, start=max(last.start, offset)))
            if last.start < offset:
                self._ranges.append(replace(last, end=offset))
        self.epochs = self.epochs.cut_at_end(offset)
        self.held_below, self.held_until_ms = back[-1].end, now_ms + delay_ms
        return list(back)


def _is_one(last: DeletedRange, next_: DeletedRange) -> bool:
    part_ms = (next_.until_ms - next_.at_ms) // _PARTS
    return last.cause is next_.cause and 0 <= next_.at_ms - last.at_ms < part_ms
