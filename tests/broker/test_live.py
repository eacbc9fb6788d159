"""A broker writes while kafkafs reads the same directory, and reads what Kafka's consumer gets.

The values that `generate` sends are record numbers, which without transactions equal the offsets.
So every read can be checked on its own at any time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.errors import OffsetNotFound, UnknownPartition, UnknownTopic
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log.read.view import View
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED, ExpectedRecord
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.broker.readers import EngineReader, Reader, without_epoch
from tests.waiting import wait_until

SMALL_SEGMENTS = {"internal.segment.bytes": "20000", "segment.index.bytes": "8192"}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
    **SMALL_SEGMENTS,
}
BASE_MS = 1_700_000_000_000


def numbers(records: list[ExpectedRecord]) -> list[int]:
    """Returns the numbers that `generate` gave the records."""
    return [int((record.value or b"-1").split()[0]) for record in records]


def segment_files(broker: Broker, topic: str) -> list[str]:
    """Returns the names of the partition's `.log` files, oldest first."""
    return sorted(path.name for path in (broker.log_dir / f"{topic}-0").glob("*.log"))


def check_while(writing: Future[Any], check: Callable[[], None]) -> None:
    """Checks repeatedly until the broker has received everything, and once more. The pauses leave
    processors to the broker and its client."""
    while not writing.done():
        check()
        time.sleep(0.02)
    writing.result()
    check()


def rows(view: View) -> list[int]:
    """Returns the offsets of a view's records, which must equal their numbers."""
    found: list[int] = []
    for columns in view.read():
        found.extend(checked(columns))
    return found


def checked(columns: Columns) -> list[int]:
    """Returns the offsets in `columns`, which must equal the records' numbers."""
    offsets: list[int] = columns.offsets.tolist()
    assert [int((columns.value(row) or b"-1").split()[0]) for row in range(len(columns))] == offsets
    return offsets


