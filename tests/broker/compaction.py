"""Random work for a cleaner at a real broker, whose own log says when each of its passes began.

A workload is a number: the same seed sends the same records, transactions and batches. Topics are
held back from the cleaner by `min.cleanable.dirty.ratio` 1, which no log exceeds, until they are
let go, so that the directory can be copied as it is just before a pass.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.broker.readers import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RATIO = "min.cleanable.dirty.ratio"
HELD, LET_GO = "1.0", "0.0"
#: Room for 45000 keys, fewer than topic `many` has: its log takes two passes.
MAP_BYTES = 1_200_000
#: As long as tombstones and markers stay in the topics where they are to go in the second pass.
SOON_MS = 1000
LAG_MS = 600_000
NEVER_MS = 10 * 365 * 86_400_000

_CLEANER = "org.apache.kafka.storage.internals.log"
#: What a broker must be told to log its cleaner's passes, with the time to the millisecond.
LOGS_PASSES = (
    f"-Dorg.slf4j.simpleLogger.log.{_CLEANER}.Cleaner=info",
    f"-Dorg.slf4j.simpleLogger.log.{_CLEANER}.LogCleaner=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)
_BEGIN = re.compile(r"(?m)^(\S+) .*Beginning cleaning of log (\S+)-0$")
_END = re.compile(r"(?m)Cleaner \d+: Offset map for log (\S+)-0 complete")


@dataclass(frozen=True, slots=True)
class Shape:
    """A topic and what is sent to it.

    `keys`: how many different ones; `tombstones`: the share of records that are; `codecs` of its
    producers, `idempotent` ones or not; `transactions`: how many transactional producers;
    `short_lived`: producers that write one batch in the beginning; `step_ms`: from one record's
    timestamp to the next, before it is shaken by as much as `jitter_ms`.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    keys: int = 60
    tombstones: float = 0.0
    codecs: tuple[str, ...] = ("none",)
    idempotent: bool = True
    transactions: int = 0
    short_lived: int = 0
    begin_ms: int = 3_000_000  # before now
    step_ms: int = 500
    jitter_ms: int = 0

    @property
    def is_uncompressed(self) -> bool:
        return self.codecs == ("none",)


SOON = {"delete.retention.ms": str(SOON_MS)}
SHAPES: Mapping[str, Shape] = {
    "plain": Shape(idempotent=False, jitter_ms=60_000),
    "tombstones": Shape(SOON, tombstones=0.3),
    "tombstones-late": Shape({"delete.retention.ms": str(NEVER_MS)}, keys=200, tombstones=0.3),
    "transactions": Shape(SOON, tombstones=0.1, transactions=3),
    "transactions-late": Shape(keys=400, tombstones=0.1, transactions=3, short_lived=2),
    "open": Shape(SOON, transactions=2),
    "producers": Shape(keys=25, short_lived=9),
    "expired": Shape(SOON, keys=25, short_lived=5, begin_ms=90 * 86_400_000),
    "lag": Shape({"min.compaction.lag.ms": str(LAG_MS)}, begin_ms=900_000, step_ms=1000),
    "stamped": Shape({"message.timestamp.type": "LogAppendTime", **SOON}, tombstones=0.2),
    "codecs": Shape(SOON, keys=90, tombstones=0.2, codecs=CODECS, transactions=1),
    "recompressed": Shape({"compression.type": "lz4"}, codecs=("gzip",)),
}
#: Those that get more records after the first pass, for a second one.
AGAIN = tuple(name for name in SHAPES if name not in ("lag", "open"))


