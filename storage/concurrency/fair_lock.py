"""A lock that threads acquire in the order in which they requested it.

Python's locks have no order: a thread that acquires the lock again right after releasing it always
wins, and others may wait for minutes.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """A context manager for any thread; not reentrant. Uncontended, it costs little more than
    Python's lock."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Each waiter holds a lock of its own, which is released when its turn comes; the main lock
        # is not released in between. Appending and popping are atomic in the interpreter.
        self._waiting: deque[threading.Lock] = deque()

    @property
    def is_taken(self) -> bool:
        """Whether acquiring the lock now would block, as far as can be known."""
        return bool(self._waiting) or self._lock.locked()

    def __enter__(self) -> None:
        if self._waiting or not self._lock.acquire(blocking=False):
            self._wait()

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if not self._waiting:
            self._lock.release()
            # A waiter may have arrived just before and found the lock held.
            if not self._waiting or not self._lock.acquire(blocking=False):
                return
        self._hand_over()

    def _wait(self) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        # The holder may have released it without seeing a waiter.
        if self._lock.acquire(blocking=False):
            self._hand_over()
        try:
            turn.acquire()
        except BaseException:  # raised by a signal handler
            try:
                self._waiting.remove(turn)
            except ValueError:  # its turn had come
                self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Passes the lock to the first waiter; releases it if all have given up."""
        while True:
            try:
                self._waiting.popleft().release()
                return
            except IndexError:
                self._lock.release()
            if not self._waiting or not self._lock.acquire(blocking=False):
                return
