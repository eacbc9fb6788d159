"""Builds the offset map: the first step of a cleaning pass, which finds the newest offset of each
key in the dirty part of the log.

Follows Kafka's `Cleaner.buildOffsetMap`. For previews, two threads take turns to read the log and
hash its keys, and a third one puts them into the map.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from ..concurrency.read_ahead import OrderedResults, parallel_map
from ..format.layout import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK
from ..format.records import batch as b
from ..format.records.batch import BatchTable
from ..format.records.columns import Columns
from ..format.records.decoder import Decoder
from ..log.read.lookup import position_for
from .offset_map import Entries, OffsetMap
from .plan import LogToClean, SegmentToClean
from .reading import Chunk, read_chunks
from .record_filter import Outcomes

# Threads that hash keys for a preview: two are about as busy as the one that fills the map.
_HASHERS: Final = 2
# The number of keys, 24 bytes each, that are hashed in advance for a chunk.
_ENTRIES_AHEAD: Final = 1 << 20


def records_to_map(
    chunk: Chunk, low: int, outcomes: Outcomes, decoder: Decoder
) -> Iterator[tuple[Columns, int]]:
    """Yields the records of a chunk for the offset map, all but markers and aborted records, each
    with the first row whose offset is at least `low`."""
    table = chunk.table
    selected = table.column(b.RECORD_COUNT) != 0
    selected &= table.column(b.LAST_OFFSET) >= low
    selected &= ~table.flagged(CONTROL_MASK)
    in_transaction = np.flatnonzero(selected & table.flagged(TRANSACTIONAL_MASK))
    if len(in_transaction):
        selected[in_transaction] = np.logical_not(outcomes.aborted(chunk, in_transaction))
    for columns in chunk.decode(table if selected.all() else table.select(selected), decoder):
        yield columns, int(columns.offsets.searchsorted(low))


class OffsetMapBuilder:
    """Builds an offset map of the keys from the first dirty offset on, as far as it has capacity.

    `nbytes`: size of the segments to read; `skipped`: bytes in them before the dirty part.
    `keys_decide`: whether its key alone decides if a record is retained, because there was no
    marker, no delete horizon and no batch of magic 0 or 1.
    """

    def __init__(
        self, log: LogToClean, segments: Sequence[SegmentToClean], offset_map: OffsetMap
    ) -> None:
        self.keys_decide = True
        self._log = log
        self._map = offset_map
        self._limit = log.view.context.limits.max_batch_bytes
        low = log.first_dirty
        self._segments = [s.segment for s in segments if s.segment.next_base > low]
        self._starts = [
            position_for(segment, low, self._limit) if segment.base_offset < low else 0
            for segment in self._segments
        ]
        self.nbytes = sum(segment.size for segment in self._segments)
        self.skipped = sum(self._starts)

    def build(self, spend: Callable[[int], None]) -> None:
        """Builds the map, whose content is overwritten. `spend` is called with the number of bytes
        read."""
        self._map.clear()
        with closing(self._hashed()) as hashed:
            for keys in chain.from_iterable(hashed):
                if not self._put(keys):
                    return
                if keys.nbytes:
                    spend(keys.nbytes)

    def _hashed(self) -> OrderedResults[Iterator[_Keys]] | Generator[Iterator[_Keys]]:
        if self._log.is_shown:
            hashers = [_Hasher(self._log, self._map) for _ in range(_HASHERS)]
            return parallel_map(self._chunks(), [each.begin for each in hashers])
        hasher = _Hasher(self._log, self._map)
        return (hasher.keys(chunk) for chunk in self._chunks())

    def _chunks(self) -> Generator[Chunk | int]:
        """Yields the chunks of the dirty part, and after each segment its last possible offset."""
        shown = self._log.is_shown
        for segment, start in zip(self._segments, self._starts, strict=True):
            yield from read_chunks(segment, start, self._limit, stay_valid=shown, together=shown)
            yield segment.next_base - 1  # the segment may end with a gap

    def _put(self, keys: _Keys) -> bool:
        """Puts keys into the map; returns False if it is full."""
        entries, table = keys.entries, keys.table
        if table is None:
            self._reach(keys.reached)
            return True
        if entries is not None:
            stop = self._map.put_entries(entries)
            if stop:
                self._reach(int(entries[stop - 1, 2]))
            if stop < len(entries):
                self._reach(_last_before(table, int(entries[stop, 2])))
                return False
        if keys.nbytes:
            self.keys_decide &= _keys_decide(table)
            self._reach(int(table.rows[-1, b.LAST_OFFSET]))
        return True

    def _reach(self, offset: int) -> None:
        """Records that the map is complete up to this offset (`updateLatestOffset`)."""
        if offset >= self._log.first_dirty:
            self._map.latest_offset = max(self._map.latest_offset, offset)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The next keys for the offset map, of batches of `table`. `nbytes`: bytes of all of its
    batches if these keys are the last of them, else 0. `table` is None after a segment: the map is
    then complete up to `reached`."""

    table: BatchTable | None
    entries: Entries | None = None
    nbytes: int = 0
    reached: int = -1


class _Hasher:
    """Hashes the keys in chunks of a log, in ascending order. Not thread-safe."""

    def __init__(self, log: LogToClean, offset_map: OffsetMap) -> None:
        self._context = log.view.context
        self._low = log.first_dirty
        self._outcomes = Outcomes(log.view)
        self._map = offset_map

    def keys(self, chunk: Chunk | int) -> Iterator[_Keys]:
        if isinstance(chunk, int):
            yield _Keys(None, reached=chunk)
            return
        entries = None
        with self._context.decoder() as decoder:
            for columns, first in records_to_map(chunk, self._low, self._outcomes, decoder):
                if entries is not None:
                    yield _Keys(chunk.table, entries)
                entries = self._map.entries(columns, first)
        yield _Keys(chunk.table, entries, chunk.nbytes)

    def begin(self, chunk: Chunk | int) -> Iterator[_Keys]:
        """Returns the same keys, hashed in advance as far as memory allows."""
        rest = self.keys(chunk)
        made: list[_Keys] = []
        room = _ENTRIES_AHEAD
        for keys in rest:
            made.append(keys)
            room -= len(keys.entries) if keys.entries is not None else 0
            if room <= 0:
                break
        return chain(made, rest)


def _last_before(table: BatchTable, offset: int) -> int:
    """Returns the last offset of the batch before the one that contains `offset`, -1 if that is the
    table's first."""
    at = int(table.column(b.LAST_OFFSET).searchsorted(offset))
    return int(table.rows[at - 1, b.LAST_OFFSET]) if at else -1


def _keys_decide(table: BatchTable) -> bool:
    summary = table.summary()
    decided_else = summary.any_has & (CONTROL_MASK | DELETE_HORIZON_MASK)
    return not decided_else and summary.least_magic == 2
