"""Tests producer state: valid appends, duplicates, and open transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import (
    CorruptError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    Refused,
    TransactionCoordinatorFenced,
)
from kafkafs.storage.format.layout import CONTROL_MASK, MAX_INT32, TRANSACTIONAL_MASK
from kafkafs.storage.format.messages.control import EndTxnMarker
from kafkafs.storage.format.records.batch import BASE_OFFSET, BatchHeader, BatchTable
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.log.state.producers import (
    EXPIRATION_MS,
    Duplicate,
    OpenTransaction,
    ProducerAppendInfo,
    ProducerStateManager,
)
from kafkafs.storage.segment.txn_index import AbortedTxn

CLIENT, COORDINATOR, REPLICATION = AppendOrigin


@dataclass
class Log:
    """A log that only keeps batch headers. Batches have two records and a timestamp of 1000 plus
    their first offset."""

    producers: ProducerStateManager = field(default_factory=ProducerStateManager)
    offset: int = 0

    def batch(
        self, producer: int, sequence: int, epoch: int = 0, count: int = 2, txn: bool = False
    ) -> BatchHeader:
        attributes = TRANSACTIONAL_MASK if txn else 0
        return self._header(attributes, producer, epoch, sequence, count)

    def marker(self, producer: int, epoch: int) -> BatchHeader:
        return self._header(TRANSACTIONAL_MASK | CONTROL_MASK, producer, epoch, -1, 1)

    def _header(
        self, attributes: int, producer: int, epoch: int, sequence: int, count: int
    ) -> BatchHeader:
        base, last, time = self.offset, self.offset + count - 1, 1000 + self.offset
        return BatchHeader(
            base * 100, 100, base, last, 0, 2, 0, attributes, time, time, producer, epoch, sequence,
            count,
        )  # fmt: skip

    def append(
        self,
        *headers: BatchHeader,
        origin: AppendOrigin = CLIENT,
        marker: EndTxnMarker | None = None,
    ) -> Duplicate | list[AbortedTxn]:
        """Appends the batches at once; each continues the one before."""
        update = self.producers.begin_update()
        duplicate = update.add(table_of(*headers), origin, lambda _: marker)
        if duplicate is not None:
            return duplicate
        update.commit()
        self.offset = headers[-1].last_offset + 1
        assert self.producers.map_end_offset == self.offset
        return update.aborted

    def data(self, producer: int, sequence: int, epoch: int = 0, txn: bool = False) -> None:
        assert self.append(self.batch(producer, sequence, epoch, txn=txn)) == []

    def end(
        self,
        producer: int,
        epoch: int,
        *,
        commit: bool,
        coordinator: int = 0,
        origin: AppendOrigin = COORDINATOR,
    ) -> Duplicate | list[AbortedTxn]:
        marker = EndTxnMarker(commit, coordinator, 5000 + self.offset)
        return self.append(self.marker(producer, epoch), origin=origin, marker=marker)


def table_of(*headers: BatchHeader) -> BatchTable:
    rows = [
        [
            h.position, h.size, h.base_offset, h.last_offset, h.leader_epoch, h.magic, h.crc,
            h.attributes, h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch,
            h.base_sequence, h.record_count,
        ]
        for h in headers
    ]  # fmt: skip
    return BatchTable(np.array(rows, dtype=np.int64).reshape(len(rows), 14))


def add(log: Log, update: ProducerAppendInfo, header: BatchHeader) -> Duplicate | None:
    log.offset = header.last_offset + 1
    return update.add(table_of(header), CLIENT)


@pytest.fixture
def log() -> Log:
    return Log()


def test_batches_without_producer_only_move_the_end(log: Log) -> None:
    log.append(log.batch(-1, -1, epoch=-1))
    assert log.producers.map_end_offset == 2
    assert not len(log.producers)


def test_nothing_has_changed_before_the_commit(log: Log) -> None:
    update = log.producers.begin_update()
    assert update.add(table_of(log.batch(7, 0, txn=True)), CLIENT) is None
    assert (update.end_offset, log.producers.map_end_offset) == (2, 0)
    assert log.producers.first_unstable_offset == -1
    assert log.producers.state(7) is None
    update.commit()
    assert log.producers.map_end_offset == 2
    assert log.producers.first_unstable_offset == 0


def test_a_producer_that_nobody_knows_may_begin_anywhere(log: Log) -> None:
    log.data(7, 100, epoch=3)
    log.data(7, 102, epoch=3)


@pytest.mark.parametrize("sequence", [1, 3, 5, -1, MAX_INT32])
def test_a_gap_or_step_back_in_the_sequence_is_refused(log: Log, sequence: int) -> None:
    log.data(7, 0)
    log.data(7, 2)
    with pytest.raises(OutOfOrderSequence, match=f"number {sequence}, 4 was expected"):
        log.append(log.batch(7, sequence))
    log.data(7, 4)


def test_sequence_numbers_go_round(log: Log) -> None:
    log.data(7, MAX_INT32 - 2)
    log.data(7, MAX_INT32)  # its second record has sequence 0
    log.data(7, 1)
    header = log.batch(7, MAX_INT32)
    assert log.append(header) == Duplicate(2, 3, 1002)
    log.data(8, MAX_INT32 - 1)
    log.data(8, 0)


def test_a_new_epoch_begins_with_zero(log: Log) -> None:
    log.data(7, 0, epoch=1)
    with pytest.raises(OutOfOrderSequence, match=r"epoch 2: .* number 2, 0 was expected"):
        log.append(log.batch(7, 2, epoch=2))
    log.data(7, 0, epoch=2)
    log.data(7, 2, epoch=2)


def test_an_old_epoch_is_fenced(log: Log) -> None:
    log.data(7, 0, epoch=5)
    with pytest.raises(InvalidProducerEpoch, match="producer 7: epoch 4 is fenced by epoch 5"):
        log.append(log.batch(7, 2, epoch=4))
    with pytest.raises(InvalidProducerEpoch):
        log.end(7, 4, commit=True)


def test_the_last_five_batches_are_known_again(log: Log) -> None:
    for number in range(7):
        log.data(7, number * 2)
    for number in range(2, 7):
        again = log.append(log.batch(7, number * 2))
        assert again == Duplicate(number * 2, number * 2 + 1, 1000 + number * 2)
    for number in range(2):
        with pytest.raises(OutOfOrderSequence):
            log.append(log.batch(7, number * 2))
    assert log.offset == 14


def test_a_batch_of_other_length_or_epoch_is_no_duplicate(log: Log) -> None:
    log.data(7, 0)
    with pytest.raises(OutOfOrderSequence):
        log.append(log.batch(7, 0, count=1))
    log.data(7, 0, epoch=1)
    assert log.offset == 4


def test_coordinators_have_no_sequence_numbers_and_no_duplicates(log: Log) -> None:
    for _ in range(3):
        assert log.append(log.batch(7, 0), origin=COORDINATOR) == []
    with pytest.raises(InvalidProducerEpoch):
        log.append(log.batch(7, 0, epoch=-1), origin=COORDINATOR)


def test_what_a_leader_took_is_taken(log: Log) -> None:
    log.data(7, 0, epoch=5)
    assert log.append(log.batch(7, 90, epoch=4), origin=REPLICATION) == []
    state = log.producers.state(7)
    assert state is not None
    assert (state.epoch, state.last_sequence) == (4, 91)


def test_an_append_of_some_batches_is_taken_or_refused_as_one(log: Log) -> None:
    first = log.batch(7, 0)
    log.offset = 2
    wrong = log.batch(7, 4)
    right = log.batch(7, 2)
    with pytest.raises(OutOfOrderSequence):
        log.append(first, wrong)
    assert log.producers.state(7) is None
    log.append(first, right)
    assert log.append(first, right) == Duplicate(0, 3, 1002)
    log.offset = 4
    with pytest.raises(OutOfOrderSequence, match="1 of these 2 batches were appended before"):
        log.append(right, log.batch(7, 4))


def test_one_refused_among_many_appends_leaves_the_others(log: Log) -> None:
    update = log.producers.begin_update()
    assert add(log, update, log.batch(7, 0, txn=True)) is None
    with pytest.raises(OutOfOrderSequence):
        update.add(table_of(log.batch(7, 9, txn=True)), CLIENT)
    with pytest.raises(InvalidTxnState):
        update.add(table_of(log.batch(7, 2)), CLIENT)
    assert add(log, update, log.batch(7, 2, txn=True)) is None
    assert update.add(table_of(log.batch(7, 0, txn=True)), CLIENT) == Duplicate(0, 1, 1000)
    update.commit()
    assert log.producers.map_end_offset == update.end_offset == 4
    assert log.producers.first_unstable_offset == 0


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(log: Log) -> None:
    log.data(-1, -1, epoch=-1)
    log.data(7, 0, txn=True)
    log.data(8, 0, epoch=2, txn=True)
    log.data(7, 2, txn=True)
    assert log.producers.first_unstable_offset == 2
    assert log.producers.open_transactions() == [
        OpenTransaction(7, 0, -1, 2, 1006),
        OpenTransaction(8, 2, -1, 4, 1004),
    ]
    assert log.end(7, 0, commit=True) == []
    assert log.producers.first_unstable_offset == 4
    assert log.end(8, 2, commit=False) == [AbortedTxn(8, 4, 9, 10)]
    assert log.producers.first_unstable_offset == -1
    assert log.producers.open_transactions() == []


def test_an_aborted_transaction_has_the_last_stable_offset_after_it(log: Log) -> None:
    log.data(7, 0, txn=True)
    log.data(8, 0, txn=True)
    assert log.end(8, 0, commit=False) == [AbortedTxn(8, 2, 4, 0)]
    assert log.end(7, 0, commit=False) == [AbortedTxn(7, 0, 5, 6)]


def test_a_marker_without_data_is_no_transaction(log: Log) -> None:
    assert log.end(7, 0, commit=False, coordinator=4) == []
    state = log.producers.state(7)
    assert state is not None
    assert (state.epoch, state.coordinator_epoch, state.last_timestamp) == (0, 4, 5000)


def test_plain_data_inside_a_transaction_is_refused(log: Log) -> None:
    log.data(7, 0, txn=True)
    with pytest.raises(InvalidTxnState, match="producer 7 has a transaction open since offset 0"):
        log.append(log.batch(7, 2))
    log.end(7, 0, commit=True)
    log.data(7, 2)


def test_transactions_of_the_first_version_go_on_with_sequence_and_epoch(log: Log) -> None:
    log.data(7, 0, txn=True)
    log.end(7, 0, commit=True)
    assert log.append(log.batch(7, 0, txn=True)) == Duplicate(0, 1, 1000)
    log.data(7, 2, txn=True)


def test_transactions_of_the_second_version_have_an_epoch_each(log: Log) -> None:
    log.data(7, 0, txn=True)
    log.end(7, 1, commit=True)
    with pytest.raises(InvalidProducerEpoch):
        log.append(log.batch(7, 2, txn=True))
    with pytest.raises(OutOfOrderSequence):
        log.append(log.batch(7, 2, epoch=1, txn=True))
    log.data(7, 0, epoch=1, txn=True)
    assert log.end(7, 2, commit=False) == [AbortedTxn(7, 3, 5, 6)]


def test_a_replaced_coordinator_is_fenced(log: Log) -> None:
    log.data(7, 0, txn=True)
    log.end(7, 0, commit=True, coordinator=5)
    log.data(7, 2, txn=True)
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 4, the last one had 5"):
        log.end(7, 0, commit=True, coordinator=4)
    assert log.producers.first_unstable_offset == 3
    log.end(7, 0, commit=True, coordinator=4, origin=REPLICATION)
    assert log.producers.first_unstable_offset == -1


def test_an_emptied_control_batch_leaves_its_producer_as_it_was(log: Log) -> None:
    log.data(7, 0, txn=True)
    for producer in (7, 8):
        log.append(log.marker(producer, 3), origin=REPLICATION)
    assert log.producers.first_unstable_offset == 0
    unknown = log.producers.state(8)
    assert unknown is not None
    assert unknown.epoch == -1
    log.data(8, 100, epoch=3)


def test_one_append_may_hold_whole_transactions(log: Log) -> None:
    """Followers receive such appends. An abort's last stable offset then covers all transactions
    that the append begins."""
    first = log.batch(7, 0, txn=True)
    log.offset = 2
    end = log.marker(7, 0)
    log.offset = 3
    other = log.batch(8, 0, txn=True)
    log.offset = 5
    second = log.batch(7, 2, txn=True)
    headers = (first, end, other, second)
    marker = EndTxnMarker(False, 0, 5000)
    assert log.append(*headers, origin=REPLICATION, marker=marker) == [AbortedTxn(7, 0, 2, 3)]
    assert [txn.first_offset for txn in log.producers.open_transactions()] == [3, 5]


def test_producers_that_are_silent_for_a_day_are_forgotten(log: Log) -> None:
    log.data(7, 0)
    log.data(8, 0, txn=True)
    log.data(9, 0)
    assert log.producers.expire(1000 + EXPIRATION_MS - 1) == 0
    assert log.producers.expire(1000 + EXPIRATION_MS) == 1
    assert [state.producer_id for state in log.producers.states()] == [8, 9]
    assert log.producers.expire(2**62) == 1  # a producer in a transaction is retained
    assert log.producers.first_unstable_offset == 2
    log.data(7, 55)


def test_a_snapshot_keeps_the_last_batch_of_each(log: Log) -> None:
    log.data(7, 0)
    log.data(7, 2)
    log.data(8, 0, txn=True)
    data = log.producers.snapshot()
    loaded = Log(ProducerStateManager(), log.offset)
    loaded.producers.load(data, log.offset, now_ms=0)
    assert loaded.producers.snapshot() == data
    assert loaded.producers.first_unstable_offset == 4
    assert loaded.producers.map_end_offset == 6
    assert loaded.append(loaded.batch(7, 2)) == Duplicate(2, 3, 1002)
    with pytest.raises(OutOfOrderSequence):
        loaded.append(loaded.batch(7, 0))


def test_a_snapshot_is_loaded_without_those_that_have_expired(log: Log) -> None:
    log.data(7, 0)
    log.data(8, 0, txn=True)
    loaded = ProducerStateManager()
    loaded.load(log.producers.snapshot(), 4, now_ms=2**62)
    assert [state.producer_id for state in loaded.states()] == [8]


def test_a_broken_snapshot_changes_nothing(log: Log) -> None:
    log.data(7, 0)
    with pytest.raises(CorruptError):
        log.producers.load(b"\0\1" + bytes(8), 40, now_ms=0)
    assert (len(log.producers), log.producers.map_end_offset) == (1, 2)


def test_after_clear_everything_is_unknown(log: Log) -> None:
    log.data(7, 0, txn=True)
    log.producers.clear(0)
    log.offset = 0
    assert log.producers.first_unstable_offset == -1
    log.data(7, 33)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["batch", "txn", "commit", "abort"]),
        st.integers(-1, 3),  # producer
        st.integers(0, 2),  # epoch
        st.integers(0, 4),  # sequence
    ),
    max_size=40,
)


@given(steps=STEPS, snapshot_at=st.integers(0, 40), at_once=st.integers(1, 40))
def test_what_was_appended_is_known_the_same_after_replay(
    steps: list[tuple[str, int, int, int]], snapshot_at: int, at_once: int
) -> None:
    """Replaying the accepted log, from its start or from a snapshot, yields the same snapshot, open
    transactions and aborted ones."""
    log, replayed, resumed = Log(), ProducerStateManager(), ProducerStateManager()
    taken: list[BatchHeader] = []
    markers: dict[BatchHeader, EndTxnMarker] = {}
    aborted: list[AbortedTxn] = []
    again: list[AbortedTxn] = []
    for number, (kind, producer, epoch, sequence) in enumerate(steps):
        if number == snapshot_at:
            resumed.load(log.producers.snapshot(), log.offset, now_ms=0)
        header, origin = log.batch(producer, sequence, epoch, txn=kind == "txn"), CLIENT
        if kind in ("commit", "abort"):
            header, origin = log.marker(producer, epoch), COORDINATOR
        marker = EndTxnMarker(kind == "commit", 0, 5000 + log.offset)
        try:
            result = log.append(header, origin=origin, marker=marker)
        except Refused:
            continue
        if isinstance(result, list):
            aborted += result
            taken.append(header)
            markers[header] = marker
    for start in range(0, len(taken), at_once):
        table = table_of(*taken[start : start + at_once])
        again += replayed.replay(table, markers.__getitem__)
        resumed.replay(
            table.select(table.column(BASE_OFFSET) >= resumed.map_end_offset), markers.__getitem__
        )
    assert again == aborted
    for other in (replayed, resumed):
        assert other.open_transactions() == log.producers.open_transactions()
    assert replayed.snapshot() == log.producers.snapshot()
    assert {*parsed(resumed)} == {*parsed(log.producers)}


def parsed(producers: ProducerStateManager) -> list[object]:
    return [state.to_snapshot() for state in producers.states()]
