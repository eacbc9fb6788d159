"""Sizes that were reported for streams before their true size was known."""

from __future__ import annotations

import threading
from typing import Final

#: How much larger a bound is than the size that the bytes or samples seen so far suggest.
MARGIN: Final = 1.5
#: The assumed bytes of a stream per byte of the log while there is no sample; mostly too many.
UNSAMPLED_RATIO: Final = 16.0
# Every bound is a multiple of this, and so of the page size of any machine: for a file of any other
# size `wc -c` prints the size without reading the file.
_BOUND_STEP: Final = 1 << 16


class Reported:
    """The size bound that was reported for the stream `name`, and how many bytes the stream has at
    least. A stream longer than its bound is *outgrown*: a program that relies on the bound would
    lose the rest. Any thread may use it."""

    def __init__(self, name: str, reached: int = 0) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._reached = reached
        #: In bytes; None until one is reported.
        self.bound: int | None = None

    @property
    def reached(self) -> int:
        """Minimum size of the stream, in bytes."""
        return self._reached

    @property
    def is_outgrown(self) -> bool:
        return self.bound is not None and self._reached > self.bound

    def note_reached(self, position: int) -> None:
        """Notes that the stream has at least `position` bytes."""
        if position > self._reached:
            with self._lock:
                self._reached = max(self._reached, position)

    def bound_from(self, estimate: int) -> int:
        """Returns the reported bound, or else one of at least `estimate` bytes."""
        if self.bound is not None:
            return self.bound
        least = max(estimate, int(self._reached * MARGIN), 1)
        return -(-least // _BOUND_STEP) * _BOUND_STEP

    def report(self, bound: int) -> int:
        """Reports `bound` unless a bound was reported before; returns the reported one."""
        with self._lock:
            if self.bound is None:
                self.bound = bound
            return self.bound

    def successor(self) -> Reported:
        """Returns the record for the file that replaces an outgrown one."""
        return Reported(self.name, self._reached)
