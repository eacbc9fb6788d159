"""Tests of `kafkafs topic create`, `delete` and `config`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import Unregistered
from kafkafs.storage.format.files.checkpoints import parse_meta_properties
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.results import Corpus, Kafkafs, stderr_of, stdout_of
from tests.conftest import fingerprint


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("orders", 2, {"retention.ms": "5"})
    return tmp_path / "data"


def test_a_topic_in_a_new_directory(kafkafs: Kafkafs, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    text = stdout_of(
        kafkafs(
            "topic", "create", f"{one},{two}", "orders", "-p", "3", "--config", "retention.ms=5"
        )
    )
    engine = Engine([str(one), str(two)])
    assert text == f"orders: 3 partitions, topic id {engine.topic_id('orders')}\n"
    assert dict(engine.topics()) == {"orders": [0, 1, 2]}
    assert engine.topic_config("orders").changed == {"retention.ms": "5"}
    assert {path.name for path in one.glob("orders-*")} == {"orders-0", "orders-2"}


def test_whose_a_new_directory_is(kafkafs: Kafkafs, tmp_path: Path) -> None:
    cluster, topic_id = "3Db5QLSqSZieL3rJBUUegA", "Xe5sKcRJQpy0cZzSZrGPlA"
    words = ["topic", "create", tmp_path / "new", "a"]
    result = kafkafs(
        *words, "--cluster-id", cluster, "--node-id", 7, "--topic-id", topic_id, "--json"
    )
    assert json.loads(result.stdout) == {"topic": "a", "topicId": topic_id, "partitions": 1}
    meta = parse_meta_properties((tmp_path / "new" / "meta.properties").read_bytes())
    assert (meta.cluster_id, meta.node_id) == (cluster, 7)
    other = ["topic", "create", tmp_path / "other", "a", "--cluster-id", cluster, "--node-id", 7]
    assert "belongs to a KRaft cluster" in kafkafs(*other).stderr
    assert not (tmp_path / "other").exists()
    result = kafkafs(*words, "--cluster-id", cluster)
    assert result.exit_code == 2
    assert "must be given together" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["orders"], 1, "topic orders exists"),
        (["a/b"], 2, "cannot be a topic's name"),
        (["new", "-p", "0"], 2, "0 partitions requested, must be 1 to 10000"),
        (["new", "--config", "retention.ms=soon"], 2, "retention.ms: must be"),
        (["new", "--config", "retention"], 2, "is not NAME=VALUE"),
        (["new", "--config", "retention.m=5"], 2, "did you mean retention.ms"),
        (["new", "--topic-id", "short"], 2, "not a topic's id: short"),
    ],
)
def test_what_cannot_be_made(
    kafkafs: Kafkafs, data: Path, words: list[str], code: int, line: str
) -> None:
    before = {path.name for path in data.iterdir()}
    problem = stderr_of(kafkafs("topic", "create", data, *words), code)
    assert line in problem
    assert problem.count("\n") == 1
    assert {path.name for path in data.iterdir()} == before


def test_a_directory_that_is_none_is_left_alone(kafkafs: Kafkafs, tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    result = kafkafs("topic", "create", tmp_path, "a")
    assert result.exit_code == 1
    assert "not a Kafka log directory" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


def test_delete(kafkafs: Kafkafs, data: Path) -> None:
    kafkafs("topic", "create", data, "other")
    result = kafkafs("topic", "delete", data, "orders", "nothing", "other", "orders")
    assert (result.exit_code, result.stdout) == (1, "orders: deleted\nother: deleted\n")
    assert result.stderr.startswith("kafkafs: no topic nothing; ")
    assert dict(Engine(str(data)).topics()) == {}
    assert len(list(data.glob("*-delete"))) == 3
    # No other process removes them.
    kafkafs("topic", "create", data, "third")
    assert len(list(data.glob("*-delete"))) == 3


def test_delete_at_once_where_nobody_is_to_wait(kafkafs: Kafkafs, data: Path) -> None:
    assert kafkafs("topic", "delete", data, "orders", "-c", "file.delete.delay.ms=0").exit_code == 0
    assert list(data.glob("orders*")) == []


def test_config_shows_what_somebody_made_and_where(kafkafs: Kafkafs, data: Path) -> None:
    assert stdout_of(kafkafs("topic", "config", data, "orders")) == (
        "NAME          VALUE  SOURCE\nretention.ms  5      kafkafs's configs of the topic\n"
    )
    everything = kafkafs("topic", "config", "--all", data, "orders").stdout
    assert "segment.bytes  " in everything
    assert "1073741824  " in everything
    run = kafkafs("topic", "config", data, "orders", "-c", "retention.ms=9", "--json")
    assert json.loads(run.stdout) == {"retention.ms": {"value": "9", "source": "this run"}}


def test_config_of_a_brokers_topic(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("topic", "config", corpus("kafka43-clean"), "recompressed", "--json")
    assert json.loads(result.stdout)["compression.type"] == {
        "value": "zstd", "source": "the cluster's configs of the topic",
    }  # fmt: skip


def test_config_is_changed(kafkafs: Kafkafs, data: Path) -> None:
    words = [
        "--add-config",
        "flush.ms=7",
        "--add-config",
        "cleanup.policy=compact",
        "--delete-config",
        "retention.ms",
    ]
    text = stdout_of(kafkafs("topic", "config", data, "orders", *words, "--json"))
    assert {name: found["value"] for name, found in json.loads(text).items()} == {
        "flush.ms": "7", "cleanup.policy": "compact",
    }  # fmt: skip
    assert Engine(str(data)).topic_config("orders").changed == {
        "flush.ms": "7", "cleanup.policy": "compact",
    }  # fmt: skip
    bad = kafkafs("topic", "config", data, "orders", "--add-config", "flush.ms=never")
    assert (bad.exit_code, bad.stdout) == (2, "")
    assert kafkafs("topic", "config", data, "nothing").exit_code == 1


def test_a_setting_that_cannot_be_used_is_told(kafkafs: Kafkafs, data: Path) -> None:
    (data / "kafkafs.topics").write_text("[orders]\nretention.ms = soon\n")
    problem = stderr_of(kafkafs("topic", "config", data, "orders"))
    assert "kafkafs's configs of the topic: retention.ms: must be" in problem


#: Log directories of real brokers, and whether a KRaft broker would treat a new topic as a stray.
#: If there are two directories, only one has the cluster's metadata.
OF_BROKERS = {
    "kafka28": False,
    "kafka39": True,
    "kafka43-clean": True,
    "kafka43-two-dirs/dir1": True,
    "kafka43-two-dirs/dir2": True,
    "kafka43-two-dirs/dir1,kafka43-two-dirs/dir2": True,
}


@pytest.mark.parametrize(("names", "is_kraft"), OF_BROKERS.items())
def test_a_topic_that_a_broker_would_set_aside(
    kafkafs: Kafkafs, writable_corpus: Callable[[str], Path], names: str, is_kraft: bool
) -> None:
    corpus = writable_corpus(names.split("/")[0])
    paths = [corpus.parent / name for name in names.split(",")]
    before = [fingerprint(path) for path in paths]
    result = kafkafs("topic", "create", ",".join(map(str, paths)), "made")
    if not is_kraft:
        assert result.exit_code == 0
        return
    assert result.exit_code == 1
    assert "belongs to a KRaft cluster" in result.stderr
    has_metadata = any((path / "__cluster_metadata-0").is_dir() for path in paths)
    assert ("give all of the broker's log.dirs" in result.stderr) is not has_metadata
    assert [fingerprint(path) for path in paths] == before
    words = ("topic", "create", "--unregistered", ",".join(map(str, paths)), "made")
    assert kafkafs(*words).exit_code == 0


def test_partitions_are_not_added_where_the_metadata_are_elsewhere(
    writable_corpus: Callable[[str], Path],
) -> None:
    second = writable_corpus("kafka43-two-dirs") / "dir2"
    with LogManager(str(second)) as engine:
        topic = next(name for name in engine.topics() if not name.startswith("__"))
        with pytest.raises(Unregistered, match="is not here"):
            engine.create_partitions(topic, max(engine.topics()[topic]) + 2)


def test_a_new_directory_beside_a_brokers_is_that_brokers(
    kafkafs: Kafkafs, writable_corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    paths = f"{writable_corpus('kafka43-two-dirs')}/dir2,{tmp_path / 'third'}"
    assert kafkafs("topic", "create", "--unregistered", paths, "made").exit_code == 0
    result = kafkafs("topic", "create", tmp_path / "third", "more")
    assert "belongs to a KRaft cluster" in result.stderr


@pytest.mark.parametrize(("node", "code"), [(1, 0), (2, 1)])
def test_a_partition_whose_replica_is_on_another_node(
    kafkafs: Kafkafs, writable_corpus: Callable[[str], Path], tmp_path: Path, node: int, code: int
) -> None:
    data = writable_corpus("kafka39")
    engine = Engine(str(data))
    topics = engine.topics().items()
    topic = next(name for name, numbers in topics if numbers == [0] and name[0] != "_")
    topic_id = engine.topic_id(topic)
    (data / f"{topic}-0").rename(tmp_path / "lost")
    meta = data / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1\n", f"node.id={node}\n"))
    result = kafkafs("topic", "create", "--topic-id", topic_id, data, topic)
    assert result.exit_code == code, result.stderr
    why = f"has no replicas of the new partitions of {topic} on this node"
    assert (why in result.stderr) == (code == 1)
