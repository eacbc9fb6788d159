"""Reading: log directories, partitions, and `scan` to Arrow.

The engine, numpy and pyarrow are imported when they are first needed.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from kafkafs.storage import TopicPartition, milliseconds

from .arrow import READ_COMMITTED, ArrowForm, arrow_reader, decoded_columns, has_schemas, undamaged

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage import (
        ClusterChange,
        Columns,
        CorruptError,
        Damage,
        DecodedColumns,
        Engine,
        Isolation,
        KeyVersion,
        Log,
        Record,
        RegisteredVersion,
        SchemaCatalog,
        View,
    )

    from .arrow import Decode
    from .cluster import Cluster
    from .compacted import Compacted
    from .groups import GroupDescription, OnDamage

#: Milliseconds since 1970, ISO 8601, a datetime or a date; UTC if there is no time zone.
Time = int | str | date


class UnreadWarning(UserWarning):
    """Records of a partition are in remote storage, and were not read."""


class _ForReading:
    """Base class of read-only objects. Accessing a method that writes raises an AttributeError that
    explains how to open for writing."""

    if not TYPE_CHECKING:  # for type checkers there is no such method

        def __getattr__(self, name: str) -> NoReturn:
            kind = type(self).__name__
            # What can also be written to is a subclass, in writing.py.
            writable = (hasattr(each, name) for each in type(self).__subclasses__())
            if not name.startswith("_") and any(writable):
                raise AttributeError(
                    f"{kind}.{name} writes, and this {kind} was opened for reading:"
                    " open it with writable=True",
                    name=name,
                    obj=self,
                )
            raise AttributeError(f"{kind} has no attribute {name!r}", name=name, obj=self)


class LogDirectories(_ForReading):
    """Open log directories; `with` closes them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._examined: set[TopicPartition] = set()  # for offsets that are not read

    @property
    def topics(self) -> dict[str, list[int]]:
        """The existing topics by name, each with the numbers of its partitions."""
        self._engine.close_removed_if_due()
        return {topic: list(numbers) for topic, numbers in self._engine.topics().items()}

    def __getitem__(self, topic_partition: TopicPartition) -> Partition:
        """Returns the partition `directory[topic, number]`. Raises UnknownTopic or
        UnknownPartition."""
        return Partition(self._log(topic_partition), self)

    def _log(self, topic_partition: TopicPartition) -> Log:
        try:
            topic, number = topic_partition
        except ValueError:
            what = f"directory[TOPIC, NUMBER], not directory[{topic_partition!r}]"
            raise TypeError(f"a partition is {what}") from None
        self._engine.close_removed_if_due()
        return self._engine.log(topic, operator.index(number))

    def views(self, topic: str) -> list[View]:
        """Returns the present state of each partition of a topic, by number, for readers that plan
        before they read. Raises UnknownTopic, and UnknownPartition if one is just being deleted."""
        self._engine.close_removed_if_due()
        numbers = self._engine.numbers_of(topic)
        views = [self._engine.log(topic, number).view() for number in numbers]
        for view in views:
            self._warn_of_unread(view)
        return views

    def _warn_of_unread(self, view: View) -> None:
        """Warns once of offsets before the log that remote storage has, where they are not read."""
        from kafkafs.storage import unread_part

        key = (view.topic, view.partition)
        if key not in self._examined:
            self._examined.add(key)
            if line := unread_part(self._engine, view):
                warnings.warn(line, UnreadWarning, stacklevel=4)

    def __iter__(self) -> Iterator[Partition]:
        """Yields all existing partitions, by topic and number."""
        for topic, numbers in self.topics.items():
            for number in numbers:
                yield self[topic, number]

    def scan(
        self,
        topic: str,
        *,
        start_time: Time | None = None,
        end_time: Time | None = None,
        columns: Sequence[str] | None = None,
        decode: Decode = False,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Returns the records of all partitions of a topic, one partition after another, each as
        `Partition.scan` does for the same arguments. Raises UnknownTopic."""
        import pyarrow as pa

        self._engine.close_removed_if_due()
        partitions = [self[topic, number] for number in self._engine.partitions_of(topic)]
        form = ArrowForm(columns, decoded_columns(self._catalog, topic, decode))
        span = _Span(None, None, start_time, end_time)

        def batches() -> Iterator[pa.RecordBatch]:
            for each in partitions:
                parts = each._parts(span, isolation, on_damage, ahead=True)
                yield from form.batches(parts, topic, each.partition)

        return pa.RecordBatchReader.from_batches(form.schema, batches())

    def decoded_columns(self, topic: str) -> DecodedColumns | None:
        """Returns the columns that `scan` adds with `decode=True`, for several scans to share; None
        if the topic has no schema, or one that cannot be used."""
        from kafkafs.storage import SchemaError

        if not has_schemas(self._engine):
            return None
        try:
            return decoded_columns(self._catalog, topic, decode=True)
        except SchemaError:
            return None

    @cached_property
    def _catalog(self) -> SchemaCatalog:
        from kafkafs.storage import SchemaCatalog

        return SchemaCatalog(self._engine)

    def topic_id(self, topic: str) -> str:
        """Returns the topic id, 22 characters of URL-safe base64; "" if it is unknown."""
        return self._engine.topic_id(topic)

    def groups(
        self, *names: str, at: Time | None = None, on_damage: OnDamage | None = None
    ) -> dict[str, GroupDescription]:
        """Returns the consumer groups of these names, or all, with their members and how far they
        have read each partition, now or `at` another time (as in `offset_for_time`).

        They are read from `__consumer_offsets` and `__share_group_state` as a broker would read
        them, except that nothing expires; if `open` was given `offsets.retention.minutes`, offsets
        that a broker would remove have a `problem`. Raises UnknownGroup, and CorruptError if
        records there are damaged or unknown, or OSError if they or a partition cannot be read; with
        `on_damage`, it is called with each of these errors, and everything else is returned.
        """
        from .groups import describe_groups

        self._engine.close_removed_if_due()
        if at is None:
            return describe_groups(self._engine, names, on_damage)
        with closing(self._engine.as_of(milliseconds(at))) as engine:
            return describe_groups(engine, names, on_damage)

    def schemas(
        self, *subjects: str, at: Time | None = None, on_damage: OnDamage | None = None
    ) -> list[RegisteredVersion]:
        """Returns the versions of these subjects, or of all, that a schema registry has written to
        its topic (`_schemas`, or `kafkafs.schemas.topic`), now or `at` another time (as in
        `offset_for_time`): each with its `schema` (`id`, `guid`, `type`, `text`, `references`) and
        its `deletion`: "none", "soft", or "hard" for one that is only still on the disk.

        Raises UnknownSchema, and CorruptError if the topic is damaged or contradicts itself; with
        `on_damage`, it is called with each of these errors, and everything else is returned.
        """
        self._engine.close_removed_if_due()
        if at is None:
            return _registered_versions(self._engine, subjects, on_damage)
        with closing(self._engine.as_of(milliseconds(at))) as engine:
            return _registered_versions(engine, subjects, on_damage)

    def cluster(self, *, at: Time | None = None, offset: int | None = None) -> Cluster:
        """Returns the cluster as its metadata log records it: topics, brokers, configs, quotas,
        ACLs, users, features and voters, now, `at` another time (as in `offset_for_time`), or after
        the records of the metadata log below `offset`.

        Raises NoClusterMetadata if the directories have no such log, and MetadataUnavailable if it
        and the snapshots beside it do not reach back that far.
        """
        from .cluster import cluster_of

        self._engine.close_removed_if_due()
        if at is None:
            return cluster_of(self._engine, offset)
        with closing(self._engine.as_of(milliseconds(at))) as engine:
            return cluster_of(engine, offset)

    def cluster_changes(
        self, on_problem: Callable[[str], None] | None = None
    ) -> Iterator[ClusterChange]:
        """Yields the changes in the log of the cluster's metadata, oldest first, each with
        `offset`, `timestamp`, `kind`, `details` and `text`. Raises NoClusterMetadata and, after the
        changes, StorageError if records could not be read; with `on_problem`, it is called for each
        of them instead, with a line that names file and position."""
        from .cluster import changes_of

        self._engine.close_removed_if_due()
        return changes_of(self._engine, on_problem)

    @property
    def problems(self) -> list[str]:
        """Problems in the directories that do not prevent reading, a line each; among them, which
        partitions read so far have offsets in remote storage that are not read."""
        from kafkafs.storage import unread_parts

        return [*self._engine.problems, *unread_parts(self._engine, "see the config kafkafs.tier")]

    def close(self) -> None:
        """Closes the files. A later read opens them again."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Span:
    """The bounds of a read: offsets and times; None for those not given."""

    start: int | None
    end: int | None
    start_time: Time | None
    end_time: Time | None

    def offsets(self, view: View, isolation: Isolation) -> tuple[int | None, int | None]:
        """Returns the first offset and the offset to end before; None for no bound."""
        low = _later_of(self.start, _offset_from(view, self.start_time, isolation))
        high = _earlier_of(self.end, _offset_from(view, self.end_time, isolation))
        return low, high


class Partition(_ForReading):
    """One partition of a topic. Every call reads the log as it is at that moment.

    `isolation` is Kafka's isolation.level: "read_committed" hides aborted transactions, everything
    from the first open one on, and control records; the other level is "read_uncommitted". All
    calls raise UnknownPartition if the partition has been deleted.
    """

    def __init__(self, log: Log, log_directories: LogDirectories) -> None:
        self._log = log
        self._log_directories = log_directories
        self._engine = log_directories._engine

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.partition}>"

    @property
    def topic(self) -> str:
        return self._log.topic

    @property
    def partition(self) -> int:
        return self._log.partition

    @property
    def start_offset(self) -> int:
        """The log start offset: no record below it can be read."""
        return self._log.view().start_offset

    @property
    def end_offset(self) -> int:
        """The log end offset: the offset of the next record to be appended."""
        self._engine.close_removed_if_due()
        return self._log.view().end_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or the end offset."""
        return self._log.view().last_stable_offset

    def record(self, offset: int, *, isolation: str = READ_COMMITTED) -> Record:
        """Returns the record at `offset`. Raises OffsetNotFound if no record can be read there, and
        CorruptError if its batch is damaged."""
        return self._log.view().find(operator.index(offset), _isolation(isolation))

    def latest(self, key: bytes | str, *, isolation: str = READ_COMMITTED) -> Record | None:
        """Returns the last record with `key`, None if there is none. A tombstone is a record with
        value None. A str is encoded as UTF-8.

        The first lookup reads as far back as needed; later ones read only what was appended since.
        Raises CorruptError if damaged bytes may contain a later record with the key.
        """
        sought = key.encode() if isinstance(key, str) else key
        found = self._engine.latest.find(self._log, sought, _isolation(isolation))
        return None if found is None else found[0].record(found[1])

    def history(
        self,
        key: bytes | str,
        *,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[CorruptError], None] | None = None,
    ) -> Iterator[KeyVersion]:
        """Yields all versions of `key` that are still on the disk, by offset: also those below the
        log start offset, in deleted segments, and in segments that compaction has replaced; before
        these, those of deleted partitions of the topic's name. Each has its `record`, the `file`
        that holds it, its `state`, and `is_served`: whether the log still serves it. A str is
        encoded as UTF-8.

        Reads all files. A damaged one ends the iteration with CorruptError, unless there is
        `on_damage`: it is called, and the rest is searched.
        """
        from kafkafs.storage import (
            CorruptError,
            History,
            PartitionFailed,
            Selection,
            fresh,
            history,
        )

        selection = Selection(((self.topic, self.partition),))
        sought = key.encode() if isinstance(key, str) else key
        for row in history(self._engine, History(selection, sought, _isolation(isolation))):
            if not isinstance(row, PartitionFailed):
                yield row
            elif isinstance(row.cause, CorruptError) and on_damage is not None:
                on_damage(row.cause)
            elif row.cause is not None:
                raise fresh(row.cause)

    def offset_for_time(self, time: Time, *, isolation: str = READ_COMMITTED) -> int | None:
        """Returns the offset of the first record whose timestamp is at or after `time`, None if
        there is none.

        `time`: milliseconds since 1970, a str as on the command line (milliseconds or ISO 8601),
        a datetime or a date; UTC if there is no time zone. Raises ValueError if a str is not a
        time.
        """
        return self._log.view().offset_for_time(milliseconds(time), _isolation(isolation))

    def scan(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        columns: Sequence[str] | None = None,
        decode: Decode = False,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> pa.RecordBatchReader:
        """Returns the records with `start` <= offset < `end` as Arrow record batches, decoded while
        they are read. If there is a spare processor, another thread reads the log ahead.

        `start_time` and `end_time` are converted by `offset_for_time`, as in Kafka's consumer: the
        scan runs from the first record at or after the former to the first at or after the latter.
        If the log's timestamps are not in order and the bounds must be exact, filter by
        `timestamp`. `columns` selects and orders the columns, from key, value, topic, partition,
        offset, timestamp, timestampType and headers; all by default. Damaged bytes end the scan
        with CorruptError, unless there is `on_damage`: it is called, and the scan continues after
        them.

        `decode` adds columns: `decoded`, the value as an Arrow struct (or what else its schema
        describes), and `decodeError`, why a value does not fit, null if it does; in the same way
        `decodedKey` and `decodeKeyError` if keys have a schema. True: of the newest version of the
        subjects `<topic>-value` and `<topic>-key`, or of what the config `kafkafs.schemas` names
        for the topic. The path of a schema, or one of `schemas()`: values become of this one.
        Values that other versions wrote are resolved by the rules of Avro. Raises SchemaError if
        no schema is known, or it cannot be used.
        """
        decoded = decoded_columns(self._log_directories._catalog, self.topic, decode)
        span = _Span(start, end, start_time, end_time)
        parts = self._parts(span, isolation, on_damage, ahead=True)
        return arrow_reader(parts, self.topic, self.partition, columns, decoded)

    def records(
        self,
        *,
        start: int | None = None,
        end: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        isolation: str = READ_COMMITTED,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[Record]:
        """Yields one by one the records that `scan` returns for the same arguments. They are read
        from the log as it is now, a batch at a time during the iteration. `scan` is many times
        faster if records can be processed as columns."""
        span = _Span(start, end, start_time, end_time)
        parts = self._parts(span, isolation, on_damage, ahead=False)
        return (part.record(row) for part in parts for row in range(len(part)))

    def _parts(
        self,
        span: _Span,
        isolation: str,
        on_damage: Callable[[Damage], None] | None,
        *,
        ahead: bool,
    ) -> Generator[Columns]:
        """Yields the columns in `span`. `ahead`: another thread reads and checks the next ones."""
        self._engine.close_removed_if_due()
        level = _isolation(isolation)
        view = self._log.view()
        low, high = span.offsets(view, level)
        if low is None or low < view.start_offset:
            self._log_directories._warn_of_unread(view)
        return undamaged(view.scan(low, high, level, ahead=ahead), on_damage)

    def compacted(self, at: Time | None = None) -> Compacted:
        """Previews the partition as log compaction and then retention would leave it now, or as of
        another time (as in `kafkafs.open`), without changing anything.

        This takes about as long as a compaction. It assumes that all that may be compacted is,
        even if too little is dirty for a broker to start, and even if the topic's cleanup.policy
        does not include "compact". Raises CorruptError if damage would stop a compaction.
        """
        from .compacted import compacted

        at_ms = None if at is None else milliseconds(at)
        return compacted(self._engine, self.topic, self.partition, at_ms)


def _registered_versions(
    engine: Engine, subjects: tuple[str, ...], on_damage: OnDamage | None
) -> list[RegisteredVersion]:
    from kafkafs.storage import ListSchemas, PartitionFailed, fresh, list_schemas

    found = []
    for row in list_schemas(engine, ListSchemas(subjects)):
        if not isinstance(row, PartitionFailed):
            found.append(row.version)
            continue
        assert row.cause is not None
        if on_damage is None:
            raise fresh(row.cause)
        on_damage(row.cause)
    return found


def _isolation(name: str) -> Isolation:
    from kafkafs.storage import Isolation

    return Isolation(name)


def _offset_from(view: View, time: Time | None, isolation: Isolation) -> int | None:
    """Returns the first offset at or after `time`: the log end offset if no record is that late."""
    if time is None:
        return None
    found = view.offset_for_time(milliseconds(time), isolation)
    return view.end_offset if found is None else found


def _later_of(*offsets: int | None) -> int | None:
    return max((offset for offset in offsets if offset is not None), default=None)


def _earlier_of(*offsets: int | None) -> int | None:
    return min((offset for offset in offsets if offset is not None), default=None)
