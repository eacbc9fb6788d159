"""Log directories passed from kafkafs to real brokers of Kafka 4.3, 3.9 and 2.8, and back."""

from __future__ import annotations

import mmap
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkafs.storage.format.files.names import TopicPartition
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log.state.producer_state import ProducerStateEntry
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.answers import READ_COMMITTED, ExpectedRecord
from tests.broker.compaction import copy
from tests.broker.driver import Driver, Message
from tests.broker.handover import (
    Ledger,
    Txn,
    check_dumps,
    check_engine,
    check_producers,
    check_records,
    warnings,
)
from tests.broker.jvm import OLDER, OLDEST, VERSION
from tests.broker.kafka import Broker
from tests.broker.readers import ROOT, EngineReader
from tests.building import BatchFields, build_batch
from tests.crash.moments import some
from tests.waiting import wait_until

StartDriver = Callable[[Broker], Driver]

#: Versions whose dump tool finds fault with the time indexes that their own broker writes.
COMPLAINS = (OLDEST,)
#: A broker's warning about a torn batch at the end of a log.
TORN = re.compile(r"Corruption found in segment \d+, truncating to offset")
#: A broker's warning about an index of a segment that was being created: its log comes last.
ORPHANED = re.compile(r"Found an orphaned index file .*, with no corresponding log file")
#: A producer ID such as a broker would assign.
CLIENT_ID = 5000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def topics(version: str) -> dict[str, tuple[int, dict[str, str]]]:
    """Returns the number of partitions and the configs by topic. Since 4.0 small segments need an
    internal config, as they do in kafkafs."""
    segment_bytes = "internal.segment.bytes" if version == VERSION else "segment.bytes"
    small = {segment_bytes: "20000", "index.interval.bytes": "1000"}
    return {
        "codecs": (len(Codec), {}),
        "made": (len(Codec), {}),
        "rolled": (1, small),
        "idempotent": (1, small),
        "transactions": (3, small),
        "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    }


def partitions(version: str) -> list[TopicPartition]:
    return [
        (name, number) for name, (count, _) in topics(version).items() for number in range(count)
    ]


def various(count: int, seed: int = 0) -> list[SimpleRecord]:
    """Returns records with everything that a record may have or lack."""
    now = now_ms()
    return [
        SimpleRecord(
            timestamp=now - (n * 7919) % 100_000,
            key=(None, b"", b"key-%d" % n)[n % 3],
            value=(None, b"", b"value %d of %d " % (n, seed) * (n % 40))[n % 7 % 3 if n % 5 else 2],
            headers=[("name", b"\x00\xff"), ("", None), ("n\u00e4me", b"")][: n % 4],
        )
        for n in range(count)
    ]


def numbered(first: int, count: int, size: int = 100) -> list[SimpleRecord]:
    now = now_ms()
    return [SimpleRecord(now, b"k", b"%d " % n + b"x" * size) for n in range(first, first + count)]


def messages(*values: str) -> list[Message]:
    return [Message(b"k", value.encode(), now_ms()) for value in values]


class Writing:
    """Everything that kafkafs can write, noted in a ledger. `round` numbers repetitions."""

    def __init__(self, engine: LogManager, ledger: Ledger) -> None:
        self.engine = engine
        self.ledger = ledger
        self.hanging: dict[TopicPartition, tuple[ProducerStateEntry, Txn]] = {}

    def plain(self, key: TopicPartition, records: list[SimpleRecord], plan: BatchPlan) -> None:
        columns = RecordColumns.from_records(records)
        self.ledger.add(key, self.engine.writer(*key).append_records(columns, plan), records)

    def everything(self, round_: int) -> None:
        for codec in Codec:
            key = ("codecs", int(codec))
            self.plain(key, various(300, round_), BatchPlan(codec=codec, batch_bytes=3000))
            self.plain(key, numbered(0, 2, size=200_000), BatchPlan(codec=codec))
            self.made(codec)
        for first in range(0, 1500, 60):
            self.plain(("rolled", 0), numbered(first, 60), BatchPlan(batch_bytes=2000))
        self.plain(("append-time", 0), various(50, round_), BatchPlan(batch_bytes=700))
        self.idempotent(round_)
        self.transactions()

    def made(self, codec: Codec) -> None:
        """Appends batches as a client sends them."""
        key = ("made", int(codec))
        for _ in range(5):
            records = various(20)
            batch = build_batch(records, BatchFields(codec=codec))
            self.ledger.add(key, self.engine.writer(*key).append(batch), records)

    def idempotent(self, round_: int) -> None:
        key = ("idempotent", 0)
        producer = TransactionalProducer(self.engine)
        writer = self.engine.writer(*key)
        for number in range(30):
            records = numbered(number, 7)
            self.ledger.add(key, producer.append(*key, records), records)
            fields = BatchFields(
                producer_id=CLIENT_ID, producer_epoch=round_, base_sequence=number * 7
            )
            batch = build_batch(records, fields)
            appended = writer.append(batch)
            self.ledger.add(key, appended, records)
            again = writer.append(batch)
            assert again.is_duplicate
            assert again.first_offset == appended.first_offset

    def transactions(self) -> None:
        """Runs two producers at a time, each over two partitions; every third transaction is
        aborted. The last one stays open in one partition."""
        for number in range(12):
            one, other = (TransactionalProducer(self.engine) for _ in range(2))
            first = self.begun(one, number, [0, 1])
            self.plain(("transactions", 0), numbered(number, 3), BatchPlan())
            second = self.begun(other, number, [1])
            self.ended(one, first, commit=number % 3 != 0)
            self.ended(other, second, commit=number % 2 == 0)
            again = self.begun(one, number, [1, 0])
            self.ended(one, again, commit=number % 3 != 1)
        lost = TransactionalProducer(self.engine)
        hanging = self.begun(lost, 0, [2])
        state = self.engine.writer("transactions", 2).producers.state(lost.producer_id)
        assert state is not None
        self.hanging["transactions", 2] = (state, hanging)
        self.plain(("transactions", 2), numbered(0, 3), BatchPlan())

    def begun(self, producer: TransactionalProducer, number: int, partitions: list[int]) -> Txn:
        txn = Txn()
        producer.begin()
        for partition in partitions:
            records = numbered(number, 5)
            key = ("transactions", partition)
            plan = BatchPlan(codec=Codec(number % len(Codec)))
            self.ledger.add(key, producer.append(*key, records, plan), records, txn)
        return txn

    def ended(self, producer: TransactionalProducer, txn: Txn, *, commit: bool) -> None:
        (producer.commit if commit else producer.abort)()
        txn.end(commit)

    def states(self) -> dict[TopicPartition, list[ProducerStateEntry]]:
        return {key: self.engine.writer(*key).producers.states() for key in self.ledger.lines}

    def retain(self) -> None:
        """Applies retention to a topic that has twice as many segments as it may keep."""
        writer = self.engine.writer("rolled", 0)
        self.engine.set_topic_config("rolled", {"retention.bytes": "80000"})
        self.engine.run("retention")
        self.engine.set_topic_config("rolled", {"retention.bytes": None})
        assert writer.start_offset > self.ledger.starts.get(("rolled", 0), 0)
        self.ledger.starts["rolled", 0] = writer.start_offset


@pytest.fixture(scope="module")
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


#: The older versions, one for each half of the tests; by commit, they change places.
ORDERS = some([(OLDER, OLDEST), (OLDEST, OLDER)], every=2)


def versions(half: int) -> pytest.MarkDecorator:
    """Runs a test with the newest version and the older one of its half, 0 or 1."""
    return pytest.mark.parametrize(
        "version",
        [
            # in one process, because these tests share the broker at which the topics are created
            pytest.param(each, marks=pytest.mark.xdist_group(f"handover-{each}"))
            for each in dict.fromkeys([VERSION, *(order[half] for order in ORDERS)])
        ],
        indirect=True,
        scope="module",
    )


@dataclass(frozen=True)
class Stopped:
    """The directory of a stopped broker at which all topics were created, and their IDs."""

    directory: Path
    topic_ids: Mapping[str, str]


@pytest.fixture(scope="module")
def stopped(version: str, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Creates the topics once for all tests, which copy the directory."""
    directory = tmp_path_factory.mktemp("stopped")
    broker = Broker.of(version, directory)
    try:
        broker.start()
        driver = Driver(broker.bootstrap, directory / "driver.log")
        ids = {
            name: driver.create_topic(name, count, configs)
            for name, (count, configs) in topics(version).items()
        }
        paths = [broker.log_dir / f"{name}-{number}" for name, number in partitions(version)]
        wait_until(lambda: all(path.is_dir() for path in paths))
        driver.close()
        broker.stop()
    finally:
        broker.close()
    return Stopped(directory, ids)


@pytest.fixture
def topic_ids(stopped: Stopped) -> Mapping[str, str]:
    return stopped.topic_ids


@pytest.fixture
def broker(version: str, stopped: Stopped, tmp_path: Path) -> Iterator[Broker]:
    """A stopped broker with a copy of the directory."""
    copy(stopped.directory, tmp_path / "broker")
    found = Broker.of(version, tmp_path / "broker")
    yield found
    found.close()


def sent_by_kafka(driver: Driver, ledger: Ledger) -> None:
    """Appends with Kafka's own producers: plain, idempotent and transactional."""
    for topic, options in (
        ("codecs", {"configs": {"enable.idempotence": "false"}, "producer": "plain"}),
        ("idempotent", {"producer": "idempotent"}),
        ("rolled", {"producer": "idempotent"}),
    ):
        sent = messages("x", "y", "z")
        ledger.add_sent((topic, 0), driver.produce(topic, sent, **options), sent)
    for commit in (True, False):
        txn = Txn()
        driver.call("begin", producer="transactional", transactional=True)
        for partition in (0, 1):
            sent = messages("t", "u")
            offsets = driver.produce("transactions", sent, partition, producer="transactional")
            ledger.add_sent(("transactions", partition), offsets, sent, txn)
        driver.call("commit" if commit else "abort", producer="transactional")
        txn.end(commit)


def serves(broker: Broker, driver: Driver, ledger: Ledger, writing: Writing | None = None) -> None:
    """Checks that the broker serves what was written, aborts hanging transactions and accepts
    appends."""
    check_records(ledger, driver, broker.log_dir)
    for (topic, partition), (state, txn) in writing.hanging.items() if writing else ():
        driver.call(
            "abort_hanging",
            topic=topic,
            partition=partition,
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            coordinator_epoch=0,
        )
        txn.end(commit=False)
    sent_by_kafka(driver, ledger)
    check_records(ledger, driver, broker.log_dir)


class TestHandover:
    @versions(0)
    def test_a_log_of_kafkafs_goes_to_a_broker_and_back(
        self,
        version: str,
        broker: Broker,
        topic_ids: Mapping[str, str],
        start_driver: StartDriver,
        tmp_path: Path,
    ) -> None:
        ledger = Ledger()
        # Written in a separate directory of kafkafs, and copied to where the broker expects it.
        with LogManager(str(tmp_path / "own"), {"file.delete.delay.ms": "0"}) as engine:
            for name, (count, configs) in topics(VERSION).items():
                engine.create_topic(name, count, configs, topic_id=topic_ids[name])
            first = Writing(engine, ledger)
            first.everything(0)
            first.retain()
            states = first.states()
        for name, number in partitions(version):
            directory = broker.log_dir / f"{name}-{number}"
            shutil.rmtree(directory)
            shutil.copytree(tmp_path / "own" / directory.name, directory)
        check_dumps(ledger, broker.log_dir, version)

        said = broker.output.stat().st_size
        broker.start()
        driver = start_driver(broker)
        check_producers(states, driver)
        serves(broker, driver, ledger, first)
        driver.close()
        broker.stop()
        assert warnings(broker, said) == []

        # Opened in place, written to, and handed back.
        check_engine(ledger, broker.log_dir)
        with LogManager(str(broker.log_dir)) as engine:
            assert engine.problems == []
            second = Writing(engine, ledger)
            second.everything(1)
            second.retain()
            engine.writer("codecs", 0).delete_records(100)
            ledger.starts["codecs", 0] = 100
            states = second.states()
        if version not in COMPLAINS:
            check_dumps(ledger, broker.log_dir, version)
        said = broker.output.stat().st_size
        broker.start()
        driver = start_driver(broker)
        check_producers(states, driver)
        serves(broker, driver, ledger, second)
        driver.close()
        broker.stop()
        assert warnings(broker, said) == []
        check_engine(ledger, broker.log_dir)

    @versions(1)
    def test_what_a_killed_broker_left_is_taken_over_and_handed_back(
        self,
        version: str,
        broker: Broker,
        start_driver: StartDriver,
    ) -> None:
        ledger = Ledger()
        broker.start()
        driver = start_driver(broker)
        sent_by_kafka(driver, ledger)
        open_ = Txn()
        driver.call("begin", producer="left", transactional=True)
        sent = messages("never", "ended")
        offsets = driver.produce("transactions", sent, partition=2, producer="left")
        ledger.add_sent(("transactions", 2), offsets, sent, open_)
        how = {"count": 1_000_000, "batch": 50, "value_size": 100}
        endless = driver.submit("generate", topic="made", partition=0, **how)
        wait_until(lambda: len(generated(broker)) > 2000)
        broker.kill()
        driver.close()
        assert endless.exception() is not None

        found = generated(broker)
        with LogManager(str(broker.log_dir)) as engine:
            assert engine.problems == []
            assert generated(broker)[: len(found)] == found
            check_engine(ledger, broker.log_dir)
            writing = Writing(engine, ledger)
            (left,) = engine.writer("transactions", 2).producers.open_transactions()
            assert left.first_offset == offsets[0]
            writing.transactions()
            writing.idempotent(0)
            state = engine.writer("transactions", 2).producers.state(left.producer_id)
            assert state is not None
            recovered = generated(broker)
        assert recovered == list(range(len(recovered)))
        said = broker.output.stat().st_size
        broker.start()
        driver = start_driver(broker)
        # Transactions that Kafka's coordinator knows are ended by it.
        driver.call("begin", producer="left", transactional=True)
        driver.call("abort", producer="left")
        open_.end(commit=False)
        serves(broker, driver, ledger, writing)
        assert numbers_of(driver.records("made", 0)) == recovered
        driver.close()
        broker.stop()
        assert warnings(broker, said) == []

    @versions(1)
    def test_what_kafkafs_left_when_it_was_killed_is_taken_over_by_a_broker(
        self,
        version: str,
        broker: Broker,
        start_driver: StartDriver,
    ) -> None:
        command = [sys.executable, "-m", "tests.broker.endless", str(broker.log_dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writing:
            assert writing.stdout is not None
            safe = next(number for number in map(int, writing.stdout) if number >= 2000)
            writing.kill()
        assert not (broker.log_dir / ".kafka_cleanshutdown").exists()
        assert len(list((broker.log_dir / "rolled-0").glob("*.log"))) > 5

        active = max((broker.log_dir / "rolled-0").glob("*.log"))
        may_be_torn = active.stat().st_size % mmap.PAGESIZE == 0
        said = broker.output.stat().st_size
        broker.start()
        driver = start_driver(broker)
        numbers = numbers_of(driver.records("rolled", 0))
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= safe
        offsets = driver.offsets("transactions", 2)
        assert (offsets.end, offsets.last_stable) == (1, 0)
        (lost,) = driver.call("producers", topic="transactions", partition=2)
        hanging = {"producer_id": lost["id"], "producer_epoch": 0, "coordinator_epoch": 0}
        driver.call("abort_hanging", topic="transactions", partition=2, **hanging)
        assert driver.offsets("transactions", 2).last_stable == 2
        sent = driver.produce("rolled", messages("x"), producer="idempotent")
        assert sent == [len(numbers)]
        driver.close()
        broker.stop()
        # Linux checks between two pages of a write whether the process was killed, and then stops
        # (generic_perform_write); this affects a broker's own writes as well. The broker truncates
        # the torn batch, which is possible only if the file ends at a page boundary.
        warned = [line for line in warnings(broker, said) if not ORPHANED.search(line)]
        torn = [line for line in warned if TORN.search(line)]
        assert warned == torn
        assert len(torn) <= may_be_torn
        with LogManager(str(broker.log_dir)) as engine:
            assert engine.problems == []
            assert engine.writer("rolled", 0).end_offset == len(numbers) + 1
            assert engine.writer("transactions", 2).producers.open_transactions() == []


def generated(broker: Broker) -> list[int]:
    """Returns the numbers of the records that Kafka's client generates in the background."""
    return numbers_of(EngineReader([broker.log_dir], READ_COMMITTED).records("made", 0))


def numbers_of(records: list[ExpectedRecord]) -> list[int]:
    return [int((record.value or b"").split()[0]) for record in records]
