"""A segment that the cleaner writes, under names that no reader takes for a segment's.

Rules: Kafka's `UnifiedLog.createNewCleanedSegment` and what `Cleaner.cleanSegments` does with it.
What is left of one that was not finished stays until it is made again, set aside or purged (see
`log.leftovers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..config import TopicConfig
from ..durable import Buffer, WritableDirectory, WritableFile
from ..format import batch as b
from ..format.batch import BatchTable
from ..format.names import FileKind, FileState, segment_file
from ..segment import offset_index, time_index
from ..segment.index_builder import IndexBuilder
from ..segment.stored import FILES
from ..segment.txn_index import AbortedTxn, format_aborted_txns

# The disk begins with so many bytes while the next ones are made.
_SYNC_BYTES: Final = 8 << 20


class CleanedSegment:
    """`B.log.cleaned` and its indexes while they are filled. One thread at a time.

    `size`: bytes of its batches. After any error it is good for nothing but `discard`.
    """

    def __init__(self, directory: WritableDirectory, base_offset: int, config: TopicConfig) -> None:
        """An empty one; what an old one of that base has left is gone. When it raises OSError
        nothing of it is left, if that can be."""
        self.base_offset = base_offset
        self.size = 0
        self._directory = directory
        self._builder = IndexBuilder(
            base_offset, config.index_interval_bytes, config.segment_index_bytes
        )
        self._aborted: WritableFile | None = None
        self._aborted_size = 0
        self._synced = 0  # up to here the disk is at it
        try:
            directory.remove(self._name(FileKind.TXNINDEX), missing_ok=True)
            self._log = directory.create(self._name(FileKind.LOG))
            self._offsets = directory.create(self._name(FileKind.INDEX))
            self._times = directory.create(self._name(FileKind.TIMEINDEX))
        except OSError as error:
            self._discard_after(error)
            raise

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its batches in ms, -1 when none has one."""
        return self._builder.largest.timestamp

    @property
    def room(self) -> int:
        """How many batches can be added before an index is full, at least."""
        return max(self._builder.room, 0)

    def append(self, data: Buffer, table: BatchTable) -> None:
        """Add whole batches, one after the other in `data`, and their index entries; positions in
        `table` are those in `data`, and are changed to those in the segment."""
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
        """Add entries to the transaction index, which is made for the first of them."""
        if not aborted:
            return
        if self._aborted is None:
            self._aborted = self._directory.create(self._name(FileKind.TXNINDEX))
        data = format_aborted_txns(aborted)
        self._aborted.write(self._aborted_size, data)
        self._aborted_size += len(data)

    def finish(self, mtime_ns: int | None = None) -> None:
        """Nothing more comes: the last time entry is added, the log and its two indexes get this
        mtime, if one is given (by which retention goes where records have no timestamp), and all
        files are durable; their names are not."""
        times_end = self._builder.time_count * time_index.ENTRY.size
        if entry := self._builder.finish():
            self._times.write(times_end, entry)
        if mtime_ns is not None:
            for file in (self._log, self._offsets, self._times):
                file.set_mtime_ns(mtime_ns)
        for file in self._files():
            file.sync()

    def discard(self) -> None:
        """Remove its files, those that still have their names. OSError when one stays."""
        for kind in FILES:
            self._directory.remove(self._name(kind), missing_ok=True)

    def _discard_after(self, error: OSError) -> None:
        """What went wrong first is what is to be told."""
        try:
            self.discard()
        except OSError as another:
            error.add_note(f"then, removing what was made: {another}")

    def _files(self) -> Iterator[WritableFile]:
        yield from (self._log, self._offsets, self._times)
        if self._aborted is not None:
            yield self._aborted

    def _name(self, kind: FileKind) -> str:
        return segment_file(self.base_offset, kind, FileState.CLEANED)
