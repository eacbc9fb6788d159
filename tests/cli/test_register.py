"""Tests of `kafkafs topic create --register` and `kafkafs revive --in-place`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Kafkafs, stderr_of, stdout_of
from tests.conftest import Corpora, differences, fingerprint


@pytest.fixture
def node(corpora: Corpora, tmp_path: Path) -> Path:
    """A directory with nothing but a node's metadata log."""
    path, whole = tmp_path / "node", corpora.path("groups43")
    path.mkdir()
    shutil.copytree(whole / "__cluster_metadata-0", path / "__cluster_metadata-0")
    shutil.copy(whole / "meta.properties", path)
    return path


def known(node: Path) -> set[str]:
    return set(Engine(str(node)).metadata().topics)


def test_creating(kafkafs: Kafkafs, node: Path) -> None:
    before = fingerprint(node)
    words = ("topic", "create", "--register", "-p", "2", node, "made")
    planned = [json.loads(line) for line in stdout_of(kafkafs(*words, "--dry-run")).splitlines()]
    assert [row["type"] for row in planned] == ["TOPIC_RECORD", *2 * ["PARTITION_RECORD"]]
    assert [row["offset"] for row in planned] == [556, 557, 558]
    assert differences(before, fingerprint(node)) == []
    assert stdout_of(kafkafs(*words)).endswith(", known to the cluster\n")
    assert "made" in known(node)
    assert "made" in stderr_of(kafkafs(*words))
    made = json.loads(stdout_of(kafkafs("topic", "create", "--register", "--json", node, "more")))
    assert made["registered"] is True


def test_registering(kafkafs: Kafkafs, node: Path) -> None:
    stdout_of(
        kafkafs("topic", "create", "--unregistered", node, "lost", "--config", "retention.ms=5")
    )
    before = fingerprint(node)
    table, _, records = stdout_of(kafkafs("revive", "--in-place", "-n", node)).partition("\n\n")
    assert table.split("\n")[1].split()[:5] == ["lost", "0", "0", "0", "0"]
    assert [json.loads(line)["type"] for line in records.splitlines()] == [
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "CONFIG_RECORD",
    ]
    assert differences(before, fingerprint(node)) == []
    rows = stdout_of(kafkafs("revive", "--in-place", "--json", node, "lost")).splitlines()
    assert [json.loads(row)["directory"] for row in rows] == [str(node / "lost-0")]
    assert "lost" in known(node)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--in-place", "lost/0"), "--in-place registers whole topics"),
        (("--in-place", "-o", "new"), "--in-place makes no new directory, so --output has no use"),
        (("--in-place", "--until", "5"), "so --until has no use"),
        (("lost",), "missing option '-o' / '--output', or --in-place"),
    ],
)
def test_wrong_usage(kafkafs: Kafkafs, node: Path, words: tuple[str, ...], why: str) -> None:
    result = kafkafs("revive", node, *words)
    assert result.exit_code == 2
    assert why in result.stderr
    both = kafkafs("topic", "create", "--register", "--unregistered", node, "made")
    assert both.exit_code == 2


def test_beside_another_process(kafkafs: Kafkafs, node: Path) -> None:
    stdout_of(kafkafs("topic", "create", "--unregistered", node, "lost"))
    with LogManager(str(node)):
        assert kafkafs("revive", "--in-place", node).exit_code == 1
    assert "lost" not in known(node)


def test_a_directory_that_is_not_there(kafkafs: Kafkafs, tmp_path: Path) -> None:
    result = kafkafs("topic", "create", "--register", tmp_path / "new", "made")
    assert result.exit_code == 1
    assert not (tmp_path / "new").exists()
