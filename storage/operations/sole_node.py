"""The node that is the only voter of its metadata quorum, and what may be registered in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import LogDirError, NoClusterMetadata, TopicExists
from ..format.files.names import METADATA_TOPIC
from ..format.messages.metadata import RecordType, ResourceType
from ..io.lock import who_holds
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import LogDir
from ..metadata.bootstrap import NewRecord
from ..metadata.image import BrokerRegistration, MetadataImage
from ..metadata.leader_term import LeaderTerm
from ..metadata.new_topic import (
    DIRECTORIES_SINCE,
    config_records,
    partition_record,
    topic_record,
)
from ..topics.registering import planned_term
from .request import manager_of
from .revive.records import next_block
from .revive.releases import METADATA_VERSION, Release, release_for

# The first one of KRaft in production, 3.3-IV3, and the oldest that Kafka 4 reads.
_OLDEST_VERSION: Final = 7


@dataclass(frozen=True, slots=True)
class SoleNode:
    """The stopped node to which log directories belong: its metadata, the term in which records can
    be appended to them, its registration as a broker, and the release that it runs."""

    image: MetadataImage
    term: LeaderTerm
    broker: BrokerRegistration
    release: Release

    @property
    def node_id(self) -> int:
        return self.term.node_id

    @property
    def has_directories(self) -> bool:
        """Whether partitions name the log directories of their replicas."""
        return self.image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE

    def directory_id(self, log_dir: LogDir) -> str | None:
        """Returns how partitions name a log directory, None if they do not. Raises LogDirError for
        one that the broker does not use: it would neither find the partitions nor serve them."""
        if not self.has_directories:
            return None
        found = log_dir.meta.directory_id
        if found not in self.broker.log_dirs:
            why = f"is none of the log directories that broker {self.node_id} has registered"
            raise LogDirError(log_dir.path, f"{why}; a partition in it cannot be registered")
        return found

    def records(
        self,
        topic: str,
        topic_id: str,
        log_dirs: Mapping[int, LogDir],
        epochs: Mapping[int, int],
        configs: Mapping[str, str],
    ) -> list[NewRecord]:
        """Returns the records of partitions by number, and those of their topic if it is new.
        `epochs`: the leader epoch of each, above all that it had. Raises what `directory_id`
        raises."""
        is_new = topic not in self.image.topics
        records = [topic_record(topic, topic_id)] if is_new else []
        for number, log_dir in log_dirs.items():
            place = (self.node_id, topic_id, number, epochs[number], self.directory_id(log_dir))
            records.append(partition_record(*place, leader=self.node_id))
        if is_new:
            records += config_records(ResourceType.TOPIC, topic, configs)
        return records

    def producer_ids(self, last_used: int) -> Iterator[NewRecord]:
        """Yields the record after which no producer id up to `last_used` is assigned; nothing if
        none would be anyway, or if it is -1."""
        next_id = next_block(last_used)
        if next_id > max(self.image.next_producer_id, -1):
            message = {
                "brokerId": self.node_id,
                "brokerEpoch": self.broker.epoch,
                "nextProducerId": next_id,
            }
            yield NewRecord(RecordType.PRODUCER_IDS, 0, message)

    def refuse_known(self, topic: str) -> None:
        """Raises TopicExists if the cluster has the topic, or one whose name differs in . and _."""
        like = topic.replace(".", "_")
        for known in self.image.topics:
            if known.replace(".", "_") == like:
                raise TopicExists(topic, known)


def find_sole_node(engine: Engine) -> SoleNode:
    """Returns the node to which the directories belong. Only reads.

    Raises LogDirError if it is running, or is not a broker that is the only voter of its metadata
    quorum, or for damaged or unknown metadata; MetadataUnavailable."""
    dirs = engine.log_dirs.dirs
    if manager_of(engine) is None:
        refuse_running(dirs)
    try:
        place = engine.log_dirs.metadata_partition()
    except NoClusterMetadata:
        why = f"there is no {METADATA_TOPIC}-0 here, which a controller has in metadata.log.dir"
        raise LogDirError(dirs[0].path, f"{why}; give all directories of the node") from None
    _refuse_other_nodes(dirs, place.log_dir)
    term, image = planned_term(engine, engine.clock.now_ms())
    release = release_for(image.features, None, place.path)
    level = image.features.get(METADATA_VERSION, 0)
    if level < _OLDEST_VERSION:
        raise LogDirError(place.path, f"metadata.version is {level}, older than that of Kafka 3.3")
    broker = image.brokers.get(term.node_id)
    if broker is None:
        why = f"node {term.node_id} is only a controller, and has no partitions of topics"
        raise LogDirError(place.path, why)
    return SoleNode(image, term, broker, release)


def refuse_running(dirs: Iterable[LogDir]) -> None:
    """Raises LogDirError if a process writes to one of the directories."""
    for log_dir in dirs:
        pid = who_holds(log_dir.directory)
        if pid:
            who = f"process {pid}" if pid > 0 else "a process"
            raise LogDirError(log_dir.path, f"{who} has it open for writing; stop that one first")


def _refuse_other_nodes(dirs: Iterable[LogDir], metadata_dir: LogDir) -> None:
    node_id = metadata_dir.meta.node_id
    for log_dir in dirs:
        if log_dir.meta.node_id != node_id:
            why = f"belongs to node {log_dir.meta.node_id}, the metadata log to node {node_id}"
            raise LogDirError(log_dir.path, f"{why}; give the directories of one node")
