"""Lists groups: how far each has read, how far behind it is, and its members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final

from ..config.kafka import broker_config
from ..errors import SegmentGone, StorageError, UnknownPartition, UnknownTopic
from ..format.files.names import TopicPartition
from ..format.layout import NO_TIMESTAMP
from ..format.records.columns import Columns
from ..groups.groups import (
    DescribedGroup,
    DescribedMember,
    GroupsImage,
    GroupsReader,
    PartitionOffset,
)
from ..groups.internal_topic import OFFSETS_TOPIC
from ..io.retry import retry_if_gone
from ..log.read.transactions import Isolation
from ..log.read.view import View
from ..log_dirs.engine import Engine
from .request import SILENT, PartitionFailed, ProgressListener

_RETENTION_CONFIG: Final = "offsets.retention.minutes"


class OffsetProblem(StrEnum):
    """Why a group cannot continue at its committed offset."""

    BELOW_LOG_START = "below the log start offset"
    BEYOND_LOG_END = "beyond the log end offset"
    TOPIC_DELETED = "the topic was deleted"
    TOPIC_RECREATED = "the topic was recreated with another id"
    EXPIRED = "older than offsets.retention.minutes"
    NOT_HERE = "the partition is not in these directories"


@dataclass(frozen=True, slots=True)
class ListGroups:
    """Lists the offsets of these groups, or of all if none is named."""

    groups: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        return ()


@dataclass(frozen=True, slots=True)
class ListMembers(ListGroups):
    """Lists the members of these groups, or of all if none is named."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has read a partition.

    A group without offsets has one row whose other fields are None. `lag` is the log end offset
    minus the committed one, as kafka-consumer-groups shows it; for a share group also minus what it
    has finished after its start offset. `lag_ms` is the age of the oldest record at or after the
    committed offset, None if there is none, or if it has no timestamp; control records are left
    out. Offsets of the log are None if the partition is not in the directories. The rest is as in
    `PartitionOffset`.
    """

    group: DescribedGroup
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    leader_epoch: int | None = None
    metadata: str | None = None
    commit_timestamp: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    lag: int | None = None
    lag_ms: int | None = None
    problem: OffsetProblem | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "type": str(self.group.type),
            "state": str(self.group.state),
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "leaderEpoch": self.leader_epoch,
            "metadata": self.metadata,
            "commitTimestamp": self.commit_timestamp,
            "logStartOffset": self.log_start_offset,
            "logEndOffset": self.log_end_offset,
            "lag": self.lag,
            "lagMs": self.lag_ms,
            "problem": None if self.problem is None else str(self.problem),
        }


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

    group: DescribedGroup
    member: DescribedMember

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "type": str(self.group.type),
            "state": str(self.group.state),
            **self.member.as_json(),
        }


def list_groups(
    engine: Engine, request: ListGroups, progress: ProgressListener = SILENT
) -> Iterator[GroupOffset | PartitionFailed]:
    """Yields the offsets of each group, after what is damaged in the topics that record them.
    Raises UnknownGroup."""
    image = GroupsReader(engine).image()
    groups = _requested(image, request)
    yield from _failures(image)
    lags = GroupLags(engine)
    for number, group in enumerate(groups):
        progress.partition("reading groups", number, len(groups))
        yield from lags.rows(group, image.offsets(group))


def list_members(
    engine: Engine, request: ListMembers, progress: ProgressListener = SILENT
) -> Iterator[GroupMember | PartitionFailed]:
    """Yields the members of each group, after what is damaged in the topics that record them.
    Raises UnknownGroup."""
    image = GroupsReader(engine).image()
    groups = _requested(image, request)
    yield from _failures(image)
    for group in groups:
        yield from (GroupMember(group, member) for member in image.members(group))


def missing_coordinators(engine: Engine) -> list[int]:
    """Returns the partitions of `__consumer_offsets` that the cluster has, but that are not in the
    directories: what they record of groups is not shown."""
    known = engine.metadata().topics.get(OFFSETS_TOPIC)
    here = engine.topics().get(OFFSETS_TOPIC, ())
    return [] if known is None else sorted(known.partitions.keys() - set(here))


def _requested(image: GroupsImage, request: ListGroups) -> list[DescribedGroup]:
    names: Iterable[str] = request.groups or image.groups
    return [image.group(name) for name in dict.fromkeys(names)]


def _failures(image: GroupsImage) -> Iterator[PartitionFailed]:
    return (PartitionFailed.of(error, where) for where, error in image.failed)


class GroupLags:
    """Compares committed offsets with the logs of an engine, as they are now. The time is that of
    the engine's clock when the object was made."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._now_ms = engine.clock.now_ms()
        self._retention_ms = _retention_ms(engine)
        self._topics = engine.metadata().topics
        self._views: dict[TopicPartition, View | None] = {}
        self._missing: set[TopicPartition] = set()
        self._topic_ids: dict[str, str] = {}
        self._reported: set[TopicPartition] = set()
        self._failed: list[PartitionFailed] = []

    def rows(
        self, group: DescribedGroup, offsets: Sequence[PartitionOffset]
    ) -> Iterator[GroupOffset | PartitionFailed]:
        """Yields a group's rows, and then the partitions that could not be read, each once."""
        if not offsets:
            yield GroupOffset(group)
        for offset in offsets:
            yield retry_if_gone(partial(self._row, group, offset))
        yield from self._failed
        self._failed.clear()

    def _row(self, group: DescribedGroup, at: PartitionOffset) -> GroupOffset:
        """Returns one row. Raises SegmentGone."""
        key = (at.topic, at.partition)
        view = self._view(key)
        found = GroupOffset(
            group=group,
            topic=at.topic,
            partition=at.partition,
            offset=at.offset,
            leader_epoch=at.leader_epoch,
            metadata=at.metadata,
            commit_timestamp=at.commit_timestamp,
            problem=self._problem(at, view),
        )
        if view is None:
            return found
        lag = lag_ms = None
        if at.offset is not None:
            lag_ms = self._age(key, view, at.offset)
            if at.finished is not None:
                lag = view.end_offset - at.offset - at.finished
        return replace(
            found,
            log_start_offset=view.start_offset,
            log_end_offset=view.end_offset,
            lag=lag,
            lag_ms=lag_ms,
        )

    def _view(self, key: TopicPartition) -> View | None:
        """Returns a partition's view, None if it is not here or cannot be read."""
        if key not in self._views:
            self._views[key] = None
            try:
                self._views[key] = self._engine.log(*key).view()
            except (UnknownTopic, UnknownPartition):
                self._missing.add(key)
            except (StorageError, OSError) as error:
                self._report(key, error)
        return self._views[key]

    def _report(self, key: TopicPartition, error: Exception) -> None:
        if key not in self._reported:
            self._reported.add(key)
            self._failed.append(PartitionFailed.of(error, "{}-{}".format(*key)))

    def _problem(self, at: PartitionOffset, view: View | None) -> OffsetProblem | None:
        """Returns the first problem, in the order of how much is gone."""
        if self._topics and at.topic not in self._topics:
            return OffsetProblem.TOPIC_DELETED
        topic_id = self._topic_id(at.topic)
        if at.topic_id and topic_id and at.topic_id != topic_id:
            return OffsetProblem.TOPIC_RECREATED
        if at.offset is not None and view is not None:
            if at.offset < view.start_offset:
                return OffsetProblem.BELOW_LOG_START
            if at.offset > view.end_offset:
                return OffsetProblem.BEYOND_LOG_END
        if self._retention_ms is not None and at.has_expired(self._now_ms, self._retention_ms):
            return OffsetProblem.EXPIRED
        return OffsetProblem.NOT_HERE if (at.topic, at.partition) in self._missing else None

    def _topic_id(self, topic: str) -> str:
        """Returns a topic's id now, "" if it is not known."""
        if topic not in self._topic_ids:
            known = self._topics.get(topic)
            if known is not None:
                self._topic_ids[topic] = known.topic_id
            else:
                try:
                    self._topic_ids[topic] = self._engine.topic_id(topic)
                except UnknownTopic:
                    self._topic_ids[topic] = ""
        return self._topic_ids[topic]

    def _age(self, key: TopicPartition, view: View, offset: int) -> int | None:
        """Returns the age in ms of the first record from `offset` on; None if there is none, or if
        it has no timestamp."""
        offset = max(offset, view.start_offset)
        if offset >= view.end_offset:
            return None
        try:
            timestamp = _first_timestamp(view, offset)
        except SegmentGone:
            del self._views[key]  # the next attempt needs a new one
            raise
        except OSError as error:
            self._report(key, error)
            return None
        return None if timestamp == NO_TIMESTAMP else self._now_ms - timestamp


def _retention_ms(engine: Engine) -> int | None:
    """Returns how long the coordinator retains offsets. None if this run does not say so: a
    broker's own configs are not in the log directories."""
    if _RETENTION_CONFIG not in engine.configs:
        return None
    return broker_config(engine.configs).offsets_retention_minutes * 60_000


def _first_timestamp(view: View, offset: int) -> int:
    """Returns the timestamp of the first record from `offset` on, in ms; NO_TIMESTAMP if there is
    none, or if it has none. Skips damage."""
    level = Isolation.READ_UNCOMMITTED
    found = view.value_at(offset, level)
    if found is not None:
        return found[0]
    for part in view.scan(offset, isolation=level):
        if isinstance(part, Columns):
            return int(part.timestamps[0])
    return NO_TIMESTAMP
