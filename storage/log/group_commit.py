"""Appends of many threads, made together by one of them.

One of the threads leads: it makes its append. Those that come meanwhile wait; when it is done the
first of them leads, and makes the appends of all. Each waits at a gate of its own, so that it wakes
once, and when there is something for it to do.

Threads that were answered together come back one after the other. So that the first of them does
not make an fsync for itself alone, one that leads may wait for as many as there were before, but no
longer than the group before has taken (PostgreSQL's commit_delay, measured instead of set).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from typing import Final

from .appending import Appended, Request

_Append = Callable[[Sequence[Request]], None]

# The longest that a group is waited for, in seconds.
_LONGEST_WAIT: Final = 0.001


class _Waiting:
    """A thread's append, and its gate. `leads`: it is to make the appends of those that wait."""

    __slots__ = ("gate", "leads", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.leads = False
        self.gate = Lock()
        self.gate.acquire()


class GroupCommit:
    """Of one partition."""

    def __init__(self, append: _Append, waits: bool) -> None:
        """`append` answers each of the requests that it gets. It is called by one thread at a
        time. `waits`: it takes so long that a thread that leads waits for others."""
        self._append = append
        self._waits = waits
        self._mutex = Lock()  # for all that follows
        self._is_led = False
        self._waiting: list[_Waiting] = []
        self._awaiting: _Waiting | None = None  # leads, and waits for others
        self._expected = 1  # threads that append
        self._took = 0.0  # seconds, the last group

    @property
    def is_idle(self) -> bool:
        """Whether nobody is at it."""
        return not self._is_led

    def submit(self, request: Request) -> Appended:
        """Has an append made, with those of others; raises what went wrong with it."""
        mine = _Waiting(request)
        with self._mutex:
            self._waiting.append(mine)
            if not self._is_led:
                self._is_led = mine.leads = True
            elif self._awaiting is not None and len(self._waiting) >= self._expected:
                self._awaiting.gate.release()
                self._awaiting = None
        try:
            if not mine.leads:
                mine.gate.acquire()
            if mine.leads:
                self._wait_for_others(mine)
        except BaseException:
            self._leave(mine)
            raise
        if mine.leads:
            self._lead()
        return request.result()

    def _wait_for_others(self, mine: _Waiting) -> None:
        with self._mutex:
            if not self._waits or len(self._waiting) >= self._expected:
                return
            self._awaiting = mine
        mine.gate.acquire(timeout=min(self._took, _LONGEST_WAIT))

    def _lead(self) -> None:
        with self._mutex:
            group, self._waiting, self._awaiting = self._waiting, [], None
        requests = [each.request for each in group]
        started = perf_counter()
        try:
            self._append(requests)
        except BaseException as error:
            for request in requests:
                if not request.is_done:
                    request.fail(error)
            raise
        finally:
            self._took = perf_counter() - started
            self._pass_on(len(group))
            for each in group:
                if not each.leads:
                    each.gate.release()

    def _pass_on(self, done: int) -> None:
        """The first of those that wait leads, after a group of so many."""
        with self._mutex:
            self._expected = done + len(self._waiting)
            self._is_led = bool(self._waiting)
            self._awaiting = None
            if self._waiting:
                first = self._waiting[0]
                first.leads = True
                first.gate.release()

    def _leave(self, mine: _Waiting) -> None:
        """A signal's exception came while it waited."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
        if mine.leads:
            self._pass_on(0)
