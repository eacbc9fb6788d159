"""Compares a partition with a model after any sequence of operations: a reader finds what the model
has, also after a clean stop, a crash, and the recovery from it.

The model is a list of batches. Its rules involve no files, indexes or snapshots.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.errors import CannotUndelete, InvalidTxnState, Refused
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.read.context import ReadContext
from kafkafs.storage.log.read.log import Log
from tests.building import BatchFields, build_batch
from tests.logs import walk
from tests.profiles import percent
from tests.reading import COMMITTED, UNCOMMITTED, Plain, check_against, read
from tests.writing import NOW, Unsynced, config, open_log

SEGMENT_BYTES = 700
TIMES = st.one_of(st.integers(0, 50), st.just(0), st.just(1000)).map(lambda n: NOW - 1000 + n)
RECORDS = st.lists(st.tuples(TIMES, st.integers(0, 60)), min_size=1, max_size=4)
PRODUCERS = st.sampled_from([1, 2])
CODECS = st.sampled_from([Codec.NONE, Codec.LZ4])


@dataclass(frozen=True)
class Batch:
    """A batch of the model; `ends` a transaction with a commit (True) or abort (False)."""

    records: tuple[Plain, ...]
    first: int
    last: int
    txn: int = -1
    ends: bool | None = None


@dataclass
class Model:
    """The log's content: `start`, and the batches, also earlier ones that may be restored."""

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def add(self, found: Batch) -> None:
        self.batches.append(found)
        self.end = found.last + 1

    def open_transactions(self) -> dict[int, int]:
        """Returns the first offset of each open transaction by producer."""
        found: dict[int, int] = {}
        for one in self.batches:
            if one.ends is not None:
                found.pop(one.txn, None)
            elif one.txn >= 0:
                found.setdefault(one.txn, one.first)
        return found

    @property
    def stable(self) -> int:
        return max(min([self.end, *self.open_transactions().values()]), self.start)

    def aborted(self, number: int) -> bool:
        """Returns whether the next marker of batch `number`'s transaction is an abort."""
        one = self.batches[number]
        ends = (b.ends for b in self.batches[number:] if b.txn == one.txn and b.ends is not None)
        return one.txn >= 0 and next(ends, None) is False

    def records(self, *, committed: bool) -> list[Plain]:
        return [
            record
            for number, one in enumerate(self.batches)
            for record in one.records
            if record.offset >= self.start
            and not (committed and (record.offset >= self.stable or self.aborted(number)))
        ]

    def truncate(self, offset: int) -> None:
        self.batches = [one for one in self.batches if one.last < offset]
        self.end = offset
        self.start = min(self.start, offset)


