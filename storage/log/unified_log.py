"""What the records of a partition mean to it: Kafka's UnifiedLog, as far as one leader without
followers needs it. The high watermark is the log's end.

The steps of a roll, a truncation, a deletion are in Kafka's order, so that what a crash leaves is
what a broker's would. Appends are `appender`'s; threads, and what they wait for, `writer`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from ..durable import WritableFile
from ..errors import OffsetOutOfRange, PolicyViolation, StorageError
from . import retention
from .epochs import LeaderEpochFile
from .health import offline
from .loaded import LoadedLog
from .local_log import LocalLog
from .producers import Producers
from .reload import reload_producers
from .retention import LogState, RetentionPlan


class UnifiedLog:
    """One thread at a time changes anything.

    Its segments are `local`; `producers` and `epochs` say who wrote what is in them, `start_offset`
    where what is not deleted begins. It is the leader of `leader_epoch`.
    """

    def __init__(
        self,
        local: LocalLog,
        loaded: LoadedLog,
        leader_epoch: int | None,
        on_roll: Callable[[int], None],
    ) -> None:
        """Goes on with a partition that was loaded, as its leader in `leader_epoch` (None: the one
        before, or 0). `on_roll` is called with the base of a new segment."""
        self.local = local
        self.start_offset = loaded.start_offset
        self.producers: Producers = loaded.producers
        self.epochs = LeaderEpochFile(local.directory, loaded.epochs)
        self.leader_epoch = max(loaded.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self._on_roll = on_roll
        self.epochs.assign(self.leader_epoch, local.end_offset)

    @property
    def end_offset(self) -> int:
        return self.local.end_offset

    @property
    def high_watermark(self) -> int:
        """Records below it can be read: all, as there are no followers."""
        return self.local.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        unstable = self.producers.first_unstable_offset
        stable = self.end_offset if unstable < 0 else min(unstable, self.end_offset)
        return max(stable, self.start_offset)

    # -- rolling ---------------------------------------------------------------------------------

    def roll(self, offset: int) -> None:
        """Goes on in a new segment for an append that begins at `offset` (LocalLog.roll). After an
        OSError the old one goes on."""
        local = self.local
        base = max(offset, local.end_offset)
        if base == local.active.base_offset:  # nothing is in it, but its indexes have no room
            local.renew_active()
            return
        local.roll(base, self.take_snapshot(base))
        self._on_roll(base)

    def take_snapshot(self, offset: int) -> tuple[WritableFile, ...]:
        """Writes the producers' state in front of `offset`, which may be above the log's end; its
        file, to be synced, or none when there is nothing new to tell."""
        end, self.producers.map_end_offset = self.producers.map_end_offset, offset
        try:
            file = self.local.snapshots.take(self.producers)
        except OSError:
            self.producers.map_end_offset = end
            raise
        return () if file is None else (file,)

    def finish(self) -> None:
        """Writes what the next opening need not make anew, and makes everything durable
        (UnifiedLog.close). SyncFailed when that is not certain; after another OSError it can be
        repeated."""
        snapshot = self.take_snapshot(self.producers.map_end_offset)
        self.local.active.finish()
        self.local.sync_all(snapshot)
        self.local.active.let_go()

    # -- deleting --------------------------------------------------------------------------------

    def retention_state(self) -> LogState:
        """The log as retention sees it."""
        local = self.local
        return LogState(local.segments, self.start_offset, local.end_offset, self.high_watermark)

    def retain(self, now_ms: int) -> RetentionPlan:
        """Deletes the segments that have become old, or too many; what was deleted, and why."""
        plan = retention.plan(self.retention_state(), self.local.config, now_ms)
        self._delete_oldest(plan.count, now_ms)
        return plan

    def delete_records(self, offset: int) -> None:
        """Moves the log start offset up to `offset`, -1 for the high watermark. PolicyViolation,
        OffsetOutOfRange."""
        if retention.DELETE not in self.local.config.cleanup_policy:
            raise PolicyViolation("cleanup.policy does not say delete")
        offset = self.high_watermark if offset == -1 else offset
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {self.high_watermark}]")
        self._raise_start(offset)

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        """Deletes the first `count` segments (UnifiedLog.deleteSegments). After an OSError those
        that are left lie below the log start offset, and go the next time."""
        local = self.local
        if count > len(local.rolled):
            self.roll(local.end_offset)
        if count == 0:
            return
        self._raise_start(local.segments[count].base_offset)
        for _ in range(count):
            local.delete_oldest(now_ms)

    def _raise_start(self, offset: int) -> None:
        """UnifiedLog.maybeIncrementLogStartOffset."""
        if offset > self.start_offset:
            self.epochs.cut_at_start(offset)
            self.start_offset = offset
            self.local.recovery_point = max(self.local.recovery_point, offset)
            self.producers.map_end_offset = max(self.producers.map_end_offset, offset)
            self.local.snapshots.start_moved(offset)

    # -- truncating ------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Cuts off all records at and above `offset` (UnifiedLog.truncateTo); whether there were
        any. LogDirOffline when it fails half-way."""
        if offset < 0:
            raise OffsetOutOfRange(f"offset {offset} is negative")
        if offset >= self.end_offset:
            self.epochs.cut_at_end(self.end_offset)
            return False
        if offset < self.local.first_base_offset:
            self.start_anew(offset)
        else:
            self._truncate(offset)
        return True

    def start_anew(self, offset: int) -> None:
        """Deletes everything, and goes on at `offset` (UnifiedLog.truncateFullyAndStartAt).
        LogDirOffline when it fails."""
        try:
            self.local.start_anew(offset)
            self.epochs.clear()
            self.local.snapshots.remove_all()
            self.start_offset = offset
            self._reload_producers()
        except (OSError, StorageError) as error:
            raise offline(self.local.directory.path, error) from error

    def _truncate(self, offset: int) -> None:
        try:
            self.local.truncate_to(offset)
            self.epochs.cut_at_end(offset)
            self.start_offset = min(self.start_offset, offset)
            self._reload_producers()
        except (OSError, StorageError) as error:
            raise offline(self.local.directory.path, error) from error

    def _reload_producers(self) -> None:
        local = self.local
        self.producers = reload_producers(
            local.directory,
            [(segment.base_offset, segment.size) for segment in local.segments],
            local.snapshots,
            (self.start_offset, local.end_offset),
            self.producers.expiration_ms,
            local.clock.now_ms(),
        )
