"""The copies of a partition in several log directories: which one is served, and what is refused.

Of several brokers' replicas, the one that a leader election would choose is served. Copies that
contradict each other are refused, unless one is in the preferred directory: those of topics with
different ids or of different clusters, and several of one broker.

Only partitions that exist more than once, and topics in more than one directory, cost anything, and
only when they are used.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from time import monotonic
from typing import Final, NamedTuple

from ..errors import CorruptError, LogDirError, SegmentGone, StorageError, fresh
from ..format.files.names import LEADER_EPOCH_FILE, METADATA_TOPIC, FileKind, TopicPartition
from ..io.directory import Directory
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..log.state.election import ReplicaEnd, elect, truncation_offset
from ..log.state.epochs import LeaderEpochFileCache, read_leader_epochs
from ..metadata.served_metadata import ServedMetadata
from ..wording import printable
from .log_dir import LogDir, PartitionDir

#: The config that names the preferred directory, and what to do about a contradiction.
PREFERRED_DIR: Final = "kafkafs.prefer.dir"
ADVICE: Final = (
    f"open one without the other, or say whose data to serve with -c {PREFERRED_DIR}=DIRECTORY"
)
# How often to check whether a replica's leader epochs have changed.
_ELECTION_SECONDS: Final = 1.0


class Partitions(Mapping[TopicPartition, PartitionDir]):
    """The partitions in normal use of several listings, sorted by topic and number. The value of
    each is the directory to serve, selected when it is needed.

    `[]` and `get` raise LogDirError if the copies contradict each other, or if none can be read.
    """

    def __init__(
        self, copies: Mapping[TopicPartition, tuple[PartitionDir, ...]], selector: ReplicaSelector
    ) -> None:
        self._copies = copies
        self._selector = selector
        #: The numbers of each topic's partitions.
        self.topics: dict[str, list[int]] = {}
        first: dict[str, dict[int, PartitionDir]] = {}  # by topic and log directory
        for (topic, number), found in copies.items():
            self.topics.setdefault(topic, []).append(number)
            for copy in found:
                first.setdefault(topic, {}).setdefault(id(copy.log_dir), copy)
        #: The topics that are in several log directories.
        self.spread = {
            topic: _Topic(tuple(dirs.values())) for topic, dirs in first.items() if len(dirs) > 1
        }

    def __getitem__(self, key: TopicPartition) -> PartitionDir:
        copies = self._copies[key]
        return self._selector.select(key, self) if key[0] in self.spread else copies[0]

    def __contains__(self, key: object) -> bool:
        return key in self._copies

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._copies)

    def __len__(self) -> int:
        return len(self._copies)

    def copies(self, key: TopicPartition) -> tuple[PartitionDir, ...]:
        """Returns all directories of a partition, in the order of the log directories; () if there
        is none."""
        return self._copies.get(key, ())


@dataclass(slots=True)
class _Topic:
    """A topic in several log directories. `found`: a partition's directory in each. `lives`: by
    log directory, once they have been read."""

    found: tuple[PartitionDir, ...]
    lives: dict[int, _Life] | None = None


@dataclass(frozen=True, slots=True)
class _Life:
    """What identifies a topic: its cluster and its id, "" if unknown. A topic that was deleted and
    created again has another id."""

    found: PartitionDir
    cluster_id: str
    topic_id: str

    @classmethod
    def of(cls, found: PartitionDir) -> _Life:
        try:
            topic_id = found.topic_id()
        except (CorruptError, OSError):
            topic_id = ""
        return cls(found, found.log_dir.meta.cluster_id, topic_id)

    def contradiction(self, other: _Life) -> str:
        """Returns how the two differ, "" if they may be the same topic."""
        for what, mine, its in (
            ("cluster id", self.cluster_id, other.cluster_id),
            ("topic id", self.topic_id, other.topic_id),
        ):
            if mine and its and mine != its:
                theirs = f"{printable(other.found.path)} has {printable(its)}"
                return f"has {what} {printable(mine)}, but {theirs}"
        return ""


class _LogState(NamedTuple):
    """What an append to a replica changes: size and mtime of its `active` `.log` ("" if it has
    none), and the mtime of its directory; in ns, and 0 for what does not exist."""

    active: str
    size: int = 0
    log_mtime: int = 0
    directory_mtime: int = 0

    @classmethod
    def of(cls, directory: Directory, active: str) -> _LogState:
        try:
            directory_mtime = directory.stat().st_mtime_ns
            if not active:
                return cls(active, directory_mtime=directory_mtime)
            log = directory.stat(active)
        except (StorageError, OSError):
            return cls(active)
        return cls(active, log.st_size, log.st_mtime_ns, directory_mtime)


class _Replica(NamedTuple):
    """A replica that takes part in an election, whose log was in a `state`. Without readable leader
    epochs it takes part as one that has none; `epochs_error` says why they cannot be read, "" if
    they can."""

    found: PartitionDir
    end: ReplicaEnd
    epochs_error: str
    state: _LogState

    @property
    def _path(self) -> str:
        return printable(self.found.path)

    def is_ahead(self, leader: _Replica) -> bool:
        """Returns whether it has offsets that the leader lacks, or others instead."""
        common = truncation_offset(leader.end.epochs, self.end.epochs)
        return self.end.end_offset > min(common, leader.end.end_offset)

    def describe_ahead(self, leader: _Replica) -> str:
        """Describes what the leader lacks of this replica."""
        mine, its, served = self.end, leader.end, leader._path
        offset = truncation_offset(its.epochs, mine.epochs)
        if offset < mine.end_offset:
            epochs = f"its latest leader epoch is {mine.epochs.latest}, not {its.epochs.latest}"
            left = f"its {mine.end_offset - offset} offsets from there on are not served"
            return f"{self._path}: diverges from {served} at offset {offset}: {epochs}; {left}"
        why = f"which is served for its leader epoch {its.epochs.latest}"
        if not mine.epochs.entries:
            why += f": this replica has no leader epochs, because {LEADER_EPOCH_FILE} "
            why += "cannot be read" if self.epochs_error else "is missing or empty"
        ahead = mine.end_offset - its.end_offset
        return f"{self._path}: ends at offset {mine.end_offset}, {ahead} after {served}, {why}"

    def describe_behind(self, leader: _Replica) -> str:
        """Describes that this replica only lacks offsets."""
        behind, served = leader.end.end_offset - self.end.end_offset, leader._path
        end = f"ends at offset {self.end.end_offset}"
        return f"{self._path}: {end}, {behind} before {served}, which is served"

    def describe_epochs_error(self) -> str:
        """Describes why it takes part as a replica without leader epochs."""
        return f"{self._path}: leader epochs not readable: {self.epochs_error}"


@dataclass(frozen=True, slots=True)
class _Selected:
    """The result of an election between `copies`, whose files of leader epochs had these `stamps`.
    `unserved`: the replicas that may have what the served one lacks, one line each; `problems`: the
    others that differ. `states`: the log of each replica that took part, as last seen."""

    copies: tuple[PartitionDir, ...]
    stamps: tuple[tuple[int, int], ...]
    served: PartitionDir
    unserved: tuple[str, ...]
    problems: tuple[str, ...]
    checked_at: float
    states: Mapping[PartitionDir, _LogState] = field(default_factory=dict)

    def states_now(self) -> dict[PartitionDir, _LogState]:
        return {
            found: _LogState.of(found.directory, state.active)
            for found, state in self.states.items()
        }

    def may_be_overtaken(self, now: Mapping[PartitionDir, _LogState]) -> bool:
        """Returns whether another log than the served one has changed. Its broker may have stopped,
        which changes no leader epoch if it was a follower."""
        served = self.served
        return now != self.states and now.get(served) == self.states.get(served)


class ReplicaSelector:
    """Selects which of a partition's copies in several directories to serve. Thread-safe."""

    def __init__(
        self,
        context: ReadContext,
        preferred: LogDir | None,
        metadata: ServedMetadata,
    ) -> None:
        """`metadata`: reads the cluster's metadata, for the error of a topic with several ids."""
        self._context = context
        self._preferred = preferred
        self._metadata = metadata
        # Guards what follows. The cluster's metadata are in a partition, too.
        self._lock = threading.RLock()
        self._selected: dict[TopicPartition, _Selected] = {}
        self._refused: dict[TopicPartition, tuple[tuple[PartitionDir, ...], LogDirError]] = {}

    def problems(self, partitions: Partitions) -> Iterator[str]:
        """Yields what is known to differ between copies; one line each."""
        with self._lock:
            selected, refused = dict(self._selected), dict(self._refused)
        for key in sorted({*selected, *refused}):
            copies = partitions.copies(key)
            if key in refused and refused[key][0] == copies:
                yield str(refused[key][1])
            elif key in selected and selected[key].copies == copies:
                yield from selected[key].unserved
                yield from selected[key].problems

    def unserved(self, partitions: Partitions) -> Iterator[str]:
        """Yields the replicas that are known to have, or may have, what the served ones lack; one
        line each. They are among the `problems`."""
        with self._lock:
            selected = sorted(self._selected.items())
        for key, found in selected:
            if found.copies == partitions.copies(key):
                yield from found.unserved

    def select(self, key: TopicPartition, partitions: Partitions) -> PartitionDir:
        """Returns the directory to serve of a partition, whose topic is in several. Raises
        LogDirError if the copies contradict each other, or if none can be read."""
        copies = partitions.copies(key)
        with self._lock:
            known = self._selected.get(key)
            if known is not None and known.copies == copies:
                now = monotonic()
                if len(copies) == 1 or now - known.checked_at < _ELECTION_SECONDS:
                    return known.served
                states = known.states_now()
                if known.stamps == _stamps(copies) and not known.may_be_overtaken(states):
                    self._selected[key] = replace(known, checked_at=now, states=states)
                    return known.served
            try:
                found = self._selected[key] = self._select(key, partitions)
            except LogDirError as error:
                # Without the traceback, which refers to this object.
                self._refused[key] = copies, fresh(error)
                raise fresh(error) from None
            self._refused.pop(key, None)
            return found.served

    def _select(self, key: TopicPartition, partitions: Partitions) -> _Selected:
        copies = partitions.copies(key)
        stamps = _stamps(copies)
        candidates, problems = self._of_one_life(key, partitions)
        preferred = [copy for copy in candidates if copy.log_dir is self._preferred]
        if preferred:
            served = preferred[0]
            problems = [
                f"{printable(copy.path)}: not served, because {printable(served.path)} is preferred"
                for copy in copies
                if copy is not served
            ]
            return _Selected(copies, stamps, served, (), tuple(problems), monotonic())
        if len(candidates) == 1:
            return _Selected(copies, stamps, candidates[0], (), tuple(problems), monotonic())
        _refuse_same_broker(candidates)
        replicas, unserved = self._replicas(key, candidates)
        if not replicas:
            raise LogDirError(candidates[0].path, f"no replica can be read; {unserved[0]}")
        known = self._selected.get(key)
        if known is not None:  # it stays the served one among equals
            replicas.sort(key=lambda replica: replica.found != known.served)
        leader = replicas[elect([replica.end for replica in replicas])]
        replicas.sort(key=lambda replica: copies.index(replica.found))
        for replica in replicas:
            if replica.is_ahead(leader):
                unserved.append(replica.describe_ahead(leader))
            elif replica.end.end_offset < leader.end.end_offset:
                problems.append(replica.describe_behind(leader))
            if replica.epochs_error:
                unserved.append(replica.describe_epochs_error())
        states = {replica.found: replica.state for replica in replicas}
        lines = tuple(unserved), tuple(problems)
        return _Selected(copies, stamps, leader.found, *lines, monotonic(), states)

    def _of_one_life(
        self, key: TopicPartition, partitions: Partitions
    ) -> tuple[Sequence[PartitionDir], list[str]]:
        """Returns a partition's copies that belong to the same topic, the preferred directory's if
        it has it, and why the others are not served. Raises LogDirError if there are others and
        none is preferred, or only others."""
        copies, topic = partitions.copies(key), partitions.spread[key[0]]
        of_topic = topic.lives
        if of_topic is None:
            of_topic = topic.lives = {id(found.log_dir): _Life.of(found) for found in topic.found}
        # Partitions of different lives may be in one directory.
        own = {id(copy.log_dir): _Life.of(copy) for copy in copies} if len(copies) > 1 else {}
        lives = {**of_topic, **own}
        reference = lives.get(id(self._preferred))
        if reference is None:
            for one, other in combinations((*of_topic.values(), *own.values()), 2):
                why = other.contradiction(one)
                if why:
                    known = self._registered(key[0], partitions)
                    raise LogDirError(other.found.path, f"{why}{known}; {ADVICE}")
            return copies, []
        differing = {copy: lives[id(copy.log_dir)].contradiction(reference) for copy in copies}
        candidates = [copy for copy, why in differing.items() if not why]
        if not candidates:
            raise LogDirError(copies[0].path, f"{differing[copies[0]]}, which is preferred")
        others = [
            f"{printable(copy.path)}: not served, because it {why}, which is preferred"
            for copy, why in differing.items()
            if why
        ]
        return candidates, others

    def _registered(self, topic: str, partitions: Partitions) -> str:
        """Returns what to add to the error of a topic with several ids."""
        if topic == METADATA_TOPIC:
            return ""
        try:
            found = partitions.get((METADATA_TOPIC, 0))
            if found is None:
                return ""
            known = self._metadata.of(found).image().topics.get(topic)
        except (StorageError, OSError):
            return ""
        return f" (the cluster's metadata has {printable(known.topic_id)})" if known else ""

    def _replicas(
        self, key: TopicPartition, candidates: Sequence[PartitionDir]
    ) -> tuple[list[_Replica], list[str]]:
        """Returns the replicas that can be read, and why the others cannot."""
        readable, failed = [], []
        for found in candidates:
            try:
                end_offset, state = self._end_offset(key, found)
            except (StorageError, OSError) as error:
                failed.append(f"{printable(found.path)}: replica not readable: {error}")
                continue
            epochs, why = LeaderEpochFileCache(), ""
            try:
                epochs = read_leader_epochs(found.directory)
            except (StorageError, OSError) as error:
                why = str(error)
            readable.append(_Replica(found, ReplicaEnd(epochs, end_offset), why, state))
        return readable, failed

    def _end_offset(self, key: TopicPartition, found: PartitionDir) -> tuple[int, _LogState]:
        """Returns a replica's log end offset, and the state of its log at that end or before."""
        directory = found.directory
        log = Log(directory, *key, found.log_start_offset, self._context)
        try:
            segments = log.view().segments
            active = segments[-1].files.name(FileKind.LOG) if segments else ""
            state = _LogState.of(directory, active)
            return log.view().end_offset, state
        finally:
            self._context.files.drop(found.directory)


def _stamps(copies: Iterable[PartitionDir]) -> tuple[tuple[int, int], ...]:
    """Returns a value that differs after a change of a copy's leader epochs."""
    return tuple(_stamp(copy.directory) for copy in copies)


def _stamp(directory: Directory) -> tuple[int, int]:
    try:
        status = directory.stat(LEADER_EPOCH_FILE)
    except (SegmentGone, OSError):
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def _refuse_same_broker(candidates: Sequence[PartitionDir]) -> None:
    """Raises LogDirError if one broker has a partition twice: two copies of its directory, or a
    move between directories that nobody completed. Nothing shows which one is right
    (LogManager)."""
    seen: dict[int, PartitionDir] = {}
    for found in candidates:
        node_id = found.log_dir.meta.node_id
        first = seen.setdefault(node_id, found) if node_id >= 0 else found
        if first is not found:
            why = f"the same partition of broker {node_id} as {printable(first.path)}; {ADVICE}"
            raise LogDirError(found.path, why)
