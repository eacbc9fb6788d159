"""What a mount shows while a broker writes, retains and deletes: following, open files, names."""

from __future__ import annotations

import filecmp
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.answers import READ_COMMITTED
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.broker.readers import MountReader, from_line
from tests.waiting import wait_until

SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "segment.index.bytes": "8192"}


@pytest.fixture
def mount(mount_readers: dict[str, MountReader]) -> MountReader:
    """A read_committed mount of the shared broker's directory."""
    return mount_readers[READ_COMMITTED]


class Follower:
    """A thread that reads the lines of a followed file."""

    def __init__(self, path: Path) -> None:
        self.lines: list[bytes] = []
        self._path = path
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._path.open("rb") as stream:
            for line in stream:
                self.lines.append(line)

    @property
    def ended(self) -> bool:
        """Whether the file has reached its end."""
        return not self._thread.is_alive()


def has_lines(follower: Follower, count: int) -> bool:
    return len(follower.lines) >= count


@pytest.fixture
def follow(driver: Driver) -> Iterator[Callable[[Path], Follower]]:
    """`follow(path)` starts to follow. At the end of the test the topics are deleted, which ends
    it."""
    started: dict[Path, Follower] = {}

    def start(path: Path) -> Follower:
        started[path] = Follower(path)
        return started[path]

    yield start
    for topic in {path.parent.parent.name for path in started}:
        if topic in driver.call("topics"):
            driver.call("delete_topic", topic=topic)
    wait_until(lambda: all(follower.ended for follower in started.values()))


class TestFollow:
    def test_each_record_comes_once_and_in_order_across_new_segments(
        self,
        mount: MountReader,
        broker: Broker,
        driver: Driver,
        topic: Callable[..., str],
        follow: Callable[[Path], Follower],
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=500, value_size=40)
        values = follow(mount.path(name) / "follow")
        lines = follow(mount.path(name) / "follow.jsonl")
        how = {"first": 500, "count": 5_500, "value_size": 40, "batch": 31, "pause_ms": 3}
        driver.call("generate", topic=name, partition=0, **how)
        wait_until(lambda: len(values.lines) >= 6_000 and len(lines.lines) >= 6_000)
        assert [int(line.split()[0]) for line in values.lines] == list(range(6_000))
        records = [from_line(line.decode()) for line in lines.lines]
        assert [record.offset for record in records] == list(range(6_000))
        assert len(list((broker.log_dir / f"{name}-0").glob("*.log"))) > 10

    def test_each_record_comes_without_a_later_one(
        self,
        mount: MountReader,
        driver: Driver,
        topic: Callable[..., str],
        follow: Callable[[Path], Follower],
    ) -> None:
        name = topic()
        follower = follow(mount.path(name) / "follow")
        for number in range(12):
            driver.produce(name, [Message(None, b"%d" % number)])
            if number % 3:  # some come while it waits, some while it reads
                wait_until(partial(has_lines, follower, number + 1))
        wait_until(partial(has_lines, follower, 12))
        assert follower.lines == [b"%d\n" % number for number in range(12)]

    def test_a_transaction_comes_when_it_has_ended(
        self,
        mount: MountReader,
        driver: Driver,
        topic: Callable[..., str],
        follow: Callable[[Path], Follower],
    ) -> None:
        name = topic()
        follower = follow(mount.path(name) / "follow")
        kept: dict[str, Any] = {"producer": f"{name}-kept", "transactional": True}
        dropped: dict[str, Any] = {"producer": f"{name}-dropped", "transactional": True}
        driver.call("begin", **kept)
        driver.call("begin", **dropped)
        driver.produce(name, [Message(None, b"plain")])
        driver.produce(name, [Message(None, b"kept")], **kept)
        driver.produce(name, [Message(None, b"dropped")], **dropped)
        driver.produce(name, [Message(None, b"behind")])
        wait_until(lambda: len(follower.lines) == 1)
        driver.call("abort", **dropped)
        other = topic(suffix="-other")
        other_follower = follow(mount.path(other) / "follow")
        for number in range(3):  # the mount polls all followed partitions together
            driver.produce(other, [Message(None, b"another topic's")])
            wait_until(partial(has_lines, other_follower, number + 1))
        assert follower.lines == [b"plain\n"]
        driver.call("commit", **kept)
        wait_until(lambda: len(follower.lines) == 3)
        assert follower.lines == [b"plain\n", b"kept\n", b"behind\n"]

    def test_the_end_of_the_topic_is_the_end_of_the_file(
        self,
        mount: MountReader,
        driver: Driver,
        topic: Callable[..., str],
        follow: Callable[[Path], Follower],
    ) -> None:
        name = topic()
        follower = follow(mount.path(name) / "follow")
        driver.produce(name, [Message(None, b"last words")])
        wait_until(lambda: follower.lines == [b"last words\n"])
        driver.call("delete_topic", topic=name)
        wait_until(lambda: follower.ended)
        assert follower.lines == [b"last words\n"]


