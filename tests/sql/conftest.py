"""Fixtures of queries."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkafs
from tests.cli.test_dump import damage


@pytest.fixture
def damaged_log(tmp_path: Path) -> Path:
    """The `.log` of partition 0 of topic t, whose second of three batches is damaged."""
    path = tmp_path / "data"
    with kafkafs.open(path, writable=True) as writable:
        writable.create_topic("t", 1)
        for _ in range(3):
            writable["t", 0].append([kafkafs.ProducerRecord(b"value")])
    log = path / "t-0" / f"{0:020}.log"
    damage(log, log.stat().st_size // 2 - 2, to=b"!")
    return log
