"""Runs one of this folder's programs, whose children are killed, and returns its last line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tally_of(program: str, path: Path, count: int, seed: int) -> dict[str, int]:
    """Returns the tally of `count` lives under `path`; fails with the program's output if it
    failed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.crash.{program}", path, str(count), str(seed)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tally: dict[str, int] = ast.literal_eval(done.stdout.splitlines()[-1])
    return tally
