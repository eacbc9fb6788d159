"""Tests of what the commands report about malformed files that kafkafs writes itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkafs.storage.config.topic_file import TOPIC_CONFIGS_FILE
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.ingest.commit_file import COMMIT_FILE
from kafkafs.storage.log_dirs.deleted_topics import DELETED_PARTITION_FILE
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.decisions import TRANSACTIONS_FILE
from tests.building import build_batch
from tests.cli.results import Kafkafs

NO_TOPICS = "position 0: line 1: neither a [topic] nor a config; repair it, or move the file away"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with a record; topic old, deleted."""
    path = tmp_path / "data"
    with LogManager(str(path)) as engine:
        for topic in ("t", "old"):
            engine.create_topic(topic)
        engine.writer("t", 0).append(build_batch([SimpleRecord(1000, b"k", b"v")]))
        engine.delete_topic("old")
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "config", ".", "t"),
        ("cat", ".", "t/config.properties"),
        ("cat", ".", "t/0/why.json"),
        ("why", ".", "t/0"),
        ("expire", "--dry-run", "--all", "."),
        ("compact", "--dry-run", "."),
        ("verify", ".", "t"),
    ],
)
def test_topic_configs_that_cannot_be_read_are_reported_once(
    kafkafs: Kafkafs, data: Path, words: tuple[str, ...]
) -> None:
    file = data / TOPIC_CONFIGS_FILE
    file.write_text("garb")
    result = kafkafs(*(str(data) if word == "." else word for word in words))
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"kafkafs: these topic configs do not apply: {file}: {NO_TOPICS}")
    assert result.exit_code == 1
    file.unlink()
    assert kafkafs(*(str(data) if word == "." else word for word in words)).stderr == ""


@pytest.mark.parametrize("words", [("cat", ".", "t/0/values"), ("topic", "list", "."), ("ls", ".")])
def test_commands_that_need_no_configs_succeed(
    kafkafs: Kafkafs, data: Path, words: tuple[str, ...]
) -> None:
    (data / TOPIC_CONFIGS_FILE).write_text("garb")
    result = kafkafs(*(str(data) if word == "." else word for word in words))
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_command_that_writes_promises_no_records(kafkafs: Kafkafs, data: Path) -> None:
    (data / TOPIC_CONFIGS_FILE).write_text("garb")
    result = kafkafs("expire", data)
    assert result.exit_code == 1
    assert NO_TOPICS in result.stderr
    assert "can still be read" not in result.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (TOPIC_CONFIGS_FILE, f"{NO_TOPICS}, which leaves"),
        (COMMIT_FILE, "position 0: line 1: not version 0 or 1 of a file of staged writes;"),
        (TRANSACTIONS_FILE, "position 0: line 1: "),
    ],
)
def test_verify_finds_them(kafkafs: Kafkafs, data: Path, name: str, what: str) -> None:
    assert kafkafs("verify", data).exit_code == 0
    file = data / name
    file.write_text("garb\n")
    result = kafkafs("verify", data)
    assert result.exit_code == 1
    finding, summary = result.stdout.splitlines()
    assert finding.startswith(f"{file}: {what}")
    assert summary == "1 partitions: 1 findings"


def test_verify_leaves_out_what_a_deleted_partition_was(kafkafs: Kafkafs, data: Path) -> None:
    """It waits for deletion, and a power cut may tear its file; `undelete` reports it."""
    (deleted,) = data.glob("old-0.*-delete")
    (deleted / DELETED_PARTITION_FILE).write_text("garb\n")
    assert kafkafs("verify", data).exit_code == 0
    assert kafkafs("undelete", data, "old").exit_code == 1
