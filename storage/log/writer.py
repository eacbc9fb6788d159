"""One partition, for writing.

Kafka's UnifiedLog and LocalLog as far as one leader without followers needs them: the high
watermark is the log's end. The steps of an append, a roll, a truncation, a deletion are in Kafka's
order, so that what a crash leaves is what a broker's would.

Appends that come while another is being written wait, and are written together by the first of
them that gets on; so it is with fsyncs. Readers never wait: they look at the files.

A thread has a turn of `_flushing` through an fsync, and `_lock` through all else that changes
anything, but never while it waits for the former. What a disk does to us:

- A write fails (no space, EIO): what it wrote is cut off again, and the caller gets the error.
- That cannot be done, or an fsync fails: nobody knows what is on the disk. `failed` is set, and
  everything raises it from then on (Kafka's log directory goes offline).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from ..clock import Clock
from ..config import TopicConfig
from ..durable import SyncFailed, WritableDirectory, WritableFile
from ..errors import (
    LogDirOffline,
    OffsetOutOfRange,
    PolicyViolation,
    RecordListTooLarge,
    StorageError,
    printable,
)
from ..format import batch as b
from ..format.batch import BatchHeader, Bytes
from ..format.encoder import BatchPlan, RecordColumns
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from ..format.origin import Origin
from ..format.validate import AdmitRules, Admitted, judge
from ..segment.segment_writer import SegmentWriter
from ..segment.stored import StoredSegment
from . import retention
from .appending import Appended, Group, Request, load_of, marker_reader, move, weights
from .deleted import DeletedFiles
from .epochs import LeaderEpochFile, LeaderEpochs
from .preparing import admit_rules, encoded, end_of_transaction
from .producers import Duplicate, Producers
from .reload import reload_producers
from .retention import LogState, RetentionPlan
from .roll import Filling
from .snapshots import SnapshotFiles
from .turns import Turns


class LoadedSegment(Protocol):
    """A segment that is there: bytes in its `.log`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


class LoadedLog(Protocol):
    """A partition as loading it has left it (see `recovery`); without segments it is a new one."""

    @property
    def segments(self) -> Sequence[LoadedSegment]: ...
    @property
    def snapshots(self) -> Sequence[int]: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def recovery_point(self) -> int: ...
    @property
    def epochs(self) -> LeaderEpochs: ...
    @property
    def latest_epoch(self) -> int: ...
    @property
    def producers(self) -> Producers: ...


