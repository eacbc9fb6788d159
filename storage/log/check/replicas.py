"""Merges two replicas of a partition into one log, and finds where they diverge.

Both are read in offset order, in parallel, and only intact batches count. Batches that both have
are used once; batches that one has lost come from the other. A contradiction means that one replica
missed a change of leader: the more up-to-date one (see `state.election`) keeps its batches, and
those of the other that end at or after the point of divergence are left out.

Each replica cleans a compacted log on its own. Batches with the same offsets and epoch that differ
there are no contradiction; the one with more remaining records is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import CorruptError
from ...format.layout import MAX_OFFSET
from ...format.records import batch as b
from ...io.directory import Directory
from ..state.election import ReplicaEnd, elect, truncation_offset
from ..state.epochs import LeaderEpochFileCache, read_leader_epochs
from .partition_listing import PartitionListing
from .sound import Lost, sound_batches

FIRST: Final = 0
SECOND: Final = 1


class Replica:
    """One replica's directory; None if it lacks the partition."""

    def __init__(self, directory: Directory | None, max_batch_bytes: int) -> None:
        """Raises SegmentGone if the directory no longer exists."""
        self.directory = directory
        self._limit = max_batch_bytes
        listing = None if directory is None else PartitionListing(directory)
        self.segments = [] if listing is None else listing.segments(True)
        self.mtimes = {} if listing is None else listing.mtimes

    def parts(self) -> Iterator[tuple[int, Batch | Lost]]:
        """Yields its batches and damaged parts, with the base offsets of their segments."""
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

    def epochs(self) -> LeaderEpochFileCache:
        """Returns the epochs in its file; none if that cannot be read."""
        try:
            return (
                LeaderEpochFileCache()
                if self.directory is None
                else read_leader_epochs(self.directory)
            )
        except CorruptError:
            return LeaderEpochFileCache()


class Batch:
    """One batch; `data` is valid until the replica's next batch is read."""

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
        """The values that are equal in two copies of one batch."""
        return self.base, self.last, self.crc, len(self.data)


class Cursor:
    """A position in a replica: the current batch, None at the end, and what was `lost` before
    it."""

    def __init__(self, replica: Replica, before: int = MAX_OFFSET) -> None:
        """Skips the batches that end at or after `before`; `left_out` counts them."""
        self.batch: Batch | None = None
        self.segment = -1  # base offset of the current batch's segment
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
    """The point where two replicas diverge: batches of the one that is not the `leader` are void if
    they end at or after `offset`. `is_conflict`: they have different bytes for the same offsets.
    `epochs`: the latest of each."""

    leader: int
    offset: int = MAX_OFFSET
    is_conflict: bool = False
    epochs: tuple[int, int] = (-1, -1)


@dataclass(frozen=True, slots=True)
class _Surveyed:
    """The result of reading both: the epochs and end of each, and the first offset for which their
    bytes differ."""

    epochs: tuple[LeaderEpochFileCache, LeaderEpochFileCache]
    ends: tuple[int, int]
    conflict: int = MAX_OFFSET


def find_parting(first: Replica, second: Replica, is_compacted: bool) -> Parting:
    """Reads both replicas to find it. `is_compacted`: the log is or may have been compacted."""
    found = _survey(first, second, is_compacted)
    latest = (found.epochs[FIRST].latest, found.epochs[SECOND].latest)
    leader = elect(list(map(ReplicaEnd, found.epochs, found.ends)))
    by_epochs = truncation_offset(found.epochs[leader], found.epochs[1 - leader])
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


# -- the merged log --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Taken:
    """A batch of the merged log, from one replica or (`is_common`) from both; its segment begins at
    `segment` in that replica. `hole`: offsets before it that both have lost."""

    batch: Batch
    replica: int
    segment: int
    is_common: bool = False
    is_cleaned_otherwise: bool = False
    hole: tuple[int, int] | None = None


class Merging:
    """The merged log of two replicas, batch by batch. When `batches` is exhausted, `end_offset` is
    the log's end and `lost` the damage after it; `left_out`: the number of batches left out."""

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
        """The damage after the last batch of the merged log."""
        every = [lost for cursor in self._cursors for lost in cursor.lost]
        return [lost for lost in every if max(lost.first, lost.next - 1) >= self.end_offset]

    def batches(self) -> Iterator[Taken]:
        """Yields the batches; each is valid until the next."""
        while (taken := self._next()) is not None:
            batch = taken.batch
            yield taken
            self.end_offset = batch.last + 1
            for cursor in self._cursors:
                while cursor.batch is not None and cursor.batch.last <= batch.last:
                    cursor.advance()
                # A batch that begins within the one used is its alternative.
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
        kept = self._leader
        if one.count != other.count:
            kept = FIRST if one.count > other.count else SECOND
        return self._taken(kept, is_cleaned_otherwise=True)

    def _taken(
        self, number: int, is_common: bool = False, is_cleaned_otherwise: bool = False
    ) -> Taken:
        cursor = self._cursors[number]
        batch = cursor.batch
        assert batch is not None
        hole = self._hole(batch)
        return Taken(batch, number, cursor.segment, is_common, is_cleaned_otherwise, hole)

    def _hole(self, batch: Batch) -> tuple[int, int] | None:
        """Returns the offsets before a batch that are lost, as opposed to compacted away."""
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
