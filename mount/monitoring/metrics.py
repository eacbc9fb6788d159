"""Counters of a mount's requests; `exposition.py` renders them.

Counting must cost almost nothing at thousands of requests per second: a few additions. Only the
event loop counts. Any thread may read; each number is current, but they are not a snapshot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

# Buckets of durations are powers of 4 in microseconds: up to 1 µs, 4 µs, 16 µs … 17 s, and longer.
_BUCKETS: Final = 14
#: The longest duration, in seconds, of each bucket except the last, which is unbounded.
BOUNDS: Final = tuple(4**power / 1e6 for power in range(_BUCKETS - 1))


class Durations:
    """The number and durations of some operations. `counts`: by bucket; `seconds`: the total."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.seconds = 0.0


class Metrics:
    """`requests`: by the operation's name. `errors`: by operation and errno number. `bytes_read`,
    `bytes_written`: bytes of files in the kernel's requests, so without reads from its page cache.
    `open_files`, `open_directories`: functions that return the present numbers."""

    def __init__(self) -> None:
        self.requests: dict[str, Durations] = {}
        self.errors: Counter[tuple[str, int]] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0
        self.open_files: Callable[[], int] = int
        self.open_directories: Callable[[], int] = int

    def add(self, operation: str, seconds: float) -> None:
        """Counts a request."""
        durations = self.requests.get(operation)
        if durations is None:
            durations = self.requests[operation] = Durations()
        power = (int(seconds * 1e6).bit_length() + 1) >> 1
        durations.counts[power if power < _BUCKETS else -1] += 1
        durations.seconds += seconds
