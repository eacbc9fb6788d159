"""Writes batches into a series of sealed segments, as a log's writer would have written them.

Like the cleaner's, they have names that no reader takes for segments, each has its indexes, and
they are rolled where an append would have rolled the log. An existing segment can be adopted as one
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..cleaner.cleaned import CleanedSegment
from ..config.kafka import TopicConfig
from ..format.files.names import FileKind, FileState, segment_file
from ..format.layout import MAX_INT32
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..io.durable import WritableDirFd
from ..log.append.roll import max_segment_ms
from ..log.delete.replacing import discard_cleaned
from ..segment.txn_index import AbortedTxn


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A complete segment: the bytes of its `.log`, the offset after its last batch, and the
    checksum of its first one, which identifies it among others at the same place."""

    base_offset: int
    size: int
    end_offset: int
    crc: int


class SegmentSeries:
    """Segments being written into a directory. Single-threaded.

    `end_offset`: the offset after the last batch. After any error, only `discard` may be called.
    """

    def __init__(self, directory: WritableDirFd, base_offset: int, config: TopicConfig) -> None:
        """Creates nothing before the first batch."""
        self.end_offset = base_offset
        self._base = base_offset
        self._directory = directory
        self._config = config
        self._limit_ms = max_segment_ms(config)
        self._finished: list[SealedSegment] = []
        self._bases: list[int] = []
        self._open: CleanedSegment | None = None
        self._crc = 0  # of the open segment's first batch
        self._first_timestamp = 0  # that batch's largest timestamp

    def append(
        self, data: memoryview, table: BatchTable, aborted: Sequence[AbortedTxn] = ()
    ) -> None:
        """Appends whole batches, their positions in `table` counted from `data[0]`, and the aborted
        transactions that end in them."""
        first = 0
        while first < len(table):
            count = self._fitting(table, first)
            if not count:
                self._roll()
                continue
            piece = BatchTable(table.rows[first : first + count].copy())
            self._write(data, piece, aborted)
            first += count

    def adopt(self, source: WritableDirFd, sealed: SealedSegment) -> bool:
        """Hard-links a `.cleaned` segment of another directory as the next one, so that its files
        have names there and here. The caller must rewrite its batches' offsets in place, from
        `end_offset` on; its indexes are relative to its base, so they are already right. No
        transaction may end in it. Returns False, with nothing changed, if it cannot be adopted."""
        is_ours = source.is_ours_alone(_cleaned(sealed.base_offset, FileKind.LOG))
        if sealed.size > self._config.segment_size or not is_ours:
            return False
        if self._open is not None:
            self._roll()
        base, its_base = self.end_offset, sealed.base_offset
        self._bases.append(base)
        is_linked = False
        try:
            is_linked = all(
                self._directory.link(_cleaned(base, kind), source, _cleaned(its_base, kind))
                for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX)
            )
        finally:
            if not is_linked:
                discard_cleaned(self._directory, [self._bases.pop()])
        if not is_linked:
            return False
        self.end_offset += sealed.end_offset - sealed.base_offset
        self._finished.append(SealedSegment(base, sealed.size, self.end_offset, sealed.crc))
        return True

    def _write(self, data: memoryview, piece: BatchTable, aborted: Sequence[AbortedTxn]) -> None:
        rows = piece.rows
        start, last = int(rows[0, b.POSITION]), int(rows[-1, b.LAST_OFFSET])
        end = int(rows[-1, b.POSITION] + rows[-1, b.SIZE])
        segment = self._open
        if segment is None:
            base = int(rows[0, b.BASE_OFFSET]) if self._bases else self._base
            self._bases.append(base)
            segment = self._open = CleanedSegment(self._directory, base, self._config)
            self._crc = int(rows[0, b.CRC])
            self._first_timestamp = int(rows[0, b.MAX_TIMESTAMP])
        rows[:, b.POSITION] -= start
        segment.append(data[start:end], piece)
        segment.append_aborted([e for e in aborted if self.end_offset <= e.last_offset <= last])
        self.end_offset = last + 1

    def _fitting(self, table: BatchTable, first: int) -> int:
        """Returns how many batches from `first` on fit into the open segment; at least one for a
        new one (see `log.roll.Filling`)."""
        rows, segment = table.rows[first:], self._open
        size = 0 if segment is None else segment.size
        base = int(rows[0, b.BASE_OFFSET]) if segment is None else segment.base_offset
        first_ms = int(rows[0, b.MAX_TIMESTAMP]) if segment is None else self._first_timestamp
        fits = size + np.cumsum(rows[:, b.SIZE]) <= self._config.segment_size
        fits &= rows[:, b.LAST_OFFSET] - base <= MAX_INT32
        if first_ms >= 0:
            fits &= rows[:, b.MAX_TIMESTAMP] - first_ms <= self._limit_ms
        count = len(rows) if fits.all() else int(fits.argmin())
        if segment is None:
            return max(1, min(count, self._most_indexed))
        return min(count, segment.room)

    @property
    def _most_indexed(self) -> int:
        """The number of batches that a new segment's indexes can always hold."""
        return max(1, self._config.segment_index_bytes // 12 - 1)

    def _roll(self) -> None:
        segment = self._open
        assert segment is not None  # a new segment accepts at least one batch
        segment.finish()
        self._finished.append(
            SealedSegment(segment.base_offset, segment.size, self.end_offset, self._crc)
        )
        self._open = None

    def finish(self) -> list[SealedSegment]:
        """Returns all segments, durable including their names."""
        if self._open is not None:
            self._roll()
        self._directory.sync()
        return list(self._finished)

    def discard(self) -> None:
        """Removes the segments. Raises OSError if something remains."""
        self._open = None
        discard_cleaned(self._directory, self._bases)


def _cleaned(base_offset: int, kind: FileKind) -> str:
    return segment_file(base_offset, kind, FileState.CLEANED)
