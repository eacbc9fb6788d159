"""How fast a cleaner may read and write."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ..clock import Clock
from ..errors import ConfigError

_RATE: Final = "log.cleaner.io.max.bytes.per.second"
# As Kafka's Throttler: a rate is looked at so often.
_CHECK_MS: Final = 300


def check_rate(bytes_per_second: float) -> None:
    """ConfigError for a rate at which nothing would ever be read."""
    if not bytes_per_second > 0:
        raise ConfigError(_RATE, f"{bytes_per_second} is not more than 0")


class Throttle:
    """Bounds how many bytes a second are read and written."""

    def __init__(
        self, bytes_per_second: float, clock: Clock, wait: Callable[[float], None] = time.sleep
    ) -> None:
        """`wait` takes seconds, and may raise what is to end the pass. ConfigError as of
        `check_rate`."""
        check_rate(bytes_per_second)
        self._rate = bytes_per_second
        self._clock = clock
        self._wait = wait
        self._since_ms = clock.now_ms()
        self._bytes = 0

    def spend(self, count: int) -> None:
        """`count` bytes were read or written: waits until the rate allows for it."""
        self._bytes += count
        elapsed = self._clock.now_ms() - self._since_ms
        if elapsed <= _CHECK_MS:
            return
        ahead = self._bytes * 1000 / self._rate - elapsed
        if ahead > 0:
            self._wait(ahead / 1000)
        self._since_ms = self._clock.now_ms()
        self._bytes = 0
