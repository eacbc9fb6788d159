"""The histories of keys in the tree: when they are searched again, and on a writable mount."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.mount.nodes.key_history import KeyHistory
from kafkafs.mount.nodes.writable_keys import WritableKeyDirectory
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import Invalid, NoSuchName, NotPermitted
from kafkafs.mount.vfs.key_names import CutName, key_of, name_of
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.mount.nodes import file_of, node_of, writable_tree

NAME = "k.history.jsonl"


def append(engine: LogManager, value: bytes) -> None:
    engine.writer("t", 0).append_records(RecordColumns.from_values([value], [b"k"]))


def values(tree: Tree) -> list[str | None]:
    file = file_of(tree, f"t/0/key/{NAME}").fixed()
    assert isinstance(file, KeyHistory)
    data = bytes(file.open().read(0, 1 << 20))
    assert file.attributes().size == len(data)
    return [json.loads(line)["value"] for line in data.splitlines()]


def test_is_searched_again_if_the_partition_changed(tmp_path: Path) -> None:
    with LogManager(str(tmp_path)) as engine:
        engine.create_topic("t")
        append(engine, b"1")
        tree = Tree(Engine(str(tmp_path)))
        assert values(tree) == ["1"]
        first = file_of(tree, f"t/0/key/{NAME}").fixed()
        assert file_of(tree, f"t/0/key/{NAME}").fixed() is first
        append(engine, b"2")
        assert values(tree) == ["1", "2"]
        left = tmp_path / "t-0" / f"{9:020}.log.deleted"
        left.write_bytes((tmp_path / "t-0" / f"{0:020}.log").read_bytes())
        assert values(tree) == ["1", "2"]
        assert file_of(tree, f"t/0/key/{NAME}").fixed().inode != first.inode


def test_an_earlier_life_of_the_topic_is_noticed(tmp_path: Path) -> None:
    with LogManager(str(tmp_path)) as engine:
        engine.create_topic("t")
        append(engine, b"1")
        tree = Tree(Engine(str(tmp_path)))
        assert values(tree) == ["1"]
        deleted = tmp_path / f"t-0.{'0' * 32}-delete"
        shutil.copytree(tmp_path / "t-0", deleted)
        (deleted / "partition.metadata").write_text(f"version: 0\ntopic_id: {'A' * 22}")
        assert values(tree) == ["1", "1"]
        shutil.rmtree(deleted)
        assert values(tree) == ["1"]


def test_on_a_writable_mount(tmp_path: Path) -> None:
    with LogManager(str(tmp_path)) as engine:
        engine.create_topic("t")
        append(engine, b"1")
        tree = writable_tree(engine)
        keys = node_of(tree, "t/0/key", WritableKeyDirectory)
        assert values(tree) == ["1"]
        assert not keys.is_cached(NAME)
        refused: list[tuple[type[Exception], Callable[[], object]]] = [
            (NotPermitted, lambda: keys.remove(NAME, 0)),
            (NotPermitted, lambda: file_of(tree, f"t/0/key/{NAME}").open_writing(os.O_WRONLY)),
            (Invalid, lambda: keys.create(f"new{NAME}", os.O_WRONLY)),
            (NoSuchName, lambda: keys.child(f"new{NAME}")),
        ]
        for error, change in refused:
            with pytest.raises(error):
                change()
        keys.remove("k", 0)
        assert values(tree) == ["1", None]


@pytest.mark.parametrize("length", [0, 1, 80, 230, 238, 250])
def test_the_name_of_a_key_that_ends_so(length: int) -> None:
    key = b"/" * min(length, 3) + b"k" * max(length - 3, 0) + b".history.jsonl"
    name = name_of(key)
    assert len(name) <= 255
    assert not name.endswith(b".history.jsonl")
    found = key_of(name)
    assert found.is_of(key) if isinstance(found, CutName) else found == key
    with pytest.raises(NoSuchName, match="is the name of a key's history"):
        key_of(b"k.history.jsonl")
