"""The `merge` job: combines two replicas of the same partitions, each with damage, into a new log.

A task merges one partition (see `storage.log.replicas` for which batches are taken from which
replica) and recovers it (see `new_log_dir`). Both replicas are only read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kafkafs.storage import (
    FIRST,
    LEADER_EPOCH_FILE,
    MAX_INT32,
    MAX_OFFSET,
    METADATA_TOPIC,
    SECOND,
    Lost,
    Merging,
    Parting,
    PartitionDir,
    PartitionListing,
    Replica,
    Selected,
    Selection,
    Taken,
    TopicPartition,
    WritableFile,
    find_parting,
    local_path,
)
from kafkafs.storage.errors import LogDirError
from kafkafs.storage.operations.new_log_dir import Settled, SettleUnit

from .job_log_dirs import JobLogDirs
from .new_log_dir import NewLogDir
from .notes import Notes
from .report import Report, Row
from .tasks import OnProgress, run, silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS: Final = (
    *("topic", "partition", "segments", "bytes", "startOffset", "endOffset"),
    *("batches", "ofBoth", "ofFirst", "ofSecond", "cleanedOtherwise", "leftOut"),
)
_NAMES: Final = ("first", "second")


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


def merge(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    other: str | Sequence[str],
    output: str,
    topics: Sequence[Selected] = (),
    *,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Creates the log directory `output` from the replicas in `log_dirs` and in `other`, of all
    partitions or of the selected `topics` (and partitions); a partition that only one has is taken
    from there. Offsets lost in both, and batches left out because one replica diverges from the
    other, are `wrong` in the report.

    Raises LogDirError if the two differ in cluster or topic ids, or if `output` exists.
    """
    both_dirs = (JobLogDirs.of(log_dirs, configs), JobLogDirs.of(other, configs))
    partitions = [_partitions(dirs, topics) for dirs in both_dirs]
    if topics:
        _refuse_unknown(both_dirs, topics)
    _refuse_strangers(both_dirs, partitions)
    target = NewLogDir(os.path.abspath(local_path(output)))
    notes, _ = target.begin(
        {
            "job": "merge",
            "log_dirs": [list(dirs.log_dirs) for dirs in both_dirs],
            "topics": [list(choice) for choice in topics],
        },
        (*both_dirs[FIRST].log_dirs, *both_dirs[SECOND].log_dirs),
    )
    units = [_unit(key, partitions) for key in sorted({*partitions[0], *partitions[1]})]
    for unit in units:
        target.make_partition(both_dirs[unit.is_in], unit.key, without=(LEADER_EPOCH_FILE,))
    work = partial(_merge, both_dirs, target, notes)
    done = run(spark, "merge", units, work, lambda unit: unit.size, on_progress)
    settled = [
        Settled(*unit.key, *result["settled"]) for unit, result in zip(units, done, strict=True)
    ]
    target.finish(settled, both_dirs[FIRST], notes)
    return _report(units, done, settled)


def _partitions(dirs: JobLogDirs, topics: Sequence[Selected]) -> dict[TopicPartition, PartitionDir]:
    """Returns the existing partitions; a selected one need not be in both replicas."""
    every = {(found.topic, found.partition): found for found in dirs.partitions()}
    selection = Selection(tuple(topics))
    return {key: found for key, found in every.items() if selection.includes(*key)}


def _refuse_unknown(both_dirs: Sequence[JobLogDirs], topics: Sequence[Selected]) -> None:
    """Raises UnknownTopic or UnknownPartition for a selection that neither replica has, or the
    quorum's topic."""
    for topic, number in topics:
        there = [dirs.engine().topics().get(topic) for dirs in both_dirs]
        is_there = any(numbers and number in (None, *numbers) for numbers in there)
        if topic == METADATA_TOPIC or not is_there:
            both_dirs[FIRST].partitions([(topic, number)])


def _refuse_strangers(
    both_dirs: Sequence[JobLogDirs], partitions: Sequence[Mapping[TopicPartition, PartitionDir]]
) -> None:
    clusters = [dirs.engine().log_dirs.dirs[0].meta.cluster_id for dirs in both_dirs]
    if all(clusters) and clusters[0] != clusters[1]:
        why = (
            f"of cluster {clusters[1]}, but {both_dirs[0].log_dirs[0]} is of cluster {clusters[0]}"
        )
        raise LogDirError(both_dirs[1].log_dirs[0], why)
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


# -- in the tasks ----------------------------------------------------------------------------------


def _merge(
    both_dirs: tuple[JobLogDirs, JobLogDirs], target: NewLogDir, notes: Notes, unit: MergeUnit
) -> dict[str, Any]:
    """Merges and recovers a partition; returns its result."""
    name = str(unit)
    noted: dict[str, Any] | None = notes.get(name)
    if noted is not None:
        return {**noted, "isOld": True}
    engines = [dirs.engine() for dirs in both_dirs]
    limit = engines[0].context.limits.max_batch_bytes
    first, second = (
        Replica(engine.partition_dir(*unit.key).directory if is_there else None, limit)
        for engine, is_there in zip(engines, unit.in_places, strict=True)
    )
    config = engines[unit.is_in].topic_config(unit.topic).config
    is_compacted = "compact" in config.cleanup_policy
    parting = find_parting(first, second, is_compacted)
    merging = Merging(first, second, parting, is_compacted)
    result = _write(target, unit.key, merging, (first, second), parting)
    settled = target.settle(both_dirs[unit.is_in], SettleUnit(*unit.key, unit.start_offset))
    result["settled"] = [settled.segments, settled.size, settled.start_offset, settled.end_offset]
    result["wrong"] = [*result["wrong"], *_findings(unit.key, merging, parting)]
    notes.put(name, result)
    return result


