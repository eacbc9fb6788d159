"""Directories in memory, where fsync is free; the tests model what fsync guarantees."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.moments import ALL

MEMORY = "/dev/shm"
#: A sweep over every moment is given this long.
ALL_SECONDS = 4 * 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Replaces the timeouts, which are those of samples, if every moment is taken."""
    for item in items if ALL else ():
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(ALL_SECONDS), append=False)


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Yields an empty directory for one test, on disk if /dev/shm is not writable."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kafkafs-crash-", dir=place) as path:
        yield Path(path)
