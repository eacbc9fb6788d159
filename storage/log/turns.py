"""Work that one thread does for all who are waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """One thread at a time, as with a lock. But those that wait are all woken together when a turn
    is over, and need none of their own if that one did what they came for: with a lock they would
    wake one after the other, only to see it."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._is_taken = False

    @contextmanager
    def turn(self, is_done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Waits for a turn, and gives True; False when `is_done` after a wait: then it is none."""
        is_mine = self._take(is_done)
        try:
            yield is_mine
        finally:
            if is_mine:
                with self._changed:
                    self._is_taken = False
                    self._changed.notify_all()

    def _take(self, is_done: Callable[[], bool]) -> bool:
        with self._changed:
            while self._is_taken:
                self._changed.wait()
                if is_done():
                    return False
            self._is_taken = True
            return True
