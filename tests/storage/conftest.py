"""Fixtures for the tests of storage."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The place of a log directory that the test makes."""
    return tmp_path / "data"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The place of a partition that the test makes."""
    return tmp_path / "t-0"
