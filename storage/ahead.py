"""Work done by other threads while what they made before is worked on."""

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

# Items that are made as they are asked for, so that nobody who wants little waits for a thread.
_FIRST: Final = 2


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def one_ahead(items: Generator[Item]) -> Ahead[Item]:
    """The items, each made while the one before it is worked on, if there is a processor for that:
    two are held at a time, and must stay good. Else as `side_by_side`."""
    return side_by_side(items, [lambda item: item])


def side_by_side(items: Generator[Item], workers: Sequence[Callable[[Item], Made]]) -> Ahead[Made]:
    """What the workers make of the items, in their order, each in a thread; without processors for
    that, the first worker by itself.

    The next item is made by the thread that works on it, so that its processor has it at hand. A
    worker works on one item at a time, and has the later ones later. One item more is held than
    there are workers. An error comes where its item would.
    """
    return Ahead(items, workers)


class Ahead(Iterator[Made]):
    """What `side_by_side` returns.

    The threads end with the iteration, with its first error, or with `close`, each of which waits
    for them and closes `items`. An iterator that is dropped earlier only asks its threads to end:
    the garbage collector may be what drops it, in the middle of anything, and a thread that it
    waited for might need a lock that is held there. So a generator that reads one of these has to
    drop it rather than close it, for the generator may be dropped itself.
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
        """Waits until the threads have ended. Not for a finaliser, nor for a generator."""
        self._made.end()
        self._made.wait()
        self._close_items()

    def __del__(self) -> None:
        self._made.end()  # an executor that is dropped asks its threads to end, and does not wait


class _Made(Generic[Item, Made]):
    """What is made of items: of the first when it is asked for, of the others by threads."""

    def __init__(self, items: Generator[Item], workers: Sequence[Callable[[Item], Made]]) -> None:
        self._turns = _Turns(items)
        self._workers = workers
        self._number = 0  # of the next item that is asked for
        self._coming: deque[Future[list[Made]]] = deque()
        self._helpers: ThreadPoolExecutor | None = None

    def next(self) -> Made:
        """StopIteration behind the last, and when it was told to end."""
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
        """No further item is made. Waits for nothing."""
        self._turns.is_over = True

    def wait(self) -> None:
        """Until nothing is made any more."""
        self._coming.clear()
        if self._helpers is not None:
            self._helpers.shutdown()


class _Turns(Generic[Item]):
    """Has items made one after another, and what is made of them side by side."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.is_over = False
        self._items = items
        self._next = 0
        self._changed = Condition()

    def work(self, number: int, worker: Callable[[Item], Made]) -> list[Made]:
        """What the worker makes of the item with this number; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number)
            try:
                item = [] if self.is_over else list(islice(self._items, 1))
            finally:
                self._next += 1
                self._changed.notify_all()
        return list(map(worker, item))
