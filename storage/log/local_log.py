"""The segments of a partition that is written to, as they are on the disk: Kafka's LocalLog.

They lie one after the other, those that were rolled and the active one behind them. With each goes
the snapshot of the producers at its base. What the records in them mean to a partition is
`unified_log`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ..clock import Clock
from ..config import TopicConfig
from ..durable import Buffer, WritableDirectory, WritableFile
from ..errors import CleaningAborted
from ..format.batch import BatchTable
from ..format.names import FileKind, FileState, segment_file
from ..segment.segment_writer import SegmentWriter
from ..segment.stored import StoredSegment
from ..segment.txn_index import AbortedTxn
from .deleted import DeletedFiles
from .loaded import LoadedLog, LoadedSegment
from .replacing import replace_files
from .snapshots import SnapshotFiles


class Unflushed(NamedTuple):
    """What is to be synced so that all below `end` is durable: `rolled` segments, and the active
    one's `log` unless it begins at `end`. `truncations`: how often the log had been cut then."""

    rolled: Sequence[StoredSegment]
    log: WritableFile | None
    end: int
    truncations: int

    def sync(self) -> None:
        """Needs no lock. SyncFailed when it is not certain what is durable."""
        for segment in self.rolled:
            segment.sync()
        if self.log is not None:
            self.log.sync()


class Rolled(NamedTuple):
    """The rolled `segments` at one moment, and what was known then: all below `end_offset` is in
    them, and below `stable_offset` every transaction was decided."""

    segments: Sequence[StoredSegment]
    end_offset: int
    stable_offset: int
    truncations: int


