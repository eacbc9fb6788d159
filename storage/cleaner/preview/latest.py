"""Looks up the latest record of a key in a compacted log, and lists all keys that have one.

A log has no index by key, so what lookups had to read is cached, in an `OffsetMap` of the keys in a
*suffix* of the readable offsets, [low, high). The suffix

- starts empty at the end, and grows downward, newest records first, as far as the lookups require;
- grows upward when the log has grown;
- is discarded if the log was truncated or one of its segments was replaced;
- stops growing when its memory is used up: lower offsets are then read for each lookup.

The map identifies keys by their hashes, so its answer is only a hint: if the record found has
another key, the whole log is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from ...errors import OffsetNotFound, fresh
from ...format.kernels import keys as kernel
from ...format.records.columns import Columns, Damage
from ...io.retry import retry_if_gone
from ...log.read.log import Log
from ...log.read.transactions import Isolation
from ...log.read.view import View
from ..kept_offsets import KeptOffsets
from ..live_keys import FIRST_BYTES, live_keys
from ..offset_map import SLOT_BYTES, OffsetMap

T = TypeVar("T")

# The part of a map that a suffix fills while it grows downward; the rest is for appended records.
_DOWNWARD_PART: Final = 0.75
# Offsets read in the first step downward; each further step is larger by the growth factor.
_STEP: Final = 1 << 14
_STEP_GROWTH: Final = 4

#: Returns the last matching row of some columns, -1 for none.
LastRow = Callable[[Columns], int]


@dataclass
class _Suffix:
    """Keys in [`low`, `high`) with their latest offsets; offsets in the map below `low` are
    invalid. `segments`: identities of the `.log` files with those offsets. `damage`: the last in
    the range."""

    keys: OffsetMap
    view: View
    low: int
    high: int
    segments: dict[int, tuple[int, int]]
    damage: Damage | None = None
    is_full: bool = False


@dataclass
class _Known:
    """What is cached for one log and isolation. `used`: the number of the lookup that last used
    it."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # guards `suffix`
    suffix: _Suffix | None = None
    used: int = 0
    live: tuple[View, KeptOffsets] | None = None


