"""Chooses the moments at which the tests cut the power or let a call fail, seeds of kills, and some
of the cases that take long each.

A test takes every n-th moment, starting at one that depends on the commit, so that every moment is
tested eventually. KAFKAFS_CRASH_MOMENTS=all takes all of them, which takes half an hour:

    KAFKAFS_CRASH_MOMENTS=all python -m pytest -s tests/crash
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: Whether every moment is taken.
ALL = os.environ.get("KAFKAFS_CRASH_MOMENTS") == "all"


def moments(count: int, every: int) -> range:
    """Returns every `every`-th of the moments 0 (before the first operation) to `count` (after the
    last)."""
    if ALL:
        return range(count + 1)
    return range(_commit() % every, count + 1, every)


def seeds(count: int, every: int) -> range:
    """Returns every `every`-th of `count` seeds of kills at random moments."""
    return moments(count - 1, every)


def some(cases: Sequence[T], every: int) -> list[T]:
    """Returns every `every`-th of the cases."""
    return [cases[number] for number in moments(len(cases) - 1, every)]


@cache
def _commit() -> int:
    """Returns the hash of the checked-out commit as a number; 0 outside of a repository."""
    ran = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    return int(ran.stdout, 16) if ran.returncode == 0 else 0
