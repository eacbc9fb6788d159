"""Builds a new log directory for a job, under a temporary name until it is complete.

Tasks write its logs and recover its partitions (see `storage.operations.new_log_dir`). Finally the
directory is closed and renamed. The sources are never written to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkafs.storage import (
    LogDirError,
    Notes,
    PartitionDir,
    Settled,
    SettleUnit,
    TopicPartition,
    WritableDirFd,
    WritableFile,
    close_log_dir,
    make_partition,
    new_log,
    partition_dir,
    settle,
    settle_unit,
)

from ..read.planning import refuse_within_log_dir
from .job_log_dirs import JobLogDirs
from .tasks import OnProgress, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_UNFINISHED: Final = ".unfinished"
_NOTES: Final = ".notes"


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

    def make_partition(
        self, dirs: JobLogDirs, key: TopicPartition, without: Sequence[str] = ()
    ) -> None:
        """Creates the directory of a partition, with its small files except those in `without`."""
        make_partition(dirs.engine(), key, WritableDirFd(self._unfinished), without)

    def partition(self, key: TopicPartition) -> WritableDirFd:
        return WritableDirFd(self._unfinished).child(partition_dir(*key))

    def new_log(
        self, key: TopicPartition, base_offset: int, mtime_ns: int
    ) -> AbstractContextManager[WritableFile]:
        """Opens a `.log` to write to, which appears when the block ends."""
        return new_log(self.partition(key), base_offset, mtime_ns)

    def settle_all(
        self,
        spark: SparkSession,
        dirs: JobLogDirs,
        partitions: Sequence[PartitionDir],
        on_progress: OnProgress,
    ) -> list[Settled]:
        """Recovers all partitions in tasks; small ones share a task."""
        units = []
        for found in partitions:
            key = (found.topic, found.partition)
            start = found.log_dir.log_start_offsets.get(key, 0)
            units.append(settle_unit(key, start, self.partition(key)))
        work = partial(self.settle, dirs)
        what = "settle the new partitions"
        return run(spark, what, units, work, lambda each: each.size, on_progress)

    def settle(self, dirs: JobLogDirs, unit: SettleUnit) -> Settled:
        """Recovers a partition whose `.log` files are all written. Idempotent."""
        return settle(dirs.engine(), unit, self.partition((unit.topic, unit.partition)))

    def finish(self, settled: Iterable[Settled], dirs: JobLogDirs, notes: Notes) -> None:
        """Writes the files of the log directory itself, and renames it, after all partitions are
        recovered."""
        close_log_dir(dirs.engine(), settled, WritableDirFd(self._unfinished))
        above, name = os.path.split(self.path)
        parent = WritableDirFd(above)
        parent.rename(name + _UNFINISHED, name)
        parent.sync()
        notes.remove()
