"""The cache of recently written values never returns anything but the latest value."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.mount.node import File
from kafkafs.mount.nodes.writable_keys import WritableKeyDirectory, WritableKeyFile
from kafkafs.mount.vfs.errnos import NoSuchName
from kafkafs.storage.errors import UnknownTopic
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.mount.nodes import node_of, writable_tree
from tests.waiting import wait_until


class Keys:
    """`t/0/key` of a writable tree."""

    def __init__(self, engine: LogManager) -> None:
        self.engine = engine
        self.tree = writable_tree(engine)
        self.directory = node_of(self.tree, "t/0/key", WritableKeyDirectory)
        self.writer = engine.writer("t", 0)

    def write(self, name: str, value: bytes) -> None:
        _, handle = self.directory.create(name, os.O_WRONLY | os.O_TRUNC)
        handle.write(0, value)
        handle.flush()
        handle.close()

    def by_others(self, name: str, value: bytes | None) -> None:
        self.writer.append_records(RecordColumns.from_values([value], [name.encode()]))

    def found(self, name: str) -> bytes:
        file = self.directory.child(name)
        assert isinstance(file, WritableKeyFile)
        attributes = file.attributes()
        data = bytes(file.open().read(0, 1 << 20))
        assert attributes.size == len(data)
        again = self.tree.node(attributes.inode)
        assert isinstance(again, WritableKeyFile)
        assert again.key == name.encode()
        assert again.attributes() == attributes
        return data


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1)
        yield Keys(engine)


def test_a_file_closed_while_it_is_removed_is_removed(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel sends RELEASE without waiting: it may come between look-up and tombstone."""
    _, handle = keys.directory.create("swap", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    looked_up = keys.directory.child

    def closes(name: str) -> File:
        file = looked_up(name)
        handle.close()
        return file

    monkeypatch.setattr(keys.directory, "child", closes)
    keys.directory.remove("swap", os.getpid())
    monkeypatch.undo()
    with pytest.raises(NoSuchName):
        keys.directory.child("swap")


@pytest.mark.parametrize("value", [b"", b"old"])
def test_a_removed_file_that_is_still_open_has_no_name(keys: Keys, value: bytes) -> None:
    if value:
        keys.write("swap", value)
    _, handle = keys.directory.create("swap", os.O_RDWR | os.O_CREAT)
    keys.directory.remove("swap", os.getpid())
    with pytest.raises(NoSuchName):
        keys.directory.child("swap")
    keys.directory.create("swap", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    handle.close()
    assert keys.directory.child("swap").attributes().size == 0


def test_a_file_closed_while_it_is_looked_up_is_found(
    keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, handle = keys.directory.create("swap", os.O_RDWR | os.O_CREAT | os.O_EXCL)
    looked_up = keys.directory.offset_of

    def closes(name: str) -> int:
        try:
            return looked_up(name)
        finally:
            handle.close()

    monkeypatch.setattr(keys.directory, "offset_of", closes)
    assert keys.directory.child("swap").attributes().size == 0


def test_what_was_written_is_known_until_others_append(keys: Keys) -> None:
    assert not keys.directory.is_cached("a")
    keys.write("a", b"one")
    keys.write("b", b"two")
    assert keys.directory.is_cached("a")
    assert keys.directory.is_cached("b")
    assert (keys.found("a"), keys.found("b")) == (b"one", b"two")
    keys.by_others("b", b"three")
    assert not keys.directory.is_cached("a")
    assert (keys.found("a"), keys.found("b")) == (b"one", b"three")
    keys.write("a", b"four")
    assert keys.directory.is_cached("a")
    assert not keys.directory.is_cached("b")
    assert (keys.found("a"), keys.found("b")) == (b"four", b"three")


def test_what_was_removed_or_deleted_is_not_known(keys: Keys) -> None:
    keys.write("a", b"one")
    keys.write("b", b"two")
    keys.directory.remove("b", 0)
    assert not keys.directory.is_cached("b")
    assert keys.directory.is_cached("a")
    keys.writer.delete_records(1)
    assert not keys.directory.is_cached("a")
    keys.write("a", b"one")
    keys.engine.truncate_to("t", 0, 1)
    assert not keys.directory.is_cached("a")
    keys.engine.delete_topic("t")
    with pytest.raises(UnknownTopic):
        keys.directory.is_cached("a")


def test_nothing_is_known_beside_an_open_transaction(keys: Keys) -> None:
    producer = TransactionalProducer(keys.engine)
    with producer.transaction():
        producer.append("t", 0, RecordColumns.from_values([b"v"], [b"other"]))
        keys.write("a", b"one")
        assert not keys.directory.is_cached("a")
    assert keys.found("a") == b"one"


def test_the_time_is_the_log_s(keys: Keys) -> None:
    keys.engine.set_topic_config("t", {"message.timestamp.type": "LogAppendTime"})
    keys.write("a", b"one")
    assert keys.directory.is_cached("a")
    known = keys.directory.child("a").attributes()
    keys.by_others("b", b"")
    assert keys.directory.child("a").attributes() == known


def test_whatever_happens_it_is_the_latest_value(keys: Keys) -> None:
    source = random.Random(22)
    values: dict[str, bytes] = {}
    for number in range(300):
        name, value = source.choice("abcd"), b"%d" % number
        kind = source.choice(["write", "write", "others", "remove"])
        if kind == "write":
            keys.write(name, value)
        elif kind == "others":
            keys.by_others(name, value)
        elif name in values:
            keys.directory.remove(name, 0)
            del values[name]
        if kind in ("write", "others"):
            values[name] = value
        assert {each: keys.found(each) for each in values} == values


def inode_of(keys: Keys, name: str) -> int:
    """Returns the inode, which a lookup and a listing must agree on."""
    inode = keys.directory.child(name).attributes().inode
    listed = {entry.name: entry.attributes.inode for entry in keys.directory.list()}
    assert listed[name] == inode
    return inode


def test_a_key_keeps_its_inode_from_one_value_to_the_next(keys: Keys) -> None:
    for name in ("a", "b", "a", "b"):
        keys.write(name, b"one")
    before = inode_of(keys, "a"), inode_of(keys, "b")
    keys.write("a", b"two")
    assert (inode_of(keys, "a"), inode_of(keys, "b")) == before
    assert keys.found("a") == b"two"
    keys.directory.remove("a", 0)
    keys.write("a", b"three")
    assert inode_of(keys, "a") not in before
    keys.by_others("c", b"")
    assert len({inode_of(keys, name) for name in "abc"}) == 3
    assert (keys.found("a"), keys.found("b")) == (b"three", b"one")


def test_what_a_small_value_is_appended_without_waiting_for(keys: Keys) -> None:
    _, handle = keys.directory.create("a", os.O_WRONLY | os.O_TRUNC)
    handle.write(0, b"v")
    assert not handle.flush_may_block
    with keys.writer._lock:
        assert handle.flush_may_block
    keys.engine.set_topic_config("t", {"flush.messages": "1"})
    assert handle.flush_may_block
    keys.engine.set_topic_config("t", {"flush.messages": "2"})
    assert not handle.flush_may_block
    keys.by_others("b", b"")
    assert handle.flush_may_block  # as this would be the second that is not durable
    keys.engine.set_topic_config("t", {"segment.ms": "1"})
    keys.writer.append_records(RecordColumns.from_values([b""], [b"c"], 1))
    assert handle.flush_may_block  # a segment would be rolled
    keys.writer.roll()
    wait_until(lambda: not handle.flush_may_block)  # another thread makes the old segment durable
    handle.write(0, bytes(1 << 15))
    assert handle.flush_may_block
    handle.flush()
    handle.close()
    assert len(keys.found("a")) == 1 << 15
