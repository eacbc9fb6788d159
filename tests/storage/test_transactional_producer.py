"""Tests the engine's own producers: idempotence, and transactions over several partitions."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    LogDirOffline,
    MessageTooLarge,
    OutOfOrderSequence,
    UnknownTopic,
)
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.decisions import Decision, read_decisions
from kafkafs.storage.transactions.producer import TransactionalProducer, abort_transaction
from tests.faults import FailingCalls
from tests.writing import NOW

COMMITTED, UNCOMMITTED = Isolation


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LogManager]:
    """Opens an engine with the topic t of three partitions."""
    with LogManager(str(tmp_path / "data"), clock=SetClock(NOW)) as engine:
        engine.create_topic("t", 3)
        yield engine


@pytest.fixture
def producer(engine: LogManager) -> TransactionalProducer:
    return TransactionalProducer(engine)


def records(*values: str) -> list[SimpleRecord]:
    return [SimpleRecord(NOW, b"k", value.encode()) for value in values]


def values(engine: LogManager, partition: int = 0, isolation: Isolation = COMMITTED) -> list[str]:
    """Returns the values that a reader of the partition sees."""
    view = engine.log("t", partition).view()
    return [
        (columns.value(row) or b"").decode()
        for columns in view.read(isolation=isolation)
        for row in range(len(columns))
    ]


def open_since(engine: LogManager, partition: int = 0) -> list[tuple[int, int]]:
    """Returns producer and first offset of the partition's open transactions."""
    open_ = engine.writer("t", partition).producers.open_transactions()
    return [(one.producer_id, one.first_offset) for one in open_]


