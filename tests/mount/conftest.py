"""Fixtures for tests of trees without a mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mounted.live import LiveLog


@pytest.fixture
def live(tmp_path: Path) -> LiveLog:
    """A log directory with one partition `t-0` of six records, which the test appends to."""
    return LiveLog(tmp_path / "logs")
