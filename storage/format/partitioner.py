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
    """The partition, of `count`, of each row; records without a key take turns, the first of them
    gets partition `turn` % `count`."""
    if not len(keys.sizes):
        return (turn + np.arange(rows, dtype=np.int64)) % count
    found = key_hashes(keys, rows)
    keyless = found < 0
    found = (found & _POSITIVE) % count
    if keyless.any():
        turns = turn + np.arange(np.count_nonzero(keyless), dtype=np.int64)
        found[keyless] = turns % count
    return found
