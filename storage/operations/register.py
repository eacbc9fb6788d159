"""Registers topics in the metadata of a stopped node that is the only voter of its quorum.

A KRaft broker serves only the partitions that its cluster's metadata have, and renames all others
to -stray when it starts. Of such a node, the metadata log can be continued without it (see
`metadata/leader_term.py`). Partitions come first and the records last: as long as the cluster does
not know a partition, the broker deletes nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..clock import time_text
from ..config.kafka import broker_config
from ..errors import (
    CorruptError,
    LogDirError,
    MetadataUnavailable,
    StorageError,
    UnknownTopic,
)
from ..format.files.names import METADATA_TOPIC, PartitionState, TopicPartition, is_legal_topic
from ..format.messages.metadata import RecordType
from ..format.primitives import random_uuid_text
from ..log.load.log_loader import LogLoader
from ..log.state.producer_state import ProducerStateEntry
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import PartitionDir
from ..metadata.bootstrap import NewRecord
from ..metadata.reading import QuorumRecord
from ..transactions.producer import OWN_IDS
from ..wording import printable, ranges
from .register_new import MetadataRecordRow
from .request import SILENT, PartitionFailed, ProgressListener, writable
from .revive.request import ReviveNote
from .revive.topic_configs import configs_for
from .sole_node import SoleNode, find_sole_node

_CLEANUP_POLICY: Final = "cleanup.policy"
# Partitions without a directory beyond those with one: more come from a number that is not right.
_MOST_MISSING: Final = 10_000
_LONGEST_NAME: Final = 255  # bytes of a file's name; a stray's topic is cut to fit


@dataclass(frozen=True, slots=True)
class Register:
    """Registers the topics of which the cluster's metadata do not have all partitions that are in
    the log directories: `topics` or, if that is empty, all but deleted and stray ones."""

    topics: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises what `register` would raise before it writes."""
        _Survey(engine, find_sole_node(engine), self.topics).found()
        return ()


@dataclass(frozen=True, slots=True)
class RegisteredPartition:
    """A partition that the cluster knows now: offsets [`start_offset`, `end_offset`). `directory`:
    its path, as before if it was a stray; "" if it has none and starts empty."""

    topic: str
    partition: int
    topic_id: str
    directory: str
    size: int
    start_offset: int
    end_offset: int
    leader_epoch: int

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "topicId": self.topic_id,
            "directory": self.directory or None,
            "bytes": self.size,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
            "leaderEpoch": self.leader_epoch,
        }


RegisterRow = RegisteredPartition | MetadataRecordRow | ReviveNote