def _write(
    target: NewLogDir,
    key: TopicPartition,
    merging: Merging,
    replicas: tuple[Replica, Replica],
    parting: Parting,
) -> dict[str, Any]:
    """Writes all batches to segments; returns how many, and from which replica."""
    counts = {"batches": 0, "ofBoth": 0, "ofFirst": 0, "ofSecond": 0, "cleanedOtherwise": 0}
    holes: list[Row] = []
    segments = _Segments(target, key, replicas, parting.leader)
    with segments:
        for taken in merging.batches():
            segments.append(taken)
            counts["batches"] += 1
            counts["cleanedOtherwise"] += taken.is_cleaned_otherwise
            counts["ofBoth" if taken.is_common else ("ofFirst", "ofSecond")[taken.replica]] += 1
            if taken.hole is not None:
                holes.append(_hole(key, *taken.hole))
    return {**counts, "leftOut": merging.left_out, "wrong": holes}


class _Segments:
    """The segments of the new log. They begin at the base offsets of the leader's segments and,
    outside of its range, of the other replica's."""

    def __init__(
        self, target: NewLogDir, key: TopicPartition, replicas: tuple[Replica, Replica], leader: int
    ) -> None:
        self._target, self._key, self._replicas = target, key, replicas
        bases = [[facts.base_offset for facts in replica.segments] for replica in replicas]
        of_leader = bases[leader] or bases[1 - leader]
        inner = (of_leader[0], of_leader[-1]) if of_leader else (0, 0)
        outer = [base for base in bases[1 - leader] if not inner[0] <= base <= inner[1]]
        self._bases = sorted({*of_leader, *outer})
        self._next = 0  # of _bases, the one that begins the next segment
        self._stack = ExitStack()
        self._file: WritableFile | None = None
        self._base = self._position = self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error, the incomplete segment is not renamed.
        self._stack.__exit__(kind, error, trace)

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
        self._stack.close()
        self._stack = ExitStack()
        base = taken.segment
        if self._file is not None:  # a wrapper does not contain its first offset
            base = taken.batch.base if taken.batch.count >= 0 else self._end
        while self._next_base() <= taken.batch.base:
            base = self._bases[self._next]
            self._next += 1
        mtime = self._replicas[taken.replica].mtimes[taken.segment]
        self._file = self._stack.enter_context(self._target.new_log(self._key, base, mtime))
        self._base, self._position = base, 0


def _hole(key: TopicPartition, first: int, after: int) -> Row:
    return {
        "topic": key[0],
        "partition": key[1],
        "firstOffset": first,
        "nextOffset": after,
        "what": f"offsets {first} to {after - 1} are lost in both",
    }


def _findings(key: TopicPartition, merging: Merging, parting: Parting) -> Iterator[Row]:
    """Yields what is missing at the end, and where the two replicas diverge."""
    about = {"topic": key[0], "partition": key[1]}
    for lost in merging.lost:
        place = {"file": lost.error.file, "position": lost.error.position}
        yield {**about, **place, "firstOffset": lost.first, "what": _what(lost)}
    if merging.left_out:
        yield {**about, "firstOffset": parting.offset, "what": _parting(merging, parting)}


def _parting(merging: Merging, parting: Parting) -> str:
    leader, other = _NAMES[parting.leader], _NAMES[1 - parting.leader]
    latest = [f"epoch {epoch}" for epoch in parting.epochs]
    why = f"its latest is {latest[1 - parting.leader]}, the {leader}'s {latest[parting.leader]}"
    if parting.is_conflict:
        why = f"they have different batches; {why}"
    left = f"{merging.left_out} batches of the {other} are left out"
    return f"the {other} diverges from the {leader} at offset {parting.offset}: {why}: {left}"


def _what(lost: Lost) -> str:
    return f"{lost.error.what}; nothing follows, and the other replica also ends here"


def _report(
    units: Sequence[MergeUnit], done: Sequence[Mapping[str, Any]], settled: Sequence[Settled]
) -> Report:
    rows = []
    for each, result in zip(settled, done, strict=True):
        values = (*each.key, each.segments, each.size, each.start_offset, each.end_offset)
        rows.append(
            {
                **dict(zip(_COLUMNS, values, strict=False)),
                **{name: result[name] for name in _COLUMNS[len(values) :]},
            }
        )
    return Report(
        "merge",
        _COLUMNS,
        rows,
        [row for result in done for row in result["wrong"]],
        units=len(units),
        skipped=sum("isOld" in result for result in done),
        totals={"partitions": len(rows), "batches": sum(row["batches"] for row in rows)},
    )
