"""The same suite, with three times as many examples."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_hundred_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--timeout=1700", "tests/fuzz"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KAFKAFS_HYPOTHESIS": "thorough"},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
