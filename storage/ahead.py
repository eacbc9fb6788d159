"""Work done by another thread while what it made before is worked on."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(items: Generator[Item]) -> Generator[Item]:
    """The items, each made while the one before it is worked on, if there is a processor for that:
    two are held at a time, and must stay good. An error comes where the item would. The first two
    are made as they are asked for, so that nobody who wants little waits for a thread to start.
    Who closes it closes `items`, too, which may read ahead in turn."""
    with closing(items):
        yield from _ahead(items) if len(os.sched_getaffinity(0)) > 1 else items


def _ahead(items: Iterator[Item]) -> Generator[Item]:
    for _ in range(2):
        made = _next_of(items)
        yield from made
        if not made:
            return
    with ThreadPoolExecutor(1, thread_name_prefix="kafkafs-ahead") as helper:
        following = helper.submit(_next_of, items)
        while made := following.result():
            following = helper.submit(_next_of, items)
            yield from made


def _next_of(items: Iterator[Item]) -> list[Item]:
    """The next item, or none at the end."""
    return list(islice(items, 1))
