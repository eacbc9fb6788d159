"""The moments of a recording at which the tests cut the power.

A test takes every n-th moment, beginning at one that differs from commit to commit, so that each
has its turn in the end. KAFKAFS_CRASH_MOMENTS=all takes all of them, which takes half an hour:

    KAFKAFS_CRASH_MOMENTS=all python -m pytest -s tests/crash -m 'slow or not slow' -k power_cut
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path


def moments(count: int, every: int) -> range:
    """Every `every`-th of the moments 0 to `count`: before the first of `count` operations, after
    each of them."""
    if os.environ.get("KAFKAFS_CRASH_MOMENTS") == "all":
        return range(count + 1)
    return range(_commit() % every, count + 1, every)


@cache
def _commit() -> int:
    """The number of the commit that is checked out; 0 outside of a repository."""
    ran = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    return int(ran.stdout, 16) if ran.returncode == 0 else 0
