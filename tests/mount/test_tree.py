"""The tree without FUSE, for every corpus, compared with what Kafka's own consumer was given."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkafs.mount.node import UNKNOWN_SIZE, DirectoryNode, File, Link, Node
from kafkafs.mount.nodes.record import RecordFile, ValueFile
from kafkafs.mount.options import MountOptions
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName, Stale
from kafkafs.mount.vfs.handles import Handle
from kafkafs.mount.vfs.timeouts import NOT_AT_ALL
from kafkafs.storage.errors import CorruptError, OffsetNotFound, StorageError, UnknownPartition
from kafkafs.storage.format.files.properties import parse_properties
from kafkafs.storage.format.primitives import decode_utf8
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.answers import ExpectedRecord
from tests.mount.nodes import directory_of, file_of
from tests.mounted.live import LiveLog

#: Corpora that a consumer read as they are.
READ = [name for name in answers.CORPORA if answers.partitions_with_records(name)]
PARTITIONS = [
    (corpus, topic, number)
    for corpus in READ
    for topic, number in answers.partitions_with_records(corpus)
]
#: Where the records do not depend on the isolation level, one corpus shows that.
LEVELS = [
    (corpus, topic, number, isolation)
    for corpus, topic, number in PARTITIONS
    for isolation in (answers.READ_COMMITTED, answers.READ_UNCOMMITTED)
    if corpus == "kafka43-clean" or isolation in answers.isolations(corpus, topic, number)
]
#: So many entries of a directory are walked; fewer if it lists records, which are of one kind.
SOME, FEW = 40, 12


def log_dirs(corpus: Path) -> list[str]:
    """Returns the log directories of a corpus: itself, or those inside."""
    return sorted(str(path.parent) for path in corpus.rglob("meta.properties"))


@pytest.fixture(scope="session")
def tree(corpus: Callable[[str], Path]) -> Callable[..., Tree]:
    """`tree(name, isolation)` is the tree of a corpus, shared by all tests."""
    made: dict[tuple[str, str], Tree] = {}

    def make(name: str, isolation: str = answers.READ_COMMITTED) -> Tree:
        if (name, isolation) not in made:
            options = MountOptions(isolation=Isolation(isolation))
            made[name, isolation] = Tree(Engine(log_dirs(corpus(name))), options)
        return made[name, isolation]

    return make


def open_file(tree: Tree, path: str) -> Handle:
    return file_of(tree, path).open()


def read(tree: Tree, path: str, at_once: int = 1 << 20) -> bytes:
    """Reads all of a file, `at_once` bytes at a time."""
    handle = open_file(tree, path)
    parts = []
    position = 0
    while part := bytes(handle.read(position, at_once)):
        parts.append(part)
        position += len(part)
    handle.close()
    return b"".join(parts)


def names(tree: Tree, path: str) -> list[str]:
    return [entry.name for entry in directory_of(tree, path).list()]


def json_bytes(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def from_json(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else str(value).encode()


def header_name(value: Any) -> str:
    """Decodes a header's name as a consumer does, with replacement characters for invalid UTF-8."""
    found = from_json(value)
    assert found is not None
    return decode_utf8(found)


def as_expected(line: dict[str, Any]) -> tuple[Any, ...]:
    headers = tuple((header_name(h["key"]), from_json(h["value"])) for h in line["headers"])
    return (
        line["offset"],
        line["timestamp"],
        line["timestampType"],
        from_json(line["key"]),
        from_json(line["value"]),
        headers,
    )


def of_consumer(record: ExpectedRecord) -> tuple[Any, ...]:
    return (
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )


