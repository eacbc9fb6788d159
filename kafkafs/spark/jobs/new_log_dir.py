"""Builds a new log directory for a job, under a temporary name until it is complete.

Tasks write `.log` files to it, each atomically. Then the storage engine recovers each partition as
after a crash, which creates its indexes, snapshots and leader epochs. Finally the directory is
marked as cleanly shut down and renamed. The sources are never written to.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import (
    CLEAN_SHUTDOWN_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_FILE,
    TEMPORARY_SUFFIX,
    TOPIC_CONFIGS_FILE,
    FileKind,
    LogDir,
    LogLoader,
    PartitionDir,
    TopicPartition,
    WritableDirFd,
    WritableFile,
    broker_config,
    format_clean_shutdown,
    format_offsets,
    parse_segment_file,
    partition_dir,
    segment_file,
)
from kafkafs.storage.errors import LogDirError, SegmentGone, fresh

from ..read.planning import refuse_within_log_dir
from .job_log_dirs import JobLogDirs
from .notes import Notes
from .tasks import OnProgress, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNFINISHED: Final = ".unfinished"
_NOTES: Final = ".notes"
_NO_BROKER_EPOCH: Final = -1
_MAX_SMALL_FILE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Settled:
    """A recovered partition of the new directory: offsets [`start_offset`, `end_offset`)."""

    key: TopicPartition
    start_offset: int
    end_offset: int
    segments: int
    size: int


@dataclass(frozen=True, slots=True)
class NewLogDir:
    """The new directory, which will be at `path`. Can be pickled; all workers must see it."""

    path: str

    @property
    def _unfinished(self) -> str:
        return self.path + _UNFINISHED

    def begin(
        self, job: dict[str, Any], sources: Sequence[str] = ()
    ) -> tuple[Notes, dict[str, Any]]:
        """Starts the directory, or resumes it if the same job left it unfinished. Returns the
        notes, and the description of the job from when it started. Raises LogDirError if `path`
        exists or is inside one of the log directories `sources` or another one; OtherJob."""
        if os.path.lexists(self.path):
            raise LogDirError(self.path, "already exists; choose the path of a new directory")
        refuse_within_log_dir(self.path, sources)
        self._remove_half()
        begun = Notes.of_job(self.path + _NOTES, job)
        WritableDirFd(self._unfinished).make_itself()
        return begun

    def _remove_half(self) -> None:
        """Removes files without notes and notes without files, as neither is of use alone."""
        notes = Notes(self.path + _NOTES)
        above, name = os.path.split(self.path)
        parent = WritableDirFd(above)
        has_files = os.path.lexists(self._unfinished)
        if notes.job() is None and has_files:
            parent.remove_directory(name + _UNFINISHED)
        elif notes.job() is not None and not has_files:
            notes.remove()

    def make_partition(self, found: PartitionDir, without: Sequence[str] = ()) -> None:
        """Creates the directory of a partition like `found`, with its small files except those in
        `without`. An existing directory is kept."""
        log_dir = WritableDirFd(self._unfinished)
        with suppress(FileExistsError):
            log_dir.make(found.name)
        directory = log_dir.child(found.name)
        for entry in found.directory.list():
            # Excludes files that depend on offsets and those that are about to be deleted.
            is_small = entry.is_file and parse_segment_file(entry.name) is None
            if is_small and entry.name not in without:
                data = found.directory.read_small(entry.name, _MAX_SMALL_FILE)
                directory.write_atomically(entry.name, data)
        directory.sync()

    def partition(self, key: TopicPartition) -> WritableDirFd:
        return WritableDirFd(self._unfinished).child(partition_dir(*key))

    @contextmanager
    def new_log(
        self, key: TopicPartition, base_offset: int, mtime_ns: int
    ) -> Iterator[WritableFile]:
        """Yields a `.log` to write to, which appears durably and atomically when the block ends."""
        directory = self.partition(key)
        name = segment_file(base_offset, FileKind.LOG)
        # Attempts of one task may run at the same time.
        temporary = f"{name}.{os.getpid()}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
        file = directory.create(temporary)
        try:
            yield file
            file.set_mtime_ns(mtime_ns)
            file.sync()
            directory.rename(temporary, name)
            directory.sync()
        except BaseException:
            directory.remove(temporary, missing_ok=True)
            raise

    def settle_all(
        self,
        spark: SparkSession,
        dirs: JobLogDirs,
        partitions: Sequence[PartitionDir],
        on_progress: OnProgress,
    ) -> list[Settled]:
        """Recovers all partitions in tasks; small ones share a task."""
        works = []
        for found in partitions:
            key = (found.topic, found.partition)
            listed = self.partition(key).list(lambda name: name.endswith(FileKind.LOG))
            size = sum(entry.stat.st_size for entry in listed if entry.stat is not None)
            works.append((key, found.log_dir.log_start_offsets.get(key, 0), size))
        work = partial(_settle, self, dirs)
        return run(
            spark, "settle the new partitions", works, work, lambda each: each[2], on_progress
        )

    def settle(self, dirs: JobLogDirs, key: TopicPartition, start_offset: int) -> Settled:
        """Recovers a partition whose `.log` files are all written. Idempotent."""
        directory = self.partition(key)
        for entry in directory.list():
            if entry.name.endswith(TEMPORARY_SUFFIX):
                directory.remove(entry.name, missing_ok=True)
        engine = dirs.engine()
        plan = LogLoader(
            directory,
            recovery_point=0,
            start_offset=start_offset,
            is_clean=False,
            config=engine.topic_config(key[0]).config,
            now_ms=time.time_ns() // 1_000_000,
            limits=engine.context.limits,
            expiration_ms=broker_config(engine.configs).producer_id_expiration_ms,
        ).plan()
        if plan.faults:  # unexpected: only valid batches were written
            raise fresh(plan.faults[0])
        plan.apply(directory)
        size = sum(segment.size for segment in plan.segments)
        return Settled(key, plan.start_offset, plan.end_offset, len(plan.segments), size)

    def finish(self, settled: Iterable[Settled], source: LogDir, notes: Notes) -> None:
        """Writes the files of the log directory itself, and renames it, after all partitions are
        recovered."""
        directory = WritableDirFd(self._unfinished)
        for name in (META_PROPERTIES_FILE, TOPIC_CONFIGS_FILE):
            with suppress(SegmentGone):
                data = source.directory.read_small(name, _MAX_SMALL_FILE)
                directory.write_atomically(name, data)
        ends = {each.key: each.end_offset for each in settled}
        starts = {each.key: each.start_offset for each in settled if each.start_offset}
        offsets: Mapping[str, Mapping[TopicPartition, int]] = {
            RECOVERY_POINT_FILE: ends,
            HIGH_WATERMARK_FILE: ends,
            LOG_START_OFFSET_FILE: starts,
        }
        for name, values in offsets.items():
            directory.write_atomically(name, format_offsets(values))
        directory.write_atomically(CLEAN_SHUTDOWN_FILE, format_clean_shutdown(_NO_BROKER_EPOCH))
        above, name = os.path.split(self.path)
        parent = WritableDirFd(above)
        parent.rename(name + _UNFINISHED, name)
        parent.sync()
        notes.remove()


def _settle(target: NewLogDir, dirs: JobLogDirs, work: tuple[TopicPartition, int, int]) -> Settled:
    key, start_offset, _ = work
    return target.settle(dirs, key, start_offset)
