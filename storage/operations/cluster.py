"""Describes a cluster as its metadata log records it: topics, brokers, configs, quotas, ACLs,
users, features and voters, now or as of an earlier offset or time, and the history of changes.

Credentials are named without their salts and keys, and configs that may be secrets are hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ..errors import MetadataUnavailable, StorageError, UnknownName
from ..format.files.names import INTERNAL_TOPICS, METADATA_TOPIC
from ..format.messages.metadata import ResourceType
from ..log_dirs.engine import Engine
from ..metadata.history import ClusterChange, changes
from ..metadata.image import (
    NO_LEADER,
    AccessControlEntry,
    BrokerRegistration,
    ControllerRegistration,
    DelegationToken,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    QuotaEntity,
    TopicMetadata,
    Voter,
)
from ..metadata.words import acl_json, entity_text, number_json, resource_word, shown_configs
from .request import SILENT, PartitionFailed, ProgressListener


class ClusterSubject(StrEnum):
    """What `describe_cluster` can describe."""

    SUMMARY = "summary"
    TOPICS = "topics"
    BROKERS = "brokers"
    CONFIGS = "configs"
    QUOTAS = "quotas"
    ACLS = "acls"
    USERS = "users"
    FEATURES = "features"
    VOTERS = "voters"


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """The cluster in numbers. `offset`: records below it are applied; `timestamp`: the last one's,
    ms since 1970. `controller`: the node that leads the quorum, None if unknown."""

    cluster_id: str
    controller: int | None
    image: MetadataImage

    def as_json(self) -> dict[str, Any]:
        image = self.image
        partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
        configs = sum(map(len, image.configs.values()))
        return {
            "clusterId": self.cluster_id or None,
            "offset": image.offset,
            "timestamp": image.timestamp,
            "controller": self.controller,
            "brokers": len(image.brokers),
            "fencedBrokers": sum(each.fenced for each in image.brokers.values()),
            "controllers": len(image.controllers),
            "voters": len(image.quorum.voters),
            "topics": len(image.topics),
            "partitions": len(partitions),
            "partitionsWithoutLeader": sum(each.leader == NO_LEADER for each in partitions),
            "underReplicatedPartitions": sum(
                len(each.isr) < len(each.replicas) for each in partitions
            ),
            "resourcesWithConfigs": configs,
            "quotas": len(image.quotas),
            "acls": len(image.acls),
            "users": len(image.scram_users),
            "delegationTokens": len(image.tokens),
            "metadataVersion": image.features.get("metadata.version"),
            "nextProducerId": image.next_producer_id,
        }


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    name: str
    topic: TopicMetadata

    def as_json(self) -> dict[str, Any]:
        partitions = self.topic.partitions
        return {
            "topic": self.name,
            "topicId": self.topic.topic_id,
            "isInternal": self.name in INTERNAL_TOPICS,
            "partitions": [_partition_json(n, partitions[n]) for n in sorted(partitions)],
            "configs": shown_configs(self.topic.configs),
        }


def _partition_json(number: int, partition: PartitionRegistration) -> dict[str, Any]:
    return {
        "partition": number,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "leaderEpoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "directories": list(partition.directories),
        "addingReplicas": list(partition.adding_replicas),
        "removingReplicas": list(partition.removing_replicas),
        "elr": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
        "leaderRecovering": partition.leader_recovery_state != 0,
        "partitionEpoch": partition.partition_epoch,
    }


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A broker or a controller, or what is both; what it is not is None."""

    node_id: int
    broker: BrokerRegistration | None
    controller: ControllerRegistration | None

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node_id,
            "broker": None if self.broker is None else _broker_json(self.broker),
            "controller": None if self.controller is None else _controller_json(self.controller),
        }


def _broker_json(broker: BrokerRegistration) -> dict[str, Any]:
    return {
        "endpoints": list(map(_endpoint_json, broker.endpoints)),
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "epoch": broker.epoch,
        "incarnationId": broker.incarnation_id,
        "logDirs": list(broker.log_dirs),
        "cordonedLogDirs": list(broker.cordoned_log_dirs),
        "features": _supported_json(broker.features),
    }


def _controller_json(controller: ControllerRegistration) -> dict[str, Any]:
    return {
        "endpoints": list(map(_endpoint_json, controller.endpoints)),
        "incarnationId": controller.incarnation_id,
        "features": _supported_json(controller.features),
    }


def _endpoint_json(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "listener": endpoint.listener,
        "host": endpoint.host,
        "port": endpoint.port,
        "securityProtocol": endpoint.protocol or None,
    }


