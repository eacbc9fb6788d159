"""The Python processes that Spark keeps for its tasks."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_collections() -> None:
    """Takes what has been imported by now out of Python's garbage collections; every task calls it,
    and the first one of a process does it. Spark collects behind each task, and went through 75,000
    objects then that live as long as the process: 10 to 40 ms in which it gave it no other task."""
    gc.freeze()
