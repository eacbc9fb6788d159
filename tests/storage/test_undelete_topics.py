"""Tests restoring what an engine deleted: partitions of several directories, and whole topics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import CannotUndelete, TopicExists, UnknownPartition
from kafkafs.storage.format.files.checkpoints import parse_offsets
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log.delete.deletions import NEVER_MS, UNKNOWN_MS, Cause
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import refuse_complaints
from tests.reading import read
from tests.writing import files

NOW = 1_700_000_000_000
DELAY_MS = 60_000
SMALL = {"internal.segment.bytes": "300", "retention.ms": "-1"}


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


def fill(engine: LogManager, topic: str, partition: int = 0, count: int = 12) -> None:
    for number in range(count):
        records = RecordColumns.from_values([b"%02d" % number + bytes(60)], timestamp=NOW)
        engine.writer(topic, partition).append_records(records)


def offsets(engine: Engine, topic: str, partition: int = 0) -> list[int]:
    return [record.offset for record in read(engine.log(topic, partition).view())]


def starts(root: Path) -> dict[tuple[str, int], int]:
    return parse_offsets((root / "log-start-offset-checkpoint").read_bytes())


# -- partitions ----------------------------------------------------------------------------------


def test_records_come_back_durably(root: Path, clock: SetClock, tmp_path: Path) -> None:
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("orders", 2, SMALL)
        fill(engine, "orders", 0)
        fill(engine, "orders", 1)
        engine.writer("orders", 0).delete_records(8)
        clock.advance(5000)
        engine.set_topic_config("orders", {"retention.bytes": "0"})
        engine.run("retention")
        engine.set_topic_config("orders", {"retention.bytes": None})
        engine.run("start-offsets")
        told = [(each.path, each.start_offset, each.cause) for each in engine.deleted()]
        assert told == [
            ("orders/0", 0, Cause.RECORDS),
            ("orders/0", 8, Cause.SIZE),
            ("orders/1", 0, Cause.SIZE),
        ]
        back = engine.undelete("orders", 0, 5)
        assert [(each.path, each.start_offset) for each in back] == [
            ("orders/0", 5),
            ("orders/0", 8),
        ]
        assert offsets(engine, "orders") == list(range(5, 12))
        assert starts(root)["orders", 0] == 5
        shutil.copytree(root, tmp_path / "killed")
        back = engine.undelete("orders")
        assert [each.path for each in back] == ["orders/0", "orders/1"]
        assert engine.deleted() == []
        refuse_complaints(engine)
    with LogManager(str(tmp_path / "killed"), clock=clock) as engine:
        assert offsets(engine, "orders") == list(range(5, 12))
        refuse_complaints(engine)


def test_what_is_not_there_is_said(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("orders", 1, SMALL)
        with pytest.raises(CannotUndelete, match=r"orders-0: .*: nothing was deleted recently"):
            engine.undelete("orders", 0)
        with pytest.raises(CannotUndelete, match=r"orders: .*: nothing was deleted recently"):
            engine.undelete("orders")
        with pytest.raises(UnknownPartition):
            engine.undelete("orders", 1)
        with pytest.raises(CannotUndelete, match=r"no.*: .*: it was not deleted recently"):
            engine.undelete("no")


def test_what_was_compacted_since_stays_deleted(root: Path, clock: SetClock) -> None:
    """The tombstone of a deleted record's key may be gone."""
    settings = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0", **SMALL}
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("orders", 1, settings)
        keys = [b"%d" % (number % 3) for number in range(12)]
        for key in keys:
            records = RecordColumns.from_values([bytes(60)], keys=[key], timestamp=NOW)
            engine.writer("orders", 0).append_records(records)
        engine.writer("orders", 0).delete_records(4)
        engine.writer("orders", 0).retain()
        assert len(engine.deleted()) == 1
        engine.run("cleaner")
        assert engine.deleted() == []
        with pytest.raises(CannotUndelete, match="the log was compacted meanwhile"):
            engine.undelete("orders", 0)
        refuse_complaints(engine)


