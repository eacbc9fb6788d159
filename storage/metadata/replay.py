"""Adds up the records of the metadata log, in log order, to an image of the cluster.

The rules are those of Kafka's deltas (ClusterDelta, TopicsDelta, … in org.apache.kafka.image).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from ..format.layout import ControlType
from ..format.messages.message import Message
from ..format.messages.metadata import MetadataRecord, RecordType, ResourceType
from .image import (
    AccessControlEntry,
    BrokerRegistration,
    ControllerRegistration,
    DelegationToken,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    Quorum,
    QuotaEntity,
    SecurityProtocol,
    TopicMetadata,
    Voter,
)

# Kafka's enums, by the numbers in records (ResourceType, PatternType, AclOperation,
# AclPermissionType, ScramMechanism).
_ACL_RESOURCES: Final = (
    *("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN"),
    "USER",
)
_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS: Final = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS"),
    *("DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_MECHANISMS: Final = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# What `fenced` and `inControlledShutdown` in a BrokerRegistrationChangeRecord change.
_CHANGED_TO: Final = {1: True, -1: False}
# The configs of each resource of a kind.
_Configs = dict[str, dict[str, str]]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class MetadataReplay:
    """Accumulates metadata records, applied in log order.

    `complaints`: what the last calls could not apply, for the caller to take.
    """

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self._names: dict[str, str] = {}  # by topic id
        self._ids: dict[str, str] = {}  # by name
        self._partitions: dict[str, dict[int, PartitionRegistration]] = {}  # by topic id
        self._topics: dict[str, TopicMetadata] = {}  # by name, of those unchanged since `image`
        self._configs: dict[int, _Configs] = {kind: {} for kind in ResourceType}
        self._brokers: dict[int, BrokerRegistration] = {}
        self._controllers: dict[int, ControllerRegistration] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._acls: dict[str, AccessControlEntry] = {}
        self._scram: dict[str, dict[str, int]] = {}
        self._tokens: dict[str, DelegationToken] = {}
        self._features: dict[str, int] = {}
        self._quorum = Quorum()
        self._next_producer_id = -1
        self._transaction: list[MetadataRecord] | None = None  # records of the open transaction
        self._shared: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._copied: set[tuple[Hashable, Hashable]] = set()  # what `_values` copied since `image`

    def apply(self, record: MetadataRecord) -> None:
        """Applies one record; the records of a transaction are applied together when it ends."""
        number, data, _ = record
        if number == RecordType.BEGIN_TRANSACTION:
            if self._transaction is not None:
                count = len(self._transaction)
                self.complaints.append(
                    f"a transaction begins before the last one ended, whose records ({count})"
                    " have no effect"
                )
            self._transaction = []
        elif number == RecordType.ABORT_TRANSACTION:
            self._transaction = None
        elif number == RecordType.END_TRANSACTION:
            complete, self._transaction = self._transaction or [], None
            for part in complete:
                self.apply(part)
        elif self._transaction is not None:
            self._transaction.append(record)
        elif data is not None:
            self._apply(number, data)

    def _apply(self, number: int, data: Message) -> None:
        if (apply := _APPLY.get(number)) is not None:
            apply(self, data)

    def apply_control(self, number: int, message: Message, leader_epoch: int) -> None:
        """Applies a control record of the quorum, from a batch of this leader epoch."""
        quorum = self._quorum
        match number:
            case ControlType.LEADER_CHANGE:
                voters = {
                    each["voterId"]: quorum.voters.get(each["voterId"], Voter(each["voterId"]))
                    for each in message["voters"]
                }
                self._quorum = Quorum(
                    message["leaderId"], leader_epoch, voters, quorum.kraft_version
                )
            case ControlType.KRAFT_VERSION:
                self._quorum = replace(quorum, kraft_version=message["kRaftVersion"])
            case ControlType.KRAFT_VOTERS:
                self._quorum = replace(
                    quorum, voters={each["voterId"]: _voter(each) for each in message["voters"]}
                )

    @property
    def quorum(self) -> Quorum:
        return self._quorum

    def assume_quorum(self, earlier: Quorum) -> None:
        """Takes what is not known of the quorum from an earlier state."""
        self._quorum = self._quorum.completed(earlier)

    def image(self, offset: int, timestamp: int, problems: Sequence[str] = ()) -> MetadataImage:
        """Returns the state after the records applied so far, which are those below `offset`."""
        self._copied.clear()
        for name, topic_id in self._ids.items():
            if name not in self._topics:
                self._topics[name] = TopicMetadata(
                    topic_id,
                    dict(self._partitions.get(topic_id, {})),
                    self._configs[ResourceType.TOPIC].get(name, {}),
                )
        return MetadataImage(
            dict(self._topics),
            {kind: dict(configs) for kind, configs in self._configs.items()},
            dict(self._brokers),
            dict(self._controllers),
            dict(self._quotas),
            dict(self._acls),
            dict(self._scram),
            dict(self._tokens),
            dict(self._features),
            self._quorum,
            self._next_producer_id,
            offset,
            timestamp,
            tuple(problems),
            self._transaction is not None,
        )

    # -- what a reader of the history looks up before it applies a record ------------------------

    def topic_name(self, topic_id: str) -> str:
        """Returns the name of a topic; "" if there is none with this id."""
        return self._names.get(topic_id, "")

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """Returns the configs set on a topic."""
        return self._configs[ResourceType.TOPIC].get(topic, {})

    def partition(self, topic_id: str, number: int) -> PartitionRegistration | None:
        return self._partitions.get(topic_id, {}).get(number)

    def partitions(self, topic_id: str) -> Iterable[int]:
        return self._partitions.get(topic_id, {})

    def has_elr(self, topic: str) -> bool:
        """Returns whether a partition of the topic, of any for "", has eligible leader replicas."""
        ids = [self._ids.get(topic, "")] if topic else list(self._ids.values())
        partitions = (
            each for topic_id in ids for each in self._partitions.get(topic_id, {}).values()
        )
        return any(each.elr or each.last_known_elr for each in partitions)

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._brokers.get(broker_id)

    def acl(self, acl_id: str) -> AccessControlEntry | None:
        return self._acls.get(acl_id)

    def feature(self, name: str) -> int:
        return self._features.get(name, 0)

    def token(self, token_id: str) -> DelegationToken | None:
        return self._tokens.get(token_id)

    # -- topics ------------------------------------------------------------------------------------

    def _add_topic(self, data: Message) -> None:
        name, topic_id = data["name"], data["topicId"]
        self._names[topic_id] = name
        self._ids[name] = topic_id
        self._topics.pop(name, None)

    def _add_partition(self, data: Message) -> None:
        topic_id = data["topicId"]
        self._partitions.setdefault(topic_id, {})[data["partitionId"]] = PartitionRegistration(
            self._share(data["replicas"]),
            self._share(data["isr"]),
            data["leader"],
            data["leaderEpoch"],
            data["partitionEpoch"],
            self._share(data["addingReplicas"]),
            self._share(data["removingReplicas"]),
            self._share(data.get("directories") or ()),
            self._share(data.get("eligibleLeaderReplicas") or ()),
            self._share(data.get("lastKnownElr") or ()),
            data.get("leaderRecoveryState", 0),
        )
        self._topics.pop(self._names.get(topic_id, ""), None)

    def _change_partition(self, data: Message) -> None:
        """Applies PartitionRegistration.merge."""
        topic_id, number = data["topicId"], data["partitionId"]
        partitions = self._partitions.get(topic_id, {})
        old = partitions.get(number)
        if old is None:
            self.complaints.append(
                f"a change of partition {number} of the topic with id {topic_id}, which no record"
                " created"
            )
            return
        changed: dict[str, Any] = {"partition_epoch": old.partition_epoch + 1}
        if "leader" in data:
            changed.update(leader=data["leader"], leader_epoch=old.leader_epoch + 1)
        for field, name in _PARTITION_FIELDS.items():
            if data.get(field) is not None:
                changed[name] = self._share(data[field])
        if data.get("leaderRecoveryState", -1) >= 0:
            changed["leader_recovery_state"] = data["leaderRecoveryState"]
        if data.get("replicas") is not None and not data.get("directories"):
            changed["directories"] = _moved_directories(old, data["replicas"])
        partitions[number] = old._replace(**changed)
        self._topics.pop(self._names.get(topic_id, ""), None)

    def _share(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values as a tuple, the same one for equal values: many partitions have the
        same replicas."""
        found = tuple(values)
        return self._shared.setdefault(found, found)

    def _remove_topic(self, data: Message) -> None:
        topic_id = data["topicId"]
        self._partitions.pop(topic_id, None)
        name = self._names.pop(topic_id, None)
        if name is not None and self._ids.get(name) == topic_id:
            del self._ids[name]
            self._topics.pop(name, None)
            self._configs[ResourceType.TOPIC].pop(name, None)

    def _clear_elr(self, data: Message) -> None:
        """Removes the eligible leader replicas of a topic, of all for the name ""."""
        names = [data["topicName"]] if data["topicName"] else list(self._ids)
        for name in names:
            partitions = self._partitions.get(self._ids.get(name, ""), {})
            for number, old in partitions.items():
                if old.elr or old.last_known_elr:
                    epoch = old.partition_epoch + 1
                    partitions[number] = old._replace(
                        elr=(), last_known_elr=(), partition_epoch=epoch
                    )
            self._topics.pop(name, None)

    def _configure(self, data: Message) -> None:
        kind, resource, name = data["resourceType"], data["resourceName"], data["name"]
        of_kind = self._configs.setdefault(kind, {})
        values = self._values(kind, of_kind, resource)
        if data["value"] is not None:
            values[name] = data["value"]
        else:
            values.pop(name, None)
        if not values:
            del of_kind[resource]
        if kind == ResourceType.TOPIC:
            self._topics.pop(resource, None)

    def _values(self, of: Hashable, found: dict[K, dict[str, V]], key: K) -> dict[str, V]:
        """Returns the values of a key, to be changed in place: copied first if an image may share
        them. `of`: what they are the values of."""
        if (of, key) not in self._copied:
            self._copied.add((of, key))
            found[key] = dict(found.get(key, ()))
        return found.setdefault(key, {})

    # -- nodes -------------------------------------------------------------------------------------

    def _register_broker(self, data: Message) -> None:
        self._brokers[data["brokerId"]] = BrokerRegistration(
            data["brokerId"],
            data["brokerEpoch"],
            data["incarnationId"],
            endpoints_of(data["endPoints"]),
            data["rack"],
            data["fenced"],
            data.get("inControlledShutdown", False),
            tuple(data.get("logDirs") or ()),
            tuple(data.get("cordonedLogDirs") or ()),
            _supported(data["features"]),
        )

    def _unregister_broker(self, data: Message) -> None:
        self._brokers.pop(data["brokerId"], None)

    def _fence_broker(self, data: Message) -> None:
        self._replace_broker(data["id"], fenced=True)

    def _unfence_broker(self, data: Message) -> None:
        self._replace_broker(data["id"], fenced=False)

    def _change_broker(self, data: Message) -> None:
        changed: dict[str, Any] = {}
        if (fenced := _CHANGED_TO.get(data.get("fenced", 0))) is not None:
            changed["fenced"] = fenced
        shutdown = _CHANGED_TO.get(data.get("inControlledShutdown", 0))
        if shutdown is not None:
            changed["in_controlled_shutdown"] = shutdown
        if data.get("logDirs"):
            changed["log_dirs"] = tuple(data["logDirs"])
        if data.get("cordonedLogDirs") is not None:
            changed["cordoned_log_dirs"] = tuple(data["cordonedLogDirs"])
        self._replace_broker(data["brokerId"], **changed)

    def _replace_broker(self, broker_id: int, **changed: Any) -> None:
        old = self._brokers.get(broker_id)
        if old is None:
            self.complaints.append(f"a change of broker {broker_id}, which no record registered")
        else:
            self._brokers[broker_id] = replace(old, **changed)

    def _register_controller(self, data: Message) -> None:
        self._controllers[data["controllerId"]] = ControllerRegistration(
            data["controllerId"],
            data["incarnationId"],
            endpoints_of(data["endPoints"]),
            _supported(data["features"]),
        )

    def _set_feature(self, data: Message) -> None:
        """Sets a finalized level; level 0 disables the feature."""
        self._features.pop(data["name"], None)
        if data["featureLevel"]:
            self._features[data["name"]] = data["featureLevel"]

    def _allocate_producer_ids(self, data: Message) -> None:
        self._next_producer_id = data["nextProducerId"]

    # -- clients -----------------------------------------------------------------------------------

    def _set_quota(self, data: Message) -> None:
        entity = quota_entity(data)
        values = self._values("quotas", self._quotas, entity)
        if data["remove"]:
            values.pop(data["key"], None)
        else:
            values[data["key"]] = data["value"]
        if not values:
            del self._quotas[entity]

    def _add_acl(self, data: Message) -> None:
        self._acls[data["id"]] = acl_of(data)

    def _remove_acl(self, data: Message) -> None:
        self._acls.pop(data["id"], None)

    def _add_credential(self, data: Message) -> None:
        """Notes that a user has a credential, without its salt and keys."""
        mechanism = mechanism_name(data["mechanism"])
        self._values("users", self._scram, data["name"])[mechanism] = data["iterations"]

    def _remove_credential(self, data: Message) -> None:
        user, mechanism = data["name"], mechanism_name(data["mechanism"])
        values = self._values("users", self._scram, user)
        values.pop(mechanism, None)
        if not values:
            del self._scram[user]

    def _add_token(self, data: Message) -> None:
        self._tokens[data["tokenId"]] = token_of(data)

    def _remove_token(self, data: Message) -> None:
        self._tokens.pop(data["tokenId"], None)


