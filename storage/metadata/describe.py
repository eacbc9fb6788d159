"""Describes single records of the metadata log, by the state of the cluster before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..format.layout import ControlType
from ..format.messages.message import Message
from ..format.messages.metadata import RecordType, ResourceType
from ..wording import ranges
from .image import NO_LEADER
from .reading import MetadataEntry, QuorumRecord
from .replay import (
    MetadataReplay,
    acl_of,
    endpoints_of,
    mechanism_name,
    quota_entity,
    token_of,
)
from .words import (
    acl_json,
    acl_text,
    endpoint_text,
    entity_text,
    number_json,
    number_text,
    resource_text,
    resource_word,
    shown_configs,
)

_ZK_STATES: Final = ("NONE", "PRE_MIGRATION", "MIGRATION", "POST_MIGRATION")


@dataclass(slots=True)
class Draft:
    """A change while further records of its unit may add to it. `finish` makes its text of its
    details."""

    entry: MetadataEntry
    kind: str
    details: dict[str, Any]
    finish: Callable[[dict[str, Any]], str]
    last_offset: int


class UnitReader:
    """Makes the drafts of one unit. Each method describes a record by the state before it."""

    def __init__(self, replay: MetadataReplay, new_topics: Mapping[str, str]) -> None:
        """`new_topics`: names of the topics that the unit creates, by id."""
        self.replay = replay
        self.new_topics = new_topics
        self.new_names = {name: topic_id for topic_id, name in new_topics.items()}
        self.drafts: dict[tuple[Any, ...], Draft] = {}

    def draft(
        self,
        entry: MetadataEntry,
        kind: str,
        key: tuple[Any, ...],
        details: dict[str, Any],
        finish: Callable[[dict[str, Any]], str],
    ) -> dict[str, Any]:
        """Returns the details of the draft with this kind and key, which are new at first."""
        known = self.drafts.setdefault(
            (kind, *key), Draft(entry, kind, details, finish, entry.offset)
        )
        known.last_offset = entry.offset
        return known.details

    def read(self, entry: MetadataEntry) -> None:
        record = entry.record
        if isinstance(record, QuorumRecord):
            if (describe_control := _CONTROLS.get(record.number)) is not None:
                describe_control(self, entry, record.message)
            return
        if record.data is None:
            details = {"type": record.number}
            self.draft(entry, "unknownRecord", (entry.offset,), details, lambda _: record.unknown)
        elif (describe := _RECORDS.get(record.number)) is not None:
            describe(self, entry, record.data)

    def simple(self, entry: MetadataEntry, kind: str, text: str, **details: Any) -> None:
        """Adds a draft of one record."""
        self.draft(entry, kind, (entry.offset,), details, lambda _: text)

    def topic(self, topic_id: str) -> str | None:
        return self.replay.topic_name(topic_id) or None

    # -- topics ------------------------------------------------------------------------------------

    def created(self, entry: MetadataEntry, topic_id: str, name: str) -> dict[str, Any]:
        details = {"topic": name, "topicId": topic_id, "partitions": [], "configs": {}}
        return self.draft(entry, "topicCreated", (topic_id,), details, _created_text)

    def add_topic(self, entry: MetadataEntry, data: Message) -> None:
        self.created(entry, data["topicId"], data["name"])

    def add_partition(self, entry: MetadataEntry, data: Message) -> None:
        topic_id, number = data["topicId"], data["partitionId"]
        if topic_id in self.new_topics:
            details = self.created(entry, topic_id, self.new_topics[topic_id])
        else:
            details = {"topic": self.topic(topic_id), "topicId": topic_id, "partitions": []}
            details = self.draft(entry, "partitionsAdded", (topic_id,), details, _added_text)
        details["partitions"].append(number)

    def remove_topic(self, entry: MetadataEntry, data: Message) -> None:
        topic_id = data["topicId"]
        name, count = self.topic(topic_id), len(list(self.replay.partitions(topic_id)))
        text = f"topic {_topic_text(name, topic_id)} deleted, with {_counted(count)}"
        self.simple(entry, "topicDeleted", text, topic=name, topicId=topic_id, partitions=count)

    def change_partition(self, entry: MetadataEntry, data: Message) -> None:
        topic_id, number = data["topicId"], data["partitionId"]
        name, old = self.topic(topic_id), self.replay.partition(topic_id, number)
        changed: dict[str, list[Any]] = {}
        for field, attribute in _PARTITION_CHANGES.items():
            if data.get(field) is not None:
                before = None if old is None else getattr(old, attribute)
                before = list(before) if isinstance(before, tuple) else before
                if before != data[field]:
                    changed[field] = [before, data[field]]
        if not changed:
            return
        details = {"topic": name, "topicId": topic_id, "partitions": [], "changed": changed}
        key = (topic_id, repr(changed))
        found = self.draft(entry, "partitionsChanged", key, details, _changed_text)
        found["partitions"].append(number)

    def clear_elr(self, entry: MetadataEntry, data: Message) -> None:
        name = data["topicName"]
        if not self.replay.has_elr(name):
            return
        of = f"of topic {name}" if name else "of all topics"
        self.simple(entry, "elrCleared", f"eligible leader replicas {of} cleared", topic=name)

    def configure(self, entry: MetadataEntry, data: Message) -> None:
        kind, resource, name = data["resourceType"], data["resourceName"], data["name"]
        value = data["value"]
        if value is not None:
            value = shown_configs({name: value})[name]
        topic_id = self.new_names.get(resource) if kind == ResourceType.TOPIC else None
        if topic_id is not None and value is not None:
            self.created(entry, topic_id, resource)["configs"][name] = value
            return
        details: dict[str, Any] = {
            "resource": resource_text(kind, resource),
            "resourceType": resource_word(kind),
            "resourceName": resource or None,
            "set": {},
            "removed": [],
        }
        details = self.draft(entry, "configsChanged", (kind, resource), details, _configs_text)
        if value is None:
            details["removed"].append(name)
        else:
            details["set"][name] = value

    # -- nodes -------------------------------------------------------------------------------------

    def register_broker(self, entry: MetadataEntry, data: Message) -> None:
        broker, again = data["brokerId"], self.replay.broker(data["brokerId"]) is not None
        endpoints = list(map(endpoint_text, endpoints_of(data["endPoints"])))
        text = f"broker {broker} registered{' again' if again else ''}, at {', '.join(endpoints)}"
        if data["rack"] is not None:
            text += f", rack {data['rack']}"
        self.simple(
            entry,
            "brokerRegistered",
            text + (", fenced" if data["fenced"] else ""),
            broker=broker,
            brokerEpoch=data["brokerEpoch"],
            rack=data["rack"],
            fenced=data["fenced"],
            endpoints=endpoints,
        )

    def unregister_broker(self, entry: MetadataEntry, data: Message) -> None:
        broker = data["brokerId"]
        self.simple(entry, "brokerUnregistered", f"broker {broker} unregistered", broker=broker)

    def fence(self, entry: MetadataEntry, data: Message) -> None:
        self.simple(entry, "brokerFenced", f"broker {data['id']} fenced", broker=data["id"])

    def unfence(self, entry: MetadataEntry, data: Message) -> None:
        self.simple(entry, "brokerUnfenced", f"broker {data['id']} unfenced", broker=data["id"])

    def change_broker(self, entry: MetadataEntry, data: Message) -> None:
        broker = data["brokerId"]
        for (field, value), (kind, text) in _BROKER_CHANGES.items():
            if data.get(field, 0) == value:
                self.simple(entry, kind, f"broker {broker} {text}", broker=broker)
        for field, (kind, what) in _DIRECTORY_CHANGES.items():
            if (
                data.get(field) is not None
                and data[field] != _directories(self.replay, broker)[field]
            ):
                text = f"broker {broker} has {what}: {', '.join(data[field]) or 'none'}"
                self.simple(entry, kind, text, broker=broker, directories=data[field])

    def register_controller(self, entry: MetadataEntry, data: Message) -> None:
        controller = data["controllerId"]
        endpoints = list(map(endpoint_text, endpoints_of(data["endPoints"])))
        text = f"controller {controller} registered, at {', '.join(endpoints)}"
        self.simple(entry, "controllerRegistered", text, controller=controller, endpoints=endpoints)

    def set_feature(self, entry: MetadataEntry, data: Message) -> None:
        name, level, before = data["name"], data["featureLevel"], self.replay.feature(data["name"])
        text = f"feature {name} set to level {level}" + (f", before {before}" if before else "")
        self.simple(entry, "featureSet", text, feature=name, level=level, before=before)

    def allocate_producer_ids(self, entry: MetadataEntry, data: Message) -> None:
        broker, end = data["brokerId"], data["nextProducerId"]
        text = f"producer ids up to {end - 1} allocated to broker {broker}"
        self.simple(entry, "producerIdsAllocated", text, broker=broker, nextProducerId=end)

    def migrate(self, entry: MetadataEntry, data: Message) -> None:
        number = data["zkMigrationState"]
        state = _ZK_STATES[number] if 0 <= number < len(_ZK_STATES) else str(number)
        self.simple(entry, "zkMigration", f"migration from ZooKeeper: {state}", state=state)

    # -- clients -----------------------------------------------------------------------------------

    def set_quota(self, entry: MetadataEntry, data: Message) -> None:
        entity = quota_entity(data)
        key, value = data["key"], data["value"]
        details = {"entity": dict(entity), "quota": key}
        if data["remove"]:
            text = f"quota {key} of {entity_text(entity)} removed"
            self.simple(entry, "quotaRemoved", text, **details)
        else:
            text = f"quota {key} of {entity_text(entity)} set to {number_text(value)}"
            self.simple(entry, "quotaSet", text, **details, value=number_json(value))

    def add_acl(self, entry: MetadataEntry, data: Message) -> None:
        acl = acl_of(data)
        self.simple(
            entry, "aclAdded", f"ACL added: {acl_text(acl)}", id=data["id"], acl=acl_json(acl)
        )

    def remove_acl(self, entry: MetadataEntry, data: Message) -> None:
        acl = self.replay.acl(data["id"])
        what = f"id {data['id']}" if acl is None else acl_text(acl)
        self.simple(
            entry, "aclRemoved", f"ACL removed: {what}", id=data["id"], acl=acl and acl_json(acl)
        )

    def add_credential(self, entry: MetadataEntry, data: Message) -> None:
        user, mechanism = data["name"], mechanism_name(data["mechanism"])
        iterations = data["iterations"]
        text = f"{mechanism} credential of user {user} set, {iterations} iterations"
        self.simple(
            entry, "scramCredentialSet", text, user=user, mechanism=mechanism,
            iterations=iterations,
        )  # fmt: skip

    def remove_credential(self, entry: MetadataEntry, data: Message) -> None:
        user, mechanism = data["name"], mechanism_name(data["mechanism"])
        text = f"{mechanism} credential of user {user} removed"
        self.simple(entry, "scramCredentialRemoved", text, user=user, mechanism=mechanism)

    def add_token(self, entry: MetadataEntry, data: Message) -> None:
        token = token_of(data)
        text = f"delegation token {token.token_id} of {token.owner} created or renewed"
        self.simple(entry, "tokenSet", text, tokenId=token.token_id, owner=token.owner)

    def remove_token(self, entry: MetadataEntry, data: Message) -> None:
        token = self.replay.token(data["tokenId"])
        owner = None if token is None else token.owner
        text = f"delegation token {data['tokenId']}{f' of {owner}' if owner else ''} removed"
        self.simple(entry, "tokenRemoved", text, tokenId=data["tokenId"], owner=owner)

    # -- the quorum --------------------------------------------------------------------------------

    def elect(self, entry: MetadataEntry, message: Message) -> None:
        leader, epoch = message["leaderId"], entry.leader_epoch
        text = f"node {leader} became the active controller, in epoch {epoch}"
        self.simple(entry, "controllerElected", text, leader=leader, epoch=epoch)

    def set_voters(self, entry: MetadataEntry, message: Message) -> None:
        voters = [each["voterId"] for each in message["voters"]]
        text = f"voters of the quorum: {', '.join(map(str, voters))}"
        self.simple(entry, "votersChanged", text, voters=voters)

    def set_version(self, entry: MetadataEntry, message: Message) -> None:
        version = message["kRaftVersion"]
        self.simple(entry, "kraftVersionSet", f"kraft.version set to {version}", version=version)


_RECORDS: Final[Mapping[int, Callable[[UnitReader, MetadataEntry, Message], None]]] = {
    RecordType.REGISTER_BROKER: UnitReader.register_broker,
    RecordType.UNREGISTER_BROKER: UnitReader.unregister_broker,
    RecordType.TOPIC: UnitReader.add_topic,
    RecordType.PARTITION: UnitReader.add_partition,
    RecordType.CONFIG: UnitReader.configure,
    RecordType.PARTITION_CHANGE: UnitReader.change_partition,
    RecordType.FENCE_BROKER: UnitReader.fence,
    RecordType.UNFENCE_BROKER: UnitReader.unfence,
    RecordType.REMOVE_TOPIC: UnitReader.remove_topic,
    RecordType.DELEGATION_TOKEN: UnitReader.add_token,
    RecordType.USER_SCRAM_CREDENTIAL: UnitReader.add_credential,
    RecordType.FEATURE_LEVEL: UnitReader.set_feature,
    RecordType.CLIENT_QUOTA: UnitReader.set_quota,
    RecordType.PRODUCER_IDS: UnitReader.allocate_producer_ids,
    RecordType.BROKER_REGISTRATION_CHANGE: UnitReader.change_broker,
    RecordType.ACCESS_CONTROL_ENTRY: UnitReader.add_acl,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: UnitReader.remove_acl,
    RecordType.ZK_MIGRATION_STATE: UnitReader.migrate,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: UnitReader.remove_credential,
    RecordType.REMOVE_DELEGATION_TOKEN: UnitReader.remove_token,
    RecordType.REGISTER_CONTROLLER: UnitReader.register_controller,
    RecordType.CLEAR_ELR: UnitReader.clear_elr,
}
_CONTROLS: Final[Mapping[int, Callable[[UnitReader, MetadataEntry, Message], None]]] = {
    ControlType.LEADER_CHANGE: UnitReader.elect,
    ControlType.KRAFT_VOTERS: UnitReader.set_voters,
    ControlType.KRAFT_VERSION: UnitReader.set_version,
}


# The fields of a PartitionChangeRecord that are shown, and those of the partition.
_PARTITION_CHANGES: Final = {
    "leader": "leader",
    "isr": "isr",
    "replicas": "replicas",
    "addingReplicas": "adding_replicas",
    "removingReplicas": "removing_replicas",
    "directories": "directories",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
    "leaderRecoveryState": "leader_recovery_state",
}
_PARTITION_WORDS: Final = {
    "isr": "ISR",
    "addingReplicas": "adding replicas",
    "removingReplicas": "removing replicas",
    "eligibleLeaderReplicas": "ELR",
    "lastKnownElr": "last known ELR",
    "leaderRecoveryState": "leader",
}
_RECOVERY_STATES: Final = {0: "recovered", 1: "recovering after an unclean election"}
# A field and its value in a BrokerRegistrationChangeRecord, and what they mean.
_BROKER_CHANGES: Final = {
    ("fenced", 1): ("brokerFenced", "fenced"),
    ("fenced", -1): ("brokerUnfenced", "unfenced"),
    ("inControlledShutdown", 1): ("brokerShutsDown", "is in controlled shutdown"),
}
_DIRECTORY_CHANGES: Final = {
    "logDirs": ("brokerDirectoriesChanged", "the log directories"),
    "cordonedLogDirs": ("brokerDirectoriesCordoned", "the cordoned log directories"),
}


def _directories(replay: MetadataReplay, broker_id: int) -> dict[str, list[str]]:
    broker = replay.broker(broker_id)
    if broker is None:
        return {"logDirs": [], "cordonedLogDirs": []}
    return {
        "logDirs": list(broker.log_dirs), "cordonedLogDirs": list(broker.cordoned_log_dirs)
    }  # fmt: skip


def _created_text(details: dict[str, Any]) -> str:
    text = f"topic {details['topic']} created, with {_counted(len(details['partitions']))}"
    configs = ", ".join(f"{name}={value}" for name, value in details["configs"].items())
    return f"{text} and {configs}" if configs else text


def _added_text(details: dict[str, Any]) -> str:
    topic = _topic_text(details["topic"], details["topicId"])
    return f"topic {topic}: {_numbered(details['partitions'])} added"


def _changed_text(details: dict[str, Any]) -> str:
    parts = (
        f"{_PARTITION_WORDS.get(name, name)} {_nodes(name, before)} -> {_nodes(name, after)}"
        for name, (before, after) in details["changed"].items()
    )
    topic = _topic_text(details["topic"], details["topicId"])
    return f"topic {topic}, {_numbered(details['partitions'])}: {', '.join(parts)}"


def _topic_text(name: str | None, topic_id: str) -> str:
    """Returns a topic's name, or the id of a topic that no record has named."""
    return f"(id {topic_id})" if name is None else name


def _nodes(name: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if name == "leaderRecoveryState":
        return _RECOVERY_STATES.get(value, str(value))
    return "none" if name == "leader" and value == NO_LEADER else str(value)


def _configs_text(details: dict[str, Any]) -> str:
    parts = [f"{name}={value} set" for name, value in details["set"].items()]
    parts += [f"{name} removed" for name in details["removed"]]
    return f"configs of {details.pop('resource')}: {', '.join(parts)}"


def _counted(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def _numbered(numbers: Sequence[int]) -> str:
    found = sorted(numbers)
    return f"partition{'' if len(found) == 1 else 's'} {ranges(found)}"
