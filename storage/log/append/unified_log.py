"""The log of a partition with the state that its records imply: Kafka's UnifiedLog, for a single
leader without followers. The high watermark is the log's end.

The steps of a roll, truncation or deletion follow Kafka's order, so that a crash leaves the same
state as a broker's would. `appender` handles appends; `writer` handles threads and locking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final

from ...errors import OffsetOutOfRange, PolicyViolation, StorageError
from ...format.files.names import FileKind, segment_file
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...io.durable import WritableFile
from ...segment.segment_writer import SegmentWriter
from ...segment.stored import StoredSegment
from ..delete import retention
from ..delete.deletions import NEVER_MS, UNKNOWN_MS, Cause, DeletedRange, Deletions
from ..delete.leftovers import find_leftovers
from ..delete.retention import RetentionPlan, RetentionState, Rule
from ..load.loaded import LoadedLogOffsets, LoadedSegment
from ..load.loading_segment import LoadingSegment
from ..load.producer_rebuild import ProducerRebuild, Snapshots
from ..state.epochs import LeaderEpochFile
from ..state.producers import ProducerStateManager
from ..state.snapshots import read_snapshot
from .health import offline
from .local_log import LocalLog, Rolled

logger = logging.getLogger(__name__)

# Segments below the log start offset were already deleted when that was raised.
_CAUSES: Final = {
    Rule.LOG_START: Cause.RECORDS,
    Rule.SIZE: Cause.SIZE,
    Rule.TIME: Cause.TIME,
    Rule.LOCAL_SIZE: Cause.LOCAL_SIZE,
    Rule.LOCAL_TIME: Cause.LOCAL_TIME,
}


# A deleted range, and the segments that lie entirely in it.
WithSegments = tuple[DeletedRange, Sequence[LoadedSegment]]


class UnifiedLog:
    """The log of one partition. One thread at a time may change it.

    `local` holds its segments, `producers` and `epochs` the state of their writers. It is the
    leader of `leader_epoch`.

    `start_offset` is the first offset that can be read here (Kafka's localLogStartOffset), and
    `log_start_offset` that of the log, which is lower if remote storage has older records. Of a log
    with remote storage, the segments and leader epochs below it are deleted only when it is
    checkpointed (`note_checkpointed`): after a crash before that, the log begins in remote storage
    again, and would lack what was deleted here.
    """

    def __init__(
        self,
        local: LocalLog,
        loaded: LoadedLogOffsets,
        leader_epoch: int | None,
        on_roll: Callable[[int], None],
    ) -> None:
        """Takes over a loaded partition as its leader in `leader_epoch` (None: the previous one, or
        0). `on_roll` is called with the base of a new segment."""
        self.local = local
        self.start_offset = loaded.start_offset
        self.log_start_offset = self._checkpointed_start = loaded.log_start_offset
        self._is_tiered = loaded.is_tiered
        self._began_in_remote = loaded.log_start_offset < loaded.start_offset
        self.producers: ProducerStateManager = loaded.producers
        self.epochs = LeaderEpochFile(local.directory, loaded.epochs)
        self.leader_epoch = max(loaded.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self._on_roll = on_roll
        self.epochs.assign(self.leader_epoch, local.end_offset)
        self.deletions = Deletions(local.directory.path)
        self._find_deleted(loaded)

    def _find_deleted(self, loaded: LoadedLogOffsets) -> None:
        """Registers records deleted before the load that still exist."""
        start, lowest = self.start_offset, self.local.lowest_offset
        if loaded.finds_deleted and lowest < start:
            is_local = self.log_start_offset < start
            log_start = min(lowest, self.log_start_offset)
            range_ = (lowest, start, Cause.FOUND, UNKNOWN_MS, NEVER_MS, log_start, is_local)
            epochs = self.epochs.epochs if is_local else loaded.deleted_epochs
            self.deletions.add(DeletedRange(*range_), epochs)

    @property
    def end_offset(self) -> int:
        return self.local.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset below which records can be read: the log end, as there are no followers."""
        return self.local.end_offset

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided."""
        unstable = self.producers.first_unstable_offset
        stable = self.end_offset if unstable < 0 else min(unstable, self.end_offset)
        return max(stable, self.start_offset)

    @property
    def is_tiered(self) -> bool:
        """Whether remote storage may have records of the log. Its log start offset must then be
        checkpointed, because the first segment does not tell it."""
        return self._is_tiered or self.local.config.remote_storage_enable

    @property
    def is_copied(self) -> bool:
        """Whether segments are to be deleted only after a broker has copied them to remote storage,
        as its topic's configs say. If they are unknown, its log start offset has told that."""
        config = self.local.config
        is_unknown = not config.remote_storage_enable
        return retention.copies(config) or (is_unknown and self._began_in_remote)

    # -- rolling ---------------------------------------------------------------------------------

    def roll(self, offset: int) -> None:
        """Rolls to a new segment for an append that begins at `offset` (LocalLog.roll). After an
        OSError the old segment remains active."""
        local = self.local
        base = max(offset, local.end_offset)
        if base == local.active.base_offset:  # it is empty, but its indexes have no space
            local.renew_active()
            return
        local.roll(base, self.take_snapshot(base))
        self._on_roll(base)

    def take_snapshot(self, offset: int) -> tuple[WritableFile, ...]:
        """Snapshots the producers' state before `offset`, which may be above the log's end. Returns
        the file, to be synced; nothing if the last snapshot is as new."""
        end, self.producers.map_end_offset = self.producers.map_end_offset, offset
        try:
            file = self.local.snapshots.take(self.producers)
        except OSError:
            self.producers.map_end_offset = end
            raise
        return () if file is None else (file,)

    def finish(self) -> None:
        """Writes the state that the next load would otherwise rebuild, and makes everything durable
        (UnifiedLog.close). Raises SyncFailed if that is uncertain; after another OSError it can be
        repeated."""
        self.epochs.write()
        snapshot = self.take_snapshot(self.producers.map_end_offset)
        self.local.active.finish()
        self.local.sync_all(snapshot)
        self.local.active.close_files()

    # -- deleting --------------------------------------------------------------------------------

    def retention_state(self, now_ms: int, copied_until: int) -> RetentionState:
        """Returns the log as retention sees it. `copied_until`: the offset up to which remote
        storage is known to have the segments."""
        local = self.local
        is_held = now_ms < self.deletions.held_until_ms
        return RetentionState(
            local.segments,
            self._deletable_start,
            local.end_offset,
            self.high_watermark,
            self.deletions.held_below if is_held else 0,
            copied_until if self.is_copied else None,
        )

    @property
    def _deletable_start(self) -> int:
        """The offset below which segments can be deleted in any case."""
        if not self.is_tiered:
            return self.start_offset
        return min(self.log_start_offset, self._checkpointed_start)

    def note_checkpointed(self, log_start: int) -> None:
        """Notes that this log start offset is in the checkpoint file, durably."""
        self._checkpointed_start = log_start
        self.epochs.cut_at_start(self._deletable_start)

    def retain(self, now_ms: int, copied_until: int) -> RetentionPlan:
        """Deletes segments that exceed retention by time or size; returns the applied plan.
        `copied_until`: as for `retention_state`."""
        state = self.retention_state(now_ms, copied_until)
        plan = retention.plan(state, self.local.config, now_ms)
        if plan.rolls:
            self.roll(self.end_offset)
        # In one go: what an OSError leaves is deleted the next time.
        segments = self.local.segments
        gone = 0
        for deletion in plan.deletions:
            gone += deletion.count
            base, cause = segments[gone].base_offset, _CAUSES[deletion.rule]
            self._raise_start(base, cause, now_ms, is_local=self.is_copied)
        self._delete_oldest(gone, now_ms)
        self._log_deletions(plan, segments)
        return plan

    def _log_deletions(
        self, plan: RetentionPlan, segments: Sequence[StoredSegment | SegmentWriter]
    ) -> None:
        """Logs what a plan has deleted from the former `segments`."""
        gone = 0
        for deletion in plan.deletions:
            those = segments[gone : gone + deletion.count]
            gone += deletion.count
            logger.info(
                "%s: deleted offsets %d to %d, %d segments with %d bytes, by %s",
                self.local.directory.name,
                those[0].base_offset,
                segments[gone].base_offset - 1,
                len(those),
                sum(segment.size for segment in those),
                deletion.rule,
            )

    def delete_below_start(self, now_ms: int) -> int:
        """Deletes the segments below the log start offset, regardless of time and size
        (deleteLogStartOffsetBreachedSegments); returns their number."""
        ends = [segment.base_offset for segment in self.local.segments[1:]]
        count = sum(end <= self._deletable_start for end in ends)
        self.epochs.write()
        segments = self.local.segments
        self._delete_oldest(count, now_ms)
        deletions = (retention.RetentionDeletion(Rule.LOG_START, count),) if count else ()
        self._log_deletions(RetentionPlan(deletions, False, self.start_offset), segments)
        return count

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        if count:
            self.epochs.write()
        for _ in range(count):
            self.local.delete_oldest(now_ms)

    def delete_records(self, offset: int) -> None:
        """Raises the log start offset to `offset`, -1 for the high watermark. Raises
        PolicyViolation or OffsetOutOfRange if that is not allowed."""
        if retention.DELETE not in self.local.config.cleanup_policy:
            raise PolicyViolation("cleanup.policy does not include delete")
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {self.high_watermark}]")
        self._delete_remote(offset)
        self._raise_start(offset, Cause.RECORDS, self.local.clock.now_ms())

    def _delete_remote(self, offset: int) -> None:
        """Deletes the records below `offset` that only remote storage has. It is not changed: a
        broker deletes there what is below the log start offset."""
        until = min(offset, self.start_offset)
        if self.log_start_offset < until:
            logger.warning(
                "%s: offsets %d to %d are deleted, too, which are in remote storage only; they stay"
                " there until a broker that leads the partition deletes them",
                self.local.directory.name,
                self.log_start_offset,
                until - 1,
            )
        if self.log_start_offset < offset < self.start_offset:
            self._forget_deletions("older records in remote storage were deleted")
            self.log_start_offset = offset

    def _raise_start(self, offset: int, cause: Cause, now_ms: int, is_local: bool = False) -> None:
        """UnifiedLog.maybeIncrementLogStartOffset or, if `is_local`,
        maybeIncrementLocalLogStartOffset."""
        before = self.log_start_offset
        if offset > self.start_offset:
            until = now_ms + self.local.config.file_delete_delay_ms
            range_ = (self.start_offset, offset, cause, now_ms, until, before, is_local)
            self.deletions.add(DeletedRange(*range_), self.epochs.epochs)
            self.start_offset = offset
            self.local.recovery_point = max(self.local.recovery_point, offset)
            self.producers.map_end_offset = max(self.producers.map_end_offset, offset)
            self.local.snapshots.start_moved(offset)
        if not is_local and offset >= self.start_offset:
            self.log_start_offset = max(before, offset)
            self.epochs.cut_at_start(self._deletable_start)

    @property
    def has_deleted(self) -> bool:
        """Whether `remove_deleted` will ever have something to do."""
        return self.local.deleted.has_due or self.deletions.has_due

    def remove_deleted(self, now_ms: int) -> int:
        """Removes files that are due; returns their number. They can no longer be restored."""
        removed = self.local.deleted.remove_due(now_ms)
        self.deletions.forget(now_ms, self.local.lowest_offset)
        return removed

    def purge(self, names: AbstractSet[str], *, own: bool = False) -> set[str]:
        """Removes the leftovers with these names, those that this process deleted only if `own`;
        returns the names of those removed. They can no longer be restored."""
        local = self.local
        found = [
            each
            for each in find_leftovers(local.directory)
            if each.name in names and (own or local.deleted.is_left(each.name))
        ]
        try:
            local.deleted.purge(found)
        finally:
            self.deletions.forget(local.clock.now_ms(), local.lowest_offset)
        return {each.name for each in found}

    # -- restoring -------------------------------------------------------------------------------

    def deleted(self, now_ms: int) -> list[WithSegments]:
        """Returns what can be restored, oldest first, with the segments entirely in it."""
        self.deletions.forget(now_ms, self.local.lowest_offset)
        return self._with_segments(self.deletions)

    def _with_segments(self, ranges: Iterable[DeletedRange]) -> list[WithSegments]:
        front = [each for _, each in sorted(self.local.deleted.front.items())]
        segments = [*front, *self.local.segments]
        ends = [segment.base_offset for segment in segments[1:]]
        found = list(zip(segments, ends, strict=False))
        return [
            (deleted, [segment for segment, end in found if deleted.start < end <= deleted.end])
            for deleted in ranges
        ]

    def undelete(self, offset: int | None, now_ms: int) -> list[WithSegments]:
        """Moves the log start back to `offset`, or as far as possible if it is None; returns what
        was restored. Raises CannotUndelete if that is impossible. After an OSError the log start
        offset is unchanged; segments below it may remain, which the next retention deletes."""
        local, deletions = self.local, self.deletions
        deletions.forget(now_ms, local.lowest_offset)
        start = deletions.select_start(offset, self.start_offset)
        bases = local.deleted_above(start)
        if not all(map(local.deleted.is_there, bases)):
            self._forget_deletions("its files were removed by another process")
            start = deletions.select_start(offset, self.start_offset)
        former, log_start = self.epochs.epochs, deletions.log_start_at(start)
        if log_start < self.log_start_offset:
            self.epochs.extend_down(deletions.epochs.cut_at_start(log_start))
        try:
            local.restore(bases)
        except OSError:
            self.epochs.epochs = former
            raise
        self.start_offset, self.log_start_offset = start, log_start
        local.snapshots.start_moved(start)
        back = deletions.take_back(start, now_ms, local.config.file_delete_delay_ms)
        return self._with_segments(back)

    def replace_segments(self, new: LoadedSegment, bases: Sequence[int], known: Rolled) -> None:
        """See `LocalLog.replace_segments`. Earlier deletions become permanent: they may include
        records whose keys' tombstones are discarded now."""
        self.local.replace_segments(new, bases, known)
        self._forget_deletions("the log was compacted meanwhile")

    def replace_segment(self, new: LoadedSegment, size: int) -> bool:
        """Swaps in a segment, present as `.cleaned` and durable, for the one with its base offset,
        if that still has `size` bytes; else returns False, with nothing changed. If that is the
        active segment, the log rolls first, so its end offset stays. Raises as
        `LocalLog.replace_segments`; earlier deletions can still be undone."""
        local = self.local
        bases = {each.base_offset: each for each in local.segments}
        old = bases.get(new.base_offset)
        if old is None or old.size != size:
            return False
        if old is local.active:
            self.roll(local.end_offset)
            unflushed = local.unflushed(local.end_offset)
            unflushed.sync()
            local.mark_flushed(unflushed)
        known = local.rolled_at(self.last_stable_offset)
        local.replace_segments(new, [new.base_offset], known)
        return True

    def _forget_deletions(self, why: str) -> None:
        self.deletions.forget_all(why)
        self.local.deleted.forget_front()

    # -- truncating ------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Truncates the log to `offset` (UnifiedLog.truncateTo); returns whether it held records at
        or above it. Raises LogDirOffline if it fails half-way."""
        if offset < 0:
            raise OffsetOutOfRange(f"offset {offset} is negative")
        if offset >= self.end_offset:
            self.epochs.cut_at_end(self.end_offset)
            return False
        if offset < self.local.first_base_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            self._truncate(offset)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Deletes everything and restarts at `offset` (UnifiedLog.truncateFullyAndStartAt). Raises
        LogDirOffline if it fails, and OffsetOutOfRange if remote storage has older records: a
        broker would delete them."""
        if self.log_start_offset < self.start_offset:
            there = f"{self.log_start_offset} to {self.start_offset - 1}"
            raise OffsetOutOfRange(
                f"the log cannot begin again at offset {offset}: its offsets {there} are in remote"
                " storage only, and would be lost"
            )
        self._forget_deletions("the log was truncated meanwhile")
        try:
            self.local.truncate_fully_and_start_at(offset)
            self.epochs.clear()
            self.local.snapshots.remove_all()
            self.start_offset = self.log_start_offset = offset
            self._reload_producers()
        except (OSError, StorageError) as error:
            raise offline(self.local.directory.path, error) from error

    def _truncate(self, offset: int) -> None:
        if offset < self.start_offset:
            self._forget_deletions("the log was truncated meanwhile")
        try:
            self.local.truncate_to(offset)
            self.epochs.cut_at_end(offset)
            self.start_offset = min(self.start_offset, offset)
            self.log_start_offset = min(self.log_start_offset, offset)
            self._reload_producers()
        except (OSError, StorageError) as error:
            raise offline(self.local.directory.path, error) from error

    def _reload_producers(self) -> None:
        """Rebuilds the producers of a log that was truncated, from the newest snapshot and the
        batches after it, and updates the snapshots on disk to match (UnifiedLog.truncateTo)."""
        local = self.local
        snapshots = Snapshots(local.snapshots.offsets, partial(read_snapshot, local.directory))
        expiration_ms, now_ms = self.producers.expiration_ms, local.clock.now_ms()
        rebuild = ProducerRebuild(snapshots, self.start_offset, expiration_ms, now_ms)
        loaded = rebuild.at(local.end_offset, self._loading_segments(), is_clean=False)
        local.snapshots.change(snapshots.written, snapshots.gone)
        local.snapshots.start_moved(self.start_offset)
        self.producers = loaded.producers

    def _loading_segments(self) -> list[LoadingSegment]:
        local = self.local
        limits = [segment.base_offset for segment in local.segments[1:]] + [MAX_OFFSET]
        return [
            LoadingSegment(
                local.directory,
                segment.base_offset,
                segment_file(segment.base_offset, FileKind.LOG),
                segment_file(segment.base_offset, FileKind.INDEX),
                0,
                segment.size,
                limit,
                MAX_INT32,
            )
            for segment, limit in zip(local.segments, limits, strict=True)
        ]
