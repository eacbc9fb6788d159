"""Tests the engine: topics and partitions, opened on demand and kept up to date."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import ConfigError, LogDirError, UnknownPartition, UnknownTopic
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from tests.building import BatchFields, build_batch
from tests.conftest import differences, fingerprint
from tests.logs import write_log_dir, write_partition
from tests.reading import read, scan


def partition(root: Path, name: str, count: int = 4, value: bytes = b"v") -> None:
    batches = [
        build_batch([SimpleRecord(100 + n, None, value)], BatchFields(base_offset=n))
        for n in range(count)
    ]
    write_partition(root / name, batches)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Makes a log directory: orders (0, 1, 3), a.b-c (0), and a directory that is no partition."""
    log_dir = tmp_path / "logs"
    write_log_dir(log_dir, {("orders", 0): 4})
    for name in ("orders-0", "orders-1", "orders-3", "a.b-c-0"):
        partition(log_dir, name)
    partition(log_dir, "gone-0.0123456789abcdef0123456789abcdef-delete")
    return log_dir


def open_below(root: Path) -> list[str]:
    """Returns what this process has open below a directory."""
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(f"{root}/")]


@pytest.fixture
def engine(root: Path) -> Engine:
    return Engine(str(root))


def test_topics_and_their_partitions(engine: Engine, root: Path) -> None:
    assert dict(engine.topics()) == {"a.b-c": [0], "orders": [0, 1, 3]}
    assert engine.log("orders", 3).path == str(root / "orders-3")
    assert len(read(engine.log("a.b-c", 0).view())) == 4


def test_what_is_not_there(engine: Engine) -> None:
    with pytest.raises(UnknownPartition, match=r"orders has no partition 2 \(it has 0 to 1, 3\)"):
        engine.log("orders", 2)
    for topic in ("gone", "nothing", "", "../orders"):
        with pytest.raises(UnknownTopic):
            engine.log(topic, 0)


def test_a_partition_that_is_removed_leaves_nothing_open(engine: Engine, root: Path) -> None:
    kept, removed = engine.log("orders", 0), engine.log("orders", 1)
    assert len(read(kept.view())) == len(read(removed.view())) == 4
    assert any(f"{root}/orders-1" in path for path in open_below(root))
    shutil.rmtree(root / "orders-1")
    engine.close_removed()
    assert [path for path in open_below(root) if "orders-1" in path] == []
    assert engine.opened() == [kept]
    assert engine.log("orders", 0) is kept
    partition(root, "orders-1")
    assert engine.log("orders", 1) is not removed


def test_a_log_is_opened_once(engine: Engine) -> None:
    assert engine.opened() == []
    log = engine.log("orders", 0)
    assert engine.log("orders", 0) is log
    assert engine.opened() == [log]
    assert engine.log("orders", 1) is not log


@pytest.mark.parametrize("at_ms", [None, 1_700_000_000_000])
def test_an_engine_that_is_dropped_closes_its_files_at_once(
    corpus: Callable[[str], Path], at_ms: int | None
) -> None:
    """Also after a refusal that names the id in the cluster's metadata."""
    brokers = [str(corpus("cluster43") / str(node)) for node in (1, 2, 3)]
    engine = Engine(brokers, at_ms=at_ms)
    assert engine.topics()
    engine.topic_id("orders")
    engine.log("orders", 0).view()
    with pytest.raises(LogDirError, match="the cluster's metadata has"):
        engine.log("reborn", 0)
    assert any(open_below(Path(path)) for path in brokers)
    gone = weakref.ref(engine)
    gc.disable()
    try:
        del engine
        assert gone() is None
        assert [open_below(Path(path)) for path in brokers] == [[], [], []]
    finally:
        gc.enable()


