"""Writes Arrow record batches to staged segments in tasks, and commits these on the driver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from kafkafs.storage import (
    STAGING_SUFFIX,
    BatchPlan,
    DirFd,
    Engine,
    IngestWrite,
    Int64s,
    LogDirLocked,
    LogManager,
    RecordColumns,
    StagedPart,
    StagedWriter,
    StagingPlace,
    StorageError,
    SystemClock,
    TopicConfig,
    TopicPartition,
    UnknownPartition,
    UnknownTopic,
    WritableDirFd,
    check_is_log_dir,
    finish_all,
    ingest_parts,
    partitions_of,
    read_commit_records,
    refuse_in_engine,
    refuse_new_topic,
    staging_path,
    to_record_columns,
    who_holds,
)

from ..read.planning import LOGGER
from .job_names import is_stale

# How much of the input is grouped by partition at a time. With less, batches of many partitions
# would not be full.
_CHUNK_BYTES: Final = 8 << 20

# A selection of rows, in order.
_Rows = Int64s | slice


class WriteError(ValueError):
    """The data or their columns cannot be written."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how a job writes; the same for all its tasks. `topic` and `create_topics` are as in
    `WriteOptions`."""

    log_dirs: tuple[str, ...]
    configs: Mapping[str, str]
    staging_dir: str | None
    job: str
    topic: str | None
    create_topics: int | None
    unregistered: bool
    plan: BatchPlan
    ignore_keys: bool

    def place_of(self, log_dir: str) -> StagingPlace:
        if self.staging_dir is None:
            return StagingPlace(staging_path(log_dir))
        return StagingPlace(os.path.join(self.staging_dir, STAGING_SUFFIX))

    def check_new_topic(self, engine: Engine, topic: str, partitions: int) -> None:
        """Checks a topic that the commit would create. Raises InvalidTopic, InvalidPartitions,
        TopicExists or Unregistered."""
        refuse_new_topic(topic, partitions)
        refuse_in_engine(engine, topic, range(partitions), unregistered=self.unregistered)

    @property
    def places(self) -> list[StagingPlace]:
        """All places in which the job may have staged something."""
        paths = dict.fromkeys(self.place_of(log_dir).path for log_dir in self.log_dirs)
        return [StagingPlace(path) for path in paths]


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic to write to. `count`: the number of its partitions; `log_dirs`: the log directories
    of those that exist here, by number."""

    name: str
    count: int
    log_dirs: Mapping[int, str]
    config: TopicConfig


