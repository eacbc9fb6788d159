"""The latest record of a key, and all keys that have one: what a compacted log is read for.

A log has no index by key. So what a look-up had to read is remembered, in an `OffsetMap` of the
keys in a *suffix* of what is served, [low, high), which

- begins empty at the end, and grows downward, newest records first, as far as the keys that are
  looked up make it;
- grows upward when the log has grown;
- is given up when the log was truncated, or a segment in it replaced;
- grows no further when its memory is used up: what lies below is read for the one key alone.

The map knows keys by their hashes. What it says is only where to look: either the record there has
the key, or all of the log is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from ..again import look_again
from ..errors import OffsetNotFound, fresh
from ..format.columns import Columns, Damage
from ..format.kernels import keys as kernel
from ..log.log import Log
from ..log.transactions import Isolation
from ..log.view import View
from .kept_offsets import KeptOffsets
from .live_keys import FIRST_BYTES, live_keys
from .offset_map import SLOT_BYTES, OffsetMap

T = TypeVar("T")

# What of a map a suffix fills as it grows downward: the rest is for what will be appended.
_DOWNWARD_PART: Final = 0.75
# Offsets that are read in one step downward, at first. Each further step takes more.
_STEP: Final = 1 << 14
_STEP_GROWTH: Final = 4

#: The last row of columns that somebody looks for, -1 for none.
LastRow = Callable[[Columns], int]


@dataclass
class _Suffix:
    """Keys in [``low``, ``high``) with their latest offsets; a smaller offset in the map means
    nothing. ``segments``: the `.log` files with those offsets. ``damage``: the last in it."""

    keys: OffsetMap
    view: View
    low: int
    high: int
    segments: dict[int, tuple[int, int]]
    damage: Damage | None = None
    is_full: bool = False


@dataclass
class _Known:
    """What is remembered of one log under one isolation. ``used``: by a count of all look-ups."""

    lock: threading.Lock = field(default_factory=threading.Lock)  # guards the suffix
    suffix: _Suffix | None = None
    used: int = 0
    live: tuple[View, KeptOffsets] | None = None


class LatestRecords:
    """Answers by key for all logs of an engine. Any thread may ask; those that ask for keys of one
    log wait for each other.

    Holds at most ``cache_bytes`` of memory, half as much more while a map grows; the logs asked
    least recently are forgotten first. To list keys takes as much again, and from then on a bit for
    each record of that log.
    """

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = max(cache_bytes, 2 * SLOT_BYTES)
        self._listing = threading.Lock()  # one at a time has the memory for it
        self._lock = threading.Lock()  # guards what follows
        self._known: WeakKeyDictionary[Log, dict[Isolation, _Known]] = WeakKeyDictionary()
        self._count = 0

    def find(
        self,
        log: Log,
        key: bytes,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> tuple[Columns, int] | None:
        """The last record with ``key`` that the isolation shows, as its decoded batch and its row
        there; None when there is none. A tombstone is a record, too.

        CorruptError when it may be a later one, which is damaged. ``view``: what gives the log as
        it is now, where that is not the log itself.
        """
        known = self._used(log, isolation)

        def look(now: View) -> tuple[Columns, int] | None:
            with known.lock:
                return _Search(self, known, now, isolation).find(key)

        return look_again(lambda: look((view or log.view)()))

    def find_key(
        self,
        log: Log,
        last_row: LastRow,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> bytes | None:
        """The key of the last record for which ``last_row`` looks; reads until it is found."""

        def look(now: View) -> bytes | None:
            offset, _ = _last(now, now.start_offset, now.bound(isolation), isolation, last_row)
            if offset < 0:
                return None
            columns, row = now.locate(offset, isolation)
            return columns.key(row)

        return look_again(lambda: look((view or log.view)()))

    def live(
        self,
        log: Log,
        isolation: Isolation = Isolation.READ_COMMITTED,
        view: Callable[[], View] | None = None,
    ) -> KeptOffsets:
        """The offsets of the records that are the latest of their keys and no tombstones. Damaged
        records are passed over, as if they were not there.

        Reads all of the log twice, and where there are more keys than memory twice for each part
        of them, when it is another than it was the last time.
        """
        known = self._used(log, isolation)

        def look(now: View) -> KeptOffsets:
            live = known.live
            if live is None or live[0] is not now:
                with self._listing:
                    live = known.live  # whoever was waited for may have made it
                    if live is None or live[0] is not now:
                        live = known.live = now, live_keys(now, isolation, self._cache_bytes)
            return live[1]

        return look_again(lambda: look((view or log.view)()))

    def newest(self, view: View, isolation: Isolation = Isolation.READ_COMMITTED) -> KeptOffsets:
        """As `live`, for one view and with the tombstones; nothing of it is kept."""
        return live_keys(view, isolation, self._cache_bytes, with_tombstones=True)

    def _used(self, log: Log, isolation: Isolation) -> _Known:
        with self._lock:
            known = self._known.setdefault(log, {}).setdefault(isolation, _Known())
            self._count += 1
            known.used = self._count
            return known

    def _make_room(self, known: _Known, nbytes: int) -> None:
        """Drop others' maps until one of ``known`` can take so much memory."""
        with self._lock:
            others = [
                other
                for by_isolation in self._known.values()
                for other in by_isolation.values()
                if other.suffix is not None and other is not known
            ]
            others.sort(key=lambda other: other.used, reverse=True)
            while others and nbytes + sum(map(_nbytes, others)) > self._cache_bytes:
                others.pop().suffix = None  # who is using it now goes on with it

    def _new_map(self, known: _Known) -> OffsetMap:
        nbytes = min(FIRST_BYTES, self._cache_bytes)
        self._make_room(known, nbytes)
        return OffsetMap(nbytes)

    def _larger(self, known: _Known, keys: OffsetMap) -> OffsetMap | None:
        """``keys`` with more room, None when there is no more memory for it."""
        nbytes = keys.larger_bytes(self._cache_bytes)
        if nbytes is None:
            return None
        self._make_room(known, nbytes)
        return keys.moved_to(nbytes)


