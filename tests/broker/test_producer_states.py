"""Producers' batches, valid and invalid ones, get the same result from the engine and from Kafka's
classes."""

from __future__ import annotations

import base64
import json
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.errors import Refused
from kafkafs.storage.format.layout import MAX_INT32, ControlType
from kafkafs.storage.format.messages.control import parse_end_txn_marker
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.log.state.producers import Duplicate, ProducerStateManager
from kafkafs.storage.segment.txn_index import AbortedTxn
from tests.broker.jvm import installation, java
from tests.building import BatchFields, build_batch, build_end_txn_marker

DAY_MS = 86_400_000
START_MS = 1_790_000_000_000
STEPS = 4000


class Kafka:
    """A process that runs ProducerStates.java."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        name = "org.apache.kafka.storage.internals.log.ProducerStates"
        self.process = subprocess.Popen(
            java(installation(), name, str(directory), log_level="off"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Kafka]:
    kafka = Kafka(tmp_path / "states")
    yield kafka
    kafka.close()


class Engine:
    """The engine's producer states, answering as ProducerStates.java does."""

    def __init__(self) -> None:
        self.producers = ProducerStateManager(DAY_MS)

    def append(self, batch: bytes, origin: AppendOrigin) -> dict[str, Any]:
        table, _ = scan(batch, len(batch), 0, BatchTable.empty(1), whole=True)
        update = self.producers.begin_update()
        try:
            duplicate = update.add(table, origin, lambda _: parse_end_txn_marker(batch))
        except Refused as error:
            return {"error": f"{type(error).__name__}Exception"}
        update.commit()
        return {**self.state(), **_result(duplicate, update.aborted)}

    def expire(self, now: int) -> dict[str, Any]:
        self.producers.expire(now)
        return self.state()

    def reload(self, now: int) -> dict[str, Any]:
        end, data = self.producers.map_end_offset, self.producers.snapshot()
        self.producers = ProducerStateManager(DAY_MS)
        self.producers.load(data, end, now)
        return self.state()

    def state(self) -> dict[str, Any]:
        return {
            "snapshot": self.producers.snapshot().hex(),
            "end": self.producers.map_end_offset,
            "undecided": self.producers.first_unstable_offset,
        }


def _result(duplicate: Duplicate | None, aborted: list[AbortedTxn]) -> dict[str, Any]:
    if duplicate is not None:
        where = [duplicate.first_offset, duplicate.last_offset, duplicate.timestamp]
        return {"duplicate": where}
    for entry in aborted:
        numbers = [entry.producer_id, entry.first_offset, entry.last_offset]
        return {"aborted": [*numbers, entry.last_stable_offset]}
    return {}


class Batches:
    """Random batches: most fit what came before, but many do not."""

    def __init__(self, chance: random.Random, engine: Engine) -> None:
        self.chance = chance
        self.engine = engine
        self.now = START_MS
        self.ids = [chance.choice([chance.randrange(40), chance.getrandbits(62)]) for _ in range(9)]

    def next(self) -> tuple[bytes, AppendOrigin]:
        self.now += self.chance.choice([1, 1000, 1000, DAY_MS // 40])
        producer_id = self.chance.choice(self.ids)
        state = self.engine.producers.state(producer_id)
        epoch, last, coordinator = (0, -1, 0)
        if state is not None:
            epoch, last, coordinator = state.epoch, state.last_sequence, state.coordinator_epoch
        epoch = min(max(epoch + self.chance.choice([0] * 12 + [1, 1, -1, 5]), 0), 2**15 - 1)
        fields = BatchFields(
            base_offset=self.engine.producers.map_end_offset,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        if self.chance.random() < 0.3:
            return self._marker(fields, max(coordinator + self.chance.choice([0, 0, 0, 1, -1]), 0))
        return self._data(fields, state is not None and state.is_in_transaction, last)

    def _marker(self, fields: BatchFields, coordinator_epoch: int) -> tuple[bytes, AppendOrigin]:
        kind = self.chance.choice([ControlType.ABORT, ControlType.COMMIT])
        origin = self.chance.choice([AppendOrigin.COORDINATOR] * 5 + [AppendOrigin.REPLICATION])
        return build_end_txn_marker(kind, self.now, coordinator_epoch, fields), origin

    def _data(self, fields: BatchFields, is_open: bool, last: int) -> tuple[bytes, AppendOrigin]:
        choices = [last + 1] * 8 + [0, 0, last, last - 1, last + 2, MAX_INT32 - 1]
        sequence = max(self.chance.choice(choices), 0) & MAX_INT32
        transactional = is_open if self.chance.random() < 0.9 else not is_open
        if not is_open and self.chance.random() < 0.4:
            transactional = True
        records = [SimpleRecord(self.now)] * self.chance.choice([1, 1, 2, 3])
        batch = build_batch(
            records,
            BatchFields(
                base_offset=fields.base_offset,
                producer_id=fields.producer_id,
                producer_epoch=fields.producer_epoch,
                base_sequence=sequence,
                is_transactional=transactional,
            ),
        )
        return batch, self.chance.choice(
            [AppendOrigin.CLIENT] * 8 + [AppendOrigin.COORDINATOR, *AppendOrigin]
        )


@pytest.mark.parametrize("seed", range(4))
def test_the_engine_judges_producers_as_kafka_does(seed: int, kafka: Kafka) -> None:
    """After every step, the answers and the snapshots are the same, byte for byte."""
    engine, chance = Engine(), random.Random(seed)
    batches = Batches(chance, engine)
    seen: Counter[str] = Counter()
    for step in range(STEPS):
        what = chance.random()
        if what < 0.01:
            now = batches.now + chance.choice([0, DAY_MS // 2])
            expected, found = kafka.ask("expire", now=now), engine.expire(now)
        elif what < 0.02:
            expected, found = kafka.ask("reload", now=batches.now), engine.reload(batches.now)
        else:
            batch, origin = batches.next()
            text = base64.b64encode(batch).decode()
            expected = kafka.ask("append", batch=text, origin=origin.name)
            found = engine.append(batch, origin)
        assert found == expected, step
        seen.update([*expected, expected.get("error", "taken")])
    refusals = (
        "InvalidProducerEpochException",
        "OutOfOrderSequenceException",
        "InvalidTxnStateException",
        "TransactionCoordinatorFencedException",
    )
    assert all(seen[each] > 20 for each in (*refusals, "taken", "duplicate", "aborted")), seen