class LatestRecords:
    """Looks up keys in all logs of an engine. Thread-safe; lookups in the same log are serialized.

    Uses at most `cache_bytes` of memory, and half as much again while a map grows; the least
    recently used logs are evicted first. Listing keys takes as much again, and afterwards one bit
    for each record of the log.
    """

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = max(cache_bytes, 2 * SLOT_BYTES)
        self._listing = threading.Lock()  # bounds memory: one listing at a time
        self._lock = threading.Lock()  # guards the attributes below
        self._known: WeakKeyDictionary[Log, dict[Isolation, _Known]] = WeakKeyDictionary()
        self._count = 0

    def find(
        self,
        log: Log,
        key: bytes,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> tuple[Columns, int] | None:
        """Returns the last record with `key` visible under the isolation, as its decoded batch and
        its row there; None without one. A tombstone counts as a record.

        Raises CorruptError if a damaged record might be a later one. `view`: returns the current
        view of the log, if not `log.view`.
        """
        known = self._used(log, isolation)

        def look(now: View) -> tuple[Columns, int] | None:
            with known.lock:
                return _Search(self, known, now, isolation).find(key)

        return retry_if_gone(lambda: look((view or log.view)()))

    def find_key(
        self,
        log: Log,
        last_row: LastRow,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> bytes | None:
        """Returns the key of the last record that `last_row` matches; reads backward until it is
        found."""

        def look(now: View) -> bytes | None:
            offset, _ = _last(now, now.start_offset, now.bound(isolation), isolation, last_row)
            if offset < 0:
                return None
            columns, row = now.locate(offset, isolation)
            return columns.key(row)

        return retry_if_gone(lambda: look((view or log.view)()))

    def live(
        self,
        log: Log,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> KeptOffsets:
        """Returns the offsets of the records that are the latest of their keys and not tombstones.
        Skips damaged records.

        If the log has changed since the last call, reads the whole log twice, or, if its keys
        exceed the memory, twice for each part of the keys.
        """
        known = self._used(log, isolation)

        def look(now: View) -> KeptOffsets:
            live = known.live
            if live is None or live[0] is not now:
                with self._listing:
                    live = known.live  # another thread may have listed it during the wait
                    if live is None or live[0] is not now:
                        live = known.live = now, live_keys(now, isolation, self._cache_bytes)
            return live[1]

        return retry_if_gone(lambda: look((view or log.view)()))

    def newest(self, view: View, isolation: Isolation = Isolation.READ_COMMITTED) -> KeptOffsets:
        """Returns the same as `live` for one view, including tombstones; the result is not
        cached."""
        return live_keys(view, isolation, self._cache_bytes, with_tombstones=True)

    def _used(self, log: Log, isolation: Isolation) -> _Known:
        with self._lock:
            known = self._known.setdefault(log, {}).setdefault(isolation, _Known())
            self._count += 1
            known.used = self._count
            return known

    def _make_room(self, known: _Known, nbytes: int) -> None:
        """Evicts other logs' maps until one of `known` can take `nbytes`."""
        with self._lock:
            others = [
                other
                for by_isolation in self._known.values()
                for other in by_isolation.values()
                if other.suffix is not None and other is not known
            ]
            others.sort(key=lambda other: other.used, reverse=True)
            while others and nbytes + sum(map(_nbytes, others)) > self._cache_bytes:
                others.pop().suffix = None  # a lookup that is using it keeps its reference

    def _new_map(self, known: _Known) -> OffsetMap:
        nbytes = min(FIRST_BYTES, self._cache_bytes)
        self._make_room(known, nbytes)
        return OffsetMap(nbytes)

    def _larger(self, known: _Known, keys: OffsetMap) -> OffsetMap | None:
        """Returns `keys` with more capacity, None if the memory limit is reached."""
        nbytes = keys.larger_bytes(self._cache_bytes)
        if nbytes is None:
            return None
        self._make_room(known, nbytes)
        return keys.moved_to(nbytes)


def _nbytes(known: _Known) -> int:
    suffix = known.suffix
    return 0 if suffix is None else suffix.keys.nbytes


class _Search:
    """One lookup in one log, as a view shows it."""

    def __init__(
        self, owner: LatestRecords, known: _Known, view: View, isolation: Isolation
    ) -> None:
        self._owner = owner
        self._known = known
        self._view = view
        self._isolation = isolation
        self._bound = view.bound(isolation)

    def find(self, key: bytes) -> tuple[Columns, int] | None:
        self._refuse_damaged_end()
        suffix = self._current()
        offset, damage = self._offset_of(suffix, key)
        self._refuse_damage(damage, offset)
        if offset < self._view.start_offset:
            return None
        try:
            columns, row = self._view.locate(offset, self._isolation)
            if columns.key(row) == key:
                return columns, row
        except OffsetNotFound:
            pass  # treat it as a record with another key
        return self._found_without_map(key)

    def _found_without_map(self, key: bytes) -> tuple[Columns, int] | None:
        """Reads the log without the map, because another key has the same hash."""
        offset, damage = self._last(key, self._view.start_offset, self._bound)
        self._refuse_damage(damage, offset)
        return None if offset < 0 else self._view.locate(offset, self._isolation)

    def _refuse_damaged_end(self) -> None:
        """Raises CorruptError if the log ends with damage, which may contain a record with any key.
        Behind an open transaction, the isolation would hide it."""
        tail = self._view.tail
        if tail is not None and self._bound == self._view.end_offset:
            raise fresh(tail.error)

    def _refuse_damage(self, damage: Damage | None, offset: int) -> None:
        """Raises CorruptError if the damage may have contained a record after `offset`."""
        if damage is not None and damage.first_offset > offset:
            is_deleted = 0 <= damage.next_offset <= self._view.start_offset
            if not is_deleted:
                raise fresh(damage.error)

    def _last(self, key: bytes, low: int, high: int) -> tuple[int, Damage | None]:
        def last_row(columns: Columns) -> int:
            return int(kernel.last_row(columns.data, columns.spans, key))

        return _last(self._view, low, high, self._isolation, last_row)

    def _offset_of(self, suffix: _Suffix, key: bytes) -> tuple[int, Damage | None]:
        """Returns the offset that the key probably has, -1 for none, and the last damage read."""
        step = _STEP
        start = self._view.start_offset
        while (offset := suffix.keys.get_key(key)) < suffix.low:
            if suffix.low <= start:
                return -1, suffix.damage
            low = _step_below(self._view, suffix.low, step)
            if suffix.is_full or not self._take_in(suffix, low, suffix.low, _DOWNWARD_PART):
                suffix.is_full = True
                offset, damage = self._last(key, start, suffix.low)
                return offset, suffix.damage or damage
            suffix.low = low
            suffix.segments = _segments(self._view, low, suffix.high)
            step *= _STEP_GROWTH
        return offset, suffix.damage

    # -- the suffix -----------------------------------------------------------------------------

    def _current(self) -> _Suffix:
        """Returns the cached suffix, brought up to date with the view, or an empty one."""
        suffix = self._known.suffix
        if suffix is None or not self._still_holds(suffix) or not self._grown_upward(suffix):
            suffix = self._known.suffix = self._empty()
        suffix.view = self._view
        return suffix

    def _empty(self) -> _Suffix:
        bound, view = self._bound, self._view
        keys = self._owner._new_map(self._known)
        return _Suffix(keys, view, bound, bound, {})

    def _still_holds(self, suffix: _Suffix) -> bool:
        """Returns whether the records in [low, high) are unchanged. Deletions at the front by
        retention are harmless."""
        view = self._view
        if suffix.view is view:
            return True
        if view.cuts != suffix.view.cuts or not view.start_offset <= suffix.high <= self._bound:
            return False
        first = view.segments[0].base_offset if len(view.segments) else suffix.high
        before = {base: file for base, file in suffix.segments.items() if base >= first}
        now = _segments(view, suffix.low, suffix.high)
        return before == now

    def _grown_upward(self, suffix: _Suffix) -> bool:
        """Adds the newly appended records to the suffix. Returns False if there were more of them
        than the suffix has, or no memory: then a new suffix is better."""
        high = self._bound
        if high == suffix.high:
            return True
        known = suffix.high - max(suffix.low, self._view.start_offset)
        self._known.suffix = None  # in case an error leaves it incomplete
        if high - suffix.high > max(known, _STEP) or not self._take_in(suffix, suffix.high, high):
            return False
        suffix.high = high
        suffix.segments = _segments(self._view, suffix.low, high)
        self._known.suffix = suffix
        return True

    def _take_in(self, suffix: _Suffix, low: int, high: int, most: float = 1.0) -> bool:
        """Puts the keys of [`low`, `high`) into the map; returns False if they do not all fit.
        `most`: the part of the map that may be filled."""
        damage = None
        for part in self._view.scan(low, high, self._isolation):
            if isinstance(part, Damage):
                damage = part
                continue
            row = 0
            while row < len(part):
                room = int(suffix.keys.capacity * most) - len(suffix.keys)
                if room <= 0 and not self._enlarge(suffix):
                    return False
                upto = min(row + max(room, 0), len(part))
                row = suffix.keys.put(part.data, part.spans, part.offsets, row, upto)
        if damage is not None and (suffix.damage is None or low >= suffix.high):
            suffix.damage = damage
        return True

    def _enlarge(self, suffix: _Suffix) -> bool:
        keys = self._owner._larger(self._known, suffix.keys)
        suffix.keys = keys or suffix.keys
        return keys is not None


def _segments(view: View, low: int, high: int) -> dict[int, tuple[int, int]]:
    """Returns the identities of the `.log` files with offsets in [`low`, `high`), by base
    offset."""
    found = view.segments.from_offset(low) if low < high else ()
    return {s.base_offset: s.files.identity for s in found if s.base_offset < high}


def _step_below(view: View, high: int, step: int) -> int:
    """Returns where a step downward from `high` ends: in the same segment, which is read
    forward."""
    base = view.segments[max(view.segments.floor_index(high - 1), 0)].base_offset
    return max(view.start_offset, base, high - step)


def _last(
    view: View, low: int, high: int, isolation: Isolation, last_row: LastRow
) -> tuple[int, Damage | None]:
    """Returns the offset of the last record in [`low`, `high`) that `last_row` matches, -1 for
    none, and the last damage after that record, if any."""
    step = _STEP
    last_damage = None
    while high > low:
        begin = max(low, _step_below(view, high, step))
        offset, damage = -1, None
        for part in view.scan(begin, high, isolation):
            if isinstance(part, Damage):
                damage = part
            elif (row := last_row(part)) >= 0:
                offset = int(part.offsets[row])
        last_damage = last_damage or damage
        if offset >= 0:
            return offset, last_damage
        high, step = begin, step * _STEP_GROWTH
    return -1, last_damage
