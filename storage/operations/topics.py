"""Creates, deletes, configures and lists topics."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config.kafka import Configs, checked_topic_config, run_configs
from ..config.topic_file import changed_configs
from ..errors import ConfigsNotRemoved, StorageError, UnknownPartition, UnknownTopic
from ..log_dirs.engine import Engine
from ..topics.topics import changeable_partitions, refuse_in_engine, refuse_new_topic
from .request import SILENT, PartitionFailed, ProgressListener, writable


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Creates a topic with `partitions` partitions and configs of its own. `topic_id`: "" to have
    one generated; `unregistered`: also if the KRaft cluster of the directories does not know it."""

    topic: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    topic_id: str = ""
    unregistered: bool = False

    @property
    def writes(self) -> bool:
        return True

    def check_new(self, run: Mapping[str, str]) -> None:
        """Raises a StorageError for a topic that no directory can have; `run`: the configs of this
        run."""
        refuse_new_topic(self.topic, self.partitions, self.topic_id)
        checked_topic_config(Configs(run=run_configs(run.items()), topic_file=self.configs))

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises a StorageError for a topic that these directories cannot have."""
        numbers = range(self.partitions)
        refuse_in_engine(engine, self.topic, numbers, self.topic_id, unregistered=self.unregistered)
        engine.check_topic_configs(self.topic, self.configs)
        return ()


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    topic: str
    topic_id: str
    partitions: int

    def as_json(self) -> dict[str, Any]:
        return {"topic": self.topic, "topicId": self.topic_id, "partitions": self.partitions}

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> CreatedTopic:
        return cls(row["topic"], row["topicId"], row["partitions"])


def create_topic(
    engine: Engine, request: CreateTopic, progress: ProgressListener = SILENT
) -> Iterator[CreatedTopic]:
    """Raises what `LogManager.create_topic` raises; then nothing remains of the topic."""
    topic_id = writable(engine).create_topic(
        request.topic,
        request.partitions,
        request.configs,
        request.topic_id,
        unregistered=request.unregistered,
    )
    yield CreatedTopic(request.topic, topic_id, request.partitions)


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Deletes topics with all their records."""

    topics: tuple[str, ...]

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Returns the failures if none of the topics can be deleted."""
        refused = []
        for topic in dict.fromkeys(self.topics):
            try:
                changeable_partitions(engine, topic)
            except StorageError as error:
                refused.append(PartitionFailed.of(error))
            else:
                return ()
        return refused


@dataclass(frozen=True, slots=True)
class RemovedTopic:
    """A topic that was deleted. `warning`: what of it could not be removed, else ""."""

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
            writable(engine).delete_topic(topic)
        except ConfigsNotRemoved as left:
            yield RemovedTopic(topic, str(left))
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error)
        else:
            yield RemovedTopic(topic)


@dataclass(frozen=True, slots=True)
class ConfigureTopic:
    """Changes configs of a topic, where None removes one. Without `changes`, only shows them."""

    topic: str
    changes: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def writes(self) -> bool:
        return bool(self.changes)

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic, InvalidTopic or ConfigError."""
        if self.changes:
            changeable_partitions(engine, self.topic)
            changed = changed_configs(engine.log_dirs.stored_configs(self.topic), self.changes)
            engine.check_topic_configs(self.topic, changed, carried_over=True)
        return ()


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """The configs of a topic: `value` and `source` by name, and what is wrong with them."""

    topic: str
    configs: Mapping[str, Mapping[str, str]]
    problems: Sequence[str]

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "settings": dict(self.configs),
            "problems": list(self.problems),
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> TopicConfigs:
        return cls(row["topic"], row["settings"], row["problems"])


def configure_topic(
    engine: Engine, request: ConfigureTopic, progress: ProgressListener = SILENT
) -> Iterator[TopicConfigs]:
    """Yields the topic's configs after the changes. Raises UnknownTopic or ConfigError, and then
    changes nothing."""
    if request.changes:
        resolved = writable(engine).set_topic_config(request.topic, request.changes)
    else:
        resolved = engine.topic_config(request.topic)
    yield TopicConfigs.of_json({"topic": request.topic, **resolved.as_json()})


@dataclass(frozen=True, slots=True)
class ListTopics:
    """Lists topics, without names all of them, followed by stray partitions by directory name."""

    topics: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic."""
        for name in self.topics:
            engine.numbers_of(name)
        return ()


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """`size` is the total size of the .log files in bytes."""

    partition: int
    start_offset: int
    last_stable_offset: int
    end_offset: int
    segments: int
    size: int

    @classmethod
    def of(cls, engine: Engine, topic: str, number: int) -> PartitionSummary:
        view = engine.log(topic, number).view()
        return cls(
            number,
            view.start_offset,
            view.last_stable_offset,
            view.end_offset,
            len(view.segments),
            view.size,
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "startOffset": self.start_offset,
            "lastStableOffset": self.last_stable_offset,
            "endOffset": self.end_offset,
            "segments": self.segments,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic with its readable partitions. `topic_id`: "" if it has none. A stray partition has
    the name of its directory as topic."""

    topic: str
    topic_id: str
    is_stray: bool
    partitions: tuple[PartitionSummary, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "topicId": self.topic_id or None,
            "isStray": self.is_stray,
            "partitions": [each.as_json() for each in self.partitions],
        }


def list_topics(
    engine: Engine, request: ListTopics, progress: ProgressListener = SILENT
) -> Iterator[TopicSummary | PartitionFailed]:
    """Yields each topic, after the partitions of it that cannot be read."""
    topics = engine.topics()
    strays = {name: [number] for name, number in sorted(engine.log_dirs.strays())}
    there = {**strays, **topics}
    names = [name for name in [*topics, *strays] if not request.topics or name in request.topics]
    total = sum(len(there[topic]) for topic in names)
    count = itertools.count()
    for topic in dict.fromkeys(names):
        found = []
        for number in there[topic]:
            progress.partition("reading partitions", next(count), total)
            try:
                found.append(PartitionSummary.of(engine, topic, number))
            except (UnknownTopic, UnknownPartition) as error:  # deleted in the meantime
                if request.topics:
                    yield PartitionFailed.of(error, f"{topic}-{number}")
            except (StorageError, OSError) as error:
                yield PartitionFailed.of(error, f"{topic}-{number}")
        is_stray = topic not in topics
        yield TopicSummary(topic, _topic_id(engine, topic), is_stray, tuple(found))


def _topic_id(engine: Engine, topic: str) -> str:
    """Returns the topic's id, "" if it has none or was deleted in the meantime."""
    try:
        return engine.topic_id(topic)
    except UnknownTopic:
        return ""