class LocalLog:
    """One thread at a time changes anything.

    `rolled` and `active`: its segments; the list is replaced, never changed. `end_offset`: where
    the next record goes; those below `recovery_point` are on the disk for certain, and
    `last_flush_ms` is when that moved last. `config` may be replaced at any time. `front_moved`:
    segments were deleted from the front, and it is not certain yet that they stay so.
    """

    def __init__(
        self, directory: WritableDirectory, config: TopicConfig, clock: Clock, loaded: LoadedLog
    ) -> None:
        self.directory = directory
        self.config = config
        self.clock = clock
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = clock.now_ms()
        self.snapshots = SnapshotFiles(directory, loaded.start_offset, loaded.snapshots)
        self.deleted = DeletedFiles(directory)
        self.front_moved = False
        self._truncations = 0
        self._open(loaded)
        self._find_deleted(loaded)

    def _open(self, loaded: LoadedLog) -> None:
        """Takes over the segments. Those above the recovery point may have been left by a process
        that was killed, and still be on their way to the disk."""
        now = self.clock.now_ms()
        ends = [segment.base_offset for segment in loaded.segments[1:]] + [self.end_offset]
        found = [
            StoredSegment(
                self.directory, segment.base_offset, segment.size, end <= self.recovery_point
            )
            for segment, end in zip(loaded.segments, ends, strict=False)
        ]
        self.rolled = found[:-1]
        if found:
            self.active = self._writable(found[-1], now)
        else:
            base = loaded.start_offset
            self.active = SegmentWriter.create(self.directory, base, self.config, now)

    def _find_deleted(self, loaded: LoadedLog) -> None:
        """What was deleted before, and is still there."""
        for segment in loaded.deleted:
            base = segment.base_offset
            for kind in segment.kinds:
                self.deleted.add_found(segment_file(base, kind, FileState.DELETED))
            found = StoredSegment(self.directory, base, segment.size, is_synced=False)
            self.deleted.front[base] = found

    def _writable(self, segment: StoredSegment, now_ms: int) -> SegmentWriter:
        """A segment as the active one."""
        base, size = segment.base_offset, segment.size
        is_synced = segment.is_synced
        return SegmentWriter(self.directory, base, size, self.config, now_ms, is_synced)

    @property
    def segments(self) -> list[StoredSegment | SegmentWriter]:
        """All of them, the oldest first."""
        return [*self.rolled, self.active]

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment."""
        rolled = self.rolled
        return rolled[0].base_offset if rolled else self.active.base_offset

    # -- growing ---------------------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        table: BatchTable,
        first_timestamp: int,
        aborted: Sequence[AbortedTxn],
        end_offset: int,
    ) -> None:
        """Writes batches as `SegmentWriter.append` does; the log ends at `end_offset` then."""
        self.active.append(buffers, table, first_timestamp, aborted)
        self.end_offset = end_offset

    def renew_active(self) -> None:
        """The active segment anew, which has no batch yet, but no room in its indexes either."""
        self.active.finish()
        base, now = self.active.base_offset, self.clock.now_ms()
        self.active = SegmentWriter(self.directory, base, 0, self.config, now)

    def roll(self, base: int, snapshot: Sequence[WritableFile]) -> None:
        """Goes on in a new segment at `base`, the log's end or above it; the files of the
        `snapshot` in front of it become durable with the old one. After an OSError that one goes
        on."""
        active = self.active
        active.finish()
        if self.recovery_point >= self.end_offset:
            # Recovery would not look at the old segment any more, its indexes included.
            active.sync_all()
        created = SegmentWriter.create(self.directory, base, self.config, self.clock.now_ms())
        rolled = active.stored()
        rolled.unsynced += tuple(snapshot)
        rolled.is_synced = not rolled.unsynced  # those of a segment that is not synced are there
        self.rolled = [*self.rolled, rolled]
        self.active = created

    # -- becoming durable ------------------------------------------------------------------------

    def unflushed(self, upto: int) -> Unflushed:
        """What makes durable all that is below `upto`, and with it what else is there by now. The
        names of the files were synced when they were made."""
        rolled = [segment for segment in self.rolled if not segment.is_synced]
        base = self.active.base_offset
        if upto <= base:
            return Unflushed(rolled, None, base, self._truncations)
        return Unflushed(rolled, self.active.log, self.end_offset, self._truncations)

    def mark_flushed(self, flushed: Unflushed) -> None:
        """It was synced (LocalLog.markFlushed); if the log was cut meanwhile that says nothing."""
        if flushed.truncations == self._truncations and flushed.end > self.recovery_point:
            self.recovery_point = flushed.end
            self.last_flush_ms = self.clock.now_ms()

    def sync_all(self, snapshot: Sequence[WritableFile]) -> None:
        """Makes everything durable, the files of the `snapshot` at the log's end included."""
        for segment in self.rolled:
            if not segment.is_synced:
                segment.sync()
        self.active.sync_all()
        for file in snapshot:
            file.sync()
        self.directory.sync()
        self.recovery_point = self.end_offset

    # -- being cleaned ---------------------------------------------------------------------------

    def rolled_at(self, stable_offset: int) -> Rolled:
        """What a cleaning may be about, now that the last stable offset is that."""
        return Rolled(self.rolled, self.active.base_offset, stable_offset, self._truncations)

    def replace_segments(self, new: LoadedSegment, bases: Sequence[int], known: Rolled) -> None:
        """Puts a segment, which is there as `.cleaned` and durable, in the place of those of
        `known` with these bases, the first of which is its own (LocalLog.replaceSegments).
        CleaningAborted when one of them has gone since, or the log was cut.

        After an OSError nothing has changed, but that the `.cleaned` files, or at most the
        snapshots of bases that are none any more, have gone. LogDirOffline, SyncFailed when that is
        not certain.
        """
        old = [segment for segment in known.segments if segment.base_offset in bases]
        at = next((n for n, s in enumerate(self.rolled) if s.base_offset == new.base_offset), -1)
        is_there = at >= 0 and self.rolled[at : at + len(bases)] == old
        if not is_there or len(old) < len(bases) or known.truncations != self._truncations:
            raise CleaningAborted("segments were deleted or cut meanwhile")
        due = self.clock.now_ms() + self.config.file_delete_delay_ms
        replace_files(self.directory, [new.base_offset], bases, self.deleted, due)
        stored = StoredSegment(self.directory, new.base_offset, new.size, is_synced=True)
        self.rolled = [*self.rolled[:at], stored, *self.rolled[at + len(old) :]]
        for segment in old[1:]:
            self._delete_snapshot(segment.base_offset, due)

    def go_on_with(self, placed: Sequence[LoadedSegment], end_offset: int) -> None:
        """Takes over segments that are there, durable, and have taken the place of the active one,
        which was empty; the last of them is active now, and the log ends at `end_offset`."""
        self.active.let_go()
        *rolled, last = [
            StoredSegment(self.directory, segment.base_offset, segment.size, is_synced=True)
            for segment in placed
        ]
        self.rolled = [*self.rolled, *rolled]
        self.active = self._writable(last, self.clock.now_ms())
        self.end_offset = end_offset
        self.mark_flushed(Unflushed([], None, end_offset, self._truncations))

    # -- shrinking -------------------------------------------------------------------------------

    def delete_oldest(self, now_ms: int) -> None:
        """Deletes the oldest of the rolled segments, which can come back."""
        oldest = self.rolled[0]
        self.front_moved = True
        self._delete(oldest.base_offset, now_ms, is_of_front=True)
        self.rolled = self.rolled[1:]
        self.deleted.front[oldest.base_offset] = oldest

    @property
    def lowest_offset(self) -> int:
        """Base offset of the oldest segment that is there or could come back."""
        return min(self.deleted.front, default=self.first_base_offset)

    def deleted_above(self, offset: int) -> list[int]:
        """Base offsets of the segments that have to come back, if the log is to begin at `offset`
        again, ascending."""
        bases = sorted(self.deleted.front)
        return [
            base
            for base, end in zip(bases, [*bases[1:], self.first_base_offset], strict=False)
            if end > offset
        ]

    def bring_back(self, bases: Sequence[int]) -> None:
        """Makes deleted segments, as `deleted_above` gives them, the oldest of the log again. After
        an OSError the newest of them may have come back; it can be repeated.

        They become durable, then all their names but those of the `.log` files, then those, the
        newest first: at any moment there is no hole, and no log without what belongs to it.
        """
        try:
            for base in bases:
                self.deleted.sync(base)
            for base in bases:
                if self.deleted.bring_back_indexes(base):
                    self.snapshots.bring_back(base)
            self.directory.sync()
            for base in reversed(bases):
                self.rolled = [self.deleted.bring_back_log(base), *self.rolled]
        except OSError:
            with suppress(OSError):
                for base in self.deleted.front.keys() & bases:
                    self._delete(base, self.clock.now_ms(), is_of_front=True)
            raise
        self.directory.sync()

    def truncate_to(self, offset: int) -> None:
        """Cuts off all batches that reach to `offset` or above it, which lies in one of the
        segments. The newest segments go first, so that there never is a hole. After an OSError part
        of it may have been done."""
        now = self.clock.now_ms()
        self._truncations += 1
        while self.active.base_offset > offset:
            self._delete(self.active.base_offset, now)
            self.active = self._writable(self.rolled[-1], now)
            self.rolled = self.rolled[:-1]
        # A power cut must not bring back segments behind what is appended from here on.
        self.directory.sync()
        self.active.truncate_to(offset, now)
        self._end_at(offset)

    def start_anew(self, offset: int) -> None:
        """Deletes all segments, and goes on at `offset` (LocalLog.truncateFullyAndStartAt). After
        an OSError part of it may have been done."""
        now = self.clock.now_ms()
        self._truncations += 1
        self.deleted.forget_front()
        for segment in self.segments:
            self._delete(segment.base_offset, now)
        self.rolled = []
        self.active = SegmentWriter.create(self.directory, offset, self.config, now)
        self._end_at(offset)

    def _end_at(self, offset: int) -> None:
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def _delete(self, base_offset: int, now_ms: int, is_of_front: bool = False) -> None:
        """A segment's files and its snapshot go when file.delete.delay.ms has passed."""
        due = now_ms + self.config.file_delete_delay_ms
        self.deleted.mark(base_offset, due, is_of_front)
        self._delete_snapshot(base_offset, due, is_of_front)

    def _delete_snapshot(self, base_offset: int, due_ms: int, is_of_front: bool = False) -> None:
        self.deleted.make_way(segment_file(base_offset, FileKind.SNAPSHOT, FileState.DELETED))
        snapshot = self.snapshots.mark_deleted(base_offset)
        if snapshot is not None:
            self.deleted.add(snapshot, due_ms, is_of_front)

    def let_go(self) -> None:
        """Closes the files as they are; nothing is asked any more."""
        self.active.let_go()
        self.rolled = []