@pytest.mark.parametrize(("name", "topic", "number", "isolation"), LEVELS)
class TestEveryPartition:
    def test_streams(
        self, tree: Callable[..., Tree], name: str, topic: str, number: int, isolation: str
    ) -> None:
        shown = tree(name, isolation)
        where = f"{topic}/{number}"
        expected = list(answers.records(name, topic, number, isolation))
        lines = [json.loads(line) for line in read(shown, f"{where}/records.jsonl").splitlines()]
        assert [as_expected(line) for line in lines] == list(map(of_consumer, expected))
        assert all((line["topic"], line["partition"]) == (topic, number) for line in lines)
        assert read(shown, f"{where}/values") == b"".join(
            (record.value or b"") + b"\n" for record in expected
        )
        assert read(shown, f"{where}/keys") == b"".join(
            (record.key or b"") + b"\n" for record in expected
        )

    def test_listing(
        self, tree: Callable[..., Tree], name: str, topic: str, number: int, isolation: str
    ) -> None:
        shown = tree(name, isolation)
        directory = directory_of(shown, f"{topic}/{number}/offset")
        expected = list(answers.records(name, topic, number, isolation))
        entries = list(directory.list())
        links = ["first", "last"] if expected else []
        assert [entry.name for entry in entries] == links + [str(r.offset) for r in expected]
        for entry, record in zip(entries[len(links) :], expected, strict=True):
            assert entry.attributes.size == len(record.value or b"")
            assert entry.attributes.mtime_ns == max(record.timestamp, 0) * 1_000_000
        if expected:
            assert target(shown, f"{topic}/{number}/offset/first") == str(expected[0].offset)
            assert target(shown, f"{topic}/{number}/offset/last") == str(expected[-1].offset)

    def test_every_19th_record_and_the_last(
        self, tree: Callable[..., Tree], name: str, topic: str, number: int, isolation: str
    ) -> None:
        """`test_every_offset_there_can_be` leaves none out."""
        shown = tree(name, isolation)
        expected = list(answers.records(name, topic, number, isolation))
        for record in [*expected[::19], *expected[-1:]]:
            check_record(shown, f"{topic}/{number}/offset/{record.offset}", record)


def target(tree: Tree, path: str) -> str:
    node = tree.resolve(path)
    assert isinstance(node, Link)
    return node.target()


def check_record(tree: Tree, path: str, record: ExpectedRecord) -> None:
    """Checks all three files of a record."""
    node = tree.resolve(path)
    found = node.attributes()
    assert read(tree, path) == (record.value or b"")
    assert found.size == len(record.value or b"")
    assert tree.node(found.inode).attributes() == found
    line = json.loads(read(tree, f"{path}.json"))
    assert as_expected(line) == of_consumer(record)
    assert line["leaderEpoch"] == (-1 if record.leader_epoch is None else record.leader_epoch)
    if record.key is None:
        with pytest.raises(OffsetNotFound):
            tree.resolve(f"{path}.key")
    else:
        assert read(tree, f"{path}.key") == record.key


@pytest.mark.parametrize(
    ("topic", "number"), [("orders", 1), ("codec-zstd", 0), ("txn", 0), ("compacted", 0)]
)
def test_every_offset_there_can_be(tree: Callable[..., Tree], topic: str, number: int) -> None:
    """Every record has its file, and everything between and around them is absent."""
    shown = tree("kafka43-clean")
    records = {r.offset: r for r in answers.records("kafka43-clean", topic, number)}
    end = answers.offsets("kafka43-clean")[topic, number].end
    for offset in range(end + 2):
        path = f"{topic}/{number}/offset/{offset}"
        if offset in records:
            check_record(shown, path, records[offset])
        else:
            with pytest.raises(OffsetNotFound):
                shown.resolve(path)


@pytest.mark.parametrize("name", READ)
def test_times(tree: Callable[..., Tree], name: str) -> None:
    """Finds the same record as Kafka if that is a data record. If Kafka finds none because a
    leading segment lacks timestamps, finds at least a record that is late enough."""
    shown = tree(name)
    served: dict[tuple[str, int], list[ExpectedRecord]] = {}
    for asked in answers.times(name):
        key = (asked.topic, asked.partition)
        if key not in answers.partitions_with_records(name) or asked.timestamp < 0:
            continue
        if key not in served:
            served[key] = list(answers.records(name, *key))
        late = (r.offset for r in served[key] if r.timestamp >= asked.timestamp)
        first = next(late, None)
        path = f"{asked.topic}/{asked.partition}/time/{asked.timestamp}"
        if first is None:
            with pytest.raises(NoSuchName):
                shown.resolve(path)
        else:
            assert target(shown, path) == f"../offset/{first}"


