"""Random steps that change partitions in every way, each reported before and after it is taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import ConfigsNotRemoved
from kafkafs.storage.format.layout import CONTROL_MASK, Codec
from kafkafs.storage.format.records.batch import parse_header
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.append.appending import LogAppendInfo
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_manager import LogManager
from tests.building import BatchFields, build_batch
from tests.crash.model import (
    Contents,
    Deleting,
    Done,
    Durable,
    Event,
    Making,
    Retaining,
    Same,
    Trimmed,
    Trimming,
    Truncating,
    Try,
)
from tests.reading import COMMITTED, UNCOMMITTED, read

NOW_MS = 1_800_000_000_000
TOPIC = "t"
PARTITIONS = ("t-0", "t-1")
RETENTION_BYTES = 12_000
#: Segments of a dozen batches, and indexes of a few dozen entries.
SETTINGS = {
    "internal.segment.bytes": "4000",
    "segment.index.bytes": "400",
    "index.interval.bytes": "256",
    "retention.bytes": str(RETENTION_BYTES),
    "retention.ms": "-1",
    "file.delete.delay.ms": "1000",
}

Tell = Callable[[Event], None]


def contents(engine: LogManager) -> dict[str, Contents]:
    """Returns what all partitions hold, as a reader sees it."""
    found = {}
    for topic, numbers in engine.topics().items():
        for number in numbers:
            view = engine.log(topic, number).view()
            ends = markers(view)
            values: dict[int, str | None] = dict.fromkeys(ends)
            for each in read(view, isolation=UNCOMMITTED):
                values[each.offset] = (each.value or b"").decode()
            found[f"{topic}-{number}"] = Contents(
                view.start_offset,
                view.end_offset,
                view.size,
                values,
                ends,
                [each.offset for each in read(view, isolation=COMMITTED)],
            )
    return found


def markers(view: View) -> dict[int, str]:
    """Returns the transactions by the offset of their end marker, from the bytes of the logs."""
    found = {}
    for segment in view.segments:
        data = segment.files.log().read(0, segment.size)
        position = 0
        while position < len(data):
            header = parse_header(data[position:])
            if header.attributes & CONTROL_MASK and header.base_offset >= view.start_offset:
                found[header.base_offset] = f"{header.producer_id}"
            position += header.size
    return found


def open_engine(root: Path, clock: SetClock) -> LogManager:
    return LogManager(str(root), {}, clock)


@dataclass(slots=True)
class _Transaction:
    producer_id: int
    partition: str
    sequence: int = 0


@dataclass(slots=True)
class Workload:
    """Steps on one engine. `life` makes names unique among lives; producer IDs start at
    `producer_id`. If `is_alone`, no other workload appends to the same partitions."""

    engine: LogManager
    clock: SetClock
    tell: Tell
    chance: random.Random
    life: str
    producer_id: int
    is_alone: bool = True
    _count: int = 0
    _idempotent_id: int = 0  # offset from producer_id
    _firsts: dict[str, list[int]] = field(default_factory=dict)  # base offsets of batches
    _sequences: dict[str, int] = field(default_factory=dict)  # of the idempotent producer
    _transactions: list[_Transaction] = field(default_factory=list)

    def make_topic(self) -> None:
        """Creates the topic that all steps use, unless it exists with all partitions."""
        numbers = self.engine.topics().get(TOPIC, [])
        if len(numbers) == len(PARTITIONS):
            return
        if numbers:
            self.delete(TOPIC, numbers)
        self._make(TOPIC, len(PARTITIONS))

    def resend(self, tried: Try, is_there: bool) -> None:
        """Resends a batch of an idempotent producer, as after a lost response. If the batch is not
        present, its records may also have been deleted, since the producer state outlives them."""
        if not is_there:
            self.tell(tried)
        writer = self.writer(tried.partition)
        appended = writer.append(batch_of(tried, self.clock.now_ms()))
        if is_there:
            assert appended.is_duplicate
            self.tell(Same(tried.partition, tried.name, appended.first_offset))
        elif appended.is_duplicate:
            assert appended.first_offset < writer.start_offset
        else:
            self._appended(tried, appended)

    def abort(self, partition: str, txn: str) -> None:
        """Aborts a transaction that an earlier life left open."""
        self._end(_Transaction(int(txn), partition), commit=False)

    def step(self) -> None:
        """Takes one step of any kind."""
        steps: dict[Callable[[], None], int] = {**self._appending(), **self._keeping()}
        self.chance.choices(list(steps), list(steps.values()))[0]()

    def append_step(self) -> None:
        """Takes one step that other threads may take at the same time with their own workloads."""
        steps = self._appending()
        self.chance.choices(list(steps), list(steps.values()))[0]()

    def _appending(self) -> dict[Callable[[], None], int]:
        return {
            self.append: 40,
            self.append_idempotently: 12,
            self.append_in_transaction: 12,
            self.end_transaction: 6,
            self.flush: 5,
        }

    def _keeping(self) -> dict[Callable[[], None], int]:
        return {
            self.roll: 4,
            self.retain: 5,
            self.delete_records: 2,
            self.finish_deletions: 4,
            self.truncate: 2 * self.is_alone,
            self.run_task: 8,
            self.make_and_delete: 2,
        }

    # -- appends ----------------------------------------------------------------------------------

    def append(self) -> None:
        self._append(self._try(), durable=self.chance.random() < 0.3)

    def append_idempotently(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        sequence = self._sequences.get(partition, 0)
        producer_id = self.producer_id + self._idempotent_id
        tried = self._try(partition, producer_id=producer_id, sequence=sequence)
        self._append(tried, durable=False)
        self._sequences[partition] = sequence + tried.count
        if self.chance.random() < 0.3:
            self.resend(tried, is_there=True)

    def append_in_transaction(self) -> None:
        if len(self._transactions) < 3 and self.chance.random() < 0.5:
            partition = self.chance.choice(PARTITIONS)
            self._count += 1
            self._transactions.append(_Transaction(self.producer_id + self._count, partition))
        if self._transactions:
            txn = self.chance.choice(self._transactions)
            tried = self._try(txn.partition, f"{txn.producer_id}", txn.producer_id, txn.sequence)
            self._append(tried, durable=self.chance.random() < 0.2)
            txn.sequence += tried.count

    def end_transaction(self) -> None:
        if self._transactions:
            txn = self.chance.choice(self._transactions)
            if txn.sequence:
                self._end(txn, commit=self.chance.random() < 0.5)
            self._transactions.remove(txn)

    def flush(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        end = self.writer(partition).end_offset
        self.writer(partition).flush()
        self.tell(Durable(partition, end))

    # -- keeping ----------------------------------------------------------------------------------

    def roll(self) -> None:
        self.writer(self.chance.choice(PARTITIONS)).roll()

    def retain(self) -> None:
        self.tell(Retaining(RETENTION_BYTES))
        self.engine.run("retention")
        for partition in PARTITIONS:
            self.tell(Trimming(partition, self.writer(partition).start_offset))
        self.tell(Retaining(-1))

    def delete_records(self) -> None:
        partition = self.chance.choice(PARTITIONS)
        writer = self.writer(partition)
        offset = self.chance.randint(writer.start_offset, writer.end_offset)
        offset = min(offset, writer.start_offset + 50)
        bases = [
            segment.base_offset
            for segment in self.engine.log(TOPIC, _number(partition)).view().segments
        ]
        above = [base for base in bases if base > writer.start_offset]
        if above and self.chance.random() < 0.5:
            offset = above[0]  # a segment start: once deleted, only file names show it
        self.tell(Trimming(partition, offset))
        writer.delete_records(offset)

    def finish_deletions(self) -> None:
        """Deletes records as `rm` in a mount does, durably."""
        self.delete_records()
        keys = {(TOPIC, _number(partition)) for partition in PARTITIONS}
        assert not self.engine.background_tasks.finish_deletions(keys)
        self._tell_starts()
        if self.chance.random() < 0.5:
            self.engine.run("start-offsets")

    def truncate(self) -> None:
        """Truncates the last batches. Producers learn nothing of it, so they are abandoned."""
        partition = self.chance.choice(PARTITIONS)
        start = self.writer(partition).start_offset
        firsts = [offset for offset in self._firsts.get(partition, []) if offset >= start]
        if not firsts:
            return
        offset = self.chance.choice(firsts[-5:])
        self._firsts[partition] = [each for each in firsts if each < offset]
        self._count += 1
        self._idempotent_id = self._count
        self._sequences.clear()
        self._transactions = [txn for txn in self._transactions if txn.partition != partition]
        self.tell(Truncating(partition, offset, False))
        self.engine.truncate_to(TOPIC, _number(partition), offset)
        assert self.writer(partition).end_offset == offset
        self.tell(Truncating(partition, offset, True))

    def run_task(self) -> None:
        self.clock.advance(self.chance.randint(0, 1500))
        task = self.chance.choice(
            ["recovery-points", "start-offsets", "high-watermarks", "deletion", "producers"]
        )
        self.engine.run(task)
        if task == "start-offsets":
            self._tell_starts()

    def _tell_starts(self) -> None:
        for partition in PARTITIONS:
            self.tell(Trimmed(partition, self.writer(partition).start_offset))

    def make_and_delete(self) -> None:
        self._count += 1
        topic = f"{self.life}-{self._count}"
        self._make(topic, 1)
        self._append(self._try(f"{topic}-0"), durable=False)
        self.delete(topic, [0])

    # -- within -----------------------------------------------------------------------------------

    def writer(self, partition: str) -> LogWriter:
        topic, _, _ = partition.rpartition("-")
        return self.engine.writer(topic, _number(partition))

    def _make(self, topic: str, count: int) -> None:
        for number in range(count):
            self.tell(Making(f"{topic}-{number}", False))
        self.engine.create_topic(topic, count, SETTINGS)
        for number in range(count):
            self.tell(Making(f"{topic}-{number}", True))

    def delete(self, topic: str, numbers: Sequence[int]) -> None:
        """Deletes a topic with these partitions. They are deleted also if ConfigsNotRemoved is
        raised."""
        for number in numbers:
            self.tell(Deleting(f"{topic}-{number}", False))
        failure = None
        try:
            self.engine.delete_topic(topic)
        except ConfigsNotRemoved as error:
            failure = error
        for number in numbers:
            self.tell(Deleting(f"{topic}-{number}", True))
        if failure is not None:
            raise failure

    def _try(
        self, partition: str = "", txn: str = "", producer_id: int = -1, sequence: int = -1
    ) -> Try:
        self._count += 1
        return Try(
            partition or self.chance.choice(PARTITIONS),
            f"{self.life}-{self._count}",
            self.chance.choice((1, 1, 1, 3, 10)),
            self.chance.choice((0, 20, 20, 100, 300)),
            txn,
            False,
            producer_id,
            sequence,
            str(self.chance.choice(list(Codec)).name),
        )

    def _append(self, tried: Try, durable: bool) -> None:
        self.tell(tried)
        writer = self.writer(tried.partition)
        appended = writer.append(batch_of(tried, self.clock.now_ms()), durable=durable)
        self._appended(tried, appended)
        if durable:
            self.tell(Durable(tried.partition, appended.last_offset + 1))

    def _appended(self, tried: Try, appended: LogAppendInfo) -> None:
        assert not appended.is_duplicate
        assert appended.last_offset == appended.first_offset + tried.count - 1
        self.tell(Done(tried.partition, tried.name, appended.first_offset))
        self._firsts.setdefault(tried.partition, []).append(appended.first_offset)

    def _end(self, txn: _Transaction, commit: bool) -> None:
        self._count += 1
        name = f"{self.life}-{self._count}"
        self.tell(Try(txn.partition, name, 0, txn=f"{txn.producer_id}", commit=commit))
        writer = self.writer(txn.partition)
        appended = writer.end_transaction(txn.producer_id, 0, commit, 0)
        self.tell(Done(txn.partition, name, appended.first_offset))


def _number(partition: str) -> int:
    return int(partition.rpartition("-")[2])


def batch_of(tried: Try, now_ms: int) -> bytes:
    """Returns the batch, as a producer sends it."""
    records = [SimpleRecord(now_ms, b"k", value.encode()) for value in tried.values]
    fields = BatchFields(
        codec=Codec[tried.codec],
        leader_epoch=-1,
        producer_id=tried.producer_id,
        producer_epoch=0 if tried.producer_id >= 0 else -1,
        base_sequence=tried.sequence,
        is_transactional=bool(tried.txn),
    )
    return build_batch(records, fields)
