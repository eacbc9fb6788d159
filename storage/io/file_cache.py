"""Caches values that cost file descriptors."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# What the C library of Windows allows.
_OPEN_FILES_OF_WINDOWS = 8192


class FileCache(Generic[K, V]):
    """An LRU cache of at most `capacity` values that cost descriptors: open files, indexes.

    Evicting a value only drops the reference to it. Thread-safe; two threads that request the same
    absent value may both open it, and the later one is kept.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[K, V] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # guards _values; never held while opening

    def get(self, key: K, open_value: Callable[[], V]) -> V:
        """Returns the value of `key`, never None; calls `open_value` if it is not cached."""
        with self._lock:
            known = self._values.get(key)
            if known is not None:
                self._values.move_to_end(key)
                return known
        value = open_value()
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            # Evicted values are destroyed after the lock is released: a destructor may take its
            # time.
            surplus = len(self._values) - self._capacity
            forgotten = [self._values.popitem(last=False)[1] for _ in range(surplus)]
        del forgotten
        return value

    def drop(self, key: K) -> None:
        """Drops `key`, if it is cached."""
        with self._lock:
            value = self._values.pop(key, None)
        del value

    def drop_where(self, condition: Callable[[K], bool]) -> None:
        """Drops the keys for which `condition` returns true."""
        with self._lock:
            keys = [key for key in self._values if condition(key)]
            forgotten = [self._values.pop(key) for key in keys]
        del forgotten

    def drop_values(self, condition: Callable[[V], bool]) -> None:
        """Drops the values for which `condition` returns true; the others remain available
        meanwhile."""
        with self._lock:
            items = list(self._values.items())
        wanted = [(key, value) for key, value in items if condition(value)]
        with self._lock:
            for key, value in wanted:
                if self._values.get(key) is value:
                    del self._values[key]

    def __len__(self) -> int:
        return len(self._values)


def most_open_files() -> int:
    """Returns how many files, and indexes of two descriptors each, the process should keep open at
    most; most of the remaining limit is left to other uses."""
    try:
        import resource
    except ModuleNotFoundError:
        return _OPEN_FILES_OF_WINDOWS // 3
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 3, 1) if soft != resource.RLIM_INFINITY else sys.maxsize