def _nbytes(known: _Known) -> int:
    suffix = known.suffix
    return 0 if suffix is None else suffix.keys.nbytes


class _Search:
    """One question to one log, as a view shows it."""

    def __init__(
        self, owner: LatestRecords, known: _Known, view: View, isolation: Isolation
    ) -> None:
        self._owner = owner
        self._known = known
        self._view = view
        self._isolation = isolation
        self._bound = view.bound(isolation)

    def find(self, key: bytes) -> tuple[Columns, int] | None:
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
            pass  # as if it were another's
        return self._found_without_map(key)

    def _found_without_map(self, key: bytes) -> tuple[Columns, int] | None:
        """Where two keys have one hash."""
        offset, damage = self._last(key, self._view.start_offset, self._bound)
        self._refuse_damage(damage, offset)
        return None if offset < 0 else self._view.locate(offset, self._isolation)

    def _refuse_damage(self, damage: Damage | None, offset: int) -> None:
        """CorruptError when a record behind ``offset`` may have been in it."""
        if damage is not None and damage.first_offset > offset:
            is_deleted = 0 <= damage.next_offset <= self._view.start_offset
            if not is_deleted:
                raise fresh(damage.error)

    def _last(self, key: bytes, low: int, high: int) -> tuple[int, Damage | None]:
        def last_row(columns: Columns) -> int:
            return int(kernel.last_row(columns.data, columns.spans, key))

        return _last(self._view, low, high, self._isolation, last_row)

    def _offset_of(self, suffix: _Suffix, key: bytes) -> tuple[int, Damage | None]:
        """The offset that the key seems to have, -1 for none, and the last damage on the way."""
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
        """What is known, brought in line with the view."""
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
        """Whether the records in [low, high) are those that they were. What retention deleted from
        the front does no harm."""
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
        """Whether the records that came are in the suffix; not worth it where they are more."""
        high = self._bound
        if high == suffix.high:
            return True
        known = suffix.high - max(suffix.low, self._view.start_offset)
        self._known.suffix = None  # should it be left half-way
        if high - suffix.high > max(known, _STEP) or not self._take_in(suffix, suffix.high, high):
            return False
        suffix.high = high
        suffix.segments = _segments(self._view, suffix.low, high)
        self._known.suffix = suffix
        return True

    def _take_in(self, suffix: _Suffix, low: int, high: int, most: float = 1.0) -> bool:
        """Put the keys of [``low``, ``high``) into the map; False when it has no room for all of
        them. ``most``: the part of a map to be filled."""
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
    """Identities of the `.log` files with offsets in [``low``, ``high``), by base offset."""
    found = view.segments.from_offset(low) if low < high else ()
    return {s.base_offset: s.files.identity for s in found if s.base_offset < high}


def _step_below(view: View, high: int, step: int) -> int:
    """Where a step downward from ``high`` ends: within one segment, in which it is read forward."""
    base = view.segments[max(view.segments.floor_index(high - 1), 0)].base_offset
    return max(view.start_offset, base, high - step)


def _last(
    view: View, low: int, high: int, isolation: Isolation, last_row: LastRow
) -> tuple[int, Damage | None]:
    """Offset of the last record in [``low``, ``high``) that ``last_row`` finds, -1 for none, and
    the last damage, if there is any behind that record."""
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
