"""Appends in flight: written by a thread of their own while the next are made ready.

To make batches and their checksums takes about as long as to write them, and two processors can do
both. As a producer's, these appends wait for nobody's answer; as those of one that is idempotent
none gets past one that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from threading import Condition, Thread
from typing import Final

from ..ahead import processors
from .appending import Appended, Request

# Appends some requests, or those in front of the first that fails; each of these is answered.
_Append = Callable[[Sequence[Request]], None]

# The most bytes of batches that are held, unless one append alone has more.
_MOST_BYTES: Final = 8 << 20


def append_in_flight(requests: Iterator[Request], append: _Append) -> Generator[Appended]:
    """What becomes of appends that are encoded, in their order.

    An error of one of them, or of `requests`, comes where its answer would: all that was in front
    of it is appended then, and nothing behind it. Who closes this earlier finds all appended that
    had been asked for.
    """
    if processors() < 2:
        for request in requests:
            append([request])
            yield request.result()
        return
    flight = _InFlight(append)
    try:
        yield from flight.answers(requests)
    finally:
        flight.land()


class _InFlight:
    """One thread asks, and another writes."""

    def __init__(self, append: _Append) -> None:
        self._append = append
        self._changed = Condition()  # for all that follows
        self._waiting: list[Request] = []
        self._answered: deque[Request] = deque()
        self._flying = 0  # bytes that wait or are being written
        self._is_landing = False
        self._error: BaseException | None = None  # why nothing is written any more
        self._thread = Thread(target=self._write, name="kafkafs-append")
        self._thread.start()

    def answers(self, requests: Iterator[Request]) -> Iterator[Appended]:
        """Of all of them, as far as they come."""
        failure: Exception | None = None
        while failure is None:
            try:
                request = next(requests)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001  raised below, in its turn
                failure = error
            else:
                self._send(request)
                yield from self._results()
        self.land()
        yield from self._results()
        if failure is not None:
            raise failure

    def land(self) -> None:
        """Waits until everything is written that was sent. Can be repeated."""
        with self._changed:
            self._is_landing = True
            self._changed.notify_all()
        self._thread.join()

    def _send(self, request: Request) -> None:
        size = len(request.admitted.data)
        with self._changed:
            self._changed.wait_for(lambda: not self._flying or self._flying + size <= _MOST_BYTES)
            self._waiting.append(request)
            self._flying += size
            self._changed.notify_all()

    def _results(self) -> Iterator[Appended]:
        """Of those that were answered meanwhile."""
        while self._answered:
            yield self._answered.popleft().result()

    # -- the other thread ------------------------------------------------------------------------

    def _write(self) -> None:
        while group := self._next_group():
            try:
                if self._error is None:
                    self._append(group)
            except BaseException as error:  # noqa: BLE001  raised where its answer would be
                self._error = error
            self._settle(group)

    def _next_group(self) -> list[Request]:
        """All that wait; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_landing)
            group, self._waiting = self._waiting, []
            return group

    def _settle(self, group: Sequence[Request]) -> None:
        """Answers them, with an error from the first on that has one."""
        failed = self._error
        for request in group:
            failed = failed or request.error
            if failed is not None and failed is not request.error:
                request.fail(failed)
        with self._changed:
            self._error = failed
            self._flying -= sum(len(request.admitted.data) for request in group)
            self._answered += group
            self._changed.notify_all()
