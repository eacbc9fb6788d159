"""Writes a segment again without the records that are to be erased.

As in a compaction, batches without such a record are copied byte for byte, and the others are
rebuilt: the remaining records keep their offsets, timestamps and headers. But a batch that loses
its last record is always retained as an empty one, and not only if it is the last of its producer:
else a log that was never compacted would have gaps, and the state of its producers could not be
rebuilt from it. A batch of magic 0 or 1 cannot be empty, so it is dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from ..cleaner.cleaned import CleanedSegment, discard_after
from ..cleaner.reading import Chunk, read_chunks
from ..cleaner.record_filter import RecordRetention, stretches
from ..concurrency.read_ahead import parallel_map, processors
from ..config.kafka import TopicConfig
from ..errors import SegmentGone
from ..format.files.names import FileKind
from ..format.records import batch as b
from ..format.records.batch import BatchTable, Int64s
from ..format.records.columns import Columns
from ..format.records.decoder import Decoder
from ..format.records.rewrite import KEEP, NO_HORIZON, RETAIN_EMPTY, Rewritten, UInt8s, rewrite
from ..io.durable import WritableDirFd
from ..log.read.context import ReadContext
from ..segment.segment import Segment
from ..segment.txn_index import AbortedTxn, TransactionIndex

# Threads that decompress and compress; each has a chunk in memory.
_MOST_WORKERS: Final = 4


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
    context: ReadContext,
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
    with ExitStack() as stack:
        count = min(processors(), _MOST_WORKERS)
        decoders = [stack.enter_context(context.decoder()) for _ in range(count)]
        workers = [partial(_rewritten, offsets, decoder) for decoder in decoders]
        parts = parallel_map(_hashed(segment, context.limits.max_batch_bytes, before), workers)
        try:
            for part in parts:
                on_read(part.nbytes)
                records += part.records
                if records and after is None:
                    after = part.before  # up to here the two files are the same
                for kept in part.kept:
                    if after is not None:
                        after.update(kept.data)
                    cleaned.append(kept.data, kept.table)
            cleaned.append_aborted(aborted)
            cleaned.finish(segment.mtime_ns // 1_000_000 * 1_000_000)
        except BaseException as error:
            discard_after(error, cleaned.discard)
            raise
        finally:
            parts.close()
    return RewrittenSegment(cleaned, records, before.hexdigest(), (after or before).hexdigest())


def _hashed(segment: Segment, max_batch_bytes: int, found: Any) -> Generator[tuple[Chunk, Any]]:
    """Yields the chunks of a segment, each with a hash of the bytes before it, and adds their bytes
    to the hash `found`."""
    for chunk in read_chunks(segment, 0, max_batch_bytes, stay_valid=True):
        before = found.copy()
        found.update(_bytes_of(chunk, chunk.table))
        yield chunk, before


@dataclass(frozen=True, slots=True)
class _Part:
    """What is `kept` of `nbytes` bytes of a segment, without the `records` erased from them;
    `before`: a hash of the bytes before them in the segment."""

    kept: Sequence[Rewritten]
    records: int
    nbytes: int
    before: Any


def _rewritten(offsets: Int64s, decoder: Decoder, hashed: tuple[Chunk, Any]) -> _Part:
    chunk, before = hashed
    low, high = offsets.searchsorted((chunk.reached, _last_offset(chunk.table, -1) + 1)).tolist()
    if low == high:
        return _Part([_copied(chunk, chunk.table)], 0, chunk.nbytes, before)
    erased = offsets[low:high]
    records = 0
    kept: list[Rewritten] = []
    clean, dirty, rest = _split(chunk, erased)
    if clean is not None:
        kept.append(_copied(chunk, clean))
    all_read = np.full(len(dirty.table), RecordRetention.KEPT, dtype=np.uint8)
    for columns, _ in stretches(dirty, all_read, decoder):
        keep = (~np.isin(columns.offsets, erased, assume_unique=True)).astype(np.uint8)
        kept.append(_without(dirty, columns, keep))
        records += int(len(keep) - np.count_nonzero(keep))
    if rest is not None:
        kept.append(_copied(chunk, rest))
    return _Part(kept, records, chunk.nbytes, before)


def _split(chunk: Chunk, erased: Int64s) -> tuple[BatchTable | None, Chunk, BatchTable | None]:
    """Splits a chunk into the batches before the first one with a record of `erased`, those from
    there to the last such one, and those after it. Only the batches between have to be decoded."""
    table = chunk.table
    first, last = table.column(b.LAST_OFFSET).searchsorted(erased[[0, -1]]).tolist()
    end = last + 1
    reached = _last_offset(table, first - 1) + 1 if first else chunk.reached
    run = replace(chunk.run, table=table.select(slice(first, end)))
    return (
        table.select(slice(0, first)) if first else None,
        replace(chunk, run=run, reached=reached),
        table.select(slice(end, len(table))) if end < len(table) else None,
    )


def _last_offset(table: BatchTable, index: int) -> int:
    return int(table.rows[index, b.LAST_OFFSET])


def _copied(chunk: Chunk, table: BatchTable) -> Rewritten:
    """Returns consecutive batches of a chunk as they are."""
    rows = table.rows.copy()
    rows[:, b.POSITION] -= rows[0, b.POSITION]
    return Rewritten(_bytes_of(chunk, table), BatchTable(rows))


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
