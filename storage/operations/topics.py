"""Creates, deletes and configures topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..config.kafka import Configs, checked_topic_config, run_configs
from ..config.topic_file import changed_configs
from ..errors import ConfigsNotRemoved, StorageError
from ..format.primitives import random_uuid_text
from ..log_dirs.engine import Engine
from ..topics.remote_part import refuse_deletion, refuse_disabling, remote_remains
from ..topics.topics import changeable_partitions, refuse_in_engine, refuse_new_topic
from .describe_topics import TopicConfigs
from .register_new import MetadataRecordRow, NewTopic
from .request import SILENT, PartitionFailed, ProgressListener, writable


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Creates a topic with `partitions` partitions and configs of its own. `topic_id`: "" to have
    one generated; `unregistered`: also if the KRaft cluster of the directories does not know it;
    `register`: makes it known to that cluster, whose only voter is the node of the directories.
    `dry_run`: creates nothing, and shows the records that would be appended to its metadata."""

    topic: str = ""
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    unregistered: bool = False
    register: bool = False
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run

    def check_new(self, run: Mapping[str, str]) -> None:
        """Raises a StorageError for a topic that no directory can have; `run`: the configs of this
        run."""
        refuse_new_topic(self.topic, self.partitions, self.topic_id)
        checked_topic_config(Configs(run=run_configs(run.items()), topic_file=self.configs))

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises a StorageError for a topic that these directories cannot have."""
        numbers = range(self.partitions)
        unregistered = self.unregistered or self.register
        refuse_in_engine(engine, self.topic, numbers, self.topic_id, unregistered=unregistered)
        engine.check_topic_configs(self.topic, self.configs)
        if self.register:
            NewTopic.of(engine, self.topic, self.partitions, self.configs)
        return ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    topic: str
    topic_id: str
    partitions: int
    is_registered: bool = False

    def as_json(self) -> dict[str, Any]:
        row = {"topic": self.topic, "topicId": self.topic_id, "partitions": self.partitions}
        return {**row, "registered": True} if self.is_registered else row

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> CreatedTopic:
        where = (row["topic"], row["topicId"], row["partitions"])
        return cls(*where, row.get("registered", False))


def create_topic(
    engine: Engine, request: CreateTopic, progress: ProgressListener = SILENT
) -> Iterator[CreatedTopic | MetadataRecordRow]:
    """Raises what `LogManager.create_topic` raises; then nothing remains of the topic. With
    `register`, also what `find_sole_node` raises."""
    name, configs = request.topic, request.configs
    new = NewTopic.of(engine, name, request.partitions, configs) if request.register else None
    if request.dry_run:
        if new is not None:
            yield from new.planned(request.topic_id or random_uuid_text())
        return
    manager = writable(engine)
    topic_id = manager.create_topic(
        name,
        request.partitions,
        configs,
        request.topic_id,
        unregistered=request.unregistered,
        register=None if new is None else partial(new.register, manager),
    )
    if new is not None:
        manager.registering.forget_configs(name)
    yield CreatedTopic(name, topic_id, request.partitions, new is not None)


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Deletes topics with all their records. `keep_remote`: also those of which remote storage has
    segments, which stay there."""

    topics: tuple[str, ...]
    keep_remote: bool = False

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Returns the failures if none of the topics can be deleted."""
        refused = []
        for topic in dict.fromkeys(self.topics):
            try:
                changeable_partitions(engine, topic)
                if not self.keep_remote:
                    refuse_deletion(engine, topic)
            except StorageError as error:
                refused.append(PartitionFailed.of(error))
            else:
                return ()
        return refused


@dataclass(frozen=True, slots=True)
class RemovedTopic:
    """A topic that was deleted. `warning`: what of it could not be removed, or stays in remote
    storage, else ""."""

    topic: str
    warning: str = ""

    def as_json(self) -> dict[str, Any]:
        warning = {"warning": self.warning} if self.warning else {}
        return {"topic": self.topic, "deleted": True, **warning}

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> RemovedTopic:
        return cls(row["topic"], row.get("warning", ""))


def delete_topics(
    engine: Engine, request: DeleteTopics, progress: ProgressListener = SILENT
) -> Iterator[RemovedTopic | PartitionFailed]:
    """Yields each topic after it was deleted."""
    for topic in dict.fromkeys(request.topics):
        try:
            remains = remote_remains(engine, topic) if request.keep_remote else ""
            writable(engine).delete_topic(topic, keep_remote=request.keep_remote)
        except ConfigsNotRemoved as left:
            yield RemovedTopic(topic, str(left))
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error)
        else:
            yield RemovedTopic(topic, f"{topic}: kept: {remains}" if remains else "")


@dataclass(frozen=True, slots=True)
class ConfigureTopic:
    """Changes configs of a topic, where None removes one."""

    topic: str = ""
    changes: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic, InvalidTopic or ConfigError."""
        changeable_partitions(engine, self.topic)
        changed = changed_configs(engine.log_dirs.stored_configs(self.topic), self.changes)
        resolved = engine.check_topic_configs(self.topic, changed, carried_over=True)
        refuse_disabling(engine, self.topic, resolved.config.remote_storage_enable)
        return ()


def configure_topic(
    engine: Engine, request: ConfigureTopic, progress: ProgressListener = SILENT
) -> Iterator[TopicConfigs]:
    """Yields the topic's configs after the changes. Raises UnknownTopic or ConfigError, and then
    changes nothing."""
    resolved = writable(engine).set_topic_config(request.topic, request.changes)
    yield TopicConfigs.of(request.topic, resolved)
