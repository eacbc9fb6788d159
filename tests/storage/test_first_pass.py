"""Tests the preview of what the tasks of a maintained directory delete at once, and their log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations import first_pass as module
from kafkafs.storage.operations.first_pass import Due, first_pass

NOW = 1_700_000_000_000
COMPACT = {"cleanup.policy": "compact", "segment.ms": "1000", "retention.ms": "5000"}
CAUSE = "compaction, cleanup.policy=compact, kafkafs's configs of the topic"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Topic c, compacted: four segments of one record each, all with the same key."""
    path = tmp_path / "data"
    clock = SetClock(NOW)
    with LogManager(str(path), clock=clock) as engine:
        engine.create_topic("c", configs=COMPACT)
        for number in range(4):
            record = SimpleRecord(clock.now_ms(), b"k", b"v%d" % number)
            engine.writer("c", 0).append_records(RecordColumns.from_records([record]))
            clock.advance(10_000)
    return path


def log_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("c-0/*.log"))


def test_compaction_is_previewed_and_then_done(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = log_bytes(root)
    found = first_pass(Engine(str(root)), NOW + 60_000)
    with LogManager(str(root), clock=SetClock(NOW + 60_000), maintain=True) as engine:
        with caplog.at_level(logging.INFO, "kafkafs"):
            engine.run("cleaner")
        after = log_bytes(root)
    assert found.failures == []
    assert found.dues == [Due(CAUSE, 2, before - after, {("c", 0)})]
    (line,) = caplog.messages
    segment = before // 4
    assert line == (
        "c-0: cleaned below offset 3, first dirty offset 0:"
        f" 3 records with {3 * segment} bytes before, 1 with {segment} after"
    )


def test_a_large_compaction_is_estimated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PREVIEWED_BYTES", 0)
    found = first_pass(Engine(str(root)), NOW + 60_000)
    size = log_bytes(root) // 4 * 3
    assert found.dues == [Due(CAUSE, 3, size, {("c", 0)}, is_estimate=True)]


def test_what_retention_deletes_is_not_counted_twice(root: Path) -> None:
    with LogManager(str(root), clock=SetClock(NOW + 35_000)) as engine:
        engine.set_topic_config("c", {"cleanup.policy": "compact,delete", "retention.ms": "30000"})
    one = log_bytes(root) // 4
    source = "kafkafs's configs of the topic"
    dues = sorted(first_pass(Engine(str(root)), NOW + 35_000).dues, key=lambda due: due.cause)
    assert dues == [
        Due(f"compaction, cleanup.policy=compact,delete, {source}", 1, one, {("c", 0)}),
        Due(f"retention.ms=30000, {source}", 1, one, {("c", 0)}),
    ]


@pytest.mark.parametrize("config", [{"log.cleaner.enable": "false"}, {"log.cleaner.threads": "0"}])
def test_no_compaction_without_a_cleaner(root: Path, config: dict[str, str]) -> None:
    assert first_pass(Engine(str(root), config), NOW + 60_000).dues == []


def test_a_damaged_log_is_a_failure_of_its_own(root: Path) -> None:
    file = root / "c-0" / f"{1:020}.log"
    data = bytearray(file.read_bytes())
    data[-2] ^= 4
    file.write_bytes(data)
    found = first_pass(Engine(str(root)), NOW + 60_000)
    assert found.dues == []
    assert [(each.where, file.name in each.error) for each in found.failures] == [("c-0", True)]


def test_every_removed_leftover_is_logged(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "c-0" / f"{7:020}.log.deleted").write_bytes(b"12345")
    (root / "c-0" / f"{8:020}.log.cleaned").write_bytes(b"123")
    deleted = root / f"old-0.{'0' * 32}-delete"
    deleted.mkdir()
    (deleted / f"{0:020}.log").write_bytes(b"1234567")
    with LogManager(str(root)) as engine, caplog.at_level(logging.INFO, "kafkafs"):
        engine.purge()
    assert sorted(caplog.messages) == [
        f"removed leftover {root}/c-0/{7:020}.log.deleted, 5 bytes",
        f"removed leftover {root}/c-0/{8:020}.log.cleaned, 3 bytes",
        f"removed leftover {deleted}, 7 bytes",
    ]
