"""SIGKILL at random moments: of appends, rolls, retention, checkpoints, and of recovery itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def killed(path: Path, count: int, seed: int) -> dict[str, int]:
    """How so many killed lives ended; fails with what one of them said."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.killing", path, str(count), str(seed)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tally: dict[str, int] = ast.literal_eval(done.stdout.splitlines()[-1])
    return tally


def test_nothing_is_lost_or_invented(memory_path: Path) -> None:
    tally = killed(memory_path, 8, seed=1)
    assert tally["killed"] == 8
    assert tally["opened"] >= 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_a_quarter_of_a_thousand_kills(memory_path: Path, seed: int) -> None:
    tally = killed(memory_path, 250, seed)
    assert tally["killed"] == 250
    assert tally["killed while opening"] >= 20
    assert tally["opened"] >= 100
