"""Random work for the cleaner of a real broker, whose log says when each of its passes began.

A workload depends on its seed alone: the same seed sends the same records, transactions and
batches. `min.cleanable.dirty.ratio` 1, which no log exceeds, holds topics back from the cleaner
until they are released, so that the directory can be copied just before a pass.
"""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from kafkafs.storage.cleaner.plan import CleanPlan, plan, state_of
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable
from kafkafs.storage.format.records.columns import Record
from kafkafs.storage.log.read.lookup import extent_from
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.segment.segment import Segment
from kafkafs.storage.segment.walk import walk_headers
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.waiting import wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RATIO = "min.cleanable.dirty.ratio"
HELD, LET_GO = "1.0", "0.0"
#: Little more than Kafka's minimum. Topic `many` has more distinct keys than fit into it, so its
#: log takes two passes.
MAP_BYTES = 1_050_000
MANY = 48_000
#: `delete.retention.ms` of the topics that lose tombstones and markers in their second pass.
SOON_MS = 1000
LAG_MS = 600_000
NEVER_MS = 10 * 365 * 86_400_000

_CLEANER = "org.apache.kafka.storage.internals.log"
#: JVM options that make a broker log its cleaner's passes, with times in milliseconds.
LOGS_PASSES = (
    f"-Dorg.slf4j.simpleLogger.log.{_CLEANER}.Cleaner=info",
    f"-Dorg.slf4j.simpleLogger.log.{_CLEANER}.LogCleaner=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSZ",
)
_BEGIN = re.compile(r"(?m)^(\S+) .*Beginning cleaning of log (\S+)-0$")
_SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")
MAX_BATCH_BYTES = 1 << 27


