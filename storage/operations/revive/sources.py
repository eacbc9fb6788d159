"""What is to be revived: the old cluster, as the log directories and its metadata describe it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...errors import CorruptError, LogDirError, MetadataUnavailable
from ...format.files.names import INTERNAL_TOPICS, METADATA_TOPIC, TopicPartition
from ...format.messages.message import Message
from ...format.messages.metadata import RecordType, ResourceType
from ...format.primitives import random_uuid_text
from ...ingest.commit_file import read_commit_records
from ...io.lock import who_holds
from ...log_dirs.engine import Engine
from ...log_dirs.log_dir import PartitionDir
from ...metadata.image import ALL_BROKERS, MetadataImage
from ...metadata.settings import ClusterSettings
from ...wording import ranges
from ..request import PartitionFailed
from .releases import RELEASES, Release, release_for
from .request import Revive, ReviveNote, is_wanted
from .topic_configs import configs_for

_DEFAULT_NODE_ID: Final = 1
# More partitions than any topic loses.
_MOST_MISSING: Final = 100_000
_CLEANUP_POLICY: Final = "cleanup.policy"
# Configs of a broker that belong to its machine and network.
_OF_MACHINE: Final = ("listener", "advertised.listeners", "ssl.", "sasl.", "principal.")


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic to revive: the directory of each of its partitions, None for one that is in no
    source, and its configs."""

    name: str
    topic_id: str
    partitions: Mapping[int, PartitionDir | None]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SourceCluster:
    """The old cluster. `broker_configs`: for all brokers under ALL_BROKERS, and for the new node
    under its id. `settings`: records of other resources' configs, quotas, ACLs, users and tokens.
    `image`: its metadata, empty if there are none."""

    cluster_id: str
    node_id: int
    release: Release
    topics: Sequence[SourceTopic]
    broker_configs: Mapping[str, Mapping[str, str]]
    settings: ClusterSettings
    image: MetadataImage
    notes: Sequence[ReviveNote | PartitionFailed] = field(default_factory=list)


def survey(engine: Engine, request: Revive) -> SourceCluster:
    """Returns what is to be revived. Only reads.

    Raises LogDirError for a directory in use, or directories that contradict each other,
    UnknownTopic or UnknownPartition, ConfigError.
    """
    return _Survey(engine, request).cluster()


