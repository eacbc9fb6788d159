"""Operations: requests, rows as JSON, and errors that concern one partition only."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import (
    CannotUndelete,
    CleaningAborted,
    NotCompacted,
    PolicyViolation,
    UnknownPartition,
    UnknownTopic,
)
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.compact import Compact, compact, retained_keys
from kafkafs.storage.operations.describe_topics import (
    DescribeConfigs,
    ListTopics,
    describe_configs,
    list_topics,
)
from kafkafs.storage.operations.expire import Expire, ExpiredSegment, expire
from kafkafs.storage.operations.purge import Purge, purge
from kafkafs.storage.operations.recover import Recover, recover
from kafkafs.storage.operations.request import PartitionFailed, ProgressListener
from kafkafs.storage.operations.topics import (
    ConfigureTopic,
    CreateTopic,
    DeleteTopics,
    configure_topic,
    create_topic,
    delete_topics,
)
from kafkafs.storage.operations.transactions import Transactions, list_transactions
from kafkafs.storage.operations.undelete import ListDeleted, Undelete, list_deleted, undelete
from kafkafs.storage.transactions.producer import TransactionalProducer

THEN = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock(THEN)


@pytest.fixture
def manager(tmp_path: Path, clock: SetClock) -> Iterator[LogManager]:
    """Topics `a` and `b` of three segments of one record each, an hour apart, and `keys`, the same
    with one key and compacted."""
    with LogManager(str(tmp_path / "data"), clock=clock) as manager:
        configs = {"segment.ms": "1000", "retention.ms": "-1"}
        manager.create_topic("a", configs=configs)
        manager.create_topic("b", configs=configs)
        manager.create_topic("keys", configs={**configs, "cleanup.policy": "compact"})
        for _ in range(3):
            for topic in ("a", "b", "keys"):
                records = RecordColumns.from_values([b"v"], [b"k"], timestamp=clock.now_ms())
                manager.writer(topic, 0).append_records(records)
            clock.advance(HOUR_MS)
        yield manager


def of(*texts: str) -> Selection:
    return Selection.of(*texts)


def plain(rows: Iterable[Any]) -> list[Any]:
    """The rows as JSON; each is restored from it as it was, if it can be."""
    found = []
    for row in rows:
        shown = json.loads(json.dumps(row.as_json()))
        if hasattr(row, "of_json"):
            restored = type(row).of_json(shown)
            assert json.loads(json.dumps(restored.as_json())) == shown
        found.append(shown)
    return found


class TestExpire:
    def test_a_dry_run_shows_what_the_real_run_does(
        self, manager: LogManager, clock: SetClock
    ) -> None:
        manager.set_topic_config("a", {"retention.ms": str(2 * HOUR_MS)})
        foretold = plain(expire(manager, Expire(dry_run=True, everything=True)))
        assert manager.log("a", 0).view().start_offset == 0
        assert plain(expire(manager, Expire(everything=True))) == foretold
        assert manager.log("a", 0).view().start_offset == 1
        assert [row["baseOffset"] for row in foretold if row["rule"]] == [0]

    def test_a_reader_foretells_the_same(self, manager: LogManager, tmp_path: Path) -> None:
        manager.set_topic_config("a", {"retention.ms": "1000"})
        request = Expire(of("a"), at_ms=THEN + 3 * HOUR_MS)
        reader = Engine(str(tmp_path / "data"))
        assert plain(expire(reader, request)) == plain(expire(manager, request)) != []

    def test_only_what_writes_needs_a_manager(self, manager: LogManager, tmp_path: Path) -> None:
        assert not Expire(dry_run=True).writes
        assert not Expire(at_ms=5).writes
        assert Expire().writes
        with pytest.raises(TypeError):
            list(expire(Engine(str(tmp_path / "data")), Expire()))

    def test_an_error_in_one_partition_ends_no_other(self, manager: LogManager) -> None:
        manager.set_topic_config("b", {"retention.ms": "1000"})
        with manager.cleaner.cleaning_state.in_progress(("a", 0)):
            rows = list(expire(manager, Expire(of("a,b"))))
        (failed, *expired) = rows
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, CleaningAborted)
        assert (failed.where, failed.kind) == ("a-0", "CleaningAborted")
        assert [each.base_offset for each in expired if isinstance(each, ExpiredSegment)] == [
            0,
            1,
            2,
        ]
        assert PartitionFailed.of_json(failed.as_json()) == failed

    def test_names_that_do_not_exist(self, manager: LogManager) -> None:
        with pytest.raises(UnknownTopic):
            Expire(of("none")).check(manager)
        with pytest.raises(UnknownPartition):
            Expire(of("a/1")).check(manager)

    def test_a_partition_that_is_deleted_meanwhile(
        self, manager: LogManager, tmp_path: Path
    ) -> None:
        """Is left out unless it was named."""

        class Deleting(ProgressListener):
            def check(self) -> None:
                shutil.rmtree(tmp_path / "copy" / "b-0", ignore_errors=True)

        for selection in (Selection(), of("b")):
            shutil.copytree(tmp_path / "data", tmp_path / "copy", dirs_exist_ok=True)
            reader = Engine(str(tmp_path / "copy"))
            rows = list(expire(reader, Expire(selection, at_ms=THEN, everything=True), Deleting()))
            failed = [each.where for each in rows if isinstance(each, PartitionFailed)]
            assert failed == (["b-0"] if selection else [])

    def test_a_listener_ends_it(self, manager: LogManager) -> None:
        class Ended(Exception):
            pass

        class Ending(ProgressListener):
            def check(self) -> None:
                raise Ended

        with pytest.raises(Ended):
            list(expire(manager, Expire(), Ending()))


class TestCompact:
    def test_a_dry_run_shows_what_the_real_run_does(self, manager: LogManager) -> None:
        foretold = plain(compact(manager, Compact(dry_run=True, everything=True)))
        assert plain(compact(manager, Compact(everything=True))) == foretold
        (row,) = foretold
        assert row["gone"]["superseded"] == 1
        assert plain(compact(manager, Compact(force=True))) == []

    def test_what_is_not_compacted(self, manager: LogManager) -> None:
        text = 'cleanup.policy does not include "compact"'
        (refused,) = Compact(of("a")).check(manager)
        assert refused.as_json() == {"error": text, "kind": "NotCompacted", "where": "a-0"}
        assert isinstance(refused.cause, PolicyViolation)
        assert not Compact(of("a", "keys")).check(manager)
        assert not Compact().check(manager)
        failed, done = compact(manager, Compact(of("a", "keys")))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, NotCompacted)
        assert not isinstance(done, PartitionFailed)

    def test_keys(self, manager: LogManager) -> None:
        (key,) = plain(retained_keys(manager, Compact(of("keys/0"), dry_run=True)))
        assert key == {"key": "k", "offset": 2, "stays": "active", "until": None}


class TestUndelete:
    def test_restored_rows(self, manager: LogManager) -> None:
        manager.writer("a", 0).delete_records(2)
        manager.delete_topic("b")
        listed = plain(list_deleted(manager, ListDeleted()))
        assert {(each["topic"], each["partition"]) for each in listed} == {("a", 0), ("b", None)}
        assert len(plain(list_deleted(manager, ListDeleted(of("b"))))) == 1
        first, failed, second = undelete(manager, Undelete(of("a/0", "keys", "b")))
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, CannotUndelete)
        assert [each["topic"] for each in plain([first, second])] == ["a", "b"]
        assert manager.topics()["b"] == [0]

    def test_a_reader_refuses_what_cannot_be_restored(
        self, manager: LogManager, tmp_path: Path
    ) -> None:
        reader = Engine(str(tmp_path / "data"))
        refused = Undelete(of("a/0", "none")).check(reader)
        assert [each.kind for each in refused] == ["CannotUndelete", "CannotUndelete"]
        assert not Undelete(of("a/0")).check(manager)


def test_purge(manager: LogManager, tmp_path: Path) -> None:
    (tmp_path / "data" / "a-0" / f"{7:020}.log.cleaned").write_bytes(b"xx")
    foretold = plain(purge(manager, Purge(dry_run=True)))
    assert plain(purge(manager, Purge(of("b")))) == []
    assert plain(purge(manager, Purge(of("a")))) == foretold
    assert [each["bytes"] for each in foretold] == [2]
    assert plain(purge(manager, Purge())) == []


def test_recover(manager: LogManager, tmp_path: Path) -> None:
    """An open directory looks as after a crash."""
    rows = plain(recover(Engine(str(tmp_path / "data")), Recover(of("a", "keys"))))
    assert [(row["topic"], row["endOffset"], row["faults"]) for row in rows] == [
        ("a", 3, []),
        ("keys", 3, []),
    ]


def test_transactions(manager: LogManager, tmp_path: Path) -> None:
    producer = TransactionalProducer(manager)
    producer.begin()
    producer.append("a", 0, RecordColumns.from_values([b"v"], timestamp=THEN))
    (listed,) = plain(list_transactions(manager, Transactions(of("a"))))
    assert (listed["topic"], listed["firstOffset"]) == ("a", 3)
    (refused,) = Transactions(abort=999).check(Engine(str(tmp_path / "data")))
    assert refused.error == "producer 999 has no transaction open there"
    request = Transactions(abort=listed["producerId"])
    assert not request.check(Engine(str(tmp_path / "data")))
    assert plain(list_transactions(manager, request)) == [listed]
    (none,) = list_transactions(manager, request)
    assert isinstance(none, PartitionFailed)


class TestTopics:
    def test_one_is_created_configured_listed_and_deleted(self, manager: LogManager) -> None:
        (made,) = plain(create_topic(manager, CreateTopic("new", 2, {"flush.ms": "7"})))
        (found,) = plain(configure_topic(manager, ConfigureTopic("new", {"flush.ms": None})))
        assert found["settings"]["flush.ms"]["source"] == "default"
        assert plain(describe_configs(manager, DescribeConfigs("new"))) == [found]
        (listed,) = plain(list_topics(manager, ListTopics(("new",))))
        assert (listed["topicId"], len(listed["partitions"])) == (made["topicId"], 2)
        failed, removed = delete_topics(manager, DeleteTopics(("none", "new", "new")))
        assert isinstance(failed, PartitionFailed)
        assert plain([removed]) == [{"topic": "new", "deleted": True}]
        assert "new" not in manager.topics()

    def test_what_is_refused(self, manager: LogManager) -> None:
        (refused,) = DeleteTopics(("none", "none")).check(manager)
        assert isinstance(refused.cause, UnknownTopic)
        assert not DeleteTopics(("none", "a")).check(manager)
        with pytest.raises(UnknownTopic):
            ListTopics(("none",)).check(manager)
