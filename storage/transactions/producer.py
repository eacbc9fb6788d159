"""A producer with exactly-once appends, and transactions over several partitions.

Follows KIP-98, and KIP-890 for the epoch, which increases with every transaction. There is no
coordinator: the producer writes its transaction markers itself. A commit in several partitions is
recorded in the `TransactionLog` before the first marker, so that it takes effect in all of them or
in none, wherever the process stops.

    producer = TransactionalProducer(engine)
    with producer.transaction():
        producer.append("orders", 0, orders)
        producer.append("payments", 2, payments)

A transaction left open when its process exits stays open, and holds back read-committed readers
only, until it is ended with `abort_transaction`.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from ..errors import (
    InvalidTxnState,
    LogDirOffline,
    PartitionNotOpened,
    Refused,
    UnknownPartition,
    UnknownTopic,
    raise_first,
)
from ..format.files.names import TopicPartition
from ..format.layout import MAX_INT32
from ..format.records.encoder import BatchPlan
from ..format.records.record_columns import RecordColumns, SimpleRecord
from ..log.append.appending import LogAppendInfo
from ..log.append.writer import LogWriter
from .decisions import Decision, TransactionLog

#: Brokers assign ids from 0 upwards; none reaches this.
OWN_IDS: Final = 1 << 61
_MAX_EPOCH: Final = 2**15 - 1
# There is one coordinator, and no other ever fences it.
_COORDINATOR_EPOCH: Final = 0
_PLAN: Final = BatchPlan()


class Writers(Protocol):
    """The engine, as far as producers need it."""

    @property
    def transactions(self) -> TransactionLog: ...

    def writer(self, topic: str, partition: int) -> LogWriter: ...


class TransactionalProducer:
    """Appends with sequence numbers, inside and outside transactions. Thread-safe; concurrent
    appends are serialised.

    An append that raises has written nothing and can be repeated, except after LogDirOffline: then
    only the reopened log shows whether it was written.
    """

    def __init__(self, engine: Writers) -> None:
        self._engine = engine
        self._lock = threading.RLock()  # guards everything here
        self._renew()
        self._is_open = False
        self._partitions: dict[TopicPartition, None] = {}  # partitions that lack a marker
        self._decision: Decision | None = None

    @property
    def is_in_transaction(self) -> bool:
        return self._is_open

    def append(
        self,
        topic: str,
        partition: int,
        records: RecordColumns | Sequence[SimpleRecord],
        plan: BatchPlan = _PLAN,
        durable: bool = False,
    ) -> LogAppendInfo:
        """Appends records, as part of the transaction if one is open. Only the batch size and the
        codec of `plan` are used. Raises what LogWriter.append_records raises, and InvalidTxnState
        while the transaction is being ended."""
        with self._lock:
            if self._decision is not None:
                raise InvalidTxnState("the transaction is being committed; call commit again")
            columns = (
                records
                if isinstance(records, RecordColumns)
                else RecordColumns.from_records(records)
            )
            key = (topic, partition)
            writer = self._engine.writer(topic, partition)
            appended = self._append(writer, key, columns, plan, durable)
            self._sequences[key] = self._sequence(key, len(columns))
            return appended

    def _append(
        self,
        writer: LogWriter,
        key: TopicPartition,
        columns: RecordColumns,
        plan: BatchPlan,
        durable: bool,
    ) -> LogAppendInfo:
        own = replace(
            plan,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequence(key),
            is_transactional=self._is_open,
        )
        try:
            appended = writer.append_records(columns, own, durable=durable)
        except LogDirOffline:
            self._touch(key)  # it may have been written
            raise
        self._touch(key)
        return appended

    def _touch(self, key: TopicPartition) -> None:
        if self._is_open:
            self._partitions[key] = None

    def _sequence(self, key: TopicPartition, count: int = 0) -> int:
        """Returns the sequence number `count` records after a partition's next one."""
        return (self._sequences.get(key, 0) + count) & MAX_INT32

    def begin(self) -> None:
        """Begins a transaction. Raises InvalidTxnState if one is open."""
        with self._lock:
            if self._is_open:
                raise InvalidTxnState("a transaction is already open")
            self._is_open = True

    def commit(self, durable: bool = False) -> None:
        """Commits the transaction. `durable`: its records and markers are flushed to disk.

        Raises InvalidTxnState if none is open. After any other exception, the transaction may be
        committed without every partition having its marker: calling `commit` again writes the
        missing ones, as does the next process to open the directories.
        """
        with self._lock:
            self._refuse_none()
            if self._decision is None:
                self._refuse_ended()
                if durable:
                    for key in self._partitions:
                        self._engine.writer(*key).flush()
                self._decide()
            self._end(commit=True, durable=durable)

    def abort(self) -> None:
        """Aborts the transaction. Raises InvalidTxnState if none is open or it is being committed.
        After any other exception, call `abort` again."""
        with self._lock:
            self._refuse_none()
            if self._decision is not None:
                raise InvalidTxnState("the transaction is being committed; call commit again")
            self._end(commit=False, durable=False)

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[None]:
        """Opens a transaction that is committed at the end of the block, or aborted if the block
        raises."""
        self.begin()
        try:
            yield
        except BaseException:
            self.abort()
            raise
        self.commit(durable)

    def _refuse_none(self) -> None:
        if not self._is_open:
            raise InvalidTxnState("no transaction is open")

    def _refuse_ended(self) -> None:
        """Raises InvalidTxnState if another process aborted the transaction: its records would be
        lost."""
        for topic, partition in self._partitions:
            writer = self._engine.writer(topic, partition)
            if not _is_open(writer, self.producer_id, self.producer_epoch):
                where = f"{topic}-{partition}"
                raise InvalidTxnState(f"the transaction was aborted in {where} by another process")

    def _decide(self) -> None:
        if len(self._partitions) > 1:
            decision = Decision(self.producer_id, self.producer_epoch, tuple(self._partitions))
            self._engine.transactions.note(decision)
            self._decision = decision

    def _end(self, *, commit: bool, durable: bool) -> None:
        """Writes the missing markers. A failure in one partition does not keep back the others."""
        failures: list[Exception] = []
        for key in list(self._partitions):
            try:
                writer = self._engine.writer(*key)
                _end_transaction(writer, self.producer_id, self.producer_epoch + 1, commit=commit)
                if durable:
                    writer.flush()
            except (UnknownTopic, UnknownPartition):  # deleted meanwhile, nothing to end
                del self._partitions[key]
            except (OSError, LogDirOffline, Refused) as error:
                failures.append(error)
            else:
                del self._partitions[key]
        raise_first(failures)
        self._finish()

    def _finish(self) -> None:
        if self._decision is not None:
            self._engine.transactions.finished(self._decision)
        self._decision = None
        self._is_open = False
        self._next_epoch()

    def _next_epoch(self) -> None:
        """Adopts the epoch of the markers; sequence numbers restart with it."""
        self.producer_epoch += 1
        self._sequences.clear()
        if self.producer_epoch == _MAX_EPOCH:  # a marker could not exceed it
            self._renew()

    def _renew(self) -> None:
        """Becomes a new producer, as far as the logs are concerned."""
        self.producer_id = OWN_IDS | secrets.randbits(61)
        self.producer_epoch = 0
        self._sequences: dict[TopicPartition, int] = {}


