"""Group commit: one thread performs the appends of many.

The leader performs its own append while later threads wait. When it finishes, the first waiter
becomes the leader and performs all waiting appends. Each thread waits at its own gate, so it wakes
once, when there is something for it to do.

Threads that finished together return one after the other. To spare the first of them an fsync of
its own, a leader may wait until as many threads are back as there were before, but no longer than
the previous group took (PostgreSQL's commit_delay, measured instead of configured).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from time import perf_counter
from typing import Final

from .appending import AppendRequest, LogAppendInfo

_Append = Callable[[Sequence[AppendRequest]], None]

# The longest wait for a group, in seconds.
_LONGEST_WAIT: Final = 0.001


class _Waiting:
    """A thread's append and its gate. `leads`: it must perform the waiting appends."""

    __slots__ = ("gate", "leads", "request")

    def __init__(self, request: AppendRequest) -> None:
        self.request = request
        self.leads = False
        self.gate = Lock()
        self.gate.acquire()


class GroupCommit:
    """The group commit of one partition."""

    def __init__(self, append: _Append, waits: bool) -> None:
        """`append` must answer each request it is given; one thread at a time calls it. `waits`:
        it is slow enough that a leader should wait for others."""
        self._append = append
        self._waits = waits
        self._mutex = Lock()  # guards all attributes below
        self._is_led = False
        self._waiting: list[_Waiting] = []
        self._awaiting: _Waiting | None = None  # the leader while it waits for others
        self._expected = 1  # threads that append
        self._took = 0.0  # seconds that the last group took

    @property
    def is_idle(self) -> bool:
        """Whether no append is in progress."""
        return not self._is_led

    def submit(self, request: AppendRequest) -> LogAppendInfo:
        """Performs an append, possibly in a group; raises its error."""
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
        """Makes the first waiter the leader after a group of `done` appends."""
        with self._mutex:
            self._expected = done + len(self._waiting)
            self._is_led = bool(self._waiting)
            self._awaiting = None
            if self._waiting:
                first = self._waiting[0]
                first.leads = True
                first.gate.release()

    def _leave(self, mine: _Waiting) -> None:
        """Removes a thread that a signal's exception interrupted while it waited."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
        if mine.leads:
            self._pass_on(0)