@pytest.mark.parametrize(("name", "topic", "number"), PARTITIONS)
def test_arrow(tree: Callable[..., Tree], name: str, topic: str, number: int) -> None:
    data = read(tree(name), f"{topic}/{number}/records.arrow")
    assert data.endswith(b"\xff\xff\xff\xff\x00\x00\x00\x00")
    table = pa.ipc.open_stream(data).read_all()
    expected = list(answers.records(name, topic, number))
    assert table.column_names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    assert table["offset"].to_pylist() == [record.offset for record in expected]
    assert table["key"].to_pylist() == [record.key for record in expected]
    assert table["value"].to_pylist() == [record.value for record in expected]


@pytest.mark.parametrize(("topic", "number"), [("orders", 0), ("compacted", 0), ("txn", 0)])
def test_segments_are_the_files(
    tree: Callable[..., Tree], corpus: Callable[[str], Path], topic: str, number: int
) -> None:
    directory = corpus("kafka43-clean") / f"{topic}-{number}"
    shown = tree("kafka43-clean")
    assert names(shown, f"{topic}/{number}/segments") == sorted(os.listdir(directory))
    for path in directory.iterdir():
        where = f"{topic}/{number}/segments/{path.name}"
        assert read(shown, where) == path.read_bytes()
        found = shown.resolve(where).attributes()
        assert (found.size, found.mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)
        again = shown.node(found.inode)
        assert isinstance(again, File)
        assert bytes(again.open().read(0, 1 << 30)) == path.read_bytes()


def everything(tree: Tree) -> Iterator[tuple[str, Node]]:
    """Yields all listed nodes with their paths, but few of many records."""

    def below(path: str, directory: DirectoryNode) -> Iterator[tuple[str, Node]]:
        lists_records = path.count("/") >= 2 and not path.endswith("/segments")
        for entry in islice(directory.list(), FEW if lists_records else SOME):
            name = f"{path}/{entry.name}".lstrip("/")
            try:
                node = directory.child(entry.name)  # as `resolve` does, but without the way here
                found = node.attributes()
            except CorruptError:  # a later record of the key may be damaged, or the range is
                assert any(part in name for part in ("/key/", "/latest/", "/range/"))
                continue
            listed = entry.attributes
            if listed.size == UNKNOWN_SIZE:
                assert (listed.inode, listed.mode) == (found.inode, found.mode), name
            else:
                assert listed == found, name
            yield name, node
            if isinstance(node, DirectoryNode):
                yield from below(name, node)

    yield from below("", tree.root)


@pytest.mark.parametrize("name", answers.CORPORA)
def test_inode_numbers_are_unique_and_lead_back(tree: Callable[..., Tree], name: str) -> None:
    shown = tree(name)
    seen: dict[int, str] = {}
    for path, node in everything(shown):
        found = node.attributes()
        again = shown.node(found.inode)
        assert type(again) is type(node), path
        if isinstance(node, RecordFile) and "/compacted/" in path:  # the file of offset/ or key/
            beside = path.replace("/compacted/latest/", "/key/").replace("/compacted/", "/")
            attributes = shown.resolve(beside).attributes()
            assert replace(attributes, entry_timeout=found.entry_timeout) == found, path
            continue
        if "/key/" in path:  # the very file that is also in offset/
            assert isinstance(again, ValueFile)
            same = shown.resolve(f"{path.partition('/key/')[0]}/offset/{again.offset}")
            assert replace(same.attributes(), entry_timeout=NOT_AT_ALL) == found, path
            continue
        assert seen.setdefault(found.inode, path) == path
        assert again.attributes() == found, path


