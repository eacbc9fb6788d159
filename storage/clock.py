"""The current time in milliseconds, from an interface that tests replace.

Retention, delays, append times and expiry take the time only from a `Clock`, so that a test can run
next week's retention today.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now_ms(self) -> int:
        """Returns milliseconds since 1970, UTC."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SetClock:
    """A clock whose time changes only when it is set."""

    def __init__(self, now_ms: int) -> None:
        self.value = now_ms

    def now_ms(self) -> int:
        return self.value

    def advance(self, milliseconds: int) -> None:
        self.value += milliseconds
