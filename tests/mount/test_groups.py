"""`.kafkafs/groups` in the tree, without a mount."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyfuse3
import pytest
import trio

from kafkafs.mount.fuse.operations import ReadOnlyOperations
from kafkafs.mount.node import File
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName, Stale
from kafkafs.mount.vfs.render import listed_xattrs
from kafkafs.storage import GroupLags
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from tests.building import BatchFields, build_batch
from tests.group_records import commit, commit_key, commit_value
from tests.logs import write_topic
from tests.mount.nodes import directory_of, file_of

GROUPS = ".kafkafs/groups"
ODD = "ops%2Fnightly report #7 über 日本"


@pytest.fixture
def tree(corpus: Callable[[str], Path]) -> Tree:
    return Tree(Engine(str(corpus("groups43"))))


def read(node: File) -> bytes:
    handle = node.open()
    try:
        data = b""
        while part := bytes(handle.read(len(data), 1 << 20)):
            data += part
        return data
    finally:
        handle.close()


def names(tree: Tree, path: str) -> list[str]:
    return [entry.name for entry in directory_of(tree, path).list()]


def test_groups_topics_and_partitions_are_listed(tree: Tree) -> None:
    assert "groups" in names(tree, ".kafkafs")
    groups = names(tree, GROUPS)
    assert groups[0] == "billing-beyond"
    assert groups[-1] == ODD
    assert names(tree, f"{GROUPS}/{ODD}") == ["status.json", "main", "stamped"]
    assert names(tree, f"{GROUPS}/{ODD}/main") == ["2", "2.unread.jsonl"]


def test_an_offset_has_its_facts_as_attributes(tree: Tree) -> None:
    node = file_of(tree, f"{GROUPS}/billing-manual/main/0")
    assert read(node) == b"44\n"
    fixed = node.fixed()
    assert fixed.attributes().size == 3
    assert fixed.attributes().mtime_ns == 1795474318341 * 1_000_000
    found = {name.removeprefix("user.kafka."): value for name, value in fixed.xattrs().items()}
    assert float(found.pop("lag_ms")) > 0
    assert found == {
        "group": b"billing-manual",
        "type": b"Classic",
        "state": b"Empty",
        "topic": b"main",
        "partition": b"0",
        "offset": b"44",
        "leader_epoch": b"2",
        "metadata": b"second",
        "commit_timestamp": b"1795474318341",
        "log_start_offset": b"0",
        "log_end_offset": b"270",
        "lag": b"226",
    }
    assert fixed.xattrs().keys() == node.xattrs().keys()
    assert file_of(tree, f"{GROUPS}/billing-manual/main/0").fixed() is fixed


def test_the_facts_are_found_in_a_thread(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding the oldest unread record may read much of a damaged log."""
    in_loop = []
    compute = GroupLags.rows

    def rows(*args: Any) -> Any:
        in_loop.append(threading.current_thread() is threading.main_thread())
        return compute(*args)

    monkeypatch.setattr(GroupLags, "rows", rows)
    node = file_of(tree, f"{GROUPS}/billing-manual/main/0").fixed()

    async def ask() -> None:
        async with trio.open_nursery() as nursery:
            operations = ReadOnlyOperations(tree, nursery)
            context = cast(pyfuse3.RequestContext, None)
            assert await operations.getxattr(node.inode, b"user.kafka.lag", context) == b"226"
            assert b"user.kafka.lag" in await operations.listxattr(node.inode, context)

    trio.run(ask)
    assert in_loop == [False, False]


def test_what_is_not_read_is_the_end_of_the_partition(tree: Tree) -> None:
    whole = read(file_of(tree, "main/0/records.jsonl")).splitlines()
    unread = read(file_of(tree, f"{GROUPS}/billing-manual/main/0.unread.jsonl")).splitlines()
    assert [json.loads(line)["offset"] for line in unread[:1]] == [44]
    assert unread == [line for line in whole if json.loads(line)["offset"] >= 44]
    below_the_start = read(file_of(tree, f"{GROUPS}/billing-early/trim/0.unread.jsonl"))
    assert below_the_start == read(file_of(tree, "trim/0/records.jsonl"))
    assert read(file_of(tree, f"{GROUPS}/billing-beyond/main/0.unread.jsonl")) == b""


def test_the_status_of_a_group(tree: Tree) -> None:
    status = json.loads(read(file_of(tree, f"{GROUPS}/billing-share/status.json")))
    members, offsets = status.pop("members"), status.pop("offsets")
    assert status == {
        "group": "billing-share",
        "type": "Share",
        "state": "Stable",
        "protocolType": "share",
        "epoch": 3,
        "coordinator": "__consumer_offsets-0",
        "problems": [],
    }
    assert [each["clientId"] for each in members] == ["consumer-billing-share-5"]
    assert [(each["topic"], each["partition"], each["offset"]) for each in offsets] == [
        *(("main", 0, 57), ("main", 1, 53), ("main", 2, 0), ("trim", 0, 32), ("trim", 1, 0))
    ]


