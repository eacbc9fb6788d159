"""A lock that goes to whoever has waited longest.

One of Python's goes to whoever asks first when it is free: a thread that asks again at once is
always the first, and others may wait for minutes.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """For `with`, by any thread, not by one that has it already. Where nobody waits it costs little
    more than Python's."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Who comes here holds a lock of its own, which is released when it is its turn; the lock
        # proper is not, in between. Appending and taking away are single steps of the interpreter.
        self._waiting: deque[threading.Lock] = deque()

    @property
    def is_taken(self) -> bool:
        """Whether who comes now would have to wait, as far as can be told."""
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
            # Somebody may have come just before, and have found it taken.
            if not self._waiting or not self._lock.acquire(blocking=False):
                return
        self._hand_over()

    def _wait(self) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._waiting.append(turn)
        # It may have been let go by one who did not see that anybody waits.
        if self._lock.acquire(blocking=False):
            self._hand_over()
        try:
            turn.acquire()
        except BaseException:  # a signal's
            try:
                self._waiting.remove(turn)
            except ValueError:  # it was its turn
                self._hand_over()
            raise

    def _hand_over(self) -> None:
        """Gives the lock to the first who waits; if all have given up, to nobody."""
        while True:
            try:
                self._waiting.popleft().release()
                return
            except IndexError:
                self._lock.release()
            if not self._waiting or not self._lock.acquire(blocking=False):
                return