@dataclass(frozen=True, slots=True)
class Shape:
    """A topic and what is sent to it.

    `keys`: the number of distinct keys; `tombstones`: the share of tombstones; `codecs` of its
    producers, which are `idempotent` or not; `transactions`: the number of transactional producers;
    `short_lived`: producers that write one batch at the start; `step_ms`: the time between the
    timestamps of two records, varied by up to `jitter_ms`.
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


SOON = {"delete.retention.ms": str(SOON_MS)}
SHAPES: Mapping[str, Shape] = {
    "plain": Shape(idempotent=False, jitter_ms=60_000),
    "tombstones": Shape(SOON, tombstones=0.3),
    "tombstones-late": Shape({"delete.retention.ms": str(NEVER_MS)}, keys=200, tombstones=0.3),
    "transactions": Shape(SOON, tombstones=0.1, transactions=3),
    "transactions-late": Shape(keys=400, tombstones=0.1, transactions=3, short_lived=2),
    "open": Shape(SOON, transactions=2),
    "markers": Shape(SOON, keys=6, transactions=4),
    "producers": Shape(keys=25, short_lived=9),
    "expired": Shape(SOON, keys=25, short_lived=5, begin_ms=90 * 86_400_000),
    "lag": Shape({"min.compaction.lag.ms": str(LAG_MS)}, begin_ms=900_000, step_ms=1000),
    "stamped": Shape({"message.timestamp.type": "LogAppendTime", **SOON}, tombstones=0.2),
    "codecs": Shape(SOON, keys=90, tombstones=0.2, codecs=CODECS, transactions=1),
    "recompressed": Shape({"compression.type": "lz4"}, codecs=("gzip",)),
}
COMPRESSED = tuple(name for name, shape in SHAPES.items() if shape.codecs != ("none",))
#: Topics that get more records after a pass, for another one.
AGAIN = tuple(name for name in SHAPES if name not in ("lag", "open"))


class Workload:
    """Records sent by a seed, in rounds with a pass after each; `scale` sets the amount. Topics are
    sent to in parallel, and each has its own random generator, so the order does not matter."""

    def __init__(self, seed: int, scale: int) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self._senders = [
            _Sender(name, shape, random.Random(f"{seed} {name}"), scale, self.now_ms)
            for name, shape in SHAPES.items()
        ]

    def create(self, driver: Driver) -> None:
        side_by_side(lambda sender: sender.create(driver), self._senders)
        driver.create_topic("many", configs={**_held(), "internal.segment.bytes": "200000"})

    def send(self, driver: Driver, number: int) -> None:
        """Sends round `number`, from 1 on."""
        if number == 1:
            how = {"count": MANY, "batch": 1000, "timestamp": self.now_ms}
            driver.submit("generate", topic="many", partition=0, **how)
        senders = [each for each in self._senders if number == 1 or each.name in AGAIN]
        side_by_side(lambda sender: sender.send_round(driver, number), senders)


@dataclass
class _Sender:
    """The sender to one topic."""

    name: str
    shape: Shape
    chance: random.Random
    scale: int
    now_ms: int
    _sent: int = 0

    def create(self, driver: Driver) -> None:
        settings = {
            "internal.segment.bytes": str(self.chance.randrange(6000, 24_000)),
            "index.interval.bytes": str(self.chance.choice([200, 600, 4096])),
        }
        driver.create_topic(self.name, configs={**_held(), **settings, **self.shape.settings})

    def send_round(self, driver: Driver, number: int) -> None:
        """Sends batches of plain producers, and transactions of which several are open at once."""
        if number == 1:
            for short in range(self.shape.short_lived):
                self._send(driver, f"{self.name}-short-{short}")
        are_open: set[str] = set()
        for _ in range(self.scale * 3):
            if self.shape.transactions and self.chance.random() < 0.7:
                transactional = self.chance.randrange(self.shape.transactions)
                self._transaction_step(
                    driver, f"{self.name}-{number}-txn-{transactional}", are_open
                )
            else:
                codec = self.chance.choice(self.shape.codecs)
                self._send(driver, f"{self.name}-{number}-{codec}", codec)
        for producer in sorted(are_open):
            driver.call(self.chance.choice(["commit", "abort"]), producer=producer)
        if self.name == "open":
            self._leave_open(driver)

    def _transaction_step(self, driver: Driver, producer: str, are_open: set[str]) -> None:
        if producer not in are_open:
            driver.call("begin", producer=producer, transactional=True)
            are_open.add(producer)
        self._send(driver, producer)
        if self.chance.random() < 0.5:
            driver.call(self.chance.choice(["commit", "abort"]), producer=producer)
            are_open.remove(producer)

    def _leave_open(self, driver: Driver) -> None:
        """Sends a transaction without an end, and records after it."""
        driver.call("begin", producer="left-open", transactional=True)
        self._send(driver, "left-open")
        for _ in range(self.scale):
            self._send(driver, "open-behind")

    def _send(self, driver: Driver, producer: str, codec: str = "none") -> None:
        configs = {"compression.type": codec}
        if not self.shape.idempotent:
            configs["enable.idempotence"] = "false"
        count = self.chance.randrange(1, 40)
        messages = [self._message() for _ in range(count)]
        batch = self.chance.choice([1, 5, count])
        driver.produce(self.name, messages, producer=producer, batch=batch, configs=configs)

    def _message(self) -> Message:
        chance, shape = self.chance, self.shape
        self._sent += 1
        # Some keys are much more common than others.
        key = f"key-{min(chance.randrange(shape.keys), chance.randrange(shape.keys))}".encode()
        value = b"%d " % self._sent + bytes(chance.choices(b"abcdefgh", k=chance.randrange(60)))
        jitter = chance.randrange(-shape.jitter_ms, shape.jitter_ms + 1)
        return Message(
            key=key,
            value=None if chance.random() < shape.tombstones else value,
            timestamp=self.now_ms - shape.begin_ms + self._sent * shape.step_ms + jitter,
            headers=(("n", b"%d" % self._sent),) * chance.choice([0, 0, 0, 1, 3]),
        )


def side_by_side(work: Callable[[_Sender], None], senders: Sequence[_Sender]) -> None:
    with ThreadPoolExecutor(len(senders)) as pool:
        for done in [pool.submit(work, sender) for sender in senders]:
            done.result()


def _held() -> dict[str, str]:
    return {"cleanup.policy": "compact", RATIO: HELD, "retention.ms": "-1"}


def topics() -> list[str]:
    return [*SHAPES, "many"]


def _set_ratio(driver: Driver, ratio: str) -> None:
    changes = [
        driver.submit("alter_config", topic=topic, configs={RATIO: ratio}) for topic in topics()
    ]
    for change in changes:
        change.result(60)


def have_cleaned(broker: Broker, driver: Driver) -> None:
    """Lets the broker's cleaner work on all topics until none is eligible."""
    engine = Engine([str(broker.log_dir)], {RATIO: LET_GO})

    def is_done() -> bool:
        plans = (plan_of(engine, topic, time.time_ns() // 1_000_000) for topic in topics())
        return not any(planned.is_eligible for planned in plans)

    _set_ratio(driver, LET_GO)
    wait_until(is_done)
    _set_ratio(driver, HELD)


def plan_of(engine: Engine, topic: str, now_ms: int) -> CleanPlan:
    """Returns what could be cleaned of a topic's only partition."""
    checkpoint = cleaner_offsets(engine).get(topic)
    state = state_of(engine.log(topic, 0).view(), checkpoint)
    return plan(state, engine.topic_config(topic).config, now_ms)


def cleaner_offsets(engine: Engine) -> dict[str, int]:
    """Returns how far partition 0 of each topic was cleaned."""
    (log_dir,) = engine.log_dirs.dirs
    return {topic: offset for (topic, number), offset in log_dir.cleaner_offsets.items()}


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass over a topic's only partition. `began_ms` is when the broker logged its start, shortly
    after it had read the clock for the pass."""

    topic: str
    began_ms: int


def passes(broker: Broker) -> list[Pass]:
    """Returns the passes in the broker's log, in order, without internal topics."""
    return [
        Pass(topic, round(datetime.fromisoformat(begin).timestamp() * 1000))
        for begin, topic in _BEGIN.findall(broker.output.read_text())
        if not topic.startswith("__")
    ]


Batch = tuple[BatchHeader, list[Record]]


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a pass has left of a topic: how far it was cleaned; the segment files by name, with
    mtimes in ms, except the indexes of the active segment; and their batches, with records if the
    files are compressed. The headers exclude what may differ between two compressors."""

    offset: int | None
    files: Mapping[str, bytes]
    mtimes_ms: Mapping[str, int]
    batches: Sequence[Batch]
    delete_retention_ms: int

    @classmethod
    def of(cls, engine: Engine, topic: str) -> Cleaned:
        view = engine.log(topic, 0).view()
        active = f"{view.segments[-1].base_offset:020}"
        paths = [
            path
            for path in sorted(Path(engine.partition_dir(topic, 0).path).iterdir())
            if path.suffix in _SEGMENT_FILES and (path.stem != active or path.suffix == ".log")
        ]
        decodes = topic in COMPRESSED
        return cls(
            cleaner_offsets(engine).get(topic),
            {path.name: path.read_bytes() for path in paths},
            {
                path.name: path.stat().st_mtime_ns // 1_000_000
                for path in paths
                if path.suffix != ".txnindex"  # which keeps the time when it was written
            },
            [each for segment in view.segments for each in _batches(view, segment, decodes)],
            engine.topic_config(topic).config.delete_retention_ms,
        )

    @property
    def horizons(self) -> set[int]:
        return {header.base_timestamp for header, _ in self.batches if header.has_delete_horizon}


def _batches(view: View, segment: Segment, with_records: bool) -> Iterator[Batch]:
    for table in walk_headers(extent_from(segment, 0, MAX_BATCH_BYTES)):
        assert isinstance(table, BatchTable)
        for header in table:
            records: list[Record] = []
            if header.record_count and with_records:
                columns = view.batch(segment, header)
                records = [columns.record(row) for row in range(len(columns))]
            plain = header._replace(position=0, size=0, crc=0)
            yield plain, [replace(record, batch=plain) for record in records]


@dataclass(frozen=True, slots=True)
class Round:
    """A log directory before a broker's passes, the passes, and what they left of each topic."""

    before: Path
    passes: Sequence[Pass]
    after: Mapping[str, Cleaned]

    def now_ms(self, of: Pass) -> int:
        """Returns the time that the broker used for a pass, derived from a delete horizon if it set
        one."""
        after = self.after[of.topic]
        told = [horizon - after.delete_retention_ms for horizon in after.horizons]
        return max((now for now in told if 0 <= of.began_ms - now < 50), default=of.began_ms)


class Rounds:
    """Rounds of a workload, each followed by passes, at a separate broker."""

    def __init__(self, directory: Path, seed: int, scale: int) -> None:
        self._directory = directory
        settings = {
            "log.cleaner.backoff.ms": "50",
            "log.cleaner.dedupe.buffer.size": str(MAP_BYTES),
        }
        self.broker = Broker(directory / "broker", settings, jvm_options=LOGS_PASSES)
        self._workload = Workload(seed, scale)
        self._counts = 0

    def run(self, count: int) -> Iterator[Round]:
        """Runs `count` rounds, then stops the broker."""
        with self._running() as driver:
            self._workload.create(driver)
            self._workload.send(driver, 1)
        for number in range(1, count + 1):
            before = self._directory / f"before-{number}"
            copy(self.broker.log_dir, before)
            with self._running() as driver:
                have_cleaned(self.broker, driver)
                engine = Engine([str(self.broker.log_dir)])
                after = {topic: Cleaned.of(engine, topic) for topic in topics()}
                if number < count:
                    self._workload.send(driver, number + 1)
            done = passes(self.broker)
            yield Round(before, done[self._counts :], after)
            self._counts = len(done)

    @contextmanager
    def _running(self) -> Iterator[Driver]:
        self.broker.start()
        driver = Driver(self.broker.bootstrap, self._directory / "driver.log")
        try:
            yield driver
            self.broker.stop()
        finally:
            driver.close()
            self.broker.close()


def copy(source: Path, target: Path) -> None:
    """Copies a directory with all times and holes."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
