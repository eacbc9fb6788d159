"""`.kafkafs/cluster` in the tree, and dumps of metadata snapshots, without a mount."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.mount.node import File
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName, Stale
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.mount.nodes import directory_of, file_of

Corpus = Callable[[str], Path]
CLUSTER = ".kafkafs/cluster"
#: Before the broker began to shut down.
BEFORE = 1795474383475
SUBJECTS = ("topics", "brokers", "configs", "quotas", "acls", "users", "features", "voters")


@pytest.fixture
def tree(corpus: Corpus) -> Tree:
    return Tree(Engine(str(corpus("groups43"))))


def read(node: File) -> bytes:
    handle = node.open()
    try:
        return bytes(handle.read(0, 1 << 20))
    finally:
        handle.close()


def names(tree: Tree, path: str) -> list[str]:
    return [entry.name for entry in directory_of(tree, path).list()]


def test_a_file_for_each_subject(tree: Tree, corpus: Corpus) -> None:
    assert "cluster" in names(tree, ".kafkafs")
    found = names(tree, CLUSTER)
    assert found == ["summary.json", *(f"{subject}.json" for subject in SUBJECTS), "log.jsonl"]
    for name in found:
        node = file_of(tree, f"{CLUSTER}/{name}")
        assert tree.node(node.inode).inode == node.inode
        assert read(node) == read(file_of(tree, f"{CLUSTER}/{name}"))
        assert node.fixed().attributes().size == len(read(node))
    document = json.loads(read(file_of(tree, f"{CLUSTER}/topics.json")))
    assert (document["offset"], document["problems"]) == (555, [])
    topics = {row["topic"]: row["topicId"] for row in document["topics"]}
    assert topics == answers.topic_ids("groups43")
    lines = read(file_of(tree, f"{CLUSTER}/log.jsonl")).splitlines()
    assert json.loads(lines[-1])["text"] == "broker 1 fenced"
    then = Tree(Engine(str(corpus("groups43")), at_ms=BEFORE))
    summary = json.loads(read(file_of(then, f"{CLUSTER}/summary.json")))
    assert (summary["offset"], summary["partitionsWithoutLeader"]) == (529, 0)


def test_only_directories_with_a_metadata_log_have_it(corpus: Corpus, tree: Tree) -> None:
    old = Tree(Engine(str(corpus("kafka28"))))
    assert "cluster" not in names(old, ".kafkafs")
    for path in (CLUSTER, f"{CLUSTER}/topics.json"):
        with pytest.raises(NoSuchName):
            old.resolve(path)
    with pytest.raises(Stale):
        old.node(file_of(tree, f"{CLUSTER}/topics.json").inode)
    with pytest.raises(NoSuchName, match=r"cluster has no topic.json; did you mean topics.json"):
        tree.resolve(f"{CLUSTER}/topic.json")


def test_snapshots_of_the_metadata_are_dumped(tree: Tree) -> None:
    dump = "__cluster_metadata/0/dump"
    found = [name for name in names(tree, dump) if name.endswith(".checkpoint.txt")]
    assert found == [
        "00000000000000000168-0000000001.checkpoint.txt",
        "00000000000000000433-0000000002.checkpoint.txt",
    ]
    node = file_of(tree, f"{dump}/{found[1]}")
    assert read(node).startswith(b"Snapshot end offset: 433, epoch: 2\n")
    assert b'payload: {"type":"ACCESS_CONTROL_ENTRY_RECORD"' in read(node)
    again = tree.node(node.inode)
    assert isinstance(again, File)
    assert read(again) == read(node)


def test_snapshots_of_one_offset_and_several_epochs_are_different_files(
    writable_corpus: Corpus,
) -> None:
    partition = writable_corpus("groups43") / "__cluster_metadata-0"
    first = partition / f"{168:020d}-0000000001.checkpoint"
    (partition / f"{168:020d}-0000000003.checkpoint").write_bytes(first.read_bytes())
    tree = Tree(Engine(str(partition.parent)))
    files = [f"{168:020d}-{epoch:010d}.checkpoint.txt" for epoch in (1, 3)]
    nodes = [file_of(tree, f"__cluster_metadata/0/dump/{name}") for name in files]
    assert nodes[0].inode != nodes[1].inode
    for epoch, node in zip((1, 3), nodes, strict=True):
        again = tree.node(node.inode)
        assert isinstance(again, File)
        assert read(again).startswith(b"Snapshot end offset: 168, epoch: %d\n" % epoch)
