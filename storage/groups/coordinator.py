"""Replays the records of a group coordinator that describe groups and members, like Kafka's
GroupMetadataManager. Committed offsets are in `offset_table.py`.

A broker that loads the records knows no more than they say: a classic group is Empty or Stable,
since its rebalances are not recorded, and members have the assignment that they last acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from ..format.messages.coordinator_records import CoordinatorRecord, opened_member
from ..format.messages.message import Message, MessageSchema

# The first of group.consumer.assignors, which a broker uses if no member asks for another one.
_DEFAULT_ASSIGNOR: Final = "uniform"
# The epoch of a modern group and of its target assignment before there are records of them.
_FIRST_EPOCH: Final = 1
# In place of the epoch of a removed target assignment, or of a validated topology.
_NO_EPOCH: Final = -1
_NO_TIMESTAMP: Final = -1
_TASKS: Final = ("activeTasks", "standbyTasks", "warmupTasks")


class GroupType(StrEnum):
    """Kafka's group types: CLASSIC is the protocol of JoinGroup, the others are KIP-848, KIP-932
    and KIP-1071."""

    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"


#: The state of a member that has reached its target assignment: STABLE of Kafka's MemberState, of
#: which streams groups have their own with other numbers.
_MEMBER_STABLE: Final = {GroupType.CONSUMER: 0, GroupType.STREAMS: 1}


class GroupState(StrEnum):
    """The states of a group that its records tell apart."""

    EMPTY = "Empty"
    STABLE = "Stable"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Partitions of a topic. `topic_id`: if the record has the id instead of the name; `topic` is
    then "". For a streams group, `topic` is the id of a subtopology, and `kind` the kind of
    tasks."""

    topic: str
    topic_id: str
    partitions: tuple[int, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A member of a group. `instance_id`: only of a static member; `rack`: None if not recorded;
    `assignor`: the protocol of a classic group, or the assignor of a consumer group; None if there
    is none."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    assignor: str | None


@dataclass(frozen=True, slots=True)
class RecordedMember(MemberFacts):
    """A member with what it is assigned, as recorded."""

    assignment: tuple[Assigned, ...]


class RecordedGroup(Protocol):
    """A group. `protocol_type`: "consumer", "share", "streams", or what a classic group's clients
    named, "" if it never had members. `epoch`: the generation of a classic group."""

    @property
    def type(self) -> GroupType: ...
    @property
    def protocol_type(self) -> str: ...
    @property
    def state(self) -> GroupState: ...
    @property
    def epoch(self) -> int: ...
    def members(self) -> Sequence[RecordedMember]:
        """Returns the members in the order in which they joined."""

    def subscribed_topics(self) -> Collection[str] | None:
        """Returns the topics whose offsets do not expire; None if no offset does."""

    def retained_since(self, committed: int) -> int:
        """Returns when the retention of an offset begins that was committed at that time, in ms
        since 1970."""


class ClassicGroup:
    """A group whose members use JoinGroup. One without members may only have offsets."""

    type: Final = GroupType.CLASSIC

    def __init__(self, message: Message, schemas: Mapping[str, MessageSchema]) -> None:
        """`message`: a GroupMetadataValue, `schemas`: those of the consumer protocol."""
        self._message = message
        self._schemas = schemas
        self.protocol_type: str = message["protocolType"]

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self._message["members"] else GroupState.EMPTY

    @property
    def epoch(self) -> int:
        return int(self._message["generation"])

    def members(self) -> Sequence[RecordedMember]:
        found, assignor = self._message["members"], self._message["protocol"]
        if self.protocol_type == "consumer":
            found = [opened_member(self._schemas, each) for each in found]
        return [_classic_member(each, assignor) for each in found]

    def subscribed_topics(self) -> Collection[str] | None:
        members = self._message["members"]
        if not members:
            return ()
        if self.protocol_type != "consumer" or self._message["protocol"] is None:
            return None
        subscriptions = [opened_member(self._schemas, each)["subscription"] for each in members]
        if not all(isinstance(each, dict) for each in subscriptions):
            return None
        return {topic for each in subscriptions for topic in each["topics"]}

    def retained_since(self, committed: int) -> int:
        emptied: int = self._message.get("currentStateTimestamp", _NO_TIMESTAMP)
        if self._message["members"] or not self.protocol_type or emptied == _NO_TIMESTAMP:
            return committed
        return emptied


#: A group that only has committed offsets, and no record of its own (a "simple" group).
SIMPLE_GROUP: Final = ClassicGroup(
    {"protocolType": "", "generation": 0, "protocol": None, "members": []}, {}
)


def _classic_member(message: Message, assignor: str | None) -> RecordedMember:
    assignment, subscription = message["assignment"], message["subscription"]
    # What is not of the consumer protocol is still bytes.
    rack = subscription.get("rackId") if isinstance(subscription, dict) else None
    topics = assignment["assignedPartitions"] if isinstance(assignment, dict) else ()
    return RecordedMember(
        member_id=message["memberId"],
        instance_id=message.get("groupInstanceId"),
        client_id=message["clientId"],
        host=message["clientHost"],
        rack=rack,
        assignor=assignor,
        assignment=tuple(Assigned(each["topic"], "", tuple(each["partitions"])) for each in topics),
    )


@dataclass(slots=True)
class _Member:
    """A member of a modern group: its metadata and its current assignment, None until there is a
    record."""

    metadata: Message | None = None
    current: Message | None = None

    def is_reconciled_to(self, epoch: int, stable: int) -> bool:
        current = self.current
        return (
            current is not None and current["state"] == stable and current["memberEpoch"] == epoch
        )


@dataclass(slots=True)
class ModernGroup:
    """A consumer, share or streams group."""

    type: GroupType
    epoch: int = _FIRST_EPOCH
    target_epoch: int = _FIRST_EPOCH
    topology: Message | None = None
    validated_topology_epoch: int = 0
    joined: dict[str, _Member] = field(default_factory=dict)
    # The topics that each regular expression of a consumer group matched.
    matched: dict[str, Sequence[str]] = field(default_factory=dict)

    @property
    def protocol_type(self) -> str:
        return self.type.lower()

    @property
    def state(self) -> GroupState:
        if not self.joined:
            return GroupState.EMPTY
        if self.type is GroupType.SHARE:
            return GroupState.STABLE
        if self.type is GroupType.STREAMS and not self._is_validated:
            return GroupState.NOT_READY
        if self.epoch > self.target_epoch:
            return GroupState.ASSIGNING
        stable = _MEMBER_STABLE[self.type]
        if all(each.is_reconciled_to(self.target_epoch, stable) for each in self.joined.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    @property
    def _is_validated(self) -> bool:
        topology = self.topology
        return topology is not None and topology["epoch"] == self.validated_topology_epoch

    def members(self) -> Sequence[RecordedMember]:
        assignor = self._assignor()
        return [self._member(name, each, assignor) for name, each in self.joined.items()]

    def subscribed_topics(self) -> Collection[str]:
        if self.type is GroupType.STREAMS:
            return self._source_topics() if self.joined else ()
        topics: set[str] = set()
        for each in self.joined.values():
            metadata = each.metadata or {}
            topics.update(metadata.get("subscribedTopicNames", ()))
            topics.update(self.matched.get(metadata.get("subscribedTopicRegex") or "", ()))
        return topics

    def _source_topics(self) -> Collection[str]:
        parts = (self.topology or {}).get("subtopologies", ())
        return {
            topic
            for part in parts
            for topic in (
                *part["sourceTopics"],
                *(each["name"] for each in part["repartitionSourceTopics"]),
            )
        }

    def retained_since(self, committed: int) -> int:
        return committed

    def _assignor(self) -> str | None:
        """Returns what most members of a consumer group ask for."""
        if self.type is not GroupType.CONSUMER:
            return None
        metadata = (each.metadata or {} for each in self.joined.values())
        asked = Counter(filter(None, (each.get("serverAssignor") for each in metadata)))
        return asked.most_common(1)[0][0] if asked else _DEFAULT_ASSIGNOR

    def _member(self, member_id: str, member: _Member, assignor: str | None) -> RecordedMember:
        metadata = member.metadata or {}
        current = member.current or {}
        of = _tasks if self.type is GroupType.STREAMS else _partitions
        return RecordedMember(
            member_id=member_id,
            instance_id=metadata.get("instanceId"),
            client_id=metadata.get("clientId", ""),
            host=metadata.get("clientHost", ""),
            rack=metadata.get("rackId"),
            assignor=assignor,
            assignment=of(current),
        )


def _partitions(current: Message) -> tuple[Assigned, ...]:
    return tuple(
        Assigned("", each["topicId"], tuple(each["partitions"]))
        for each in current.get("assignedPartitions", ())
    )


def _tasks(current: Message) -> tuple[Assigned, ...]:
    return tuple(
        Assigned(each["subtopologyId"], "", tuple(each["partitions"]), kind.removesuffix("Tasks"))
        for kind in _TASKS
        for each in current.get(kind, ())
    )


class GroupReplay:
    """The groups that the records replayed so far describe.

    `groups`: those with records of their own; `removed`: the offset of the last record that removed
    each group; `topic_names`: names by id, as far as records have them.
    """

    def __init__(self, schemas: Mapping[str, MessageSchema]) -> None:
        """`schemas`: those of the group coordinator by name."""
        self.groups: dict[str, RecordedGroup] = {}
        self.removed: dict[str, int] = {}
        self.topic_names: dict[str, str] = {}
        self._schemas = schemas

    def apply(self, record: CoordinatorRecord, offset: int) -> None:
        """Applies the record at `offset`. Committed offsets and what describes neither groups nor
        members are ignored."""
        if record.number == _CLASSIC_GROUP:
            self._classic(record.key["group"], record.value, offset)
        elif record.number in _MODERN:
            type_, apply = _MODERN[record.number]
            apply(self, type_, record.key, record.value, offset)

    def _classic(self, name: str, value: Message | None, offset: int) -> None:
        if value is None:
            self._remove(name, offset)
        else:
            self.groups[name] = ClassicGroup(value, self._schemas)

    def _remove(self, name: str, offset: int) -> None:
        self.groups.pop(name, None)
        self.removed[name] = offset

    def _modern(self, name: str, type_: GroupType, *, creates: bool) -> ModernGroup | None:
        """Returns the group; a new one if there is none of this type and `creates`, else None."""
        found = self.groups.get(name)
        if isinstance(found, ModernGroup) and found.type is type_:
            return found
        if not creates:
            return None
        self.groups[name] = made = ModernGroup(type_)
        return made

    def _group(self, type_: GroupType, key: Message, value: Message | None, offset: int) -> None:
        name = key["groupId"]
        group = self._modern(name, type_, creates=value is not None)
        if value is None:
            # A group that only has offsets becomes one of this type first.
            if group is not None or name not in self.groups:
                self._remove(name, offset)
            return
        assert group is not None
        group.epoch = value["epoch"]
        # A tagged field that has its default value is left out.
        group.validated_topology_epoch = value.get("validatedTopologyEpoch", _NO_EPOCH)

    def _member(self, type_: GroupType, key: Message, value: Message | None, _offset: int) -> None:
        group = self._modern(key["groupId"], type_, creates=value is not None)
        if group is not None and value is None:
            group.joined.pop(key["memberId"], None)
        elif group is not None:
            group.joined.setdefault(key["memberId"], _Member()).metadata = value

    def _current(self, type_: GroupType, key: Message, value: Message | None, _offset: int) -> None:
        group = self._modern(key["groupId"], type_, creates=value is not None)
        if group is None:
            return
        if value is not None:
            group.joined.setdefault(key["memberId"], _Member()).current = value
        elif key["memberId"] in group.joined:
            group.joined[key["memberId"]].current = None

    def _target(self, type_: GroupType, key: Message, value: Message | None, _offset: int) -> None:
        group = self._modern(key["groupId"], type_, creates=value is not None)
        if group is not None:
            group.target_epoch = _NO_EPOCH if value is None else value["assignmentEpoch"]

    def _topology(
        self, type_: GroupType, key: Message, value: Message | None, _offset: int
    ) -> None:
        group = self._modern(key["groupId"], type_, creates=value is not None)
        if group is not None:
            group.topology = value

    def _matched(self, type_: GroupType, key: Message, value: Message | None, _offset: int) -> None:
        group = self._modern(key["groupId"], type_, creates=value is not None)
        if group is not None and value is not None:
            group.matched[key["regularExpression"]] = value["topics"]
        elif group is not None:
            group.matched.pop(key["regularExpression"], None)

    def _topics(self, _type: GroupType, _key: Message, value: Message | None, _offset: int) -> None:
        for field_ in _TOPIC_LISTS:
            for topic in (value or {}).get(field_, ()):
                self.topic_names[topic["topicId"]] = topic["topicName"]


_TOPIC_LISTS: Final = ("topics", "initializingTopics", "initializedTopics", "deletingTopics")
_CLASSIC_GROUP: Final = 2
_Apply = Callable[[GroupReplay, GroupType, Message, Message | None, int], None]
# By type number.
_MODERN: Final[dict[int, tuple[GroupType, _Apply]]] = {
    3: (GroupType.CONSUMER, GroupReplay._group),
    4: (GroupType.CONSUMER, GroupReplay._topics),
    5: (GroupType.CONSUMER, GroupReplay._member),
    6: (GroupType.CONSUMER, GroupReplay._target),
    8: (GroupType.CONSUMER, GroupReplay._current),
    10: (GroupType.SHARE, GroupReplay._member),
    11: (GroupType.SHARE, GroupReplay._group),
    12: (GroupType.SHARE, GroupReplay._target),
    14: (GroupType.SHARE, GroupReplay._current),
    15: (GroupType.SHARE, GroupReplay._topics),
    16: (GroupType.CONSUMER, GroupReplay._matched),
    17: (GroupType.STREAMS, GroupReplay._group),
    19: (GroupType.STREAMS, GroupReplay._member),
    20: (GroupType.STREAMS, GroupReplay._target),
    22: (GroupType.STREAMS, GroupReplay._current),
    23: (GroupType.STREAMS, GroupReplay._topology),
}