_APPLY: Final[Mapping[int, Callable[[MetadataReplay, Message], None]]] = {
    RecordType.REGISTER_BROKER: MetadataReplay._register_broker,
    RecordType.UNREGISTER_BROKER: MetadataReplay._unregister_broker,
    RecordType.TOPIC: MetadataReplay._add_topic,
    RecordType.PARTITION: MetadataReplay._add_partition,
    RecordType.CONFIG: MetadataReplay._configure,
    RecordType.PARTITION_CHANGE: MetadataReplay._change_partition,
    RecordType.FENCE_BROKER: MetadataReplay._fence_broker,
    RecordType.UNFENCE_BROKER: MetadataReplay._unfence_broker,
    RecordType.REMOVE_TOPIC: MetadataReplay._remove_topic,
    RecordType.DELEGATION_TOKEN: MetadataReplay._add_token,
    RecordType.USER_SCRAM_CREDENTIAL: MetadataReplay._add_credential,
    RecordType.FEATURE_LEVEL: MetadataReplay._set_feature,
    RecordType.CLIENT_QUOTA: MetadataReplay._set_quota,
    RecordType.PRODUCER_IDS: MetadataReplay._allocate_producer_ids,
    RecordType.BROKER_REGISTRATION_CHANGE: MetadataReplay._change_broker,
    RecordType.ACCESS_CONTROL_ENTRY: MetadataReplay._add_acl,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: MetadataReplay._remove_acl,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: MetadataReplay._remove_credential,
    RecordType.REMOVE_DELEGATION_TOKEN: MetadataReplay._remove_token,
    RecordType.REGISTER_CONTROLLER: MetadataReplay._register_controller,
    RecordType.CLEAR_ELR: MetadataReplay._clear_elr,
}
# The arrays in a PartitionChangeRecord that replace those of the partition.
_PARTITION_FIELDS: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "addingReplicas": "adding_replicas",
    "removingReplicas": "removing_replicas",
    "directories": "directories",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
}
_UNASSIGNED_DIRECTORY: Final = "AAAAAAAAAAAAAAAAAAAAAQ"


