"""Directories in memory, where an fsync costs nothing: what it is good for is in the model."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = "/dev/shm"


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """An empty directory of the test's own, on the disk only where there is no such place."""
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kafkafs-crash-", dir=place) as path:
        yield Path(path)