def test_names_that_do_not_exist(tree: Tree) -> None:
    for path, why in (
        ("billing-walkre", "no group billing-walkre; did you mean billing-walker"),
        ("billing-walker/mein", "group billing-walker has no mein; did you mean main"),
        ("billing-walker/main/3", "group billing-walker has no 3; it has 0, 1, 2"),
        ("billing-walker/main/x.unread.jsonl", "has no x.unread.jsonl; it has 0, 1, 2"),
    ):
        with pytest.raises(NoSuchName) as caught:
            tree.resolve(f"{GROUPS}/{path}")
        assert why in str(caught.value)


def test_nodes_are_found_by_their_inode_numbers(tree: Tree) -> None:
    for path in ("", "/billing-manual", "/billing-manual/main", "/billing-manual/status.json"):
        node = tree.resolve(GROUPS + path)
        assert tree.node(node.inode).inode == node.inode
    for name in ("0", "0.unread.jsonl"):
        node = file_of(tree, f"{GROUPS}/billing-manual/main/{name}")
        assert read(file_by_inode(tree, node.inode)) == read(node)
        fixed = node.fixed()
        assert tree.node(fixed.inode) is fixed
    with pytest.raises(Stale):
        tree.catalog.group_paths[10**9]


def file_by_inode(tree: Tree, inode: int) -> File:
    node = tree.node(inode)
    assert isinstance(node, File)
    return node


def test_odd_names_and_a_commit_that_follows(tmp_path: Path) -> None:
    names_ = ("", ".", "..", "a/b", "%", "x" * 300, "status.json", "\x1b[2J\n\0")
    records = [commit("g", topic, 0, 0) for topic in names_]
    records += [commit(group, "t", 0, 1) for group in names_]
    write_topic(tmp_path, [build_batch([SimpleRecord(0)] * 3)])
    write_topic(tmp_path, [build_batch(records)], topic="__consumer_offsets")
    tree = Tree(Engine(str(tmp_path)))
    for directory in (GROUPS, f"{GROUPS}/g"):
        listed = [name for name in names(tree, directory) if name not in ("g", "status.json")]
        expected = ["%", "%2E", "%2E%2E", "a%2Fb", "%25", "%1B[2J%0A%00", "status%2Ejson"]
        if directory == GROUPS:
            expected[-1] = "status.json"
            listed = [name for name in names(tree, directory) if name != "g"]
        assert sorted(name for name in listed if "%~" not in name) == sorted(expected)
        for entry in directory_of(tree, directory).list():
            if entry.name in listed:
                found = tree.resolve(f"{directory}/{entry.name}")
                assert found.inode == entry.attributes.inode
    cut = next(name for name in names(tree, GROUPS) if "%~" in name)
    path = f"{GROUPS}/{cut}/t/0"
    assert read(file_of(tree, path)) == b"1\n"
    log = tmp_path / "__consumer_offsets-0" / "00000000000000000000.log"
    with log.open("ab") as file:
        fields = BatchFields(base_offset=len(records))
        file.write(build_batch([commit("x" * 300, "t", 0, 2)], fields))
    assert read(file_of(tree, path)) == b"2\n"
    assert read(file_of(tree, f"{path}.unread.jsonl")).count(b"\n") == 1


def test_numbers_that_no_partition_has_and_metadata_that_no_attribute_can_hold(
    tmp_path: Path,
) -> None:
    numbers = (-(2**31), -1, 0, 2**31 - 1)
    records = [commit("g", "t", number, 1) for number in numbers]
    metadata = commit_value(-1, 4, metadata="m" * 70_000, timestamp=-(2**63))
    records.append(SimpleRecord(0, commit_key("h", "t", 0), metadata))
    write_topic(tmp_path, [build_batch([SimpleRecord(0)] * 3)])
    write_topic(tmp_path, [build_batch(records)], topic="__consumer_offsets")
    tree = Tree(Engine(str(tmp_path)))
    expected = [*map(str, numbers), "0.unread.jsonl"]
    assert sorted(names(tree, f"{GROUPS}/g/t")) == sorted(expected)
    assert read(file_of(tree, f"{GROUPS}/g/t/-1")) == b"1\n"
    attributes = file_of(tree, f"{GROUPS}/h/t/0").fixed().xattrs()
    assert attributes["user.kafka.problem"] == b"below the log start offset"
    assert b"user.kafka.metadata" not in listed_xattrs(attributes)
    status = json.loads(read(file_of(tree, f"{GROUPS}/h/status.json")))
    assert status["offsets"][0]["metadata"] == "m" * 70_000
    assert read(file_of(tree, f"{GROUPS}/h/t/0.unread.jsonl")).count(b"\n") == 3
