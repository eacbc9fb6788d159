"""A topic that is created and registered at once, by a node that is the only voter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError
from ..format.messages.metadata import RecordType
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import LogDir
from ..metadata.bootstrap import NewRecord
from ..metadata.leader_term import AppendedRecord
from .revive.topic_configs import configs_for
from .sole_node import SoleNode, find_sole_node

if TYPE_CHECKING:
    from ..log_manager import LogManager

_FIRST_EPOCH: Final = 1  # kafkafs appends to a new partition in epoch 0


@dataclass(frozen=True, slots=True)
class MetadataRecordRow:
    """A record that a dry run would append to the metadata log."""

    appended: AppendedRecord

    def as_json(self) -> dict[str, Any]:
        """Returns the record as kafka-dump-log prints it, with its offset."""
        record = self.appended.record
        return {
            "offset": self.appended.offset,
            "type": f"{RecordType(record.number).name}_RECORD",
            "version": record.version,
            "data": record.message,
        }


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is being created, to be registered by `node`."""

    node: SoleNode
    name: str
    partitions: int
    log_dirs: Sequence[LogDir]
    configs: Mapping[str, str]

    @classmethod
    def of(cls, engine: Engine, name: str, partitions: int, configs: Mapping[str, str]) -> NewTopic:
        """Raises TopicExists if the cluster has such a topic, ConfigError for a config that its
        broker cannot have, and what `find_sole_node` and `SoleNode.directory_id` raise."""
        node = find_sole_node(engine)
        node.refuse_known(name)
        for log_dir in engine.log_dirs.dirs:
            node.directory_id(log_dir)
        fitting = configs_for(name, configs, node.release, [])
        for config in configs.keys() - fitting.keys() - {"internal.segment.bytes"}:
            why = "cannot be registered: the broker may refuse to start with it"
            raise ConfigError(config, why)
        return cls(node, name, partitions, engine.log_dirs.dirs, fitting)

    def planned(self, topic_id: str) -> Iterator[MetadataRecordRow]:
        """Yields the records, as far as known: the partitions' log directories may be others."""
        log_dirs = {n: self.log_dirs[n % len(self.log_dirs)] for n in range(self.partitions)}
        records = self._records(topic_id, log_dirs)
        return map(MetadataRecordRow, self.node.term.placed([records]))

    def register(self, manager: LogManager, topic_id: str) -> None:
        """Appends the records, now that the partitions exist."""
        log_dirs = {
            number: manager.partition_dir(self.name, number).log_dir
            for number in range(self.partitions)
        }
        manager.registering.append([self._records(topic_id, log_dirs)])

    def _records(self, topic_id: str, log_dirs: Mapping[int, LogDir]) -> list[NewRecord]:
        epochs = dict.fromkeys(log_dirs, _FIRST_EPOCH)
        return self.node.records(self.name, topic_id, log_dirs, epochs, self.configs)
