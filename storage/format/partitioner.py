"""Which partition a record goes to: what Kafka's producers do with it by default.

BuiltInPartitioner.partitionForKey; a record without a key may go anywhere.
"""

from __future__ import annotations

import numpy as np

from .batch import Int64s
from .encoder import Field
from .kernels import murmur2 as kernel

_POSITIVE = 0x7FFFFFFF


def key_hashes(keys: Field, rows: int) -> Int64s:
    """Utils.murmur2 of each key, as a number that is not negative; -1 for null."""
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
    """The partition, of `count`, of each row. Those without a key are dealt out evenly, in runs, as
    producers give a partition a batch before the next has its turn; the first of them gets
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
