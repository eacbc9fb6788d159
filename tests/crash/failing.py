"""Lets calls fail one at a time, each in a run of its own."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.crash.moments import moments
from tests.faults import FailingCalls

#: Works in a directory that does not exist yet, while a call fails; returns how that ended.
Run = Callable[[Path, FailingCalls], Counter[str]]


def fail_each(path: Path, number: int, every: int, run: Run) -> Counter[str]:
    """Runs once for each `every`-th of the calls that `run` makes below the empty directory `path`,
    failing that call with the errno `number`; returns how the runs ended."""
    counted = FailingCalls(-1, number)
    run(path / "counted", counted)
    outcomes: Counter[str] = Counter()
    for at in moments(len(counted.made) - 1, every):
        root, calls = path / f"{at}", FailingCalls(at, number)
        try:
            outcomes += run(root, calls)
        except BaseException as error:
            error.add_note(f"call {at}, {calls.failed}: {os.strerror(number)}; in {root}")
            raise
        shutil.rmtree(root)
    return outcomes
