"""A segment that the cleaner writes, in `.cleaned` files that no reader mistakes for a segment.

Follows Kafka's `UnifiedLog.createNewCleanedSegment` and its use in `Cleaner.cleanSegments`. Files
of an unfinished segment remain until the segment is written again, set aside or purged (see
`log.leftovers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from ..config.kafka import TopicConfig
from ..format.files.names import FileKind, FileState, segment_file
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..io.durable import Buffer, WritableDirFd, WritableFile
from ..segment import offset_index, time_index
from ..segment.index_builder import IndexBuilder
from ..segment.stored import FILES
from ..segment.txn_index import AbortedTxn, format_aborted_txns

# Writeback is started after this many bytes, so that it overlaps with producing the next ones.
_SYNC_BYTES: Final = 8 << 20


def discard_after(error: BaseException, discard: Callable[[], None]) -> None:
    """Discards an unfinished segment because of `error`, which is the one to report."""
    try:
        discard()
    except OSError as another:
        error.add_note(f"also failed to remove the unfinished segment: {another}")


class CleanedSegment:
    """`B.log.cleaned` and its indexes while they are being written. Not thread-safe.

    `size`: bytes of its batches. After an error only `discard` may be called.
    """

    def __init__(self, directory: WritableDirFd, base_offset: int, config: TopicConfig) -> None:
        """Creates an empty segment in place of leftovers with the same base offset. If it raises
        OSError, it has removed its files as far as possible."""
        self.base_offset = base_offset
        self.size = 0
        self._directory = directory
        self._builder = IndexBuilder(
            base_offset, config.index_interval_bytes, config.segment_index_bytes
        )
        self._aborted: WritableFile | None = None
        self._aborted_size = 0
        self._synced = 0  # writeback was started up to this position
        try:
            directory.remove(self._name(FileKind.TXNINDEX), missing_ok=True)
            self._log = directory.create(self._name(FileKind.LOG))
            self._offsets = directory.create(self._name(FileKind.INDEX))
            self._times = directory.create(self._name(FileKind.TIMEINDEX))
        except OSError as error:
            discard_after(error, self.discard)
            raise

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches in ms, -1 if none has one."""
        return self._builder.largest.timestamp

    @property
    def room(self) -> int:
        """A lower bound for the number of batches that can be appended before an index is full."""
        return max(self._builder.room, 0)

    def append(self, data: Buffer, table: BatchTable) -> None:
        """Appends the whole consecutive batches in `data` and their index entries. Changes the
        positions in `table` from positions in `data` to positions in the segment."""
        if not len(table):
            return
        table.rows[:, b.POSITION] += self.size
        self._log.write(self.size, data)
        offsets_end = self._builder.offset_count * offset_index.ENTRY.size
        times_end = self._builder.time_count * time_index.ENTRY.size
        added = self._builder.add(table)
        if added.offsets:
            self._offsets.write(offsets_end, added.offsets)
        if added.times:
            self._times.write(times_end, added.times)
        self.size += memoryview(data).nbytes
        if self.size - self._synced >= _SYNC_BYTES:
            self._log.begin_sync(self._synced, self.size - self._synced)
            self._synced = self.size

    def append_aborted(self, aborted: Sequence[AbortedTxn]) -> None:
        """Appends entries to the transaction index, which is created for the first one."""
        if not aborted:
            return
        if self._aborted is None:
            self._aborted = self._directory.create(self._name(FileKind.TXNINDEX))
        data = format_aborted_txns(aborted)
        self._aborted.write(self._aborted_size, data)
        self._aborted_size += len(data)

    def finish(self, mtime_ns: int | None = None) -> None:
        """Completes the segment: appends the last time index entry and makes all files durable, but
        not their names. The log and its two indexes get `mtime_ns` if it is given, because
        retention uses the mtime of segments without timestamps."""
        times_end = self._builder.time_count * time_index.ENTRY.size
        if entry := self._builder.finish():
            self._times.write(times_end, entry)
        if mtime_ns is not None:
            for file in (self._log, self._offsets, self._times):
                file.set_mtime_ns(mtime_ns)
        for file in self._files():
            file.sync()

    def discard(self) -> None:
        """Removes those of its files that still exist under their names. Raises OSError if one
        cannot be removed."""
        for kind in FILES:
            self._directory.remove(self._name(kind), missing_ok=True)

    def _files(self) -> Iterator[WritableFile]:
        yield from (self._log, self._offsets, self._times)
        if self._aborted is not None:
            yield self._aborted

    def _name(self, kind: FileKind) -> str:
        return segment_file(self.base_offset, kind, FileState.CLEANED)
