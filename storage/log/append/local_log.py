"""The segments on disk of a partition that is written to: Kafka's LocalLog.

They are contiguous: the rolled segments, then the active one. Each has a producer snapshot at its
base offset. The meaning of their records for the partition is the concern of `unified_log`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from ...clock import Clock
from ...config.kafka import TopicConfig
from ...errors import CleaningAborted
from ...format.files.names import FileKind, FileState, segment_file
from ...format.records.batch import BatchTable
from ...io.durable import Buffer, WritableDirFd, WritableFile
from ...segment.segment_writer import SegmentWriter
from ...segment.stored import StoredSegment
from ...segment.txn_index import AbortedTxn
from ..delete.deleted import DeletedFiles
from ..delete.replacing import replace_files
from ..load.loaded import LoadedLogOffsets, LoadedSegment
from ..state.snapshots import SnapshotFiles


class Unflushed(NamedTuple):
    """The files to sync so that everything below `end` is durable: the `rolled` segments, and the
    active one's `log` unless that begins at `end`. `truncations`: the log's count at that time."""

    rolled: Sequence[StoredSegment]
    log: WritableFile | None
    end: int
    truncations: int

    def sync(self) -> None:
        """Syncs the files; needs no lock. Raises SyncFailed if it is unknown what is durable."""
        for segment in self.rolled:
            segment.sync()
        if self.log is not None:
            self.log.sync()


class Rolled(NamedTuple):
    """The rolled `segments` at one moment. They hold everything below `end_offset`; below
    `stable_offset` every transaction was decided."""

    segments: Sequence[StoredSegment]
    end_offset: int
    stable_offset: int
    truncations: int


class LocalLog:
    """The segments of one partition. One thread at a time may change them.

    `rolled` and `active`: the segments; the list is replaced, never changed. `end_offset`: the
    offset of the next record. Records below `recovery_point` are known to be durable, and
    `last_flush_ms` is when it last advanced. `config` may be replaced at any time. `front_moved`:
    segments were deleted from the front, and the deletion may not be durable yet.
    """

    def __init__(
        self, directory: WritableDirFd, config: TopicConfig, clock: Clock, loaded: LoadedLogOffsets
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

    def _open(self, loaded: LoadedLogOffsets) -> None:
        """Takes over the loaded segments. Those above the recovery point may come from a process
        that was killed, and may not be durable yet."""
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

    def _find_deleted(self, loaded: LoadedLogOffsets) -> None:
        """Registers earlier deleted segments that still exist."""
        for segment in loaded.deleted:
            base = segment.base_offset
            for kind in segment.kinds:
                self.deleted.add_found(segment_file(base, kind, FileState.DELETED))
            found = StoredSegment(self.directory, base, segment.size, is_synced=False)
            self.deleted.front[base] = found

    def _writable(self, segment: StoredSegment, now_ms: int) -> SegmentWriter:
        """Opens a segment as the active one."""
        base, size = segment.base_offset, segment.size
        is_synced = segment.is_synced
        return SegmentWriter(self.directory, base, size, self.config, now_ms, is_synced)

    @property
    def segments(self) -> list[StoredSegment | SegmentWriter]:
        """All segments, oldest first."""
        return [*self.rolled, self.active]

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
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
        """Writes batches as `SegmentWriter.append` does; `end_offset` is the log's new end."""
        self.active.append(buffers, table, first_timestamp, aborted)
        self.end_offset = end_offset

    def renew_active(self) -> None:
        """Reopens the active segment, which is empty but has no space left in its indexes."""
        self.active.finish()
        base, now = self.active.base_offset, self.clock.now_ms()
        self.active = SegmentWriter(self.directory, base, 0, self.config, now)

    def roll(self, base: int, snapshot: Sequence[WritableFile]) -> None:
        """Starts a new segment at `base`, which is at or above the log's end. The files of the
        `snapshot` before it become durable with the old segment. After an OSError the old segment
        remains active."""
        active = self.active
        active.finish()
        if self.recovery_point >= self.end_offset:
            # Recovery would no longer check the old segment or its indexes.
            active.sync_all()
        created = SegmentWriter.create(self.directory, base, self.config, self.clock.now_ms())
        rolled = active.stored()
        rolled.unsynced += tuple(snapshot)
        rolled.is_synced = not rolled.unsynced  # an unsynced segment lists its own files
        self.rolled = [*self.rolled, rolled]
        self.active = created

    # -- becoming durable ------------------------------------------------------------------------

    def unflushed(self, upto: int) -> Unflushed:
        """Returns what to sync so that everything below `upto`, and whatever else has been written
        by now, is durable. The file names were synced when the files were created."""
        rolled = [segment for segment in self.rolled if not segment.is_synced]
        base = self.active.base_offset
        if upto <= base:
            return Unflushed(rolled, None, base, self._truncations)
        return Unflushed(rolled, self.active.log, self.end_offset, self._truncations)

    def mark_flushed(self, flushed: Unflushed) -> None:
        """Notes that `flushed` was synced (LocalLog.markFlushed); void after a truncation."""
        if flushed.truncations == self._truncations and flushed.end > self.recovery_point:
            self.recovery_point = flushed.end
            self.last_flush_ms = self.clock.now_ms()

    def sync_all(self, snapshot: Sequence[WritableFile]) -> None:
        """Makes everything durable, including the files of the `snapshot` at the log's end."""
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
        """Returns the segments to clean, given the present last stable offset."""
        return Rolled(self.rolled, self.active.base_offset, stable_offset, self._truncations)

    def replace_segments(self, new: LoadedSegment, bases: Sequence[int], known: Rolled) -> None:
        """Swaps in a segment, present as `.cleaned` and durable, for those of `known` with these
        base offsets, of which the first is its own (LocalLog.replaceSegments). Raises
        CleaningAborted if one of them was deleted since, or the log was truncated.

        After an OSError nothing has changed except that the `.cleaned` files, or at most the
        snapshots of former base offsets, are deleted. Raises LogDirOffline or SyncFailed if that is
        uncertain.
        """
        old = [segment for segment in known.segments if segment.base_offset in bases]
        at = next((n for n, s in enumerate(self.rolled) if s.base_offset == new.base_offset), -1)
        is_there = at >= 0 and self.rolled[at : at + len(bases)] == old
        if not is_there or len(old) < len(bases) or known.truncations != self._truncations:
            raise CleaningAborted("segments were deleted or truncated meanwhile")
        due = self.clock.now_ms() + self.config.file_delete_delay_ms
        replace_files(self.directory, [new.base_offset], bases, self.deleted, due)
        stored = StoredSegment(self.directory, new.base_offset, new.size, is_synced=True)
        self.rolled = [*self.rolled[:at], stored, *self.rolled[at + len(old) :]]
        for segment in old[1:]:
            self._delete_snapshot(segment.base_offset, due)

    def go_on_with(self, placed: Sequence[LoadedSegment], end_offset: int) -> None:
        """Takes over durable segments that have replaced the empty active one. The last becomes
        active, and `end_offset` is the log's new end."""
        self.active.close_files()
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
        """Deletes the oldest rolled segment; it can be restored."""
        oldest = self.rolled[0]
        self.front_moved = True
        self._delete(oldest.base_offset, now_ms, is_of_front=True)
        self.rolled = self.rolled[1:]
        self.deleted.front[oldest.base_offset] = oldest

    @property
    def lowest_offset(self) -> int:
        """The base offset of the oldest segment that exists or can be restored."""
        return min(self.deleted.front, default=self.first_base_offset)

    def deleted_above(self, offset: int) -> list[int]:
        """Returns the base offsets, ascending, of the segments to restore if the log is to begin at
        `offset` again."""
        bases = sorted(self.deleted.front)
        return [
            base
            for base, end in zip(bases, [*bases[1:], self.first_base_offset], strict=False)
            if end > offset
        ]

    def restore(self, bases: Sequence[int]) -> None:
        """Restores deleted segments, as returned by `deleted_above`, to the front of the log. After
        an OSError the newest of them may be restored; the call can be repeated.

        They are made durable, then all files but the `.log` files get their names, then those, the
        newest first: the log never has a gap or a segment without its other files.
        """
        try:
            for base in bases:
                self.deleted.sync(base)
            for base in bases:
                if self.deleted.restore_indexes(base):
                    self.snapshots.restore(base)
            self.directory.sync()
            for base in reversed(bases):
                self.rolled = [self.deleted.restore_log(base), *self.rolled]
        except OSError:
            with suppress(OSError):
                for base in self.deleted.front.keys() & bases:
                    self._delete(base, self.clock.now_ms(), is_of_front=True)
            raise
        self.directory.sync()

    def truncate_to(self, offset: int) -> None:
        """Truncates the log to `offset`, which lies in one of the segments: removes all batches
        that reach it. The newest segments are deleted first, so that there is never a gap. After an
        OSError it may be partly done."""
        now = self.clock.now_ms()
        self._truncations += 1
        while self.active.base_offset > offset:
            self._delete(self.active.base_offset, now)
            self.active = self._writable(self.rolled[-1], now)
            self.rolled = self.rolled[:-1]
        # A power failure must not restore segments above what is appended next.
        self.directory.sync()
        self.active.truncate_to(offset, now)
        self._end_at(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Deletes all segments and starts a new one at `offset`
        (LocalLog.truncateFullyAndStartAt). After an OSError it may be partly done."""
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
        """Marks a segment's files and its snapshot for removal after file.delete.delay.ms."""
        due = now_ms + self.config.file_delete_delay_ms
        self.deleted.mark(base_offset, due, is_of_front)
        self._delete_snapshot(base_offset, due, is_of_front)

    def _delete_snapshot(self, base_offset: int, due_ms: int, is_of_front: bool = False) -> None:
        self.deleted.make_way(segment_file(base_offset, FileKind.SNAPSHOT, FileState.DELETED))
        snapshot = self.snapshots.mark_deleted(base_offset)
        if snapshot is not None:
            self.deleted.add(snapshot, due_ms, is_of_front)

    def close_files(self) -> None:
        """Closes the files as they are; the log must not be used afterwards."""
        self.active.close_files()
        self.rolled = []
