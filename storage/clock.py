"""What time it is, in milliseconds; tests have their own.

Retention, delays, append times and expiry ask a `Clock` and nothing else, so that what would happen
next week can be tried today.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self, now_ms: int) -> None:
        self.value = now_ms

    def now_ms(self) -> int:
        return self.value

    def advance(self, milliseconds: int) -> None:
        self.value += milliseconds
