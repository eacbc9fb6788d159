"""Searches the files of partitions for records that are to be erased.

These are all `.log` files in the directories of a partition, of its replicas, of its earlier lives,
and what kafkafs has staged for it beside the log directories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from os.path import abspath, basename, dirname, realpath
from typing import Final

import numpy as np

from ..cleaner.manager import OnProgress
from ..cleaner.split.place import COMPACTION_SUFFIX, compaction_path
from ..concurrency.read_ahead import parallel_map, processors
from ..erasure.finding import FindRows
from ..errors import LogDirError, NotErased, SegmentGone, UnknownPartition, fresh
from ..format.files.names import PartitionState, TopicPartition, parse_partition_dir, partition_dir
from ..format.records.batch import Int64s
from ..format.records.columns import Damage
from ..ingest.commit_file import STAGING_SUFFIX
from ..ingest.staging import staging_path
from ..io.directory import Directory
from ..io.disk import DirFd
from ..log.read.on_disk import LogOnDisk, PartitionOnDisk
from ..log_dirs.engine import Engine
from ..segment.segment import Segment
from .history import Life, lives
from .request import PartitionFailed

_HASHED_BYTES: Final = 1 << 20
# Files searched at a time, each by a thread.
_MOST_SEARCHERS: Final = 4
# A staging place has jobs, these have attempts, and these have partitions.
_STAGED_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class Match:
    """A file with records to erase, and the life of the partition to which it belongs. `offsets`:
    those of the records, ascending; none if the file is unfinished output of the cleaner that ends
    with a part of a batch, which may hold such records."""

    file: LogOnDisk
    life: Life
    offsets: Int64s

    @property
    def segment(self) -> Segment:
        return self.file.segment

    @property
    def path(self) -> str:
        return self.segment.path

    @property
    def is_certain(self) -> bool:
        """Whether the file is known to hold such records."""
        return len(self.offsets) > 0

    @property
    def is_in_use(self) -> bool:
        """Whether it is in the partition's own directory."""
        return self.life.state is None and not self.file.is_of_replica

    @property
    def is_of_log(self) -> bool:
        """Whether it is a segment of the log, and neither a leftover nor in another directory."""
        return self.is_in_use and self.file.is_served

    @property
    def is_of_compaction(self) -> bool:
        """Whether an unfinished compaction by many processes has staged it."""
        return COMPACTION_SUFFIX in self.path and not self.is_in_use

    def failure(self) -> PartitionFailed | None:
        """Returns why the records cannot be erased from this file, if so."""
        if self.is_in_use or self.is_of_compaction:
            return None
        parsed = parse_partition_dir(basename(dirname(self.path)))
        state = None if parsed is None else parsed.state
        if state is PartitionState.DELETE:
            return None
        if state is PartitionState.STRAY:
            why = "it belongs to a stray partition, which `purge --stray` removes"
        elif STAGING_SUFFIX in self.path:
            job = dirname(dirname(dirname(self.path)))
            why = f"a Spark job has staged it; end the job, and remove {job}"
        else:
            why = "it belongs to a replica that is not served"
        return PartitionFailed.of(NotErased(self.path, why, self.is_certain))

    def doubt(self) -> PartitionFailed:
        """Returns why an unfinished file stays, in a partition that has no such records."""
        why = "it is unfinished output of the cleaner, whose end cannot be read; `purge` removes it"
        return self.failure() or PartitionFailed.of(NotErased(self.path, why, self.is_certain))

    def sha256(self) -> str:
        """Returns the hash of the file, in hexadecimal digits."""
        file, found = self.segment.files.log(), hashlib.sha256()
        for position in range(0, self.segment.size, _HASHED_BYTES):
            found.update(file.read(position, min(_HASHED_BYTES, self.segment.size - position)))
        return found.hexdigest()


def search(
    engine: Engine,
    key: TopicPartition,
    find: FindRows,
    *,
    is_by_offset: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> Iterator[Match]:
    """Yields the `.log` files in all directories of a partition that hold records to erase; with
    `is_by_offset` not those with other records at the same offset. Raises CorruptError if one
    cannot be read, except for the cleaner's unfinished output."""
    staged = [] if is_by_offset else list(_staged(engine, key))
    for life in lives(engine, key):
        if is_by_offset and life.state is not None:
            continue  # in another life of the topic, it is the offset of another record
        replicas = [*life.replicas, *(_futures(engine, key) if life.state is None else ())]
        aside = [*life.aside, *(staged if life.state is None else ())]
        try:
            disk = PartitionOnDisk(life.log, replicas, deleted=aside)
        except (UnknownPartition, SegmentGone):
            if life.state is None:
                raise
            continue  # its files are being removed
        total, done = sum(file.segment.size for file in disk.files), 0
        searcher = _Searcher(disk, find)
        workers = [searcher.offsets] * min(processors(), _MOST_SEARCHERS)
        results = parallel_map((file for file in disk.files), workers, on_demand=0)
        try:
            for file, offsets in zip(disk.files, results, strict=True):
                on_progress(done, total)
                done += file.segment.size
                if offsets is not None:
                    yield Match(file, life, offsets)
        finally:
            searcher.is_over = True


@dataclass(slots=True)
class _Searcher:
    """Searches files of a partition. Thread-safe. `is_over`: nobody waits for the results."""

    disk: PartitionOnDisk
    find: FindRows
    is_over: bool = False

    def offsets(self, file: LogOnDisk) -> Int64s | None:
        """Returns the offsets of the records to erase in a file, ascending; none if a part of an
        unfinished file cannot be read; None if there are none."""
        found = [np.empty(0, dtype=np.int64)]
        is_whole = True
        for part in self.disk.scan(replace(file, is_unfinished=False)):
            if self.is_over:
                return None
            if not isinstance(part, Damage):
                found.append(part.offsets[self.find(part)])
            elif file.is_unfinished:
                is_whole = False
            else:
                raise fresh(part.error)
        offsets: Int64s = np.concatenate(found)
        return offsets if len(offsets) or not is_whole else None


def _futures(engine: Engine, key: TopicPartition) -> Iterator[Directory]:
    """Yields the directories into which a broker was moving the partition."""
    for log_dir in engine.log_dirs.dirs:
        for each in log_dir.partitions():
            is_future = each.state is PartitionState.FUTURE
            if is_future and (each.topic, each.partition) == key:
                yield each.directory


def _staged(engine: Engine, key: TopicPartition) -> Iterator[Directory]:
    """Yields the directories beside the log directories in which kafkafs has staged files that may
    be of the partition: what Spark jobs write, and what an unfinished compaction has made."""
    name = partition_dir(*key)
    for path in log_dir_paths(engine):
        for directory in _below(DirFd(staging_path(path)), _STAGED_DEPTH):
            if basename(directory.path) == name:
                yield directory
        yield from _below(DirFd(compaction_path(path)), _STAGED_DEPTH)


def log_dir_paths(engine: Engine) -> list[str]:
    """Returns the absolute paths of the log directories, beside which something may be staged; of a
    link both its own and that of the directory."""
    paths = [each.path for each in engine.log_dirs.dirs]
    return list(dict.fromkeys(made(path) for path in paths for made in (abspath, realpath)))


def _below(directory: Directory, depth: int) -> Iterator[Directory]:
    """Yields the directories in a directory, down to a depth. What is removed meanwhile, and what
    is not a directory, is left out."""
    try:
        entries = directory.list(lambda name: True)
    except (SegmentGone, LogDirError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir:
            child = directory.child(entry.name)
            yield child
            if depth > 1:
                yield from _below(child, depth - 1)