def register(
    engine: Engine, request: Register, progress: ProgressListener = SILENT
) -> Iterator[RegisterRow | PartitionFailed]:
    """Yields what is left out or lost, then each partition after it was registered. With `dry_run`,
    nothing is written, and the records are yielded, too.

    Raises what `find_sole_node` raises; UnknownTopic; TopicExists or LogDirError for partitions
    that contradict each other or the cluster's metadata."""
    node = find_sole_node(engine)
    survey = _Survey(engine, node, request.topics)
    topics = survey.found()
    yield from map(ReviveNote, survey.notes)
    groups, rows, last_id = [], list[RegisteredPartition](), -1
    for topic in topics:
        progress.check()
        try:
            made = _Registration(engine, node, topic, is_dry=request.dry_run)
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error, topic.name)
            continue
        yield from made.failures
        groups.append(made.records)
        rows += made.rows
        last_id = max(last_id, made.last_producer_id)
    if not groups:
        return
    groups.insert(0, list(node.producer_ids(last_id)))
    if not request.dry_run:
        registering = writable(engine).registering
        registering.append(groups)
        for name in dict.fromkeys(row.topic for row in rows):
            registering.forget_configs(name)
    yield from rows
    if request.dry_run:
        yield from map(MetadataRecordRow, node.term.placed(groups))


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic with partitions to be registered. `partitions`: by number, None for one without a
    directory; `is_new`: the cluster does not have the topic at all."""

    name: str
    topic_id: str
    is_new: bool
    partitions: Mapping[int, PartitionDir | None]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _PartitionState:
    """A partition as it is registered; `leader_epoch`: the last one."""

    producers: Sequence[ProducerStateEntry]
    size: int
    start_offset: int
    end_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class _Removed:
    """A topic that was deleted, with the configs it had; `at_ms`: ms since 1970."""

    at_ms: int
    configs: Mapping[str, str]


class _Survey:
    """What could be registered, and `notes` about it."""

    def __init__(self, engine: Engine, node: SoleNode, names: Sequence[str]) -> None:
        self.notes: list[str] = []
        self._engine, self._node, self._names = engine, node, names
        self._removed = _removed_topics(engine)
        self._strays: dict[str, list[PartitionDir]] = {}
        for found in engine.log_dirs.strays().values():
            self._strays.setdefault(found.topic, []).append(found)

    def found(self) -> list[FoundTopic]:
        """Returns the topics to be registered. Raises UnknownTopic, TopicExists or LogDirError."""
        there = self._engine.topics()
        for name in self._names:
            if (name not in there and name not in self._strays) or name == METADATA_TOPIC:
                raise UnknownTopic(name, {*there, *self._strays} - {METADATA_TOPIC})
        names = self._names or [name for name in there if name != METADATA_TOPIC]
        topics = (self._topic(name) for name in dict.fromkeys(names))
        found = [topic for topic in topics if topic is not None]
        if not self._names:
            self._note_strays()
        elif not found:
            self.notes.append("the cluster's metadata have all of these topics")
        return found

    def _note_strays(self) -> None:
        for name, strays in sorted(self._strays.items()):
            if name not in self._node.image.topics:
                self.notes.append(
                    f"{printable(strays[0].path)}: topic {printable(name)} is stray, and left out"
                    " unless you name it"
                )

    def _topic(self, name: str) -> FoundTopic | None:
        """Returns a topic, None if there is nothing to register of it."""
        dirs = self._partition_dirs(name)
        known = self._node.image.topics.get(name)
        new = {n: found for n, found in dirs.items() if known is None or n not in known.partitions}
        if not new:
            self._note_elsewhere(name, dirs)
            return None
        for found in new.values():
            self._node.directory_id(found.log_dir)
        topic_id = _one_id(dirs, known.topic_id if known is not None else "")
        removed = self._removed.get(topic_id)
        if known is None:
            if not is_legal_topic(name):
                raise LogDirError(next(iter(dirs.values())).path, "not a topic's legal name")
            self._node.refuse_known(name)
            if removed is not None and name not in self._names:
                when = time_text(removed.at_ms)
                self.notes.append(
                    f"topic {name} was deleted at {when}, and is left out unless you name it"
                )
                return None
        first = 0 if known is None else len(known.partitions)
        numbers = range(first, max(new) + 1)
        if len(numbers) - len(new) > _MOST_MISSING:
            raise LogDirError(new[max(new)].path, "no topic has a partition of this number")
        configs = self._configs(name, new, removed) if known is None else {}
        partitions = {number: new.get(number) for number in numbers}
        topic_id = topic_id or random_uuid_text()
        return FoundTopic(name, topic_id, known is None, partitions, configs)

    def _note_elsewhere(self, name: str, dirs: Mapping[int, PartitionDir]) -> None:
        """Notes the directories of partitions whose replicas are on other nodes."""
        known = self._node.image.topics[name].partitions
        for number, found in dirs.items():
            if self._node.node_id not in known[number].replicas:
                brokers = ", ".join(map(str, known[number].replicas))
                self.notes.append(
                    f"{printable(found.path)}: the cluster has this partition on broker {brokers}"
                )

    def _partition_dirs(self, name: str) -> dict[int, PartitionDir]:
        """Returns a topic's partitions by number; strays only if the topic is named. Raises
        LogDirError if there are two of a number."""
        numbers = self._engine.topics().get(name, ())
        found = {number: self._engine.partition_dir(name, number) for number in numbers}
        known = self._node.image.topics.get(name)
        for stray in self._strays.get(name, ()) if name in self._names else ():
            if known is not None and stray.partition in known.partitions:
                why = f"the cluster has a partition {stray.partition} of topic {printable(name)}"
                raise LogDirError(stray.path, f"{why}, so this stray cannot become it")
            if len(stray.name.encode()) >= _LONGEST_NAME:
                raise LogDirError(stray.path, "the topic's name may have been cut")
            other = found.setdefault(stray.partition, stray)
            if other is not stray:
                why = f"the same partition as {printable(other.path)}; move one of them elsewhere"
                raise LogDirError(stray.path, why)
        return dict(sorted(found.items()))

    def _configs(
        self, name: str, found: Mapping[int, PartitionDir], removed: _Removed | None
    ) -> Mapping[str, str]:
        """Returns a topic's configs: those that kafkafs has stored override those that the topic
        had when it was deleted."""
        configs = dict(removed.configs if removed is not None else {})
        configs |= self._engine.log_dirs.stored_configs(name)
        cleaned = ((name, n) in each.log_dir.cleaner_offsets for n, each in found.items())
        if _CLEANUP_POLICY not in configs and any(cleaned):
            configs[_CLEANUP_POLICY] = "compact"
            self.notes.append(
                f"topic {name}: cleanup.policy=compact, because the log was compacted"
            )
        notes: list[str] = []
        fitting = configs_for(name, configs, self._node.release, notes)
        self.notes += notes
        if not fitting:
            self.notes.append(
                f"topic {name} has no configs of its own: once the broker has started, its"
                " defaults apply, such as log.retention.ms; set others before with `kafkafs topic"
                " config`"
            )
        return fitting


class _Registration:
    """One topic: its `records` and `rows`, and `failures`, what is missing of it. Unless `is_dry`,
    strays get their names back and directories without the topic's id get it."""

    def __init__(self, engine: Engine, node: SoleNode, topic: FoundTopic, *, is_dry: bool) -> None:
        self.rows: list[RegisteredPartition] = []
        self.failures: list[PartitionFailed] = []
        self.last_producer_id = -1
        self._engine, self._is_dry = engine, is_dry
        log_dirs, epochs = {}, {}
        for number, found in topic.partitions.items():
            # One that is missing gets the directory of the others.
            log_dirs[number] = (found or next(filter(None, topic.partitions.values()))).log_dir
        for number, found in topic.partitions.items():
            row = self._row(topic, number, found)
            epochs[number] = row.leader_epoch
            self.rows.append(row)
        missing = [number for number, found in topic.partitions.items() if found is None]
        if missing:
            which = f"partition{'s' if len(missing) > 1 else ''} {ranges(missing)}"
            error = f"{which} of {topic.name}: in none of the directories, and starts empty"
            self.failures.append(PartitionFailed(error, "StorageError"))
        args = (topic.name, topic.topic_id, log_dirs, epochs, topic.configs)
        self.records: list[NewRecord] = node.records(*args)

    def _row(
        self, topic: FoundTopic, number: int, found: PartitionDir | None
    ) -> RegisteredPartition:
        where = (topic.name, number, topic.topic_id)
        if found is None:
            return RegisteredPartition(*where, "", 0, 0, 0, 0)
        if self._is_dry:
            state = self._planned(found)
        else:
            state = self._opened(found, (topic.name, number), topic.topic_id)
        # kafkafs chooses its own ids far above those that a controller assigns.
        ids = [each.producer_id for each in state.producers if each.producer_id < OWN_IDS]
        self.last_producer_id = max(self.last_producer_id, *ids, -1)
        numbers = (state.size, state.start_offset, state.end_offset, state.leader_epoch + 1)
        return RegisteredPartition(*where, found.path, *numbers)

    def _opened(self, found: PartitionDir, key: TopicPartition, topic_id: str) -> _PartitionState:
        """Makes a partition ready to be registered."""
        manager = writable(self._engine)
        if found.state is PartitionState.STRAY:
            manager.registering.restore_stray(found)
            found = self._engine.partition_dir(*key)
        writer = manager.writer(*key)
        if not found.topic_id():
            manager.registering.put_topic_id(found, topic_id)
        states = writer.producer_states()
        numbers = (writer.size, writer.start_offset, writer.end_offset, writer.leader_epoch)
        return _PartitionState(states, *numbers)

    def _planned(self, found: PartitionDir) -> _PartitionState:
        """Returns what a partition will be once it is opened."""
        engine, log_dir, key = self._engine, found.log_dir, (found.topic, found.partition)
        is_stray = found.state is PartitionState.STRAY
        plan = LogLoader(
            found.directory,
            0 if is_stray else log_dir.recovery_points.get(key, 0),
            0 if is_stray else log_dir.log_start_offsets.get(key, 0),
            not is_stray and log_dir.is_clean,
            engine.new_topic_config().config,
            engine.clock.now_ms(),
            engine.context.limits,
            broker_config(engine.configs).producer_id_expiration_ms,
        ).plan()
        size = sum(each.size for each in plan.segments)
        numbers = (size, plan.start_offset, plan.end_offset, max(plan.latest_epoch, 0))
        return _PartitionState(plan.producers.states(), *numbers)


