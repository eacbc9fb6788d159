"""A buffer pool whose buffers return to it once nothing references them.

Reuse pays off because touching fresh memory costs more than filling it: the kernel zeroes each page
on first use.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

# The pool keeps at most this many idle buffers, none larger than this.
_IDLE_ROOMS: Final = 4
_LARGEST_IDLE: Final = 8 << 20
# Sizes are rounded up to a multiple of this, so that a buffer fits more requests.
_STEP: Final = 256 << 10
# A buffer more than this many times as large as requested is left for other requests.
_WASTE: Final = 4


class _Loan(weakref.ref[NDArray[np.uint8]]):
    """A weak reference that reports when an acquired buffer, backed by ``memory``, is free."""

    __slots__ = ("memory",)

    memory: bytearray


class BufferPool:
    """The pool. Any thread may acquire a buffer; it returns when its last view is deleted.

    Shared state is only touched by atomic operations and no lock is taken, because a buffer may
    return at any moment, even in the middle of ``lend``.
    """

    def __init__(self) -> None:
        self._idle: deque[bytearray] = deque(maxlen=_IDLE_ROOMS)
        self._lent: dict[int, _Loan] = {}  # keyed by the id of the loan

    def lend(self, size: int) -> memoryview:
        """Acquires ``size`` uninitialized, writable bytes, aligned to 16."""
        memory = self._fitting(size)
        # An array, because bytearrays cannot be weakly referenced, and a weak reference to a
        # memoryview does not cover the views derived from it. Views of an array keep it alive.
        room = np.frombuffer(memory, dtype=np.uint8)
        loan = _Loan(room, self._take_back)
        loan.memory = memory
        self._lent[id(loan)] = loan
        return room.data[:size]

    def _fitting(self, size: int) -> bytearray:
        for _ in range(_IDLE_ROOMS):
            try:
                memory = self._idle.pop()  # the last one used may still be in the CPU cache
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


ROOMS: Final = BufferPool()
