"""The greatest offset of each key, in memory of a fixed size: keys by their hashes alone.

As Kafka's ``SkimpyOffsetMap``: slots of 24 bytes, a hash of 16 and an offset of 8. Its hash is MD5,
for which anybody can make up keys that collide; here it is SipHash-2-4 with an output of 128 bits
and a key of its own for each map, which nobody outside knows. Two keys are taken for one with
probability n² / 2¹²⁹ for n keys.
"""

from __future__ import annotations

import mmap
import secrets
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.batch import Bytes, Int32s, Int64s
from ..format.columns import Columns
from ..format.kernels import offset_map as kernel
from ..format.layout import MAX_OFFSET

#: Keys by their hashes with their offsets: two words and one, shape (n, 3).
Entries = NDArray[np.uint64]

SLOT_BYTES: Final = 24
#: How many classes of keys ``OffsetMap.classes`` knows.
CLASSES: Final = 1 << 16
# Keys hashed before the first of them is looked up; what is made of them stays in the first cache.
_BLOCK: Final = 256
_SLOTS_AT_ONCE: Final = 1 << 20
# A slot is chosen with 32 bits of the hash.
_MAX_SLOTS: Final = (1 << 32) - 1


_NOT_RECENT: Final[NDArray[np.uint64]] = np.zeros(0, dtype=np.uint64)


class OffsetMap:
    """Offsets by key, for at most ``capacity`` keys. One thread at a time.

    ``latest_offset``: the greatest offset put, -1 for none; whoever knows that nothing to be put
    lies in front of a later one may set it (``SkimpyOffsetMap.updateLatestOffset``).
    """

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """``load_factor``: the part of the slots that is used, in (0, 1]. ValueError when the
        memory does not do for a key; OSError when there is none."""
        self.slots = min(memory_bytes // SLOT_BYTES, _MAX_SLOTS)
        self.capacity = int(self.slots * load_factor)
        if not 0 < load_factor <= 1 or self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes at load {load_factor} are too few for a key")
        self._load_factor = load_factor
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, self.slots * SLOT_BYTES, flags)
        self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._table: NDArray[np.uint64] = np.frombuffer(self._memory, dtype=np.uint64)
        self._scratch: NDArray[np.uint64] = np.empty((_BLOCK + 1, 3), dtype=np.uint64)
        self._hash_key = secrets.randbits(64), secrets.randbits(64)
        self._entries = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        """Keys in the map."""
        return self._entries

    @property
    def nbytes(self) -> int:
        """Memory held once it is full, in bytes."""
        return self.slots * SLOT_BYTES

    def put(
        self, data: Bytes, spans: Int32s, offsets: Int64s, low: int = 0, high: int | None = None
    ) -> int:
        """Put the keys of rows [``low``, ``high``) of columns with their offsets; null keys are
        passed over, and of a key's offsets the greatest stays.

        The row where it stopped for being full, which as in Kafka is the next with any key, known
        or not; else ``high``.
        """
        high = len(spans) if high is None else high
        if low >= high:
            return high
        stop, added = kernel.put(
            self._table, self.slots, *self._hash_key, data, spans, offsets, low, high,
            self.capacity - self._entries, self._scratch,
        )  # fmt: skip
        self._entries += added
        keyed = np.flatnonzero(spans[low:stop, 1] >= 0)
        if len(keyed):
            self.latest_offset = max(self.latest_offset, int(offsets[low + keyed[-1]]))
        return int(stop)

    def entries(self, columns: Columns, low: int = 0) -> Entries:
        """The keys of rows from ``low`` on, hashed as this map hashes them, and their offsets; null
        keys are left out. Any thread may ask."""
        room: Entries = np.empty((len(columns) - low, 3), dtype=np.uint64)
        _, count = kernel.hashed(
            *self._hash_key, columns.data, columns.spans, columns.offsets, low, len(columns),
            room, 0, _NOT_RECENT,
        )  # fmt: skip
        return room[:count]

    def put_entries(self, entries: Entries, low: int = 0, least: int = 0) -> int:
        """Put keys from row ``low`` of entries on, those with offsets from ``least`` on. All are
        this map's own, or all of another hasher (see `key_entries`) and none by ``put``. The row
        where it stopped for being full, else their number."""
        stop, added = kernel.put_entries(
            self._table, self.slots, entries, low, least, self.capacity - self._entries,
            self._scratch,
        )  # fmt: skip
        self._entries += added
        return int(stop)

    def get_entries(self, entries: Entries) -> Int64s:
        """For each of some entries the offset of its key in the map, -1 where it is not there."""
        found: Int64s = np.empty(len(entries), dtype=np.int64)
        kernel.get_entries(self._table, self.slots, entries, found)
        return found

    def offsets(self) -> Int64s:
        """The offsets of all keys, in no order."""
        words = self._table[2 : 3 * self.slots : 3]
        found: Int64s = words[words != 0].astype(np.int64) - 1
        return found

    def get(self, data: Bytes, spans: Int32s) -> Int64s:
        """For each row of columns the offset of its key: -1 where it is null or not in the map."""
        found: Int64s = np.empty(len(spans), dtype=np.int64)
        kernel.get(self._table, self.slots, *self._hash_key, data, spans, found, self._scratch)
        return found

    def newest(self, low: int) -> NewestOffsets | None:
        """The offsets in the map, if all are from `low` on and lie so close together that they take
        no more than a sixth of its memory."""
        count = self.latest_offset + 1 - low
        if not 0 < count <= 4 * self.slots:
            return None
        marks = np.zeros(count, dtype=np.uint8)
        words = self._table[2 : 3 * self.slots : 3]
        for first in range(0, self.slots, _SLOTS_AT_ONCE):
            part = words[first : first + _SLOTS_AT_ONCE]
            offsets = part[part != 0].astype(np.int64) - 1 - low
            if len(offsets) and int(offsets.min()) < 0:
                return None
            marks[offsets] = 1
        # Two keys with one offset: no log that a broker wrote.
        return NewestOffsets(low, marks) if np.count_nonzero(marks) == len(self) else None

    def get_key(self, key: bytes) -> int:
        """The offset of one key, -1 where it is not in the map."""
        return int(self.get(key, np.array([[0, len(key)]], dtype=np.int32))[0])

    def classes(self, data: Bytes, spans: Int32s) -> Int32s:
        """For each row of columns the class of its key, a number below ``CLASSES`` drawn from its
        hash; 0 where it is null. A map too small for all keys can take those of some classes."""
        found: Int32s = np.empty(len(spans), dtype=np.int32)
        kernel.classes(*self._hash_key, data, spans, found)
        return found

    def larger_bytes(self, most_bytes: int) -> int | None:
        """Memory for a map twice as large, or as large as ``most_bytes`` allow; None when that is
        no larger."""
        nbytes = min(2 * self.nbytes, most_bytes)
        return nbytes if nbytes // SLOT_BYTES > self.slots else None

    def moved_to(self, memory_bytes: int) -> OffsetMap:
        """A map of another size with the same entries, which it must have room for."""
        other = OffsetMap(memory_bytes, self._load_factor)
        if other.capacity < self._entries:
            raise ValueError(f"{memory_bytes} bytes are too few for {self._entries} keys")
        other._hash_key = self._hash_key
        other._entries = kernel.move(self._table, self.slots, other._table, other.slots)
        other.latest_offset = self.latest_offset
        return other

    def clear(self) -> None:
        """Empty the map; its memory is given back until it is used again."""
        self._memory.madvise(mmap.MADV_DONTNEED)
        self._entries = 0
        self.latest_offset = -1


