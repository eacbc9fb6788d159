"""Maps each key to its largest offset in a fixed amount of memory, by storing hashes of the keys.

Like Kafka's `SkimpyOffsetMap`, it has slots of 24 bytes: a hash of 16 and an offset of 8. Kafka's
hash is MD5, for which anybody can construct colliding keys; here it is SipHash-2-4 with 128 bits of
output and a secret key for each map. The probability that two of n keys collide is n² / 2¹²⁹.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.kernels import offset_map as kernel
from ..format.layout import MAX_OFFSET
from ..format.records.batch import Bytes, Int32s, Int64s
from ..format.records.columns import Columns

#: Hashes of keys (two words) and their offsets (one word), shape (n, 3).
Entries = NDArray[np.uint64]

SLOT_BYTES: Final = 24
#: The number of classes that `OffsetMap.classes` divides keys into.
CLASSES: Final = 1 << 16
# Keys hashed before the first of them is looked up; their hashes fit in the L1 cache.
_BLOCK: Final = 256
_SLOTS_AT_ONCE: Final = 1 << 20
# 32 bits of the hash select a slot.
_MAX_SLOTS: Final = (1 << 32) - 1


# Windows, whose anonymous memory is private anyway, has no such flags.
_PRIVATE: Final = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)

_NOT_RECENT: Final[NDArray[np.uint64]] = np.zeros(0, dtype=np.uint64)


class OffsetMap:
    """Offsets by key, for at most `capacity` keys. Not thread-safe.

    `latest_offset`: the largest offset put, -1 for none. The caller may raise it to an offset up to
    which there is nothing left to put (`SkimpyOffsetMap.updateLatestOffset`).
    """

    def __init__(self, memory_bytes: int, load_factor: float = 0.9) -> None:
        """`load_factor`: the part of the slots that is used, in (0, 1]. Raises ValueError if
        `memory_bytes` are not enough for one key, OSError if the memory is not available."""
        self.slots = min(memory_bytes // SLOT_BYTES, _MAX_SLOTS)
        self.capacity = int(self.slots * load_factor)
        if not 0 < load_factor <= 1 or self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes at load {load_factor} are too few for a key")
        self._load_factor = load_factor
        self._memory = mmap.mmap(-1, self.slots * SLOT_BYTES, **_PRIVATE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._table: NDArray[np.uint64] = np.frombuffer(self._memory, dtype=np.uint64)
        self._scratch: NDArray[np.uint64] = np.empty((_BLOCK + 1, 3), dtype=np.uint64)
        import secrets  # imports hashlib, which a reader does without

        self._hash_key = secrets.randbits(64), secrets.randbits(64)
        self._entries = 0
        self.latest_offset = -1

    def __len__(self) -> int:
        """Returns the number of keys in the map."""
        return self._entries

    @property
    def nbytes(self) -> int:
        """Memory of the full map in bytes."""
        return self.slots * SLOT_BYTES

    def put(
        self, data: Bytes, spans: Int32s, offsets: Int64s, low: int = 0, high: int | None = None
    ) -> int:
        """Puts the keys of rows [`low`, `high`) of columns with their offsets; skips null keys, and
        keeps the largest offset of each key.

        Returns the row at which the map was full, which as in Kafka is the next one with any key,
        new or not; else `high`.
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
        """Returns the keys of rows from `low` on, hashed for this map, with their offsets; null
        keys are omitted. Thread-safe."""
        room: Entries = np.empty((len(columns) - low, 3), dtype=np.uint64)
        _, count = kernel.hashed(
            *self._hash_key, columns.data, columns.spans, columns.offsets, low, len(columns),
            room, 0, _NOT_RECENT,
        )  # fmt: skip
        return room[:count]

    def put_entries(self, entries: Entries, low: int = 0, least: int = 0) -> int:
        """Puts the entries from row `low` on whose offsets are at least `least`. All entries of a
        map must be its own or, if `put` is not used, of the same other hasher (see `key_entries`).
        Returns the row at which the map was full, else the number of entries."""
        stop, added = kernel.put_entries(
            self._table, self.slots, entries, low, least, self.capacity - self._entries,
            self._scratch,
        )  # fmt: skip
        self._entries += added
        return int(stop)

    def get_entries(self, entries: Entries) -> Int64s:
        """Returns for each entry the offset of its key in the map, -1 if it is not there."""
        found: Int64s = np.empty(len(entries), dtype=np.int64)
        kernel.get_entries(self._table, self.slots, entries, found)
        return found

    def offsets(self) -> Int64s:
        """Returns the offsets of all keys, unordered."""
        words = self._table[2 : 3 * self.slots : 3]
        found: Int64s = words[words != 0].astype(np.int64) - 1
        return found

    def get(self, data: Bytes, spans: Int32s) -> Int64s:
        """Returns for each row of columns the offset of its key: -1 if it is null or not in the
        map."""
        found: Int64s = np.empty(len(spans), dtype=np.int64)
        kernel.get(self._table, self.slots, *self._hash_key, data, spans, found, self._scratch)
        return found

    def newest(self, low: int) -> NewestOffsets | None:
        """Returns the offsets in the map, or None if any is below `low`, or if they are so far
        apart that the result would take more than a sixth of the map's memory."""
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
        # Two keys with the same offset do not occur in a log written by a broker.
        return NewestOffsets(low, marks) if np.count_nonzero(marks) == len(self) else None

    def get_key(self, key: bytes) -> int:
        """Returns the offset of one key, -1 if it is not in the map."""
        return int(self.get(key, np.array([[0, len(key)]], dtype=np.int32))[0])

    def classes(self, data: Bytes, spans: Int32s) -> Int32s:
        """Returns for each row of columns the class of its key, a number below `CLASSES` derived
        from its hash; 0 if it is null. A map too small for all keys can hold those of some
        classes."""
        found: Int32s = np.empty(len(spans), dtype=np.int32)
        kernel.classes(*self._hash_key, data, spans, found)
        return found

    def larger_bytes(self, most_bytes: int) -> int | None:
        """Returns the memory for a map twice as large, limited to `most_bytes`; None if that is no
        larger."""
        nbytes = min(2 * self.nbytes, most_bytes)
        return nbytes if nbytes // SLOT_BYTES > self.slots else None

    def moved_to(self, memory_bytes: int) -> OffsetMap:
        """Returns a map of another size with the same entries. Raises ValueError if they do not
        fit."""
        other = OffsetMap(memory_bytes, self._load_factor)
        if other.capacity < self._entries:
            raise ValueError(f"{memory_bytes} bytes are too few for {self._entries} keys")
        other._hash_key = self._hash_key
        other._entries = kernel.move(self._table, self.slots, other._table, other.slots)
        other.latest_offset = self.latest_offset
        return other

    def clear(self) -> None:
        """Empties the map and returns its memory to the system until it is used again."""
        if sys.platform == "linux":
            self._memory.madvise(mmap.MADV_DONTNEED)
        else:
            self._table.fill(0)
        self._entries = 0
        self.latest_offset = -1