def _supported_json(features: Mapping[str, tuple[int, int]]) -> dict[str, list[int]]:
    return {name: list(features[name]) for name in sorted(features)}


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """The configs set on a resource. `name`: None for the defaults of all brokers."""

    kind: int
    name: str | None
    configs: Mapping[str, str]

    @property
    def resource_type(self) -> str:
        return resource_word(self.kind)

    def as_json(self) -> dict[str, Any]:
        return {
            "resourceType": self.resource_type,
            "resourceName": self.name,
            "configs": shown_configs(self.configs),
        }


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of an entity; in it, None is the default entity of its type."""

    entity: QuotaEntity
    values: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        return {
            "entity": dict(self.entity),
            "quotas": {name: number_json(self.values[name]) for name in sorted(self.values)},
        }


@dataclass(frozen=True, slots=True)
class ClusterAcl:
    acl_id: str
    acl: AccessControlEntry

    def as_json(self) -> dict[str, Any]:
        return {"id": self.acl_id, **acl_json(self.acl)}


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user with SCRAM credentials: iterations by mechanism."""

    user: str
    credentials: Mapping[str, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "user": self.user,
            "credentials": [
                {"mechanism": each, "iterations": self.credentials[each]}
                for each in sorted(self.credentials)
            ],
        }


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """A delegation token, without what authenticates its owner."""

    token: DelegationToken

    def as_json(self) -> dict[str, Any]:
        token = self.token
        return {
            "tokenId": token.token_id,
            "owner": token.owner,
            "requester": token.requester,
            "renewers": list(token.renewers),
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expirationTimestamp": token.expires_ms,
        }


@dataclass(frozen=True, slots=True)
class ClusterFeature:
    """A feature. `level`: the finalized one, 0 if none is; `supported`: the lowest and highest
    level that all registered nodes support, None if they have none in common."""

    name: str
    level: int
    supported: tuple[int, int] | None

    def as_json(self) -> dict[str, Any]:
        supported = None if self.supported is None else list(self.supported)
        return {"feature": self.name, "level": self.level, "supported": supported}


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """A voter of the metadata quorum. `endpoints`: of a VotersRecord, or else of its controller's
    registration."""

    voter: Voter
    is_leader: bool
    leader_epoch: int
    endpoints: tuple[Endpoint, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "voter": self.voter.voter_id,
            "directoryId": self.voter.directory_id or None,
            "isLeader": self.is_leader,
            "leaderEpoch": self.leader_epoch,
            "endpoints": list(map(_endpoint_json, self.endpoints)),
        }


ClusterRow = (
    ClusterSummary
    | ClusterTopic
    | ClusterNode
    | ResourceConfigs
    | ClientQuota
    | ClusterAcl
    | ScramUser
    | TokenOwner
    | ClusterFeature
    | QuorumVoter
)


# -- the state -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeCluster:
    """Describes a subject as of the records below `offset`, None for all. `names`: only these
    topics, nodes, resources with configs, entities with quotas (as in `user amber`), principals of
    ACLs, users, features or voters."""

    subject: ClusterSubject = ClusterSubject.SUMMARY
    offset: int | None = None
    names: tuple[str, ...] = ()

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises NoClusterMetadata."""
        engine.cluster_metadata()
        return ()


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster at one moment: rows by subject. `cluster_id`: "" if unknown."""

    cluster_id: str
    image: MetadataImage

    def rows(self, subject: ClusterSubject, names: Sequence[str] = ()) -> list[ClusterRow]:
        """Returns a subject's rows in order of name, or only those with these names. Raises
        UnknownName."""
        named = list(_SUBJECTS[subject](self))
        if not names:
            return [row for _, row in named]
        known = {name: row for name, row in named if name is not None}
        for name in names:
            if name not in known:
                raise UnknownName(subject.value, name, list(known))
        return [row for name, row in named if name in names]


def cluster_state(engine: Engine, offset: int | None = None) -> ClusterState:
    """Returns the cluster as of the records below `offset`, None for all. Raises NoClusterMetadata,
    or MetadataUnavailable if what is on the disk does not reach back that far."""
    metadata = engine.cluster_metadata()
    image = metadata.image_at(offset)
    if engine.at_ms is not None and image.offset == 0:
        raise MetadataUnavailable(metadata.path, offset, engine.at_ms, metadata.reach())
    meta = engine.partition_dir(METADATA_TOPIC, 0).log_dir.meta
    return ClusterState("" if meta.is_own else meta.cluster_id, image)


def describe_cluster(
    engine: Engine, request: DescribeCluster, progress: ProgressListener = SILENT
) -> Iterator[ClusterRow | PartitionFailed]:
    """Yields the rows of a subject, after what could not be read. Raises NoClusterMetadata,
    MetadataUnavailable or UnknownName."""
    state = cluster_state(engine, request.offset)
    for problem in state.image.problems:
        yield PartitionFailed(problem, StorageError.__name__)
    yield from state.rows(request.subject, request.names)


_Named = Iterable[tuple[str | None, ClusterRow]]