class TaskWriter:
    """One attempt of one task. `attempt` is its unique name."""

    def __init__(self, target: Target, task: int, attempt: str) -> None:
        self._target = target
        self._attempt = attempt
        self._engine = Engine(target.log_dirs, dict(target.configs))
        self._clock = SystemClock()
        self._turn = task  # round-robin position for records without a key
        self._topics: dict[str, _Topic] = {}
        self._attempts: dict[str, WritableDirFd] = {}  # by staging place
        self._writers: dict[TopicPartition, StagedWriter] = {}

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[StagedPart]:
        """Stages all records durably and returns the parts; leaves nothing behind if it raises."""
        try:
            for table in _chunks(batches):
                self._write(table)
            return finish_all(self._writers.values())
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        self._writers.clear()
        for path in self._attempts:
            job = WritableDirFd(path).child(self._target.job)
            with suppress(OSError):
                job.remove_directory(self._attempt)
                # This succeeds only for the last attempt. If the driver has already removed the
                # job, because of another task, this attempt has made its directory again.
                Path(job.path).rmdir()
                Path(path).rmdir()

    def _write(self, table: pa.Table) -> None:
        records = to_record_columns(table)
        now_ms = self._clock.now_ms()
        for topic, rows in self._by_topic(table):
            selected = _selected(records, rows)
            partitions = self._partitions(topic, table, rows, selected)
            for partition, part in _grouped(partitions):
                writer = self._writer(topic, partition)
                writer.append_records(_selected(selected, part), self._target.plan, now_ms)

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[_Topic, _Rows | None]]:
        """Yields the topics with their rows, None for all rows."""
        if self._target.topic is not None:
            yield self._topic(self._target.topic), None
            return
        column = table.column("topic")
        if column.null_count:
            raise WriteError(
                "null topic present in the data. Use the topic option for setting a default topic."
            )
        encoded = column.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        names = encoded.dictionary.to_pylist()
        codes = encoded.indices.to_numpy().astype(np.int64)
        for code, rows in _grouped(codes):
            yield self._topic(names[code]), rows

    def _partitions(
        self, topic: _Topic, table: pa.Table, rows: _Rows | None, records: RecordColumns
    ) -> Int64s:
        """Returns the partition of each record: from the column, otherwise from the key."""
        keys = type(records.keys).nulls() if self._target.ignore_keys else records.keys
        found = partitions_of(keys, len(records), topic.count, self._turn)
        self._turn = (self._turn + int(keys.is_null(len(records)).sum())) % topic.count
        if "partition" not in table.schema.names:
            return found
        column = table.column("partition")
        given = column.fill_null(-1).to_numpy().astype(np.int64)
        if not column.null_count and rows is None:
            found = given
        else:
            is_given = column.is_valid().to_numpy()
            if rows is not None:
                given, is_given = given[rows], is_given[rows]
            found = np.where(is_given, given, found)
        wrong = (found < 0) | (found >= topic.count)
        if wrong.any():
            number = int(found[wrong.argmax()])
            raise WriteError(
                f"partition {number} of {topic.name}: it has partitions 0 to {topic.count - 1}"
            )
        return found

    def _topic(self, name: str) -> _Topic:
        """Returns a topic. Raises UnknownTopic if it neither exists nor is to be created."""
        known = self._topics.get(name)
        if known is None:
            known = self._topics[name] = self._found_topic(name)
        return known

    def _found_topic(self, name: str) -> _Topic:
        engine, made = self._engine, self._target.create_topics
        numbers = engine.topics().get(name)
        if numbers is None:
            if made is None:
                raise UnknownTopic(name, engine.topics())
            # Check before anything is staged: at the commit it would be too late.
            self._target.check_new_topic(engine, name, made)
            config = engine.new_topic_config().config
            return _Topic(name, made, dict.fromkeys(range(made), self._target.log_dirs[0]), config)
        log_dirs = {
            number: engine.partition_dir(name, number).log_dir.directory.path for number in numbers
        }
        return _Topic(name, numbers[-1] + 1, log_dirs, engine.topic_config(name).config)

    def _writer(self, topic: _Topic, partition: int) -> StagedWriter:
        key = (topic.name, partition)
        writer = self._writers.get(key)
        if writer is None:
            if partition not in topic.log_dirs:
                raise UnknownPartition(*key, sorted(topic.log_dirs))
            attempt = self._directory(topic.log_dirs[partition])
            writer = self._writers[key] = StagedWriter(attempt, *key, topic.config)
        return writer

    def _directory(self, log_dir: str) -> WritableDirFd:
        staging = self._target.place_of(log_dir)
        if staging.path not in self._attempts:
            self._attempts[staging.path] = staging.attempt(self._target.job, self._attempt)
        return self._attempts[staging.path]


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields the batches combined into contiguous tables of about _CHUNK_BYTES."""
    found: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            found.append(batch)
            size += batch.nbytes
        if size >= _CHUNK_BYTES:
            yield pa.Table.from_batches(found).combine_chunks()
            found, size = [], 0
    if found:
        yield pa.Table.from_batches(found).combine_chunks()


def _selected(records: RecordColumns, rows: _Rows | None) -> RecordColumns:
    if rows is None:
        return records
    if isinstance(rows, slice):
        return records.slice(rows.start, rows.stop)
    return records.take(rows)


def _grouped(numbers: Int64s) -> Iterator[tuple[int, _Rows | None]]:
    """Yields each number with its rows in order; None for the rows if all have the same number."""
    if not len(numbers):
        return
    inner = np.flatnonzero(np.diff(numbers)) + 1
    if not len(inner):
        yield int(numbers[0]), None
        return
    edges = [0, *inner.tolist(), len(numbers)] if len(inner) <= np.ptp(numbers) else []
    if edges and len(set(firsts := numbers[edges[:-1]].tolist())) == len(firsts):
        for number, (low, high) in zip(firsts, pairwise(edges), strict=True):
            yield number, slice(low, high)
        return
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
    for low, high in pairwise(edges):
        yield int(ordered[low]), order[low:high]


# -- the driver's part ---------------------------------------------------------------------------


def check_writable(log_dirs: Sequence[str]) -> None:
    """Raises LogDirError if a path is missing or is not a log directory (writes create none), and
    LogDirLocked if a broker or an engine has locked one."""
    for path in log_dirs:
        directory = DirFd(path)
        check_is_log_dir(directory)
        holder = who_holds(directory)
        if holder:
            who = f"process {holder}" if holder > 0 else "a process that the system does not name"
            raise LogDirLocked(path, f"{who} has it locked, a broker or another engine", holder)


def check_topic(target: Target) -> None:
    """Checks the topic of all rows, if the commit would create it. Topics named in rows are known
    only to tasks, which check them."""
    if target.topic is None or target.create_topics is None:
        return
    engine = Engine(target.log_dirs, dict(target.configs))
    if target.topic not in engine.topics():
        target.check_new_topic(engine, target.topic, target.create_topics)


def remove_stale(target: Target) -> None:
    """Removes what dead writers have left in the staging places, unless it has a commit record."""
    decided = _decided(target)

    def stale(job: str, changed_ms: int) -> bool:
        return is_stale(job, changed_ms) and not any(f"/{job}/" in path for path in decided)

    for staging in target.places:
        for job in staging.stale(stale):
            if _remove(staging, job):
                LOGGER.warning("removed files left by a dead writer: %s/%s", staging.path, job)


def _decided(target: Target) -> list[str]:
    """Returns the paths of staged parts with a commit record, which the next writable opening of
    the directories ingests."""
    return [
        staged.path
        for path in target.log_dirs
        for placement in read_commit_records(DirFd(path)).pending
        for part in placement.parts
        for staged in part.staged
    ]


def commit(
    target: Target, write: IngestWrite, parts: Sequence[StagedPart], jobs: Iterable[str]
) -> None:
    """Ingests the parts that tasks have staged, those of a partition in the given order; `jobs` are
    the jobs that staged them. Raises LogDirLocked if a broker or an engine has locked a
    directory."""
    if parts:
        engine = LogManager(target.log_dirs, dict(target.configs), unregistered=target.unregistered)
        try:
            placed = ingest_parts(engine, write, parts, _new_topics(engine, target, parts))
        except BaseException:
            with suppress(StorageError, OSError):  # the first error is the one to report
                engine.close()
            raise
        if placed.is_repeated:
            LOGGER.warning("%s was written before; nothing is written again", write)
        _close(engine)
    for job in jobs:
        remove_job(target, job)


def _close(engine: LogManager) -> None:
    """Closes the engine after the write is complete. If that fails, the next opening recovers from
    the unclean shutdown."""
    try:
        engine.close()
    except (StorageError, OSError) as error:
        LOGGER.error("the write is complete, but closing the log directories failed: %s", error)


def _new_topics(engine: LogManager, target: Target, parts: Sequence[StagedPart]) -> dict[str, int]:
    """Returns the topics to create, with their numbers of partitions."""
    if target.create_topics is None:
        return {}
    missing = {part.topic for part in parts} - engine.topics().keys()
    return dict.fromkeys(sorted(missing), target.create_topics)


def remove_job(target: Target, job: str) -> None:
    """Removes all that a job has staged, unless it has a commit record or the commit records cannot
    be read. The next write tries again to remove what cannot be removed now."""
    try:
        if any(f"/{job}/" in path for path in _decided(target)):
            return
    except (StorageError, OSError) as error:
        LOGGER.warning("the staged files of %s are retained: %s", job, error)
        return
    for staging in target.places:
        if _remove(staging, job):
            with suppress(OSError):
                Path(staging.path).rmdir()  # succeeds only for the last job


def _remove(staging: StagingPlace, job: str) -> bool:
    """Removes what a job has staged in one place, or logs why that is impossible; returns whether
    nothing remains. Tasks of another user leave files that the driver's user cannot remove."""
    try:
        staging.remove(job)
    except (OSError, StorageError) as error:
        LOGGER.warning(
            "staged files remain in %s/%s: %s; remove this directory, "
            "and run driver and tasks as the same user",
            staging.path,
            job,
            error,
        )
        return False
    return True
