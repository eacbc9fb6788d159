"""What programs were told of the size of a stream before it was known."""

from __future__ import annotations

import threading
from typing import Final

# How much larger than what was seen of a stream its bound is.
_MARGIN: Final = 1.5
# Every bound is a multiple of this, and so of the size of a page, whatever the machine: of a file
# with any other size `wc -c` prints that size without reading the file.
_BOUND_STEP: Final = 1 << 16


class Reported:
    """The bound that was reported for the size of the stream `name`, and how many bytes the stream
    has at least. A stream with more bytes than its bound is outgrown: a program that goes by the
    bound would lose some of them. Any thread may use it."""

    def __init__(self, name: str, reached: int = 0) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._reached = reached
        #: In bytes; None while none was reported.
        self.bound: int | None = None

    @property
    def reached(self) -> int:
        """Bytes that the stream has at least."""
        return self._reached

    @property
    def is_outgrown(self) -> bool:
        return self.bound is not None and self._reached > self.bound

    def note_reached(self, position: int) -> None:
        """The stream has so many bytes at least."""
        if position > self._reached:
            with self._lock:
                self._reached = max(self._reached, position)

    def bound_from(self, estimate: int) -> int:
        """The bound that was reported, or what can be: `estimate`, or more."""
        if self.bound is not None:
            return self.bound
        least = max(estimate, int(self._reached * _MARGIN), 1)
        return -(-least // _BOUND_STEP) * _BOUND_STEP

    def report(self, bound: int) -> int:
        """The bound that programs are told from now on: this one, unless there was one before."""
        with self._lock:
            if self.bound is None:
                self.bound = bound
            return self.bound

    def successor(self) -> Reported:
        """For the file that takes the place of an outgrown one."""
        return Reported(self.name, self._reached)
