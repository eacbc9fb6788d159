"""SIGKILL in the middle of transactions over several partitions: all of each counts, or nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def committed(path: Path, lives: int, seed: int) -> dict[str, int]:
    """What the last of so many lives found; fails with what one of them said."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.committing", path, str(lives), str(seed)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, int] = ast.literal_eval(done.stdout.splitlines()[-1])
    return found


def test_transactions_are_all_or_nothing(memory_path: Path) -> None:
    found = committed(memory_path, 12, seed=1)
    assert 0 < found["committed"] < found["written"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
def test_eighty_kills_amid_commits(memory_path: Path, seed: int) -> None:
    found = committed(memory_path, 80, seed)
    assert found["committed"] > 100
    assert found["written"] > found["committed"]
