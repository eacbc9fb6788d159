"""Loads a partition for writing, after a clean shutdown or a crash: makes a plan, then applies it.

Kafka's LogLoader. Planning only reads; the plan states what would change and why, and the resulting
state of the partition. After a clean shutdown segments are not scanned: their names, the last entry
of the last index and the newest producer snapshot give the state.

Where Kafka would give up the whole log directory, or lose data that can be kept, this continues:

- a log that was closed cleanly but does not end with a whole batch is recovered at its end;
- a leader-epoch-checkpoint that cannot be read is rebuilt from the batches;
- a segment is truncated where an offset does not follow the previous one (see `segment.rebuild`).

Kafka also removes leftovers here: `.deleted` and `.cleaned` files, and the `.swap` files of a swap
that was not committed. This loader keeps them (see `leftovers`). It finishes renames that a crash
interrupted: files replaced by a committed swap and indexes without their `.log` become `.deleted`,
and `.swap` files get their final names. The only files it removes are producer snapshots that no
longer belong to the log; they can be rebuilt from the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from ...config.kafka import TopicConfig
from ...errors import CorruptError
from ...format.files.names import LEADER_EPOCH_FILE, FileKind
from ...format.files.snapshot import MAX_SNAPSHOT_BYTES
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...format.records import batch as b
from ...io.directory import Directory, ReadableFile
from ...io.durable import WritableDirFd
from ...segment.index_builder import IndexBuilder
from ...segment.rebuild import Rebuild
from ...segment.txn_index import AbortedTxn, TransactionIndex, format_aborted_txns
from ..read.context import ReadLimits
from ..read.lookup import header_at
from ..state.epochs import NO_EPOCHS, LeaderEpochFileCache, read_leader_epochs
from ..state.producers import EXPIRATION_MS, ProducerStateManager
from .deleted_front import DeletedFront, DeletedFrontFinder
from .loaded import FoundDeleted
from .loading_segment import LoadingSegment, Rebuilt, check_log_size
from .partition_files import PartitionFiles
from .producer_rebuild import LoadedProducers, ProducerRebuild, Snapshots
from .recovery_actions import Action, Stages, apply_stages
from .recovery_steps import RecoverySteps


@dataclass(frozen=True, slots=True)
class PlannedSegment:
    """A segment as the plan leaves it; `size` is that of its `.log` in bytes."""

    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """The actions of a recovery, in `stages` (see `recovery_actions`), and the resulting partition.

    `snapshots`: the offsets of the snapshots. `recovery_point`: offsets below it are known to be
    durable. `latest_epoch`: the greatest leader epoch there was, -1 for none; `epochs` may lack it
    if nothing was written in it. `faults`: the damage that caused truncations. `producers` is for
    use by a single writer, which updates it. `deleted`: the deleted segments before it that can be
    restored, if they were searched for (`finds_deleted`); `deleted_epochs`: the epochs below
    `start_offset`. `is_tiered`: remote storage may have records; those from `log_start_offset` to
    `start_offset` are only there.
    """

    stages: Stages
    segments: tuple[PlannedSegment, ...]
    snapshots: tuple[int, ...]
    is_tiered: bool
    log_start_offset: int
    start_offset: int
    end_offset: int
    recovery_point: int
    epochs: LeaderEpochFileCache
    latest_epoch: int
    producers: ProducerStateManager
    faults: tuple[CorruptError, ...]
    finds_deleted: bool = False
    deleted: tuple[FoundDeleted, ...] = ()
    deleted_epochs: LeaderEpochFileCache = NO_EPOCHS

    @property
    def actions(self) -> list[Action]:
        """All actions in order."""
        return [action for stage in self.stages for action in stage]

    def apply(self, directory: WritableDirFd) -> None:
        """Changes the directory, which must be as it was when the plan was made.

        An OSError is passed on. Planning and applying are idempotent.
        """
        apply_stages(self.stages, directory)


class LogLoader:
    """The load of one partition, which is planned once. Holds the segments found so far and their
    state."""

    def __init__(
        self,
        directory: Directory,
        recovery_point: int,
        start_offset: int,
        is_clean: bool,
        config: TopicConfig,
        now_ms: int,
        limits: ReadLimits | None = None,
        expiration_ms: int = EXPIRATION_MS,
        finds_deleted: bool = False,
        is_tiered: bool = False,
    ) -> None:
        """`recovery_point` and `start_offset` are the log directory's checkpointed values (0 if
        absent); `is_clean`: its last shutdown was clean. If `finds_deleted` is true and the log is
        not compacted, restorable segments deleted from the front are searched for, which means
        reading them. `is_tiered`: the log may have records in remote storage although its `config`
        does not say so.

        Raises SegmentGone if the directory no longer exists, and CorruptError if an entry with the
        name of a segment's file is not a regular file.
        """
        self._directory = directory
        self._recovery_point = recovery_point
        self._start = start_offset
        self._is_clean = is_clean
        self._config = config
        self._now_ms = now_ms
        self._limits = limits or ReadLimits()
        self._expiration_ms = expiration_ms
        self._is_tiered = is_tiered or config.remote_storage_enable
        # A segment replaced by cleaning cannot be distinguished from one deleted later.
        self._finds_deleted = finds_deleted and "compact" not in config.cleanup_policy
        self._files = PartitionFiles(directory)
        self._segments: list[LoadingSegment] = []
        self._retired: list[tuple[LoadingSegment, str]] = []
        self._faults: list[CorruptError] = []
        self._broken_epochs = ""  # why the file cannot be read

    def plan(self) -> RecoveryPlan:
        """Plans the load. Only reads.

        Raises SegmentGone if the directory no longer exists, and CorruptError if recovery is
        impossible: a `.log` has 2 GiB or more, or its records in remote storage would be lost.
        """
        files = self._files
        self._deleted = files.deleted_segments() if self._finds_deleted else {}
        files.complete_swaps(self._next_offset)
        files.retire_orphans()
        files.next_stage()
        self._snapshots = Snapshots(files.live(FileKind.SNAPSHOT), self._read_snapshot)
        self._rebuild = ProducerRebuild(
            self._snapshots, self._start, self._expiration_ms, self._now_ms
        )
        self._epochs = self._old_epochs = self._read_epochs()
        self._load_segments()
        self._refuse_loss()
        found = self._recover()
        end = self._start if found is None else found
        recovery_point = end
        if not self._is_clean or found is None:
            # Scanned data may not be durable: the writer's next flush takes care of that.
            recovery_point = min(self._recovery_point, end)
        return self._finished(recovery_point, end)

    # The segments

    def _load_segments(self) -> None:
        """Adds all segments. Those without an `.index`, or with an invalid transaction index, are
        scanned and rebuilt."""
        logs, indexes = self._files.live(FileKind.LOG), self._files.live(FileKind.INDEX)
        with_aborts = self._files.live(FileKind.TXNINDEX)
        bases = sorted(logs)
        for base, limit in zip(bases, [*bases[1:], MAX_OFFSET], strict=False):
            index = indexes.get(base, "")
            segment = self._segment(base, logs[base], index, limit)
            why = "" if index else "its .index is missing"
            if index and base in with_aborts:
                why = self._wrong_aborts(base)
            if why:
                self._segments += self._gone_through(segment, why)
            else:
                self._segments.append(segment)

    def _segment(self, base: int, log: str, index: str, limit: int) -> LoadingSegment:
        size = self._files.log_sizes[log]
        check_log_size(size, self._directory.path_of(log))
        limits = self._limits
        return LoadingSegment(
            self._directory, base, log, index, 0, size, limit, limits.max_batch_bytes
        )

    def _wrong_aborts(self, base: int) -> str:
        """Returns what is wrong with a segment's transaction index, "" if it is valid."""
        index = TransactionIndex(self._files.open(base, FileKind.TXNINDEX))
        try:
            wrong = next((entry for entry in index.entries() if entry.last_offset < base), None)
        except CorruptError as error:
            return f"its .txnindex cannot be read: {error.what}"
        if wrong is not None:
            return f"its .txnindex has a transaction that ends at offset {wrong.last_offset}"
        if index.has_stray_bytes:
            return "its .txnindex does not end with a whole entry"
        return ""

    def _refuse_loss(self) -> None:
        """Raises CorruptError if what is left here does not tell which records in remote storage
        belong to the log. By the leader epochs a broker finds them, and deletes the others."""
        if not self._is_tiered:
            return
        what = ""
        if not self._segments and (self._old_epochs.entries or self._broken_epochs):
            what = "there is no segment, so it is not known where the log ends"
        elif self._broken_epochs and self._start < self._segments[0].base_offset:
            what = f"{LEADER_EPOCH_FILE} cannot be read and not be rebuilt: {self._broken_epochs}"
        if what:
            why = "remote storage may have older records; restore the partition from a replica"
            raise CorruptError(f"{what}, and {why}", self._directory.path)

    def _recover(self) -> int | None:
        """Recovers data that may not be durable. Returns the log end offset; None if there is no
        segment, or none can be kept."""
        if not self._segments:
            return None
        if not self._is_clean:
            self._recover_from(self._recovery_point, "it may not have been durable at the crash")
        last = self._segments[-1]
        end = last.find_end()
        if not end.is_whole:
            self._recover_from(last.base_offset, "closed cleanly but does not end with a batch")
            end = self._segments[-1].find_end()
        if end.next_offset >= self._start:
            return end.next_offset
        why = f"the log ends at {end.next_offset}, before its start offset {self._start}"
        self._retire_from(0, why)
        self._snapshots.drop_all(why)
        self._epochs = LeaderEpochFileCache()
        return None

    def _recover_from(self, offset: int, why: str) -> None:
        """Rebuilds the segment that holds `offset` and those after it, up to the first damage;
        everything after that is discarded."""
        bases = [segment.base_offset for segment in self._segments]
        at = max(bisect_right(bases, offset) - 1, 0)
        while at < len(self._segments):
            size = self._segments[at].size
            found = self._gone_through(self._segments[at], why)
            self._segments[at : at + 1] = found
            at += len(found)
            if sum(segment.size for segment in found) < size:
                self._retire_from(at, f"the log is truncated at {found[-1].find_end().next_offset}")

    def _retire_from(self, at: int, why: str) -> None:
        for segment in self._segments[at:]:
            self._retired.append((segment, why))
            self._snapshots.drop(segment.base_offset, why)
        del self._segments[at:]

    def _gone_through(self, segment: LoadingSegment, why: str) -> list[LoadingSegment]:
        """Rebuilds a segment; returns several if its offsets span too much for one (KAFKA-6264: old
        cleaners produced such segments)."""
        found: list[LoadingSegment] = []
        before = self._segments
        others = [other for other in before if other is not segment]
        rest: LoadingSegment | None = segment
        while rest is not None:
            producers = self._rebuild.at(rest.base_offset, before, False)
            part, rest = rest, self._scan(rest, producers, why)
            if part.size or rest is None:
                found.append(part)
            before = sorted([*others, *found], key=lambda other: other.base_offset)
        return found

    def _scan(
        self, segment: LoadingSegment, loaded: LoadedProducers, why: str
    ) -> LoadingSegment | None:
        """Scans a segment's batches; returns the rest that does not fit into it, or None."""
        config = self._config
        builder = IndexBuilder(
            segment.base_offset, config.index_interval_bytes, config.segment_index_bytes
        )
        aborted: list[AbortedTxn] = []
        with segment.opened() as file:
            rebuild = Rebuild(segment.extent(file), builder)
            for table in rebuild.tables():
                with_producers = table.select(table.column(b.MAGIC) > 1)
                self._epochs = self._epochs.with_batches(with_producers)
                aborted += loaded.producers.replay(with_producers, segment.read_marker)
            rest = _rest(segment, rebuild, file) if rebuild.overflows else None
        loaded.take_snapshot()
        if rebuild.fault is not None:
            segment.fault = rebuild.fault
            self._faults.append(rebuild.fault)
        segment.rebuilt = Rebuilt(
            why,
            rebuild.size,
            rebuild.next_offset,
            rebuild.offsets,
            rebuild.times,
            format_aborted_txns(aborted),
        )
        return rest

    # Epochs and producers

    def _read_epochs(self) -> LeaderEpochFileCache:
        try:
            return read_leader_epochs(self._directory)
        except CorruptError as error:
            self._broken_epochs = error.what
            return LeaderEpochFileCache()

    def _epochs_at(self, end: int) -> LeaderEpochFileCache:
        if self._broken_epochs:
            self._epochs = LeaderEpochFileCache()
            for segment in self._segments:
                for table in segment.tables(segment.base_offset):
                    new = table.select(table.column(b.MAGIC) > 1)
                    self._epochs = self._epochs.with_batches(new)
        # Kafka also drops an epoch that begins at the end, as its leader then begins another one
        # there. Here the log continues in the latest epoch there was.
        return self._epochs.cut_at_end(end + 1).cut_at_start(self._start)

    def _read_snapshot(self, offset: int) -> bytes:
        name = self._files.on_disk(offset, FileKind.SNAPSHOT)
        return self._directory.read_small(name, MAX_SNAPSHOT_BYTES)

    def _next_offset(self, log: str, index: str, base: int) -> int:
        return self._segment(base, log, index, MAX_OFFSET).find_end().next_offset

    def _finished(self, recovery_point: int, end: int) -> RecoveryPlan:
        bases = [segment.base_offset for segment in self._segments] or [self._start]
        start = max(self._start, bases[0])
        front = self._deleted_front(bases[0])
        epochs = self._epochs_at(end)
        self._snapshots.drop_strays(bases)
        rebuild = replace(self._rebuild, log_start=start)
        producers = rebuild.at(end, self._segments, self._is_clean).producers
        why = self._broken_epochs or f"the epochs of a log that ends at {end}"
        is_changed = bool(self._broken_epochs) or epochs != self._old_epochs
        steps = RecoverySteps(self._files)
        steps.retire(self._retired)
        steps.split(self._segments)
        steps.cut(self._segments)
        steps.write_state((epochs, why) if is_changed else None, self._snapshots)
        steps.write_indexes(self._segments, self._start)
        return RecoveryPlan(
            stages=self._files.stages,
            segments=tuple(PlannedSegment(s.base_offset, s.size) for s in self._segments)
            or (PlannedSegment(self._start, 0),),
            snapshots=tuple(self._snapshots.offsets),
            is_tiered=self._is_tiered,
            log_start_offset=min(self._start, start) if self._is_tiered else start,
            start_offset=start,
            end_offset=end,
            recovery_point=max(recovery_point, start),
            epochs=epochs,
            latest_epoch=max(self._old_epochs.latest, self._epochs.latest),
            producers=producers,
            faults=tuple(self._faults),
            finds_deleted=self._finds_deleted,
            deleted=front.segments,
            deleted_epochs=self._deleted_epochs(front, start),
        )

    # Deleted segments

    def _deleted_front(self, first_base: int) -> DeletedFront:
        """Finds what can be restored."""
        finder = DeletedFrontFinder(self._directory, self._config, self._limits.max_batch_bytes)
        front = finder.find(self._deleted, first_base)
        self._files.add(*front.writes)
        self._files.next_stage()
        return front

    def _deleted_epochs(self, front: DeletedFront, start: int) -> LeaderEpochFileCache:
        """Returns the epochs below the log start, including those in retained segments."""
        epochs = front.epochs
        for segment in self._segments if self._finds_deleted else ():
            if segment.base_offset < start:
                for table in segment.tables(segment.base_offset):
                    epochs = epochs.with_batches(table.select(table.column(b.MAGIC) > 1))
        return epochs.cut_at_end(start)


def _rest(segment: LoadingSegment, rebuild: Rebuild, file: ReadableFile) -> LoadingSegment:
    """Splits off the part of a segment after the batches scanned; both become parts."""
    start = segment.start + rebuild.size
    header = header_at(file, start)
    assert header is not None  # it was just scanned
    # A compressed wrapper's base offset is unknown; any offset above the previous last one will do.
    lowest = max(rebuild.next_offset, header.last_offset - MAX_INT32)
    base = header.base_offset if header.record_count >= 0 else lowest
    rest = replace(segment, base_offset=base, start=start, is_part=True)
    segment.end, segment.is_part = start, True
    return rest
