"""Work done by other threads while what they made before is worked on."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count, cycle, islice
from threading import Condition
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

# Items that are made as they are asked for, so that nobody who wants little waits for a thread.
_FIRST: Final = 2


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def one_ahead(items: Generator[Item]) -> Generator[Item]:
    """The items, each made while the one before it is worked on, if there is a processor for that:
    two are held at a time, and must stay good. Else as `side_by_side`."""
    return side_by_side(items, [lambda item: item])


def side_by_side(
    items: Generator[Item], workers: Sequence[Callable[[Item], Made]]
) -> Generator[Made]:
    """What the workers make of the items, in their order, each in a thread; without processors for
    that, the first worker by itself.

    The next item is made by the thread that works on it, so that its processor has it at hand. A
    worker works on one item at a time, and has the later ones later. One item more is held than
    there are workers. An error comes where its item would. Who closes it closes `items`, too, which
    may read ahead in turn.
    """
    with closing(items):
        if processors() < 2:
            yield from map(workers[0], items)
            return
        for worker in islice(cycle(workers), _FIRST):
            item = _next_of(items)
            yield from map(worker, item)
            if not item:
                return
        with ThreadPoolExecutor(len(workers), thread_name_prefix="kafkafs-ahead") as helpers:
            turns = _Turns(items)
            coming = deque(helpers.submit(turns.work, n, each) for n, each in enumerate(workers))
            for number in count(len(workers)):
                made = coming.popleft().result()
                if not made:
                    return
                worker = workers[number % len(workers)]
                coming.append(helpers.submit(turns.work, number, worker))
                yield from made


class _Turns(Generic[Item]):
    """Has items made one after another, and what is made of them side by side."""

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        self._next = 0
        self._changed = Condition()

    def work(self, number: int, worker: Callable[[Item], Made]) -> list[Made]:
        """What the worker makes of the item with this number; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number)
            try:
                item = _next_of(self._items)
            finally:
                self._next += 1
                self._changed.notify_all()
        return list(map(worker, item))


def _next_of(items: Iterator[Item]) -> list[Item]:
    """The next item, or none at the end."""
    return list(islice(items, 1))
