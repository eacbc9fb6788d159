"""The state of a cluster at one moment, as the records of its metadata log add up to it.

Classes and fields have the names of Kafka's own (package org.apache.kafka.image).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from ..format.messages.metadata import ResourceType

#: The pseudo-broker whose configs are the defaults of all brokers.
ALL_BROKERS: Final = ""
NO_LEADER: Final = -1

K = TypeVar("K")
V = TypeVar("V")


def _none() -> Mapping[Any, Any]:
    return MappingProxyType({})


class PartitionRegistration(NamedTuple):
    """A partition. Nodes are broker ids, `replicas` in order of preference; `directories`: the id
    of each replica's log directory, () if the brokers do not say; `elr`: the eligible leader
    replicas; `leader`: -1 for none. `leader_recovery_state`: 1 after an unclean election, until
    the leader has recovered, else 0."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic as the cluster knows it; `configs` are the configs set on the topic itself."""

    topic_id: str
    partitions: Mapping[int, PartitionRegistration]
    configs: Mapping[str, str]


class SecurityProtocol(IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener: `protocol` is the name of a SecurityProtocol, or the number of an unknown one;
    "" if the record has none, as in a VotersRecord."""

    listener: str
    host: str
    port: int
    protocol: str


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker. `epoch`: the offset of the record that registered it last; `log_dirs`: the ids of
    its directories; `cordoned_log_dirs`: those that get no new partitions; `features`: lowest and
    highest supported level by name."""

    broker_id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[str, ...]
    cordoned_log_dirs: tuple[str, ...]
    features: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller; `features` as for a broker."""

    controller_id: int
    incarnation_id: str
    endpoints: tuple[Endpoint, ...]
    features: Mapping[str, tuple[int, int]]


#: The entity of a client quota: pairs of type (user, client-id, ip) and name, None for the default,
#: sorted by type.
QuotaEntity = tuple[tuple[str, str | None], ...]


class AccessControlEntry(NamedTuple):
    """An ACL. The words are those of Kafka's enums."""

    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token, without what authenticates its owner. Times are ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter of the quorum. `directory_id`: "" if unknown; `endpoints`: () unless a VotersRecord
    has them."""

    voter_id: int
    directory_id: str = ""
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Quorum:
    """The leader of the metadata log and its epoch (-1 if unknown), the voters by id, and
    kraft.version (0: the voters are those of controller.quorum.voters)."""

    leader_id: int = NO_LEADER
    leader_epoch: int = -1
    voters: Mapping[int, Voter] = field(default_factory=_none)
    kraft_version: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the leader's epoch and the voters are known."""
        return self.leader_epoch >= 0 and bool(self.voters)

    def completed(self, other: Quorum) -> Quorum:
        """Returns the quorum with what is unknown of it taken from another source."""
        leads = other if self.leader_epoch < 0 else self
        return Quorum(
            leads.leader_id,
            leads.leader_epoch,
            self.voters or other.voters,
            self.kraft_version or other.kraft_version,
        )


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The cluster after the records below `offset` (-1: there is no metadata log). `timestamp`: the
    last one's, in ms since 1970, -1 if there is none. `problems`: what could not be read, a line
    each.

    `topics` by name, `configs` by ResourceType and name, `acls` and `tokens` by id. `quotas`: the
    values of an entity by name. `scram_users`: iterations by user, then mechanism; salts and keys
    are not kept. `features`: finalized levels. `next_producer_id`: -1 if none was allocated.
    `has_open_transaction`: the last records are of a transaction that has not ended, and do not
    count.
    """

    topics: Mapping[str, TopicMetadata] = field(default_factory=_none)
    configs: Mapping[int, Mapping[str, Mapping[str, str]]] = field(default_factory=_none)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=_none)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=_none)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_none)
    acls: Mapping[str, AccessControlEntry] = field(default_factory=_none)
    scram_users: Mapping[str, Mapping[str, int]] = field(default_factory=_none)
    tokens: Mapping[str, DelegationToken] = field(default_factory=_none)
    features: Mapping[str, int] = field(default_factory=_none)
    quorum: Quorum = field(default_factory=Quorum)
    next_producer_id: int = -1
    offset: int = field(default=-1, compare=False)
    timestamp: int = field(default=-1, compare=False)
    problems: tuple[str, ...] = field(default=(), compare=False)
    has_open_transaction: bool = field(default=False, compare=False)

    def configs_of(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """Returns the configs set on a resource: for a broker the node id as text, or
        ALL_BROKERS."""
        return self.configs.get(kind, {}).get(name, {})
