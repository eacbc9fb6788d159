"""Which inode numbers change when a log changes, and which stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkafs.mount.node import File
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import Stale
from kafkafs.storage.errors import OffsetNotFound
from kafkafs.storage.format.layout import MAX_OFFSET
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_checkpoint, write_topic
from tests.mount.nodes import directory_of


def batch(offset: int, value: bytes = b"value") -> bytes:
    return build_batch([SimpleRecord(1000, b"k", value)], BatchFields(base_offset=offset))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A partition `t-0` with offsets 0 to 5 in segments of two batches, written long ago."""
    settings = TopicSettings(segment_bytes=2 * len(batch(0)))
    return write_topic(tmp_path / "logs", map(batch, range(6)), settings)


@pytest.fixture
def tree(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree that checks the disk every time instead of trusting a recent check."""
    monkeypatch.setattr("kafkafs.mount.partition.FRESH_SECONDS", 0.0)
    return Tree(Engine(str(log_dir)))


FILES = ["offset/3", "offset/3.key", "offset/3.json", f"segments/{2:020}.log", "offset/last"]


def numbers(tree: Tree) -> list[int]:
    return [tree.resolve(f"t/0/{name}").inode for name in FILES]


def test_growth_changes_no_number(log_dir: Path, tree: Tree) -> None:
    before = numbers(tree)
    with (log_dir / "t-0" / f"{4:020}.log").open("ab") as log:
        log.write(batch(6))
    assert tree.resolve("t/0/offset/6").attributes().size == 5
    assert numbers(tree) == before


def test_deletion_from_the_front_changes_no_number(log_dir: Path, tree: Tree) -> None:
    before = numbers(tree)
    gone = tree.resolve("t/0/offset/1").inode
    for path in (log_dir / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    with pytest.raises(OffsetNotFound):
        tree.resolve("t/0/offset/1")
    assert numbers(tree) == before
    with pytest.raises(Stale):
        tree.node(gone)


def test_a_later_log_start_changes_no_number(log_dir: Path, tree: Tree) -> None:
    before = numbers(tree)
    write_checkpoint(log_dir / "log-start-offset-checkpoint", ["t 0 3"])
    with pytest.raises(OffsetNotFound):
        tree.resolve("t/0/offset/2")
    assert numbers(tree) == before


def test_a_replaced_segment_has_new_numbers_for_what_shows_its_bytes(
    log_dir: Path, tree: Tree
) -> None:
    before = numbers(tree)
    log = log_dir / "t-0" / f"{2:020}.log"
    cleaned = log.with_suffix(".log.swap")
    cleaned.write_bytes(batch(3))
    os.replace(cleaned, log)
    tree.resolve("t/0/offset").attributes()
    after = numbers(tree)
    same = [one == other for one, other in zip(before, after, strict=True)]
    assert same == [True, True, False, False, True]
    with pytest.raises(Stale):
        tree.node(before[3])
    with pytest.raises(OffsetNotFound):
        tree.resolve("t/0/offset/2")


def test_a_log_cut_back_has_new_numbers_for_records(log_dir: Path, tree: Tree) -> None:
    before = numbers(tree)
    for path in (log_dir / "t-0").glob(f"{4:020}.*"):
        path.unlink()
    after = numbers(tree)
    same = [one == other for one, other in zip(before, after, strict=True)]
    assert same == [False, False, False, False, True]


def test_a_log_cut_back_and_filled_again_has_new_numbers_for_records(
    log_dir: Path, tree: Tree
) -> None:
    before = numbers(tree)
    log = log_dir / "t-0" / f"{4:020}.log"
    size = len(batch(4))
    with log.open("r+b") as file:
        file.truncate(0)
        file.write(batch(4, b"other") + batch(5, b"again"))
    os.utime(log, ns=(0, 0))  # an mtime change, in spite of the coarse clock
    assert log.stat().st_size == 2 * size
    after = numbers(tree)
    same = [one == other for one, other in zip(before, after, strict=True)]
    assert same == [False, False, False, False, True]


def test_a_listing_goes_on_after_a_replacement(log_dir: Path, tree: Tree) -> None:
    directory = directory_of(tree, "t/0/offset")
    runs = directory.readdir(0)
    assert len(list(next(runs).entries)) == 2
    for path in (log_dir / "t-0").glob(f"{0:020}.*"):
        path.unlink()
    found = [entry[0] for run in runs for entry in run.entries]
    assert found[-4:] == [b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 1, 2, 3],
        [0, 2, 3, 9],
        [7],
        # so near the end that several entries share a readdir offset; one follows a gap
        [MAX_OFFSET - 8, MAX_OFFSET - 6, MAX_OFFSET - 5],
    ],
)
def test_a_listing_tells_of_each_record_what_looking_it_up_tells(
    tmp_path: Path, offsets: list[int]
) -> None:
    log_dir = write_topic(tmp_path / "logs", map(batch, offsets), base_offset=offsets[0])
    node = directory_of(Tree(Engine(str(log_dir))), "t/0/offset")
    entries = [each for run in node.readdir(0) for each in run.entries if each[0].isdigit()]
    assert [int(each[0]) for each in entries] == offsets
    for found, inode, size, mtime_ns, _ in entries:
        attributes = node.child(found.decode()).attributes()
        assert (inode, size, mtime_ns) == (attributes.inode, attributes.size, attributes.mtime_ns)
    starts = [each[4] for each in entries]
    assert starts == sorted(starts)
    for start in starts:
        if start < MAX_OFFSET:  # shared by entries without a readdir offset of their own
            rest = [each[0] for run in node.readdir(start) for each in run.entries]
            assert rest == [each[0] for each in entries if each[4] > start]


def test_an_open_stream_holds_its_segments_and_no_longer(tmp_path: Path) -> None:
    """Uses more segments than the engine itself keeps open."""
    count = 600
    settings = TopicSettings(segment_bytes=len(batch(0)))
    directory = write_topic(tmp_path / "logs", map(batch, range(count)), settings)
    engine = Engine(str(directory))
    before = len(os.listdir("/proc/self/fd"))
    node = Tree(engine).resolve("t/0/values")
    assert isinstance(node, File)
    handle = node.open()
    for path in (directory / "t-0").glob("*.log"):
        path.unlink()
    assert bytes(handle.read(0, 1 << 20)) == b"value\n" * count
    handle.close()
    del handle
    engine.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_offsets_beyond_a_window(tmp_path: Path) -> None:
    """These need more than 36 bits, and still no two share a number."""
    first = (1 << 36) - 2
    batches = map(batch, range(first, first + 5))
    tree = Tree(Engine(str(write_topic(tmp_path / "logs", batches, base_offset=first))))
    offsets = directory_of(tree, "t/0/offset")
    listed = {entry.name: entry.attributes.inode for entry in offsets.list()}
    records = {name: number for name, number in listed.items() if name.isdigit()}
    assert list(map(int, records)) == list(range(first, first + 5))
    assert len(set(records.values())) == 5
    for name, number in records.items():
        assert tree.resolve(f"t/0/offset/{name}").inode == number
        assert tree.node(number).xattrs()["user.kafka.offset"] == name.encode()


def test_the_greatest_offsets(tmp_path: Path) -> None:
    first = (1 << 63) - 4
    batches = map(batch, range(first, first + 3))
    tree = Tree(Engine(str(write_topic(tmp_path / "logs", batches, base_offset=first))))
    offsets = directory_of(tree, "t/0/offset")
    entries = list(offsets.list())
    assert [entry.name for entry in entries[2:]] == [str(first + at) for at in range(3)]
    assert all(entry.readdir_offset < 1 << 63 for entry in entries)
    assert tree.resolve(f"t/0/offset/{first + 2}").attributes().size == 5