class NewestOffsets:
    """Which records in a range of a log are the newest of their keys: those whose offsets are in
    the map that all keys of the range were put into."""

    def __init__(self, low: int, marks: NDArray[np.uint8]) -> None:
        """`marks`: 1 for each offset, counted from `low`, that is in the map."""
        self._low = low
        self._marks = marks

    def offsets(self) -> Iterator[Int64s]:
        """Yields all offsets in ascending blocks."""
        for first in range(0, len(self._marks), _SLOTS_AT_ONCE):
            found: Int64s = np.flatnonzero(self._marks[first : first + _SLOTS_AT_ONCE])
            yield found + (self._low + first)

    def of(self, offsets: Int64s) -> Int64s | None:
        """Returns for records with ascending offsets the offset of the newest record of the key, or
        some later one; the value is undefined above the range and for records without a key.
        Returns None if an offset is below the range."""
        first = int(offsets[0]) - self._low
        if first < 0:
            return None
        marks = self._marks
        if int(offsets[-1]) - self._low + 1 - first == len(offsets):  # without gaps
            is_newest = marks[first : first + len(offsets)]
        else:
            within = int(offsets.searchsorted(self._low + len(marks)))
            is_newest = marks[offsets[:within] - self._low]
        newest: Int64s = np.full(len(offsets), MAX_OFFSET, dtype=np.int64)
        np.copyto(newest[: len(is_newest)], offsets[: len(is_newest)], where=is_newest.view(bool))
        return newest
