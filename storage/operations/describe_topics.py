"""Lists topics with their partitions, and describes the configs of a topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..config.kafka import Resolved
from ..errors import StorageError, UnknownPartition, UnknownTopic
from ..log_dirs.engine import Engine
from .remote import RemotePart, remote_part
from .request import SILENT, PartitionFailed, ProgressListener, damage


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    """Describes the configs of a topic."""

    topic: str

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic."""
        engine.numbers_of(self.topic)
        return ()


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """The configs of a topic: `value` and `source` by name, and what is wrong with them."""

    topic: str
    configs: Mapping[str, Mapping[str, str]]
    problems: Sequence[str]

    @classmethod
    def of(cls, topic: str, resolved: Resolved) -> TopicConfigs:
        return cls.of_json({"topic": topic, **resolved.as_json()})

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "settings": dict(self.configs),
            "problems": list(self.problems),
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> TopicConfigs:
        return cls(row["topic"], row["settings"], row["problems"])


def describe_configs(
    engine: Engine, request: DescribeConfigs, progress: ProgressListener = SILENT
) -> Iterator[TopicConfigs]:
    """Yields the topic's configs. Raises UnknownTopic, or ConfigError if this run's configs
    contradict each other."""
    yield TopicConfigs.of(request.topic, engine.topic_config(request.topic))


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
    """`size` is the total size of the .log files in bytes, of which `remote` may have some."""

    partition: int
    start_offset: int
    last_stable_offset: int
    end_offset: int
    segments: int
    size: int
    remote: RemotePart

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
            remote_part(engine, (topic, number), view),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "startOffset": self.start_offset,
            "lastStableOffset": self.last_stable_offset,
            "endOffset": self.end_offset,
            "segments": self.segments,
            "size": self.size,
            "remote": self.remote.as_json(),
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
    """Yields each topic, after its partitions that cannot be read, and their known damage."""
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
                yield from damage(engine, (topic, number))
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
