"""Appends in flight: one thread writes batches while another encodes the next.

Encoding and checksumming take about as long as writing, and two processors can do both. As with a
Kafka producer, an append does not wait for the previous answer; as with an idempotent producer, no
append succeeds after one that failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Final

from ...concurrency.read_ahead import processors
from .appending import AppendRequest, LogAppendInfo

# Appends requests, or those before the first that fails; each of these is answered.
_Append = Callable[[Sequence[AppendRequest]], None]

# Limit on the bytes of batches held, unless a single append is larger.
_MOST_BYTES: Final = 8 << 20


class AppendsInFlight(Iterator[LogAppendInfo]):
    """The results of appends, in order.

    An error of an append, or of `requests`, is raised in place of its result: everything before it
    is then appended, and nothing after it. `close` ends the iteration early and returns when
    everything sent is appended. If the iterator is merely dropped, everything sent is appended,
    too, but nobody waits for it: see `OrderedResults`.
    """

    def __init__(self, requests: Iterator[AppendRequest], append: _Append) -> None:
        self._requests = requests
        self._append = append
        self._flight: _InFlight | None = None
        self._answers: Iterator[LogAppendInfo] | None = None

    def __next__(self) -> LogAppendInfo:
        try:
            return next(self._begun())
        except BaseException:
            self.close()
            raise

    def _begun(self) -> Iterator[LogAppendInfo]:
        if self._answers is None and processors() < 2:
            self._answers = _one_by_one(self._requests, self._append)
        elif self._answers is None:
            self._flight = _InFlight(self._append)
            self._answers = self._flight.answers(self._requests)
        return self._answers

    def close(self) -> None:
        """Waits until everything sent is appended. Must not be called by a finaliser."""
        self._answers = iter(())
        if self._flight is not None:
            self._flight.land()

    def __del__(self) -> None:
        if self._flight is not None:
            self._flight.begin_landing()


def _one_by_one(requests: Iterator[AppendRequest], append: _Append) -> Iterator[LogAppendInfo]:
    for request in requests:
        append([request])
        yield request.result()


class _InFlight:
    """Two threads: the caller's sends requests, the other writes them."""

    def __init__(self, append: _Append) -> None:
        self._append = append
        self._sent: SimpleQueue[AppendRequest | None] = SimpleQueue()  # None: nothing more is sent
        self._changed = Condition()  # guards all attributes below
        self._answered: deque[AppendRequest] = deque()
        self._flying = 0  # bytes waiting or being written
        self._error: BaseException | None = None  # why nothing more is written
        self._thread = Thread(target=self._write, name="kafkafs-append")
        self._thread.start()

    def answers(self, requests: Iterator[AppendRequest]) -> Iterator[LogAppendInfo]:
        """Sends all requests and yields their results as they arrive."""
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
                del failure  # breaks the cycle of exception and frame

    def land(self) -> None:
        """Waits until everything sent is written. Can be repeated."""
        self.begin_landing()
        self._thread.join()

    def begin_landing(self) -> None:
        """Stops sending. Never blocks, nor takes a lock that Python code holds."""
        self._sent.put(None)

    def _send(self, request: AppendRequest) -> None:
        size = len(request.admitted.data)
        with self._changed:
            self._changed.wait_for(lambda: not self._flying or self._flying + size <= _MOST_BYTES)
            self._flying += size
        self._sent.put(request)

    def _results(self) -> Iterator[LogAppendInfo]:
        """Yields the results that have arrived."""
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

    def _next_group(self) -> list[AppendRequest]:
        """Returns all waiting requests; an empty list at the end."""
        group: list[AppendRequest] = []
        request = self._sent.get()
        while request is not None:
            group.append(request)
            if self._sent.empty():  # this thread is the only consumer
                return group
            request = self._sent.get()
        if group:
            self.begin_landing()  # put the end marker back for the next call
        return group

    def _settle(self, group: Sequence[AppendRequest]) -> None:
        """Answers the requests; from the first error on, all of them fail."""
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
