"""The view of a log that is one small, sound file, from a single read of it.

A `Log` takes three times as long for it, because it is prepared to see the log change: with tens of
thousands of partitions, most of which are small, that is noticed. Whatever is unusual is left to
it.
"""

from __future__ import annotations

from typing import Final

from ...errors import CorruptError, SegmentGone
from ...format import layout
from ...format.files.names import FileKind, FileState, TopicPartition, segment_file
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...format.records.decoder import are_plain
from ...io.directory import Directory, HeldDirectory
from ...segment.segment import Segment, SegmentFiles
from .context import ReadContext
from .segments import Segments, list_logs
from .view import View

# Reading and checking a file of this size costs less than what it saves.
_SMALL_BYTES: Final = 32 << 10


class SmallLogs:
    """Looks at logs, one at a time."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._limit = min(_SMALL_BYTES, context.limits.max_batch_bytes)
        self._room = BatchTable.empty(_SMALL_BYTES // layout.RECORD_BATCH_OVERHEAD + 1)

    def view(
        self, key: TopicPartition, directory: Directory, held: HeldDirectory, start_offset: int
    ) -> View | None:
        """Returns what `Log.view` returns for a partition whose ``directory`` the caller holds, and
        whose checkpointed log start offset is known. Returns None if only a `Log` can tell: unless
        the log's first file is its only one, and has nothing but whole batches that
        `are_plain`."""
        try:
            before = held.stat().st_mtime_ns
            damage: list[CorruptError] = []
            logs, _ = list_logs(held, damage.append)
            if damage or len(logs) != 1 or held.stat().st_mtime_ns != before:
                return None
            (log,) = logs
            if log.base_offset or log.state is not FileState.LIVE or log.size > self._limit:
                return None
            file = held.open(segment_file(0, FileKind.LOG))
            status = file.stat()
            if file.identity != log.inode or not 0 < status.st_size <= self._limit:
                return None
            end = self._end_of(file.read(0, status.st_size), status.st_size)
        except (SegmentGone, CorruptError):
            return None
        if end < 0:
            return None
        files = SegmentFiles(directory, 0, log.inode, self._context.files)
        end = max(end, start_offset)
        return View(
            topic=key[0],
            partition=key[1],
            segments=Segments((Segment(files, status.st_size, status.st_mtime_ns),)),
            start_offset=start_offset,
            end_offset=end,
            stable_offset=end,
            context=self._context,
        )

    def _end_of(self, data: bytes, size: int) -> int:
        """Returns the offset after the last batch in a file of so many bytes; -1 if anything is
        unusual."""
        table, walk = b.scan(data, len(data), 0, self._room, whole=True)
        if walk.end != size or walk.is_fault or not len(table):
            return -1
        if not are_plain(memoryview(data), table, 0):
            return -1
        last = int(table.rows[-1, b.LAST_OFFSET])
        return last + 1 if last <= layout.MAX_INT32 else -1  # Kafka rolls before that