def _moved_directories(old: PartitionRegistration, replicas: Sequence[int]) -> tuple[str, ...]:
    """Returns the directories of new replicas: those that stay keep theirs
    (DirectoryId.createDirectoriesFrom)."""
    if not old.directories:
        return ()
    known = dict(zip(old.replicas, old.directories, strict=False))
    return tuple(known.get(node, _UNASSIGNED_DIRECTORY) for node in replicas)


def quota_entity(data: Message) -> QuotaEntity:
    """Returns the entity of a ClientQuotaRecord."""
    pairs = [(part["entityType"], part["entityName"]) for part in data["entity"]]
    return tuple(sorted(pairs, key=lambda pair: pair[0]))


def acl_of(data: Message) -> AccessControlEntry:
    """Returns the ACL in an AccessControlEntryRecord."""
    return AccessControlEntry(
        _word(_ACL_RESOURCES, data["resourceType"]),
        data["resourceName"],
        _word(_PATTERNS, data["patternType"]),
        data["principal"],
        data["host"],
        _word(_OPERATIONS, data["operation"]),
        _word(_PERMISSIONS, data["permissionType"]),
    )


def token_of(data: Message) -> DelegationToken:
    """Returns the token in a DelegationTokenRecord."""
    return DelegationToken(
        data["tokenId"],
        data["owner"],
        data["requester"],
        tuple(data["renewers"]),
        data["issueTimestamp"],
        data["maxTimestamp"],
        data["expirationTimestamp"],
    )


def mechanism_name(number: int) -> str:
    """Returns the name of a SCRAM mechanism."""
    return _word(_MECHANISMS, number)


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 <= number < len(words) else f"UNKNOWN({number})"


def endpoints_of(found: Sequence[Message]) -> tuple[Endpoint, ...]:
    """Returns the endpoints in the record of a broker or controller."""
    protocols = {int(each): each.name for each in SecurityProtocol}
    return tuple(
        Endpoint(
            each["name"],
            each["host"],
            each["port"],
            protocols.get(each["securityProtocol"], str(each["securityProtocol"])),
        )
        for each in found
    )


def _supported(found: Sequence[Message]) -> dict[str, tuple[int, int]]:
    return {
        each["name"]: (each["minSupportedVersion"], each["maxSupportedVersion"]) for each in found
    }


def _voter(found: Message) -> Voter:
    endpoints = (
        Endpoint(each["name"], each["host"], each["port"], "") for each in found["endpoints"]
    )
    return Voter(found["voterId"], found["voterDirectoryId"], tuple(endpoints))
