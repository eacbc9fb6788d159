"""The writer of one partition, for any number of threads.

Appends that arrive while another is being written are written together (see `group_commit`), and
fsyncs are shared likewise. Readers never wait: they read the files.

A thread holds a turn of `_flushing` during an fsync, and `_lock` during any other change, but never
waits for the former while it holds the latter. `health` determines the effects of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from functools import partial
from typing import Final

from ...clock import Clock
from ...concurrency.fair_lock import FairLock
from ...concurrency.interruption import uninterrupted
from ...concurrency.shared_work import DeferredCalls, SingleFlight
from ...config.kafka import TopicConfig
from ...errors import LogDirOffline, StorageError, UnknownPartition
from ...format.layout import RECORD_BATCH_OVERHEAD
from ...format.records.batch import Bytes
from ...format.records.encoder import RECORD_OVERHEAD, BatchPlan
from ...format.records.record_columns import RecordColumns
from ...format.records.validate import AppendOrigin, ValidationRules, validate_batches
from ...io.durable import SyncFailed, WritableDirFd
from ..delete.deletions import Deletion
from ..delete.retention import RetentionPlan, RetentionState
from ..load.loaded import LoadedLogOffsets, LoadedSegment
from ..state.epochs import LeaderEpochFileCache
from ..state.producer_state import ProducerStateEntry
from ..state.producers import ProducerStateManager
from .appender import Appender
from .appending import AppendRequest, LogAppendInfo
from .group_commit import GroupCommit
from .health import Health
from .in_flight import AppendsInFlight
from .local_log import LocalLog, Rolled
from .log_target import IngestTarget
from .merging import RecordsRequest, may_merge, merge
from .preparing import admit_rules, encoded, end_of_transaction
from .unified_log import UnifiedLog, WithSegments

_PLAN: Final = BatchPlan()
#: Returns the offset up to which remote storage is known to have the records of a log with these
#: leader epochs, without a gap from an offset on; that offset itself if it is not known.
Copied = Callable[[LeaderEpochFileCache, int], int]


class LogWriter:
    """The writer of one partition; see the module. Every method may be called from any thread.

    `config` may be replaced at any time. The log holds records from `start_offset` up to
    `end_offset`; those below `recovery_point` are known to be durable, and `last_flush_ms` is when
    that last advanced.
    """

    def __init__(
        self,
        directory: WritableDirFd,
        topic: str,
        partition: int,
        *,
        config: TopicConfig,
        clock: Clock,
        loaded: LoadedLogOffsets,
        leader_epoch: int | None = None,
        on_failure: Callable[[LogDirOffline], None] | None = None,
        on_deleted: Callable[[bool], None] | None = None,
        copied: Copied | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """Takes over a loaded partition as its leader in `leader_epoch` (None: the previous one, or
        0).

        `on_failure` is called once, when `failed` is set here. `on_deleted` is called now and after
        each change other than an append, with whether `remove_deleted` may have work. `copied`
        tells what remote storage is known to have; None if that is unknown. `later` runs
        work that nobody waits for: the fsync of a rolled segment.
        """
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.clock = clock
        self._later = later or _at_once
        self._on_failure = on_failure
        self._on_deleted = on_deleted or (lambda has_deleted: None)
        self._copied = copied or (lambda epochs, first: first)
        self._lock = FairLock()
        self._flushing = SingleFlight()
        self._deferred = DeferredCalls()
        self._health = Health(directory.path, self._failed_here)
        self._known_rules = (config, admit_rules(config))
        self._local = LocalLog(directory, config, clock, loaded)
        self._log = UnifiedLog(self._local, loaded, leader_epoch, self._rolled)
        self._appender = Appender(self._log, self._health)
        self._appends = GroupCommit(self._append_all, waits=False)
        self._durable_appends = GroupCommit(self._append_durably, waits=True)
        self._on_deleted(self._log.has_deleted)

    # -- state -----------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.directory.path

    @property
    def config(self) -> TopicConfig:
        return self._local.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._local.config = config

    @property
    def failed(self) -> LogDirOffline | None:
        """The error that makes all operations fail; None while the partition is healthy."""
        return self._health.failed

    @property
    def is_closed(self) -> bool:
        """Whether `close` succeeded or the partition was deleted."""
        return self._health.closed is not None

    @property
    def is_idle(self) -> bool:
        """Whether no change is in progress; then an operation without disk I/O does not wait."""
        return not self._lock.is_taken

    def takes_at_once(self, size: int, records: int = 1, *, is_recent: bool = True) -> bool:
        """Whether an append now of that many records, with `size` bytes of keys and values in
        total, would be a single write into the page cache: no other change is in progress, no
        segment needs rolling, no fsync is due. This is an estimate: another thread may begin at any
        moment. Assumes current timestamps or, unless `is_recent`, those of the last records."""
        unflushed = self.end_offset + records - self.recovery_point
        most = size + records * (RECORD_BATCH_OVERHEAD + RECORD_OVERHEAD)
        if not (self.is_idle and self._appends.is_idle and unflushed < self.config.flush_messages):
            return False
        try:
            return self._appender.has_room(most, is_recent=is_recent)
        except OSError:  # the partition was just deleted: the append itself will fail
            return False

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    @property
    def epochs(self) -> LeaderEpochFileCache:
        return self._log.epochs.epochs

    @property
    def producers(self) -> ProducerStateManager:
        return self._log.producers

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def log_start_offset(self) -> int:
        """Below `start_offset` if older records are in remote storage only."""
        return self._log.log_start_offset

    @property
    def is_tiered(self) -> bool:
        """See `UnifiedLog.is_tiered`."""
        return self._log.is_tiered

    def note_checkpointed(self, log_start: int) -> None:
        """See `UnifiedLog.note_checkpointed`."""
        with self._lock:
            self._log.note_checkpointed(log_start)

    @property
    def end_offset(self) -> int:
        return self._local.end_offset

    @property
    def recovery_point(self) -> int:
        return self._local.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._local.last_flush_ms

    @property
    def high_watermark(self) -> int:
        """See `UnifiedLog.high_watermark`."""
        return self._log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """See `UnifiedLog.last_stable_offset`."""
        return self._log.last_stable_offset

    @property
    def first_base_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._local.first_base_offset

    @property
    def size(self) -> int:
        """Total bytes of the `.log` files."""
        with self._lock:
            return sum(segment.size for segment in self._local.segments)

    @property
    def has_rolled(self) -> bool:
        """Whether there are segments besides the active one."""
        return len(self._local.rolled) > 0

    def retention_state(self) -> RetentionState:
        """Returns the log as retention sees it."""
        with self._lock:
            return self._log.retention_state(self.clock.now_ms(), self._copied_until())

    def _copied_until(self) -> int:
        """Returns the offset up to which remote storage is known to have the segments."""
        first = self.first_base_offset
        return self._copied(self.epochs, first) if self._log.is_copied else first

    # -- appending -------------------------------------------------------------------------------

    def append(
        self, batches: Bytes, origin: AppendOrigin = AppendOrigin.CLIENT, durable: bool = False
    ) -> LogAppendInfo:
        """Appends whole batches, all of them or none; if `durable`, they are on disk when this
        returns, as with flush.messages=1.

        A writable buffer is modified. Raises Refused if a batch is not allowed, and OSError or
        LogDirOffline if writing fails.
        """
        admitted = validate_batches(batches, self._rules(), origin, self.clock.now_ms())
        return self._submit(AppendRequest(admitted, origin), durable)

    def append_records(
        self, records: RecordColumns, plan: BatchPlan | None = None, durable: bool = False
    ) -> LogAppendInfo:
        """Appends records in batches according to `plan`, all of them or none. The log sets
        offsets, leader epoch and timestamp type, and the codec if the topic's config does.
        Otherwise as `append`.
        """
        plan = plan or _PLAN
        if may_merge(records, plan):
            return self._submit(RecordsRequest(records, plan), durable)
        admitted = encoded(records, plan, self._rules(), self.clock.now_ms())
        return self._submit(AppendRequest(admitted, AppendOrigin.CLIENT), durable)

    def append_each(
        self, parts: Iterable[Bytes], origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendsInFlight:
        """Appends each part as `append` does, and checks the next part while earlier ones are
        written. See `AppendsInFlight`; nothing happens before a result is requested. A writable
        buffer must not change before its result arrives."""
        now = self.clock.now_ms
        requests = (
            AppendRequest(validate_batches(each, self._rules(), origin, now()), origin)
            for each in parts
        )
        return AppendsInFlight(requests, self._append_in_flight)

    def append_records_each(
        self, parts: Iterable[RecordColumns], plan: BatchPlan | None = None
    ) -> AppendsInFlight:
        """As `append_each` for records, each part as by `append_records`."""
        plan, now = plan or _PLAN, self.clock.now_ms
        made = (encoded(each, plan, self._rules(), now()) for each in parts)
        requests = (AppendRequest(admitted, AppendOrigin.CLIENT) for admitted in made)
        return AppendsInFlight(requests, self._append_in_flight)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0
    ) -> LogAppendInfo:
        """Writes the marker that ends a producer's transaction. Its epoch is that of the data or,
        with transactions version 2, one more. Raises InvalidProducerEpoch or
        TransactionCoordinatorFenced if the marker is fenced."""
        now = self.clock.now_ms()
        marker = end_of_transaction(producer_id, producer_epoch, commit, coordinator_epoch, now)
        return self._submit(AppendRequest(marker, AppendOrigin.COORDINATOR), durable=False)

    def _submit(self, request: AppendRequest, durable: bool) -> LogAppendInfo:
        durable = durable or self.config.flush_messages == 1
        group = self._durable_appends if durable else self._appends
        try:
            appended = group.submit(request)
        finally:
            self._deferred.run()
        if not durable:
            self._flush_if_due(appended.last_offset + 1)
        return appended

    def _append_in_flight(self, requests: Sequence[AppendRequest]) -> None:
        """Answers the requests up to the first that fails."""
        try:
            with uninterrupted, self._lock:
                self._appender.append(requests, up_to_failure=True)
                end = self.end_offset
        finally:
            self._deferred.run()
        self._flush_if_due(end)

    def _flush_if_due(self, end: int) -> None:
        if self.end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush(end)

    def _append_all(self, requests: Sequence[AppendRequest]) -> None:
        """Appends and answers all requests."""
        segment_size, now = self.config.segment_size, self.clock.now_ms()
        prepared = merge(requests, self._rules(), segment_size, now)
        with uninterrupted, self._lock:
            self._appender.append(prepared)

    def _append_durably(self, requests: Sequence[AppendRequest]) -> None:
        """Answers all requests, once their data is durable."""
        try:
            self._append_all(requests)
            ends = [each.appended.last_offset + 1 for each in requests if each.appended]
            self.flush(max(ends, default=0))
        except BaseException as error:  # a signal's, too: this thread appended for others as well
            for each in requests:
                if each.appended:
                    each.fail(error)
            if not isinstance(error, (StorageError, OSError)):
                raise

    def _rules(self) -> ValidationRules:
        """Returns the rules of the current config."""
        config = self._local.config
        if self._known_rules[0] is not config:
            self._known_rules = (config, admit_rules(config))
        return self._known_rules[1]

    # -- rolling and flushing --------------------------------------------------------------------

    def roll(self) -> None:
        """Rolls to a new segment, whether or not that is due."""
        with self._changing():
            self._log.roll(self.end_offset)

    def flush(self, upto: int | None = None) -> None:
        """Makes everything below offset `upto` (None: everything) durable, and advances the
        recovery point. Raises LogDirOffline if that fails, and from then on."""
        try:
            with self._flushing.acquire(lambda: self._is_flushed(upto)) as is_needed:
                if is_needed:
                    self._flush(upto)
        finally:
            self._deferred.run()

    def _is_flushed(self, upto: int | None) -> bool:
        return upto is not None and upto <= self.recovery_point

    def _flush(self, upto: int | None) -> None:
        with self._lock:
            self._health.check()
            end = self.end_offset if upto is None else upto
            if end <= self.recovery_point:
                return
            unflushed = self._local.unflushed(end)
        try:
            unflushed.sync()
        except OSError as error:
            raise self._health.note(error) from error
        with self._lock:
            self._local.mark_flushed(unflushed)

    def _rolled(self, base_offset: int) -> None:
        """Schedules the flush of what was rolled, below `base_offset`."""
        flush = partial(self._flush_rolled, base_offset)
        self._deferred.add(partial(self._later, flush))

    def _flush_rolled(self, upto: int) -> None:
        try:
            self.flush(upto)
        except StorageError:
            return  # reported by `failed`, or the log was closed

    # -- deleting and truncating -----------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Raises the log start offset to `offset`, -1 for the high watermark, and returns it; the
        next retention deletes the files. Remote storage is not changed: a broker deletes there what
        is below the log start offset. Raises PolicyViolation if the topic is only compacted, and
        OffsetOutOfRange if the offset is above the high watermark."""
        with self._changing():
            self._log.delete_records(offset)
            return self.log_start_offset

    def retain(self, now_ms: int | None = None) -> RetentionPlan:
        """Deletes segments that exceed retention by time or size; returns the applied plan."""
        with self._changing():
            return self._log.retain(self._now(now_ms), self._copied_until())

    def delete_below_start(self, now_ms: int | None = None) -> int:
        """Deletes the segments below the log start offset only; returns their number."""
        with self._changing():
            return self._log.delete_below_start(self._now(now_ms))

    def sync_front(self, *, always: bool) -> None:
        """Makes deletions from the front durable; if `always`, even if this writer made none.
        Raises SyncFailed if fsync fails."""
        with self._lock:
            is_due, self._local.front_moved = self._local.front_moved or always, False
        if is_due:
            self.directory.sync()

    def remove_deleted(self, now_ms: int | None = None) -> int:
        """Removes files of deleted segments that are due; returns their number."""
        with self._changing():
            return self._log.remove_deleted(self._now(now_ms))

    def purge(self, names: AbstractSet[str], *, own: bool = False) -> set[str]:
        """Durably removes the leftovers with these names, those that this process deleted only if
        `own`; returns the names of those removed. The caller needs exclusive access, as for a
        cleaning."""
        with self._changing():
            return self._log.purge(names, own=own)

    def is_left(self, name: str) -> bool:
        """Whether a leftover is a file that this process will not remove by itself."""
        with self._lock:
            return self._local.deleted.is_left(name)

    def deleted(self, now_ms: int | None = None) -> list[Deletion]:
        """Returns the deletions from its front that can be undone, oldest first."""
        with self._lock:
            self._health.check()
            return [self._deletion_of(each) for each in self._log.deleted(self._now(now_ms))]

    def undelete(self, offset: int | None = None, now_ms: int | None = None) -> list[Deletion]:
        """Restores what was deleted from `offset` on (None: all that still exists); returns what
        was restored. It is durable once the log start offset is checkpointed.

        Retention by time and size spares the restored records for file.delete.delay.ms; deleting
        records applies at once. Raises CannotUndelete if it is impossible; an OSError leaves the
        log start offset as it was.
        """
        with self._changing():
            return [
                self._deletion_of(each) for each in self._log.undelete(offset, self._now(now_ms))
            ]

    def _deletion_of(self, deleted: WithSegments) -> Deletion:
        range_, segments = deleted
        return Deletion(
            self.topic,
            self.partition,
            range_.start,
            range_.end,
            tuple(segment.base_offset for segment in segments),
            (),
            sum(segment.size for segment in segments),
            range_.cause,
            range_.at_ms,
            range_.until_ms,
        )

    def truncate_to(self, offset: int) -> bool:
        """Truncates the log to `offset`; a batch that contains it is removed as a whole. Returns
        whether anything was removed."""
        with self._changing():
            return self._log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Deletes everything and restarts at `offset`."""
        with self._changing():
            self._log.truncate_fully_and_start_at(offset)

    def expire_producers(self, now_ms: int | None = None) -> int:
        """Forgets producers inactive for producer.id.expiration.ms; returns their number."""
        with self._changing():
            return self.producers.expire(self._now(now_ms))

    def _now(self, now_ms: int | None) -> int:
        return self.clock.now_ms() if now_ms is None else now_ms

    # -- cleaning --------------------------------------------------------------------------------

    def rolled(self) -> Rolled:
        """Returns the segments that may be cleaned as far as the log is concerned."""
        with self._lock:
            self._health.check()
            return self._local.rolled_at(self.last_stable_offset)

    def producer_states(self) -> list[ProducerStateEntry]:
        """Returns the states of all known producers."""
        with self._lock:
            return self.producers.states()

    def replace_segments(self, new: LoadedSegment, bases: Sequence[int], known: Rolled) -> None:
        """See `LocalLog.replace_segments`. Appends wait meanwhile, readers do not."""
        with self._changing():
            self._log.replace_segments(new, bases, known)

    def replace_segment(self, new: LoadedSegment, size: int) -> bool:
        """See `UnifiedLog.replace_segment`. Appends wait meanwhile, readers do not. The caller
        needs exclusive access, as for a cleaning."""
        with self._changing():
            return self._log.replace_segment(new, size)

    # -- ingesting segments ----------------------------------------------------------------------

    @contextmanager
    def ingesting(self) -> Iterator[IngestTarget]:
        """Ingests segments at the log's end; see `IngestTarget`. Nothing else changes the log
        meanwhile; readers do not wait. Call `run_deferred` after leaving this and any other log's
        block."""
        with self._lock:
            self._health.check()
            yield IngestTarget(self._log, self._noting)

    def run_deferred(self) -> None:
        """Reports failures after `ingesting`. A directory that goes offline takes all its logs with
        it and waits for each of them, so the caller must not hold one."""
        self._deferred.run()

    # -- closing and failing ---------------------------------------------------------------------

    def close(self) -> None:
        """Writes the state that the next load would otherwise rebuild, and makes everything
        durable. After an OSError it can be repeated; after success every operation is rejected."""
        with self._flushing.acquire(), self._changing():
            self._log.finish()
            self._health.close(LogDirOffline(self.path, "the partition was closed"))

    def seal(self, end_offset: int) -> bool:
        """Prepares a deletion: rejects all operations from now on with UnknownPartition, and
        returns True. Does nothing and returns False if the log does not end at `end_offset`."""
        with self._lock:
            self._health.check()
            if self.end_offset != end_offset:
                return False
            self._health.seal(UnknownPartition(self.topic, self.partition))
            return True

    def unseal(self) -> None:
        """Reverts `seal`, as the deletion did not happen."""
        with self._lock:
            self._health.seal(None)

    def abandon(self) -> None:
        """Closes the files without writing anything, since they are deleted. Every later operation
        raises UnknownPartition."""
        with self._lock:
            self._local.close_files()
            self._health.close(UnknownPartition(self.topic, self.partition))

    def fail(self, error: LogDirOffline) -> None:
        """Marks the log directory as offline for an outside cause."""
        with self._lock:
            self._health.fail(error)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Wraps every change other than an append."""
        try:
            with uninterrupted, self._lock:
                self._health.check()
                with self._noting():
                    yield
        finally:
            self._deferred.run()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Records what an error means for the partition, and reports whether files wait for
        removal."""
        try:
            yield
        except (SyncFailed, LogDirOffline) as error:
            raise self._health.note(error) from error
        except BaseException as error:
            self._health.note_interruption(error)
            raise
        finally:
            self._on_deleted(self._log.has_deleted)

    def _failed_here(self, error: LogDirOffline) -> None:
        if self._on_failure is not None:
            self._deferred.add(partial(self._on_failure, error))


def _at_once(task: Callable[[], None]) -> None:
    task()
