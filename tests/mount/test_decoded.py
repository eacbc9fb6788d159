"""The files with decoded keys and values, without a mount."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkafs
from kafkafs.mount.node import File, MeasuredFile
from kafkafs.mount.streams.following import FollowHandle
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName, Stale
from kafkafs.storage import Columns, decoded_lines
from kafkafs.storage.errors import CorruptError, LogDirError, OffsetNotFound
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition
from tests.mount.nodes import directory_of, file_of
from tests.mount.test_groups import names, read
from tests.registry_records import schema

TYPED = {"decoded.arrow", "decoded.parquet"}
NAME = '{"type":"record","name":"Name","fields":[{"name":"first","type":"string"}]}'


@pytest.fixture
def corpus_tree(corpus: Callable[[str], Path]) -> Tree:
    return Tree(Engine(str(corpus("schemas43"))))


def named(number: int, first: bytes) -> SimpleRecord:
    """Returns a record whose key is `first`, and whose value is that with the schema `number`."""
    datum = bytes([2 * len(first)]) + first
    return SimpleRecord(1000, first, b"\0" + number.to_bytes(4, "big") + datum)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A registry with schema 1, and a topic `t` with values of the schemas 1 and 2, in segments of
    a batch each."""
    registry = [build_batch([schema("t-value", 1, 1, NAME)])]
    write_partition(tmp_path / "_schemas-0", registry, TopicSettings())
    batches = [
        build_batch([named(1, b"Ada"), named(2, b"Bob")]),
        build_batch([named(1, b"Ada")], BatchFields(base_offset=2)),
    ]
    settings = TopicSettings(segment_bytes=len(batches[0]))
    made = write_partition(tmp_path / "t-0", batches, settings)
    write_log_dir(tmp_path, {("t", 0): made.end_offset, ("_schemas", 0): 1})
    return tmp_path


def register(directory: Path) -> None:
    """Registers schema 2."""
    batch = build_batch([schema("t-value", 2, 2, NAME)], BatchFields(base_offset=1))
    [log] = (directory / "_schemas-0").glob("*.log")
    with log.open("ab") as output:
        output.write(batch)


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def values(data: bytes) -> list[Any]:
    return [row["value"] for row in lines(data)]


BEFORE = [{"first": "Ada"}, "\0\0\0\0\x02\x06Bob", {"first": "Ada"}]
AFTER = [{"first": "Ada"}, {"first": "Bob"}, {"first": "Ada"}]


def test_all_values_of_the_corpus(corpus_tree: Tree) -> None:
    text = (answers.directory("schemas43") / "decoded.jsonl").read_text()
    expected: dict[tuple[str, int], list[Any]] = {}
    for row in lines(text.encode()):
        expected.setdefault((row["topic"], row["partition"]), []).append(row["value"])
    for (topic, number), rows in expected.items():
        path = f"{topic}/{number}"
        found = read(file_of(corpus_tree, f"{path}/decoded.jsonl"))
        for row, want in zip(lines(found), rows, strict=True):
            if want["kind"] in ("avro", "protobuf", "json"):
                assert row["value"] == want["value"]
        assert len(read(file_of(corpus_tree, f"{path}/range/0-3/decoded.jsonl"))) == sum(
            len(line) for line in found.splitlines(keepends=True)[:4]
        )


