"""Offsets of the records that a pass of the cleaner keeps, in little memory.

They come in ascending order and are stored in chunks of 65,536. A chunk is a bitmap over its
offsets, a bit for each between its first and its last one, or, where they lie so far apart that a
list takes less, a list. So an offset costs a bit for each record of an ordinary log, kept or not,
and never more than 8 bytes, however large the gaps are that somebody made up.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.batch import Int64s

Mask = NDArray[np.bool_]

_CHUNK_OFFSETS: Final = 1 << 16
# A bitmap with more bits than this for each offset is larger than a list of 4 bytes for each.
_BITS_IN_LIST: Final = 32


class _Bitmap:
    """Offsets from ``first`` to ``last``, both in it, as bits."""

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
        """Which of some ascending offsets within the chunk's range are in it."""
        low, high = int(offsets[0]) - self.first, int(offsets[-1]) - self.first + 1
        if high - low == len(offsets):  # no gap in them
            marks = np.unpackbits(self._bits[low >> 3 : (high + 7) >> 3], bitorder="little")
            return marks[low & 7 : (low & 7) + len(offsets)].view(np.bool_)
        at = offsets - self.first
        found: Mask = (self._bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).view(np.bool_)
        return found

    def offsets(self, low: int, high: int) -> Int64s:
        """Those from ``low`` to ``high``, both in it."""
        begin = max(low - self.first, 0) >> 3
        end = (min(high, self.last) - self.first >> 3) + 1
        marks = np.unpackbits(self._bits[begin:end], bitorder="little")
        found: Int64s = np.flatnonzero(marks) + (self.first + 8 * begin)
        return found[found.searchsorted(low) : found.searchsorted(high, side="right")]


class _List:
    """The same as numbers above ``first``."""

    __slots__ = ("_above", "first", "last")

    def __init__(self, offsets: Int64s) -> None:
        self.first, self.last = int(offsets[0]), int(offsets[-1])
        is_narrow = self.last - self.first < 1 << 32
        self._above = (offsets - self.first).astype(np.uint32 if is_narrow else np.int64)

    @property
    def nbytes(self) -> int:
        return self._above.nbytes

    def mask(self, offsets: Int64s) -> Mask:
        # It is short beside what is asked about: so it is what is looked for.
        wanted = self.offsets(int(offsets[0]), int(offsets[-1]))
        at = offsets.searchsorted(wanted)
        found: Mask = np.zeros(len(offsets), dtype=np.bool_)
        found[at[offsets[at] == wanted]] = True
        return found

    def offsets(self, low: int, high: int) -> Int64s:
        """Those from ``low`` to ``high``, both in it."""
        kind = self._above.dtype.type
        begin = self._above.searchsorted(kind(max(low, self.first) - self.first))
        end = self._above.searchsorted(kind(min(high, self.last) - self.first), side="right")
        found: Int64s = self._above[begin:end].astype(np.int64)
        return found + self.first


class KeptOffsets:
    """A set of offsets that grows at its end. One thread adds; when it has called ``finish``, any
    number may ask."""

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
        """Memory that the chunks hold, in bytes."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def add(self, offsets: Int64s) -> None:
        """Ascending offsets, above all that were added before; else ValueError."""
        if not len(offsets):
            return
        if offsets[0] <= self._last or (np.diff(offsets) <= 0).any():
            raise ValueError(f"offsets from {offsets[0]} on do not rise above {self._last}")
        self._last = int(offsets[-1])
        self._count += len(offsets)
        self._pending.append(offsets.copy())
        self._pending_offsets += len(offsets)
        if self._pending_offsets >= _CHUNK_OFFSETS:
            self._seal()

    def finish(self) -> None:
        """No more come."""
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
        """Which of some ascending offsets are in the set: bool of shape (n,)."""
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
        """Which of some ranges near to each other, both ends in them, have any offset of the set:
        bool of shape (n,)."""
        if not len(lows):
            return np.zeros(0, dtype=np.bool_)
        found = self._between(int(lows.min()), int(highs.max()))
        some: Mask = found.searchsorted(lows) < found.searchsorted(highs, side="right")
        return some

    def _between(self, low: int, high: int) -> Int64s:
        """The offsets from ``low`` to ``high``, both in it."""
        parts: list[Int64s] = [np.zeros(0, dtype=np.int64)]
        for chunk in self._chunks[max(bisect_right(self._firsts, low) - 1, 0) :]:
            if chunk.first > high:
                break
            if chunk.last >= low:
                parts.append(chunk.offsets(low, high))
        return np.concatenate(parts)

    def ceiling(self, offset: int) -> int | None:
        """The least that is not below ``offset``, None without one."""
        for chunk in self._chunks[max(bisect_right(self._firsts, offset) - 1, 0) :]:
            if chunk.first >= offset:
                return chunk.first
            if chunk.last >= offset:
                return int(chunk.offsets(offset, chunk.last)[0])
        return None

    def __contains__(self, offset: int) -> bool:
        return bool(self.mask(np.array([offset], dtype=np.int64))[0])