class TestAppends:
    def test_what_is_acknowledged_is_there(
        self, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic()
        for number in range(20):
            driver.produce(name, [Message(b"k", str(number).encode())])
            assert numbers(reader.records(name)) == list(range(number + 1))

    def test_every_read_is_a_prefix_across_new_segments(
        self, broker: Broker, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic({**SMALL_SEGMENTS, "internal.segment.bytes": "7000"})
        seen = 0

        def check() -> None:
            nonlocal seen
            found = numbers(reader.records(name))
            assert found == list(range(len(found)))
            assert len(found) >= seen
            seen = len(found)

        how = {"count": 4_000, "batch": 7, "value_size": 40, "pause_ms": 2}
        check_while(driver.submit("generate", topic=name, partition=0, **how), check)
        assert seen == 4_000
        assert len(segment_files(broker, name)) > 20
        assert reader.records(name) == without_epoch(driver.records(name))

    @pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
    def test_compressed_batches(
        self, reader: Reader, driver: Driver, topic: Callable[..., str], codec: str
    ) -> None:
        name = topic({"compression.type": codec})
        driver.call("generate", topic=name, partition=0, count=500, batch=90, value_size=200)
        assert reader.records(name) == without_epoch(driver.records(name))

    def test_times_are_found_as_the_broker_finds_them(
        self, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic({**SMALL_SEGMENTS, "index.interval.bytes": "500"})
        how = {"count": 3_000, "batch": 40, "value_size": 60, "timestamp": BASE_MS, "step": 1_000}
        driver.call("generate", topic=name, partition=0, **how)
        asked = [0, *range(BASE_MS - 500, BASE_MS + 3_001_000, 37_500)]
        answers = driver.call("times", topic=name, partition=0, timestamps=asked)
        assert [reader.offset_for_time(name, timestamp) for timestamp in asked] == answers


class TestTopics:
    def test_partitions_come_and_topics_go(
        self, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(partitions=2)
        driver.call("add_partitions", topic=name, partitions=5)
        wait_until(lambda: reader.topics().get(name) == [0, 1, 2, 3, 4])
        driver.produce(name, [Message(None, b"0")], partition=4)
        assert numbers(reader.records(name, 4)) == [0]
        driver.call("delete_topic", topic=name)
        wait_until(lambda: name not in reader.topics())

    def test_a_topic_made_again_is_another(
        self, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic()
        driver.call("generate", topic=name, partition=0, count=50)
        assert len(reader.records(name)) == 50
        driver.call("delete_topic", topic=name)
        wait_until(lambda: name not in reader.topics())
        assert topic() == name
        assert reader.records(name) == []
        driver.call("generate", topic=name, partition=0, count=7)
        assert numbers(reader.records(name)) == list(range(7))

    def test_a_held_view_outlives_its_topic(
        self, engine_reader: EngineReader, broker: Broker, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=2_000, value_size=50)
        log = engine_reader.engine.log(name, 0)
        view = log.view()
        view.pin()
        driver.call("delete_topic", topic=name)
        wait_until(lambda: not list(broker.log_dir.glob(f"{name}-0*")))
        assert rows(view) == list(range(2_000))
        with pytest.raises(UnknownPartition):
            log.view()
        with pytest.raises(UnknownTopic):
            engine_reader.engine.log(name, 0)


class TestDeletion:
    def test_delete_records_moves_the_start(
        self, engine_reader: EngineReader, broker: Broker, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(SMALL_SEGMENTS)
        driver.call("generate", topic=name, partition=0, count=3_000, value_size=50)
        log = engine_reader.engine.log(name, 0)
        held = log.view()
        held.pin()
        first_file = segment_files(broker, name)[0]
        driver.call("delete_records", topic=name, partition=0, before=1_234)
        wait_until(lambda: log.view().start_offset == 1_234)
        wait_until(lambda: first_file not in segment_files(broker, name))
        assert driver.offsets(name).beginning == 1_234
        assert rows(log.view()) == list(range(1_234, 3_000))
        with pytest.raises(OffsetNotFound):
            log.view().find(1_233)
        assert rows(held) == list(range(3_000))

    def test_retention_takes_segments_while_they_are_read(
        self, broker: Broker, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic({**SMALL_SEGMENTS, "retention.bytes": "60000"})

        def check() -> None:
            found = numbers(reader.records(name))
            assert not found or found == list(range(found[0], found[-1] + 1))

        how = {"count": 8_000, "batch": 20, "value_size": 60, "pause_ms": 5}
        check_while(driver.submit("generate", topic=name, partition=0, **how), check)
        wait_until(lambda: len(segment_files(broker, name)) <= 4)
        wait_until(lambda: reader.records(name) == without_epoch(driver.records(name)))
        assert numbers(reader.records(name))[0] > 6_000


class TestCompaction:
    def test_reads_stay_true_while_the_cleaner_swaps_segments(
        self, broker: Broker, reader: Reader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic(COMPACTED)
        sent: dict[str, Any] = {"keys": 40, "batch": 7, "value_size": 60, "pause_ms": 3}

        def check() -> None:
            found = reader.records(name)
            assert numbers(found) == [record.offset for record in found]
            assert all(a.offset < b.offset for a, b in itertools.pairwise(found))
            end = found[-1].offset + 1 if found else 0
            latest = {record.key: record.offset for record in found}
            assert sorted(latest.values()) == list(range(max(end - 40, 0), end))

        writing = driver.submit("generate", topic=name, partition=0, count=4_000, **sent)
        check_while(writing, check)
        wait_until(lambda: len(reader.records(name)) < 1_000)
        wait_until(lambda: reader.records(name) == without_epoch(driver.records(name)))
        check()

    def test_a_held_view_reads_the_segments_that_were_replaced(
        self, engine_reader: EngineReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic({**COMPACTED, "min.compaction.lag.ms": "900000"})
        driver.call("generate", topic=name, partition=0, count=3_000, keys=10, value_size=50)
        log = engine_reader.engine.log(name, 0)
        held = log.view()
        held.pin()
        scan = held.read()
        begun = checked(next(scan))
        driver.call("alter_config", topic=name, configs={"min.compaction.lag.ms": "0"})
        wait_until(lambda: len(rows(log.view())) < 1_000)
        assert rows(held) == list(range(3_000))
        assert begun + [o for columns in scan for o in checked(columns)] == list(range(3_000))


class TestTransactions:
    def test_both_isolation_levels_at_every_step(
        self, readers: dict[str, Reader], driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic({**SMALL_SEGMENTS, "internal.segment.bytes": "600"})

        def check() -> None:
            for level, reader in readers.items():
                answer = without_epoch(driver.records(name, isolation=level))
                assert reader.records(name) == answer

        producers: list[dict[str, Any]] = [
            {"producer": f"{name}-{number}", "transactional": True} for number in range(3)
        ]
        one, two, three = producers
        steps: list[tuple[str, dict[str, Any]]] = [
            ("begin", one),
            ("begin", two),
            ("produce", one),
            ("produce", two),
            ("commit", two),
            ("produce", one),
            ("begin", three),
            ("produce", three),
            ("abort", one),
            ("begin", two),
            ("produce", two),
            ("produce", three),
            ("abort", two),
            ("commit", three),
            ("begin", one),
            ("produce", one),
        ]
        for number, (step, producer) in enumerate(steps):
            if step == "produce":
                messages = [Message(b"k", f"{number} {k} {'x' * 90}".encode()) for k in range(3)]
                driver.produce(name, messages, **producer)
            else:
                driver.call(step, **producer)
            driver.produce(name, [Message(None, f"plain {number}".encode())])
            check()
        assert len(readers[READ_COMMITTED].records(name)) < len(
            readers[READ_UNCOMMITTED].records(name)
        )
        driver.call("commit", **one)
        check()

    def test_the_last_stable_offset(
        self, engine_reader: EngineReader, driver: Driver, topic: Callable[..., str]
    ) -> None:
        name = topic()
        log = engine_reader.engine.log(name, 0)
        producer: dict[str, Any] = {"producer": name, "transactional": True}
        for end in ("commit", "abort"):
            driver.call("begin", **producer)
            driver.produce(name, [Message(None, b"in")] * 2, **producer)
            driver.produce(name, [Message(None, b"out")])
            for _ in range(2):
                answer = driver.offsets(name)
                view = log.view()
                assert view.last_stable_offset == answer.last_stable
                assert view.end_offset == answer.end
                if answer.last_stable < answer.end:
                    driver.call(end, **producer)


class TestRestart:
    def test_reading_goes_on_over_a_clean_stop_and_a_crash(
        self,
        start_broker: Callable[..., Broker],
        start_driver: Callable[[Broker], Driver],
        tmp_path: Path,
    ) -> None:
        broker = start_broker(log_dirs=[tmp_path / "one", tmp_path / "two"])
        reader = EngineReader(broker.log_dirs, READ_COMMITTED)
        expected: dict[int, list[int]] = {partition: [] for partition in range(4)}
        for end in (broker.stop, broker.kill):
            driver = start_driver(broker)
            if not expected[0]:
                driver.create_topic("spread", 4, SMALL_SEGMENTS)
            for partition, sent in expected.items():
                how = {"first": len(sent), "count": 900, "batch": 40, "value_size": 40}
                driver.call("generate", topic="spread", partition=partition, **how)
                sent.extend(range(len(sent), len(sent) + 900))
            end()
            for partition, sent in expected.items():
                assert numbers(reader.records("spread", partition)) == sent
            broker.start()
        assert {len(list(path.glob("spread-*"))) for path in broker.log_dirs} == {2}
        assert all(numbers(reader.records("spread", p)) == sent for p, sent in expected.items())