class NewestOffsets:
    """Which records of a stretch of a log, all of whose keys were put into a map, are the newest of
    their keys: those whose offsets the map has."""

    def __init__(self, low: int, marks: NDArray[np.uint8]) -> None:
        """`marks`: 1 for those offsets from `low` on that are in the map."""
        self._low = low
        self._marks = marks

    def offsets(self) -> Iterator[Int64s]:
        """All of them, ascending, some at a time."""
        for first in range(0, len(self._marks), _SLOTS_AT_ONCE):
            found: Int64s = np.flatnonzero(self._marks[first : first + _SLOTS_AT_ONCE])
            yield found + (self._low + first)

    def of(self, offsets: Int64s) -> Int64s | None:
        """For each of some records with ascending offsets that of the newest of its key, or some
        later one; a number without meaning behind the stretch, and for a record without a key.
        None when one lies in front of the stretch."""
        first = int(offsets[0]) - self._low
        if first < 0:
            return None
        marks = self._marks
        if int(offsets[-1]) - self._low + 1 - first == len(offsets):  # no gap in them
            is_newest = marks[first : first + len(offsets)]
        else:
            within = int(offsets.searchsorted(self._low + len(marks)))
            is_newest = marks[offsets[:within] - self._low]
        newest: Int64s = np.full(len(offsets), MAX_OFFSET, dtype=np.int64)
        np.copyto(newest[: len(is_newest)], offsets[: len(is_newest)], where=is_newest.view(bool))
        return newest