def finish_decided(engine: Writers, decisions: Iterable[Decision]) -> int:
    """Commits transactions that are still open but were decided before their process exited;
    returns the number of markers written. Partitions that cannot be written to are skipped."""
    count = 0
    for decision in decisions:
        producer_id, epoch = decision.producer_id, decision.producer_epoch
        for key in decision.partitions:
            try:
                writer = engine.writer(*key)
            except (UnknownTopic, UnknownPartition, PartitionNotOpened, LogDirOffline):
                continue
            if _is_open(writer, producer_id, epoch):
                _end_transaction(writer, producer_id, epoch + 1, commit=True)
                count += 1
    return count


def abort_transaction(writer: LogWriter, producer_id: int) -> LogAppendInfo:
    """Aborts the transaction that a producer has open in a partition; for transactions that will
    never be ended otherwise. Raises InvalidTxnState if none is open.

    A producer of this module is fenced. A broker's producer keeps its epoch, which its coordinator
    manages; Kafka's `kafka-transactions.sh abort` does the same.
    """
    state = writer.producers.state(producer_id)
    if state is None or not state.is_in_transaction:
        raise InvalidTxnState(f"producer {producer_id} has no transaction open here")
    epoch = state.epoch + 1 if producer_id >= OWN_IDS else state.epoch
    return _end_transaction(writer, producer_id, epoch, commit=False)


def _is_open(writer: LogWriter, producer_id: int, epoch: int) -> bool:
    state = writer.producers.state(producer_id)
    return state is not None and state.is_in_transaction and state.epoch == epoch


def _end_transaction(
    writer: LogWriter, producer_id: int, epoch: int, *, commit: bool
) -> LogAppendInfo:
    state = writer.producers.state(producer_id)
    known = _COORDINATOR_EPOCH if state is None else state.coordinator_epoch
    coordinator_epoch = max(_COORDINATOR_EPOCH, known)
    return writer.end_transaction(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch
    )
