"""Threads that prepare the next items of an iteration while the caller works on earlier ones."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Condition
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

# The first items are made on demand, so that a caller that needs few of them waits for no thread.
_FIRST: Final = 2


def processors() -> int:
    """Returns the number of processors this process may use."""
    return len(os.sched_getaffinity(0))


def read_ahead(items: Generator[Item]) -> Ahead[Item]:
    """Yields the items, making each one in a thread while the caller works on the one before, if
    there is a processor for that. Two items exist at a time, so both must stay valid. Otherwise as
    `parallel_map`."""
    return parallel_map(items, [lambda item: item])


def parallel_map(items: Generator[Item], workers: Sequence[Callable[[Item], Made]]) -> Ahead[Made]:
    """Yields the workers' results for the items, in order; each worker runs in its own thread.
    Without spare processors, the first worker does everything in the calling thread.

    Each item is produced by the thread that works on it, so that it is in that processor's cache. A
    worker handles one item at a time, and sees them in order. One item more than there are workers
    is in memory. An error is raised in place of its item's result.
    """
    return Ahead(items, workers)


class Ahead(Iterator[Made]):
    """The iterator returned by `parallel_map`.

    The threads end with the iteration, with its first error, or with `close`, each of which waits
    for them and closes `items`. An iterator that is dropped earlier only signals its threads to
    end: the garbage collector may drop it at any point, and waiting there for a thread that needs a
    lock held at that point would deadlock. For the same reason a generator that consumes an Ahead
    must drop it rather than close it, because the generator may itself be dropped.
    """

    def __init__(self, items: Generator[Item], workers: Sequence[Callable[[Item], Made]]) -> None:
        self._close_items = items.close
        self._made: _Made[Item, Made] = _Made(items, workers)

    def __next__(self) -> Made:
        try:
            return self._made.next()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Waits until the threads have ended. Must not be called by a finaliser or a generator."""
        self._made.end()
        self._made.wait()
        self._close_items()

    def __del__(self) -> None:
        self._made.end()  # a dropped executor signals its threads to end, without waiting


class _Made(Generic[Item, Made]):
    """The results: the first ones are computed on demand, the others by threads."""

    def __init__(self, items: Generator[Item], workers: Sequence[Callable[[Item], Made]]) -> None:
        self._turns = _Turns(items)
        self._workers = workers
        self._number = 0  # of the next item to return
        self._coming: deque[Future[list[Made]]] = deque()
        self._helpers: ThreadPoolExecutor | None = None

    def next(self) -> Made:
        """Raises StopIteration after the last item, and after `end`."""
        if self._turns.is_over:
            raise StopIteration
        number = self._number
        self._number += 1
        if self._helpers is None and processors() < 2:
            made = self._turns.work(number, self._workers[0])
        elif number < _FIRST:
            made = self._turns.work(number, self._worker(number))
        else:
            made = self._by_others(number)
        for each in made:
            return each
        raise StopIteration

    def _by_others(self, number: int) -> list[Made]:
        if self._helpers is None:
            count = len(self._workers)
            self._helpers = ThreadPoolExecutor(count, thread_name_prefix="kafkafs-ahead")
            for coming in range(number, number + count):
                self._begin(self._helpers, coming)
        made = self._coming.popleft().result()
        if made:
            self._begin(self._helpers, number + len(self._workers))
        return made

    def _begin(self, helpers: ThreadPoolExecutor, number: int) -> None:
        self._coming.append(helpers.submit(self._turns.work, number, self._worker(number)))

    def _worker(self, number: int) -> Callable[[Item], Made]:
        return self._workers[number % len(self._workers)]

    def end(self) -> None:
        """Stops the production of further items. Does not wait."""
        self._turns.is_over = True

    def wait(self) -> None:
        """Waits until all threads have finished."""
        self._coming.clear()
        if self._helpers is not None:
            self._helpers.shutdown()


class _Turns(Generic[Item]):
    """Takes items from the iterator one at a time; the workers process them in parallel."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.is_over = False
        self._items = items
        self._next = 0
        self._changed = Condition()

    def work(self, number: int, worker: Callable[[Item], Made]) -> list[Made]:
        """Returns the worker's result for the item with this number; an empty list at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number)
            try:
                item = [] if self.is_over else list(islice(self._items, 1))
            finally:
                self._next += 1
                self._changed.notify_all()
        return list(map(worker, item))
