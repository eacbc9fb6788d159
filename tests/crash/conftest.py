"""Directories in memory, where fsync is free; the tests model what fsync guarantees."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Yields an empty directory for one test, on disk if /dev/shm is not writable."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kafkafs-crash-", dir=place) as path:
        yield Path(path)
