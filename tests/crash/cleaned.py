"""A workload that appends to and compacts one log, and a model of what the log must hold after a
crash.

For every key the latest committed record, or a later one, is present. Deleted keys are not
restored. All records present were written, and are in offset order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kafkafs.storage.cleaner.offset_map import OffsetMap
from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import abort_transaction
from tests.building import BatchFields, build_batch
from tests.reading import Plain, read

TOPIC = "c"
KEYS = [f"k{number}" for number in range(25)]
#: Segments of a few batches, tombstones that expire soon, and an offset map that is too small for
#: all keys.
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1500",
    "segment.ms": str(10**12),
    "segment.index.bytes": "400",
    "index.interval.bytes": "256",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
    "file.delete.delay.ms": "1000",
}
BROKER = {"log.cleaner.dedupe.buffer.size": "480"}  # 18 keys


@dataclass(frozen=True, slots=True)
class Tried:
    """An append of one batch with these keys and values is about to start, in transaction `txn`
    unless that is empty."""

    name: str
    records: tuple[tuple[str, str | None], ...]
    txn: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The append was acknowledged with this first offset."""

    name: str
    first_offset: int


@dataclass(frozen=True, slots=True)
class Ending:
    """The end marker of a transaction is about to be appended (`offset` is -1) or was appended at
    `offset`."""

    txn: str
    commit: bool
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Durable:
    """Everything acknowledged below `end` must survive a power cut."""

    end: int


Event = Tried | Done | Ending | Durable


@dataclass(frozen=True, slots=True)
class Known:
    """What was written at an offset."""

    key: str
    value: str | None
    txn: str = ""


@dataclass(slots=True)
class Model:
    """What the log may hold, given the events so far."""

    known: dict[int, Known] = field(default_factory=dict)
    tried: dict[str, Tried] = field(default_factory=dict)
    endings: dict[str, Ending] = field(default_factory=dict)
    durable_end: int = 0

    def add(self, event: Event) -> None:
        match event:
            case Tried():
                self.tried[event.name] = event
            case Done(name, first):
                tried = self.tried.pop(name)
                for number, (key, value) in enumerate(tried.records):
                    self.known[first + number] = Known(key, value, tried.txn)
            case Ending():
                self.endings[event.txn] = event
            case Durable(end):
                self.durable_end = max(self.durable_end, end)

    def check(
        self, found: list[Plain], end_offset: int, stable_offset: int, power_cut: bool = False
    ) -> None:
        """Raises AssertionError if the committed records `found` contradict the events; otherwise
        takes them as the new state. Records at or above `stable_offset` are not visible yet."""
        offsets = [each.offset for each in found]
        assert offsets == sorted(set(offsets)), "duplicate or unordered offsets"
        least = self.durable_end if power_cut else max(self.known, default=-1) + 1
        assert end_offset >= least, f"the log ends at {end_offset}, not {least}"
        there = {each.offset: self._identified(each, power_cut) for each in found}
        latest = {known.key: offset for offset, known in there.items()}
        for offset, known in sorted(self.known.items()):
            if offset < stable_offset and self._counts(offset, known, power_cut):
                is_there = latest.get(known.key, -1) >= offset
                is_gone = known.value is None and known.key not in latest
                what = f"{known.key} is {known.value} at {offset}, but the latest are {latest}"
                assert is_there or is_gone or self._is_superseded(offset, known), what
        hidden = range(stable_offset, end_offset)
        later = {offset: known for offset, known in self.known.items() if offset in hidden}
        self.known = {offset: Known(each.key, each.value) for offset, each in there.items()} | later
        self.tried.clear()

    def _identified(self, each: Plain, power_cut: bool) -> Known:
        """Returns what a record is; it must be one that was written."""
        assert each.key is not None
        found = (each.key.decode(), None if each.value is None else each.value.decode())
        known = self.known.get(each.offset)
        if known is not None and (known.key, known.value) == found:
            ending = self.endings.get(known.txn)
            is_aborted = ending is not None and not ending.commit and ending.offset >= 0
            assert not is_aborted, f"{known} at {each.offset} was aborted"
            return known
        assert known is None or power_cut, f"{found} at {each.offset}, not {known}"
        tried = [each for each in self.tried.values() if found in each.records]
        assert tried, f"{found} at {each.offset} was never written"
        return Known(*found)

    def _counts(self, offset: int, known: Known, power_cut: bool) -> bool:
        """Returns whether a record is certainly committed."""
        end = self.durable_end if power_cut else max(self.known) + 1
        ending = self.endings.get(known.txn)
        if not known.txn:
            return offset < end
        if ending is None or not ending.commit or ending.offset < 0:
            return False
        return offset < end and (not power_cut or ending.offset < end)

    def _is_superseded(self, offset: int, known: Known) -> bool:
        """Returns whether the key got a later tombstone, which may have expired since."""
        later = (
            other
            for at, other in self.known.items()
            if at > offset and other.key == known.key and self._may_count(other)
        )
        return any(other.value is None for other in later)

    def _may_count(self, known: Known) -> bool:
        ending = self.endings.get(known.txn)
        return not known.txn or (ending is not None and ending.commit)


@dataclass(slots=True)
class Open:
    """An open transaction."""

    name: str
    producer_id: int
    sequence: int = 0


