"""The groups of log directories: what their internal topics say about each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from ..clock import time_text
from ..errors import CorruptError, StorageError, UnknownGroup
from ..io.retry import retry_if_gone
from ..log.read.view import View
from ..log_dirs.engine import Engine
from ..metadata.image import TopicMetadata
from .coordinator import (
    SIMPLE_GROUP,
    Assigned,
    GroupState,
    GroupType,
    MemberFacts,
    RecordedGroup,
    RecordedMember,
)
from .internal_topic import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    CoordinatorState,
    RecordErrors,
    ShareState,
    read_coordinator,
    read_share_state,
)
from .share_state import UNKNOWN


class _HasErrors(Protocol):
    @property
    def errors(self) -> RecordErrors: ...


StateT = TypeVar("StateT", bound=_HasErrors)


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """How far a group has read a partition.

    `offset`: None if nothing is stored yet; for a share group the start offset of its share
    partition. `leader_epoch`, `metadata`, `commit_timestamp` (ms since 1970): None if not stored.
    `topic_id`: "" if unknown. `finished`: the number of records after `offset` that a share group
    has finished, None if it is not known; 0 for other groups. `retained_since`: when its retention
    began, None if it does not expire; `expire_timestamp`: when it ends if an old client said so,
    else -1.
    """

    topic: str
    partition: int
    offset: int | None
    leader_epoch: int | None
    metadata: str | None
    commit_timestamp: int | None
    topic_id: str
    finished: int | None = 0
    retained_since: int | None = None
    expire_timestamp: int = -1

    def has_expired(self, now_ms: int, retention_ms: int) -> bool:
        """Returns whether the coordinator would remove it now (KIP-211)."""
        if self.retained_since is None:
            return False
        if self.expire_timestamp >= 0:
            return now_ms >= self.expire_timestamp
        return now_ms - self.retained_since >= retention_ms


@dataclass(frozen=True, slots=True)
class DescribedMember(MemberFacts):
    """A member with its `assignment` in order: partitions as in `orders-0`, tasks of a streams
    group as in `active 0_1`."""

    assignment: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "memberId": self.member_id,
            "instanceId": self.instance_id,
            "clientId": self.client_id,
            "host": self.host,
            "rack": self.rack,
            "assignor": self.assignor,
            "assignment": list(self.assignment),
        }


class DescribedGroup(NamedTuple):
    """A group: `protocol_type` as in `RecordedGroup`, `epoch` its epoch or generation,
    `coordinator` the partition of `__consumer_offsets` that it is recorded in."""

    name: str
    type: GroupType
    state: GroupState
    protocol_type: str
    epoch: int
    coordinator: int

    def as_json(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "type": str(self.type),
            "state": str(self.state),
            "protocolType": self.protocol_type,
            "epoch": self.epoch,
            "coordinator": f"{OFFSETS_TOPIC}-{self.coordinator}",
        }


class GroupsImage:
    """All groups at one moment, by name.

    `failed`: the errors of reading, each with the partition that could not be read, or that has
    damaged or unknown records; everything else is in the image.
    """

    def __init__(
        self,
        coordinators: Mapping[int, CoordinatorState],
        shares: Sequence[ShareState],
        failed: Sequence[tuple[str, Exception]],
        find_topic_names: Callable[[], Mapping[str, str]],
        partitions: int,
        then: str = "",
    ) -> None:
        """`coordinators`: by partition of `__consumer_offsets`, of which there are `partitions` in
        the cluster, as far as is known; `find_topic_names`: returns them by topic id; `then`: the
        time as text, "" for now."""
        self._then = then
        self._partitions = partitions
        self._coordinators = coordinators
        self._shares = shares
        self._find_topic_names = find_topic_names
        # The group whose offsets were returned last, and these.
        self._last: tuple[str | None, Sequence[PartitionOffset]] = None, ()
        self.failed = failed

    @cached_property
    def groups(self) -> Mapping[str, DescribedGroup]:
        """The groups in order of name. If the topic got more partitions, two of them may record a
        group; then the one counts that records it now."""
        found: dict[str, DescribedGroup] = {}
        for number, state in self._coordinators.items():
            for name, group in _existing(state):
                if name in found and number != coordinator_partition(name, self._partitions):
                    continue
                found[name] = DescribedGroup(
                    name, group.type, group.state, group.protocol_type, group.epoch, number
                )
        return {name: found[name] for name in sorted(found)}

    def group(self, name: str) -> DescribedGroup:
        """Returns a group. Raises UnknownGroup."""
        found = self.groups.get(name)
        if found is None:
            raise self.unknown_group(name)
        return found

    def unknown_group(self, name: str) -> UnknownGroup:
        """Returns the error for a group that does not exist."""
        number = coordinator_partition(name, self._partitions)
        is_here = number in self._coordinators or not self._partitions
        place = "" if is_here else f"{OFFSETS_TOPIC}-{number}"
        return UnknownGroup(name, tuple(self.groups), place, self._then)

    def offsets(self, group: DescribedGroup) -> Sequence[PartitionOffset]:
        """Returns what a group has read, by topic and partition."""
        # A mount asks for the same group with each lookup of one of its files.
        name, found = self._last
        if name != group.name:
            is_share = group.type is GroupType.SHARE
            found = self._share_offsets(group.name) if is_share else self._offsets(group)
            self._last = group.name, found
        return found

    def _offsets(self, group: DescribedGroup) -> list[PartitionOffset]:
        recorded = self._recorded(group)
        subscribed = recorded.subscribed_topics()
        found = []
        for each in self._coordinators[group.coordinator].offsets.of(group.name):
            is_kept = subscribed is None or each.topic in subscribed or each.is_pending
            since = None if is_kept else recorded.retained_since(each.commit_timestamp)
            found.append(
                PartitionOffset(
                    each.topic,
                    each.partition,
                    each.offset,
                    None if each.leader_epoch < 0 else each.leader_epoch,
                    each.metadata,
                    each.commit_timestamp,
                    each.topic_id,
                    retained_since=since,
                    expire_timestamp=each.expire_timestamp,
                )
            )
        return found

    def _recorded(self, group: DescribedGroup) -> RecordedGroup:
        return self._coordinators[group.coordinator].replay.groups.get(group.name, SIMPLE_GROUP)

    def _share_offsets(self, name: str) -> list[PartitionOffset]:
        found = []
        for state in self._shares:
            for (topic_id, number), at in state.replay.partitions.get(name, {}).items():
                is_known = at.start_offset != UNKNOWN
                finished = at.delivery_complete_count
                found.append(
                    PartitionOffset(
                        topic=self.topic_name(topic_id),
                        partition=number,
                        offset=at.start_offset if is_known else None,
                        leader_epoch=at.leader_epoch if at.leader_epoch >= 0 else None,
                        metadata=None,
                        commit_timestamp=at.timestamp if is_known else None,
                        topic_id=topic_id,
                        finished=finished if finished != UNKNOWN else None,
                    )
                )
        return sorted(found, key=lambda each: (each.topic, each.partition))

    def members(self, group: DescribedGroup) -> list[DescribedMember]:
        """Returns a group's members in the order in which they joined."""
        return [
            DescribedMember(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.host,
                each.rack,
                each.assignor,
                self._assignment(each),
            )
            for each in self._recorded(group).members()
        ]

    def _assignment(self, member: RecordedMember) -> tuple[str, ...]:
        found = sorted(
            (self._place(assigned), number)
            for assigned in member.assignment
            for number in assigned.partitions
        )
        return tuple(f"{place}{number}" for place, number in found)

    def _place(self, assigned: Assigned) -> str:
        """Returns what a partition's or a task's number follows."""
        if assigned.kind:
            return f"{assigned.kind} {assigned.topic}_"
        return f"{assigned.topic or self.topic_name(assigned.topic_id)}-"

    @cached_property
    def _topic_names(self) -> Mapping[str, str]:
        return self._find_topic_names()

    def topic_name(self, topic_id: str) -> str:
        """Returns the name of a topic, its id if that is not known."""
        found = self._topic_names.get(topic_id)
        if found is not None:
            return found
        names = (state.replay.topic_names for state in self._coordinators.values())
        return next((each[topic_id] for each in names if topic_id in each), topic_id)