def test_typed_columns_are_those_of_a_scan(
    corpus_tree: Tree, corpus: Callable[[str], Path]
) -> None:
    """Also read from the middle on."""
    with kafkafs.open(corpus("schemas43")) as opened:
        for topic, number in (("s-avro", 0), ("s-keyed", 0), ("s-json", 0), ("s-proto", 1)):
            partition = opened[topic, number]
            path = f"{topic}/{number}/range/{partition.start_offset}-{partition.end_offset - 1}"
            expected = partition.scan(decode=True).read_all()
            node = file_of(corpus_tree, f"{path}/decoded.arrow")
            data = read(node)
            parquet = pa.BufferReader(read(file_of(corpus_tree, f"{path}/decoded.parquet")))
            for found in (pa.ipc.open_stream(data).read_all(), pq.read_table(parquet)):
                assert found.schema == expected.schema
                assert repr(found.to_pylist()) == repr(expected.to_pylist())  # with NaN
            assert node.attributes().size == len(data)
            handle = node.open()
            assert bytes(handle.read(len(data) // 2, 1 << 20)) == data[len(data) // 2 :]
            handle.close()
    for topic in ("s-hard", "_schemas"):
        assert not TYPED & set(names(corpus_tree, f"{topic}/0/range/0-1"))
        with pytest.raises(NoSuchName, match=f"topic {topic} have no schema"):
            file_of(corpus_tree, f"{topic}/0/range/0-1/decoded.arrow")


def test_names(directory: Path) -> None:
    tree = Tree(Engine(str(directory)))
    for path in ("t/0", "t/0/compacted", "t/0/range/0-1"):
        assert "decoded.jsonl" in names(tree, path)
    assert "follow.decoded.jsonl" not in names(tree, "t/0")
    file_of(tree, "t/0/follow.decoded.jsonl")
    assert "1.decoded.json" not in names(tree, "t/0/offset")
    for name in ("9.decoded.json", "9.decoded", "x.decoded.json"):
        with pytest.raises((OffsetNotFound, NoSuchName)):
            tree.resolve(f"t/0/offset/{name}")


def test_a_schema_that_is_registered_makes_other_files(directory: Path) -> None:
    """Sizes and inode numbers stay true to what a file shows."""
    tree = Tree(Engine(str(directory)))
    paths = ("t/0/decoded.jsonl", "t/0/compacted/decoded.jsonl", "t/0/range/0-2/decoded.jsonl")
    read(file_of(tree, "t/0/compacted/summary.json"))  # computes what compaction leaves
    before = [file_of(tree, path).fixed() for path in paths]
    held = [node.open() for node in before if isinstance(node, File)]
    register(directory)
    after = [file_of(tree, path).fixed() for path in paths]
    for old, new, handle in zip(before, after, held, strict=True):
        assert isinstance(old, File)
        assert isinstance(new, File)
        assert old.inode != new.inode
        data = bytes(handle.read(0, 1 << 20))
        assert values(data) == BEFORE
        assert values(read(new)) == AFTER
        for node, content in ((old, data), (new, read(new))):
            if isinstance(node, MeasuredFile):
                assert node.stream_size is not None
                node.stream_size.measure(10)
                assert node.exact == len(content)
            else:
                assert node.attributes().size == len(content)
        handle.close()
    assert file_of(tree, paths[0]).fixed() is after[0]
    with pytest.raises(Stale):
        tree.node(before[2].inode)
    again = tree.node(after[2].inode)
    assert isinstance(again, File)
    assert values(read(again)) == AFTER


def test_a_record(directory: Path) -> None:
    tree = Tree(Engine(str(directory)))
    [row] = lines(read(file_of(tree, "t/0/offset/1.decoded.json")))
    assert (row["value"], row["valueSchemaId"]) == (BEFORE[1], 2)
    assert row["error"] == "value: no schema with this id"
    assert row["keySchema"] == {"kind": "text"}
    assert row["valueSchema"] == {"kind": "binary", "framing": "prefix", "id": 2}
    [plain] = lines(read(file_of(tree, "t/0/offset/1.json")))
    assert set(row) - set(plain) == {"valueSchemaId", "error", "keySchema", "valueSchema"}
    assert row | plain == row | {"value": plain["value"]}
    register(directory)
    for place in ("offset", "compacted/offset"):
        found = file_of(tree, f"t/0/{place}/01.decoded.json").fixed()
        assert isinstance(found, File)
        [row] = lines(read(found))
        assert row["value"] == {"first": "Bob"}
        about = {name: row["valueSchema"][name] for name in ("kind", "schemaType", "subject")}
        assert about == {"kind": "avro", "schemaType": "AVRO", "subject": "t-value"}
        assert row["valueSchema"]["version"] == 2
        assert found.attributes().mtime_ns == 1_000_000_000
        assert found.xattrs()["user.kafka.offset"] == b"1"


def test_following_decodes_with_schemas_that_are_registered_meanwhile(directory: Path) -> None:
    tree = Tree(Engine(str(directory)))
    handle = file_of(tree, "t/0/follow.decoded.jsonl").open(waits=False)
    assert isinstance(handle, FollowHandle)
    assert values(bytes(handle.read(0, 1 << 20))) == BEFORE
    register(directory)
    [log] = (directory / "t-0").glob("*2.log")
    with log.open("ab") as output:
        output.write(build_batch([named(2, b"Eve")], BatchFields(base_offset=3)))
    data = handle.take(handle.end, 1 << 20)
    assert data is not None
    assert values(bytes(data)) == [{"first": "Eve"}]


def test_damage_is_met_where_records_jsonl_has_it(directory: Path) -> None:
    [log] = (directory / "t-0").glob("*0.log")
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    tree = Tree(Engine(str(directory)))
    for name in ("records.jsonl", "decoded.jsonl"):
        handle = file_of(tree, f"t/0/{name}").open()
        with pytest.raises(CorruptError):
            handle.read(0, 1 << 20)
        rest = bytes(handle.read(0, 1 << 20))
        assert [row["offset"] for row in lines(rest)] == [2]
    with pytest.raises(CorruptError):
        tree.resolve("t/0/offset/0.decoded.json")
    with pytest.raises(CorruptError):
        read(file_of(tree, "t/0/range/0-2/decoded.jsonl"))


def test_without_schemas_the_lines_are_those_of_records_jsonl(
    corpus: Callable[[str], Path],
) -> None:
    tree = Tree(Engine(str(corpus("kafka43-clean"))))
    for path in ("orders/0", "compacted/0", "txn/0", "__consumer_offsets/0"):
        plain = read(file_of(tree, f"{path}/records.jsonl"))
        assert read(file_of(tree, f"{path}/decoded.jsonl")) == plain


def test_a_listing_does_not_need_the_registry(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise LogDirError(str(directory), "cannot be read")

    monkeypatch.setattr("kafkafs.storage.schemas.registry.image.RegistryReader.image", fail)
    tree = Tree(Engine(str(directory)))
    for path in ("t/0", "t/0/range/0-1", "t/0/compacted"):
        listed = {entry.name for entry in directory_of(tree, path).list()}
        assert "decoded.jsonl" in listed
        assert listed >= TYPED or "range" not in path
        with pytest.raises(LogDirError):
            read(file_of(tree, f"{path}/decoded.jsonl"))


def test_records_are_decoded_a_bounded_number_at_a_time(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes may become many: a field without bytes has a name in JSON."""
    sizes: list[int] = []

    def noted(columns: Columns, *rest: Any, **more: Any) -> memoryview:
        sizes.append(len(columns))
        return decoded_lines(columns, *rest, **more)

    monkeypatch.setattr("kafkafs.storage.decoded_lines", noted)
    monkeypatch.setattr("kafkafs.mount.nodes.stream._DECODED_AT_ONCE", 8)
    tree = Tree(Engine(str(directory)))
    assert values(read(file_of(tree, "t/0/decoded.jsonl"))) == BEFORE
    assert max(sizes) == 1
