"""Writes a segment again without the records that are to be erased.

As in a compaction, batches without such a record are copied byte for byte, and the others are
rebuilt: the remaining records keep their offsets, timestamps and headers. But a batch that loses
its last record is always retained as an empty one, and not only if it is the last of its producer:
else a log that was never compacted would have gaps, and the state of its producers could not be
rebuilt from it. A batch of magic 0 or 1 cannot be empty, so it is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cleaner.cleaned import CleanedSegment, discard_after
from ..cleaner.reading import Chunk, read_chunks
from ..cleaner.record_filter import RecordRetention, stretches
from ..concurrency.read_ahead import read_ahead
from ..config.kafka import TopicConfig
from ..errors import SegmentGone
from ..format.files.names import FileKind
from ..format.records import batch as b
from ..format.records.batch import BatchTable, Int64s
from ..format.records.columns import Columns
from ..format.records.decoder import Decoder
from ..format.records.rewrite import KEEP, NO_HORIZON, RETAIN_EMPTY, Rewritten, UInt8s, rewrite
from ..io.durable import WritableDirFd
from ..segment.segment import Segment
from ..segment.txn_index import AbortedTxn, TransactionIndex


@dataclass(frozen=True, slots=True)
class RewrittenSegment:
    """A segment, durable as `.cleaned`, without the `records` erased from it; and the SHA-256 of
    the old and the new `.log`, in hexadecimal digits."""

    cleaned: CleanedSegment
    records: int
    sha256_before: str
    sha256_after: str


def rewrite_segment(
    segment: Segment,
    into: WritableDirFd,
    config: TopicConfig,
    offsets: Int64s,
    decoder: Decoder,
    max_batch_bytes: int,
    on_read: Callable[[int], None],
) -> RewrittenSegment:
    """Writes the segment, without the records at `offsets`, which ascend, into the directory
    `into`. `on_read` is called with the number of bytes of each part before that is written; it may
    raise an error to end the rewriting. Raises CorruptError if the segment is damaged. After any
    error the new files are removed."""
    aborted = _aborted(segment)
    before, after = hashlib.sha256(), None
    records = 0
    cleaned = CleanedSegment(into, segment.base_offset, config)
    chunks = read_ahead(_hashed(segment, max_batch_bytes, before))
    try:
        for chunk, hashed in chunks:
            on_read(chunk.nbytes)
            parts = list(_rewritten(chunk, offsets, decoder))
            records += sum(count for _, count in parts)
            if records and after is None:
                after = hashed  # up to here the two files are the same
            for kept, _ in parts:
                if after is not None:
                    after.update(kept.data)
                cleaned.append(kept.data, kept.table)
        cleaned.append_aborted(aborted)
        cleaned.finish(segment.mtime_ns // 1_000_000 * 1_000_000)
    except BaseException as error:
        discard_after(error, cleaned.discard)
        raise
    finally:
        chunks.close()
    return RewrittenSegment(cleaned, records, before.hexdigest(), (after or before).hexdigest())


def _hashed(segment: Segment, max_batch_bytes: int, found: Any) -> Generator[tuple[Chunk, Any]]:
    """Yields the chunks of a segment, each with a hash of the bytes before it, and adds their bytes
    to the hash `found`: in another thread, since that takes as long as all the rest."""
    for chunk in read_chunks(segment, 0, max_batch_bytes, stay_valid=True):
        before = found.copy()
        found.update(_bytes_of(chunk, chunk.table))
        yield chunk, before


def _rewritten(chunk: Chunk, offsets: Int64s, decoder: Decoder) -> Iterator[tuple[Rewritten, int]]:
    """Yields the retained part of a chunk's batches, and the number of records erased."""
    last = int(chunk.table.rows[-1, b.LAST_OFFSET])
    low, high = offsets.searchsorted((chunk.reached, last + 1)).tolist()
    if low == high:
        yield _copied(chunk, slice(0, len(chunk.table))), 0
        return
    all_read = np.full(len(chunk.table), RecordRetention.KEPT, dtype=np.uint8)
    for columns, _ in stretches(chunk, all_read, decoder):
        keep = (~np.isin(columns.offsets, offsets[low:high], assume_unique=True)).astype(np.uint8)
        yield _without(chunk, columns, keep), int(len(keep) - np.count_nonzero(keep))


def _copied(chunk: Chunk, batches: slice) -> Rewritten:
    """Returns some of a chunk's batches as they are."""
    table = chunk.table.select(batches)
    data = _bytes_of(chunk, table)
    rows = table.rows.copy()
    rows[:, b.POSITION] -= rows[0, b.POSITION]
    return Rewritten(data, BatchTable(rows))


def _bytes_of(chunk: Chunk, table: BatchTable) -> memoryview:
    """Returns the bytes of a chunk's consecutive batches."""
    start = int(table.rows[0, b.POSITION]) - chunk.run.base
    end = int(table.rows[-1, b.POSITION] + table.rows[-1, b.SIZE]) - chunk.run.base
    return chunk.run.data[start:end]


def _without(chunk: Chunk, columns: Columns, keep: UInt8s) -> Rewritten:
    """Returns the retained part of some batches, given which of their rows are kept."""
    table = columns.batches
    actions = np.where(table.column(b.MAGIC) > 1, RETAIN_EMPTY, KEEP).astype(np.int8)
    horizons = np.full(len(table), NO_HORIZON, dtype=np.int64)
    return rewrite(chunk.run.data, chunk.run.base, columns, keep, actions, horizons)


def _aborted(segment: Segment) -> list[AbortedTxn]:
    """Returns the entries of the segment's transaction index, which stay: every marker does."""
    name = segment.files.name(FileKind.TXNINDEX)
    try:
        return list(TransactionIndex.open(segment.files.directory, name).entries())
    except SegmentGone:
        return []
