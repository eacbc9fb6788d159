"""Calls that wait until no lock is held."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Afterwards:
    """Any thread adds, and any thread that has just let go of its locks settles."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def add(self, call: Callable[[], object]) -> None:
        """To be called by the next `settle`."""
        self._calls.append(call)

    def settle(self) -> None:
        """Makes the calls; without a lock."""
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread was quicker
                return
            call()
