"""The same suite, with as many examples as there is time for before a release."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thousands_of_examples() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "--timeout=1700", "tests/fuzz"],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KAFKAFS_HYPOTHESIS": "long"},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
