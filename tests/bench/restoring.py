"""Row 39: `restore` of a partition into a running broker, beside a program that produces the same
records with the same client, librdkafka, as its users do.

The program has all records in memory before its time starts, and calls `produce` for each; then it
waits until all are acknowledged. Both are idempotent. Each turn has a topic of its own.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from kafkafs.restore.cluster import TargetCluster
from kafkafs.restore.planning import RestoreRequest
from kafkafs.restore.restoring import Restore
from kafkafs.restore.state import RestoreState, RestoreStateFile
from kafkafs.storage import SILENT, Engine
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests.bench.broker import with_topic
from tests.bench.data import EPOCH_MS, TOPIC, kept, values
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcome, Outcomes, race, turns, versus
from tests.bench.trial import all_compilers
from tests.broker.driver import Driver
from tests.broker.kafka import Broker

_VALUE_BYTES = 100
Headers = list[tuple[str, bytes | None]]
_Record = tuple[bytes, bytes, int, Headers | None]
_HEADERS: Headers = [("trace", b"4bf92f3577b34da6"), ("source", b"web")]
#: What the program's producer has in common with that of `restore`.
_CLIENT: dict[str, bool | int] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
}
_RECORDS_OF_AN_APPEND = 10_000
#: Records of that age would be deleted while they are written.
_FOREVER = {"retention.ms": "-1"}


def against_producer(plan: Plan) -> Outcomes:
    """Row 39: records with keys, without headers and with two of them."""
    with with_topic("restored", jvm_options=all_compilers()) as broker:
        yield _against_producer(plan, broker, [], "")
        yield _against_producer(plan, broker, _HEADERS, ", two headers each")


def _against_producer(plan: Plan, broker: Broker, headers: Headers, what: str) -> Outcome:
    source = _source(plan.appended, headers)
    records = list(_records(plan.appended, headers))
    topics = _topics(broker, 2 * turns(plan.repetitions), len(headers))
    seconds = race(
        {
            "restore": Call(lambda: _restore(source, broker, next(topics))),
            "producer": Call(lambda: _produce(records, broker, next(topics))),
        },
        plan.repetitions,
    )
    return versus(
        39, f"restore {plan.appended / 1e6:g} M records of {_VALUE_BYTES} bytes{what}",
        (seconds["restore"], seconds["producer"]), "confluent_kafka's producer in a loop",
        0.8, amount=plan.appended / 1e6, unit="M rec/s",
    )  # fmt: skip


def _source(records: int, headers: Headers) -> Path:
    """Returns a log directory with the records."""

    def make(directory: Path) -> None:
        made = list(_records(records, headers))
        with LogManager(str(directory)) as engine:
            engine.create_topic(TOPIC, 1, _FOREVER)
            for first in range(0, records, _RECORDS_OF_AN_APPEND):
                part = made[first : first + _RECORDS_OF_AN_APPEND]
                columns = RecordColumns.from_records(
                    [SimpleRecord(at, key, value, has or []) for value, key, at, has in part]
                )
                engine.writer(TOPIC, 0).append_records(columns)

    return kept(f"restored-{records}-{len(headers)}", make)


def _records(records: int, headers: Headers) -> Iterator[_Record]:
    """Yields value, key, timestamp and headers of each record."""
    data = values(records)
    for number in range(records):
        value = data[number * _VALUE_BYTES : (number + 1) * _VALUE_BYTES]
        yield value, b"key-%012d" % number, EPOCH_MS + number // 10, list(headers) or None


def _topics(broker: Broker, number: int, headers: int) -> Iterator[str]:
    """Creates empty topics, and returns their names."""
    names = [f"restored-{headers}-{turn}" for turn in range(number)]
    client = Driver(broker.bootstrap, broker.output.with_name("driver.log"))
    for name in names:
        client.create_topic(name, 1, _FOREVER)
    client.close()
    return iter(names)


def _restore(source: Path, broker: Broker, topic: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        cluster = TargetCluster(broker.bootstrap, {})
        request = RestoreRequest((TOPIC,), {TOPIC: topic})
        with (
            closing(Engine(str(source))) as engine,
            closing(RestoreStateFile(f"{directory}/state")) as file,
        ):
            restore = Restore(engine, cluster, request, SILENT, print)
            state = RestoreState(cluster.cluster_id)
            (row,) = restore.run(restore.plans(None), file, state)
        taken = time.perf_counter() - started
    assert row.records
    return taken


def _produce(records: list[_Record], broker: Broker, topic: str) -> float:
    from confluent_kafka import Producer

    started = time.perf_counter()
    producer = Producer({"bootstrap.servers": broker.bootstrap, **_CLIENT})
    send: Any = producer.produce  # whose stub has no lists of such pairs
    for value, key, timestamp, headers in records:
        while True:
            try:
                send(topic, value, key, 0, timestamp=timestamp, headers=headers)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush() == 0
    return time.perf_counter() - started
