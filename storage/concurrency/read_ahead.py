"""Prefetching and an ordered parallel map: threads compute the next results of an iteration while
the caller works on earlier ones."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Condition, get_ident
from time import monotonic
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# The first items are made on demand, so that a caller that needs few of them waits for no thread.
_FIRST: Final = 2
# A thread that requested an item this recently (seconds) is taken to be working on it.
_BUSY_SECONDS: Final = 0.05


def processors() -> int:
    """Returns the number of processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def read_ahead(items: Generator[Item]) -> OrderedResults[Item]:
    """Prefetches: yields the items, making each one in a thread while the caller works on the one
    before, as long as there is a processor for that: if as many threads as there are processors
    iterate, each makes its own items, because handing them over would only cost time. Two items
    exist at a time, so both must stay valid. Otherwise as `parallel_map`."""
    return parallel_map(items, [lambda item: item])


def parallel_map(
    items: Generator[Item],
    functions: Sequence[Callable[[Item], Result]],
    on_demand: int = _FIRST,
) -> OrderedResults[Result]:
    """Maps items to results in parallel, and yields the results in the order of the items.

    Item i is passed to function i modulo their number. A function handles one item at a time, so
    that it may keep state, and sees its items in order. Without spare processors, the first
    function gets all items, in the calling thread.

    Each item is produced by the thread that works on it, so that it is in that processor's cache.
    One item more than there are functions is in memory. An error is raised in place of its item's
    result. The first `on_demand` results are made in the calling thread: none of them if items are
    large and all are needed.
    """
    return OrderedResults(items, functions, on_demand)


class OrderedResults(Iterator[Result]):
    """The iterator returned by `parallel_map`.

    The threads end with the iteration, with its first error, or with `close`, each of which waits
    for them and closes `items`. An iterator that is dropped earlier only signals its threads to
    end: the garbage collector may drop it at any point, and waiting there for a thread that needs a
    lock held at that point would deadlock. For the same reason a generator that consumes this one
    must drop it rather than close it, because the generator may itself be dropped.
    """

    def __init__(
        self,
        items: Generator[Item],
        functions: Sequence[Callable[[Item], Result]],
        on_demand: int = _FIRST,
    ) -> None:
        self._close_items = items.close
        self._results: _Results[Item, Result] = _Results(items, functions, on_demand)

    def __next__(self) -> Result:
        try:
            return self._results.next()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Waits until the threads have ended. Must not be called by a finaliser or a generator."""
        self._results.end()
        self._results.wait()
        self._close_items()

    def __del__(self) -> None:
        self._results.end()  # a dropped executor signals its threads to end, without waiting


class _Consumers:
    """The threads that have requested items within the last _BUSY_SECONDS."""

    def __init__(self) -> None:
        self._requested: dict[int, float] = {}  # by thread; its operations are atomic

    def count(self) -> int:
        """Returns their number, including the calling thread, which is requesting an item."""
        now = self._requested[get_ident()] = monotonic()
        for thread, requested in list(self._requested.items()):
            if now - requested > _BUSY_SECONDS:
                self._requested.pop(thread, None)
        return len(self._requested)

    def remove(self) -> None:
        """Removes the calling thread, whose iteration is over."""
        self._requested.pop(get_ident(), None)


_CONSUMERS: Final = _Consumers()


class _Results(Generic[Item, Result]):
    """The results: the first ones are computed on demand, the others by threads, as long as there
    is a processor for them."""

    def __init__(
        self,
        items: Generator[Item],
        functions: Sequence[Callable[[Item], Result]],
        on_demand: int,
    ) -> None:
        self._input = _Input(items)
        self._functions = functions
        self._on_demand = on_demand
        self._number = 0  # of the next item to return
        self._submitted = 0  # number of the next item to submit to the threads
        self._pending: deque[Future[list[Result]]] = deque()
        self._executor: ThreadPoolExecutor | None = None

    def next(self) -> Result:
        """Raises StopIteration after the last item, and after `end`."""
        if self._input.is_over:
            raise StopIteration
        number = self._number
        self._number += 1
        has_threads = self._has_processors()
        if self._pending or (has_threads and number >= self._on_demand):
            found = self._by_threads(number, has_threads)
        else:
            found = self._input.work(number, self._function(number))
        for each in found:
            return each
        _CONSUMERS.remove()
        raise StopIteration

    def _has_processors(self) -> bool:
        """Returns whether there are processors for the threads. Several functions are meant to run
        in parallel, whatever else does."""
        count = processors()
        busy = _CONSUMERS.count()
        return count > (busy if len(self._functions) == 1 else 1)

    def _by_threads(self, number: int, has_threads: bool) -> list[Result]:
        if not self._pending:
            self._submitted = number
            self._submit_below(number + len(self._functions))
        made = self._pending.popleft().result()
        if made and has_threads:
            self._submit_below(number + 1 + len(self._functions))
        return made

    def _submit_below(self, end: int) -> None:
        if self._executor is None:
            count = len(self._functions)
            self._executor = ThreadPoolExecutor(count, thread_name_prefix="kafkafs-ahead")
        for number in range(self._submitted, end):
            work = self._executor.submit(self._input.work, number, self._function(number))
            self._pending.append(work)
        self._submitted = end

    def _function(self, number: int) -> Callable[[Item], Result]:
        count = len(self._functions)
        if count == 1 or (self._executor is None and processors() < 2):
            return self._functions[0]
        return self._functions[number % count]

    def end(self) -> None:
        """Stops the production of further items. Does not wait."""
        self._input.is_over = True

    def wait(self) -> None:
        """Waits until all threads have finished."""
        self._pending.clear()
        if self._executor is not None:
            self._executor.shutdown()


class _Input(Generic[Item]):
    """Takes items from the iterator one at a time; the threads process them in parallel."""

    def __init__(self, items: Iterator[Item]) -> None:
        self.is_over = False
        self._items = items
        self._next = 0
        self._changed = Condition()

    def work(self, number: int, function: Callable[[Item], Result]) -> list[Result]:
        """Returns the function's result for the item with this number; an empty list at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number)
            try:
                item = [] if self.is_over else list(islice(self._items, 1))
            finally:
                self._next += 1
                self._changed.notify_all()
        return list(map(function, item))
