"""Compares two copies of log directories: replicas, or a backup and its source.

The units are partitions (see `log.check.compare` for their records). Besides the records, compares
what belongs to them: cluster and topic ids, partition counts, configs and leader epochs. Both
copies are only read, and brokers may be running on them.

A topic that was deleted and created again has another id. The leader epochs of two such lives have
nothing to do with each other: only their records are compared, and none is more up to date.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from ..config.kafka import config_texts
from ..errors import CorruptError, StorageError
from ..format.files.names import TopicPartition
from ..io.retry import retry_if_gone
from ..log.check.compare import Absence, Comparison, DifferentRange, LogCopy, RangeKind
from ..log.read.view import View
from ..log.state.election import ReplicaEnd, elect, truncation_offset
from ..log.state.epochs import LeaderEpochFileCache, read_leader_epochs
from ..log_dirs.engine import Engine
from ..log_dirs.selection import EVERYTHING, Selection
from .request import SILENT, PartitionFailed, ProgressListener

Engines = tuple[Engine, Engine]

FIRST: Final = 0
SECOND: Final = 1
SIDES: Final = ("first", "second")


class DifferenceKind(StrEnum):
    """What two copies differ in."""

    CLUSTER_ID = "cluster id"
    TOPIC = "topic"  # only one copy has it
    TOPIC_ID = "topic id"  # the copies are of two lives of the topic
    PARTITION_COUNT = "partition count"  # of the topic, by the clusters' metadata
    CONFIG = "config"
    PARTITION = "partition"  # only one copy has it
    DIVERGENCE = "divergence"  # from this offset on the histories contradict each other
    RECORDS = "records"  # only one copy has them
    CONTENT = str(RangeKind.CONTENT)
    EPOCH = str(RangeKind.EPOCH)
    BATCHES = str(RangeKind.BATCHES)


@dataclass(frozen=True, slots=True)
class Diff:
    """Compares the selected topics and partitions, or all but the KRaft quorum's own log. With
    `compares_batches`, equal records in batches with different bytes differ, too."""

    selection: Selection = EVERYTHING
    compares_batches: bool = False

    def units(self, engines: Engines) -> list[TopicPartition]:
        """Returns the partitions that one copy has, by topic and number. Raises UnknownTopic or
        UnknownPartition if neither has a selected one."""
        return sorted(self.selection.partitions(_joined_topics(engines)))


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference of a whole copy (`topic` is ""), of a topic (`partition` is -1), or of a
    partition.

    `first`, `second`: what each copy has; for a divergence, the leader epoch at its offset. `name`:
    of a config. `only_in`: FIRST or SECOND if only that copy has it, else -1. [`start`, `end`): the
    offsets; a divergence has no end, -1. `records`: how many of them, -1 if that was not counted.
    `absence`: why the other copy lacks them. `leader`: of a divergence, the copy that a leader
    election would choose; -1 if it has no reason to.
    """

    kind: DifferenceKind
    topic: str = ""
    partition: int = -1
    first: str | int | None = None
    second: str | int | None = None
    name: str = ""
    only_in: int = -1
    start: int = -1
    end: int = -1
    records: int = -1
    absence: Absence | None = None
    leader: int = -1

    def as_json(self) -> dict[str, Any]:
        """Returns the members that apply to its kind."""
        has_values = self.only_in < 0 and self.kind not in _RANGES
        found: dict[str, Any] = {
            "difference": str(self.kind),
            "topic": self.topic or None,
            "partition": self.partition if self.partition >= 0 else None,
            "name": self.name or None,
            "onlyIn": SIDES[self.only_in] if self.only_in >= 0 else None,
            "startOffset": self.start if self.start >= 0 else None,
            "endOffset": self.end if self.end >= 0 else None,
            "records": self.records if self.records >= 0 else None,
            "why": str(self.absence) if self.absence is not None else None,
            "leader": SIDES[self.leader] if self.leader >= 0 else None,
        }
        values = {"first": self.first, "second": self.second} if has_values else {}
        return {name: value for name, value in found.items() if value is not None} | values


_RANGES: Final = (DifferenceKind.CONTENT, DifferenceKind.EPOCH, DifferenceKind.BATCHES)
_KINDS: Final = {RangeKind.ONE_SIDED: DifferenceKind.RECORDS} | {
    kind: DifferenceKind(str(kind)) for kind in RangeKind if kind is not RangeKind.ONE_SIDED
}


