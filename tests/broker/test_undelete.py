"""A real broker treats what kafkafs restored as if it had never been deleted; what a live broker
has deleted is only listed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
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
from tests.broker.kafka import Broker
from tests.waiting import wait_until

SMALL = {"internal.segment.bytes": "5000", "index.interval.bytes": "500", "retention.ms": "-1"}
TOPICS = {"plain": 1, "transactions": 2, "gone": 2}
KEYS = [(name, number) for name, count in TOPICS.items() for number in range(count)]


def records(first: int, count: int) -> list[SimpleRecord]:
    now = time.time_ns() // 1_000_000
    return [SimpleRecord(now, b"k%d" % n, b"%d " % n * 30) for n in range(first, first + count)]


def write(engine: LogManager, ledger: Ledger) -> None:
    """Writes segments of all topics; aborted and committed transactions start in the first
    segment."""
    for topic in ("plain", "gone"):
        for number in range(TOPICS[topic]):
            for first in range(0, 400, 20):
                made = records(first, 20)
                columns = RecordColumns.from_records(made)
                appended = engine.writer(topic, number).append_records(columns, BatchPlan())
                ledger.add((topic, number), appended, made)
    producer = TransactionalProducer(engine)
    for first in range(0, 300, 20):
        txn = Txn()
        producer.begin()
        for number in range(2):
            key = ("transactions", number)
            made = records(first, 20)
            ledger.add(key, producer.append(*key, made), made, txn)
        commit = first % 60 == 0
        producer.commit() if commit else producer.abort()
        txn.end(commit)


def delete_and_bring_back(engine: LogManager, ledger: Ledger) -> None:
    """Deletes and restores all of `plain` and `gone`, and one partition of `transactions` from an
    offset in the middle of a segment on."""
    for topic, number in KEYS:
        writer = engine.writer(topic, number)
        writer.delete_records(writer.end_offset - 30)
        assert writer.retain().count > 3
    assert len(engine.undelete("plain")) == 1
    assert engine.undelete("transactions", 0)[0].start_offset == 0
    engine.undelete("transactions", 1, 107)
    ledger.starts["transactions", 1] = 107
    engine.undelete("gone")
    engine.delete_topic("gone")
    assert [each.path for each in engine.undelete("gone")] == ["gone"]


@pytest.mark.slow
def test_a_broker_serves_what_was_brought_back(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    driver = start_driver(broker)
    for name, count in TOPICS.items():
        driver.create_topic(name, count, SMALL)
    wait_until(lambda: all((broker.log_dir / f"{t}-{n}").is_dir() for t, n in KEYS))
    driver.close()
    broker.stop()

    ledger = Ledger()
    with LogManager(str(broker.log_dir)) as engine:
        write(engine, ledger)
        delete_and_bring_back(engine, ledger)
        assert engine.problems == []
        engine.background_tasks.remove_deleted()
        states = {key: engine.writer(*key).producer_states() for key in KEYS}
    for left in broker.log_dir.rglob("*.deleted"):
        left.unlink()  # those of `transactions-1`, which has not expired
    check_dumps(ledger, broker.log_dir)
    check_engine(ledger, broker.log_dir)

    said = broker.output.stat().st_size
    broker.start()
    driver = start_driver(broker)
    check_producers(states, driver)
    check_records(ledger, driver, broker.log_dir)
    sent = [Message(b"k", b"appended", time.time_ns() // 1_000_000)]
    for key in KEYS:
        offsets = driver.produce(key[0], sent, key[1], producer="idempotent")
        ledger.add_sent(key, offsets, sent)
    check_records(ledger, driver, broker.log_dir)
    driver.close()
    broker.stop()
    assert warnings(broker, said) == []
    check_engine(ledger, broker.log_dir)


def kafkafs(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_what_a_live_broker_has_deleted_is_listed_and_left_alone(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    driver = start_driver(broker)
    keeping = {"retention.bytes": "10000", "file.delete.delay.ms": "3600000"}
    driver.create_topic("t", 1, {**SMALL, **keeping})
    now = time.time_ns() // 1_000_000
    for first in range(0, 400, 20):
        driver.produce("t", [Message(b"k", b"%d " % n * 30, now) for n in range(first, first + 20)])
    data = broker.log_dir

    def deleted() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in (data / "t-0").glob("*.deleted")}

    wait_until(lambda: f"{0:020}.log.deleted" in deleted())
    started = deleted()

    listed = kafkafs("undelete", "--list", "--json", data, "t")
    assert (listed.exit_code, listed.stderr) == (0, "")
    (row,) = map(json.loads, listed.stdout.splitlines())
    assert (row["topic"], row["startOffset"]) == ("t", 0)
    assert row["endOffset"] > 0
    planned = kafkafs("recover", "--dry-run", data, "t")
    assert planned.exit_code == 0
    assert "is writing to it" in planned.stderr
    would = kafkafs("purge", "--dry-run", "--json", data, "t")
    assert would.exit_code == 0
    names = {json.loads(line)["path"].rpartition("/")[2] for line in would.stdout.splitlines()}
    assert started.keys() <= names
    for words in (("undelete", data, "t/0"), ("recover", data), ("purge", data, "t")):
        refused = kafkafs(*words)
        assert refused.exit_code == 1
        assert "has it locked" in refused.stderr
    assert started.items() <= deleted().items()
    driver.close()
    broker.stop()
