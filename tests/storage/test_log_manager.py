"""Tests the engine that writes: locking directories, creating and deleting topics, opening logs."""

from __future__ import annotations

import errno
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import ConfigSource
from kafkafs.storage.errors import (
    ConfigError,
    CorruptError,
    InvalidPartitions,
    InvalidTopic,
    LogDirError,
    LogDirLocked,
    LogDirOffline,
    PartitionNotOpened,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from kafkafs.storage.format.files.checkpoints import (
    format_offsets,
    parse_clean_shutdown,
    parse_offsets,
    parse_partition_metadata,
)
from kafkafs.storage.format.files.names import METADATA_TOPIC
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_dirs import writable_log_dirs
from kafkafs.storage.log_dirs.background_tasks import NOT_MAINTAINED
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests import answers
from tests.faults import FailingCalls
from tests.logs import write_log_dir
from tests.reading import read
from tests.threads import in_threads, repeating, running
from tests.waiting import PATIENCE_SECONDS, wait_until

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
Corpus = Callable[[str], Path]
FILES = {
    "recovery-points": "recovery-point",
    "start-offsets": "log-start",
    "high-watermarks": "replication",
}


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


def append(engine: LogManager, topic: str, *values: bytes, partition: int = 0) -> int:
    """Appends values with the clock's time; returns the first offset."""
    records = RecordColumns.from_values(list(values), timestamp=engine.clock.now_ms())
    return engine.writer(topic, partition).append_records(records).first_offset


def values(engine: Engine, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read(engine.log(topic, partition).view())]


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


def checkpoint(root: Path, name: str) -> dict[tuple[str, int], int]:
    return parse_offsets((root / f"{name}-offset-checkpoint").read_bytes())


def crashed(root: Path, target: Path) -> Path:
    """Copies the directory as a killed process leaves it: written, but not closed."""
    shutil.copytree(root, target)
    return target


# -- opening and closing --------------------------------------------------------------------------


def test_what_was_written_is_there_the_next_time(root: Path) -> None:
    with LogManager(str(root)) as engine:
        topic_id = engine.create_topic("orders", 2)
        assert append(engine, "orders", b"a", b"b") == 0
        assert append(engine, "orders", b"c") == 2
        assert values(engine, "orders") == [b"a", b"b", b"c"]
        assert (root / ".lock").exists()
        assert not (root / ".kafka_cleanshutdown").exists()
    assert names(root) == {
        ".kafka_cleanshutdown",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "meta.properties",
        "orders-0",
        "orders-1",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert checkpoint(root, "recovery-point") == {("orders", 0): 3, ("orders", 1): 0}
    assert checkpoint(root, "replication") == {("orders", 0): 3, ("orders", 1): 0}
    assert checkpoint(root, "log-start") == {}
    metadata = parse_partition_metadata((root / "orders-1" / "partition.metadata").read_bytes())
    assert metadata.topic_id == topic_id
    assert Engine(str(root)).problems == []
    with LogManager(str(root)) as engine:
        assert engine.topic_id("orders") == topic_id
        assert append(engine, "orders", b"d") == 3
        assert values(engine, "orders") == [b"a", b"b", b"c", b"d"]


def test_two_engines_refuse_each_other(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
        with pytest.raises(LogDirLocked, match="this process"):
            LogManager(str(root))
        append(engine, "orders", b"still here")
    LogManager(str(root)).close()


def test_one_that_cannot_be_opened_gives_back_the_others(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "kafkafs.topics").write_text("damaged")
    write_log_dir(tmp_path / "b", {})
    with pytest.raises(CorruptError):
        LogManager(f"{tmp_path}/a,{tmp_path}/b")
    LogManager(str(tmp_path / "a")).close()
    with pytest.raises(ConfigError):
        LogManager(str(tmp_path / "new"), {"retention.ms": "soon"})
    assert not (tmp_path / "new").exists()


def test_closing_twice_is_harmless_and_then_nothing_is_taken(root: Path) -> None:
    engine = LogManager(str(root))
    engine.create_topic("orders")
    writer = engine.writer("orders", 0)
    engine.close()
    engine.close()
    with pytest.raises(LogDirOffline):
        writer.append_records(RecordColumns.from_values([b"late"]))
    assert values(Engine(str(root)), "orders") == []


def test_after_a_crash_everything_that_was_written_is_taken_up(root: Path, tmp_path: Path) -> None:
    settings = {"segment.ms": "1", "log.initial.task.delay.ms": "0"}
    with LogManager(str(root), settings) as engine:
        engine.create_topic("orders")
        for number in range(5):
            append(engine, "orders", b"%d" % number)
        copy = crashed(root, tmp_path / "copy")
    recovered = []
    with LogManager(
        str(copy), recovered=lambda key, planned: recovered.append((key, planned))
    ) as engine:
        assert values(engine, "orders") == [b"0", b"1", b"2", b"3", b"4"]
        assert append(engine, "orders", b"5") == 5
    [(key, planned)] = recovered
    assert key == ("orders", 0)
    assert planned.faults == ()
    assert (copy / ".kafka_cleanshutdown").exists()


def test_a_torn_tail_is_cut_and_told(root: Path, tmp_path: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
        append(engine, "orders", b"whole")
        append(engine, "orders", b"torn")
        copy = crashed(root, tmp_path / "copy")
    log = copy / "orders-0" / f"{0:020}.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 3)
    faults: list[CorruptError] = []
    with LogManager(str(copy), recovered=lambda _, plan: faults.extend(plan.faults)) as engine:
        assert values(engine, "orders") == [b"whole"]
        assert append(engine, "orders", b"next") == 1
    assert [fault.file for fault in faults] == [str(log)]


def test_after_a_crash_the_checkpoints_tell_of_nothing_that_is_lost(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
        append(engine, "orders", b"x")
    (root / ".kafka_cleanshutdown").unlink()
    for name in ("replication", "recovery-point"):
        (root / f"{name}-offset-checkpoint").write_bytes(format_offsets({("orders", 0): 9}))
    with LogManager(str(root)):
        assert checkpoint(root, "replication") == {("orders", 0): 1}
        assert checkpoint(root, "recovery-point") == {("orders", 0): 1}


def test_loading_is_told_partition_by_partition(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders", 5)
    told: list[tuple[int, int]] = []
    with LogManager(str(root), loaded=lambda done, of: told.append((done, of))):
        assert told == [(number, 5) for number in range(1, 6)]


def test_an_opening_that_is_interrupted_leaves_the_rest(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("a", 50)
    done: list[int] = []
    has_stopped = threading.Event()

    class NotedExecutor(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            if cancel_futures:  # not that of a manager which an earlier test left, and closes now
                has_stopped.set()
            super().shutdown(wait)

    def loaded(count: int, _: int) -> None:
        done.append(count)
        # A signal that arrives just before the main thread waits for a lock does not end the wait.
        for _ in range(6):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if has_stopped.wait(PATIENCE_SECONDS / 6):
                break

    # Only this executor is noted: any thread may shut down one that earlier tests left.
    monkeypatch.setattr(writable_log_dirs, "ThreadPoolExecutor", NotedExecutor)
    one_by_one = {"num.recovery.threads.per.data.dir": "1"}
    with pytest.raises(KeyboardInterrupt):
        LogManager(str(root), one_by_one, loaded=loaded)
    # On a busy machine, the main thread may hear of it only after another partition.
    assert len(done) < 25
    with LogManager(str(root)) as engine:  # it is not locked
        assert len(engine.writers()) == 50


def test_a_partition_that_cannot_be_opened_is_told_and_the_others_serve(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders", 2)
        append(engine, "orders", b"x", partition=1)
    log = root / "orders-0" / f"{0:020}.log"
    log.unlink()
    log.mkdir()
    with LogManager(str(root)) as engine:
        assert [line for line in engine.problems if "orders-0: not opened" in line]
        with pytest.raises(PartitionNotOpened, match="a directory, not a regular file"):
            engine.writer("orders", 0)
        assert append(engine, "orders", b"y", partition=1) == 1
    # Its checkpoints are kept, and it stays marked as clean, because it may be repaired.
    assert checkpoint(root, "recovery-point") == {("orders", 0): 0, ("orders", 1): 2}
    assert (root / ".kafka_cleanshutdown").exists()
    (root / ".kafka_cleanshutdown").unlink()
    LogManager(str(root)).close()
    assert not (root / ".kafka_cleanshutdown").exists()


def test_one_partition_in_two_directories_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_log_dir(tmp_path / name, {}, directory_id="")
        (tmp_path / name / "orders-0").mkdir()
        meta = tmp_path / name / "meta.properties"
        meta.write_text(meta.read_text().replace("directory.id=\n", ""))
    with pytest.raises(LogDirError, match=r"two/orders-0: the same partition as .*one/orders-0"):
        LogManager(f"{tmp_path}/one,{tmp_path}/two")


@pytest.mark.parametrize("name", ["kafka43-clean", "kafka39", "kafka28"])
def test_a_brokers_directory_is_taken_over_and_given_back(
    writable_corpus: Corpus, name: str
) -> None:
    root = writable_corpus(name)
    before = {path: path.read_bytes() for path in root.glob("*/*.log")}
    points = checkpoint(root, "recovery-point")
    starts = checkpoint(root, "log-start")
    marker = (root / ".kafka_cleanshutdown").read_bytes()
    cleaned = (root / "cleaner-offset-checkpoint").read_bytes()
    quorum = {path: path.read_bytes() for path in root.glob(f"{METADATA_TOPIC}-0/*")}
    deleted = {path: path.stat().st_mtime_ns for path in root.glob("*-delete")}
    with LogManager(str(root)) as engine:
        assert [line for line in engine.problems if "not opened" in line] == []
        writers = engine.writers()
        for key, told in answers.offsets(name).items():
            assert (writers[key].start_offset, writers[key].end_offset) == (
                told.beginning,
                told.end,
            )
            assert writers[key].last_stable_offset == told.last_stable
    assert {path: path.read_bytes() for path in root.glob("*/*.log")} == before
    assert checkpoint(root, "recovery-point") == points
    assert checkpoint(root, "log-start") == starts
    assert (root / "cleaner-offset-checkpoint").read_bytes() == cleaned
    assert {path: path.read_bytes() for path in root.glob(f"{METADATA_TOPIC}-0/*")} == quorum
    epoch = parse_clean_shutdown((root / ".kafka_cleanshutdown").read_bytes())
    assert epoch == parse_clean_shutdown(marker)
    assert {path: path.stat().st_mtime_ns for path in root.glob("*-delete")} == deleted


# -- topics ---------------------------------------------------------------------------------------


@pytest.fixture
def engine(root: Path, clock: SetClock) -> Iterator[LogManager]:
    with LogManager(str(root), clock=clock) as opened:
        yield opened


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "../x", "a b", "x" * 250, "ü", "a\n", METADATA_TOPIC]
)
def test_names_that_no_topic_can_have(engine: LogManager, root: Path, topic: str) -> None:
    before = names(root)
    with pytest.raises(InvalidTopic):
        engine.create_topic(topic)
    assert names(root) == before


def test_what_exists_is_not_made_again(engine: LogManager) -> None:
    engine.create_topic("a.b")
    with pytest.raises(TopicExists, match=r"topic a\.b exists"):
        engine.create_topic("a.b")
    with pytest.raises(TopicExists, match=r"a_b: too similar to the existing a\.b"):
        engine.create_topic("a_b")
    engine.create_topic("a-b")


def test_numbers_of_partitions(engine: LogManager) -> None:
    for count in (0, -1, 10_001):
        with pytest.raises(InvalidPartitions):
            engine.create_topic("orders", count)
    engine.create_topic("orders", 2)
    engine.create_partitions("orders", 4)
    assert engine.topics()["orders"] == [0, 1, 2, 3]
    assert {engine.partition_dir("orders", n).topic_id() for n in range(4)} == {
        engine.topic_id("orders")
    }
    for count in (4, 1):
        with pytest.raises(InvalidPartitions, match="has 4 partitions"):
            engine.create_partitions("orders", count)
    with pytest.raises(UnknownTopic):
        engine.create_partitions("nothing", 2)


def test_partitions_with_numbers_of_their_own(engine: LogManager) -> None:
    engine.create_topic("orders", [1, 4])
    engine.add_partitions("orders", [0, 6])
    assert engine.topics()["orders"] == [0, 1, 4, 6]
    with pytest.raises(InvalidPartitions, match="orders already has partition 4"):
        engine.add_partitions("orders", [2, 4])
    with pytest.raises(InvalidPartitions):
        engine.create_topic("none", [])


def test_settings_that_an_older_kafka_accepted(engine: LogManager) -> None:
    old = {"segment.bytes": "800000"}
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        engine.create_topic("a", 1, old)
    engine.create_topic("a", 1, old, carried_over=True)
    engine.set_topic_config("a", {"retention.ms": "5"})
    assert engine.topic_config("a").changed == {**old, "retention.ms": "5"}
    with pytest.raises(ConfigError, match=r"segment\.bytes"):
        engine.set_topic_config("a", {"segment.bytes": "700000"})


def test_a_topics_id_can_be_given(engine: LogManager) -> None:
    given = "Xe5sKcRJQpy0cZzSZrGPlA"
    assert engine.create_topic("orders", topic_id=given) == given == engine.topic_id("orders")
    with pytest.raises(InvalidTopic, match="not a topic's id"):
        engine.create_topic("other", topic_id="../../x")


def test_a_topic_that_cannot_be_finished_leaves_nothing(root: Path, engine: LogManager) -> None:
    before = names(root)
    with (
        replaced(FailingCalls(2, errno.ENOSPC, ("mkdir",), lasting=True)),
        pytest.raises(OSError, match="No space"),
    ):
        engine.create_topic("orders", 3, {"retention.ms": "5"})
    assert "orders" not in engine.topics()
    assert engine.stored_configs("orders") == {}
    engine.run("deletion")
    assert {name for name in names(root) - before if "-delete" not in name} == {"kafkafs.topics"}
    engine.create_topic("orders", 3)
    assert append(engine, "orders", b"x", partition=2) == 0


def test_something_else_of_a_partitions_name_is_left_alone(
    root: Path, engine: LogManager, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").touch()
    (root / "a-1").symlink_to(tmp_path / "elsewhere")
    (root / "b-0").write_text("a file")
    for topic in ("a", "b"):
        with pytest.raises(LogDirError, match="in the way of a new partition"):
            engine.create_topic(topic, 2)
        assert topic not in engine.topics()
    assert (tmp_path / "elsewhere" / "precious").exists()
    assert (root / "b-0").read_text() == "a file"
    engine.create_topic("c")  # no directory went offline
    assert append(engine, "c", b"x") == 0


def test_what_is_not_there(engine: LogManager) -> None:
    engine.create_topic("orders")
    with pytest.raises(UnknownTopic):
        engine.writer("nothing", 0)
    with pytest.raises(UnknownPartition):
        engine.writer("orders", 1)
    with pytest.raises(UnknownTopic):
        engine.delete_topic("nothing")
    with pytest.raises(UnknownTopic):
        engine.set_topic_config("nothing", {})


def test_a_deleted_topics_files_wait_for_the_delay(
    root: Path, engine: LogManager, clock: SetClock
) -> None:
    first_id = engine.create_topic("orders", 2, {"retention.ms": "5"})
    append(engine, "orders", b"old")
    writer = engine.writer("orders", 0)
    reader = engine.log("orders", 0).view()
    reader.pin()
    engine.delete_topic("orders")
    assert "orders" not in engine.topics()
    with pytest.raises(UnknownTopic):
        engine.writer("orders", 0)
    with pytest.raises(UnknownPartition):
        writer.append_records(RecordColumns.from_values([b"late"]))
    doomed = {name for name in names(root) if name.endswith("-delete")}
    assert sorted(name.split(".")[0] for name in doomed) == ["orders-0", "orders-1"]
    assert checkpoint(root, "recovery-point") == {}
    # A new topic of the same name does not inherit anything.
    assert engine.create_topic("orders") != first_id
    assert engine.topic_config("orders").changed == {}
    assert append(engine, "orders", b"new") == 0
    clock.advance(59_999)
    engine.run("deletion")
    assert doomed <= names(root)
    assert [record.value for record in read(reader)] == [b"old"]
    clock.advance(1)
    engine.run("deletion")
    assert not doomed & names(root)
    assert values(engine, "orders") == [b"new"]


def test_a_topic_is_deleted_only_if_nothing_was_appended(engine: LogManager) -> None:
    engine.create_topic("orders", 2)
    assert not engine.delete_unchanged_topic("orders", {0: 0})
    assert not engine.delete_unchanged_topic("orders", {0: 0, 1: 0, 2: 0})
    append(engine, "orders", b"a", partition=1)
    assert not engine.delete_unchanged_topic("orders", {0: 0, 1: 0})
    assert append(engine, "orders", b"b") == 0  # it is unchanged
    writer = engine.writer("orders", 0)
    assert engine.delete_unchanged_topic("orders", {0: 1, 1: 1})
    assert "orders" not in engine.topics()
    with pytest.raises(UnknownPartition):
        writer.append_records(RecordColumns.from_values([b"late"]))
    with pytest.raises(UnknownTopic):
        engine.delete_unchanged_topic("orders", {0: 1, 1: 1})


def test_deleting_an_unchanged_topic_races_with_appends(engine: LogManager) -> None:
    """An acknowledged append never ends up in a topic that was deleted as unchanged."""
    for _ in range(30):
        engine.create_topic("raced")
        writer = engine.writer("raced", 0)
        taken: list[int] = []

        def append_until_refused(writer: LogWriter = writer, taken: list[int] = taken) -> None:
            with suppress(UnknownPartition):
                while len(taken) < 200:
                    columns = RecordColumns.from_values([b"x"])
                    taken.append(writer.append_records(columns).last_offset)

        with running(append_until_refused):
            end = writer.end_offset
            while not engine.delete_unchanged_topic("raced", {0: end}):
                end = writer.end_offset
        assert len(taken) == end


def test_checkpoints_never_tell_a_new_topic_of_an_old_one(engine: LogManager) -> None:
    """This includes checkpoints that another thread writes during deletion and re-creation."""

    def checkpoint() -> None:
        for task in ("start-offsets", "recovery-points", "high-watermarks"):
            engine.run(task)

    with repeating(checkpoint):
        for _ in range(25):
            engine.create_topic("again")
            writer = engine.writer("again", 0)
            assert (writer.start_offset, writer.recovery_point) == (0, 0)
            assert append(engine, "again", b"x") == 0
            writer.delete_records(1)
            engine.delete_topic("again")


def test_what_a_deleted_topic_left_stays_at_the_next_start(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
        engine.delete_topic("orders")
    left = [name for name in names(root) if name.endswith("-delete")]
    assert len(left) == 1
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
    assert [name for name in names(root) if name.endswith("-delete")] == left


def test_checkpoints_of_a_topic_that_is_no_more_never_count(root: Path, tmp_path: Path) -> None:
    write_log_dir(root, {("orders", 0): 90}, start_offsets={("orders", 0): 80})
    with LogManager(str(root)) as engine:
        engine.create_topic("orders")
        append(engine, "orders", b"x")
        copy = crashed(root, tmp_path / "copy")
    with LogManager(str(copy)) as engine:
        assert values(engine, "orders") == [b"x"]
        assert engine.writer("orders", 0).start_offset == 0


# -- several directories --------------------------------------------------------------------------


def test_partitions_go_where_the_fewest_are(tmp_path: Path) -> None:
    with LogManager(f"{tmp_path}/one,{tmp_path}/two,{tmp_path}/three") as engine:
        engine.create_topic("a", 4)
        engine.create_topic("b", 2)
        placed = {
            (topic, number): Path(engine.partition_dir(topic, number).path).parent.name
            for topic, numbers in engine.topics().items()
            for number in numbers
        }
    assert placed == {
        ("a", 0): "one", ("a", 1): "two", ("a", 2): "three", ("a", 3): "one",
        ("b", 0): "two", ("b", 1): "three",
    }  # fmt: skip


def test_a_failed_directory_goes_offline_and_the_others_go_on(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    engine = LogManager(f"{one},{two}")
    engine.create_topic("a", 4)  # 0 and 2 in the first directory, 1 and 3 in the second
    for number in range(4):
        append(engine, "a", b"before", partition=number)
    engine.writer("a", 0).flush()
    append(engine, "a", b"unsynced")
    with replaced(FailingCalls(0, errno.EIO, ("fsync",))), pytest.raises(LogDirOffline):
        engine.writer("a", 0).flush()
    for number in (0, 2):
        with pytest.raises(LogDirOffline, match="one: offline"):
            engine.writer("a", number)
    assert append(engine, "a", b"after", partition=1) == 1
    assert [line for line in engine.problems if "one: offline" in line]
    for task in engine.task_names:
        engine.run(task)
    # New partitions go to the other directory, and nothing more is written to this one.
    before = names(one)
    engine.create_topic("b", 2, {"retention.ms": "5"})
    assert {Path(engine.partition_dir("b", number).path).parent for number in (0, 1)} == {two}
    with pytest.raises(LogDirOffline):
        engine.delete_topic("a")
    engine.close()
    assert names(one) <= before
    assert not (one / ".kafka_cleanshutdown").exists()
    assert (two / ".kafka_cleanshutdown").exists()
    with LogManager(f"{one},{two}") as engine:
        assert values(engine, "a")[:1] == [b"before"]
        assert values(engine, "a", 1) == [b"before", b"after"]
        # It has the config that the failed directory missed.
        assert engine.topic_config("b").config.retention_ms == 5
        assert (one / "kafkafs.topics").read_bytes() == (two / "kafkafs.topics").read_bytes()


def test_all_directories_offline(root: Path) -> None:
    engine = LogManager(str(root))
    engine.create_topic("a")
    append(engine, "a", b"x")
    with replaced(FailingCalls(0, errno.EIO, ("fsync",))), pytest.raises(LogDirOffline):
        engine.writer("a", 0).flush()
    for call in (
        lambda: engine.create_topic("b"),
        lambda: engine.delete_topic("a"),
        lambda: engine.set_topic_config("a", {"retention.ms": "5"}),
        lambda: engine.writer("a", 0),
    ):
        with pytest.raises(LogDirOffline):
            call()
    engine.close()
    LogManager(str(root)).close()


def test_a_full_disk_can_be_tried_again(root: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("a")
        append(engine, "a", b"x")
        for task, name in FILES.items():
            # A correct file would be left alone.
            (root / f"{name}-offset-checkpoint").write_bytes(b"0\n1\na 0 77\n")
            with (
                replaced(FailingCalls(0, errno.ENOSPC, ("pwritev",))),
                pytest.raises(OSError, match="No space"),
            ):
                engine.run(task)
            engine.run(task)
        with (
            replaced(FailingCalls(0, errno.ENOSPC, ("pwritev",))),
            pytest.raises(OSError, match="No space"),
        ):
            engine.set_topic_config("a", {"retention.ms": "5"})
        assert engine.stored_configs("a") == {}
        engine.set_topic_config("a", {"retention.ms": "5"})
        # It is in the file, but may not be durable.
        with (
            replaced(FailingCalls(3, errno.EMFILE, ("open",))),
            pytest.raises(OSError, match="Too"),
        ):
            engine.set_topic_config("a", {"retention.ms": "6"})
        engine.set_topic_config("a", {"retention.ms": "5"})
        assert "retention.ms = 5" in (root / "kafkafs.topics").read_text()
        with (
            replaced(FailingCalls(0, errno.ENOSPC, ("pwritev",))),
            pytest.raises(OSError, match="No space"),
        ):
            append(engine, "a", b"y")
        assert append(engine, "a", b"z") == 1
        assert engine.problems == []
    assert values(Engine(str(root)), "a") == [b"x", b"z"]
    assert (root / ".kafka_cleanshutdown").exists()


def test_what_cannot_be_closed_is_not_called_clean(root: Path) -> None:
    engine = LogManager(str(root))
    engine.create_topic("a")
    append(engine, "a", b"x")
    with replaced(FailingCalls(0, errno.EIO, ("fsync",))), pytest.raises(LogDirOffline):
        engine.close()
    assert not (root / ".kafka_cleanshutdown").exists()
    with LogManager(str(root)) as again:
        assert values(again, "a") == [b"x"]


# -- configs --------------------------------------------------------------------------------------


def test_where_a_setting_comes_from(root: Path) -> None:
    with LogManager(str(root), {"log.retention.hours": "1"}) as engine:
        engine.create_topic("a")
        found = engine.topic_config("a")
        assert found.config.retention_ms == 3_600_000
        assert found.sources["retention.ms"] is ConfigSource.RUN_BROKER
        engine.set_topic_config("a", {"retention.ms": "5", "cleanup.policy": "compact"})
        assert engine.topic_config("a").sources["retention.ms"] is ConfigSource.TOPIC_FILE
        assert engine.writer("a", 0).config.retention_ms == 5
        engine.set_topic_config("a", {"retention.ms": None})
        assert engine.writer("a", 0).config.retention_ms == 3_600_000
        assert engine.writer("a", 0).config.cleanup_policy == ("compact",)
    with LogManager(str(root), {"retention.ms": "7"}) as engine:
        assert engine.writer("a", 0).config.retention_ms == 7
        assert engine.writer("a", 0).config.cleanup_policy == ("compact",)
        engine.set_topic_config("a", {"retention.ms": "9"})
        assert engine.writer("a", 0).config.retention_ms == 7  # this run's configs take precedence


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"retention.ms": "-2"}, "at least -1"),
        ({"retention.hours": "1"}, "no such config"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, "is greater than"),
        ({"segment.bytes": "100"}, "at least 1048576"),
    ],
)
def test_settings_that_kafka_would_refuse_change_nothing(
    engine: LogManager, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        engine.create_topic("a", configs=changes)
    assert "a" not in engine.topics()
    engine.create_topic("a", configs={"internal.segment.bytes": "100"})
    with pytest.raises(ConfigError, match=why):
        engine.set_topic_config("a", changes)
    assert engine.stored_configs("a") == {"internal.segment.bytes": "100"}
    assert engine.writer("a", 0).config.segment_size == 100


# -- tasks ----------------------------------------------------------------------------------------


def segments(root: Path, name: str) -> list[str]:
    return sorted(path.name for path in (root / name).glob("*.log*"))


def test_retention_and_the_removal_of_what_it_deleted(
    root: Path, engine: LogManager, clock: SetClock
) -> None:
    engine.create_topic("a", configs={"retention.ms": str(DAY_MS), "segment.ms": "1000"})
    for _ in range(3):
        append(engine, "a", b"x")
        clock.advance(DAY_MS // 2)
    assert segments(root, "a-0") == [f"{base:020}.log" for base in range(3)]
    assert engine.run("retention") != {}
    assert segments(root, "a-0") == [f"{0:020}.log.deleted", f"{1:020}.log", f"{2:020}.log"]
    assert engine.log("a", 0).view().start_offset == 1
    assert engine.run("retention") == {}
    clock.advance(60_000)
    engine.run("deletion")
    assert segments(root, "a-0") == [f"{base:020}.log" for base in (1, 2)]
    # All segments are old: a new one is rolled first, and then all others are deleted.
    clock.advance(10 * DAY_MS)
    engine.run("retention")
    assert engine.log("a", 0).view().start_offset == 3
    assert append(engine, "a", b"y") == 3
    assert values(engine, "a") == [b"y"]


def test_where_something_deleted_waits_is_known(root: Path, clock: SetClock) -> None:
    rolled = {"segment.ms": "1000"}

    def with_deleted(engine: LogManager) -> list[tuple[str, int]]:
        return [key for key, _ in engine.dirs.dirs[0].logs_with_deleted()]

    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("cut", configs=rolled)
        engine.create_topic("old", 2, {**rolled, "retention.ms": str(DAY_MS)})
        engine.create_topic("records", 2)
        for _ in range(3):
            for topic in ("cut", "old", "records"):
                append(engine, topic, b"x")
            clock.advance(DAY_MS // 2)
        assert with_deleted(engine) == []
        engine.run("retention")
        assert with_deleted(engine) == [("old", 0)]
        clock.advance(30_000)
        engine.writer("records", 0).delete_records(1)
        engine.truncate_to("cut", 0, 1)
        assert with_deleted(engine) == [("cut", 0), ("old", 0), ("records", 0)]
        # Files that cannot be removed stay in the list.
        clock.advance(30_000)
        with (
            replaced(FailingCalls(0, errno.ENOSPC, ("unlink",))),
            pytest.raises(OSError, match="No space"),
        ):
            engine.run("deletion")
        assert ("old", 0) in with_deleted(engine)
        engine.run("deletion")
        assert with_deleted(engine) == [("cut", 0), ("records", 0)]
        assert segments(root, "old-0") == [f"{base:020}.log" for base in (1, 2)]
        # A new topic with a deleted one's name has no deleted files.
        engine.delete_topic("cut")
        engine.create_topic("cut")
        assert with_deleted(engine) == [("records", 0)]
        clock.advance(60_000)
        engine.run("deletion")
        assert with_deleted(engine) == []
        clock.advance(DAY_MS)
        engine.run("retention")
    with LogManager(str(root), clock=clock, finds_deleted=True) as again:
        assert len(again.deleted()) == 2
        assert with_deleted(again) == []  # files found at the start have no deadline


def test_one_partition_that_fails_holds_up_no_other(
    engine: LogManager, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.create_topic("a", 3, {"retention.ms": "0"})
    for number in range(3):
        append(engine, "a", b"x", partition=number)
    clock.advance(10)

    def failing(now_ms: int | None = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine.writer("a", 1), "retain", failing)
    with pytest.raises(OSError, match="No space"):
        engine.run("retention")
    starts = [engine.writer("a", number).start_offset for number in range(3)]
    assert starts == [1, 0, 1]


def test_deleted_records_stay_deleted_after_the_checkpoint(root: Path, tmp_path: Path) -> None:
    with LogManager(str(root)) as engine:
        engine.create_topic("a")
        append(engine, "a", *[b"%d" % number for number in range(5)])
        assert engine.writer("a", 0).delete_records(3) == 3
        # Readers see it at once, before it is on disk.
        assert values(engine, "a") == [b"3", b"4"]
        assert checkpoint(root, "log-start") == {}
        engine.run("start-offsets")
        assert checkpoint(root, "log-start") == {("a", 0): 3}
        copy = crashed(root, tmp_path / "copy")
    assert values(Engine(str(root)), "a") == [b"3", b"4"]
    with LogManager(str(copy)) as engine:
        assert values(engine, "a") == [b"3", b"4"]


def test_flush_ms(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("often", configs={"flush.ms": "1000"})
        engine.create_topic("never")
        for topic in ("often", "never"):
            append(engine, topic, b"x")
        clock.advance(999)
        engine.run("flush")
        assert engine.writer("often", 0).recovery_point == 0
        clock.advance(1)
        engine.run("flush")
        engine.run("recovery-points")
        assert checkpoint(root, "recovery-point") == {("often", 0): 1, ("never", 0): 0}


def test_tasks_by_themselves(root: Path) -> None:
    settings = {
        "log.initial.task.delay.ms": "0",
        "replica.high.watermark.checkpoint.interval.ms": "5",
        "log.retention.check.interval.ms": "5",
        "retention.ms": "0",
    }
    with LogManager(str(root), settings, maintain=True) as engine:
        engine.create_topic("a")
        append(engine, "a", b"x")
        engine.start()
        wait_until(lambda: engine.writer("a", 0).start_offset == 1)
        wait_until(lambda: checkpoint(root, "replication") == {("a", 0): 1})
        assert [line for line in engine.problems if "retention" in line] == []


@pytest.fixture(params=["recovery-points", "start-offsets", "high-watermarks"])
def checkpoint_task(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_checkpoint_that_is_right_is_left_alone(
    root: Path, engine: LogManager, checkpoint_task: str
) -> None:
    file = root / f"{FILES[checkpoint_task]}-offset-checkpoint"
    engine.create_topic("a", 2)

    def run() -> bool:
        """Returns whether the task wrote the file."""
        before = file.stat().st_ino if file.exists() else 0
        engine.run(checkpoint_task)
        return file.stat().st_ino != before

    def change() -> int:
        """Changes all three offsets of a partition; returns their new value."""
        offset = append(engine, "a", b"x") + 1
        engine.writer("a", 0).flush()
        engine.writer("a", 0).delete_records(offset)
        return offset

    change()
    assert [run(), run()] == [True, False]
    # The file is damaged as by an editor, or missing.
    file.write_bytes(b"0\n0\n")
    assert [run(), run()] == [True, False]
    file.unlink()
    assert [run(), run()] == [True, False]
    # A file that is in place but may not be durable is written again.
    offset = change()
    with (
        replaced(FailingCalls(3, errno.EMFILE, ("open",))),
        pytest.raises(OSError, match="Too many"),
    ):
        run()
    assert checkpoint(root, FILES[checkpoint_task])["a", 0] == offset
    assert [run(), run()] == [True, False]


def test_what_deletes_runs_by_itself_only_for_those_who_maintain(
    root: Path, clock: SetClock
) -> None:
    """Without `maintain`, retention and the cleaner run only on request."""
    settings = {
        "log.initial.task.delay.ms": "0",
        "log.retention.check.interval.ms": "1",
        "log.cleaner.backoff.ms": "1",
        "log.flush.scheduler.interval.ms": "1",
        "retention.ms": "0",
    }
    with LogManager(str(root), settings) as engine:
        engine.create_topic("a")
        append(engine, "a", b"x")
        engine.start()
        statuses = {each.name: each for each in engine.task_status()}
        for name in ("retention", "cleaner"):
            assert statuses[name].why_not_scheduled == NOT_MAINTAINED
            assert statuses[name].as_json()["notScheduled"] == NOT_MAINTAINED
            assert statuses[name].next_run_ms == -1
        assert statuses["flush"].as_json()["notScheduled"] is None

        def runs(name: str) -> int:
            return next(each.runs for each in engine.task_status() if each.name == name)

        wait_until(lambda: runs("flush") > 20)
        assert (runs("retention"), runs("cleaner")) == (0, 0)
        assert values(engine, "a") == [b"x"]
        engine.run("retention")
        assert values(engine, "a") == []


def test_a_task_that_is_paused(root: Path) -> None:
    settings = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "5"}
    with LogManager(str(root), settings, maintain=True) as engine:
        engine.create_topic("a", configs={"retention.ms": "0"})
        engine.pause("retention")
        append(engine, "a", b"x")
        engine.start()
        planned = engine._tasks._runners["retention"]
        seen: list[int] = []  # the times of its rounds

        def is_seen() -> bool:
            seen.append(planned.next_run_ms)
            return len(set(seen)) > 5

        wait_until(is_seen)
        assert engine.writer("a", 0).start_offset == 0
        engine.run("retention")
        assert engine.writer("a", 0).start_offset == 1
        (status,) = [each for each in engine.task_status() if each.name == "retention"]
        assert (status.is_paused, status.runs, status.failures) == (True, 1, 0)
        append(engine, "a", b"y")
        engine.resume("retention")
        wait_until(lambda: engine.writer("a", 0).start_offset == 2)


def test_many_threads_at_once(root: Path) -> None:
    """With appends, topics created and deleted, configs and tasks, nothing is lost or hangs."""
    settings = {"log.initial.task.delay.ms": "0", "log.retention.check.interval.ms": "1"}

    def forty_times(work: Callable[[int], object]) -> Callable[[], None]:
        def run() -> None:
            for number in range(40):
                work(number)

        return run

    with LogManager(str(root), settings) as engine:
        engine.create_topic("kept", 3)
        engine.start()

        def change(number: int) -> None:
            engine.create_topic(f"short-{number % 2}", 2)
            append(engine, f"short-{number % 2}", b"x")
            engine.set_topic_config("kept", {"retention.ms": str(10**9 + number)})
            engine.delete_topic(f"short-{number % 2}")

        def append_to(partition: int) -> Callable[[int], object]:
            return lambda number: append(engine, "kept", b"%d" % number, partition=partition)

        in_threads(
            *[forty_times(append_to(partition)) for partition in (0, 1, 2, 0, 1)],
            forty_times(change),
            forty_times(lambda _: [engine.run(task) for task in engine.task_names]),
        )
    again = Engine(str(root))
    assert [len(values(again, "kept", number)) for number in range(3)] == [80, 80, 40]
    assert list(again.topics()) == ["kept"]


def test_a_truncated_log_is_checkpointed(root: Path) -> None:
    with LogManager(str(root), {"segment.ms": "1"}) as engine:
        engine.create_topic("a")
        for number in range(4):
            append(engine, "a", b"%d" % number)
        engine.writer("a", 0).flush()
        engine.run("recovery-points")
        (root / "cleaner-offset-checkpoint").write_bytes(format_offsets({("a", 0): 3}))
        engine.truncate_to("a", 0, 9)
        assert checkpoint(root, "recovery-point") == {("a", 0): 4}
        engine.truncate_to("a", 0, 2)
        assert checkpoint(root, "recovery-point") == {("a", 0): 2}
        base = engine.writer("a", 0).retention_state().segments[-1].base_offset
        assert checkpoint(root, "cleaner") == {("a", 0): base}
        assert append(engine, "a", b"again") == 2
        assert values(engine, "a") == [b"0", b"1", b"again"]


def test_a_topic_made_again_was_never_cleaned(tmp_path: Path) -> None:
    """Otherwise the cleaner would skip everything below the old offset."""
    with LogManager(str(tmp_path / "data")) as engine:
        compacted = {"cleanup.policy": "compact"}
        engine.create_topic("keys", 2, compacted)
        (log_dir,) = engine.dirs.dirs
        for number in (0, 1):
            log_dir.checkpoints.put_cleaner_offset(("keys", number), 5)
        engine.delete_topic("keys")
        engine.create_topic("keys", 2, compacted)
        assert log_dir.checkpoints.cleaner_offset(("keys", 0)) is None
        assert (tmp_path / "data/cleaner-offset-checkpoint").read_text() == "0\n0\n"
