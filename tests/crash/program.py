"""Running a program of this folder whose children are killed, and what it says in the end."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def tally_of(program: str, path: Path, count: int, seed: int) -> dict[str, int]:
    """What `count` lives under `path` came to; fails with what one of them said."""
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
