"""Appends in flight: written by a thread of their own while the next are made ready.

To make batches and their checksums takes about as long as to write them, and two processors can do
both. As a producer's, these appends wait for nobody's answer; as those of one that is idempotent
none gets past one that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Final

from ..ahead import processors
from .appending import Appended, Request

# Appends some requests, or those in front of the first that fails; each of these is answered.
_Append = Callable[[Sequence[Request]], None]

# The most bytes of batches that are held, unless one append alone has more.
_MOST_BYTES: Final = 8 << 20


class AppendsInFlight(Iterator[Appended]):
    """What becomes of appends that are encoded, in their order.

    An error of one of them, or of `requests`, comes where its answer would: everything before it
    is appended then, and nothing after it. `close` ends the iteration early and returns when
    everything that was asked for is appended. An iterator that is merely dropped has it appended,
    too, but does not wait for that: see `Ahead`.
    """

    def __init__(self, requests: Iterator[Request], append: _Append) -> None:
        self._requests = requests
        self._append = append
        self._flight: _InFlight | None = None
        self._answers: Iterator[Appended] | None = None

    def __next__(self) -> Appended:
        try:
            return next(self._begun())
        except BaseException:
            self.close()
            raise

    def _begun(self) -> Iterator[Appended]:
        if self._answers is None and processors() < 2:
            self._answers = _one_by_one(self._requests, self._append)
        elif self._answers is None:
            self._flight = _InFlight(self._append)
            self._answers = self._flight.answers(self._requests)
        return self._answers

    def close(self) -> None:
        """Waits until everything is appended that was asked for. Not for a finaliser."""
        self._answers = iter(())
        if self._flight is not None:
            self._flight.land()

    def __del__(self) -> None:
        if self._flight is not None:
            self._flight.begin_landing()


def _one_by_one(requests: Iterator[Request], append: _Append) -> Iterator[Appended]:
    for request in requests:
        append([request])
        yield request.result()


class _InFlight:
    """One thread asks, and another writes."""

    def __init__(self, append: _Append) -> None:
        self._append = append
        self._sent: SimpleQueue[Request | None] = SimpleQueue()  # None: nothing more is sent
        self._changed = Condition()  # for all that follows
        self._answered: deque[Request] = deque()
        self._flying = 0  # bytes that wait or are being written
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
            try:
                raise failure
            finally:
                del failure  # else it and this frame would keep each other

    def land(self) -> None:
        """Waits until everything is written that was sent. Can be repeated."""
        self.begin_landing()
        self._thread.join()

    def begin_landing(self) -> None:
        """Nothing more is sent. This waits for nothing, nor for a lock that Python code holds."""
        self._sent.put(None)

    def _send(self, request: Request) -> None:
        size = len(request.admitted.data)
        with self._changed:
            self._changed.wait_for(lambda: not self._flying or self._flying + size <= _MOST_BYTES)
            self._flying += size
        self._sent.put(request)

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
        group: list[Request] = []
        request = self._sent.get()
        while request is not None:
            group.append(request)
            if self._sent.empty():  # nobody else takes from it
                return group
            request = self._sent.get()
        if group:
            self.begin_landing()  # again, for the next time
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
