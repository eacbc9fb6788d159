"""Two replicas of a partition as one log: which batches of which, and from where on they differ.

Both are read in order of offsets, side by side, and only their sound batches count. What both have
is taken once, what one has lost comes from the other. Where they contradict each other, one replica
was not told that its leader had been replaced: as when Kafka brings a follower in line (KIP-101,
LeaderEpochFileCache.endOffsetFor), the one whose latest leader epoch is higher keeps its batches,
and of the other all that end at or behind the point where they part are left out.

A log that is compacted was cleaned on each replica by itself. Batches of the same offsets and epoch
that differ there do not contradict each other; the one that has more records left is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..disk import Directory
from ..errors import CorruptError
from ..format import batch as b
from ..format.layout import MAX_OFFSET
from .epochs import LeaderEpochs, read_leader_epochs
from .sound import Lost, sound_batches
from .verify import Listed

FIRST: Final = 0
SECOND: Final = 1


class Replica:
    """One replica's directory; None for one that does not have the partition."""

    def __init__(self, directory: Directory | None, max_batch_bytes: int) -> None:
        """SegmentGone when the directory has gone."""
        self.directory = directory
        self._limit = max_batch_bytes
        listed = None if directory is None else Listed(directory)
        self.segments = [] if listed is None else listed.segments(True)
        self.mtimes = {} if listed is None else listed.mtimes

    def parts(self) -> Iterator[tuple[int, Batch | Lost]]:
        """All of its batches, and what is damaged, with the base offsets of their segments."""
        if self.directory is None:
            return
        for facts in self.segments:
            found = sound_batches(self.directory, facts.base_offset, facts.next_base, self._limit)
            for part in found:
                if isinstance(part, Lost):
                    yield facts.base_offset, part
                    continue
                start = int(part.table.rows[0, b.POSITION])
                for row in part.table.rows.tolist():
                    at = row[b.POSITION] - start
                    yield facts.base_offset, Batch(row, part.data[at : at + row[b.SIZE]])

    def epochs(self) -> LeaderEpochs:
        """As its file says, none where that cannot be read."""
        try:
            return LeaderEpochs() if self.directory is None else read_leader_epochs(self.directory)
        except CorruptError:
            return LeaderEpochs()


class Batch:
    """One batch; `data` is good until the next of its replica is asked for."""

    __slots__ = ("base", "count", "crc", "data", "epoch", "last", "magic")

    def __init__(self, row: Sequence[int], data: memoryview) -> None:
        self.base = row[b.BASE_OFFSET]
        self.last = row[b.LAST_OFFSET]
        self.epoch = row[b.LEADER_EPOCH]
        self.crc = row[b.CRC]
        self.count = row[b.RECORD_COUNT]
        self.magic = row[b.MAGIC]
        self.data = data

    @property
    def key(self) -> tuple[int, ...]:
        """What two have in common that are one."""
        return self.base, self.last, self.crc, len(self.data)


class Cursor:
    """A replica being gone through: its present batch, None behind the last; what was `lost` so
    far."""

    def __init__(self, replica: Replica, before: int = MAX_OFFSET) -> None:
        """Without the batches that end at or behind `before`; `left_out` counts them."""
        self.batch: Batch | None = None
        self.segment = -1  # base offset of the present batch's
        self.lost: list[Lost] = []
        self.left_out = 0
        self._parts = replica.parts()
        self._before = before
        self.advance()

    def advance(self) -> None:
        for segment, part in self._parts:
            if isinstance(part, Lost):
                if part.first < self._before:
                    self.lost.append(part)
            elif part.last >= self._before:
                self.left_out += 1
            else:
                self.batch, self.segment = part, segment
                return
        self.batch = None


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two replicas part: of the one that is not the `leader` nothing counts that ends at or
    behind `offset`. `is_conflict`: they have different bytes for the same offsets. `epochs`: the
    latest of each."""

    leader: int
    offset: int = MAX_OFFSET
    is_conflict: bool = False
    epochs: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """What going through both has shown: the epochs and end of each, and the first offset of which
    they have different bytes."""

    epochs: tuple[LeaderEpochs, LeaderEpochs]
    ends: tuple[int, int]
    conflict: int = MAX_OFFSET


def find_parting(first: Replica, second: Replica, is_compacted: bool) -> Parting:
    """Goes through both. `is_compacted`: the log is, or may have been."""
    found = _survey(first, second, is_compacted)
    latest = (found.epochs[FIRST].latest, found.epochs[SECOND].latest)
    # Without a difference in epochs, the longer one has been told more.
    leader = SECOND if (latest[1], found.ends[1]) > (latest[0], found.ends[0]) else FIRST
    by_epochs = _truncation(found.epochs[leader], found.epochs[1 - leader])
    offset = min(by_epochs, found.conflict)
    if offset >= found.ends[1 - leader]:
        offset = MAX_OFFSET
    return Parting(leader, offset, found.conflict < MAX_OFFSET, latest)


def _survey(first: Replica, second: Replica, is_compacted: bool) -> _Surveyed:
    cursors = (Cursor(first), Cursor(second))
    epochs = [first.epochs(), second.epochs()]
    ends = [0, 0]
    conflict = MAX_OFFSET

    def take(number: int) -> None:
        batch = cursors[number].batch
        assert batch is not None
        ends[number] = batch.last + 1
        if batch.magic > 1 and batch.epoch > epochs[number].latest:
            epochs[number] = epochs[number].with_assigned(batch.epoch, batch.base)
        cursors[number].advance()

    while True:
        one, other = cursors[FIRST].batch, cursors[SECOND].batch
        if one is None and other is None:
            return _Surveyed((epochs[0], epochs[1]), (ends[0], ends[1]), conflict)
        if one is None or other is None:
            take(FIRST if other is None else SECOND)
        elif one.last < other.base or other.last < one.base:
            take(FIRST if one.last < other.base else SECOND)
        else:
            if one.key != other.key and not _differs_by_cleaning(one, other, is_compacted):
                conflict = min(conflict, one.base, other.base)
            is_behind = one.last - other.last
            if is_behind <= 0:
                take(FIRST)
            if is_behind >= 0:
                take(SECOND)


def _differs_by_cleaning(one: Batch, other: Batch, is_compacted: bool) -> bool:
    return is_compacted and one.epoch == other.epoch


def _truncation(leader: LeaderEpochs, follower: LeaderEpochs) -> int:
    """The offset that a follower truncates itself to, MAX_OFFSET for nowhere."""
    if not leader.entries or not follower.entries:
        return MAX_OFFSET
    known = [entry.epoch for entry in leader.entries if entry.epoch <= follower.latest]
    if not known:  # the leader's log begins behind the epochs of the follower's
        return leader.entries[0].start_offset
    common = known[-1]
    ends = [e.start_offset for e in leader.entries if e.epoch > common][:1] or [MAX_OFFSET]
    ends += [e.start_offset for e in follower.entries if e.epoch > common][:1]
    return min(ends)


# -- the log of both -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch of the log of both, from one replica or (`is_common`) from both; the segment of it
    begins at `segment` in that replica. `hole`: offsets in front of it that both have lost."""

    batch: Batch
    replica: int
    segment: int
    is_common: bool = False
    is_cleaned_otherwise: bool = False
    hole: tuple[int, int] | None = None


