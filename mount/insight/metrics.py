"""What a mount counts of itself while it answers. What becomes of it is `exposition.py`'s.

Counting must cost next to nothing where thousands of requests come a second: a few additions. The
event loop alone counts; whoever reads may be in a thread, and finds each number as of now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

# Durations are counted by powers of 4 of a microsecond: up to 1 µs, 4 µs, 16 µs … 17 s, and longer.
_BUCKETS: Final = 14
#: The longest duration in seconds of each bucket but the last, which has none.
BOUNDS: Final = tuple(4**power / 1e6 for power in range(_BUCKETS - 1))


class Durations:
    """How often something was done, and how long it took. `counts`: by bucket; `seconds`: all
    together."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.seconds = 0.0


class Metrics:
    """`requests`: by the operation's name. `errors`: by operation and errno number. `bytes_read`,
    `bytes_written`: of files, as far as the kernel asked for them; what it had kept it gives
    without asking. `open_files`, `open_directories`: how many there are when they are called."""

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
