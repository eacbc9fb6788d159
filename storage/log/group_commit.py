"""Appends of many threads, made together by one of them.

Those that come while another is being written wait, and are written together by the first of them
that gets on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock

from .appending import Appended, Request


class GroupCommit:
    """Of one partition."""

    def __init__(self, lock: Lock, append: Callable[[Sequence[Request]], None]) -> None:
        """`append` is called with the `lock`, and answers each of the requests it gets."""
        self._lock = lock
        self._append = append
        self._waiting: deque[Request] = deque()

    def submit(self, request: Request) -> Appended:
        """Has an append made, with those of others; raises what went wrong with it."""
        self._waiting.append(request)
        with self._lock:
            if not request.is_done:
                waiting = self._waiting
                self._append([waiting.popleft() for _ in range(len(waiting))])
        return request.result()
