"""Merges two replicas of the same partitions, each with damage, into new logs.

The units are partitions (see `log.check.replicas` for which batches are taken from which replica).
Both replicas are only read; the new log is recovered (see `new_log_dir`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..errors import LogDirError
from ..format.files.names import METADATA_TOPIC, TopicPartition
from ..format.layout import MAX_INT32, MAX_OFFSET
from ..io.durable import WritableDirFd, WritableFile
from ..log.check.partition_listing import PartitionListing
from ..log.check.replicas import (
    FIRST,
    SECOND,
    Merging,
    Parting,
    Replica,
    Taken,
    find_parting,
)
from ..log.check.sound import Lost
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import PartitionDir
from ..log_dirs.log_dirs import other_cluster
from ..log_dirs.selection import EVERYTHING, Selection
from .new_log_dir import Settled, SettleUnit, new_log, settle

_NAMES: Final = ("the first", "the second")

Row = Mapping[str, Any]
Engines = tuple[Engine, Engine]


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges the selected partitions of two replicas, or all; one that only one replica has is
    taken from there. Changes nothing in their logs."""

    selection: Selection = EVERYTHING

    def units(self, engines: Engines) -> list[MergeUnit]:
        """Returns the partitions by topic and number. Raises UnknownTopic or UnknownPartition if
        neither has a selected one, LogDirError if the two differ in cluster or topic ids."""
        partitions = [
            {
                key: engine.partition_dir(*key)
                for key in EVERYTHING.partitions(engine.topics())
                if self.selection.includes(*key)
            }
            for engine in engines
        ]
        for topic, number in self.selection.names:
            there = [engine.topics().get(topic) for engine in engines]
            is_there = any(numbers and number in (None, *numbers) for numbers in there)
            if topic == METADATA_TOPIC or not is_there:
                Selection(((topic, number),)).partitions(engines[FIRST].topics())
        _refuse_strangers(engines, partitions)
        return [_unit(key, partitions) for key in sorted({*partitions[0], *partitions[1]})]


@dataclass(frozen=True, slots=True)
class MergeUnit:
    """A partition; in which of the two replicas it exists, and its bytes in both."""

    topic: str
    partition: int
    in_places: tuple[bool, bool]
    start_offset: int
    size: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def is_in(self) -> int:
        """The first replica where it exists."""
        return FIRST if self.in_places[FIRST] else SECOND


@dataclass(frozen=True, slots=True)
class MergedPartition:
    """A new log; how many batches it has, by origin; and what is `wrong`, as JSON."""

    settled: Settled
    counts: Mapping[str, int]
    wrong: Sequence[Row]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> MergedPartition:
        """Restores an object from the result of `as_json`."""
        return cls(Settled(**row["settled"]), row["counts"], row["wrong"])

    def row(self) -> dict[str, Any]:
        """Returns what to report besides what is wrong."""
        return {**self.settled.as_json(), **self.counts}


def merge_partition(engines: Engines, unit: MergeUnit, directory: WritableDirFd) -> MergedPartition:
    """Merges a partition into a log in `directory`, and recovers it."""
    limit = engines[FIRST].context.limits.max_batch_bytes
    first, second = (
        Replica(engine.partition_dir(*unit.key).directory if is_there else None, limit)
        for engine, is_there in zip(engines, unit.in_places, strict=True)
    )
    engine = engines[unit.is_in]
    is_compacted = "compact" in engine.topic_config(unit.topic).config.cleanup_policy
    counts, wrong = merge_logs(unit.key, (first, second), is_compacted, directory)
    settled = settle(engine, SettleUnit(*unit.key, unit.start_offset), directory)
    return MergedPartition(settled, counts, wrong)


def merge_logs(
    key: TopicPartition,
    replicas: tuple[Replica, Replica],
    is_compacted: bool,
    directory: WritableDirFd | None,
    names: tuple[str, str] = _NAMES,
) -> tuple[Mapping[str, int], Sequence[Row]]:
    """Writes the logs of a partition, merged, to `directory`, or nowhere. Returns how many batches
    they have, by origin, and what is wrong, as JSON, in which the replicas have these names."""
    parting = find_parting(*replicas, is_compacted)
    merging = Merging(*replicas, parting, is_compacted)
    counts, holes = _write(directory, key, merging, replicas, parting)
    return counts, [*holes, *_findings(key, merging, parting, names)]


def _refuse_strangers(
    engines: Engines, partitions: Sequence[Mapping[TopicPartition, PartitionDir]]
) -> None:
    first, second = (engine.log_dirs.dirs[0] for engine in engines)
    why = other_cluster(second, first)
    if why:
        raise LogDirError(second.path, why)
    for key in partitions[0].keys() & partitions[1].keys():
        ids = [each[key].topic_id() for each in partitions]
        if all(ids) and ids[0] != ids[1]:
            raise LogDirError(partitions[1][key].path, f"of topic id {ids[1]}, not {ids[0]}")