def diff(
    engines: Engines, request: Diff, progress: ProgressListener = SILENT
) -> Iterator[Difference | PartitionFailed]:
    """Yields the differences: of the clusters, then by topic and partition. What cannot be read in
    one of the copies is a PartitionFailed, and is compared as far as possible."""
    units = request.units(engines)
    yield from _clusters(engines)
    bytes_read = _BytesRead(engines, units, progress)
    known: str | None = None
    for topic, partition in units:
        progress.check()
        if topic != known:
            known = topic
            yield from _topics(engines, topic)
        if all(topic in engine.topics() for engine in engines):
            try:
                yield from _partition(engines, (topic, partition), request, bytes_read)
            except (StorageError, OSError) as error:
                yield PartitionFailed.of(error, f"{topic}-{partition}")


class _BytesRead:
    """Reports how much of both copies was read."""

    def __init__(
        self, engines: Engines, units: Sequence[TopicPartition], progress: ProgressListener
    ) -> None:
        self._progress = progress
        self._done = 0
        self._total = sum(_size(engine, key) for engine in engines for key in units)

    def add(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        self._progress.check()
        self._progress.report("comparing", self._done, self._total)


def _size(engine: Engine, key: TopicPartition) -> int:
    try:
        return engine.log(*key).view().size
    except (StorageError, OSError):
        return 0  # reported when it is compared


def _joined_topics(engines: Engines) -> Mapping[str, list[int]]:
    joined: dict[str, set[int]] = {}
    for engine in engines:
        for topic, numbers in engine.topics().items():
            joined.setdefault(topic, set()).update(numbers)
    return {topic: sorted(joined[topic]) for topic in sorted(joined)}


def _clusters(engines: Engines) -> Iterator[Difference]:
    first, second = (engine.log_dirs.dirs[0].meta.cluster_id for engine in engines)
    if first and second and first != second:
        yield Difference(DifferenceKind.CLUSTER_ID, first=first, second=second)


# -- topics ----------------------------------------------------------------------------------------


def _topics(engines: Engines, topic: str) -> Iterator[Difference | PartitionFailed]:
    """Yields how a topic differs that at least one copy has."""
    there = [topic in engine.topics() for engine in engines]
    if not all(there):
        yield Difference(DifferenceKind.TOPIC, topic, only_in=there.index(True))
        return
    first_id, second_id = (engine.topic_id(topic) for engine in engines)
    if _are_two_lives(first_id, second_id):
        yield Difference(DifferenceKind.TOPIC_ID, topic, first=first_id, second=second_id)
    counts = [_partition_count(engine, topic) for engine in engines]
    if all(counts) and counts[0] != counts[1]:
        kind = DifferenceKind.PARTITION_COUNT
        yield Difference(kind, topic, first=counts[0], second=counts[1])
    try:
        first, second = (config_texts(engine.topic_config(topic).config) for engine in engines)
    except StorageError as error:
        yield PartitionFailed.of(error, topic)
        return
    for name in {**first, **second}:  # one without a value is in neither
        values = [configs.get(name) for configs in (first, second)]
        if values[0] != values[1]:
            kind = DifferenceKind.CONFIG
            yield Difference(kind, topic, first=values[0], second=values[1], name=name)


def _are_two_lives(first_id: str, second_id: str) -> bool:
    """Returns whether the ids of a topic differ; "" is an unknown one."""
    return bool(first_id and second_id) and first_id != second_id


def _id_in(engine: Engine, key: TopicPartition) -> str:
    """Returns the topic's id in a partition's directory, or else that of the topic. A broker that
    missed a deletion has both an old directory and the topic's new id."""
    try:
        return engine.partition_dir(*key).topic_id() or engine.topic_id(key[0])
    except CorruptError:
        return engine.topic_id(key[0])


def _partition_count(engine: Engine, topic: str) -> int:
    """Returns the number of partitions that the cluster's metadata records; 0 if unknown."""
    known = engine.metadata().topics.get(topic)
    return 0 if known is None else len(known.partitions)


# -- partitions ------------------------------------------------------------------------------------


def _partition(
    engines: Engines, key: TopicPartition, request: Diff, bytes_read: _BytesRead
) -> Iterator[Difference | PartitionFailed]:
    there = [key[1] in engine.topics().get(key[0], ()) for engine in engines]
    if not all(there):
        yield Difference(DifferenceKind.PARTITION, *key, only_in=there.index(True))
        return

    first_id, second_id = (_id_in(engine, key) for engine in engines)
    two_lives = _are_two_lives(first_id, second_id)
    if two_lives and not _are_two_lives(*(engine.topic_id(key[0]) for engine in engines)):
        yield Difference(DifferenceKind.TOPIC_ID, *key, first=first_id, second=second_id)

    def compare() -> tuple[tuple[LogCopy, LogCopy], Comparison, list[DifferentRange]]:
        first, second = (_copy(engine, key) for engine in engines)
        comparison = Comparison(
            (first, second), bytes_read.add, compares_batches=request.compares_batches
        )
        return (first, second), comparison, comparison.ranges()

    copies, comparison, ranges = retry_if_gone(compare)
    yield from _failures(copies, comparison, key)
    if not two_lives:
        yield from _histories(engines, key, copies, ranges)
    for each in ranges:
        if not (two_lives and each.kind is RangeKind.EPOCH):
            yield _of_range(each, key)


def _histories(
    engines: Engines,
    key: TopicPartition,
    copies: tuple[LogCopy, LogCopy],
    ranges: Sequence[DifferentRange],
) -> Iterator[Difference | PartitionFailed]:
    """Yields where the histories of both copies diverge, and leader epochs that cannot be read."""
    epochs: list[LeaderEpochFileCache] = []
    for engine, copy in zip(engines, copies, strict=True):
        try:
            known = read_leader_epochs(engine.partition_dir(*key).directory)
            is_ended = copy.view.ended_at_ms is not None
            epochs.append(known.cut_at_end(copy.view.end_offset) if is_ended else known)
        except CorruptError as error:
            epochs.append(LeaderEpochFileCache())
            yield PartitionFailed.of(error, "{}-{}".format(*key))
    yield from _divergence(copies, epochs, ranges, key)


def _copy(engine: Engine, key: TopicPartition) -> LogCopy:
    """Returns a copy. What a cleaner has not cleaned yet, by its checkpoint, is not compacted away;
    without a checkpoint, everything may be."""
    view = engine.log(*key).view()
    cleaned = engine.partition_dir(*key).log_dir.cleaner_offsets.get(key)
    if cleaned is None:
        is_compacted = "compact" in engine.topic_config(key[0]).config.cleanup_policy
        cleaned = view.end_offset if is_compacted else 0
    return LogCopy(view, cleaned)


def _failures(
    copies: tuple[LogCopy, LogCopy], comparison: Comparison, key: TopicPartition
) -> Iterator[PartitionFailed]:
    """Yields the damage of both copies."""
    for copy, damage in zip(copies, comparison.damage, strict=True):
        found = list(damage)
        if copy.view.tail is not None:
            found.append(copy.view.tail.error)
        for error in found:
            yield PartitionFailed.of(error, "{}-{}".format(*key))


def _divergence(
    copies: tuple[LogCopy, LogCopy],
    epochs: Sequence[LeaderEpochFileCache],
    ranges: Sequence[DifferentRange],
    key: TopicPartition,
) -> Iterator[Difference]:
    """Yields the first offset from which on the two histories contradict each other, if they do:
    by records, by leader epochs, or because one missed a change of leader."""
    views = [copy.view for copy in copies]
    ends = [ReplicaEnd(*each) for each in zip(epochs, (v.end_offset for v in views), strict=True)]
    leader = elect(ends)
    found = [each.start for each in ranges if each.kind in (RangeKind.CONTENT, RangeKind.EPOCH)]
    found += _first_epoch_difference(epochs, views)
    truncated = truncation_offset(epochs[leader], epochs[1 - leader])
    if truncated < views[1 - leader].end_offset:
        found.append(max(truncated, *(view.start_offset for view in views)))
    if found:
        offset = min(found)
        first, second = (each.epoch_of(offset) for each in epochs)
        are_level = len({(end.epochs.latest, end.end_offset) for end in ends}) == 1
        leader = -1 if are_level else leader
        yield Difference(
            DifferenceKind.DIVERGENCE, *key, first, second, start=offset, leader=leader
        )


def _first_epoch_difference(
    epochs: Sequence[LeaderEpochFileCache], views: Sequence[View]
) -> list[int]:
    """Returns the first offset that both serve and for which their leader epoch checkpoints name
    different epochs, if there is one."""
    start = max(view.start_offset for view in views)
    end = min(view.end_offset for view in views)
    bounds = {start, *(entry.start_offset for each in epochs for entry in each.entries)}
    for offset in sorted(bound for bound in bounds if start <= bound < end):
        first, second = (each.epoch_of(offset) for each in epochs)
        if first != second and first >= 0 and second >= 0:  # both checkpoints reach that far back
            return [offset]
    return []


def _of_range(found: DifferentRange, key: TopicPartition) -> Difference:
    return Difference(
        _KINDS[found.kind],
        *key,
        only_in=found.side,
        start=found.start,
        end=found.end,
        records=found.records,
        absence=found.absence,
    )
