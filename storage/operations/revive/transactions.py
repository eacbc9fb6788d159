"""The transactions that are open, and what becomes of them on the new node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ...errors import UnknownPartition
from ...format.files.names import TopicPartition
from ...format.records.record_columns import RecordColumns
from ...log.read.log import Log
from ...log.read.lookup import extent_from
from ...log.read.markers import end_transaction_batches, read_marker
from ...log.state.producers import OpenTransaction
from ...log_dirs.engine import Engine
from ...segment.extent import Fault
from ...segment.walk import walk_headers
from ...transactions.coordinator_log import (
    TRANSACTIONS_TOPIC,
    TransactionState,
    TransactionStatus,
    read_transaction_states,
)
from ...transactions.decisions import read_decisions
from .request import RevivedTransaction
from .sources import SourceCluster

if TYPE_CHECKING:
    from ...log_manager import LogManager


class Outcome(StrEnum):
    """What becomes of an open transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    COMMITS = "Kafka will commit it"
    ABORTS = "Kafka will abort it"
    TIMES_OUT = "open until its timeout"
    HANGS = "hanging: open until it is aborted"


_PREPARED: Final = {
    TransactionStatus.PREPARE_COMMIT: Outcome.COMMITS,
    TransactionStatus.PREPARE_ABORT: Outcome.ABORTS,
}
_ENDED: Final = (Outcome.COMMITTED, Outcome.ABORTED)


class TransactionOutcomes:
    """The open transactions of the partitions added so far.

    The coordinator's state decides: what is prepared, Kafka completes. What is ongoing, it aborts
    after a timeout. What kafkafs decided to commit is committed. One that no coordinator knows
    hangs; as of an earlier time, it is ended as the marker ended it that was written by then, and
    aborted if there was none.
    """

    def __init__(self, engine: Engine, cluster: SourceCluster, *, aborts: bool) -> None:
        """`aborts`: whether those that are undecided are aborted."""
        self._engine, self._aborts = engine, aborts
        self._found: list[tuple[TopicPartition, OpenTransaction, Outcome]] = []
        self._states = _states(engine, cluster)
        self._by_producer = {state.producer_id: state for state in self._states}
        self._decided = {
            (decision.producer_id, decision.producer_epoch, *key)
            for log_dir in engine.log_dirs.dirs
            for decision in read_decisions(log_dir.directory)
            for key in decision.partitions
        }

    def add(self, key: TopicPartition, found: Sequence[OpenTransaction]) -> None:
        """Adds those of a partition."""
        self._found += ((key, each, self._outcome(key, each)) for each in found)

    @property
    def last_producer_id(self) -> int:
        """The greatest producer id that the coordinator knows, -1 if it knows none."""
        ids = (max(state.producer_id, state.next_producer_id) for state in self._states)
        return max(ids, default=-1)

    @property
    def must_end(self) -> bool:
        """Whether `end` has something to do."""
        return self._aborts or any(outcome in _ENDED for *_, outcome in self._found)

    def rows(self) -> Iterator[RevivedTransaction]:
        for key, each, outcome in self._found:
            state = self._by_producer.get(each.producer_id)
            name = None if state is None else state.transactional_id
            yield RevivedTransaction(*key, each, name, str(outcome))

    def end(self, manager: LogManager) -> None:
        """Ends those in the new log directory that Kafka would not."""
        for key, each, outcome in self._found:
            if outcome in _ENDED:
                self._end(manager, key, each, outcome)
        for state in self._states if self._aborts else ():
            if state.status == TransactionStatus.ONGOING:
                record = RecordColumns.from_records([state.aborted(manager.clock.now_ms())])
                manager.writer(TRANSACTIONS_TOPIC, state.partition).append_records(record)

    def _end(
        self, manager: LogManager, key: TopicPartition, found: OpenTransaction, outcome: Outcome
    ) -> None:
        """Writes the marker; if it aborts what the coordinator has as ongoing, as one that fences
        the producer."""
        from ...transactions.producer import abort_transaction  # which a dry run does not need

        writer, state = manager.writer(*key), self._state_of(key, found)
        epoch = found.producer_epoch
        if outcome is Outcome.ABORTED and state is None:
            abort_transaction(writer, found.producer_id)
            return
        if state is not None:
            epoch = state.next_epoch
        elif self._is_decided(key, found):
            epoch += 1  # as kafkafs's own producers end them
        writer.end_transaction(
            found.producer_id,
            epoch,
            commit=outcome is Outcome.COMMITTED,
            coordinator_epoch=max(found.coordinator_epoch, 0),
        )

    def _outcome(self, key: TopicPartition, found: OpenTransaction) -> Outcome:
        state = self._state_of(key, found)
        if state is not None and state.status in _PREPARED:
            return _PREPARED[TransactionStatus(state.status)]
        if state is not None:
            return Outcome.ABORTED if self._aborts else Outcome.TIMES_OUT
        if self._is_decided(key, found):
            return Outcome.COMMITTED
        if self._engine.at_ms is not None:
            is_committed = self._was_committed(key, found, self._engine.at_ms)
            return Outcome.COMMITTED if is_committed else Outcome.ABORTED
        return Outcome.ABORTED if self._aborts else Outcome.HANGS

    def _state_of(self, key: TopicPartition, found: OpenTransaction) -> TransactionState | None:
        """Returns the state of a transaction that its coordinator will end."""
        state = self._by_producer.get(found.producer_id)
        if state is None or state.status not in (TransactionStatus.ONGOING, *_PREPARED):
            return None
        return state if state.includes(*key) else None

    def _is_decided(self, key: TopicPartition, found: OpenTransaction) -> bool:
        return (found.producer_id, found.producer_epoch, *key) in self._decided

    def _was_committed(self, key: TopicPartition, found: OpenTransaction, at_ms: int) -> bool:
        """Returns whether the log went on with a marker that commits a transaction and was written
        by `at_ms`, although records before it have later timestamps."""
        place = self._engine.partition_dir(*key)
        log = Log(place.directory, *key, lambda: 0, self._engine.context)
        view = log.view()
        for segment in view.segments.from_offset(found.first_offset):
            extent = extent_from(segment, 0, view.context.limits.max_batch_bytes)
            for table in walk_headers(extent):
                if isinstance(table, Fault):
                    continue
                for header in end_transaction_batches(table):
                    is_its = header.producer_id == found.producer_id
                    if is_its and header.base_offset > found.first_offset:
                        marker = read_marker(segment.files.log(), header)
                        is_commit = marker is not None and not marker.is_abort
                        return is_commit and header.max_timestamp <= at_ms
        return False


def _states(engine: Engine, cluster: SourceCluster) -> list[TransactionState]:
    numbers = next((t.partitions for t in cluster.topics if t.name == TRANSACTIONS_TOPIC), {})
    views = []
    for number, found in numbers.items():
        if found is not None:
            with suppress(UnknownPartition):
                views.append((number, engine.log(TRANSACTIONS_TOPIC, number).view()))
    return read_transaction_states(views)