class Partition(RuleBasedStateMachine):
    """The partition, a reader that stays open throughout, and the model."""

    writer: LogWriter

    @initialize(
        preallocate=st.booleans(),
        interval=st.sampled_from([0, 150]),
        segment_ms=st.sampled_from([30, 1 << 40]),
        flush=st.sampled_from([1, 3, 1 << 40]),
    )
    def begin(self, preallocate: bool, interval: int, segment_ms: int, flush: int) -> None:
        self.calls = ExitStack()
        self.calls.enter_context(replaced(Unsynced()))
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name, "t-0")
        self.settings: TopicConfig = config(
            segment_bytes=SEGMENT_BYTES,
            preallocate=preallocate,
            index_interval_bytes=interval,
            segment_ms=segment_ms,
            flush_messages=flush,
            retention_ms=-1,
        )
        self.clock = SetClock(NOW)
        self.model = Model()
        self.checkpointed = (0, 0)  # recovery point and log start offset
        self.open(is_clean=False)
        parent = DirFd(self.folder.name)
        self.log = Log(parent.child("t-0"), "t", 0, lambda: self.writer.start_offset, ReadContext())

    def open(self, is_clean: bool) -> None:
        recovery_point, start = self.checkpointed
        self.writer = open_log(
            self.path,
            self.settings,
            self.clock,
            recovery_point=recovery_point,
            start_offset=start,
            is_clean=is_clean,
        )

    def teardown(self) -> None:
        self.calls.close()
        self.folder.cleanup()

    # -- appending

    @rule(records=RECORDS, codec=CODECS, durable=st.booleans())
    def append(self, records: list[tuple[int, int]], codec: Codec, durable: bool) -> None:
        data, found = self.batch(records, codec=codec)
        appended = self.writer.append(data, durable=durable)
        assert (appended.first_offset, appended.last_offset) == (found.first, found.last)
        assert not durable or self.writer.recovery_point > appended.last_offset
        self.model.add(found)

    @rule(count=st.integers(1, 30))
    def append_many(self, count: int) -> None:
        """Appends batches of one record each, over several segments."""
        values = [b"%d" % number for number in range(count)]
        columns = RecordColumns.from_values(values, timestamp=NOW)
        first = self.model.end
        appended = self.writer.append_records(columns, BatchPlan(batch_bytes=1))
        assert (appended.first_offset, appended.last_offset) == (first, first + count - 1)
        for number, value in enumerate(values):
            at = first + number
            self.model.add(Batch((Plain(at, NOW, None, value),), at, at))

    @rule(records=RECORDS, producer=PRODUCERS)
    def append_in_a_transaction(self, records: list[tuple[int, int]], producer: int) -> None:
        fields = self.fields_of(producer)
        data, found = self.batch(records, txn=producer, is_transactional=True, **fields)
        self.writer.append(data)
        self.model.add(found)

    @rule(records=RECORDS, producer=PRODUCERS)
    def append_idempotently_and_again(self, records: list[tuple[int, int]], producer: int) -> None:
        data, found = self.batch(records, **self.fields_of(producer))
        if producer in self.model.open_transactions():
            try:
                self.writer.append(data)
            except InvalidTxnState:
                return
            raise AssertionError("accepted plain data inside a transaction")
        self.writer.append(data)
        self.model.add(found)
        again = self.writer.append(data)
        assert (again.first_offset, again.last_offset, again.is_duplicate) == (
            found.first, found.last, True,
        )  # fmt: skip

    @rule(producer=PRODUCERS, commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer: int, commit: bool, bump: bool) -> None:
        state = self.writer.producers.state(producer)
        epoch = 0 if state is None else state.epoch + bump
        appended = self.writer.end_transaction(producer, epoch, commit)
        at = self.model.end
        assert appended.first_offset == at
        self.model.add(Batch((), at, at, producer, commit))

    @rule(records=RECORDS, gap=st.integers(0, 5))
    def replicate(self, records: list[tuple[int, int]], gap: int) -> None:
        data, found = self.batch(records, base=self.model.end + gap)
        self.writer.append(data, AppendOrigin.REPLICATION)
        self.model.add(found)

    @rule(records=RECORDS)
    def append_something_broken(self, records: list[tuple[int, int]]) -> None:
        data, _ = self.batch(records)
        try:
            self.writer.append(data[:-1] + bytes([data[-1] ^ 1]))
        except Refused:
            return
        raise AssertionError("accepted a wrong checksum")

    # -- changing

    @rule()
    def roll(self) -> None:
        self.writer.roll()

    @rule()
    def flush(self) -> None:
        self.writer.flush()
        assert self.writer.recovery_point == self.model.end

    # A transaction whose beginning was deleted may be forgotten when the partition is opened, as in
    # Kafka: it depends on which snapshots are left.

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        offset = round(part * self.model.stable)
        self.model.start = max(self.model.start, offset)
        before = self.writer.start_offset
        assert self.writer.delete_records(offset) == self.model.start
        if self.model.start > before:
            newest = self.writer.deleted()[-1]
            assert newest.start_offset <= before < newest.end_offset == self.model.start

    @precondition(lambda self: not self.model.open_transactions())
    @rule(size=st.integers(0, 3000))
    def retain(self, size: int) -> None:
        self.writer.config = replace(self.settings, retention_bytes=size, file_delete_delay_ms=50)
        before = sum(segment.size for segment in self.writer.retention_state().segments)
        plan = self.writer.retain()
        after = sum(segment.size for segment in self.writer.retention_state().segments)
        assert after >= min(size, before) or plan.deletions[0].rule.value == "log start offset"
        self.model.start = max(self.model.start, plan.start_offset)
        self.writer.config = self.settings

    @rule()
    def remove_deleted(self) -> None:
        self.clock.advance(50)
        self.writer.remove_deleted()
        assert not list(self.path.glob("*.deleted")) or not self.writer.remove_deleted()

    @rule(part=st.floats(0, 1), is_all=st.booleans())
    def undelete(self, part: float, is_all: bool) -> None:
        deleted = self.writer.deleted()
        ends = [each.end_offset for each in deleted]
        if not deleted:
            try:
                self.writer.undelete()
            except CannotUndelete:
                return
            raise AssertionError("undeleted although nothing was deleted")
        assert [each.start_offset for each in deleted[1:]] + [self.model.start] == ends
        lowest = deleted[0].start_offset
        start = lowest if is_all else lowest + int(part * (self.model.start - lowest - 1))
        back = self.writer.undelete(None if is_all else start)
        assert (back[0].start_offset, back[-1].end_offset) == (start, self.model.start)
        assert self.writer.deleted() == [] or self.writer.deleted()[-1].end_offset == start
        self.model.start = start
        self.checkpoint()

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = round(part * (self.model.end + 3))
        assert self.writer.truncate_to(offset) == (offset < self.model.end)
        if offset < self.writer.first_base_offset or offset < self.model.end:
            self.model.truncate(offset)
        self.checkpoint()

    @rule(ahead=st.integers(0, 10))
    def start_anew(self, ahead: int) -> None:
        offset = self.model.end + ahead
        self.writer.truncate_fully_and_start_at(offset)
        self.model = Model(start=offset, end=offset)
        self.checkpoint()

    # -- stopping

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = (self.writer.recovery_point, self.writer.start_offset)

    @rule()
    def stop_and_open(self) -> None:
        state = self.writer.retention_state()
        self.writer.close()
        self.checkpoint()
        self.come_back(state.segments[0].base_offset, state.segments[-1].base_offset)
        self.open(is_clean=True)

    @rule(kept=st.floats(0, 1))
    def crash(self, kept: float) -> None:
        """Simulates a crash; of unsynced data in the active segment only a part may be on disk."""
        first_base = self.writer.first_base_offset
        active = self.writer.retention_state().segments[-1]
        self.writer.abandon()
        self.lose(active.base_offset, active.size, kept)
        self.come_back(first_base, active.base_offset)
        self.open(is_clean=False)

    def lose(self, base: int, size: int, kept: float) -> None:
        path = self.path / f"{base:020}.log"
        headers = list(walk(path.read_bytes()[:size]))
        synced = sum(h.size for h in headers if h.last_offset < self.writer.recovery_point)
        left = synced + round(kept * (size - synced))
        os.truncate(path, left)
        if left < size:
            lost = min(h.last_offset for h in headers if h.position + h.size > left)
            self.model.batches = [one for one in self.model.batches if one.last < lost]

    def come_back(self, first_base: int, active_base: int) -> None:
        """Changes the model to what reopening yields. A truncation inside a batch leaves no trace
        in the files, and the log start offset is the checkpointed one."""
        model, start = self.model, self.checkpointed[1]
        model.end = max(model.batches[-1].last + 1 if model.batches else 0, active_base)
        model.start = max(start, first_base)
        if model.end < start:
            self.model = Model([], start, start)

    # -- checking

    @invariant()
    def readers_find_what_the_model_has(self) -> None:
        writer, model = self.writer, self.model
        assert (writer.start_offset, writer.end_offset) == (model.start, model.end)
        assert writer.last_stable_offset == model.stable
        assert 0 <= writer.recovery_point <= model.end
        view = self.log.view()
        assert view.start_offset == model.start
        check_against(view, model.records(committed=True), COMMITTED)
        assert read(view, isolation=UNCOMMITTED) == model.records(committed=False)

    def batch(
        self,
        records: list[tuple[int, int]],
        *,
        base: int | None = None,
        txn: int = -1,
        **fields: Any,
    ) -> tuple[bytes, Batch]:
        """Builds a batch to send, and the batch that the model will have."""
        first = self.model.end if base is None else base
        given = [SimpleRecord(time, None, bytes(size)) for time, size in records]
        data = build_batch(given, BatchFields(base_offset=base or 0, **fields))
        plain = tuple(
            Plain(first + number, record.timestamp, None, record.value)
            for number, record in enumerate(given)
        )
        return data, Batch(plain, first, first + len(given) - 1, txn)

    def fields_of(self, producer: int) -> dict[str, int]:
        """Returns the producer fields that the next batch of a producer must have."""
        state = self.writer.producers.state(producer)
        epoch, sequence = (0, 0) if state is None else (state.epoch, state.last_sequence + 1)
        return {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=percent(25), stateful_step_count=25)
