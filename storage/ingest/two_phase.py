"""Ingests staged segments into their partitions: all or nothing, and exactly once, despite crashes.

1. What a partition receives is prepared. Records that fit into one batch, and that batch into the
   active segment, are joined (`joining`): the log is flushed, and space for the batch is reserved.
   Otherwise the log is rolled, so that it ends with an empty segment, and flushed. The staged
   batches get the offsets from there on and are written into the partition's directory as
   `.cleaned`: small segments are copied, several into one; large ones are hard-linked and get their
   offsets in place, which no checksum covers. The staged files stay in both cases.
2. The write is committed: the commit file records it, with the resulting batches or segments.
3. In each partition the batch is appended, durably, or the new segments replace the empty one
   (`IngestTarget`).
4. The staged files are removed, and the write is recorded as complete.

Topics created for the write are recorded before all that; the commit removes their record.

After a crash before 2, loading the partitions removes the `.cleaned` files, and the next process to
open the directories removes the topics (`undo_started`). After a later crash, that process
completes the write: before the partitions are loaded, from the `.cleaned` files
(`resume_committed`); and after that, from the staged files again, where a batch is not in the log
(if it was torn, loading has truncated it), or a broker has run in between and discarded the
`.cleaned` files (`finish_committed`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from ..cleaner.manager import CleanerManager
from ..errors import (
    CorruptError,
    LogDirOffline,
    OffsetOutOfRange,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
    fresh,
    raise_first,
)
from ..format.files.names import FileKind, FileState, TopicPartition, partition_dir, segment_file
from ..format.layout import MAX_INT32, RECORD_BATCH_OVERHEAD
from ..format.primitives import random_uuid_text
from ..format.records import batch as b
from ..format.records.batch import BatchTable, parse_header
from ..format.records.validate import AppendOrigin, ValidationResult
from ..io.directory import Directory, ReadableFile
from ..io.durable import SyncFailed, WritableDirFd
from ..log.append.appending import marker_reader
from ..log.append.log_target import IngestTarget
from ..log.append.writer import LogWriter
from ..log.delete.replacing import commit_cleaned, discard_cleaned
from ..segment.extent import Extent, Fault
from ..segment.txn_index import AbortedTxn
from ..segment.walk import read_runs
from .commit_file import (
    CommitFile,
    CommitRecord,
    IngestedPart,
    IngestWrite,
    StagedPart,
    StartedWrite,
)
from .joining import joined_batch
from .segment_series import SealedSegment, SegmentSeries

logger = logging.getLogger(__name__)

# Partitions ingested in parallel.
_THREADS: Final = 4
# A staged segment of at least this many bytes is large. A log of smaller ones would have too many.
_LARGE: Final = 32 << 20
# The bytes of a batch up to and including the leader epoch: the part that is changed in place.
_ASSIGNED_BYTES: Final = 16


class IngestEngine(Protocol):
    """The engine, as far as ingest needs it."""

    @property
    def commits(self) -> CommitFile: ...
    @property
    def cleaner(self) -> CleanerManager: ...

    def writer(self, topic: str, partition: int) -> LogWriter: ...
    def topics(self) -> Mapping[str, list[int]]: ...
    def topic_id(self, topic: str) -> str: ...
    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        topic_id: str = "",
    ) -> str: ...
    def delete_unchanged_topic(self, topic: str, ends: Mapping[int, int]) -> bool: ...


@dataclass(frozen=True, slots=True)
class Ingested:
    """The offsets of the records, half-open ranges by partition. `is_repeated`: they were already
    there, and nothing was written."""

    offsets: dict[TopicPartition, range]
    is_repeated: bool = False


def ingest_parts(
    engine: IngestEngine,
    write: IngestWrite,
    parts: Sequence[StagedPart],
    new_topics: Mapping[str, int] = MappingProxyType({}),
) -> Ingested:
    """Appends staged parts to their partitions, those of a partition in the given order, and
    removes them. Offsets that are kept must be at or above the log end offset. `new_topics`: topics
    to create first, with their numbers of partitions.

    Raises UnknownTopic, UnknownPartition, OffsetOutOfRange, CorruptError if staged files are not
    what was written, an OSError or an error of topic creation; all of them leave everything as it
    was, including the staged parts. Raises LogDirOffline if the write may be committed but not
    complete; opening the directories again completes it.
    """
    if engine.commits.is_done(write):
        _remove(parts)
        return Ingested({}, is_repeated=True)
    if engine.commits.is_pending(write):
        raise StorageError(f"{write} is committed, but could not be completed yet; see the log")
    if not new_topics:
        return _ingest(engine, write, parts)
    ids = {topic: random_uuid_text() for topic in new_topics}
    engine.commits.start(write, ids)
    try:
        for topic, partitions in new_topics.items():
            engine.create_topic(topic, partitions, topic_id=ids[topic])
        ingested = _ingest(engine, write, parts)
    except BaseException:
        with suppress(StorageError, OSError):  # report the first error
            _undo(engine, StartedWrite(write, ids))
        raise
    with suppress(OSError):  # there was nothing to commit; a topic that stays empty may be removed
        engine.commits.abandon(write)
    return ingested


def _ingest(engine: IngestEngine, write: IngestWrite, parts: Sequence[StagedPart]) -> Ingested:
    by_partition: defaultdict[TopicPartition, list[StagedPart]] = defaultdict(list)
    for part in parts:
        if part.segments:
            by_partition[part.topic, part.partition].append(part)
    if not by_partition:
        return Ingested({})
    with ExitStack() as held:
        for key in by_partition:  # called last
            held.callback(engine.writer(*key).run_deferred)
        ingests = [
            held.enter_context(_paused_for_ingest(engine, key, tuple(those)))
            for key, those in sorted(by_partition.items())
        ]
        ingested = _prepare_and_commit(engine.commits, write, ingests)
        _swap_in(ingests)
    _remove(parts)
    with suppress(OSError):  # all is in place; a leftover commit record does no harm
        engine.commits.done(write)
    return Ingested({
        (part.topic, part.partition): range(
            part.segments[0].base_offset, part.segments[-1].end_offset
        )
        for part in ingested
    })  # fmt: skip


@contextmanager
def _paused_for_ingest(
    engine: IngestEngine, key: TopicPartition, parts: tuple[StagedPart, ...]
) -> Iterator[_PartitionIngest]:
    """Yields a partition that nothing else changes meanwhile: the cleaner writes `.cleaned` files,
    too."""
    with (
        engine.cleaner.cleaning_state.abort_and_pause(key),
        engine.writer(*key).ingesting() as target,
    ):
        yield _PartitionIngest(key, target, parts)


class _PartitionIngest:
    """Staged parts being ingested into one partition. `segments`: the resulting segments, or the
    one batch that is appended to the active segment."""

    def __init__(
        self, key: TopicPartition, target: IngestTarget, parts: tuple[StagedPart, ...]
    ) -> None:
        self.key = key
        self.target = target
        self.parts = parts
        self.segments: list[SealedSegment] = []
        self._series: SegmentSeries | None = None
        self._batch: ValidationResult | None = None

    def prepare(self) -> None:
        """Prepares what the log receives, which is not part of it yet."""
        batch = joined_batch(self.parts, self.target.config, _admitted)
        if batch is not None and self.target.reserve(batch):
            self._batch = batch
            header = batch.table[0]
            end = header.last_offset + 1
            self.segments = [SealedSegment(header.base_offset, header.size, end, header.crc)]
        else:
            self._prepare_segments()

    def _prepare_segments(self) -> None:
        """Creates the new segments."""
        first = self.parts[0]
        base = first.segments[0].base_offset if first.keeps_offsets else self.target.end_offset
        self.target.end_at(base)
        series = self._series = SegmentSeries(self.target.directory, base, self.target.config)
        for part in self.parts:
            for segment in part.segments:
                self._prepare(series, part, segment)
        self.segments = series.finish()

    def _prepare(self, series: SegmentSeries, part: StagedPart, segment: SealedSegment) -> None:
        first = series.end_offset
        if part.keeps_offsets and segment.base_offset < first:
            what = f"{part.path}: offset {segment.base_offset} comes after {first - 1}"
            raise OffsetOutOfRange(what)
        is_large = segment.size >= _LARGE and not part.keeps_offsets
        if is_large and series.adopt(part.directory, segment):
            self._assign_in_file(part, segment, first)
        else:
            self._copy(series, part, segment)

    def _copy(self, series: SegmentSeries, part: StagedPart, segment: SealedSegment) -> None:
        for _, admitted in _batches(part, segment):
            aborted = self._assign_offsets(part, admitted, series.end_offset)
            series.append(admitted.data, admitted.table, aborted)

    def _assign_in_file(self, part: StagedPart, segment: SealedSegment, next_offset: int) -> None:
        file = part.directory.writable(_log_name(segment))
        for position, admitted in _batches(part, segment):
            if self._assign_offsets(part, admitted, next_offset):
                raise CorruptError(
                    "it ends transactions, which requires that offsets are kept", file.path
                )
            next_offset = admitted.last_offset + 1
            starts = admitted.table.column(b.POSITION).tolist()
            file.write_pieces(
                (position + at, admitted.data[at : at + _ASSIGNED_BYTES]) for at in starts
            )
        file.sync()

    def _assign_offsets(
        self, part: StagedPart, admitted: ValidationResult, next_offset: int
    ) -> Sequence[AbortedTxn]:
        """Assigns offsets to batches; returns the aborted transactions that end in them."""
        update = self.target.producers
        first = admitted.first_offset if part.keeps_offsets else next_offset
        admitted.place(first, self.target.leader_epoch)
        known = len(update.aborted)
        update.add(admitted.table, AppendOrigin.REPLICATION, marker_reader(admitted))
        return update.aborted[known:]

    def swap_in(self) -> None:
        """Adds to the log what was prepared, once it is committed. Raises LogDirOffline."""
        if self._batch is None:
            self.target.swap_in(self.segments)
        else:
            self.target.append(self._batch)

    def discard(self) -> None:
        if self._series is not None:
            self._series.discard()

    @property
    def ingested(self) -> IngestedPart:
        epoch, is_joined = self.target.leader_epoch, self._batch is not None
        return IngestedPart(*self.key, epoch, self.parts, tuple(self.segments), is_joined)


def _admitted(part: StagedPart, segment: SealedSegment) -> Iterator[ValidationResult]:
    return (admitted for _, admitted in _batches(part, segment))


def _batches(part: StagedPart, segment: SealedSegment) -> Iterator[tuple[int, ValidationResult]]:
    """Yields the batches of a staged segment, some at a time, with the position of the first; valid
    until the next ones are requested. Raises CorruptError if they are not what was written."""
    file = _staged_log(part, segment)
    if file.size() != segment.size:
        what = f"the file has {file.size()} bytes, but {segment.size} were written"
        raise CorruptError(what, file.path)
    extent = Extent(file, segment.base_offset, 0, segment.size, MAX_INT32)
    for run in read_runs(extent):
        if isinstance(run, Fault):
            raise fresh(run.error)
        table = BatchTable(run.table.rows.copy())
        table.rows[:, b.POSITION] -= run.base
        yield run.base, ValidationResult(run.data, table)


def _staged_log(part: StagedPart, segment: SealedSegment) -> ReadableFile:
    return part.directory.open(_log_name(segment))


def _log_name(segment: SealedSegment) -> str:
    return segment_file(segment.base_offset, FileKind.LOG, FileState.CLEANED)


def _prepare_and_commit(
    commits: CommitFile, write: IngestWrite, ingests: Sequence[_PartitionIngest]
) -> list[IngestedPart]:
    """Creates all segments and commits; on failure, nothing remains of them."""
    try:
        with ThreadPoolExecutor(_THREADS) as executor:
            list(executor.map(_PartitionIngest.prepare, ingests))
    except BaseException:
        _discard(ingests)
        raise
    ingested = [each.ingested for each in ingests]
    try:
        commits.commit(CommitRecord(write, tuple(ingested)))
    except SyncFailed as error:
        _abandon(ingests)
        why = f"it is unknown whether a write was committed: {error}"
        raise LogDirOffline(ingests[0].target.directory.path, why) from error
    except OSError:
        _discard(ingests)
        raise
    except BaseException:
        _abandon(ingests)
        raise
    return ingested


def _swap_in(ingests: Sequence[_PartitionIngest]) -> None:
    """Adds to all logs what was prepared. A failure in one does not keep back the others."""
    failures: list[LogDirOffline] = []
    left = list(ingests)
    try:
        while left:
            try:
                left[0].swap_in()
            except LogDirOffline as error:
                failures.append(error)
            del left[0]
    finally:
        _abandon(left)
    raise_first(failures)


def _discard(ingests: Sequence[_PartitionIngest]) -> None:
    for each in ingests:
        with suppress(OSError):  # loading the partition removes what remains
            each.discard()


def _abandon(ingests: Sequence[_PartitionIngest]) -> None:
    for each in ingests:
        with suppress(LogDirOffline):
            each.target.abandon()


def _remove(parts: Sequence[StagedPart]) -> None:
    """Removes the files of each part, and no others, because their paths come from a file in a log
    directory. Anything that remains becomes stale."""
    for part in parts:
        with suppress(OSError, StorageError):
            directory = part.directory
            discard_cleaned(directory, [segment.base_offset for segment in part.segments])
            if not directory.list():
                part.attempt.remove_directory(directory.name)


def _undo(engine: IngestEngine, started: StartedWrite) -> None:
    """Deletes the topics created for a write, unless it is committed or they have been used. A
    topic without an id was not completely created."""
    if engine.commits.is_pending(started.write):
        return
    for topic, topic_id in started.topics.items():
        numbers = engine.topics().get(topic)
        if numbers is not None and engine.topic_id(topic) in (topic_id, ""):
            engine.delete_unchanged_topic(topic, dict.fromkeys(numbers, 0))
    engine.commits.abandon(started.write)


# -- after a crash -------------------------------------------------------------------------------


def undo_started(engine: IngestEngine) -> None:
    """Removes what was created for writes that were never committed, after the partitions are
    loaded. What cannot be removed now is retried at the next opening."""
    for started in engine.commits.started():
        try:
            _undo(engine, started)
        except (StorageError, OSError) as error:
            logger.error("topics created for a write cannot be removed: %s", error)


def resume_committed(log_dir: WritableDirFd, commits: CommitFile) -> None:
    """Before the partitions in a log directory are loaded: lets loading swap in committed segments
    that are complete, and removes the others."""
    for record in commits.pending():
        for part in record.parts:
            if part.is_joined:  # it has no files of its own
                continue
            with suppress(SegmentGone, FileNotFoundError):
                _resume(log_dir.child(partition_dir(part.topic, part.partition)), part)


def _resume(directory: WritableDirFd, part: IngestedPart) -> None:
    if _is_ingested(directory, part.segments[-1]):
        return
    bases = [segment.base_offset for segment in part.segments]
    if all(_is_prepared(directory, segment) for segment in part.segments):
        commit_cleaned(directory, bases)
    else:
        unfinished = (FileState.CLEANED, FileState.SWAP)
        discard_cleaned(directory, [
            segment.base_offset
            for segment in part.segments
            if any(_is_ingested(directory, segment, state) for state in unfinished)
        ])  # fmt: skip
        directory.sync()


def _is_prepared(directory: Directory, segment: SealedSegment) -> bool:
    """Returns whether its `.log` exists, in whatever state."""
    states = (FileState.CLEANED, FileState.SWAP, FileState.LIVE)
    return any(_is_ingested(directory, segment, state) for state in states)


def _is_ingested(
    directory: Directory, segment: SealedSegment, state: FileState = FileState.LIVE
) -> bool:
    """Returns whether the `.log` of a segment is this one, which may have grown since."""
    try:
        file = directory.open(segment_file(segment.base_offset, FileKind.LOG, state))
        header = parse_header(file.read(0, RECORD_BATCH_OVERHEAD))
    except (SegmentGone, CorruptError):
        return False
    return header.base_offset == segment.base_offset and header.crc == segment.crc


def finish_committed(engine: IngestEngine) -> None:
    """After the partitions are loaded: ingests again from the staged files what another process
    discarded, and records what is complete. What cannot be completed now is retried at the next
    opening."""
    for record in engine.commits.pending():
        try:
            missing = [part for part in record.parts if _is_missing(engine, part)]
            if missing:
                _ingest(engine, record.write, [each for part in missing for each in part.staged])
            else:
                _remove([each for part in record.parts for each in part.staged])
                engine.commits.done(record.write)
        except (StorageError, OSError) as error:
            logger.error("a committed write cannot be completed: %s", error)


def _is_missing(engine: IngestEngine, part: IngestedPart) -> bool:
    """Returns whether a partition lacks its segments and can still receive them: the staged files
    are removed afterwards.

    A broker may have run since, and have cleaned or deleted the segments. A broker that discarded
    them before they were part of the log starts an epoch of its own at their first offset; one that
    found them in the log starts it after them.
    """
    try:
        writer = engine.writer(part.topic, part.partition)
    except (UnknownTopic, UnknownPartition):  # deleted meanwhile
        return False
    first, end = part.segments[0], part.segments[-1].end_offset
    was_there = writer.end_offset >= end
    was_there &= writer.epochs.epoch_of(first.base_offset) <= part.leader_epoch
    if was_there or writer.start_offset > first.base_offset:
        return False
    if _is_ingested(writer.directory, first):
        return False
    try:
        _staged_log(part.staged[0], part.staged[0].segments[0])
    except SegmentGone:
        return False
    return True