class LogWriter:
    """See the module. Any thread may call anything.

    `config` may be replaced at any time. Offsets: the log holds records from `start_offset` up to
    `end_offset`; those below `recovery_point` are on the disk for certain. `last_flush_ms`: when
    that moved last.
    """

    def __init__(
        self,
        directory: WritableDirectory,
        topic: str,
        partition: int,
        *,
        config: TopicConfig,
        clock: Clock,
        loaded: LoadedLog,
        leader_epoch: int | None = None,
        on_failure: Callable[[LogDirOffline], None] | None = None,
        later: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """Goes on with a partition that was loaded, as its leader in `leader_epoch` (None: the one
        before, or 0).

        `on_failure` is called once, when `failed` is set here. `later` gets what need not be waited
        for: the fsync of a segment that was rolled.
        """
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.clock = clock
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.last_flush_ms = clock.now_ms()
        self.producers = loaded.producers
        self.failed: LogDirOffline | None = None
        self._closed: StorageError | None = None
        self._epochs = LeaderEpochFile(directory, loaded.epochs)
        self._snapshots = SnapshotFiles(directory, self.start_offset, loaded.snapshots)
        self._deleted = DeletedFiles(directory)
        self._lock = threading.Lock()
        self._flushing = Turns()
        self._waiting: deque[Request] = deque()
        self._afterwards: deque[Callable[[], object]] = deque()  # to call without a lock
        self._later = later or _at_once
        self._on_failure = on_failure
        self._truncations = 0
        self._known_rules = (config, admit_rules(config))
        self._open(loaded)
        self.leader_epoch = max(loaded.latest_epoch, 0) if leader_epoch is None else leader_epoch
        self._epochs.assign(self.leader_epoch, self.end_offset)

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
        self._rolled = found[:-1]
        if found:
            self._active = self._writable(found[-1], now)
        else:
            base = self.start_offset
            self._active = SegmentWriter.create(self.directory, base, self.config, now)

    def _writable(self, segment: StoredSegment, now_ms: int) -> SegmentWriter:
        """A segment as the active one."""
        base, size = segment.base_offset, segment.size
        is_synced = segment.is_synced
        return SegmentWriter(self.directory, base, size, self.config, now_ms, is_synced)

    # -- what it is ------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.directory.path

    @property
    def epochs(self) -> LeaderEpochs:
        return self._epochs.epochs

    @property
    def high_watermark(self) -> int:
        """Records below it can be read: all, as there are no followers."""
        return self.end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        unstable = self.producers.first_unstable_offset
        stable = self.end_offset if unstable < 0 else min(unstable, self.end_offset)
        return max(stable, self.start_offset)

    @property
    def first_base_offset(self) -> int:
        """Base offset of the oldest segment."""
        rolled = self._rolled
        return rolled[0].base_offset if rolled else self._active.base_offset

    def retention_state(self) -> LogState:
        """The log as retention sees it."""
        with self._lock:
            return self._retention_state()

    # -- appending -------------------------------------------------------------------------------

    def append(
        self, batches: Bytes, origin: Origin = Origin.CLIENT, durable: bool = False
    ) -> Appended:
        """Appends whole batches, all of them or none; `durable`: they are on the disk when this
        returns, as with flush.messages=1.

        A writable buffer is changed. Raises Refused, and OSError or LogDirOffline.
        """

        admitted = judge(batches, self._rules(), origin, self.clock.now_ms())
        return self._submit(Request(admitted, origin), durable)

    def append_records(
        self, records: RecordColumns, plan: BatchPlan | None = None, durable: bool = False
    ) -> Appended:
        """Appends records in batches as `plan` says, all of them or none; offsets, leader epoch and
        timestamp type are this log's, and the codec if the topic wants one. Otherwise as `append`.
        """
        plan = plan or BatchPlan()
        admitted = encoded(records, plan, self._rules(), self.clock.now_ms())
        return self._submit(Request(admitted, Origin.CLIENT), durable)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int = 0
    ) -> Appended:
        """Writes the marker that ends a producer's transaction. Its epoch is the data's, or as of
        transactions version 2 one more. Raises InvalidProducerEpoch,
        TransactionCoordinatorFenced."""
        now = self.clock.now_ms()
        marker = end_of_transaction(producer_id, producer_epoch, commit, coordinator_epoch, now)
        return self._submit(Request(marker, Origin.COORDINATOR), durable=False)

    def _submit(self, request: Request, durable: bool) -> Appended:
        self._waiting.append(request)
        try:
            with self._lock:
                if not request.is_done:
                    self._append_waiting()
        finally:
            self._settle()
        appended = request.result()
        end = appended.last_offset + 1
        if durable or self.end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush(end)
        return appended

    def _append_waiting(self) -> None:
        """Appends what all threads are waiting for; called with the lock. Whatever happens, each
        request is answered."""
        requests = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            self._check_usable()
            group = self._group()
            for request in requests:
                group = self._take(group, request)
            self._write(group)
        except (StorageError, OSError) as error:
            _fail_rest(requests, error)
        except BaseException as error:
            self._note_interruption(error)
            _fail_rest(requests, self.failed or error)
            raise

    def _group(self) -> Group:
        filling = Filling(self._active, self.config, self.clock.now_ms())
        update = self.producers.begin_update()
        return Group(filling, update, self.end_offset, self._active.size)

    def _take(self, group: Group, request: Request) -> Group:
        """Judges an append, and puts it into the group that is to be written or, where the segment
        ends before it or in it, writes both; the group to go on with."""
        try:
            self._check_usable()
            admitted = request.admitted
            admitted.place(group.next_offset, self.leader_epoch)
            self._note_epochs(admitted)
            load = load_of(admitted.table, request.origin)
            if load.largest > self.config.segment_size:
                what = f"more than segment.bytes, {self.config.segment_size}"
                raise RecordListTooLarge(f"an append of {load.largest} bytes: {what}")
            if group.filling.take_all(load):
                return self._take_in(group, request)
        except (StorageError, OSError) as error:
            request.fail(error)
            return group
        failure = self._write(group)
        if failure is None:
            self._append_rolling(request)
        else:
            request.fail(failure)
        return self._group()

    def _take_in(self, group: Group, request: Request) -> Group:
        admitted = request.admitted
        try:
            duplicate = group.update.add(admitted.table, request.origin, marker_reader(admitted))
        except StorageError as error:
            request.fail(error)
        else:
            if duplicate is None:
                group.put(request)
                return group
            group.put_duplicate(request, _duplicate(duplicate, admitted))
        # What was taken for it is still free: a new group knows.
        self._write(group)
        return self._group()

    def _write(self, group: Group) -> Exception | None:
        """Writes a group, or tells those who wait for it why not."""
        try:
            group.write(self._active)
        except (LogDirOffline, OSError) as error:
            failure = self._note_failure(error)
            group.fail(failure)
            return failure
        self.end_offset = group.next_offset
        group.answer()
        return None

    def _append_rolling(self, request: Request) -> None:
        """An append that does not go into the active segment, or not all of it."""
        end = self.end_offset
        try:
            request.appended = self._append_in_pieces(request.admitted, request.origin)
        except (StorageError, OSError) as error:
            request.fail(self._note_failure(error))
            if self.end_offset > end and self.failed is None:
                with suppress(LogDirOffline):  # `failed` tells
                    self._truncate(end)

    def _append_in_pieces(self, admitted: Admitted, origin: Origin) -> Appended:
        """Writes batches, each into the segment that it belongs into. Kafka rolls before it looks
        for duplicates, so that one may roll the log and write nothing."""
        appends, table = weights(admitted.table, origin), admitted.table
        first = 0
        while first < len(appends):
            filling = Filling(self._active, self.config, self.clock.now_ms())
            count = filling.take(appends[first:])
            if count == 0:
                self._roll(_first_offset(table[first]))
                filling = Filling(self._active, self.config, self.clock.now_ms())
                filling.put(appends[first])
                count = 1 + filling.take(appends[first + 1 :])
            if first == 0:
                update = self.producers.begin_update()
                duplicate = update.add(table, origin, marker_reader(admitted))
                if duplicate is not None:
                    return _duplicate(duplicate, admitted)
            end = first + count
            piece = slice(first, end if end < len(appends) else None)
            self._write_piece(admitted, origin, piece, filling.first_timestamp)
            first = end
        return Appended(admitted.first_offset, admitted.last_offset, admitted.append_time)

    def _write_piece(
        self, admitted: Admitted, origin: Origin, chosen: slice, first_timestamp: int
    ) -> None:
        table = admitted.table.select(chosen)
        update = self.producers.begin_update()
        update.add(table, origin, marker_reader(admitted))
        start = int(table.rows[0, b.POSITION])
        end = int(table.rows[-1, b.POSITION] + table.rows[-1, b.SIZE])
        data = admitted.data[start:end]
        move(table, self._active.size)
        self._active.append([data], table, first_timestamp, update.aborted)
        update.commit()
        self.end_offset = update.end_offset

    def _note_epochs(self, admitted: Admitted) -> None:
        """In which epoch batches were written. Those before magic 2 do not say it, and show that
        epochs cannot be relied on."""
        if not admitted.keeps_offsets:
            if self.leader_epoch != self._epochs.latest:
                self._epochs.assign(self.leader_epoch, admitted.first_offset)
            return
        for header in admitted.table:
            if header.magic < 2:
                self._epochs.clear()
            elif header.leader_epoch >= 0:
                self._epochs.assign(header.leader_epoch, header.base_offset)

    # -- rolling and flushing --------------------------------------------------------------------

    def roll(self) -> None:
        """Goes on in a new segment, whether that is due or not."""
        with self._changing():
            self._roll(self.end_offset)

    def _roll(self, offset: int) -> None:
        """Goes on in a new segment for an append that begins at `offset` (LocalLog.roll). After an
        OSError the old one goes on."""
        base, now = max(offset, self.end_offset), self.clock.now_ms()
        active = self._active
        if base == active.base_offset:  # nothing is in it, but its indexes have no room
            active.finish()
            self._active = SegmentWriter(self.directory, base, 0, self.config, now)
            return
        snapshot = self._take_snapshot(base)
        active.finish()
        if self.recovery_point >= self.end_offset:
            # Recovery would not look at the old segment any more, its indexes included.
            active.sync_all()
        created = SegmentWriter.create(self.directory, base, self.config, now)
        rolled = active.stored()
        rolled.unsynced += snapshot
        rolled.is_synced = not rolled.unsynced  # those of a segment that is not synced are there
        self._rolled = [*self._rolled, rolled]
        self._active = created
        self._afterwards.append(partial(self._later, partial(self._flush_rolled, base)))

    def _take_snapshot(self, offset: int) -> tuple[WritableFile, ...]:
        """The producers' state in front of `offset`, which may be above the log's end."""
        end, self.producers.map_end_offset = self.producers.map_end_offset, offset
        try:
            file = self._snapshots.take(self.producers)
        except OSError:
            self.producers.map_end_offset = end
            raise
        return () if file is None else (file,)

    def flush(self, upto: int | None = None) -> None:
        """Makes what is below offset `upto` (None: everything) durable, and moves the recovery
        point there. LogDirOffline when that fails, now and ever after."""
        try:
            with self._flushing.turn(lambda: self._is_flushed(upto)) as is_needed:
                if is_needed:
                    self._flush(upto)
        finally:
            self._settle()

    def _is_flushed(self, upto: int | None) -> bool:
        return upto is not None and upto <= self.recovery_point

    def _flush(self, upto: int | None) -> None:
        with self._lock:
            self._check_usable()
            end = self.end_offset if upto is None else upto
            if end <= self.recovery_point:
                return
            # The names were synced when the segments were made.
            rolled = [segment for segment in self._rolled if not segment.is_synced]
            base = self._active.base_offset
            log, end = (None, base) if end <= base else (self._active.log, self.end_offset)
            truncations = self._truncations
        try:
            for segment in rolled:
                segment.sync()
            if log is not None:
                log.sync()
        except OSError as error:
            raise self._note_failure(error) from error
        with self._lock:
            if truncations == self._truncations and end > self.recovery_point:
                self.recovery_point = end
                self.last_flush_ms = self.clock.now_ms()

    def _flush_rolled(self, upto: int) -> None:
        try:
            self.flush(upto)
        except StorageError:
            return  # `failed` or the closing of the log tells

    # -- deleting and truncating -----------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Moves the log start offset up to `offset`, -1 for the high watermark, and gives the new
        one; the files go at the next retention. PolicyViolation for a topic that is only compacted,
        OffsetOutOfRange for an offset above the high watermark."""
        with self._changing():
            if retention.DELETE not in self.config.cleanup_policy:
                raise PolicyViolation("cleanup.policy does not say delete")
            offset = self.high_watermark if offset == -1 else offset
            if not 0 <= offset <= self.high_watermark:
                raise OffsetOutOfRange(f"offset {offset} is not in [0, {self.high_watermark}]")
            self._raise_start(offset)
            return self.start_offset

    def retain(self, now_ms: int | None = None) -> RetentionPlan:
        """Deletes the segments that have become old, or too many; what was deleted, and why."""
        with self._changing():
            now = self.clock.now_ms() if now_ms is None else now_ms
            plan = retention.plan(self._retention_state(), self.config, now)
            self._delete_oldest(plan.count, now)
            return plan

    def remove_deleted(self, now_ms: int | None = None) -> int:
        """Removes the files of deleted segments whose time has come; how many."""
        with self._changing():
            return self._deleted.remove_due(self.clock.now_ms() if now_ms is None else now_ms)

    def truncate_to(self, offset: int) -> bool:
        """Cuts off all records at and above `offset`; a batch that holds it goes with all that is
        in it. Whether there were any."""
        with self._changing():
            if offset < 0:
                raise OffsetOutOfRange(f"offset {offset} is negative")
            if offset >= self.end_offset:
                self._epochs.cut_at_end(self.end_offset)
                return False
            self._truncate(offset)
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Deletes everything, and goes on at `offset`."""
        with self._changing():
            self._start_anew(offset)

    def expire_producers(self, now_ms: int | None = None) -> int:
        """Forgets producers not heard of for producer.id.expiration.ms; how many."""
        with self._changing():
            return self.producers.expire(self.clock.now_ms() if now_ms is None else now_ms)

    def _retention_state(self) -> LogState:
        return LogState(self._segments(), self.start_offset, self.end_offset, self.high_watermark)

    def _delete_oldest(self, count: int, now_ms: int) -> None:
        """Deletes the first `count` segments (UnifiedLog.deleteSegments). After an OSError those
        that are left lie below the log start offset, and go the next time."""
        if count > len(self._rolled):
            self._roll(self.end_offset)
        if count == 0:
            return
        kept = self._segments()[count]
        self._raise_start(kept.base_offset)
        for _ in range(count):
            self._delete(self._rolled[0].base_offset, now_ms)
            self._rolled = self._rolled[1:]

    def _delete(self, base_offset: int, now_ms: int) -> None:
        due = now_ms + self.config.file_delete_delay_ms
        self._deleted.mark(base_offset, due)
        snapshot = self._snapshots.mark_deleted(base_offset)
        if snapshot is not None:
            self._deleted.add(snapshot, due)

    def _raise_start(self, offset: int) -> None:
        """UnifiedLog.maybeIncrementLogStartOffset."""
        if offset > self.start_offset:
            self._epochs.cut_at_start(offset)
            self.start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.producers.map_end_offset = max(self.producers.map_end_offset, offset)
            self._snapshots.start_moved(offset)

    def _truncate(self, offset: int) -> None:
        """UnifiedLog.truncateTo. The newest segments go first, so that there never is a hole."""
        if offset < self.first_base_offset:
            self._start_anew(offset)
            return
        now = self.clock.now_ms()
        try:
            self._truncations += 1
            while self._active.base_offset > offset:
                self._delete(self._active.base_offset, now)
                self._active = self._writable(self._rolled[-1], now)
                self._rolled = self._rolled[:-1]
            # A power cut must not bring back segments behind what is appended from here on.
            self.directory.sync()
            self._active.truncate_to(offset, now)
            self._epochs.cut_at_end(offset)
            self.end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self.start_offset = min(self.start_offset, offset)
            self._reload_producers(now)
        except (OSError, StorageError) as error:
            raise self._note_failure(error, is_fatal=True) from error

    def _start_anew(self, offset: int) -> None:
        """UnifiedLog.truncateFullyAndStartAt."""
        now = self.clock.now_ms()
        try:
            self._truncations += 1
            for segment in self._segments():
                self._delete(segment.base_offset, now)
            self._rolled = []
            self._active = SegmentWriter.create(self.directory, offset, self.config, now)
            self._epochs.clear()
            self._snapshots.remove_all()
            self.start_offset = self.end_offset = offset
            self.recovery_point = min(self.recovery_point, offset)
            self._reload_producers(now)
        except (OSError, StorageError) as error:
            raise self._note_failure(error, is_fatal=True) from error

    def _reload_producers(self, now_ms: int) -> None:
        self.producers = reload_producers(
            self.directory,
            [(segment.base_offset, segment.size) for segment in self._segments()],
            self._snapshots,
            (self.start_offset, self.end_offset),
            self.producers.expiration_ms,
            now_ms,
        )

    def _segments(self) -> list[StoredSegment | SegmentWriter]:
        return [*self._rolled, self._active]

    # -- closing and failing ---------------------------------------------------------------------

    def close(self) -> None:
        """Writes what the next opening need not make anew, and makes everything durable. After an
        OSError it can be repeated; once it has worked the log refuses everything."""
        with self._flushing.turn(), self._changing():
            active = self._active
            snapshot = self._take_snapshot(self.producers.map_end_offset)
            active.finish()
            try:
                for segment in self._rolled:
                    if not segment.is_synced:
                        segment.sync()
                active.sync_all()
                for file in snapshot:
                    file.sync()
                self.directory.sync()
            except OSError as error:
                raise self._note_failure(error) from error
            self.recovery_point = self.end_offset
            active.let_go()
            self._closed = LogDirOffline(self.path, "the partition was closed")

    def abandon(self) -> None:
        """Lets go of the files without writing anything: they are deleted, or their disk is
        broken."""
        with self._lock:
            self._active.let_go()
            self._rolled = []
            self._closed = LogDirOffline(self.path, "the partition was given up")

    def fail(self, error: LogDirOffline) -> None:
        """The log directory went offline on account of something else."""
        with self._lock:
            self.failed = self.failed or error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """For what changes something, and is no append."""
        try:
            with self._lock:
                self._check_usable()
                try:
                    yield
                except (SyncFailed, LogDirOffline) as error:
                    raise self._note_failure(error) from error
                except BaseException as error:
                    self._note_interruption(error)
                    raise
        finally:
            self._settle()

    def _check_usable(self) -> None:
        """Raises what is wrong, as a new exception."""
        error = self._closed or self.failed
        if error is not None:
            raise type(error)(*error.args)

    def _note_failure(self, error: Exception, is_fatal: bool = False) -> Exception:
        """What to raise for `error`; when that leaves open what is on the disk, all is over."""
        if not (is_fatal or isinstance(error, (SyncFailed, LogDirOffline))):
            return error
        if not isinstance(error, LogDirOffline):
            error = LogDirOffline(self.path, f"offline since {_told(error)}")
        if self.failed is None:
            self.failed = error
            if self._on_failure is not None:
                self._afterwards.append(partial(self._on_failure, error))
        return error

    def _note_interruption(self, error: BaseException) -> None:
        """A signal's exception may come between any two steps: what is in memory may not be what is
        on the disk."""
        if not isinstance(error, Exception):
            self.failed = self.failed or LogDirOffline(self.path, "interrupted while writing")

    def _rules(self) -> AdmitRules:
        """What the present settings allow."""
        if self._known_rules[0] is not self.config:
            self._known_rules = (self.config, admit_rules(self.config))
        return self._known_rules[1]

    def _settle(self) -> None:
        """Calls what is to be called without a lock."""
        while self._afterwards:
            try:
                call = self._afterwards.popleft()
            except IndexError:  # another thread was quicker
                return
            call()


def _fail_rest(requests: Sequence[Request], error: BaseException) -> None:
    for request in requests:
        if not request.is_done:
            request.fail(error)


def _duplicate(found: Duplicate, admitted: Admitted) -> Appended:
    append_time = NO_TIMESTAMP if admitted.append_time == NO_TIMESTAMP else found.timestamp
    return Appended(found.first_offset, found.last_offset, append_time, is_duplicate=True)


def _first_offset(header: BatchHeader) -> int:
    """The offset that an append begins with, or one that is not above it: of messages before magic
    2 it is not known without opening them (UnifiedLog.maybeRoll)."""
    return header.base_offset if header.magic > 1 else header.last_offset - MAX_INT32


def _told(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{printable(str(error.filename))}: {error.strerror}"
    return str(error)


def _at_once(task: Callable[[], None]) -> None:
    task()