def _unit(
    key: TopicPartition, partitions: Sequence[Mapping[TopicPartition, PartitionDir]]
) -> MergeUnit:
    found = [each[key] for each in partitions if key in each]
    starts = [each.log_dir.log_start_offsets.get(key, 0) for each in found]
    size = sum(sum(PartitionListing(each.directory).sizes.values()) for each in found)
    in_places = (key in partitions[0], key in partitions[1])
    return MergeUnit(*key, in_places, min(starts), size)


def _write(
    directory: WritableDirFd | None,
    key: TopicPartition,
    merging: Merging,
    replicas: tuple[Replica, Replica],
    parting: Parting,
) -> tuple[dict[str, int], list[Row]]:
    """Writes all batches to segments; returns how many, from which replica, and what both have
    lost."""
    counts = {"batches": 0, "ofBoth": 0, "ofFirst": 0, "ofSecond": 0, "cleanedOtherwise": 0}
    holes: list[Row] = []
    with ExitStack() as file:
        segments = None
        if directory is not None:
            segments = _Segments(directory, replicas, parting.leader, file)
        for taken in merging.batches():
            if segments is not None:
                segments.append(taken)
            counts["batches"] += 1
            counts["cleanedOtherwise"] += taken.is_cleaned_otherwise
            counts["ofBoth" if taken.is_common else ("ofFirst", "ofSecond")[taken.replica]] += 1
            if taken.hole is not None:
                holes.append(_hole(key, *taken.hole))
    return {**counts, "leftOut": merging.left_out}, holes


class _Segments:
    """The segments of the new log. They begin at the base offsets of the leader's segments and,
    outside of its range, of the other replica's. `file` closes the current one: completely, or, if
    an error ends its block, without giving it its name."""

    def __init__(
        self,
        directory: WritableDirFd,
        replicas: tuple[Replica, Replica],
        leader: int,
        file: ExitStack,
    ) -> None:
        self._directory, self._replicas = directory, replicas
        bases = [[facts.base_offset for facts in replica.segments] for replica in replicas]
        of_leader = bases[leader] or bases[1 - leader]
        inner = (of_leader[0], of_leader[-1]) if of_leader else (0, 0)
        outer = [base for base in bases[1 - leader] if not inner[0] <= base <= inner[1]]
        self._bases = sorted({*of_leader, *outer})
        self._next = 0  # of _bases, the one that begins the next segment
        self._closing = file
        self._file: WritableFile | None = None
        self._base = self._position = self._end = 0

    def append(self, taken: Taken) -> None:
        batch = taken.batch
        is_full = (
            self._position + len(batch.data) > MAX_INT32 or batch.last - self._base > MAX_INT32
        )
        if self._file is None or is_full or batch.base >= self._next_base():
            self._roll(taken)
        assert self._file is not None
        self._file.write(self._position, batch.data)
        self._position += len(batch.data)
        self._end = batch.last + 1

    def _next_base(self) -> int:
        return self._bases[self._next] if self._next < len(self._bases) else MAX_OFFSET

    def _roll(self, taken: Taken) -> None:
        """Starts the segment of a batch at the next base offset up to it, so that it has the name
        of the segment that the batch comes from."""
        self._closing.close()
        base = taken.segment
        if self._file is not None:  # a wrapper does not contain its first offset
            base = taken.batch.base if taken.batch.count >= 0 else self._end
        while self._next_base() <= taken.batch.base:
            base = self._bases[self._next]
            self._next += 1
        mtime = self._replicas[taken.replica].mtimes[taken.segment]
        self._file = self._closing.enter_context(new_log(self._directory, base, mtime))
        self._base, self._position = base, 0


def _hole(key: TopicPartition, first: int, after: int) -> Row:
    return {
        "topic": key[0],
        "partition": key[1],
        "firstOffset": first,
        "nextOffset": after,
        "what": f"offsets {first} to {after - 1} are lost in both",
    }


def _findings(
    key: TopicPartition, merging: Merging, parting: Parting, names: tuple[str, str]
) -> Iterator[Row]:
    """Yields what is missing at the end, and where the two replicas diverge."""
    about = {"topic": key[0], "partition": key[1]}
    for lost in merging.lost:
        place = {"file": lost.error.file, "position": lost.error.position}
        yield {**about, **place, "firstOffset": lost.first, "what": _what(lost)}
    if merging.left_out:
        yield {**about, "firstOffset": parting.offset, "what": _parting(merging, parting, names)}


def _parting(merging: Merging, parting: Parting, names: tuple[str, str]) -> str:
    leader, other = names[parting.leader], names[1 - parting.leader]
    latest = [f"epoch {epoch}" for epoch in parting.epochs]
    why = f"its latest is {latest[1 - parting.leader]}, {leader}'s {latest[parting.leader]}"
    if parting.is_conflict:
        why = f"they have different batches; {why}"
    left = f"{merging.left_out} batches of {other} are left out"
    return f"{other} diverges from {leader} at offset {parting.offset}: {why}: {left}"


def _what(lost: Lost) -> str:
    return f"{lost.error.what}; nothing follows, and the other replica also ends here"