def coordinator_partition(group: str, partitions: int) -> int:
    """Returns the partition of `__consumer_offsets`, of so many, that records a group
    (GroupCoordinator.partitionFor); -1 if there are none."""
    if not partitions:
        return -1
    units = group.encode("utf-16-be", "surrogatepass")
    number = 0
    for at in range(0, len(units), 2):
        number = (31 * number + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = number - ((number >> 31) << 32)
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _existing(state: CoordinatorState) -> Iterator[tuple[str, RecordedGroup]]:
    """Yields the groups of a partition: those with records, and those that committed after their
    last removal."""
    replay = state.replay
    yield from replay.groups.items()
    for name, last in state.offsets.last_records.items():
        if name not in replay.groups and last > replay.removed.get(name, -1):
            yield name, SIMPLE_GROUP


class GroupsReader:
    """Reads the groups of an engine. A partition is read again only when it has changed. Any thread
    may use it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._coordinators = _PartitionReader(engine, OFFSETS_TOPIC, read_coordinator)
        self._shares = _PartitionReader(engine, SHARE_STATE_TOPIC, read_share_state)
        self._lock = threading.Lock()  # guards what follows, and the readers
        self._image: GroupsImage | None = None
        self._topics: Mapping[str, TopicMetadata] = {}

    def image(self) -> GroupsImage:
        """Returns the groups as of now; the same object if nothing changed. Raises LogDirError or
        OSError if the directories cannot be listed."""
        with self._lock:
            has_changed = [self._coordinators.refresh(), self._shares.refresh()]
            topics = self._engine.metadata().topics
            if topics is not self._topics and (topics or self._topics):
                self._topics = topics
                has_changed.append(True)
            if self._image is None or any(has_changed):
                self._image = GroupsImage(
                    self._coordinators.states,
                    list(self._shares.states.values()),
                    [*self._coordinators.failed(), *self._shares.failed()],
                    partial(_topic_names, self._engine, topics),
                    self._partition_count(topics),
                    "" if self._engine.at_ms is None else time_text(self._engine.at_ms),
                )
            return self._image

    def _partition_count(self, topics: Mapping[str, TopicMetadata]) -> int:
        """Returns the number of partitions of `__consumer_offsets` in the cluster; if its metadata
        is not here, of those that are."""
        known = topics.get(OFFSETS_TOPIC)
        if known is not None:
            return len(known.partitions)
        return len(self._engine.topics().get(OFFSETS_TOPIC, ()))


def _topic_names(engine: Engine, known: Mapping[str, TopicMetadata]) -> Mapping[str, str]:
    """Returns the topics' names by id: those `known` from the cluster's metadata, or else those in
    the directories."""
    if known:
        return {topic.topic_id: name for name, topic in known.items()}
    return {engine.topic_id(name): name for name in engine.topics()}


class _PartitionReader(Generic[StateT]):
    """The states of a topic's partitions, each of the view last seen."""

    def __init__(self, engine: Engine, topic: str, read: Callable[[View], StateT]) -> None:
        self.states: Mapping[int, StateT] = {}
        self._engine = engine
        self._topic = topic
        self._read = read
        self._views: dict[int, View] = {}
        self._errors: dict[int, Exception] = {}

    def refresh(self) -> bool:
        """Reads the partitions that have changed. Returns whether any has."""
        states: dict[int, StateT] = {}
        errors: dict[int, Exception] = {}
        for number in self._numbers():
            try:
                states[number] = retry_if_gone(partial(self._state, number))
            except (StorageError, OSError) as error:
                errors[number] = error
        has_changed = (
            any(states[each] is not self.states.get(each) for each in states)
            or states.keys() != self.states.keys()
            or errors.keys() != self._errors.keys()
        )
        self.states, self._errors = states, errors
        return has_changed

    def _numbers(self) -> Sequence[int]:
        return self._engine.topics().get(self._topic, ())

    def _state(self, number: int) -> StateT:
        view = self._engine.log(self._topic, number).view()
        if self._views.get(number) is not view or number not in self.states:
            state = self._read(view)
            self._views[number] = view
            return state
        return self.states[number]

    def failed(self) -> Iterator[tuple[str, Exception]]:
        """Yields the partitions that could not be read and the damage of the others."""
        for number, error in self._errors.items():
            yield f"{self._topic}-{number}", error
        for number, state in self.states.items():
            where = f"{self._topic}-{number}"
            for found in state.errors.found:
                yield where, found
            if state.errors.more:
                yield where, CorruptError(f"{state.errors.more} more records cannot be read")
