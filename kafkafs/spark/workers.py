"""Tunes the Python worker processes that Spark keeps for its tasks."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_collections() -> None:
    """Excludes everything imported so far from Python's garbage collections. Every task calls this;
    only the first call in a process has an effect. Spark runs a collection after each task, which
    traversed 75,000 permanent objects: 10 to 40 ms in which the process got no other task. Planning
    ten thousand partitions, whose objects cause collections, takes an eighth less time."""
    gc.freeze()