def test_a_file_of_the_metadata_log_that_cannot_be_read_is_a_problem(
    corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    there = tmp_path / "broker"
    shutil.copytree(corpus("cluster43") / "1", there)
    fifo = there / "__cluster_metadata-0" / "00000000000000999999.log"
    os.mkfifo(fifo)
    engine = Engine(str(there))
    assert engine.problems == []  # nothing is read before it is used
    assert engine.metadata().topics
    assert [each for each in engine.problems if str(fifo) in each] == engine.problems != []


def test_several_directories_are_one(root: Path, tmp_path: Path) -> None:
    second = tmp_path / "more"
    write_log_dir(second, {}, directory_id="ZGlyZWN0b3J5LXR3by4uLg")
    partition(second, "orders-2", value=b"second")
    for paths in (f"{root},{second}", [str(root), str(second)]):
        engine = Engine(paths)
        assert engine.topics()["orders"] == [0, 1, 2, 3]
        assert {record.value for record in read(engine.log("orders", 2).view())} == {b"second"}


def test_partitions_come_and_go(engine: Engine, root: Path) -> None:
    log = engine.log("orders", 1)
    view = log.view()
    view.pin()
    shutil.rmtree(root / "orders-1")
    partition(root, "new-0")
    assert dict(engine.topics()) == {"a.b-c": [0], "new": [0], "orders": [0, 3]}
    with pytest.raises(UnknownPartition):
        log.view()
    with pytest.raises(UnknownPartition):
        engine.log("orders", 1)
    assert engine.opened() == []
    assert len(read(view)) == 4
    partition(root, "orders-1", 2, b"again")
    again = engine.log("orders", 1)
    assert [record.value for record in read(again.view())] == [b"again"] * 2


def test_the_log_start_offset_is_that_of_its_checkpoint(root: Path) -> None:
    checkpoint = root / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n2\norders 0 2\norders 1 99\n")
    engine = Engine(str(root))
    view = engine.log("orders", 0).view()
    assert (view.start_offset, view.end_offset) == (2, 4)
    assert [record.offset for record in read(view)] == [2, 3]
    emptied = engine.log("orders", 1).view()
    assert (emptied.start_offset, emptied.end_offset) == (99, 99)
    assert engine.log("orders", 3).view().start_offset == 0
    checkpoint.write_text("0\n1\norders 0 3\n")
    assert engine.log("orders", 0).view().start_offset == 3
    assert engine.log("orders", 1).view().start_offset == 0


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"7\n1\norders 0 2\n", b"0\n1\norders", bytes(range(200, 250)), b"0\n1\na b c\n"],
)
def test_a_torn_checkpoint_never_stops_a_read(root: Path, content: bytes) -> None:
    (root / "log-start-offset-checkpoint").write_bytes(content)
    view = Engine(str(root)).log("orders", 0).view()
    assert (view.start_offset, view.end_offset) == (0, 4)


def test_settings_of_a_run(root: Path) -> None:
    engine = Engine(str(root), {"kafkafs.max.batch.bytes": "70"})
    assert engine.context.limits.max_batch_bytes == 70
    with pytest.raises(ConfigError):
        Engine(str(root), {"kafkafs.max.batch.bytes": "a lot"})
    with pytest.raises(ConfigError):
        Engine(str(root), {"no.such.setting": "1"})


def test_what_is_no_log_directory(tmp_path: Path, root: Path) -> None:
    for path, why in (
        (tmp_path / "nothing", "no such directory"),
        (tmp_path, "give"),
        (root / "orders-0", "the directory of one partition; give the log directory above it"),
        (root / "meta.properties", "not a directory"),
    ):
        with pytest.raises(LogDirError, match=why):
            Engine(str(path))


def test_close_forgets_open_files(engine: Engine) -> None:
    log = engine.log("orders", 0)
    assert len(read(log.view())) == 4
    assert len(engine.context.files) > 0
    engine.close()
    assert len(engine.context.files) == 0
    assert len(read(engine.log("orders", 0).view())) == 4


def test_damage_is_kept_with_its_log(engine: Engine, root: Path) -> None:
    segment = root / "orders-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[65] ^= 1
    segment.write_bytes(data)
    log = engine.log("orders", 0)
    _, [damage] = scan(log.view())
    assert log.report(damage.error)
    assert not log.report(damage.error)
    assert list(log.damage) == [(str(segment), 0)]


def test_reading_changes_nothing_in_the_directory(root: Path) -> None:
    before = fingerprint(root)
    engine = Engine(str(root))
    for topic, partitions in engine.topics().items():
        engine.topic_id(topic)
        engine.topic_config(topic)
        for number in partitions:
            view = engine.log(topic, number).view()
            read(view)
            view.find(1)
            view.offset_for_time(101)
    assert engine.problems == []
    assert differences(before, fingerprint(root)) == []