class Steps:
    """Steps on one engine, each reported before and after it is taken. `life` makes names unique
    among lives."""

    def __init__(
        self,
        engine: LogManager,
        clock: SetClock,
        tell: Callable[[Event], None],
        chance: random.Random,
        life: int,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.tell = tell
        self.chance = chance
        self.latest: dict[str, tuple[int, bool]] = {}  # offset, whether it is a tombstone
        self.passes = 0
        self._life = life
        self._count = 0
        self._open: list[Open] = []
        self._map: OffsetMap = engine.cleaner.new_map()

    @property
    def writer(self) -> LogWriter:
        return self.engine.writer(TOPIC, 0)

    def append_step(self) -> None:
        """Takes one step that appends."""
        steps = {self.append: 10, self.append_in_transaction: 4, self.end_transaction: 3}
        self.chance.choices(list(steps), list(steps.values()))[0]()

    def step(self) -> None:
        """Takes one step of any kind."""
        steps = {
            self.append_step: 17,
            self.roll: 1,
            self.flush: 1,
            self.end_and_clean: 12,
            self.run_task: 2,
        }
        self.chance.choices(list(steps), list(steps.values()))[0]()

    def append(self) -> None:
        tried = self._try()
        self.tell(tried)
        batch = _batch(tried.records, self.clock.now_ms(), self._codec())
        durable = self.chance.random() < 0.3
        appended = self.writer.append(batch, durable=durable)
        self.tell(Done(tried.name, appended.first_offset))
        for number, (key, value) in enumerate(tried.records):
            self.latest[key] = appended.first_offset + number, value is None
        if durable:
            self.tell(Durable(appended.last_offset + 1))

    def append_in_transaction(self) -> None:
        if len(self._open) < 2:
            self._count += 1
            producer_id = self._life * 1_000_000 + self._count
            self._open.append(Open(f"txn{producer_id}", producer_id))
        txn = self.chance.choice(self._open)
        tried = self._try(txn.name)
        self.tell(tried)
        batch = _batch(tried.records, self.clock.now_ms(), self._codec(), txn)
        appended = self.writer.append(batch)
        txn.sequence += len(tried.records)
        self.tell(Done(tried.name, appended.first_offset))

    def end_transaction(self) -> None:
        if self._open:
            txn = self._open.pop(0)
            commit = self.chance.random() < 0.6
            self.tell(Ending(txn.name, commit))
            marker = self.writer.end_transaction(txn.producer_id, 0, commit)
            self.tell(Ending(txn.name, commit, marker.first_offset))

    def roll(self) -> None:
        self.writer.roll()

    def flush(self) -> None:
        end = self.writer.end_offset
        self.writer.flush()
        self.tell(Durable(end))

    def clean(self) -> None:
        """Cleans every log that is due."""
        self.clock.advance(200)
        for candidate in self.engine.cleaner.due():
            self.engine.cleaner.clean(candidate, self._map)
            self.passes += 1

    def end_and_clean(self) -> None:
        """Ends most open transactions first: the cleaner stops at the first open one."""
        while self._open and self.chance.random() < 0.8:
            self.end_transaction()
        if self.chance.random() < 0.5:
            self.roll()
        self.clean()

    def run_task(self) -> None:
        self.clock.advance(self.chance.randint(0, 1500))
        self.engine.run(self.chance.choice(["recovery-points", "deletion", "cleaner"]))

    def _try(self, txn: str = "") -> Tried:
        self._count += 1
        name = f"{self._life}-{self._count}"
        keys = self.chance.sample(KEYS, self.chance.choice((1, 1, 2, 5)))
        size = self.chance.choice((10, 50, 100))
        records = [
            (key, None if self.chance.random() < 0.2 else f"{name}.{key}.".ljust(size, "x"))
            for key in keys
        ]
        return Tried(name, tuple(records), txn)

    def _codec(self) -> Codec:
        return self.chance.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP])


def _batch(
    records: Iterable[tuple[str, str | None]], now_ms: int, codec: Codec, txn: Open | None = None
) -> bytes:
    made = [
        SimpleRecord(now_ms, key.encode(), None if value is None else value.encode())
        for key, value in records
    ]
    if txn is None:
        return build_batch(made, BatchFields(codec=codec, leader_epoch=-1))
    fields = BatchFields(
        codec=codec,
        leader_epoch=-1,
        producer_id=txn.producer_id,
        producer_epoch=0,
        base_sequence=txn.sequence,
        is_transactional=True,
    )
    return build_batch(made, fields)


def open_engine(root: Path, clock: SetClock) -> LogManager:
    """Opens the engine, creates the topic if needed, and aborts transactions left open."""
    engine = LogManager(str(root), BROKER, clock)
    try:
        if TOPIC not in engine.topics():
            engine.create_topic(TOPIC, 1, SETTINGS)
        writer = engine.writer(TOPIC, 0)
        for hanging in writer.producers.open_transactions():
            abort_transaction(writer, hanging.producer_id)
    except BaseException:
        engine.close()
        raise
    return engine


def check(engine: LogManager, model: Model, power_cut: bool = False) -> None:
    """Checks the contents of the log against the model."""
    view = engine.log(TOPIC, 0).view()
    model.check(read(view), view.end_offset, view.last_stable_offset, power_cut)
