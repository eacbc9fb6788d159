"""Cuts records into Arrow tables at boundaries that depend only on the records.

A scan yields columns whose boundaries depend on how the reads happened. Here a table's end depends
only on its first record and those after it, so that every read of a log gives the same tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ..kernels import gather as kernel
from .arrow import SCHEMA, to_record_batch
from .batch import Int64s
from .columns import HEADER_COUNT, KEY_SIZE, VALUE_SIZE, Columns

# Bytes counted per record and per header, besides keys, values and header keys.
_ROW_BYTES: Final = 64


class Most(NamedTuple):
    """A table's limits: it ends with its `rows`-th record or the one that reaches `size` bytes."""

    rows: int
    size: int


#: For a record batch of an Arrow stream, and for a row group of a Parquet file.
BATCH: Final = Most(1 << 14, 4 << 20)
ROW_GROUP: Final = Most(1 << 17, 16 << 20)


def tables(
    parts: Iterable[Columns], topic: str, partition: int, most: Most
) -> Iterator[tuple[int, pa.Table]]:
    """Yields single-chunk tables of SCHEMA, each with the offset of its first record."""
    held: list[pa.RecordBatch] = []
    first = -1
    for columns, is_full in cut(parts, most):
        if not held:
            first = int(columns.offsets[0])
        held.append(to_record_batch(columns, topic, partition))
        if is_full:
            yield first, _joined(held)
            held = []
    if held:
        yield first, _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, SCHEMA).combine_chunks()


def cut(parts: Iterable[Columns], most: Most) -> Iterator[tuple[Columns, bool]]:
    """Yields the columns, cut where a table ends, and whether they end one. Columns are valid until
    the next are requested."""
    rows = size = 0
    for part in parts:
        sizes = _sizes(part)
        low = 0
        while low < len(part):
            ahead = sizes[low : low + most.rows - rows]
            totals = np.cumsum(ahead) + size
            filling = int(np.searchsorted(totals, most.size))
            is_full = filling < len(ahead) or rows + len(ahead) == most.rows
            high = low + min(filling + 1, len(ahead))
            yield part.slice(low, high), is_full
            rows, size = (0, 0) if is_full else (rows + high - low, int(totals[-1]))
            low = high


def _sizes(columns: Columns) -> Int64s:
    """Returns the counted size of each record in bytes: int64 of shape (n,)."""
    spans = columns.spans
    sizes: Int64s = np.maximum(spans[:, (KEY_SIZE, VALUE_SIZE)], 0).sum(axis=1, dtype=np.int64)
    sizes += _ROW_BYTES
    count = kernel.count_headers(spans)
    if count:
        headers = np.empty((count, 4), dtype=np.int32)
        kernel.header_spans(columns.data, spans, headers)
        of_each = np.maximum(headers[:, (1, 3)], 0).sum(axis=1, dtype=np.int64) + _ROW_BYTES
        rows = np.repeat(np.arange(len(columns)), spans[:, HEADER_COUNT])
        np.add.at(sizes, rows, of_each)
    return sizes
