"""The ways in which kafkafs reads a broker's directory, behind one face for the live tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from kafkafs.storage.engine import Engine
from kafkafs.storage.format.columns import Record
from kafkafs.storage.log.transactions import Isolation
from tests.answers import ExpectedRecord


class Reader(Protocol):
    """What the live tests ask of a reader; records come without their leader epoch."""

    def topics(self) -> dict[str, list[int]]: ...

    def records(self, topic: str, partition: int = 0) -> list[ExpectedRecord]: ...

    def offset_for_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None: ...


class EngineReader:
    """The storage engine, in this process."""

    def __init__(self, log_dirs: Sequence[Path], isolation: str) -> None:
        self.engine = Engine([str(path) for path in log_dirs])
        self._isolation = Isolation(isolation)

    def topics(self) -> dict[str, list[int]]:
        return dict(self.engine.topics())

    def records(self, topic: str, partition: int = 0) -> list[ExpectedRecord]:
        view = self.engine.log(topic, partition).view()
        return [
            as_expected(columns.record(row))
            for columns in view.read(isolation=self._isolation)
            for row in range(len(columns))
        ]

    def offset_for_time(self, topic: str, timestamp: int, partition: int = 0) -> int | None:
        view = self.engine.log(topic, partition).view()
        return view.offset_for_time(timestamp, self._isolation)


def as_expected(record: Record) -> ExpectedRecord:
    """A record of the engine in the form in which Kafka's answers come."""
    return ExpectedRecord(
        offset=record.offset,
        timestamp=record.timestamp,
        timestamp_type=record.timestamp_type.kafka_name,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        leader_epoch=None,
    )


def without_epoch(records: list[ExpectedRecord]) -> list[ExpectedRecord]:
    """The consumer's records, as a `Reader` gives them."""
    return [replace(record, leader_epoch=None) for record in records]


def wait_until(what: Callable[[], bool], seconds: float = 30) -> None:
    """Returns when `what` holds; a broker does most things some time after it was asked."""
    give_up = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up, f"not within {seconds} s"
        time.sleep(0.02)
