"""A compact set of offsets, for the records that a cleaning retains.

Offsets are added in ascending order and stored in chunks of 65,536. A chunk is a bitmap from its
first to its last offset or, if the offsets are so sparse that this is smaller, a list. A set for an
ordinary log thus takes one bit for each record, retained or not, and never more than 8 bytes for
each offset, even if a forged log has huge gaps.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.records.batch import Int64s

Mask = NDArray[np.bool_]

_CHUNK_OFFSETS: Final = 1 << 16
# A bitmap with more bits than this per offset is larger than a list with 4 bytes per offset.
_BITS_IN_LIST: Final = 32


class _Bitmap:
    """Offsets from `first` to `last`, inclusive, as bits."""

    __slots__ = ("_bits", "first", "last")

    def __init__(self, offsets: Int64s) -> None:
        self.first, self.last = int(offsets[0]), int(offsets[-1])
        marks = np.zeros(self.last - self.first + 1, dtype=np.uint8)
        marks[offsets - self.first] = 1
        self._bits = np.packbits(marks, bitorder="little")

    @property
    def nbytes(self) -> int:
        return self._bits.nbytes

    def mask(self, offsets: Int64s) -> Mask:
        """Returns which of some ascending offsets in the chunk's range it contains."""
        low, high = int(offsets[0]) - self.first, int(offsets[-1]) - self.first + 1
        if high - low == len(offsets):  # without gaps
            marks = np.unpackbits(self._bits[low >> 3 : (high + 7) >> 3], bitorder="little")
            return marks[low & 7 : (low & 7) + len(offsets)].view(np.bool_)
        at = offsets - self.first
        found: Mask = (self._bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).view(np.bool_)
        return found

    def offsets(self, low: int, high: int) -> Int64s:
        """Returns its offsets from `low` to `high`, inclusive."""
        begin = max(low - self.first, 0) >> 3
        end = (min(high, self.last) - self.first >> 3) + 1
        marks = np.unpackbits(self._bits[begin:end], bitorder="little")
        found: Int64s = np.flatnonzero(marks) + (self.first + 8 * begin)
        return found[found.searchsorted(low) : found.searchsorted(high, side="right")]


class _List:
    """Offsets from `first` to `last`, inclusive, as distances from `first`."""

    __slots__ = ("_above", "first", "last")

    def __init__(self, offsets: Int64s) -> None:
        self.first, self.last = int(offsets[0]), int(offsets[-1])
        is_narrow = self.last - self.first < 1 << 32
        self._above = (offsets - self.first).astype(np.uint32 if is_narrow else np.int64)

    @property
    def nbytes(self) -> int:
        return self._above.nbytes

    def mask(self, offsets: Int64s) -> Mask:
        # The list is short compared with `offsets`, so its elements are searched for.
        expected = self.offsets(int(offsets[0]), int(offsets[-1]))
        at = offsets.searchsorted(expected)
        found: Mask = np.zeros(len(offsets), dtype=np.bool_)
        found[at[offsets[at] == expected]] = True
        return found

    def offsets(self, low: int, high: int) -> Int64s:
        """Returns its offsets from `low` to `high`, inclusive."""
        kind = self._above.dtype.type
        begin = self._above.searchsorted(kind(max(low, self.first) - self.first))
        end = self._above.searchsorted(kind(min(high, self.last) - self.first), side="right")
        found: Int64s = self._above[begin:end].astype(np.int64)
        return found + self.first


class KeptOffsets:
    """A set of offsets that grows at its end. One thread may add; after `finish` any number of
    threads may read."""

    def __init__(self) -> None:
        self._chunks: list[_Bitmap | _List] = []
        self._firsts: list[int] = []
        self._pending: list[Int64s] = []
        self._pending_offsets = 0
        self._last = -1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Memory of the chunks in bytes."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def add(self, offsets: Int64s) -> None:
        """Adds ascending offsets. Raises ValueError if they do not ascend above all earlier
        ones."""
        if not len(offsets):
            return
        if offsets[0] <= self._last or (np.diff(offsets) <= 0).any():
            raise ValueError(f"offsets from {offsets[0]} on do not ascend above {self._last}")
        self._last = int(offsets[-1])
        self._count += len(offsets)
        self._pending.append(offsets.copy())
        self._pending_offsets += len(offsets)
        if self._pending_offsets >= _CHUNK_OFFSETS:
            self._seal()

    def finish(self) -> None:
        """Completes the set; nothing may be added afterwards."""
        self._seal()

    def _seal(self) -> None:
        if not self._pending:
            return
        offsets = np.concatenate(self._pending)
        self._pending, self._pending_offsets = [], 0
        for low in range(0, len(offsets), _CHUNK_OFFSETS):
            part = offsets[low : low + _CHUNK_OFFSETS]
            is_dense = int(part[-1]) - int(part[0]) < len(part) * _BITS_IN_LIST
            self._chunks.append(_Bitmap(part) if is_dense else _List(part))
            self._firsts.append(int(part[0]))

    def mask(self, offsets: Int64s) -> Mask:
        """Returns which of some ascending offsets are in the set: bool of shape (n,)."""
        found: Mask = np.zeros(len(offsets), dtype=np.bool_)
        if not len(offsets):
            return found
        at = max(bisect_right(self._firsts, int(offsets[0])) - 1, 0)
        last = int(offsets[-1])
        while at < len(self._chunks) and self._firsts[at] <= last:
            chunk = self._chunks[at]
            low = int(offsets.searchsorted(chunk.first))
            high = int(offsets.searchsorted(chunk.last, side="right"))
            if low < high:
                found[low:high] = chunk.mask(offsets[low:high])
            at += 1
        return found

    def any_between(self, lows: Int64s, highs: Int64s) -> Mask:
        """Returns which of some ranges, close to each other and with both ends inclusive, contain
        an offset of the set: bool of shape (n,)."""
        if not len(lows):
            return np.zeros(0, dtype=np.bool_)
        found = self._between(int(lows.min()), int(highs.max()))
        some: Mask = found.searchsorted(lows) < found.searchsorted(highs, side="right")
        return some

    def _between(self, low: int, high: int) -> Int64s:
        """Returns the offsets from `low` to `high`, inclusive."""
        parts: list[Int64s] = [np.zeros(0, dtype=np.int64)]
        for chunk in self._chunks[max(bisect_right(self._firsts, low) - 1, 0) :]:
            if chunk.first > high:
                break
            if chunk.last >= low:
                parts.append(chunk.offsets(low, high))
        return np.concatenate(parts)

    def ceiling(self, offset: int) -> int | None:
        """Returns the smallest offset that is at least `offset`, None without one."""
        for chunk in self._chunks[max(bisect_right(self._firsts, offset) - 1, 0) :]:
            if chunk.first >= offset:
                return chunk.first
            if chunk.last >= offset:
                return int(chunk.offsets(offset, chunk.last)[0])
        return None

    def __contains__(self, offset: int) -> bool:
        return bool(self.mask(np.array([offset], dtype=np.int64))[0])