class _Survey:
    def __init__(self, engine: Engine, request: Revive) -> None:
        self._engine, self._request = engine, request
        self._image = engine.metadata()
        self._settings = ClusterSettings()
        self._set_configs: Mapping[tuple[int, str], Mapping[str, str]] = {}
        self._notes: list[ReviveNote | PartitionFailed] = []
        self._release = RELEASES[-1]
        # An empty log says as little as none.
        self._has_metadata = self._image.offset > 0
        self._is_complete = False

    def cluster(self) -> SourceCluster:
        engine, request = self._engine, self._request
        _refuse_used(engine)
        request.check(engine)
        first = engine.log_dirs.dirs[0]
        metadata_path = first.path
        if self._has_metadata:
            metadata_path = engine.cluster_metadata().path
            self._is_complete = not engine.cluster_metadata().problems
        features = self._image.features
        self._release = release_for(features, request.kafka_version, metadata_path)
        if self._has_metadata:
            self._settings = self._read_settings()
            self._set_configs = _by_resource(self._settings)
            self._notes += [
                PartitionFailed(problem, "StorageError") for problem in self._image.problems
            ]
        else:
            self._note(
                "the directories have no log of the cluster's metadata: configs, quotas, ACLs and"
                " users are unknown"
            )
        metas = [each.meta for each in engine.log_dirs.dirs]
        if engine.log_dirs.preferred is not None:
            metas = [engine.log_dirs.preferred.meta]
        nodes = [meta.node_id for meta in metas if meta.node_id >= 0]
        old_id = min(nodes, default=_DEFAULT_NODE_ID)
        node_id = old_id if request.node_id is None else request.node_id
        if request.node_id in nodes:
            old_id = node_id
        topics = list(self._topics())
        cluster_ids = (meta.cluster_id for meta in metas)
        return SourceCluster(
            next(filter(None, cluster_ids), "") or random_uuid_text(),
            node_id,
            self._release,
            topics,
            self._broker_configs(old_id, node_id),
            self._settings,
            self._image,
            self._notes,
        )

    def _note(self, text: str) -> None:
        self._notes.append(ReviveNote(text))

    def _read_settings(self) -> ClusterSettings:
        """Returns the settings of the same moment as the image: the present, if the metadata do not
        reach back to the engine's time."""
        engine = self._engine
        if engine.at_ms is None or self._image.timestamp <= engine.at_ms:
            try:
                return engine.cluster_metadata().settings()
            except MetadataUnavailable as error:
                self._notes.append(PartitionFailed.of(error))
                return ClusterSettings()
        self._note("the cluster's metadata do not reach back to then: the present ones are used")
        now = Engine([each.path for each in engine.log_dirs.dirs], engine.configs)
        try:
            return now.cluster_metadata().settings()
        finally:
            now.close()

    # -- topics ------------------------------------------------------------------------------------

    def _topics(self) -> Iterator[SourceTopic]:
        there, image = self._engine.topics(), self._image
        for name in sorted({*there, *image.topics}):
            if name != METADATA_TOPIC:
                topic = self._topic(name, there.get(name, ()))
                if topic is not None:
                    yield topic

    def _topic(self, name: str, there: Sequence[int]) -> SourceTopic | None:
        """Returns a topic, None if it is not revived."""
        known = self._image.topics.get(name)
        is_named = self._request.selection.has_topic(name)
        if known is None and self._is_complete and not is_named:
            if is_wanted(self._request.selection, name, -1):
                paths = [self._engine.partition_dir(name, number).path for number in there]
                self._note(
                    f"{paths[0]}: topic {name} is not in the cluster's metadata, and is left out"
                    " unless you name it"
                )
            return None
        numbers = self._numbers(name, {*there, *(known.partitions if known else ())})
        if not any(is_wanted(self._request.selection, name, each) for each in numbers):
            return None
        topic_id = known.topic_id if known is not None else ""
        found: dict[int, PartitionDir | None] = {}
        for number in numbers:
            if is_wanted(self._request.selection, name, number) and number in there:
                found[number] = self._partition((name, number), topic_id)
            else:
                found[number] = None
        missing = [
            number
            for number, each in found.items()
            if each is None and is_wanted(self._request.selection, name, number)
        ]
        if missing:
            self._missing(name, missing)
        ids = [self._topic_id(each) for each in found.values() if each is not None]
        topic_id = topic_id or next(filter(None, ids), "") or random_uuid_text()
        return SourceTopic(name, topic_id, found, self._topic_configs(name, found))

    def _numbers(self, name: str, known: Collection[int]) -> range:
        """Returns the numbers of a topic's partitions, including those that are missing. Raises
        LogDirError if these are so many that one of the others cannot be right."""
        numbers = range(max(known, default=-1) + 1)
        if len(numbers) - len(known) > _MOST_MISSING:
            why = f"topic {name} has {len(known)} partitions, one of them with number {numbers[-1]}"
            raise LogDirError(self._engine.log_dirs.dirs[0].path, why)
        return numbers

    def _partition(self, key: TopicPartition, topic_id: str) -> PartitionDir | None:
        found = self._engine.partition_dir(*key)
        its = self._topic_id(found)
        if topic_id and its and its != topic_id:
            self._note(
                f"{found.path}: of a deleted topic with id {its}, and left out; the cluster's"
                f" metadata has {topic_id}"
            )
            return None
        return found

    def _topic_id(self, found: PartitionDir) -> str:
        """Returns the id in a partition's directory, "" if there is none or its file is torn."""
        try:
            return found.topic_id()
        except CorruptError:
            return ""

    def _missing(self, name: str, missing: Sequence[int]) -> None:
        known = self._image.topics.get(name)
        registered = known.partitions if known is not None else {}
        nodes = sorted({node for each in missing for node in _replicas(registered.get(each))})
        noun = "brokers" if len(nodes) > 1 else "broker"
        where = f"; replicas were on {noun} {', '.join(map(str, nodes))}" if nodes else ""
        which = f"partitions {ranges(missing)}" if len(missing) > 1 else f"partition {missing[0]}"
        error = f"{which} of {name}: in none of the directories, and starts empty{where}"
        self._notes.append(PartitionFailed(error, "StorageError"))

    def _topic_configs(
        self, name: str, found: Mapping[int, PartitionDir | None]
    ) -> Mapping[str, str]:
        """Returns a topic's configs: those that kafkafs stored override the cluster's. Without the
        cluster's, a topic that was ever cleaned counts as compacted."""
        configs = dict(self._set_configs.get((ResourceType.TOPIC, name), {}))
        configs.update(self._engine.log_dirs.stored_configs(name))
        is_known = self._has_metadata or name in INTERNAL_TOPICS
        if not is_known and _CLEANUP_POLICY not in configs:
            copies = ((number, copy) for number, copy in found.items() if copy is not None)
            if any((name, number) in copy.log_dir.cleaner_offsets for number, copy in copies):
                configs[_CLEANUP_POLICY] = "compact"
                self._note(f"topic {name}: cleanup.policy=compact, because the log was compacted")
        notes: list[str] = []
        reads_tier = self._engine.log_dirs.tier is not None
        fitting = configs_for(name, configs, self._release, notes, reads_tier=reads_tier)
        for note in notes:
            self._note(note)
        return fitting

    # -- brokers -----------------------------------------------------------------------------------

    def _broker_configs(self, old_id: int, node_id: int) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for old, new in ((ALL_BROKERS, ALL_BROKERS), (str(old_id), str(node_id))):
            for name, text in self._set_configs.get((ResourceType.BROKER, old), {}).items():
                if name.startswith(_OF_MACHINE):
                    self._note(f"the broker config {name} is left out: it is for another machine")
                else:
                    found.setdefault(new, {})[name] = text
        return found


def _by_resource(settings: ClusterSettings) -> dict[tuple[int, str], dict[str, str]]:
    """Returns the configs of each resource, by type and name."""
    found: dict[tuple[int, str], dict[str, str]] = {}
    for record in settings.of(RecordType.CONFIG):
        resource = (record["resourceType"], record["resourceName"])
        found.setdefault(resource, {})[record["name"]] = record["value"]
    return found


def other_configs(settings: ClusterSettings) -> list[Message]:
    """Returns the records of configs of neither topics nor brokers."""
    skipped = (ResourceType.TOPIC, ResourceType.BROKER)
    return [each for each in settings.of(RecordType.CONFIG) if each["resourceType"] not in skipped]


def _replicas(found: object) -> Sequence[int]:
    return getattr(found, "replicas", ())


def _refuse_used(engine: Engine) -> None:
    """Raises LogDirError if a process writes to one of the directories, or did not complete a write
    that it had committed."""
    for log_dir in engine.log_dirs.dirs:
        pid = who_holds(log_dir.directory)
        if pid:
            who = f"process {pid}" if pid > 0 else "a process"
            why = f"{who} has it open for writing; stop that process first"
            raise LogDirError(log_dir.path, why)
        if read_commit_records(log_dir.directory).pending:
            why = "kafkafs has committed a write to it, but not completed it"
            raise LogDirError(log_dir.path, f"{why}; `kafkafs recover` does")
