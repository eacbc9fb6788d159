"""Deferred calls: callbacks that run once the thread holds no lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class DeferredCalls:
    """A queue of deferred calls. Any thread may add one; a thread that has just released its
    locks runs them."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def add(self, call: Callable[[], object]) -> None:
        """Queues `call` for the next `settle`."""
        self._calls.append(call)

    def settle(self) -> None:
        """Runs the queued calls. The caller must hold no lock."""
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread took the last one
                return
            call()