class Workload:
    """Sends records by a seed. `rounds` may be sent one after the other."""

    def __init__(self, seed: int, scale: int = 10) -> None:
        self.chance = random.Random(seed)
        self.scale = scale
        self.now_ms = time.time_ns() // 1_000_000
        self._sent: dict[str, int] = {}

    def create(self, driver: Driver) -> None:
        for name, shape in SHAPES.items():
            settings = {
                "internal.segment.bytes": str(self.chance.randrange(6000, 24_000)),
                "index.interval.bytes": str(self.chance.choice([200, 600, 4096])),
            }
            driver.create_topic(name, configs={**_held(), **settings, **shape.settings})
        driver.create_topic("many", configs={**_held(), "internal.segment.bytes": "200000"})

    def first_round(self, driver: Driver) -> None:
        for name, shape in SHAPES.items():
            for number in range(shape.short_lived):
                self._send(driver, name, producer=f"{name}-short-{number}")
            self._send_steps(driver, name, f"{name}-1")
        driver.call(
            "generate", topic="many", partition=0, count=60_000, batch=1000, timestamp=self.now_ms
        )
        self._leave_open(driver)

    def second_round(self, driver: Driver) -> None:
        for name in AGAIN:
            self._send_steps(driver, name, f"{name}-2")

    def _send_steps(self, driver: Driver, name: str, prefix: str) -> None:
        """A round of a topic: batches of plain producers, and transactions of which several are
        open at once."""
        shape = SHAPES[name]
        are_open: set[str] = set()
        for _ in range(self.scale * 3):
            if shape.transactions and self.chance.random() < 0.7:
                producer = f"{prefix}-txn-{self.chance.randrange(shape.transactions)}"
                self._transaction_step(driver, name, producer, are_open)
            else:
                codec = self.chance.choice(shape.codecs)
                self._send(driver, name, producer=f"{prefix}-{codec}", codec=codec)
        for producer in sorted(are_open):
            driver.call(self.chance.choice(["commit", "abort"]), producer=producer)

    def _transaction_step(
        self, driver: Driver, name: str, producer: str, are_open: set[str]
    ) -> None:
        if producer not in are_open:
            driver.call("begin", producer=producer, transactional=True)
            are_open.add(producer)
        self._send(driver, name, producer=producer)
        if self.chance.random() < 0.5:
            driver.call(self.chance.choice(["commit", "abort"]), producer=producer)
            are_open.remove(producer)

    def _leave_open(self, driver: Driver) -> None:
        """A transaction without an end, and records behind it."""
        driver.call("begin", producer="left-open", transactional=True)
        self._send(driver, "open", producer="left-open")
        for _ in range(self.scale):
            self._send(driver, "open", producer="open-1-none")

    def _send(self, driver: Driver, name: str, *, producer: str, codec: str = "none") -> None:
        shape = SHAPES[name]
        count = self.chance.randrange(1, 40)
        configs = {"compression.type": codec}
        if not shape.idempotent:
            configs["enable.idempotence"] = "false"
        messages = [self._message(name, shape) for _ in range(count)]
        batch = self.chance.choice([1, 5, count])
        driver.produce(name, messages, producer=producer, batch=batch, configs=configs)

    def _message(self, name: str, shape: Shape) -> Message:
        chance = self.chance
        number = self._sent[name] = self._sent.get(name, -1) + 1
        # Some keys are much more common than others.
        key = f"key-{min(chance.randrange(shape.keys), chance.randrange(shape.keys))}".encode()
        value = b"%d " % number + bytes(chance.choices(b"abcdefgh", k=chance.randrange(60)))
        jitter = chance.randrange(-shape.jitter_ms, shape.jitter_ms + 1)
        return Message(
            key=key,
            value=None if chance.random() < shape.tombstones else value,
            timestamp=self.now_ms - shape.begin_ms + number * shape.step_ms + jitter,
            headers=(("n", b"%d" % number),) * chance.choice([0, 0, 0, 1, 3]),
        )


def _held() -> dict[str, str]:
    return {"cleanup.policy": "compact", RATIO: HELD, "retention.ms": "-1"}


def topics() -> list[str]:
    return [*SHAPES, "many"]


def hold(driver: Driver) -> None:
    """Keeps the cleaner from all topics."""
    _set_ratio(driver, HELD)


def let_go(driver: Driver) -> None:
    """Gives all topics to the cleaner."""
    _set_ratio(driver, LET_GO)


def _set_ratio(driver: Driver, ratio: str) -> None:
    changes = [
        driver.submit("alter_config", topic=topic, configs={RATIO: ratio}) for topic in topics()
    ]
    for change in changes:
        change.result(60)


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over a topic's only partition. `began_ms`: when the broker logged its begin, a moment
    after it had taken the time that counts for the pass."""

    topic: str
    began_ms: int


def passes(broker: Broker) -> Iterator[Pass]:
    """The passes that the broker's log tells of, in order; without internal topics."""
    for time_text, topic in _BEGIN.findall(broker.output.read_text()):
        if not topic.startswith("__"):
            began = datetime.fromisoformat(time_text)
            yield Pass(topic, round(began.timestamp() * 1000))


def wait_for_passes(broker: Broker, log_dir: Path, first_dirty: Mapping[str, int]) -> None:
    """Returns when the checkpoint of each topic is above what it was."""

    def are_done() -> bool:
        now = cleaner_offsets(log_dir)
        return all(now.get(topic, 0) > offset for topic, offset in first_dirty.items())

    wait_until(are_done)


def cleaner_offsets(log_dir: Path) -> dict[str, int]:
    """The cleaner's checkpoint of a directory, partition 0 of each topic."""
    try:
        lines = (log_dir / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    return {topic: int(offset) for topic, number, offset in map(str.split, lines) if number == "0"}
