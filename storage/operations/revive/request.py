"""What `revive` is asked for, and its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from ...format.files.names import INTERNAL_TOPICS, METADATA_TOPIC
from ...io.local_path import absolute_path
from ...log.state.producers import OpenTransaction
from ...log_dirs.engine import Engine
from ...log_dirs.selection import EVERYTHING, Selection
from ..request import PartitionFailed
from ..transactions import PartitionTransaction
from .releases import find_release

DEFAULT_LISTENER: Final = ("localhost", 9092)
MAX_PORT: Final = (1 << 16) - 1


@dataclass(frozen=True, slots=True)
class Revive:
    """Creates `output`, an absolute path, with what is needed to start Kafka on the selected topics
    and all internal ones: `server.properties` and `data`. As of a time if the engine is.

    `listener`: the host and port for clients; the controller listens on the next port. `node_id`,
    `kafka_version`: None for those of the sources. `abort_open`: transactions that are open are
    aborted. `link`: sealed segments are hard links to those of the sources, where these were closed
    cleanly. `salvage`: of damaged segments, all intact batches are taken.
    """

    output: str
    selection: Selection = EVERYTHING
    listener: tuple[str, int] = DEFAULT_LISTENER
    node_id: int | None = None
    kafka_version: str | None = None
    abort_open: bool = False
    link: bool = False
    salvage: bool = False
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        """False: it does not change the log directories that it reads."""
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic, UnknownPartition or ConfigError."""
        if self.kafka_version is not None:
            find_release(self.kafka_version)
        if self.selection:
            known = {name: list(each.partitions) for name, each in engine.metadata().topics.items()}
            self.selection.partitions({**known, **engine.topics()})
        return ()

    def identity(self, engine: Engine) -> str:
        """Returns a line that is the same for a repetition of this request."""
        return json.dumps(
            {
                "logDirs": [absolute_path(each.path) for each in engine.log_dirs.dirs],
                "configs": dict(sorted(engine.configs.items())),
                "until": engine.at_ms,
                "topics": str(self.selection),
                "listener": list(self.listener),
                "nodeId": self.node_id,
                "kafkaVersion": self.kafka_version,
                "abortOpen": self.abort_open,
                "link": self.link,
                "salvage": self.salvage,
            }
        )


@dataclass(frozen=True, slots=True)
class RevivedPartition:
    """A partition of the new node: offsets [`start_offset`, `end_offset`), and the directories that
    it is from, () if none of the sources has it."""

    topic: str
    partition: int
    topic_id: str
    sources: tuple[str, ...]
    segments: int
    size: int
    start_offset: int
    end_offset: int
    leader_epoch: int

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topicId": self.topic_id,
            "sources": list(self.sources),
            "segments": self.segments,
            "bytes": self.size,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "leaderEpoch": self.leader_epoch,
        }


@dataclass(frozen=True, slots=True)
class RevivedTransaction:
    """A transaction that is open in a partition. `outcome`: what becomes of it."""

    topic: str
    partition: int
    transaction: OpenTransaction
    transactional_id: str | None
    outcome: str

    def as_json(self) -> dict[str, Any]:
        found = PartitionTransaction(self.topic, self.partition, self.transaction)
        return {
            **found.as_json(),
            "transactionalId": self.transactional_id,
            "outcome": self.outcome,
        }


@dataclass(frozen=True, slots=True)
class ReviveNote:
    """Something about the new node that differs from the old cluster, and is no failure."""

    note: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RevivedNode:
    """The new node, complete unless it was a dry run. `properties`: the path of its
    server.properties."""

    properties: str
    cluster_id: str
    node_id: int
    kafka_version: str
    topics: int
    partitions: int
    size: int

    def as_json(self) -> dict[str, Any]:
        return {
            "properties": self.properties,
            "clusterId": self.cluster_id,
            "nodeId": self.node_id,
            "kafkaVersion": self.kafka_version,
            "topics": self.topics,
            "partitions": self.partitions,
            "bytes": self.size,
        }


ReviveRow = RevivedPartition | RevivedTransaction | ReviveNote | RevivedNode


def is_wanted(selection: Selection, topic: str, partition: int) -> bool:
    """Returns whether a partition is revived: always if its topic belongs to the cluster as a
    whole."""
    if topic == METADATA_TOPIC:
        return False
    return topic in INTERNAL_TOPICS or selection.includes(topic, partition)
