"""Finds the records that are to be erased: those with one of some keys, those whose key begins with
a prefix, or the one at an offset."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

import numpy as np

from ..cleaner.offset_map import SLOT_BYTES, OffsetMap
from ..format.kernels import keys as kernel
from ..format.layout import CONTROL_MASK
from ..format.records.batch import Int32s, Int64s
from ..format.records.columns import KEY_SIZE, KEY_START, Columns

#: Returns the rows of the records to erase, ascending. Thread-safe.
FindRows = Callable[[Columns], Int64s]

_NONE: Final[Int64s] = np.empty(0, dtype=np.int64)
# So much of a map is used that a key that is not in it is soon known not to be.
_LOAD: Final = 0.5
_LEAST_SLOTS: Final = 64
# Fewer than 2 GiB of bytes, whose positions are int32, unless keys have half a megabyte.
_KEYS_AT_ONCE: Final = 4096


def finder(keys: Collection[bytes], prefix: bytes | None, offset: int | None) -> FindRows:
    """Returns what finds records: by `offset`, by `prefix`, or by `keys`. Never finds control
    records."""
    find = _finder(keys, prefix, offset)

    def rows(columns: Columns) -> Int64s:
        found = find(columns)
        if not len(found):
            return found
        batches = columns.first_row.searchsorted(found, side="right") - 1
        return found[~columns.batches.flagged(CONTROL_MASK)[batches]]

    return rows


def _finder(keys: Collection[bytes], prefix: bytes | None, offset: int | None) -> FindRows:
    if offset is not None:
        return lambda columns: _rows_at(columns, offset)
    if prefix is not None:
        return lambda columns: _rows_with_prefix(columns, prefix)
    if len(keys) == 1:
        (key,) = keys
        return lambda columns: _rows_of(columns, key)
    return _AmongKeys(keys).rows


def _rows_at(columns: Columns, offset: int) -> Int64s:
    low, high = columns.offsets.searchsorted((offset, offset + 1)).tolist()
    return np.arange(low, high, dtype=np.int64)


def _rows_of(columns: Columns, key: bytes) -> Int64s:
    rows: list[int] = []
    row = kernel.last_row(columns.data, columns.spans, key)
    while row >= 0:
        rows.append(row)
        row = kernel.last_row(columns.data, columns.spans[:row], key)
    return np.array(rows[::-1], dtype=np.int64)


def _rows_with_prefix(columns: Columns, prefix: bytes) -> Int64s:
    rows = np.flatnonzero(columns.spans[:, KEY_SIZE] >= len(prefix)).astype(np.int64)
    if not len(rows):
        return rows
    data = np.frombuffer(columns.data, dtype=np.uint8)
    # The last byte first: it is the one in which keys differ most.
    for at in reversed(range(len(prefix))):
        starts = columns.spans[rows, KEY_START].astype(np.int64)
        rows = rows[data[starts + at] == prefix[at]]
    return rows


class _AmongKeys:
    """Finds the records with one of many keys, by their hashes as the cleaner does: two keys would
    have to have the same 128 bits under a secret key to be taken for each other."""

    def __init__(self, keys: Collection[bytes]) -> None:
        slots = max(int(len(keys) / _LOAD) + 1, _LEAST_SLOTS)
        self._map = OffsetMap(slots * SLOT_BYTES, load_factor=1.0)
        left = iter(keys)
        while part := list(islice(left, _KEYS_AT_ONCE)):
            sizes = np.fromiter(map(len, part), dtype=np.int64, count=len(part))
            spans: Int32s = np.stack((np.cumsum(sizes) - sizes, sizes), axis=1).astype(np.int32)
            self._map.put(b"".join(part), spans, np.arange(len(part), dtype=np.int64))

    def rows(self, columns: Columns) -> Int64s:
        entries = self._map.entries(columns)
        offsets = entries[self._map.get_entries(entries) >= 0, 2].astype(np.int64)
        return columns.offsets.searchsorted(offsets) if len(offsets) else _NONE