def test_a_listing_is_taken_up_at_any_entry(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    partition = ["", "/offset", "/time", "/key", "/segments"]
    for path in ["", "orders", *(f"orders/0{name}" for name in partition)]:
        directory = directory_of(shown, path)
        entries = list(directory.list())
        starts = [entry.readdir_offset for entry in entries]
        assert starts == sorted(set(starts)), path
        for at in {*range(min(len(entries), 8)), len(entries) // 2, len(entries) - 1}:
            assert list(directory.list(entries[at].readdir_offset)) == entries[at + 1 :], path


def test_reading_in_small_pieces_gives_the_same(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    for name in ["values", "records.jsonl", "records.arrow"]:
        path = f"codec-gzip/0/{name}"
        assert read(shown, path, 997) == read(shown, path)


def test_names_that_are_none(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    for path in [
        *("nothing", "orders/3", "orders/00", "orders/+0", "orders/-1", "orders/0/latest"),
        *("orders/0/offset/+5", "orders/0/offset/-1", "orders/0/offset/5.", "orders/0/offset/5.js"),
        *("orders/0/offset/.json", "orders/0/offset/٣", "orders/0/offset/1e3"),
        *("orders/0/offset/5.json.json", "orders/0/offset/0x5", "orders/0/offset/ 5"),
        *("orders/0/time/soon", "orders/0/time/-1", "orders/0/time/2018-13-01"),
        *("orders/0/segments/x", "orders/0/values/x", ".kafkafs/x", "orders/.."),
        *("empty/0/offset/first", "gone", "gone/0"),
    ]:
        with pytest.raises((NoSuchName, OffsetNotFound)):
            shown.resolve(path)
    assert shown.resolve("orders/0/offset/" + "0" * 250 + "5").inode == (
        shown.resolve("orders/0/offset/5").inode
    )
    with pytest.raises(OffsetNotFound):
        shown.resolve("orders/0/offset/" + "9" * 255)


def test_control_records_are_served_to_nobody_but_who_asks_for_uncommitted_ones(
    tree: Callable[..., Tree],
) -> None:
    committed = tree("kafka43-clean", Isolation.READ_COMMITTED)
    uncommitted = tree("kafka43-clean", Isolation.READ_UNCOMMITTED)
    given = answers.records("kafka43-clean", "txn", 0, Isolation.READ_UNCOMMITTED.value)
    markers = set(range(answers.offsets("kafka43-clean")["txn", 0].end)) - {r.offset for r in given}
    assert markers
    for offset in markers:
        with pytest.raises(OffsetNotFound):
            committed.resolve(f"txn/0/offset/{offset}")
        line = json.loads(read(uncommitted, f"txn/0/offset/{offset}.json"))
        assert line["isControl"] is True


def test_attributes_of_a_record(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    for record in answers.records("kafka43-clean", "codec-lz4", 0):
        xattrs = shown.resolve(f"codec-lz4/0/offset/{record.offset}").xattrs()
        assert xattrs.get("user.kafka.key") == record.key
        assert xattrs["user.kafka.value_size"] == (
            b"-1" if record.value is None else b"%d" % len(record.value)
        )
        assert xattrs["user.kafka.tombstone"] == (
            b"true" if record.value is None and record.key is not None else b"false"
        )
        for name, value in dict(record.headers).items():
            if name:
                assert xattrs.get(f"user.kafka.header.{name}") == value
        headers = json.loads(xattrs["user.kafka.headers"])
        assert tuple((header_name(h["key"]), from_json(h["value"])) for h in headers) == (
            record.headers
        )
        assert xattrs["user.kafka.codec"] == b"lz4"
        assert set(json.loads(xattrs["user.kafka.batch"])) == {"baseOffset", "position", "size"}


def test_status_of_a_partition(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    for (topic, number), expected in answers.offsets("kafka43-clean").items():
        status = json.loads(read(shown, f"{topic}/{number}/status.json"))
        assert status["logStartOffset"] == expected.beginning
        assert status["logEndOffset"] == expected.end
        assert status["lastStableOffset"] == expected.last_stable
        assert status["topicId"] == answers.topic_ids("kafka43-clean")[topic]
        assert status["damage"] == []


def test_status_and_settings_of_the_mount(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-two-dirs")
    status = json.loads(read(shown, ".kafkafs/status.json"))
    assert [Path(each["path"]).name for each in status["logDirs"]] == ["dir1", "dir2"]
    assert status["isolation"] == "read_committed"
    assert b"kafkafs.max.batch.bytes=" in read(shown, ".kafkafs/config.properties")


def test_settings_of_a_topic(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    for topic, settings in answers.topic_configs("kafka43-clean").items():
        if topic.startswith("__"):
            continue
        shown_ones = parse_properties(read(shown, f"{topic}/config.properties"))
        assert settings.items() <= shown_ones.items()


@pytest.mark.parametrize("name", ["kafka43-torn", "kafka43-crash"])
def test_everything_around_damage_is_served(tree: Callable[..., Tree], name: str) -> None:
    """Everything that the engine's scan finds readable is in every stream and in the listing."""
    shown = tree(name)
    damage = 0
    for topic, partitions in shown.catalog.topics().items():
        for number in partitions:
            view = shown.catalog.partition(topic, number).view()
            parts = [part.copy() if isinstance(part, Columns) else part for part in view.scan()]
            columns = [part for part in parts if isinstance(part, Columns)]
            offsets = [str(offset) for part in columns for offset in part.offsets.tolist()]
            values = [part.value(row) or b"" for part in columns for row in range(len(part))]
            where = f"{topic}/{number}"
            data, failures = read_past_damage(shown, f"{where}/values")
            assert data == b"".join(value + b"\n" for value in values)
            assert failures <= len(parts) - len(columns)
            assert (failures > 0) == (len(parts) > len(columns))
            damage += failures
            assert [n for n in names(shown, f"{where}/offset") if n.isdigit()] == offsets
            status = json.loads(read(shown, f"{where}/status.json"))
            assert (len(status["damage"]) > 0) == (failures > 0)
    assert (damage > 0) == (name == "kafka43-torn")


def read_past_damage(tree: Tree, path: str) -> tuple[bytes, int]:
    """Returns everything that can be read of a stream, and the number of failures."""
    handle = open_file(tree, path)
    data, failures = b"", 0
    while True:
        try:
            part = bytes(handle.read(len(data), 1 << 20))
        except CorruptError:
            failures += 1
            continue
        if not part:
            return data, failures
        data += part


def test_a_partition_made_anew_is_another_one(
    writable_corpus: Callable[[str], Path],
) -> None:
    corpus = writable_corpus("kafka43-clean")
    shown = Tree(Engine(str(corpus)))
    old = shown.resolve("one/0/offset/first").inode
    record = shown.resolve("one/0/offset/0").attributes()
    (corpus / "one-0").rename(corpus / f"one-0.{'0' * 32}-delete")
    with pytest.raises((NoSuchName, UnknownPartition)):
        shown.resolve("one/0/offset/0")
    with pytest.raises(Stale):
        shown.node(record.inode)
    subprocess.run(["cp", "-a", corpus / "unordered-0", corpus / "one-0"], check=True)
    assert shown.resolve("one/0/offset/0").inode != record.inode
    assert shown.resolve("one/0/offset/first").inode != old
    with pytest.raises(Stale):
        shown.node(old)


def test_numbers_that_were_never_given(tree: Callable[..., Tree]) -> None:
    shown = tree("kafka43-clean")
    shown.resolve("orders/0/offset/0")
    for number in [0, 1000, 1 << 40, 1 << 50, (1 << 58) - 1, 1 << 59, (1 << 63) - 1, (1 << 64) - 1]:
        with pytest.raises((Stale, StorageError)):
            shown.node(number)


def test_the_tree_needs_neither_fuse_nor_trio() -> None:
    script = "import sys, kafkafs.mount.tree; print({'trio', 'pyfuse3'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_a_listing_of_segments_leaves_none_out_that_stays(tmp_path: Path) -> None:
    live = LiveLog(tmp_path / "logs")
    directory = directory_of(Tree(Engine(str(live.directory))), "t/0/segments")
    before = [entry for run in directory.opendir()(0) for entry in run.entries]
    readdir = directory.opendir()
    live.delete_before(2)
    live.roll()
    names = [name for run in readdir(before[1][-1]) for name in run.entries.names]  # two are known
    there = {os.fsencode(name) for name in os.listdir(live.partition)}
    assert names == [entry[0] for entry in before[2:] if entry[0] in there]
    assert there - set(names) >= {b"%020d.log" % live.end}
