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
from dataclasses import dataclass, replace
from itertools import combinations
from time import monotonic
from typing import Final

from ..errors import CorruptError, LogDirError, SegmentGone, StorageError, fresh, printable
from ..format.files.names import LEADER_EPOCH_FILE, METADATA_TOPIC, TopicPartition
from ..io.disk import DirFd
from ..log.read.context import ReadContext
from ..log.read.log import Log
from ..log.state.election import ReplicaEnd, elect, truncation_offset
from ..log.state.epochs import read_leader_epochs
from ..metadata.served_metadata import ServedMetadata
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


@dataclass(frozen=True, slots=True)
class _Selected:
    """The result of an election between `copies`, whose files of leader epochs had these `stamps`.
    `unserved`: the replicas that may have what the served one lacks, one line each; `problems`: the
    others that differ."""

    copies: tuple[PartitionDir, ...]
    stamps: tuple[tuple[int, int], ...]
    served: PartitionDir
    unserved: tuple[str, ...]
    problems: tuple[str, ...]
    checked_at: float


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
        self._refused: dict[TopicPartition, LogDirError] = {}

    def problems(self, partitions: Partitions) -> Iterator[str]:
        """Yields what is known to differ between copies; one line each."""
        with self._lock:
            selected, refused = dict(self._selected), dict(self._refused)
        for key in sorted({*selected, *refused}):
            if key in refused and key in partitions:
                yield str(refused[key])
            elif key in selected and selected[key].copies == partitions.copies(key):
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
                if known.stamps == _stamps(copies):
                    self._selected[key] = replace(known, checked_at=now)
                    return known.served
            try:
                found = self._selected[key] = self._select(key, partitions)
            except LogDirError as error:
                self._refused[key] = fresh(error)  # without its traceback, which refers to this
                raise fresh(error) from None
            self._refused.pop(key, None)
            return found.served

    def _select(self, key: TopicPartition, partitions: Partitions) -> _Selected:
        copies = partitions.copies(key)
        stamps = _stamps(copies)
        candidates = self._of_one_life(key, partitions)
        preferred = [copy for copy in candidates if copy.log_dir is self._preferred]
        if preferred or len(candidates) == 1:
            served = (preferred or candidates)[0]
            problems = tuple(
                f"{printable(copy.path)}: not served, because {printable(served.path)} is preferred"
                for copy in copies
                if copy is not served
            )
            return _Selected(copies, stamps, served, (), problems, monotonic())
        _refuse_same_broker(candidates)
        readable, ends, unserved = self._ends(key, candidates)
        if not readable:
            raise LogDirError(candidates[0].path, f"no replica can be read; {unserved[0]}")
        leader = elect(ends)
        served, problems = readable[leader], ()
        for found, end in zip(readable, ends, strict=True):
            common = min(
                truncation_offset(ends[leader].epochs, end.epochs), ends[leader].end_offset
            )
            if end.end_offset > common:
                unserved.append(_ahead(found, end, served, ends[leader]))
            elif end.end_offset < ends[leader].end_offset:
                problems += (_behind(found, end, served, ends[leader]),)
        return _Selected(copies, stamps, served, tuple(unserved), problems, monotonic())

    def _of_one_life(self, key: TopicPartition, partitions: Partitions) -> Sequence[PartitionDir]:
        """Returns a partition's copies that belong to the same topic, the preferred directory's if
        it has it. Raises LogDirError if there are others and none is preferred, or only others."""
        copies, topic = partitions.copies(key), partitions.spread[key[0]]
        lives = topic.lives
        if lives is None:
            lives = topic.lives = {id(found.log_dir): _Life.of(found) for found in topic.found}
        reference = lives.get(id(self._preferred))
        if reference is None:
            for one, other in combinations(lives.values(), 2):
                why = other.contradiction(one)
                if why:
                    known = self._registered(key[0], partitions)
                    raise LogDirError(other.found.path, f"{why}{known}; {ADVICE}")
            return copies
        why = ""
        candidates = []
        for copy in copies:
            differs = lives[id(copy.log_dir)].contradiction(reference)
            why = why or differs
            if not differs:
                candidates.append(copy)
        if not candidates:
            raise LogDirError(copies[0].path, f"{why}, which is preferred")
        return candidates

    def _registered(self, topic: str, partitions: Partitions) -> str:
        """Returns what to add to the error of a topic with several ids."""
        if topic == METADATA_TOPIC:
            return ""
        try:
            found = partitions.get((METADATA_TOPIC, 0))
            if found is None:
                return ""
            where = found.directory, found.inode, found.log_start_offset
            known = self._metadata.of(*where).image().topics.get(topic)
        except (StorageError, OSError):
            return ""
        return f" (the cluster's metadata has {printable(known.topic_id)})" if known else ""

    def _ends(
        self, key: TopicPartition, candidates: Sequence[PartitionDir]
    ) -> tuple[list[PartitionDir], list[ReplicaEnd], list[str]]:
        """Returns the replicas that can be read, with what an election compares, and why the others
        cannot."""
        readable, ends, failed = [], [], []
        for found in candidates:
            try:
                end = ReplicaEnd(read_leader_epochs(found.directory), self._end_offset(key, found))
            except (StorageError, OSError) as error:
                failed.append(f"{printable(found.path)}: replica not readable: {error}")
                continue
            readable.append(found)
            ends.append(end)
        return readable, ends, failed

    def _end_offset(self, key: TopicPartition, found: PartitionDir) -> int:
        """Returns a replica's log end offset."""
        start = found.log_start_offset
        try:
            return Log(found.directory, *key, start, self._context).view().end_offset
        finally:
            self._context.files.drop(found.directory)


def _stamps(copies: Iterable[PartitionDir]) -> tuple[tuple[int, int], ...]:
    """Returns a value that differs after a change of a copy's leader epochs."""
    return tuple(_stamp(copy.directory) for copy in copies)


def _stamp(directory: DirFd) -> tuple[int, int]:
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


def _ahead(found: PartitionDir, end: ReplicaEnd, served: PartitionDir, leader: ReplicaEnd) -> str:
    """Describes a replica with offsets that the served one lacks, or with others instead."""
    path, other = printable(found.path), printable(served.path)
    offset = truncation_offset(leader.epochs, end.epochs)
    if offset < end.end_offset:
        epochs = f"its latest leader epoch is {end.epochs.latest}, not {leader.epochs.latest}"
        left = f"its {end.end_offset - offset} offsets from there on are not served"
        return f"{path}: diverges from {other} at offset {offset}: {epochs}; {left}"
    # one of them has no leader epochs
    ahead = end.end_offset - leader.end_offset
    why = f"which is served for its leader epoch {leader.epochs.latest}"
    return f"{path}: ends at offset {end.end_offset}, {ahead} after {other}, {why}"


def _behind(found: PartitionDir, end: ReplicaEnd, served: PartitionDir, leader: ReplicaEnd) -> str:
    """Describes a replica that only lacks offsets."""
    path, other = printable(found.path), printable(served.path)
    behind = leader.end_offset - end.end_offset
    return f"{path}: ends at offset {end.end_offset}, {behind} before {other}, which is served"
