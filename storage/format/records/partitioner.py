"""Assigns records to partitions as Kafka's default partitioner does.

Rule: BuiltInPartitioner.partitionForKey; a record without a key may be in any partition.
"""

from __future__ import annotations

import numpy as np

from ..kernels import murmur2 as kernel
from .batch import Int64s
from .record_columns import Field

_POSITIVE = 0x7FFFFFFF


def key_hashes(keys: Field, rows: int) -> Int64s:
    """Returns Utils.murmur2 of each key as a non-negative number, -1 for null."""
    found: Int64s = np.empty(rows, dtype=np.int64)
    filled = keys.filled(rows)
    kernel.hashes(
        memoryview(filled.data),
        np.ascontiguousarray(filled.starts),
        np.ascontiguousarray(filled.sizes),
        found,
    )
    return found


def partitions_of(keys: Field, rows: int, count: int, turn: int = 0) -> Int64s:
    """Returns the partition, out of `count`, of each row. Rows without a key are spread evenly, in
    one run per partition, as a producer fills a batch before it switches; the first of them is in
    partition `turn` % `count`."""
    if not len(keys.sizes):
        return _dealt_out(rows, count, turn)
    found = key_hashes(keys, rows)
    keyless = found < 0
    found = (found & _POSITIVE) % count
    if keyless.any():
        found[keyless] = _dealt_out(int(np.count_nonzero(keyless)), count, turn)
    return found


def _dealt_out(rows: int, count: int, turn: int) -> Int64s:
    turns = np.arange(rows, dtype=np.int64)
    if rows > count:
        turns = turns * count // rows
    return (turn + turns) % count
