"""Ranges in the tree, without a mount."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkafs.mount.node import UNKNOWN_SIZE, File
from kafkafs.mount.streams import ranges
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import Ending, NoSuchRange, Stale
from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests.building import BatchFields, build_batch
from tests.logs import write_topic
from tests.mount.nodes import directory_of, file_of
from tests.mounted.live import LiveLog, value

FILES = (
    *("values", "keys", "records.jsonl", "records.arrow", "records.parquet"),
    "decoded.jsonl",
)


@pytest.fixture
def tree(live: LiveLog) -> Tree:
    return Tree(Engine([str(live.directory)]))


def file(tree: Tree, path: str) -> File:
    return file_of(tree, f"t/0/range/{path}")


def read(node: File) -> bytes:
    handle = node.open()
    try:
        return bytes(handle.read(0, 1 << 20))
    finally:
        handle.close()


def sizes(tree: Tree, name: str) -> dict[str, int]:
    entries = directory_of(tree, f"t/0/range/{name}").list()
    return {entry.name: entry.attributes.size for entry in entries}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("3-2", "3-2: the range ends before it begins"),
        ("1-6", "1-6: the last offset served is 5"),
        ("0-1", "0-1: the log begins at offset 1"),
    ],
)
def test_the_reason_is_told(live: LiveLog, tree: Tree, name: str, why: str) -> None:
    live.start_at(1)
    with pytest.raises(NoSuchRange) as caught:
        tree.resolve(f"t/0/range/{name}")
    assert str(caught.value) == why


def test_what_is_no_range(tree: Tree) -> None:
    for name in ("x", "1", "1-2-3", "-1-2", "+1-2", "1-٣"):
        with pytest.raises(NoSuchRange, match="range/A-B needs two offsets from 0 to 5"):
            tree.resolve(f"t/0/range/{name}")


def test_sizes_are_listed_when_they_are_known(tree: Tree) -> None:
    assert sizes(tree, "1-4") == dict.fromkeys(FILES, UNKNOWN_SIZE)
    size = file(tree, "1-4/values").attributes().size
    assert size == 4 * len(value(1) + b"\n")
    assert sizes(tree, "1-4") == dict.fromkeys(FILES, UNKNOWN_SIZE) | {"values": size}


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has an entry for each scan that is started."""
    begun: list[int] = []
    scan, lines = View.scan, View.lines

    def counted(of: Callable[..., Iterator[object]]) -> Callable[..., Iterator[object]]:
        def call(*args: object, **kwargs: object) -> Iterator[object]:
            begun.append(1)
            return of(*args, **kwargs)

        return call

    monkeypatch.setattr(View, "scan", counted(scan))
    monkeypatch.setattr(View, "lines", counted(lines))
    return begun


def test_listing_scans_nothing_and_a_size_is_found_once(tree: Tree, scans: list[int]) -> None:
    directory = directory_of(tree, "t/0/range")
    assert [entry.name for entry in directory.list()] == ["0-1", "2-3", "4-5"]
    sizes(tree, "0-5")
    assert scans == []
    for _ in range(3):
        assert file(tree, "0-5/values").attributes().size == 48
    assert len(scans) == 1


def test_damage_is_met_once_by_all_who_ask_at_once(
    live: LiveLog, tree: Tree, scans: list[int]
) -> None:
    live.damage(2)
    for _ in range(3):
        with pytest.raises(CorruptError):
            file(tree, "0-5/values").attributes()
        with pytest.raises(CorruptError):
            file(tree, "0-5/values").open()
    assert len(scans) == 1
    assert sizes(tree, "0-5")["values"] == UNKNOWN_SIZE


def test_damage_is_looked_for_again_later(
    live: LiveLog, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = live.damage(2)
    damaged = log.read_bytes()
    with pytest.raises(CorruptError):
        file(tree, "0-5/values").attributes()
    data = bytearray(damaged)
    data[len(damaged) // 2 - 3] ^= 4
    log.write_bytes(data)
    monkeypatch.setattr(ranges, "_FAILURE_SECONDS", 0.0)
    assert read(file(tree, "2-3/values")) == b"value 2\nvalue 3\n"
    assert file(tree, "0-5/values").attributes().size == 48


def test_a_mount_that_ends_waits_for_no_size(tree: Tree) -> None:
    node = file(tree, "0-5/values")
    tree.catalog.ranges.end()
    with pytest.raises(Ending):
        node.attributes()


def test_an_open_file_keeps_its_size_whatever_else_is_asked(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, scans: list[int]
) -> None:
    monkeypatch.setattr(ranges, "_MOST_FOUND", 2)
    handle = file(tree, "0-5/values").open()
    for last in range(5):
        assert file(tree, f"0-{last}/values").attributes().size == 8 * (last + 1)
    before = len(scans)
    assert file(tree, "0-5/values").attributes().size == 48
    assert len(scans) == before
    handle.close()


def test_inodes_lead_back(tree: Tree) -> None:
    directory = tree.resolve("t/0/range/1-4")
    assert tree.node(directory.inode).attributes() == directory.attributes()
    for name in FILES:
        node = file(tree, f"1-4/{name}")
        found = tree.node(node.inode)
        assert isinstance(found, File)
        assert read(found) == read(node)
    with pytest.raises(Stale):
        tree.node(directory.inode | 7)


def test_inodes_of_what_has_gone(live: LiveLog, tree: Tree) -> None:
    old, kept = file(tree, "0-5/values"), file(tree, "2-5/values")
    live.delete_before(2)
    with pytest.raises(Stale):
        tree.node(old.inode)
    assert read(file(tree, "2-5/values")) == read(kept)
    assert tree.node(kept.inode).inode == kept.inode
    live.replace(2, [3])
    assert file(tree, "2-5/values").inode != kept.inode
    with pytest.raises(Stale):
        tree.node(kept.inode)


def test_the_largest_offsets(tmp_path: Path) -> None:
    first = 2**63 - 10
    batches = [
        build_batch([SimpleRecord(0, b"k", b"v%d" % at)], BatchFields(base_offset=first + at))
        for at in range(4)
    ]
    tree = Tree(Engine(str(write_topic(tmp_path / "logs", batches, base_offset=first))))
    directory = directory_of(tree, "t/0/range")
    assert [entry.name for entry in directory.list()] == [f"{first}-{first + 3}"]
    assert read(file(tree, f"{first + 1}-{first + 2}/values")) == b"v1\nv2\n"