class TestOpenFiles:
    def test_what_was_open_can_be_read_to_its_end(
        self, mount: MountReader, broker: Broker, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=4_000, value_size=40)
        path = mount.path(name)
        oldest = sorted((path / "segments").glob("*.log"))[0]
        bytes_before = oldest.read_bytes()
        opened = ("offset/7", "values", "records.jsonl", f"segments/{oldest.name}")
        with ExitStack() as stack:
            handles = [stack.enter_context((path / each).open("rb")) for each in opened]
            driver.call("delete_records", topic=name, partition=0, before=3_500)
            wait_until(lambda: not (broker.log_dir / f"{name}-0" / oldest.name).exists())
            wait_until(lambda: not oldest.exists())
            value, values, records, segment = (handle.read() for handle in handles)
        assert value.split()[0] == b"7"
        assert [int(line.split()[0]) for line in values.splitlines()] == list(range(4_000))
        offsets = [from_line(line).offset for line in records.decode().splitlines()]
        assert offsets == list(range(4_000))
        assert segment == bytes_before

    def test_a_topic_that_went_leaves_its_open_files(
        self, mount: MountReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic()
        driver.call("generate", topic=name, partition=0, count=800, value_size=40)
        with (mount.path(name) / "values").open("rb") as values:
            driver.call("delete_topic", topic=name)
            wait_until(lambda: not (mount.mountpoint / name).exists())
            assert len(values.read().splitlines()) == 800


class TestNames:
    def test_deleted_records_have_no_name_any_more(
        self, mount: MountReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=3_000, value_size=40)
        offset = mount.path(name) / "offset"
        assert (offset / "5").stat().st_size == 40
        assert os.readlink(offset / "first") == "0"
        driver.call("delete_records", topic=name, partition=0, before=2_000)
        wait_until(lambda: os.readlink(offset / "first") == "2000")
        wait_until(lambda: not (offset / "5").exists())
        assert not (offset / "1999").exists()
        assert sorted(set(os.listdir(offset)) - {"first", "last"}, key=int) == [
            str(number) for number in range(2_000, 3_000)
        ]

    def test_compacted_records_have_no_name_any_more(
        self, mount: MountReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "min.compaction.lag.ms": "900000",
                **SMALL_SEGMENTS,
            }
        )
        driver.call("generate", topic=name, partition=0, count=3_000, keys=10, value_size=40)
        offset = mount.path(name) / "offset"
        assert (offset / "0").read_bytes().split()[0] == b"0"
        driver.call("alter_config", topic=name, configs={"min.compaction.lag.ms": "0"})
        wait_until(lambda: driver.records(name)[0].offset > 1_000)
        wait_until(lambda: not (offset / "0").exists())
        left = {str(record.offset) for record in driver.records(name)}
        wait_until(lambda: set(os.listdir(offset)) - {"first", "last"} == left)

    def test_segments_are_the_brokers_own_files(
        self, mount: MountReader, broker: Broker, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=3_000, value_size=40)
        theirs = broker.log_dir / f"{name}-0"
        ours = mount.path(name) / "segments"
        names = sorted(os.listdir(theirs))
        assert sorted(os.listdir(ours)) == names
        assert filecmp.cmpfiles(theirs, ours, names, shallow=False) == (names, [], [])


class TestCompacted:
    def test_what_compaction_would_leave_while_the_broker_goes_on(
        self, mount: MountReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        where = mount.path(name)
        bounds = []
        for first in range(0, 1200, 300):
            messages = [
                Message(b"key %d" % (at % 37), b"value %d " % at + b"." * 90)
                for at in range(first, first + 300)
            ]
            for low in range(0, 300, 60):  # a batch has to fit into a segment
                driver.produce(name, messages[low : low + 60])
            records = lines(where / "records.jsonl")
            left = lines(where / "compacted" / "records.jsonl")
            assert len(records) == first + 300
            summary = json.loads((where / "compacted" / "summary.json").read_bytes())
            bound = summary["firstUncleanableOffset"]
            latest = {r["key"]: r["offset"] for r in records if r["offset"] < bound}
            assert left == [
                r for r in records if r["offset"] >= bound or latest[r["key"]] == r["offset"]
            ]
            assert summary["records"] == {"before": len(records), "after": len(left)}
            bounds.append(bound)
        assert bounds == sorted(set(bounds))  # segments were rolled meanwhile
        assert len(left) < 400


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]