class Merging:
    """The log of two replicas, batch by batch. When `batches` is used up, `end_offset` is the log's
    end, and `lost` what is missing behind it; `left_out`: batches of the one that gave way."""

    def __init__(
        self, first: Replica, second: Replica, parting: Parting, is_compacted: bool
    ) -> None:
        limits = [MAX_OFFSET, MAX_OFFSET]
        limits[1 - parting.leader] = parting.offset
        self._cursors = (Cursor(first, limits[0]), Cursor(second, limits[1]))
        self._leader = parting.leader
        self._is_compacted = is_compacted
        self.end_offset = -1

    @property
    def left_out(self) -> int:
        return sum(cursor.left_out for cursor in self._cursors)

    @property
    def lost(self) -> list[Lost]:
        """Damage behind the last batch of the whole."""
        every = [lost for cursor in self._cursors for lost in cursor.lost]
        return [lost for lost in every if max(lost.first, lost.next - 1) >= self.end_offset]

    def batches(self) -> Iterator[Taken]:
        """Good until the next is asked for."""
        while (taken := self._next()) is not None:
            batch = taken.batch
            yield taken
            self.end_offset = batch.last + 1
            for cursor in self._cursors:
                while cursor.batch is not None and cursor.batch.last <= batch.last:
                    cursor.advance()
                # One that begins in the taken one is what the taken one is instead of.
                while cursor.batch is not None and self._overlaps(cursor.batch, batch):
                    cursor.advance()

    def _next(self) -> Taken | None:
        one, other = (cursor.batch for cursor in self._cursors)
        if one is None and other is None:
            return None
        if one is None or other is None:
            return self._taken(FIRST if other is None else SECOND)
        if one.last < other.base or other.last < one.base:
            return self._taken(FIRST if one.last < other.base else SECOND)
        if one.key == other.key:
            return self._taken(self._leader, is_common=True)
        chosen = self._leader
        if one.count != other.count:
            chosen = FIRST if one.count > other.count else SECOND
        return self._taken(chosen, is_cleaned_otherwise=True)

    def _taken(
        self, number: int, is_common: bool = False, is_cleaned_otherwise: bool = False
    ) -> Taken:
        cursor = self._cursors[number]
        batch = cursor.batch
        assert batch is not None
        hole = self._hole(batch)
        return Taken(batch, number, cursor.segment, is_common, is_cleaned_otherwise, hole)

    def _hole(self, batch: Batch) -> tuple[int, int] | None:
        """The offsets in front of a batch that are lost, and not only compacted away."""
        start = max(self.end_offset, 0)
        if batch.base <= start or batch.count < 0:
            return None
        for cursor in self._cursors:
            for lost in cursor.lost:
                low, high = max(lost.first, start), batch.base
                if lost.next >= 0:
                    high = min(high, lost.next)
                if low < high:
                    return low, high
        return None

    @staticmethod
    def _overlaps(batch: Batch, taken: Batch) -> bool:
        return batch.base <= taken.last
