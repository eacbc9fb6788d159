"""The Python API for writing: directories and partitions of `kafkafs.open(…, writable=True)`.

with kafkafs.open("/data", writable=True) as d:
    d.create_topic("orders", 3, {"retention.ms": "86400000"})
    offsets = d["orders", 0].append([b"tea", b"pie"])
    with d.transaction() as transaction:
        transaction.append("orders", 1, [ProducerRecord(b"cake", key=b"k")])
        transaction.append("orders", 2, table)
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafkafs.storage import TopicPartition, milliseconds

from .reading import LogDirectories, Partition, Time

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage import (
        BatchPlan,
        CompactedLog,
        ErasedFile,
        Log,
        LogAppendInfo,
        LogManager,
        LogWriter,
        OpenTransaction,
        PartitionFailed,
        Record,
        RecordColumns,
        Selection,
        SimpleRecord,
        TransactionalProducer,
    )

_Row = TypeVar("_Row")

BATCH_SIZE: Final = 16384  # bytes; the default of Kafka's producer


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to be written. Any str is encoded as UTF-8.

    `timestamp`: milliseconds since 1970, ISO 8601 or a datetime, UTC if there is no time zone;
    None for the present time. `headers`: a mapping of names to values, or a sequence of pairs, in
    which a name may be repeated.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    timestamp: Time | None = None
    headers: Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]] = ()


# What can be appended: values, records created or read, or Arrow with the columns of `scan`.
Records: TypeAlias = (
    "Iterable[bytes | str | ProducerRecord | Record]"
    " | pa.Table | pa.RecordBatch | pa.RecordBatchReader"
)


class WritableLogDirectories(LogDirectories):
    """Log directories that are open for writing, exclusively until they are closed.

    Flushing, checkpoints and removing deleted files run in the background; with `maintain=True`
    also retention, the log cleaner and the removal of leftover files. Any thread may call. Methods
    that change something raise LogDirOffline if a disk has failed.
    """

    def __init__(self, engine: LogManager) -> None:
        super().__init__(engine)
        self._writable = engine
        self._idle: list[TransactionalProducer] = []  # without a transaction
        self._unended: list[TransactionalProducer] = []  # whose commit or abort has failed
        self._guard = threading.Lock()  # guards both
        engine.start()

    def __getitem__(self, topic_partition: TopicPartition) -> WritablePartition:
        return WritablePartition(self._log(topic_partition), self)

    def __iter__(self) -> Iterator[WritablePartition]:
        for topic, numbers in self.topics.items():
            for number in numbers:
                yield self[topic, number]

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
        *,
        unregistered: bool = False,
    ) -> str:
        """Creates a topic with `configs` and returns its topic id. Raises TopicExists,
        InvalidTopic, InvalidPartitions or ConfigError. Raises Unregistered, unless `unregistered`
        is true, if the directories belong to a KRaft cluster, whose broker would turn the
        partitions into stray partitions."""
        return self._writable.create_topic(topic, partitions, configs, unregistered=unregistered)

    def create_partitions(self, topic: str, total: int, *, unregistered: bool = False) -> None:
        """Increases the number of a topic's partitions to `total`. Raises UnknownTopic or
        InvalidPartitions; `unregistered` and Unregistered as for `create_topic`."""
        self._writable.create_partitions(topic, total, unregistered=unregistered)

    def delete_topic(self, topic: str, *, keep_remote: bool = False) -> None:
        """Deletes a topic with all its records. Raises UnknownTopic, or InRemoteStorage if remote
        storage has segments of it, which stay there with `keep_remote`. Raises ConfigsNotRemoved if
        the topic was deleted, but a full disk prevented removing its configs."""
        self._writable.delete_topic(topic, keep_remote=keep_remote)

    def configure(self, topic: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Changes configs of a topic, None removes one; returns all that are not defaults
        afterwards. Raises UnknownTopic, or ConfigError, and then changes nothing."""
        return self._writable.set_topic_config(topic, changes).changed

    def run(self, task: str) -> None:
        """Runs a background task now: "retention", "cleaner", "flush", "recovery-points",
        "start-offsets", "high-watermarks", "producers" or "deletion". Raises KeyError for any
        other name."""
        self._writable.run(task)

    def compact(
        self, topic: str, partition: int | None = None, *, force: bool = False
    ) -> list[CompactedLog]:
        """Compacts a topic's logs, or one of them: those that Kafka's cleaner would clean now and,
        with `force`, all that have anything to clean. In the others only retention deletes. Returns
        for each log its sizes before and after, and what was discarded by reason.

        Appends and reads continue meanwhile. Raises UnknownTopic, UnknownPartition, or
        PolicyViolation if the topic's cleanup.policy does not include "compact". After trying all
        logs, raises the first error: CorruptError for damage in a log, which is then no longer
        cleaned; CleaningAborted if a log is truncated, deleted, or being cleaned by the background
        task.
        """
        from kafkafs.storage import Compact, CompactedLog, compact

        request = Compact(_selection(topic, partition), force=force, everything=True)
        return _results(compact(self._writable, request), CompactedLog)

    def erase(
        self,
        topic: str,
        partition: int | None = None,
        *,
        keys: bytes | str | Iterable[bytes | str] = (),
        prefix: bytes | str | None = None,
        offset: int | None = None,
        dry_run: bool = False,
    ) -> list[ErasedFile]:
        """Erases the records with one of `keys`, those whose key begins with `prefix`, or the one
        at `offset` of one partition from all files of a topic or partition. All other records keep
        their offsets. Returns each file that held one, with its SHA-256 before and after; an empty
        list if there is none. With `dry_run`, only finds them.

        Raises UnknownTopic, UnknownPartition, or ValueError unless exactly one of the three is
        given. After trying all files, raises the first error: CorruptError for damage in a
        partition, which is left as it was; NotErased for a file that holds such a record and stays,
        such as that of a stray partition; CleaningAborted as for `compact`. The error has a note
        for each file from which records were erased.
        """
        from kafkafs.storage import Erase, ErasedFile, erase, errors

        given = [keys] if isinstance(keys, bytes | str) else keys
        some = frozenset(key.encode() if isinstance(key, str) else key for key in given)
        wanted = _selection(topic, partition)
        request = Erase(wanted, some, _bytes(prefix), offset, dry_run)
        rows = erase(self._writable, request)
        return _results(rows, ErasedFile, but=errors.RecordNotFound)

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Transaction]:
        """Runs a transaction over any partitions: committed at the end of the block, aborted if the
        block raises. `durable`: it is on the disk after the block."""
        producer = self._producer()
        try:
            with producer.transaction(durable):
                yield Transaction(self._writable, producer)
        finally:
            self._keep(producer)

    def close(self) -> None:
        """Makes everything durable and unlocks the directories. Open transactions stay open, hidden
        from read_committed readers. Raises NotClosed if all changes are durable, but the disk is
        too full for what closing writes."""
        self._end_transactions()
        super().close()

    def _producer(self) -> TransactionalProducer:
        from kafkafs.storage import TransactionalProducer

        self._end_transactions()
        with self._guard:
            return self._idle.pop() if self._idle else TransactionalProducer(self._writable)

    def _end_transactions(self) -> None:
        """Retries ending the transactions whose end could not be written: aborts them, or commits
        those whose commit was already decided."""
        with self._guard:
            unended, self._unended = self._unended, []
        try:
            while unended:
                _end_transaction(unended[-1])
                self._keep(unended.pop())
        finally:
            for producer in unended:  # if a signal interrupts this
                self._keep(producer)

    def _keep(self, producer: TransactionalProducer) -> None:
        """Keeps a producer for a later transaction, or to retry ending its transaction."""
        with self._guard:
            (self._unended if producer.is_in_transaction else self._idle).append(producer)


