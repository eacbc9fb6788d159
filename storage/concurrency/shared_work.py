"""Work that one thread does on behalf of others: single flight and deferred calls."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SingleFlight:
    """A lock for single flight: one thread does work for all threads that wait for it.

    All waiting threads are woken together at the end of a turn, and those whose work it did take no
    turn of their own; with a plain lock they would wake one after the other only to find that out.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._is_taken = False

    @contextmanager
    def acquire(self, is_done: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Waits for a turn and yields True. Yields False, without taking the turn, if `is_done()`
        became true while waiting."""
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


class DeferredCalls:
    """A queue of callbacks that run once the thread holds no lock. Any thread may add one; a
    thread that has just released its locks runs them."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def add(self, call: Callable[[], object]) -> None:
        """Queues `call` for the next `run`."""
        self._calls.append(call)

    def run(self) -> None:
        """Runs the queued calls. The caller must hold no lock."""
        while self._calls:
            try:
                call = self._calls.popleft()
            except IndexError:  # another thread took the last one
                return
            call()
