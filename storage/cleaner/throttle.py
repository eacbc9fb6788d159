"""Limits how fast the cleaner reads and writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..clock import Clock
from ..errors import ConfigError

_RATE: Final = "log.cleaner.io.max.bytes.per.second"
# The interval at which the rate is checked, as in Kafka's Throttler.
_CHECK_MS: Final = 300


def check_rate(bytes_per_second: float) -> None:
    """Raises ConfigError for a rate at which nothing would ever be read."""
    if not bytes_per_second > 0:
        raise ConfigError(_RATE, f"must be greater than 0 (got {bytes_per_second})")


class Throttle:
    """Limits the bytes read and written per second."""

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """`wait` takes seconds, and may raise an error to end the pass. Raises ConfigError like
        `check_rate`."""
        check_rate(bytes_per_second)
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._since_ms = clock.now_ms()
        self._bytes = 0

    def spend(self, count: int) -> None:
        """Accounts for `count` bytes read or written, and waits until the rate allows them."""
        self._bytes += count
        elapsed = self._clock.now_ms() - self._since_ms
        if elapsed <= _CHECK_MS:
            return
        ahead = self._bytes * 1000 / self._rate - elapsed
        if ahead > 0:
            self._wait(ahead / 1000)
        self._since_ms = self._clock.now_ms()
        self._bytes = 0