def _summary(state: ClusterState) -> _Named:
    leader = state.image.quorum.leader_id
    controller = None if leader == NO_LEADER else leader
    yield None, ClusterSummary(state.cluster_id, controller, state.image)


def _topics(state: ClusterState) -> _Named:
    for name, topic in sorted(state.image.topics.items()):
        yield name, ClusterTopic(name, topic)


def _nodes(state: ClusterState) -> _Named:
    brokers, controllers = state.image.brokers, state.image.controllers
    for node in sorted({*brokers, *controllers}):
        yield str(node), ClusterNode(node, brokers.get(node), controllers.get(node))


def _configs(state: ClusterState) -> _Named:
    for kind, of_kind in sorted(state.image.configs.items()):
        for name, configs in sorted(of_kind.items()):
            default = kind == ResourceType.BROKER and not name
            yield name, ResourceConfigs(kind, None if default else name, configs)


def _quotas(state: ClusterState) -> _Named:
    entities = sorted(
        state.image.quotas.items(),
        key=lambda each: [(kind, name is not None, name or "") for kind, name in each[0]],
    )
    for entity, values in entities:
        yield entity_text(entity), ClientQuota(entity, values)


def _acls(state: ClusterState) -> _Named:
    for acl_id, acl in sorted(state.image.acls.items(), key=lambda each: (each[1], each[0])):
        yield acl.principal, ClusterAcl(acl_id, acl)


def _users(state: ClusterState) -> _Named:
    for user, credentials in sorted(state.image.scram_users.items()):
        yield user, ScramUser(user, credentials)
    for _, token in sorted(state.image.tokens.items()):
        yield token.owner, TokenOwner(token)


def _features(state: ClusterState) -> _Named:
    image = state.image
    nodes: list[BrokerRegistration | ControllerRegistration]
    nodes = [*image.brokers.values(), *image.controllers.values()]
    names = {*image.features, *(name for node in nodes for name in node.features)}
    for name in sorted(names):
        # To a node that does not name the feature it has no level but 0 (QuorumFeatures).
        spans = [node.features.get(name, (0, 0)) for node in nodes]
        low = max((span[0] for span in spans), default=0)
        high = min((span[1] for span in spans), default=-1)
        level = image.features.get(name, 0)
        if name == "kraft.version":  # which is not in a FeatureLevelRecord
            level = image.quorum.kraft_version
        yield name, ClusterFeature(name, level, (low, high) if low <= high else None)


def _voters(state: ClusterState) -> _Named:
    quorum, controllers = state.image.quorum, state.image.controllers
    for voter_id, voter in sorted(quorum.voters.items()):
        controller = controllers.get(voter_id)
        endpoints = voter.endpoints or (() if controller is None else controller.endpoints)
        is_leader = voter_id == quorum.leader_id
        yield str(voter_id), QuorumVoter(voter, is_leader, quorum.leader_epoch, endpoints)


_SUBJECTS: Final[Mapping[ClusterSubject, Callable[[ClusterState], _Named]]] = {
    ClusterSubject.SUMMARY: _summary,
    ClusterSubject.TOPICS: _topics,
    ClusterSubject.BROKERS: _nodes,
    ClusterSubject.CONFIGS: _configs,
    ClusterSubject.QUOTAS: _quotas,
    ClusterSubject.ACLS: _acls,
    ClusterSubject.USERS: _users,
    ClusterSubject.FEATURES: _features,
    ClusterSubject.VOTERS: _voters,
}


# -- the history -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListClusterChanges:
    """Lists the changes in the metadata log."""

    @property
    def writes(self) -> bool:
        return False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises NoClusterMetadata."""
        engine.cluster_metadata()
        return ()


def list_cluster_changes(
    engine: Engine, request: ListClusterChanges, progress: ProgressListener = SILENT
) -> Iterator[ClusterChange | PartitionFailed]:
    """Yields the changes, oldest first, then what could not be read. If the log does not begin at
    offset 0, the first row stands for the snapshot before it. Raises NoClusterMetadata, or
    MetadataUnavailable if there is no record."""
    history = engine.cluster_metadata().history()
    image = history.image
    if image.offset > 0:
        yield _sum_of_earlier(ClusterSummary("", None, image))
    yield from changes(history)
    for problem in history.problems.all:
        yield PartitionFailed(problem, StorageError.__name__)


def _sum_of_earlier(summary: ClusterSummary) -> ClusterChange:
    row, image = summary.as_json(), summary.image
    text = (
        f"changes before offset {image.offset} are only known as their sum, from a snapshot:"
        f" topics: {row['topics']}, brokers: {row['brokers']}, ACLs: {row['acls']},"
        f" quotas: {row['quotas']}, users: {row['users']}"
    )
    return ClusterChange(0, image.offset - 1, image.timestamp, "snapshot", text)
