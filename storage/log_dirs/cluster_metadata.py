"""Topics, configs and brokers as the KRaft log `__cluster_metadata-0` records them.

A KRaft broker keeps the log of all changes to the cluster there and, from time to time, writes a
snapshot of their sum (`<end offset>-<epoch>.checkpoint`, in the format of a segment). The state is
the newest snapshot plus the records from its end offset on, so a broker's directory can be
interpreted offline. As the log grows, the state is updated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..errors import CorruptError, SegmentGone, printable
from ..format.files.names import parse_metadata_snapshot
from ..format.layout import CONTROL_MASK
from ..format.messages.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    parse_metadata_record,
)
from ..format.records.columns import Columns, Damage
from ..io.disk import OpenFile
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..segment.extent import Extent, Fault
from ..segment.walk import read_runs

# Problems kept; a log that is all garbage would produce them without end.
_MAX_PROBLEMS = 100

ALL_BROKERS = ""  # the pseudo-broker whose configs are the defaults of all brokers


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as the cluster knows it: for each partition the ids of the nodes that have a replica;
    `configs` are the configs set on the topic itself."""

    topic_id: str
    partitions: Mapping[int, frozenset[int]]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster at one moment: topics by name, configs by broker (node id or ALL_BROKERS)."""

    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class MetadataReplay:
    """Accumulates metadata records, applied in log order."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by topic id
        self._ids: dict[str, str] = {}  # by name
        self._partitions: dict[str, dict[int, frozenset[int]]] = {}  # by topic id
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._transaction: list[MetadataRecord] | None = None  # records of the open transaction

    def apply(self, record: MetadataRecord) -> None:
        """Applies one record; the records of a transaction are applied together when it ends."""
        match record:
            case BeginTransactionRecord():
                self._transaction = []
            case AbortTransactionRecord():
                self._transaction = None
            case EndTransactionRecord():
                complete, self._transaction = self._transaction or [], None
                for part in complete:
                    self._apply(part)
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._apply(record)

    def image(self) -> MetadataImage:
        """Returns the state after the records applied so far."""
        topics = {
            name: TopicMetadata(
                topic_id,
                dict(self._partitions.get(topic_id, {})),
                dict(self._configs.get((ResourceType.TOPIC, name), {})),
            )
            for name, topic_id in self._ids.items()
        }
        brokers = {
            name: dict(configs)
            for (kind, name), configs in self._configs.items()
            if kind == ResourceType.BROKER
        }
        return MetadataImage(topics, brokers)

    def _apply(self, record: MetadataRecord) -> None:
        match record:
            case TopicRecord(name, topic_id):
                self._names[topic_id] = name
                self._ids[name] = topic_id
            case PartitionRecord(topic_id, partition, replicas):
                self._partitions.setdefault(topic_id, {})[partition] = frozenset(replicas)
            case PartitionChangeRecord(topic_id, partition, replicas) if replicas is not None:
                self._partitions.setdefault(topic_id, {})[partition] = frozenset(replicas)
            case ConfigRecord():
                self._configure(record)
            case RemoveTopicRecord(topic_id):
                self._remove(topic_id)

    def _configure(self, record: ConfigRecord) -> None:
        configs = self._configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _remove(self, topic_id: str) -> None:
        self._partitions.pop(topic_id, None)
        name = self._names.pop(topic_id, None)
        if name is not None and self._ids.get(name) == topic_id:
            del self._ids[name]
            self._configs.pop((ResourceType.TOPIC, name), None)


class ClusterMetadata:
    """The state in a partition of `__cluster_metadata`, updated as its log grows.

    `problems`: what could not be read, one line each; everything else still takes effect.
    """

    def __init__(self, log: Log, context: ReadContext) -> None:
        self.problems: list[str] = []
        self._log = log
        self._context = context
        self._lock = threading.Lock()  # guards what follows
        self._view: View | None = None
        self._replay = MetadataReplay()
        self._next_offset = -1  # of the log; -1 before the first read
        self._image = MetadataImage()

    def image(self) -> MetadataImage:
        """Returns the current state. As cheap as `Log.view` if nothing was appended.

        Raises UnknownPartition if the directory was removed.
        """
        with self._lock:
            view = self._log.view()
            if view is not self._view:
                self._read_on(view)
                self._view = view
            return self._image

    def _read_on(self, view: View) -> None:
        if not view.start_offset <= self._next_offset <= view.end_offset:
            # The first read, or the log is no longer the one read so far.
            self._replay = MetadataReplay()
            self.problems = []
            self._next_offset = self._read_snapshot()
        if self._next_offset < view.start_offset:
            self._problem(
                f"{printable(self._log.path)}: offsets {self._next_offset} to "
                f"{view.start_offset - 1} are in no snapshot and not in the log"
            )
        self._take(view.scan(self._next_offset, isolation=Isolation.READ_UNCOMMITTED))
        self._next_offset = max(self._next_offset, view.end_offset)
        self._image = self._replay.image()

    def _read_snapshot(self) -> int:
        """Applies the newest snapshot; returns the offset at which the log continues."""
        found = {
            name: entry.name
            for entry in self._log.directory.list()
            if (name := parse_metadata_snapshot(entry.name)) is not None
        }
        for name in sorted(found, reverse=True):
            try:
                file = self._log.directory.open(found[name])
            except (SegmentGone, CorruptError) as error:
                self._problem(str(error))
                continue
            self._take(self._scan_file(file))
            return name.end_offset
        return 0

    def _scan_file(self, file: OpenFile) -> Iterator[Columns | CorruptError]:
        """Yields the data records of a snapshot, which is laid out as a segment."""
        limit = self._context.limits.max_batch_bytes
        extent = Extent(file, base_offset=0, start=0, end=file.size(), max_batch_bytes=limit)
        with self._context.decoder() as decoder:
            for run in read_runs(extent):
                if isinstance(run, Fault):
                    yield run.error
                    continue
                data = run.table.select(~run.table.flagged(CONTROL_MASK))
                for part in decoder.decode(run.data, run.base, data, file.path):
                    yield part if isinstance(part, Columns) else part.error.at(file.path)

    def _take(self, parts: Iterable[Columns | Damage | CorruptError]) -> None:
        for part in parts:
            if isinstance(part, Columns):
                self._take_columns(part)
            else:
                self._problem(str(part.error if isinstance(part, Damage) else part))

    def _take_columns(self, columns: Columns) -> None:
        for row in range(len(columns)):
            try:
                record = parse_metadata_record(columns.value(row) or b"")
            except CorruptError as error:
                offset = int(columns.offsets[row])
                self._problem(f"{printable(columns.file)}: offset {offset}: {error.what}")
                continue
            if record is not None:
                self._replay.apply(record)

    def _problem(self, line: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(line)
