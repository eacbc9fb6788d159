"""Memory that is lent, and lent again when nobody looks at it any more.

Fresh memory costs more to touch than to fill: the kernel zeroes each page when it is first used.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

# What is kept for the next borrower: so many rooms at most, none larger than this.
_IDLE_ROOMS: Final = 4
_LARGEST_IDLE: Final = 8 << 20
# Sizes are rounded up to this, so that a room fits many borrowers.
_STEP: Final = 256 << 10
# A room more than so many times as large as what is wanted is left for others.
_WASTE: Final = 4


class _Loan(weakref.ref[NDArray[np.uint8]]):
    """Tells when a room is no longer looked at; ``memory`` is what it lies in."""

    __slots__ = ("memory",)

    memory: bytearray


class Rooms:
    """Any thread may borrow; a room comes back when the last view of it has gone.

    The only operations on what threads share are atomic ones, since a room may come back at any
    moment, even in the middle of ``lend``.
    """

    def __init__(self) -> None:
        self._idle: deque[bytearray] = deque(maxlen=_IDLE_ROOMS)
        self._lent: dict[int, _Loan] = {}  # by the loan's own id

    def lend(self, size: int) -> memoryview:
        """``size`` writable bytes, holding anything, aligned to 16."""
        memory = self._fitting(size)
        # An array, because a weak reference to a bytearray or a memoryview tells nothing or cannot
        # be had. Every view of it refers to it.
        room = np.frombuffer(memory, dtype=np.uint8)
        loan = _Loan(room, self._take_back)
        loan.memory = memory
        self._lent[id(loan)] = loan
        return room.data[:size]

    def _fitting(self, size: int) -> bytearray:
        for _ in range(_IDLE_ROOMS):
            try:
                memory = self._idle.pop()  # the last one used, which may still be in a cache
            except IndexError:
                break
            if size <= len(memory) <= max(_WASTE * size, _STEP):
                return memory
            self._idle.appendleft(memory)
        return bytearray(-(-max(size, 1) // _STEP) * _STEP)

    def _take_back(self, loan: _Loan) -> None:
        del self._lent[id(loan)]
        if len(loan.memory) <= _LARGEST_IDLE:
            self._idle.append(loan.memory)


ROOMS: Final = Rooms()
