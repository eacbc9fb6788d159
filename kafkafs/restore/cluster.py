"""The cluster that records are restored into: its topics, their configs and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafkafs.storage import REMOTE_CONFIGS, StorageError, TopicPartition

#: How long an answer of the cluster may take.
ANSWER_SECONDS: Final = 30.0
#: How long the first answer may take.
CONNECT_SECONDS: Final = 10.0
# By then, all addresses of a name have been tried.
_REFUSED_SECONDS: Final = 1.0
# How long to wait for the leader of a new partition before asking again.
_ELECTION_SECONDS: Final = 0.1
# Errors of partitions and groups that are being set up, or whose broker has just changed.
_PASSING: Final = (
    KafkaError._NOENT,  # "No leaders found", by librdkafka itself
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
# The broker configs that apply to a topic without configs of its own.
_BROKER_NAMES: Final = {
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "cleanup.policy": "log.cleanup.policy",
}
# What a broker uses if it has no log.retention.ms, and the milliseconds in it.
_RETENTION: Final = (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000))


T = TypeVar("T")


class RestoreError(StorageError):
    """Why a restore cannot start or continue."""


class _NotYet(RestoreError):
    """What was asked for is being set up, or its broker has just changed."""


@dataclass(frozen=True, slots=True)
class NewTopicRequest:
    """A topic to create; `replication`: -1 for the cluster's default."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


