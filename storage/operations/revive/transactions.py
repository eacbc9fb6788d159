"""The transactions that are open, and what becomes of them on the new node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ...errors import UnknownPartition
from ...format.files.names import TopicPartition
from ...format.records.record_columns import RecordColumns
from ...log.state.producers import OpenTransaction
from ...log_dirs.engine import Engine
from ...log_dirs.replicas import PREFERRED_DIR
from ...transactions.coordinator_log import (
    TRANSACTIONS_TOPIC,
    TransactionState,
    TransactionStatus,
    read_transaction_states,
)
from .request import RevivedTransaction
from .sources import SourceCluster

if TYPE_CHECKING:
    from ...log_manager import LogManager


class Outcome(StrEnum):
    """What becomes of an open transaction."""

    ABORTED = "aborted"
    COMMITS = "Kafka will commit it"
    ABORTS = "Kafka will abort it"
    TIMES_OUT = "open until its timeout"
    HANGS = "hanging: open until it is aborted"


_PREPARED: Final = {
    TransactionStatus.PREPARE_COMMIT: Outcome.COMMITS,
    TransactionStatus.PREPARE_ABORT: Outcome.ABORTS,
}


class TransactionOutcomes:
    """The open transactions of the partitions added so far."""

    def __init__(self, engine: Engine, cluster: SourceCluster, *, aborts: bool) -> None:
        """`aborts`: whether those that are undecided are aborted."""
        self._aborts = aborts
        self._found: list[tuple[TopicPartition, OpenTransaction]] = []
        self._states = _states(engine, cluster)
        self._by_producer = {state.producer_id: state for state in self._states}
        self._now_ms = engine.clock.now_ms()
        self._configs = {n: text for n, text in engine.configs.items() if n != PREFERRED_DIR}

    def add(self, key: TopicPartition, found: Sequence[OpenTransaction]) -> None:
        """Adds those of a partition."""
        self._found += ((key, each) for each in found)

    def rows(self) -> Iterator[RevivedTransaction]:
        for key, each in self._found:
            state = self._by_producer.get(each.producer_id)
            name = None if state is None else state.transactional_id
            yield RevivedTransaction(*key, each, name, str(self._outcome(each)))

    def abort(self, data_path: str) -> dict[TopicPartition, int]:
        """Aborts the undecided ones in the new log directory; returns the end offsets of the
        partitions that got a record."""
        from ...log_manager import LogManager  # which a dry run does not need

        changed: set[TopicPartition] = set()
        with LogManager(data_path, self._configs) as manager:
            for key, each in self._found:
                if self._outcome(each) is Outcome.ABORTED:
                    self._abort(manager, key, each)
                    changed.add(key)
            for state in self._states:
                if state.status == TransactionStatus.ONGOING:
                    key = (TRANSACTIONS_TOPIC, state.partition)
                    record = RecordColumns.from_records([state.aborted(self._now_ms)])
                    manager.writer(*key).append_records(record)
                    changed.add(key)
            return {key: manager.writer(*key).end_offset for key in changed}

    def _abort(self, manager: LogManager, key: TopicPartition, found: OpenTransaction) -> None:
        """Writes the marker, as a coordinator does that fences the producer."""
        from ...transactions.producer import abort_transaction

        state = self._by_producer.get(found.producer_id)
        writer = manager.writer(*key)
        if state is None or state.status != TransactionStatus.ONGOING:
            abort_transaction(writer, found.producer_id)
            return
        epoch = max(found.coordinator_epoch, 0)
        writer.end_transaction(
            found.producer_id, state.next_epoch, commit=False, coordinator_epoch=epoch
        )

    def _outcome(self, found: OpenTransaction) -> Outcome:
        state = self._by_producer.get(found.producer_id)
        status = None if state is None else state.status
        if status in _PREPARED:
            return _PREPARED[TransactionStatus(status)]
        if self._aborts:
            return Outcome.ABORTED
        return Outcome.TIMES_OUT if status == TransactionStatus.ONGOING else Outcome.HANGS


def _states(engine: Engine, cluster: SourceCluster) -> list[TransactionState]:
    numbers = next((t.partitions for t in cluster.topics if t.name == TRANSACTIONS_TOPIC), {})
    views = []
    for number, found in numbers.items():
        if found is not None:
            with suppress(UnknownPartition):
                views.append((number, engine.log(TRANSACTIONS_TOPIC, number).view()))
    return read_transaction_states(views)