def test_a_partition_that_is_just_being_deleted_is_passed_over(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        for topic in ("a", "b"):
            engine.create_topic(topic, 1, SMALL)
            fill(engine, topic)
            engine.writer(topic, 0).delete_records(3)
        engine.writer("a", 0).abandon()
        assert [each.path for each in engine.deleted()] == ["b/0"]
        del engine.dirs.dirs[0].logs["a", 0]  # as the deletion does later


# -- topics --------------------------------------------------------------------------------------


def test_a_topic_comes_back_with_all_that_is_its_own(root: Path, clock: SetClock) -> None:
    more = root.with_name("more")
    with LogManager([str(root), str(more)], clock=clock) as engine:
        topic_id = engine.create_topic("orders", 3, SMALL)
        for number in range(3):
            fill(engine, "orders", number)
        engine.writer("orders", 1).delete_records(5)
        engine.writer("orders", 2).delete_records(7)
        engine.run("retention")
        size = sum(engine.writer("orders", number).size for number in range(3))
        engine.delete_topic("orders")
        assert "orders" not in engine.topics()
        [found] = engine.deleted()
        assert (found.path, found.partition, found.partitions) == ("orders", -1, (0, 1, 2))
        assert (found.cause, found.size) == (Cause.TOPIC, size)
        assert (found.deleted_at_ms, found.until_ms) == (NOW, NOW + DELAY_MS)
        clock.advance(DELAY_MS - 1)
        engine.run("deletion")
        assert engine.undelete("orders") == [found]
        assert engine.topics()["orders"] == [0, 1, 2]
        assert engine.topic_id("orders") == topic_id
        assert engine.stored_configs("orders") == SMALL
        assert [offsets(engine, "orders", number)[0] for number in range(3)] == [0, 5, 7]
        fill(engine, "orders", 1, 1)
        assert offsets(engine, "orders", 1) == list(range(5, 13))
        assert not list(root.rglob("*kafkafs.deleted"))
        before = [(each.path, each.start_offset, each.end_offset) for each in engine.deleted()]
        assert before == [("orders/1", 0, 5), ("orders/2", 0, 7)]
        assert engine.undelete("orders", 2)[0].cause is Cause.FOUND
        assert offsets(engine, "orders", 2) == list(range(12))
        engine.writer("orders", 2).delete_records(7)
        clock.advance(DELAY_MS)
        engine.run("deletion")
        refuse_complaints(engine)
    with LogManager([str(root), str(more)], clock=clock) as engine:
        assert offsets(engine, "orders", 2) == list(range(7, 12))
        assert engine.stored_configs("orders") == SMALL
        refuse_complaints(engine)


def test_a_topic_whose_files_are_gone(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("orders", 1, SMALL)
        engine.delete_topic("orders")
        clock.advance(DELAY_MS)
        assert engine.deleted() == []
        with pytest.raises(CannotUndelete, match=r"orders: .*files were removed"):
            engine.undelete("orders")
        engine.run("deletion")
        with pytest.raises(CannotUndelete, match=r"orders: .*files were removed"):
            engine.undelete("orders")


def test_a_topic_made_anew_is_in_the_way_until_it_is_deleted(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("my.orders", 1, SMALL)
        fill(engine, "my.orders")
        engine.delete_topic("my.orders")
        clock.advance(1)
        engine.create_topic("my.orders", 1)
        with pytest.raises(TopicExists):
            engine.undelete("my.orders")
        engine.delete_topic("my.orders")
        clock.advance(1)
        engine.create_topic("my_orders", 1)
        with pytest.raises(TopicExists, match="too similar to the existing my_orders"):
            engine.undelete("my.orders")
        engine.delete_topic("my_orders")
        assert [each.path for each in engine.deleted()] == ["my.orders", "my.orders", "my_orders"]
        engine.undelete("my.orders")  # the second, which was empty
        assert offsets(engine, "my.orders") == []
        engine.delete_topic("my.orders")
        clock.advance(DELAY_MS - 2)
        [*_, newest] = engine.deleted()
        assert newest.until_ms == NOW + 2 + DELAY_MS


def test_a_topic_that_was_never_made_cannot_come_back(root: Path, clock: SetClock) -> None:
    with LogManager(str(root), clock=clock) as engine:
        (root / "orders-1").write_text("in the way")
        with pytest.raises(Exception, match="in the way"):
            engine.create_topic("orders", 2)
        assert engine.deleted() == []


# -- what an earlier process deleted -------------------------------------------------------------


def killed(root: Path, target: Path, clock: SetClock) -> dict[str, bytes]:
    """Copies to `target` what a process leaves that is killed after many deletions; returns the
    original files of a partition."""
    with LogManager(str(root), clock=clock) as engine:
        engine.create_topic("orders", 2, SMALL)
        engine.create_topic("gone", 2, {"retention.bytes": "7000", **SMALL})
        fill(engine, "orders")
        fill(engine, "gone")
        before = files(root / "orders-0")
        engine.writer("orders", 0).delete_records(9)
        engine.run("retention")
        engine.writer("gone", 0).delete_records(5)
        engine.delete_topic("gone")
        shutil.copytree(root, target)
    return before


def logs_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".log")}


def test_what_a_killed_process_deleted_can_come_back(
    root: Path, clock: SetClock, tmp_path: Path
) -> None:
    before = killed(root, tmp_path / "killed", clock)
    clock.advance(10 * DELAY_MS)
    with LogManager(str(tmp_path / "killed"), clock=clock, finds_deleted=True) as engine:
        orders, gone = engine.deleted()
        assert (orders.path, orders.start_offset, orders.end_offset) == ("orders/0", 0, 9)
        assert (orders.cause, orders.until_ms) == (Cause.FOUND, NEVER_MS)
        assert orders.deleted_at_ms == UNKNOWN_MS
        assert len(orders.segments) >= 3
        assert (gone.path, gone.cause, gone.deleted_at_ms) == ("gone", Cause.TOPIC, NOW)
        assert gone.until_ms == NEVER_MS
        clock.advance(DELAY_MS)
        engine.run("deletion")
        engine.undelete("orders")
        engine.undelete("gone")
        assert offsets(engine, "orders") == list(range(12))
        assert offsets(engine, "gone") == list(range(5, 12))
        assert engine.stored_configs("gone") == {"retention.bytes": "7000", **SMALL}
        assert logs_of(files(tmp_path / "killed" / "orders-0")) == logs_of(before)
        assert engine.writer("orders", 0).epochs.epoch_of(0) == 0
        refuse_complaints(engine)
    with LogManager(str(tmp_path / "killed"), clock=clock) as engine:
        assert offsets(engine, "orders") == list(range(12))
        refuse_complaints(engine)


def test_what_another_process_deleted_stays_until_it_is_purged(
    root: Path, clock: SetClock, tmp_path: Path
) -> None:
    killed(root, tmp_path / "killed", clock)
    there = set((tmp_path / "killed").rglob("*delete*"))
    assert there
    for finds_deleted in (False, True):
        with LogManager(
            str(tmp_path / "killed"), clock=clock, finds_deleted=finds_deleted
        ) as engine:
            clock.advance(100 * DELAY_MS)
            for task in engine.task_names:
                engine.run(task)
            assert [each.path for each in engine.deleted()] == (
                ["orders/0", "gone"] if finds_deleted else ["gone"]
            )
        assert set((tmp_path / "killed").rglob("*delete*")) == there
    with LogManager(str(tmp_path / "killed"), clock=clock, finds_deleted=True) as engine:
        purged = engine.purge()
        assert {Path(each.path) for each in purged} <= there
        # A record below the log start offset is in a segment that is retained.
        assert [(each.path, each.segments) for each in engine.deleted()] == [("orders/0", ())]
        with pytest.raises(CannotUndelete):
            engine.undelete("orders", 0, 0)
        with pytest.raises(CannotUndelete):
            engine.undelete("gone")
        assert offsets(engine, "orders") == list(range(9, 12))
    assert not list((tmp_path / "killed").rglob("*delete*"))


def test_who_maintains_removes_it_in_time(root: Path, clock: SetClock, tmp_path: Path) -> None:
    killed(root, tmp_path / "killed", clock)
    with LogManager(
        str(tmp_path / "killed"), clock=clock, finds_deleted=True, maintain=True
    ) as engine:
        clock.advance(DELAY_MS - 1)
        engine.run("deletion")
        assert [each.path for each in engine.deleted()] == ["orders/0", "gone"]
        clock.advance(1)
        engine.run("deletion")
        assert [(each.path, each.segments) for each in engine.deleted()] == [("orders/0", ())]
        assert offsets(engine, "orders") == list(range(9, 12))
    assert not list((tmp_path / "killed").rglob("*delete*"))


@pytest.mark.parametrize(
    "damage", ["missing index", "half deleted", "torn", "flipped", "middle", "aborts", "compacted"]
)
def test_what_is_not_whole_does_not_come_back(
    root: Path, clock: SetClock, tmp_path: Path, damage: str
) -> None:
    """Nor are older segments restored; newer ones are."""
    killed(root, tmp_path / "killed", clock)
    path = tmp_path / "killed" / "orders-0"
    *_, middle, last = sorted(path.glob("*.log.deleted"))
    if damage == "missing index":
        Path(str(middle).replace(".log", ".index")).unlink()
    elif damage == "half deleted":
        middle.with_name(middle.name.replace(".log.deleted", ".timeindex")).write_bytes(b"")
    elif damage == "torn":
        middle.write_bytes(middle.read_bytes()[:-1])
    elif damage == "flipped":
        data = bytearray(middle.read_bytes())
        data[len(data) // 2] ^= 1
        middle.write_bytes(data)
    elif damage == "aborts":
        Path(str(middle).replace(".log", ".txnindex")).write_bytes(b"\0" * 35)
    elif damage == "middle":
        middle.unlink()
    else:
        topics = tmp_path / "killed" / "kafkafs.topics"
        topics.write_text("[orders]\ncleanup.policy = compact\ninternal.segment.bytes = 300\n")
    with LogManager(str(tmp_path / "killed"), clock=clock, finds_deleted=True) as engine:
        found = [each for each in engine.deleted() if each.path == "orders/0"]
        if damage == "compacted":
            assert found == []
        else:
            assert [each.segments for each in found] == [(int(last.name[:20]),)]
            engine.undelete("orders", 0)
            assert offsets(engine, "orders") == list(range(int(last.name[:20]), 12))
        refuse_complaints(engine)
    assert list(path.glob("*.deleted"))


def test_a_torn_index_is_made_anew(root: Path, clock: SetClock, tmp_path: Path) -> None:
    before = killed(root, tmp_path / "killed", clock)
    path = tmp_path / "killed" / "orders-0"
    for each in path.glob("*index.deleted"):
        each.write_bytes(b"torn")
    with LogManager(str(tmp_path / "killed"), clock=clock, finds_deleted=True) as engine:
        engine.undelete("orders", 0)
        refuse_complaints(engine)
        assert logs_of(files(path)) == logs_of(before)


def test_what_is_known_of_a_deleted_topic_is_torn(
    root: Path, clock: SetClock, tmp_path: Path
) -> None:
    killed(root, tmp_path / "killed", clock)
    [first, *_] = (tmp_path / "killed").glob("gone-*/kafkafs.deleted")
    first.write_bytes(first.read_bytes()[:50])
    with LogManager(str(tmp_path / "killed"), clock=clock, finds_deleted=True) as engine:
        assert [each.path for each in engine.deleted()] == ["orders/0"]
        with pytest.raises(CannotUndelete):
            engine.undelete("gone")