def _one_id(dirs: Mapping[int, PartitionDir], known: str) -> str:
    """Returns the topic's id, `known` to the cluster or that of the directories, "" if none has
    one. Raises LogDirError if they contradict each other, or one is torn."""
    expected, first = known, ""
    for found in dirs.values():
        try:
            its = found.topic_id()
        except CorruptError as error:
            raise LogDirError(found.path, f"its topic's id cannot be read: {error.what}") from None
        if its and expected and its != expected:
            whose = f"that of {printable(first)} is" if first else "the cluster has"
            raise LogDirError(found.path, f"its topic's id is {its}, {whose} {expected}")
        if its and not expected:
            expected, first = its, found.path
    return expected


def _removed_topics(engine: Engine) -> dict[str, _Removed]:
    """Returns, by id, the topics that were deleted as far as the metadata log reaches back."""
    found: dict[str, _Removed] = {}
    try:
        history = engine.cluster_metadata().history()
    except MetadataUnavailable:
        return found
    replay = history.replay
    for entry in history.entries:
        record = entry.record
        if isinstance(record, QuorumRecord):
            continue
        if record.number == RecordType.REMOVE_TOPIC and record.data is not None:
            topic_id = record.data["topicId"]
            configs = replay.topic_configs(replay.topic_name(topic_id))
            found[topic_id] = _Removed(entry.timestamp, dict(configs))
        replay.apply(record)
        replay.complaints.clear()
    return found
