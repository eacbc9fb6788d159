"""`status.json` of partitions that a writable mount does not write to."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.mount.options import MountOptions
from kafkafs.mount.tree import Tree
from kafkafs.mount.writes.changes import Changes
from kafkafs.storage.errors import LogDirOffline
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.faults import FailingCalls
from tests.mount.nodes import file_of

QUORUM = "__cluster_metadata"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LogManager]:
    """An engine with a topic, and a metadata log that only the quorum writes to."""
    data = tmp_path / "data"
    with LogManager(str(data)) as before:
        before.create_topic("t")
    shutil.copytree(data / "t-0", data / f"{QUORUM}-0")
    with LogManager(str(data)) as opened:
        yield opened


def status(engine: LogManager, path: str, separator: bytes = b"") -> dict[str, Any]:
    options = MountOptions(writable=True, key_separator=separator)
    changes = Changes(engine, options)
    node = file_of(Tree(engine, options, changes=changes), path)
    try:
        found: dict[str, Any] = json.loads(bytes(node.open().read(0, 1 << 20)))
    finally:
        changes.close()
    return found


def test_of_what_is_written_to(engine: LogManager) -> None:
    engine.writer("t", 0).append_records(RecordColumns.from_values([b"a", b"b"]))
    assert status(engine, "t/0/status.json")["writer"]["highWatermark"] == 2


def test_of_what_only_the_quorum_writes_to(engine: LogManager) -> None:
    found = status(engine, f"{QUORUM}/0/status.json")
    assert (found["writer"], found["logEndOffset"]) == (None, 0)


def test_of_a_directory_that_failed(engine: LogManager) -> None:
    writer = engine.writer("t", 0)
    lasting = FailingCalls(0, errno.EIO, ("fsync",), lasting=True)
    with replaced(lasting), pytest.raises(LogDirOffline):
        writer.append_records(RecordColumns.from_values([b"a"]), durable=True)
    assert status(engine, "t/0/status.json")["writer"] is None
    (problem,) = status(engine, ".kafkafs/status.json")["problems"]
    assert "offline" in problem


def test_the_options_of_the_mount(engine: LogManager) -> None:
    found = status(engine, ".kafkafs/status.json", separator=b"\xff=")
    assert (found["writable"], found["keySeparator"]) == (True, "\\xff=")
