"""The first step of a pass: which offset is the newest of each key, in the dirty part of a log.

Rules: Kafka's `Cleaner.buildOffsetMap`. Where that is quicker, two threads read the log and hash
its keys by turns, and a third one puts them into the map.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from ..ahead import Ahead, side_by_side
from ..format import batch as b
from ..format.batch import BatchTable
from ..format.columns import Columns
from ..format.decoder import Decoder
from ..format.layout import CONTROL_MASK, DELETE_HORIZON_MASK, TRANSACTIONAL_MASK
from ..log.lookup import position_for
from .fates import Outcomes
from .offset_map import Entries, OffsetMap
from .plan import LogToClean, SegmentToClean
from .reading import Chunk, read_chunks

# Threads that find keys, where other threads do it: two and the one that puts them into the map
# are about as busy.
_HASHERS: Final = 2
# As many keys, 24 bytes each, are found in a chunk before they are asked for.
_ENTRIES_AHEAD: Final = 1 << 20


def learned(
    chunk: Chunk, low: int, outcomes: Outcomes, decoder: Decoder
) -> Iterator[tuple[Columns, int]]:
    """The records of a chunk whose keys a pass has to know, and the first row of each that counts,
    with an offset from `low` on: all but markers and what was aborted."""
    table = chunk.table
    wanted = table.column(b.RECORD_COUNT) != 0
    wanted &= table.column(b.LAST_OFFSET) >= low
    wanted &= ~table.flagged(CONTROL_MASK)
    in_transaction = np.flatnonzero(wanted & table.flagged(TRANSACTIONAL_MASK))
    if len(in_transaction):
        wanted[in_transaction] = np.logical_not(outcomes.aborted(chunk, in_transaction))
    for columns in chunk.decode(table if wanted.all() else table.select(wanted), decoder):
        yield columns, int(columns.offsets.searchsorted(low))


class Learning:
    """Puts the newest offsets of the keys from the first dirty offset on into a map, as far as it
    has room.

    `nbytes`: of the segments to be read; `skipped`: those in front of the dirty part.
    `keys_decide`: whether nothing but its key decides if a record stays that was learned from:
    there was no marker, no delete horizon and no batch of magic 0 or 1.
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

    def learn(self, spend: Callable[[int], None]) -> None:
        """Whatever the map held before. `spend` is told how many bytes were read."""
        self._map.clear()
        with closing(self._hashed()) as hashed:
            for keys in chain.from_iterable(hashed):
                if not self._put(keys):
                    return
                if keys.nbytes:
                    spend(keys.nbytes)

    def _hashed(self) -> Ahead[Iterator[_Keys]] | Generator[Iterator[_Keys]]:
        if self._log.is_shown:
            hashers = [_Hasher(self._log, self._map) for _ in range(_HASHERS)]
            return side_by_side(self._chunks(), [each.begin for each in hashers])
        hasher = _Hasher(self._log, self._map)
        return (hasher.keys(chunk) for chunk in self._chunks())

    def _chunks(self) -> Generator[Chunk | int]:
        """Those of the dirty part; and behind each segment how far it reaches."""
        shown = self._log.is_shown
        for segment, start in zip(self._segments, self._starts, strict=True):
            yield from read_chunks(segment, start, self._limit, stay_good=shown, together=shown)
            yield segment.next_base - 1  # there may be a gap

    def _put(self, keys: _Keys) -> bool:
        """False when the map is full."""
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
        """All that is to be put up to this offset has been (`updateLatestOffset`)."""
        if offset >= self._log.first_dirty:
            self._map.latest_offset = max(self._map.latest_offset, offset)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The next keys that a pass has to know: of batches of `table`. `nbytes`: of all batches if no
    more of them follow, else 0. `reached`: where a segment is through, without keys: all that is to
    be known lies there or below."""

    table: BatchTable | None
    entries: Entries | None = None
    nbytes: int = 0
    reached: int = -1


class _Hasher:
    """Finds the keys in chunks of a log, ascending ones. One thread at a time."""

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
            for columns, first in learned(chunk, self._low, self._outcomes, decoder):
                if entries is not None:
                    yield _Keys(chunk.table, entries)
                entries = self._map.entries(columns, first)
        yield _Keys(chunk.table, entries, chunk.nbytes)

    def begin(self, chunk: Chunk | int) -> Iterator[_Keys]:
        """The same, found before they are asked for, as far as that takes little memory."""
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
    """The last offset of the batch in front of that of a record, -1 where it is a table's first."""
    at = int(table.column(b.LAST_OFFSET).searchsorted(offset))
    return int(table.rows[at - 1, b.LAST_OFFSET]) if at else -1


def _keys_decide(table: BatchTable) -> bool:
    decided_else = table.union(b.ATTRIBUTES) & (CONTROL_MASK | DELETE_HORIZON_MASK)
    return not decided_else and int(table.column(b.MAGIC).min(initial=2)) == 2
