"""Writes the active segment of a log: its `.log` and its indexes.

The rules are those of Kafka's LogSegment and AbstractIndex. While the segment is written, the two
indexes have their maximum length (`segment.index.bytes`, as holes); they are truncated to their
entries when it is closed. With `preallocate`, the `.log` has the maximum length of a segment, with
zeros after its batches.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..config.kafka import TopicConfig
from ..errors import LogDirOffline, fresh
from ..format.files.names import FileKind, segment_file
from ..format.layout import MAX_INT32, NO_TIMESTAMP, RECORD_BATCH_OVERHEAD
from ..format.records import batch as b
from ..format.records.batch import BatchHeader, BatchTable
from ..io.durable import Buffer, WritableDirFd, WritableFile
from . import offset_index, time_index, txn_index
from .extent import Extent, Fault
from .index_builder import IndexBuilder
from .offset_index import OffsetIndex
from .stored import FILES, StoredSegment, modified_ms
from .time_index import TimestampOffset
from .txn_index import AbortedTxn, TransactionIndex, format_aborted_txns
from .walk import walk_headers


@dataclass(slots=True)
class _Files:
    """The open files of a segment; `aborted`, the `.txnindex`, is None until there is one."""

    log: WritableFile
    offsets: WritableFile
    times: WritableFile
    aborted: WritableFile | None = None
    aborted_size: int = 0


class SegmentWriter:
    """The active segment of a partition. Not thread-safe.

    `size`: bytes of its batches. `jitter_ms`: how much earlier than `segment.ms` it is rolled.
    `created_ms`: when this object was created, or when truncation emptied the segment.
    """

    def __init__(
        self,
        directory: WritableDirFd,
        base_offset: int,
        size: int,
        config: TopicConfig,
        now_ms: int,
        is_synced: bool = False,
    ) -> None:
        """Continues an existing segment, which must be intact, with its indexes truncated to their
        entries, and durable if `is_synced`. Its files are opened when needed."""
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.builder = IndexBuilder(
            base_offset, config.index_interval_bytes, config.segment_index_bytes
        )
        self.jitter_ms = _jitter(config)
        self.created_ms = now_ms
        self._first_timestamp: int | None = None
        self._log_room = config.segment_size if config.preallocate else 0
        self._is_synced = is_synced
        self._files: _Files | None = None

    @classmethod
    def create(
        cls, directory: WritableDirFd, base_offset: int, config: TopicConfig, now_ms: int
    ) -> SegmentWriter:
        """Creates an empty segment; existing files of that base offset are emptied or removed. Its
        directory entry is durable, and so are all earlier ones.

        If it raises OSError, no segment was created. Raises LogDirOffline if that is uncertain.
        """
        segment = cls(directory, base_offset, 0, config, now_ms)
        directory.remove(segment.name(FileKind.TXNINDEX), missing_ok=True)
        try:
            offsets = directory.create(segment.name(FileKind.INDEX))
            times = directory.create(segment.name(FileKind.TIMEINDEX))
            # Last, because a segment exists once its `.log` does.
            log = directory.create(segment.name(FileKind.LOG))
            segment._files = _Files(log, offsets, times)
            segment._allocate(segment._files)
            directory.sync()
        except OSError:
            segment.discard()
            raise
        return segment

    def name(self, kind: FileKind) -> str:
        return segment_file(self.base_offset, kind)

    # -- queries before an append ----------------------------------------------------------------

    @property
    def room(self) -> int:
        """The number of batches for which the indexes certainly have space; none if <= 0."""
        self._opened()
        return self.builder.room

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first append (of its first batch, if this object did not
        write it), -1 if it has none or there is no batch yet."""
        if self._first_timestamp is None:
            self._first_timestamp = self._read_first_timestamp() if self.size else NO_TIMESTAMP
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> int:
        """See `StoredSegment.largest_timestamp`."""
        if self._files is None:
            return StoredSegment(
                self.directory, self.base_offset, self.size, True
            ).largest_timestamp
        if self.builder.largest.timestamp > NO_TIMESTAMP:
            return self.builder.largest.timestamp
        return modified_ms(self.directory, self.base_offset)

    # -- changes ---------------------------------------------------------------------------------

    def append(
        self,
        buffers: Sequence[Buffer],
        table: BatchTable,
        first_timestamp: int,
        aborted: Sequence[AbortedTxn] = (),
    ) -> None:
        """Writes batches, whose positions in the file are already in `table`, and the aborted
        transactions whose markers are among them. `first_timestamp`: the largest timestamp of the
        first append, if this call combines several and the segment is empty.

        If it raises OSError, nothing has changed. Raises LogDirOffline if that is uncertain.
        """
        files = self._opened()
        state, aborted_size = self.builder.state, files.aborted_size
        try:
            self._is_synced = False
            files.log.write(self.size, *buffers)
            self._index(files, table)
            if aborted:
                self._append_aborted(files, aborted)
        except BaseException as error:
            self.builder.state = state
            self._cut_back(files, aborted_size, error)
            raise
        if self.size == 0:
            self._first_timestamp = first_timestamp
        last = table.rows[-1]
        self.size = int(last[b.POSITION] + last[b.SIZE])

    def reserve(self, size: int) -> None:
        """Reserves space on the disk for the next `size` bytes of batches, if the file system can.
        Raises OSError if there is none."""
        self._opened().log.reserve(self.size, size)

    def finish(self) -> None:
        """Closes the segment for appends: adds the last time entry and truncates the files to their
        contents (LogSegment.onBecomeInactiveSegment). Idempotent.

        After an OSError, the segment still accepts appends.
        """
        if self._files is None and self._is_synced:
            return
        # An unsynced segment's files are opened to be synced, and opening lengthens them.
        files, builder = self._opened(), self.builder
        state, times = builder.state, builder.time_count * time_index.ENTRY.size
        try:
            self._is_synced = False
            if entry := builder.finish():
                files.times.write(times, entry)
            # If appends continue after an error, the files grow again with new entries.
            files.times.truncate(builder.time_count * time_index.ENTRY.size)
            files.offsets.truncate(builder.offset_count * offset_index.ENTRY.size)
            if self._log_room:
                files.log.truncate(self.size)
        except OSError:
            builder.state = state
            raise

    def stored(self) -> StoredSegment:
        """Converts the finished segment; its files are closed once they are synced."""
        unsynced = () if self._is_synced else _all(self._opened())
        largest = self.builder.largest.timestamp if self._files else None
        self.close_files()
        return StoredSegment(
            self.directory, self.base_offset, self.size, self._is_synced, largest, unsynced
        )

    def close_files(self) -> None:
        """Closes the files as they are."""
        self._files = None

    @property
    def log(self) -> WritableFile:
        """The `.log`, for syncing. The indexes need no sync while the recovery point lies in or
        before the segment: after a crash, recovery rebuilds them."""
        return self._opened().log

    def sync_all(self) -> None:
        """Makes all files durable."""
        if not self._is_synced:
            for file in _all(self._opened()):
                file.sync()
            self._is_synced = True

    def discard(self) -> None:
        """Removes a segment that was just created. Raises LogDirOffline if that fails, because
        readers would look for batches in it."""
        self._files = None
        try:
            for kind in FILES:
                self.directory.remove(self.name(kind), missing_ok=True)
        except OSError as error:
            why = f"a new segment cannot be removed: {error}"
            raise LogDirOffline(self.directory.path, why) from error

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncates all batches that hold `offset` or a later one (LogSegment.truncateTo).

        After an OSError, the truncation may be incomplete.
        """
        files = self._opened()
        index = OffsetIndex(files.offsets, self.base_offset)
        position = self._position_of(offset, index)
        # The indexes first: a missing entry does no harm, a wrong one does.
        self._truncate_indexes(files, index, offset)
        files.log.truncate(position)
        self.size, self._is_synced = position, False
        if position == 0:
            self.created_ms, self._first_timestamp = now_ms, None
        self._resume(files)
        self._allocate(files)
        self._look_for_largest(files)

    # -- opening ---------------------------------------------------------------------------------

    def _opened(self) -> _Files:
        if self._files is None:
            directory = self.directory
            files = _Files(
                directory.writable(self.name(FileKind.LOG)),
                directory.writable(self.name(FileKind.INDEX), create=True),
                directory.writable(self.name(FileKind.TIMEINDEX), create=True),
            )
            with suppress(FileNotFoundError):
                files.aborted = directory.writable(self.name(FileKind.TXNINDEX))
                files.aborted_size = files.aborted.size()
            self._resume(files)
            # Before lengthening: after that, the sizes no longer show the number of entries.
            self._files = files
            self._allocate(files)
        return self._files

    def _resume(self, files: _Files) -> None:
        """Resumes the indexes from their files, which are truncated to their entries."""
        offsets = files.offsets.size() // offset_index.ENTRY.size
        times = files.times.size() // time_index.ENTRY.size
        last = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        if times:
            data = files.times.read((times - 1) * time_index.ENTRY.size, time_index.ENTRY.size)
            timestamp, relative = time_index.ENTRY.unpack(data)
            last = TimestampOffset(timestamp, self.base_offset + relative)
        self.builder.resume(self.size, offsets, times, last)

    def _allocate(self, files: _Files) -> None:
        """Lengthens the files to their maximum size."""
        builder = self.builder
        _lengthen(files.offsets, builder.max_offsets * offset_index.ENTRY.size)
        _lengthen(files.times, builder.max_times * time_index.ENTRY.size)
        if self._log_room:
            _lengthen(files.log, self._log_room)

    def _read_first_timestamp(self) -> int:
        data = self._opened().log.read(0, RECORD_BATCH_OVERHEAD)
        return b.parse_header(data).max_timestamp

    # -- appending -------------------------------------------------------------------------------

    def _index(self, files: _Files, table: BatchTable) -> None:
        builder = self.builder
        offsets_end = builder.offset_count * offset_index.ENTRY.size
        times_end = builder.time_count * time_index.ENTRY.size
        added = builder.add(table)
        if added.offsets:
            files.offsets.write(offsets_end, added.offsets)
        if added.times:
            files.times.write(times_end, added.times)

    def _append_aborted(self, files: _Files, aborted: Sequence[AbortedTxn]) -> None:
        if files.aborted is None:
            files.aborted = self.directory.create(self.name(FileKind.TXNINDEX))
        data = format_aborted_txns(aborted)
        files.aborted.write(files.aborted_size, data)
        files.aborted_size += len(data)

    def _cut_back(self, files: _Files, aborted_size: int, error: BaseException) -> None:
        """Restores the files to their state before an append that failed with `error`.

        An empty `.txnindex` is equivalent to none.
        """
        builder = self.builder
        try:
            files.log.truncate(self.size)
            files.offsets.truncate(builder.offset_count * offset_index.ENTRY.size)
            files.times.truncate(builder.time_count * time_index.ENTRY.size)
            if files.aborted is not None:
                files.aborted.truncate(aborted_size)
            files.aborted_size = aborted_size
            self._allocate(files)
        except OSError as second:
            why = f"an append failed ({error}) and cannot be undone: {second}"
            raise LogDirOffline(self.directory.path, why) from error

    # -- truncating ------------------------------------------------------------------------------

    def _position_of(self, offset: int, index: OffsetIndex) -> int:
        """Returns the position of the first batch that ends at or above `offset`, the segment's
        size if there is none."""
        for header in self._headers(index.lookup(offset, self.size).position):
            if header.last_offset >= offset:
                return header.position
        return self.size

    def _truncate_indexes(self, files: _Files, index: OffsetIndex, offset: int) -> None:
        kept = index.floor_slot(offset - 1) + 1
        files.offsets.truncate(kept * offset_index.ENTRY.size)
        times = files.times.read(0, self.builder.time_count * time_index.ENTRY.size)
        relatives = [relative for _, relative in time_index.ENTRY.iter_unpack(times)]
        kept = bisect_left(relatives, offset - self.base_offset)
        files.times.truncate(kept * time_index.ENTRY.size)
        if files.aborted is not None:
            kept = 0
            for entry in TransactionIndex(files.aborted).entries():
                if entry.last_offset >= offset:
                    break
                kept += 1
            files.aborted_size = kept * txn_index.ENTRY.size
            files.aborted.truncate(files.aborted_size)

    def _look_for_largest(self, files: _Files) -> None:
        """Looks for a larger timestamp in the batches after the last time entry."""
        builder = self.builder
        last = builder.last_time
        index = OffsetIndex(files.offsets, self.base_offset)
        for header in self._headers(index.lookup(last.offset, self.size).position):
            if header.max_timestamp > builder.largest.timestamp:
                builder.largest = TimestampOffset(header.max_timestamp, header.last_offset)

    def _headers(self, position: int) -> list[BatchHeader]:
        """Reads the headers of the batches from `position` on. Raises CorruptError at a fault."""
        extent = Extent(self._opened().log, self.base_offset, position, self.size, MAX_INT32)
        found: list[BatchHeader] = []
        for part in walk_headers(extent):
            if isinstance(part, Fault):
                raise fresh(part.error)
            found += part
        return found


def _all(files: _Files) -> tuple[WritableFile, ...]:
    found = (files.log, files.offsets, files.times)
    return found if files.aborted is None else (*found, files.aborted)


def _lengthen(file: WritableFile, size: int) -> None:
    if file.size() < size:
        file.truncate(size)


def _jitter(config: TopicConfig) -> int:
    """Draws Kafka's LogConfig.randomSegmentJitter. Each segment gets its own, so that partitions
    that were created together are not rolled together."""
    if config.segment_jitter_ms == 0:
        return 0
    return random.getrandbits(31) % min(config.segment_jitter_ms, config.segment_ms)
