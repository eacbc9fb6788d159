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

# The pool keeps at most this many idle buffers, none larger than this, and this many bytes in
# total: what two scans at a time use.
_MAX_IDLE: Final = 16
_LARGEST_IDLE: Final = 8 << 20
_MOST_IDLE_BYTES: Final = 48 << 20
# Sizes are rounded up to a multiple of this, so that a buffer fits more requests.
_STEP: Final = 256 << 10
# A buffer more than this many times as large as requested is left for other requests.
_WASTE: Final = 4


class _Acquired(weakref.ref[NDArray[np.uint8]]):
    """A weak reference that reports when an acquired buffer, backed by ``memory``, is free."""

    __slots__ = ("memory",)

    memory: bytearray


class BufferPool:
    """The pool. Any thread may acquire a buffer; it returns when its last view is deleted.

    Shared state is only touched by atomic operations and no lock is taken, because a buffer may
    return at any moment, even in the middle of ``acquire``.
    """

    def __init__(self) -> None:
        self._idle: deque[bytearray] = deque(maxlen=_MAX_IDLE)
        self._acquired: dict[int, _Acquired] = {}  # keyed by the id of the reference

    def acquire(self, size: int) -> memoryview:
        """Returns ``size`` uninitialized, writable bytes, aligned to 16."""
        memory = self._fitting(size)
        # An array, because bytearrays cannot be weakly referenced, and a weak reference to a
        # memoryview does not cover the views derived from it. Views of an array keep it alive.
        array = np.frombuffer(memory, dtype=np.uint8)
        reference = _Acquired(array, self._release)
        reference.memory = memory
        self._acquired[id(reference)] = reference
        return array.data[:size]

    def _fitting(self, size: int) -> bytearray:
        for _ in range(_MAX_IDLE):
            try:
                memory = self._idle.pop()  # the last one used may still be in the CPU cache
            except IndexError:
                break
            if size <= len(memory) <= max(_WASTE * size, _STEP):
                return memory
            self._idle.appendleft(memory)
        return bytearray(-(-max(size, 1) // _STEP) * _STEP)

    def _release(self, reference: _Acquired) -> None:
        del self._acquired[id(reference)]
        if len(reference.memory) <= _LARGEST_IDLE:
            self._idle.append(reference.memory)
            if sum(map(len, tuple(self._idle))) > _MOST_IDLE_BYTES:
                self._idle.popleft()


BUFFERS: Final = BufferPool()
