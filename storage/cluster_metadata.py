"""What `__cluster_metadata-0` says of topics: a broker's directory explains itself offline.

A KRaft broker keeps there the log of all changes to the cluster, and from time to time a snapshot
(`<end offset>-<epoch>.checkpoint`, in the format of a segment) of what they add up to. State is the
newest snapshot and the records from its end offset on; a log that grows adds to it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .errors import CorruptError, StorageError
from .format.columns import Columns, Damage
from .format.decoder import BadBatch
from .format.layout import CONTROL_MASK
from .format.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    parse_metadata_record,
)
from .format.names import MetadataSnapshotName, parse_metadata_snapshot
from .log.context import ReadContext
from .log.log import Log
from .log.transactions import Isolation
from .segment.walk import Extent, Fault, read_runs

ALL_BROKERS = ""  # the broker whose settings are every broker's defaults


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as the cluster knows it; `configs` are the settings made on the topic itself."""

    topic_id: str
    partitions: frozenset[int]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster at one moment: topics by name, and settings by broker (node id or ALL_BROKERS)."""

    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    brokers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class MetadataReplay:
    """Adds up metadata records, in the order of the log."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # by topic id
        self._ids: dict[str, str] = {}  # by name
        self._partitions: dict[str, set[int]] = {}  # by topic id
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._transaction: list[MetadataRecord] | None = None  # records of the open one

    def apply(self, record: MetadataRecord) -> None:
        """Takes in one record; those of a transaction all at once at its end."""
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
        """The sum so far."""
        topics = {
            name: TopicMetadata(
                topic_id,
                frozenset(self._partitions.get(topic_id, ())),
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
            case PartitionRecord(topic_id, partition):
                self._partitions.setdefault(topic_id, set()).add(partition)
            case ConfigRecord(kind, resource, name, None):
                self._configs.get((kind, resource), {}).pop(name, None)
            case ConfigRecord(kind, resource, name, value):
                self._configs.setdefault((kind, resource), {})[name] = value
            case RemoveTopicRecord(topic_id):
                self._remove(topic_id)

    def _remove(self, topic_id: str) -> None:
        self._partitions.pop(topic_id, None)
        name = self._names.pop(topic_id, None)
        if name is not None and self._ids.get(name) == topic_id:
            del self._ids[name]
            self._configs.pop((ResourceType.TOPIC, name), None)


class ClusterMetadata:
    """The state in a partition of `__cluster_metadata`, read on as its log grows.

    `problems`: what could not be read of it, a line each; the rest counts all the same.
    """

    def __init__(self, log: Log, context: ReadContext) -> None:
        self.problems: list[str] = []
        self._log = log
        self._context = context
        self._lock = threading.Lock()  # guards what follows
        self._replay = MetadataReplay()
        self._next_offset = -1  # of the log; -1 before the first look
        self._image = MetadataImage()

    def image(self) -> MetadataImage:
        """The state now. As cheap as `Log.view` when nothing was added.

        UnknownPartition when the directory has gone.
        """
        with self._lock:
            view = self._log.view()
            if not view.start_offset <= self._next_offset <= view.end_offset:
                self._restart()  # the first look, or not the log that was read so far
            if self._next_offset < view.end_offset:
                parts = view.scan(self._next_offset, isolation=Isolation.READ_UNCOMMITTED)
                self._take(parts)
                self._next_offset = view.end_offset
                self._image = self._replay.image()
            return self._image
