"""Many readers and writers, retention and the cleaner at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.moments import ALL
from tests.mounted.stress import stress


@pytest.mark.slow
@pytest.mark.timeout(600)  # so that it starts early
def test_stress(tmp_path: Path) -> None:
    assert stress(tmp_path / "stress", 120 if ALL else 20) == []