class TargetCluster:
    """A cluster, by the address of one of its brokers and the configs of a librdkafka client.

    All methods raise RestoreError if a broker does not answer, or refuses.
    """

    def __init__(self, bootstrap: str, configs: Mapping[str, str]) -> None:
        self.bootstrap = bootstrap
        self._configs = configs
        self._reason = ""
        self._is_down = False
        self._admin: AdminClient = self.client(AdminClient)
        found = self._connect()
        self.cluster_id = str(found.cluster_id)
        self.broker_ids = sorted(found.brokers)
        #: The number of partitions of each topic.
        self.topics = {name: len(topic.partitions) for name, topic in found.topics.items()}

    def client(self, kind: Callable[[dict[str, Any]], Any], **configs: object) -> Any:
        """Returns a client of librdkafka. Those of `configs` apply before the user's, unless their
        names end with an underscore: these cannot be changed."""
        usual = {_name(name): value for name, value in configs.items() if name[-1] != "_"}
        fixed = {_name(name[:-1]): value for name, value in configs.items() if name[-1] == "_"}
        fixed["bootstrap.servers"] = self.bootstrap
        fixed.setdefault("error_cb", self._note)
        try:
            return kind({"client.id": "kafkafs", "log_level": 0, **usual, **self._configs, **fixed})
        except KafkaException as error:
            raise RestoreError(f"librdkafka refuses its configs: {_text(error)}") from None

    def _connect(self) -> Any:
        """Returns librdkafka's metadata of the cluster. It would wait in vain for a broker that
        refuses connections at all addresses of its name."""
        started, seconds = time.monotonic(), _REFUSED_SECONDS
        while True:
            try:
                return self._admin.list_topics(timeout=seconds)
            except KafkaException as error:
                self._admin.poll(0)  # passes the reason to `_note`
                seconds *= 2
                if self._is_down or time.monotonic() - started > CONNECT_SECONDS:
                    why = self._reason or _text(error)
                    raise RestoreError(f"cannot reach {self.bootstrap}: {why}") from None

    def _note(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_down = True
        else:
            self._reason = error.str()

    def create(self, topics: Sequence[NewTopicRequest], *, validate_only: bool = False) -> None:
        """Creates topics, or asks the cluster whether it would."""
        made = [
            NewTopic(
                each.name, each.partitions, each.replication, config=self._accepted(each.configs)
            )
            for each in topics
        ]
        if not made:
            return
        futures = self._admin.create_topics(
            made, validate_only=validate_only, operation_timeout=ANSWER_SECONDS
        )
        for name, future in futures.items():
            self._result(future, f"cannot create the topic {name}")
        if not validate_only:
            self._once_known(lambda: self._check_leaders(topics))
            self.topics.update({each.name: each.partitions for each in topics})

    def _check_leaders(self, topics: Sequence[NewTopicRequest]) -> None:
        found = self._metadata().topics
        for each in topics:
            known = found[each.name].partitions.values() if each.name in found else ()
            if sum(partition.leader >= 0 for partition in known) < each.partitions:
                raise _NotYet(f"the new topic {each.name} has partitions without a leader")

    def configs_of(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Returns all configs of topics."""
        return {name: self._once_known(partial(self._configs_of, name)) for name in topics}

    def _configs_of(self, topic: str) -> dict[str, str]:
        return self._described(ConfigResource(ResourceType.TOPIC, topic), f"the configs of {topic}")

    def _accepted(self, configs: Mapping[str, str]) -> dict[str, str]:
        """Returns a topic's configs without those of remote storage if the cluster has none."""
        if not REMOTE_CONFIGS & configs.keys():
            return dict(configs)
        resource = ConfigResource(ResourceType.BROKER, str(self.broker_ids[0]))
        found = self._described(resource, "the configs of a broker")
        if found.get("remote.log.storage.system.enable") == "true":
            return dict(configs)
        return {name: text for name, text in configs.items() if name not in REMOTE_CONFIGS}

    def default_configs(self) -> dict[str, str]:
        """Returns what applies to topics without configs of their own, as far as a restore depends
        on it."""
        resource = ConfigResource(ResourceType.BROKER, str(self.broker_ids[0]))
        found = self._described(resource, "the configs of a broker")
        defaults = {name: found[other] for name, other in _BROKER_NAMES.items() if other in found}
        for name, unit in _RETENTION:
            if name in found:
                defaults.setdefault("retention.ms", str(int(found[name]) * unit))
        return defaults

    def _described(self, resource: ConfigResource, what: str) -> dict[str, str]:
        (future,) = self._admin.describe_configs([resource]).values()
        entries = self._result(future, f"cannot read {what}")
        return {name: each.value for name, each in entries.items() if each.value is not None}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log end offsets of partitions."""
        return self._offsets(partitions, OffsetSpec.latest())

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the log start offsets of partitions."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def _offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        asked = {KafkaPartition(*each): spec for each in partitions}
        return self._once_known(lambda: self._answered(asked)) if asked else {}

    def _answered(self, asked: dict[KafkaPartition, OffsetSpec]) -> dict[TopicPartition, int]:
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_SECONDS
        )
        return {
            (each.topic, each.partition): self._result(
                future, f"cannot read the offsets of {each.topic}-{each.partition}"
            ).offset
            for each, future in futures.items()
        }

    def commit(self, group: str, offsets: Iterable[tuple[TopicPartition, int, str | None]]) -> None:
        """Commits offsets, each with its metadata, for a group without members."""
        parts = [
            KafkaPartition(*key, offset, metadata) if metadata else KafkaPartition(*key, offset)
            for key, offset, metadata in offsets
        ]
        request = ConsumerGroupTopicPartitions(group, parts)
        what = f"cannot commit the offsets of the group {group}"

        def ask() -> Any:
            (future,) = self._admin.alter_consumer_group_offsets([request]).values()
            return self._result(future, what)

        for each in self._once_known(ask).topic_partitions:
            if each.error is not None:
                raise RestoreError(f"{what}: {each.topic}-{each.partition}: {each.error.str()}")

    def _once_known(self, ask: Callable[[], T]) -> T:
        """Asks until what has just been created is set up."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return ask()
            except _NotYet:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_ELECTION_SECONDS)
                # Otherwise librdkafka would answer from its memory.
                self._metadata()

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise RestoreError(f"{self.bootstrap} does not answer: {_text(error)}") from None

    def _result(self, future: Any, what: str) -> Any:
        try:
            return future.result(ANSWER_SECONDS)
        except KafkaException as error:
            kind = _NotYet if error.args[0].code() in _PASSING else RestoreError
            raise kind(f"{what}: {_text(error)}") from None
        except TimeoutError:
            raise RestoreError(f"{what}: {self.bootstrap} does not answer") from None


def _name(keyword: str) -> str:
    return (
        keyword
        if keyword.endswith("_cb") or keyword == "on_delivery"
        else keyword.replace("_", ".")
    )


def _text(error: KafkaException) -> str:
    found = error.args[0] if error.args else error
    return str(found.str() if isinstance(found, KafkaError) else found)