def _selection(topic: str, partition: int | None) -> Selection:
    from kafkafs.storage import Selection

    return Selection(((topic, None if partition is None else operator.index(partition)),))


def _results(
    rows: Iterable[_Row | PartitionFailed],
    kind: type[_Row],
    but: type[Exception] | tuple[()] = (),
) -> list[_Row]:
    """Returns the rows of an operation after all were made. Raises the first error that is not a
    `but`, with a note for each row."""
    from kafkafs.storage import PartitionFailed

    found: list[_Row] = []
    failures: list[Exception] = []
    for row in rows:
        if isinstance(row, kind):
            found.append(row)
        elif isinstance(row, PartitionFailed) and not isinstance(row.cause, but):
            failures.append(row.cause or RuntimeError(row.error))
    if failures:
        for done in found:
            failures[0].add_note(f"done: {done}")
        try:
            raise failures[0]
        finally:
            del failures, rows  # breaks the reference cycle with this frame
    return found


def _end_transaction(producer: TransactionalProducer) -> None:
    from kafkafs.storage import InvalidTxnState, StorageError

    with suppress(StorageError, OSError):
        try:
            producer.abort()
        except InvalidTxnState:
            producer.commit()


class WritablePartition(Partition):
    """A partition that can also be written to."""

    def __init__(self, log: Log, log_directories: WritableLogDirectories) -> None:
        super().__init__(log, log_directories)
        self._writable = log_directories._writable

    def append(
        self,
        records: Records,
        *,
        durable: bool = False,
        compression: str = "none",
        batch_size: int = BATCH_SIZE,
    ) -> range:
        """Appends records, all of them or none, and returns their offsets.

        `records`: values as bytes or str, `ProducerRecord`s, records that were read, or Arrow with
        any of the columns key, value, timestamp and headers. `durable`: they are on the disk when
        this returns, as with the topic's flush.messages=1; otherwise soon, and at the latest when
        the directory is closed. `compression` (none, gzip, snappy, lz4, zstd) applies if the
        topic's compression.type is producer; `batch_size` is the most bytes of a batch before
        compression. Raises Refused if Kafka would reject the records.
        """
        return _offsets(
            self._writer().append_records(
                _stamped(records, self._writable), _plan(compression, batch_size), durable
            )
        )

    def append_all(
        self,
        parts: Iterable[Records],
        *,
        compression: str = "none",
        batch_size: int = BATCH_SIZE,
    ) -> list[range]:
        """Appends part after part, each as `append` does, and returns their offsets. With many
        parts this is up to 1.5 times as fast, because one is encoded while others are written. Good
        parts have some thousand records.

        Raises the error of the first rejected part, with a note of how many parts were appended.
        After a rejected part, no later part is appended.
        """
        columns = (_stamped(part, self._writable) for part in parts)
        plan = _plan(compression, batch_size)
        found: list[range] = []
        try:
            for appended in self._writer().append_records_each(columns, plan):
                found.append(_offsets(appended))
        except Exception as error:
            end = f", up to offset {found[-1][-1]}" if found else ""
            error.add_note(f"{len(found)} parts were appended{end}")
            raise
        return found

    def delete_records(self, offset: int) -> int:
        """Deletes the records below `offset`, -1 for all; returns the new log start offset. Raises
        OffsetOutOfRange or PolicyViolation."""
        return self._writer().delete_records(offset)

    def open_transactions(self) -> list[OpenTransaction]:
        """Returns the open transactions by first offset, each with its producer, first offset and
        the time of its last record."""
        return self._writer().producers.open_transactions()

    def abort_transaction(self, producer_id: int) -> None:
        """Aborts a producer's open transaction in this partition, for a hanging producer. Raises
        InvalidTxnState (a Refused) if it has none."""
        from kafkafs.storage import abort_transaction

        abort_transaction(self._writer(), producer_id)

    def flush(self) -> None:
        """Makes everything that was appended before durable."""
        self._writer().flush()

    def _writer(self) -> LogWriter:
        return self._writable.writer(self.topic, self.partition)


