"""Writes a segment again without the records that are to be erased.

As in a compaction, batches without such a record are copied byte for byte, and the others are
rebuilt: the remaining records keep their offsets, timestamps and headers. But a batch that loses
its last record is always retained as an empty one, and not only if it is the last of its producer:
else a log that was never compacted would have gaps, and the state of its producers could not be
rebuilt from it. A batch of magic 0 or 1 cannot be empty, so it is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ..cleaner.cleaned import CleanedSegment, discard_after
from ..cleaner.reading import Chunk, read_chunks
from ..cleaner.record_filter import RecordRetention, stretches
from ..config.kafka import TopicConfig
from ..errors import SegmentGone
from ..format.files.names import FileKind
from ..format.records import batch as b
from ..format.records.columns import Columns
from ..format.records.decoder import Decoder
from ..format.records.rewrite import KEEP, NO_HORIZON, RETAIN_EMPTY, Rewritten, rewrite
from ..io.durable import WritableDirFd
from ..segment.segment import Segment
from ..segment.txn_index import AbortedTxn, TransactionIndex
from .selector import RecordSelector


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
    selector: RecordSelector,
    decoder: Decoder,
    max_batch_bytes: int,
    on_read: Callable[[int], None],
) -> RewrittenSegment:
    """Writes the segment into the directory `into`. `on_read` is called with the number of bytes
    of each part before that is written; it may raise an error to end the rewriting. Raises
    CorruptError if the segment is damaged. After any error the new files are removed."""
    aborted = _aborted(segment)
    before, after = hashlib.sha256(), hashlib.sha256()
    records = 0
    cleaned = CleanedSegment(into, segment.base_offset, config)
    try:
        for chunk in read_chunks(segment, 0, max_batch_bytes):
            on_read(chunk.nbytes)
            start = int(chunk.table.rows[0, b.POSITION]) - chunk.run.base
            before.update(chunk.run.data[start : start + chunk.nbytes])
            for kept, count in _rewritten(chunk, selector, decoder):
                after.update(kept.data)
                cleaned.append(kept.data, kept.table)
                records += count
        cleaned.append_aborted(aborted)
        cleaned.finish(segment.mtime_ns // 1_000_000 * 1_000_000)
    except BaseException as error:
        discard_after(error, cleaned.discard)
        raise
    return RewrittenSegment(cleaned, records, before.hexdigest(), after.hexdigest())


def _rewritten(
    chunk: Chunk, selector: RecordSelector, decoder: Decoder
) -> Iterator[tuple[Rewritten, int]]:
    """Yields the retained part of a chunk's batches, and the number of records erased."""
    all_read = np.full(len(chunk.table), RecordRetention.KEPT, dtype=np.uint8)
    for columns, _ in stretches(chunk, all_read, decoder):
        rows = selector.rows(columns)
        yield _without(chunk, columns, rows), len(rows)


def _without(chunk: Chunk, columns: Columns, rows: b.Int64s) -> Rewritten:
    keep = np.ones(len(columns), dtype=np.uint8)
    keep[rows] = 0
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
