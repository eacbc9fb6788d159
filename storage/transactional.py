"""Producers with an id of their own: each record once, and transactions over several partitions.

Rules: KIP-98, and KIP-890 for the epoch, which goes up with every transaction. There is no
coordinator: the producer writes the markers of its transactions itself. One that commits in several
partitions is noted in the `TransactionLog` before the first marker, so that it ends in all of them
or in none, wherever the process stops.

    producer = TransactionalProducer(engine)
    with producer.transaction():
        producer.append("orders", 0, orders)
        producer.append("payments", 2, payments)

What a process leaves open when it ends stays open, in nobody's way but of those who read committed
records, until somebody ends it with `abort_transaction`.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from .errors import InvalidTxnState, LogDirOffline, Refused, UnknownPartition, UnknownTopic
from .format.builder import SimpleRecord
from .format.encoder import BatchPlan, RecordColumns
from .format.layout import MAX_INT32
from .log.appending import Appended
from .log.writer import LogWriter
from .log_dir import TopicPartition
from .transaction_log import Decision, TransactionLog

# Brokers count their ids from 0 upwards; none gets here.
_OWN_IDS: Final = 1 << 61
_MAX_EPOCH: Final = 2**15 - 1
# There is one coordinator, and it is never replaced by another.
_COORDINATOR_EPOCH: Final = 0
_PLAN: Final = BatchPlan()


class Writers(Protocol):
    """The engine, as far as producers need it."""

    @property
    def transactions(self) -> TransactionLog: ...

    def writer(self, topic: str, partition: int) -> LogWriter: ...


class TransactionalProducer:
    """Appends with sequence numbers, outside and inside of transactions. Any thread may call; what
    several append at a time is one after the other.

    An append that raises has written nothing and can be repeated, unless it is LogDirOffline: then
    only the log can tell, once it is opened again.
    """

    def __init__(self, engine: Writers) -> None:
        self._engine = engine
        self._lock = threading.RLock()  # over everything here
        self._renew()
        self._is_open = False
        self._partitions: dict[TopicPartition, None] = {}  # of the transaction, without a marker
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
    ) -> Appended:
        """Appends records, as part of the transaction if one is open. Of `plan` the size of the
        batches and the codec count. What LogWriter.append_records raises; InvalidTxnState while the
        transaction is being ended."""
        with self._lock:
            if self._decision is not None:
                raise InvalidTxnState("the transaction is being committed; commit again")
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
    ) -> Appended:
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
            self._touch(key)  # it may be there
            raise
        self._touch(key)
        return appended

    def _touch(self, key: TopicPartition) -> None:
        if self._is_open:
            self._partitions[key] = None

    def _sequence(self, key: TopicPartition, count: int = 0) -> int:
        """The sequence number `count` records on from the next one of a partition."""
        return (self._sequences.get(key, 0) + count) & MAX_INT32

    def begin(self) -> None:
        """Begins a transaction. InvalidTxnState when one is open."""
        with self._lock:
            if self._is_open:
                raise InvalidTxnState("a transaction is open already")
            self._is_open = True

    def commit(self, durable: bool = False) -> None:
        """Ends the transaction: its records count. `durable`: they and the markers are on the disk.

        InvalidTxnState when none is open. When something else is raised, it may be that it is
        decided but not every partition has its marker: `commit` again writes those, as does who
        opens the directories next.
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
        """Ends the transaction: its records do not count. InvalidTxnState when none is open or it
        is being committed. When something else is raised, `abort` again."""
        with self._lock:
            self._refuse_none()
            if self._decision is not None:
                raise InvalidTxnState("the transaction is being committed; commit again")
            self._end(commit=False, durable=False)

    @contextmanager
    def transaction(self, durable: bool = False) -> Iterator[None]:
        """A transaction that is committed at the end of the block, aborted when it raises."""
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
        """Where somebody aborted it, records that were to count do not."""
        for topic, partition in self._partitions:
            writer = self._engine.writer(topic, partition)
            if not _is_open(writer, self.producer_id, self.producer_epoch):
                where = f"{topic}-{partition}"
                raise InvalidTxnState(f"in {where} the transaction was aborted by somebody else")

    def _decide(self) -> None:
        if len(self._partitions) > 1:
            decision = Decision(self.producer_id, self.producer_epoch, tuple(self._partitions))
            self._engine.transactions.note(decision)
            self._decision = decision

    def _end(self, *, commit: bool, durable: bool) -> None:
        """Writes the markers that are missing. One that cannot be written keeps back no other."""
        failures: list[Exception] = []
        for key in list(self._partitions):
            try:
                writer = self._engine.writer(*key)
                _end_transaction(writer, self.producer_id, self.producer_epoch + 1, commit=commit)
                if durable:
                    writer.flush()
            except (UnknownTopic, UnknownPartition):  # deleted meanwhile, and nothing to be ended
                del self._partitions[key]
            except (OSError, LogDirOffline, Refused) as error:
                failures.append(error)
            else:
                del self._partitions[key]
        if failures:
            try:
                raise failures[0]
            finally:
                del failures  # else they and this frame would keep each other
        self._finish()

    def _finish(self) -> None:
        if self._decision is not None:
            self._engine.transactions.finished(self._decision)
        self._decision = None
        self._is_open = False
        self._next_epoch()

    def _next_epoch(self) -> None:
        """The one that the markers had; sequence numbers begin again with it."""
        self.producer_epoch += 1
        self._sequences.clear()
        if self.producer_epoch == _MAX_EPOCH:  # which a marker could not go beyond
            self._renew()

    def _renew(self) -> None:
        """A new producer, as far as the logs know."""
        self.producer_id = _OWN_IDS | secrets.randbits(61)
        self.producer_epoch = 0
        self._sequences: dict[TopicPartition, int] = {}


def finish_decided(engine: Writers, decisions: Iterable[Decision]) -> int:
    """Commits, where they are still open, transactions that were decided before the process that
    did so ended; the number of markers written. A partition that cannot be written to is left."""
    count = 0
    for decision in decisions:
        producer_id, epoch = decision.producer_id, decision.producer_epoch
        for key in decision.partitions:
            try:
                writer = engine.writer(*key)
            except (UnknownTopic, UnknownPartition, LogDirOffline):
                continue
            if _is_open(writer, producer_id, epoch):
                _end_transaction(writer, producer_id, epoch + 1, commit=True)
                count += 1
    return count


def abort_transaction(writer: LogWriter, producer_id: int) -> Appended:
    """Ends the transaction that a producer has open in a partition, whoever it is; for those that
    nobody will end any more. InvalidTxnState when there is none.

    A producer of this module is fenced by it. One of a broker's keeps its epoch, which its
    coordinator counts; that is what Kafka's `kafka-transactions.sh abort` does.
    """
    state = writer.producers.state(producer_id)
    if state is None or not state.is_in_transaction:
        raise InvalidTxnState(f"producer {producer_id} has no transaction open here")
    epoch = state.epoch + 1 if producer_id >= _OWN_IDS else state.epoch
    return _end_transaction(writer, producer_id, epoch, commit=False)


def _is_open(writer: LogWriter, producer_id: int, epoch: int) -> bool:
    state = writer.producers.state(producer_id)
    return state is not None and state.is_in_transaction and state.epoch == epoch


def _end_transaction(writer: LogWriter, producer_id: int, epoch: int, *, commit: bool) -> Appended:
    state = writer.producers.state(producer_id)
    known = _COORDINATOR_EPOCH if state is None else state.coordinator_epoch
    coordinator_epoch = max(_COORDINATOR_EPOCH, known)
    return writer.end_transaction(
        producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch
    )