class Transaction:
    """A transaction; its records are committed when `WritableLogDirectories.transaction`'s block
    ends."""

    def __init__(self, engine: LogManager, producer: TransactionalProducer) -> None:
        self._engine = engine
        self._producer = producer

    def append(
        self,
        topic: str,
        partition: int,
        records: Records,
        *,
        compression: str = "none",
        batch_size: int = BATCH_SIZE,
    ) -> range:
        """Appends as `WritablePartition.append` does, in the transaction."""
        columns = _stamped(records, self._engine)
        plan = _plan(compression, batch_size)
        return _offsets(self._producer.append(topic, operator.index(partition), columns, plan))


def _plan(compression: str, batch_size: int) -> BatchPlan:
    from kafkafs.storage import BatchPlan, Codec

    names = {codec.name.lower(): codec for codec in Codec}
    if compression not in names:
        raise ValueError(f"no compression {compression!r}; there are {', '.join(names)}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}")
    return BatchPlan(batch_bytes=batch_size, codec=names[compression])


def _offsets(appended: LogAppendInfo) -> range:
    return range(appended.first_offset, appended.last_offset + 1)


def _stamped(records: Any, engine: LogManager) -> RecordColumns:
    """Returns the records, with the present time for those without a timestamp."""
    return _columns(records).stamped(engine.clock.now_ms())


def _columns(records: Any) -> RecordColumns:
    from kafkafs.storage import RecordColumns

    if hasattr(records, "read_all"):
        records = records.read_all()
    if hasattr(records, "schema"):
        from kafkafs.storage import to_record_columns  # with pyarrow

        return to_record_columns(records)
    if isinstance(records, bytes | bytearray | memoryview | str):
        raise TypeError("records must be a list, even for a single record")
    listed = list(records)
    if all(isinstance(record, bytes) for record in listed):
        return RecordColumns.from_values(listed)
    return RecordColumns.from_records([_simple(record) for record in listed])


def _simple(record: Any) -> SimpleRecord:
    from kafkafs.storage import NO_TIMESTAMP, Record, SimpleRecord

    if isinstance(record, bytes | str):
        return SimpleRecord(value=_bytes(record))
    if not isinstance(record, ProducerRecord | Record):
        kind = type(record).__name__
        raise TypeError(f"a record is bytes, a str or a ProducerRecord, not {kind}")
    timestamp = NO_TIMESTAMP if record.timestamp is None else milliseconds(record.timestamp)
    pairs = record.headers.items() if isinstance(record.headers, Mapping) else record.headers
    headers = [(name, _bytes(value)) for name, value in pairs]
    return SimpleRecord(timestamp, _bytes(record.key), _bytes(record.value), headers)


def _bytes(data: bytes | str | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data
