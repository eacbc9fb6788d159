"""Work done by another thread while what it made before is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items, each made while the one before it is worked on: two are held at a time, and must
    stay good. An error comes where the item would. The first two are made as they are asked for,
    so that nobody who wants little waits for a thread to start."""
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
