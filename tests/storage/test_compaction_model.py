"""Checks the guarantees of compaction on random logs against a list of what was written.

For each key the latest committed value is retained, a tombstone is retained long enough, no record
changes its offset, content or time, whatever may not be cleaned stays whole, a preview predicts
what a pass retains, and repeated passes come to an end. A seed determines all operations.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from kafkafs.storage.cleaner.manager import CleaningCandidate
from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.cleaner.preview.preview import PreviewRequest, preview
from kafkafs.storage.cleaner.record_filter import RecordRetention
from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.batch import Int64s
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.verifier import Verifier
from kafkafs.storage.transactions.producer import TransactionalProducer

NOW: Final = 1_790_000_000_000
RETENTION_MS: Final = 100
PRODUCERS: Final = 4
KEYS: Final = 12
#: Exceeds the number of keys.
ALL_KEYS: Final = 32
STEPS: Final = 250
#: After so many passes at one time, nothing may change any more.
PASSES: Final = 8


@dataclass
class Transaction:
    """A transaction; `is_committed` is None while it is open."""

    is_committed: bool | None = None


COMMITTED = Transaction(is_committed=True)


@dataclass
class Line:
    """A record as it was sent; `seen_ms` is when a pass may first have seen it, or None."""

    record: SimpleRecord
    transaction: Transaction
    seen_ms: int | None = None


class Compaction:
    """A topic with several producers and a cleaner, on a clock that the test sets."""

    def __init__(self, engine: LogManager, clock: SetClock, seed: int) -> None:
        self.engine = engine
        self.clock = clock
        self.chance = random.Random(seed)
        self.counts: Counter[RecordRetention] = Counter()
        self.lines: dict[int, Line] = {}
        self.producers = [TransactionalProducer(engine) for _ in range(PRODUCERS)]
        self.open: dict[int, Transaction] = {}
        settings = {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(RETENTION_MS),
            "min.compaction.lag.ms": str(self.chance.choice([0, 0, 120])),
            "internal.segment.bytes": str(self.chance.randrange(2500, 8000)),
            "index.interval.bytes": "100",
        }
        engine.create_topic("t", configs=settings)
        self.writer = engine.writer("t", 0)

    def run(self) -> None:
        steps = {
            self.send: 12,
            self.begin_or_end: 4,
            self.writer.roll: 3,
            self.wait: 2,
            self.clean_some: 1,
            self.clean_all: 1,
            self.clean_again_and_again: 0.3,
        }
        for step in self.chance.choices(list(steps), list(steps.values()), k=STEPS):
            step()
        for number in list(self.open):
            self.end(number)
        self.clock.advance(1000)
        self.clean_all()
        verifier = Verifier(self.engine)
        assert list(verifier.partition(self.engine.partition_dir("t", 0))) == []
        assert self.engine.problems == []

    # -- writing ---------------------------------------------------------------------------------

    def send(self) -> None:
        """Appends one batch or several, in a transaction or not, idempotent or not."""
        made = list(self.records())
        codec = self.chance.choice(list(Codec))
        plan = BatchPlan(codec=codec, batch_bytes=self.chance.choice([1, 400]))
        number = self.chance.randrange(-1, PRODUCERS)
        transaction = COMMITTED
        if number < 0:
            appended = self.writer.append_records(RecordColumns.from_records(made), plan)
        else:
            appended = self.producers[number].append("t", 0, made, plan)
            transaction = self.open.get(number, COMMITTED)
        for at, record in enumerate(made, appended.first_offset):
            self.lines[at] = Line(record, transaction)

    def records(self) -> Iterator[SimpleRecord]:
        """Yields records with few keys, some tombstones, and timestamps out of order."""
        chance, now = self.chance, self.clock.now_ms()
        for _ in range(chance.randrange(1, 16)):
            value = None if chance.random() < 0.25 else b"%d" % chance.getrandbits(40)
            yield SimpleRecord(
                now + chance.randrange(-150, 50), b"k" * chance.randrange(KEYS), value
            )

    def begin_or_end(self) -> None:
        """Ends an open transaction soon after it began, because nothing after it can be cleaned."""
        if self.open:
            self.end(self.chance.choice(sorted(self.open)))
        elif self.chance.random() < 0.7:
            for number in self.chance.sample(range(PRODUCERS), 2):
                self.producers[number].begin()
                self.open[number] = Transaction()

    def end(self, number: int) -> None:
        commit = self.chance.random() < 0.5
        producer = self.producers[number]
        producer.commit() if commit else producer.abort()
        self.open.pop(number).is_committed = commit

    def wait(self) -> None:
        self.clock.advance(self.chance.choice([1, 60, 130]))

    # -- cleaning --------------------------------------------------------------------------------

    def clean_some(self) -> None:
        """Runs one pass, which a map for few keys may end early."""
        self.run_pass(self.candidate(), self.chance.randrange(1, KEYS))
        self.check()

    def clean_all(self) -> None:
        """Runs a preview, and then a pass over everything that can be cleaned."""
        candidate = self.candidate()
        before = offsets(self.view())
        foretold = preview(self.request(candidate), in_full=self.chance.random() < 0.5)
        self.run_pass(candidate, ALL_KEYS)
        assert np.array_equal(before[foretold.mask(before)], offsets(self.view()))
        self.check()
        self.check_that_keys_are_unique(candidate.plan.first_uncleanable)

    def clean_again_and_again(self) -> None:
        """Runs passes over the whole log at one time. The first may discard records, later ones
        none, and after at most `PASSES` of them the files no longer change."""
        self.clean_from_the_start()
        found, files = self.shown(Isolation.READ_UNCOMMITTED), self.files()
        for _ in range(PASSES):
            self.clean_from_the_start()
            assert self.shown(Isolation.READ_UNCOMMITTED) == found
            before, files = files, self.files()
            if before == files:
                return
        pytest.fail("every pass changes the files")

    def clean_from_the_start(self) -> None:
        candidate = self.candidate()
        candidate.log_dir.checkpoints.put_cleaner_offset(candidate.key, candidate.view.start_offset)
        self.run_pass(self.candidate(), ALL_KEYS)
        self.check()

    def candidate(self) -> CleaningCandidate:
        candidate = self.engine.cleaner.candidate(("t", 0))
        assert candidate is not None
        return candidate

    def request(self, candidate: CleaningCandidate) -> PreviewRequest:
        checkpoint = candidate.log_dir.checkpoints.cleaner_offset(candidate.key)
        config, broker = self.writer.config, self.engine.broker_config
        return PreviewRequest.of(self.view(), config, broker, checkpoint, self.clock.now_ms())

    def run_pass(self, candidate: CleaningCandidate, keys: int) -> None:
        result = self.engine.cleaner.clean(candidate, OffsetMap(keys * SLOT_BYTES, 1.0))
        self.counts.update(result.counts)
        planned = candidate.plan
        assert result.end_offset <= max(planned.first_uncleanable, planned.first_dirty)
        if keys == ALL_KEYS:
            assert result.end_offset >= planned.first_uncleanable
        for offset, line in self.lines.items():
            if offset < planned.first_uncleanable and line.seen_ms is None:
                line.seen_ms = self.clock.now_ms()

    # -- invariants ------------------------------------------------------------------------------

    def view(self) -> View:
        return self.engine.log("t", 0).view()

    def files(self) -> dict[str, bytes]:
        path = Path(self.engine.partition_dir("t", 0).path)
        return {file.name: file.read_bytes() for file in sorted(path.glob("*.log"))}

    def shown(self, isolation: Isolation) -> dict[int, SimpleRecord]:
        """Returns what a reader sees, by offset, in ascending order."""
        found: dict[int, SimpleRecord] = {}
        last = -1
        for part in self.view().read(isolation=isolation):
            for row in range(len(part)):
                record = part.record(row)
                assert record.offset > last
                last = record.offset
                found[last] = SimpleRecord(record.timestamp, record.key, record.value)
        return found

    def check(self) -> None:
        for isolation in Isolation:
            for offset, record in self.shown(isolation).items():
                assert record == self.lines[offset].record
        found = self.shown(Isolation.READ_COMMITTED)
        assert all(self.lines[offset].transaction.is_committed for offset in found)
        latest: dict[bytes | None, tuple[int, Line]] = {}
        for offset, line in self.lines.items():
            if line.transaction.is_committed and offset < self.view().last_stable_offset:
                latest[line.record.key] = offset, line
                assert line.seen_ms is not None or offset in found
        for offset, line in latest.values():
            if offset not in found:
                assert line.record.value is None
                assert line.seen_ms is not None
                assert self.clock.now_ms() >= line.seen_ms + RETENTION_MS

    def check_that_keys_are_unique(self, end: int) -> None:
        """Checks that no superseded record is left in the cleaned part."""
        found = self.shown(Isolation.READ_COMMITTED)
        keys = [record.key for offset, record in found.items() if offset < end]
        assert len(keys) == len(set(keys))


def offsets(view: View) -> Int64s:
    """Returns the offsets of all records."""
    parts = [part.offsets.copy() for part in view.read(isolation=Isolation.READ_UNCOMMITTED)]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


@pytest.mark.parametrize("seed", range(3))
def test_compaction(tmp_path: Path, seed: int) -> None:
    clock = SetClock(NOW)
    with LogManager(str(tmp_path), {"log.cleaner.enable": "false"}, clock=clock) as engine:
        compaction = Compaction(engine, clock, seed)
        compaction.run()
    # The cleaner discarded records for every reason that a compacted topic can have.
    gone = {
        RecordRetention.SUPERSEDED,
        RecordRetention.TOMBSTONE,
        RecordRetention.ABORTED,
        RecordRetention.MARKER,
    }
    assert all(compaction.counts[fate] for fate in gone)