class TestIdempotence:
    def test_sequence_numbers_go_on_in_each_partition(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        for partition in (0, 1, 0):
            producer.append("t", partition, records("a", "b"))
        state = engine.writer("t", 0).producers.state(producer.producer_id)
        assert state is not None
        assert [batch.last_sequence for batch in state.batches] == [1, 3]
        assert state.epoch == 0
        assert values(engine) == ["a", "b", "a", "b"]

    def test_an_append_that_failed_is_repeated_without_gap(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.append("t", 0, records("a"))
        failing = FailingCalls(0, errno.ENOSPC, ["pwritev"])
        with replaced(failing), pytest.raises(OSError, match="No space left"):
            producer.append("t", 0, records("b"))
        with pytest.raises(MessageTooLarge):
            producer.append("t", 0, records("x" * 2_000_000))
        assert producer.append("t", 0, records("b")).first_offset == 1
        assert values(engine) == ["a", "b"]

    def test_ids_are_those_of_no_broker_and_of_nobody_else(self, engine: LogManager) -> None:
        ids = {TransactionalProducer(engine).producer_id for _ in range(100)}
        assert len(ids) == 100
        assert all(1 << 61 <= id_ < 1 << 62 for id_ in ids)

    def test_there_must_be_such_a_topic(self, producer: TransactionalProducer) -> None:
        with pytest.raises(UnknownTopic):
            producer.append("u", 0, records("a"))


class TestTransactions:
    def test_records_count_when_it_is_committed(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.begin()
        producer.append("t", 0, records("a"))
        producer.append("t", 1, records("b"))
        assert values(engine) == values(engine, 1) == []
        assert values(engine, 0, UNCOMMITTED) == ["a"]
        assert open_since(engine) == [(producer.producer_id, 0)]
        assert engine.writer("t", 0).last_stable_offset == 0
        producer.commit()
        assert (values(engine), values(engine, 1)) == (["a"], ["b"])
        assert open_since(engine) == []
        assert engine.writer("t", 0).last_stable_offset == 2
        assert engine.writer("t", 2).end_offset == 0  # not part of it

    def test_records_of_an_aborted_one_do_not(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.begin()
        producer.append("t", 0, records("a"))
        producer.abort()
        producer.append("t", 0, records("b"))
        assert values(engine) == ["b"]
        assert values(engine, 0, UNCOMMITTED) == ["a", "b"]

    def test_each_has_an_epoch(self, engine: LogManager, producer: TransactionalProducer) -> None:
        for number in range(3):
            assert producer.producer_epoch == number
            with producer.transaction():
                producer.append("t", 0, records("a"))
        state = engine.writer("t", 0).producers.state(producer.producer_id)
        assert state is not None
        assert (state.epoch, state.batches) == (3, ())

    def test_after_the_last_epoch_comes_another_producer(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.producer_epoch = 2**15 - 2
        first = producer.producer_id
        for value in "ab":
            with producer.transaction():
                producer.append("t", 0, records(value))
        assert producer.producer_id != first
        assert producer.producer_epoch == 1
        assert values(engine) == ["a", "b"]

    def test_a_block_that_raises_is_aborted(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        def block() -> None:
            with producer.transaction():
                producer.append("t", 0, records("a"))
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            block()
        assert not producer.is_in_transaction
        assert values(engine) == []
        assert engine.writer("t", 0).end_offset == 2  # the record and the marker

    def test_one_without_records_writes_nothing(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        with producer.transaction():
            pass
        assert engine.writer("t", 0).end_offset == 0

    def test_durable_means_records_and_markers(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        with producer.transaction(durable=True):
            for partition in range(2):
                producer.append("t", partition, records("a"))
        for partition in range(2):
            assert engine.writer("t", partition).recovery_point == 2

    def test_what_cannot_be_ended(self, producer: TransactionalProducer) -> None:
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            producer.commit()
        with pytest.raises(InvalidTxnState, match="no transaction is open"):
            producer.abort()
        producer.begin()
        with pytest.raises(InvalidTxnState, match="already open"):
            producer.begin()

    def test_a_refused_append_is_no_part_of_it(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        with producer.transaction():
            producer.append("t", 0, records("a"))
            with pytest.raises(MessageTooLarge):
                producer.append("t", 1, records("x" * 2_000_000))
        assert engine.writer("t", 1).end_offset == 0
        assert values(engine) == ["a"]

    def test_a_topic_may_go_meanwhile(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        engine.create_topic("u")
        producer.begin()
        producer.append("t", 0, records("a"))
        producer.append("u", 0, records("b"))
        engine.delete_topic("u")
        producer.abort()
        assert values(engine) == []


class TestHanging:
    def test_a_transaction_that_nobody_ends_can_be_aborted(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.begin()
        producer.append("t", 0, records("a", "b"))
        other = TransactionalProducer(engine)
        other.append("t", 0, records("c"))
        writer = engine.writer("t", 0)
        (hanging,) = writer.producers.open_transactions()
        assert (hanging.producer_id, hanging.first_offset) == (producer.producer_id, 0)
        assert hanging.last_timestamp == NOW
        assert values(engine) == []
        abort_transaction(writer, hanging.producer_id)
        assert values(engine) == ["c"]
        with pytest.raises(InvalidTxnState, match="has no transaction open"):
            abort_transaction(writer, hanging.producer_id)
        with pytest.raises(InvalidTxnState, match="has no transaction open"):
            abort_transaction(writer, 5)

    def test_its_producer_cannot_commit_what_was_aborted(
        self, engine: LogManager, producer: TransactionalProducer
    ) -> None:
        producer.begin()
        producer.append("t", 0, records("a"))
        producer.append("t", 1, records("b"))
        abort_transaction(engine.writer("t", 0), producer.producer_id)
        with pytest.raises(InvalidProducerEpoch):
            producer.append("t", 0, records("c"))
        with pytest.raises(InvalidTxnState, match="the transaction was aborted in t-0"):
            producer.commit()
        producer.abort()
        assert values(engine) == values(engine, 1) == []
        with producer.transaction():
            producer.append("t", 0, records("d"))
        assert values(engine) == ["d"]

    def test_it_outlives_the_process(
        self, engine: LogManager, producer: TransactionalProducer, tmp_path: Path
    ) -> None:
        producer.begin()
        producer.append("t", 0, records("a"))
        with crashed(engine, tmp_path) as after:
            assert open_since(after) == [(producer.producer_id, 0)]
            abort_transaction(after.writer("t", 0), producer.producer_id)
            assert values(after) == []
            assert values(after, 0, UNCOMMITTED) == ["a"]


def crashed(engine: LogManager, tmp_path: Path) -> LogManager:
    """Opens an engine on what `engine`'s process would leave if it were killed now."""
    target = tmp_path / "crashed"
    shutil.copytree(engine.log_dirs.dirs[0].path, target)
    return LogManager(str(target), clock=SetClock(NOW))


class TestAtomicity:
    """Tests a commit in several partitions that is interrupted or fails anywhere."""

    def begun(self, producer: TransactionalProducer) -> None:
        producer.begin()
        for partition in range(3):
            producer.append("t", partition, records(f"a{partition}"))

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_marker_that_fails_is_written_later(
        self, engine: LogManager, producer: TransactionalProducer, at: int, tmp_path: Path
    ) -> None:
        self.begun(producer)
        failing = FailingCalls(1 + at, errno.ENOSPC, ["pwritev"])  # the first is the decision
        with replaced(failing), pytest.raises(OSError, match="No space left"):
            producer.commit()
        ended = [not open_since(engine, partition) for partition in range(3)]
        assert ended == [partition != at for partition in range(3)]
        with pytest.raises(InvalidTxnState, match="call commit again"):
            producer.abort()
        with pytest.raises(InvalidTxnState, match="call commit again"):
            producer.append("t", 0, records("b"))
        with crashed(engine, tmp_path) as after:
            assert [values(after, n) for n in range(3)] == [["a0"], ["a1"], ["a2"]]
        producer.commit()
        assert [values(engine, n) for n in range(3)] == [["a0"], ["a1"], ["a2"]]
        assert [engine.writer("t", n).end_offset for n in range(3)] == [2, 2, 2]

    def test_a_decision_that_fails_is_none(
        self, engine: LogManager, producer: TransactionalProducer, tmp_path: Path
    ) -> None:
        self.begun(producer)
        failing = FailingCalls(0, errno.ENOSPC, ["pwritev"])
        with replaced(failing), pytest.raises(OSError, match="No space left"):
            producer.commit()
        with crashed(engine, tmp_path) as after:
            assert [values(after, n) for n in range(3)] == [[], [], []]
        producer.abort()
        assert [values(engine, n) for n in range(3)] == [[], [], []]

    def test_a_directory_that_fails_is_finished_when_it_is_back(
        self, engine: LogManager, producer: TransactionalProducer, tmp_path: Path
    ) -> None:
        self.begun(producer)
        failing = FailingCalls(3, errno.EIO, ["fsync"])  # after those of the three partitions' logs
        with replaced(failing), pytest.raises((OSError, LogDirOffline)):
            producer.commit(durable=True)
        with crashed(engine, tmp_path) as after:
            seen = [values(after, n) for n in range(3)]
            assert seen in ([["a0"], ["a1"], ["a2"]], [[], [], []])

    def test_what_is_finished_is_not_done_again(
        self, engine: LogManager, producer: TransactionalProducer, tmp_path: Path
    ) -> None:
        self.begun(producer)
        first = Decision(producer.producer_id, 0, (("t", 0), ("t", 1), ("t", 2)))
        producer.commit()
        assert read_decisions(engine.log_dirs.dirs[0].directory) == [first]
        with crashed(engine, tmp_path) as after:
            assert [after.writer("t", n).end_offset for n in range(3)] == [2, 2, 2]
        self.begun(producer)
        producer.commit()
        (second,) = read_decisions(engine.log_dirs.dirs[0].directory)
        assert second.producer_epoch == 1


def test_a_log_that_was_cut_refuses_what_does_not_follow(
    engine: LogManager, producer: TransactionalProducer
) -> None:
    for value in "ab":
        producer.append("t", 0, records(value))
    engine.writer("t", 0).truncate_to(1)
    with pytest.raises(OutOfOrderSequence):
        producer.append("t", 0, records("c"))
