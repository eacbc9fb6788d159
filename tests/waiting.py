"""Waits for events, for much longer than any of them takes: the machine may be busy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Far longer than any operation takes; a test that waits this long has failed.
PATIENCE_SECONDS: Final = 60.0


def wait_until(
    condition: Callable[[], T], otherwise: str = "", seconds: float = PATIENCE_SECONDS
) -> T:
    """Returns the result of `condition` once it is true. Raises AssertionError, with the text
    `otherwise`, if that takes longer than `seconds`."""
    give_up, pause = time.monotonic() + seconds, 0.001
    while not (found := condition()):
        assert time.monotonic() < give_up, f"not within {seconds} s: {otherwise or condition}"
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return found
