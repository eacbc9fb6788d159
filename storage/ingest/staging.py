"""Stages segments beside a log directory, from any number of processes, to be ingested at once.

A staging place is a directory outside the log directories, where no broker looks:

    <place>/<job>/<attempt>/<topic>-<partition>/00000000000000000000.log.cleaned …

The files there are complete segments except for offsets and leader epochs, which no checksum covers
and which ingest assigns (see `two_phase`). Until then they belong to no log; an abandoned job is
removed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from posixpath import normpath

from ..config.kafka import TopicConfig
from ..errors import InvalidRecord, OffsetOutOfRange, SegmentGone
from ..format.files.names import partition_dir
from ..format.records.batch import Bytes
from ..format.records.encoder import BatchPlan
from ..format.records.record_columns import RecordColumns
from ..format.records.validate import AppendOrigin, ValidationResult, validate_batches
from ..io.directory import DirectoryEntry
from ..io.durable import WritableDirFd
from ..log.append.preparing import admit_rules, encoded
from .commit_file import STAGING_SUFFIX, StagedPart
from .segment_series import SegmentSeries

# Placeholder: the epoch of the target log is assigned together with the offsets.
_NO_EPOCH_YET = 0
# Attempts to create a directory that another process has just removed.
_TRIES = 3


def staging_path(log_dir: str) -> str:
    """Returns the staging place beside a log directory: on the same file system, unless that is a
    mount point."""
    above, slash, name = log_dir.rstrip("/").rpartition("/")
    return f"{above}{slash}.{name}.{STAGING_SUFFIX}"


class StagingPlace:
    """A directory with the jobs of many processes."""

    def __init__(self, path: str) -> None:
        """Creates nothing; the first job does. Raises ValueError if the path is not absolute, since
        other processes must find it, also after a crash, or if its name lacks the suffix of staging
        places, by which recovery recognises what it may remove."""
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path: {path!r}")
        if not path.endswith(STAGING_SUFFIX):
            raise ValueError(f"not the path of a staging place: {path!r}")
        self.path = normpath("/" + path.lstrip("/"))
        self._directory = WritableDirFd(self.path)

    def attempt(self, job: str, name: str) -> WritableDirFd:
        """Creates a directory in that of a job, which is created if it does not exist."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # the last job to finish removes the place
                return self._made(job, name)
        return self._made(job, name)

    def _made(self, job: str, name: str) -> WritableDirFd:
        self._directory.make_itself()
        with suppress(FileExistsError):
            self._directory.make(job)
            self._directory.sync()
        directory = self._directory.child(job)
        made = directory.make(name)
        directory.sync()
        return made

    def remove(self, job: str) -> None:
        """Removes a job with all its files, if it exists."""
        with suppress(FileNotFoundError):
            self._directory.remove_directory(job)

    def stale(self, is_stale: Callable[[str, int], bool]) -> list[str]:
        """Returns the jobs for which `is_stale(name, last_change_ms)` is true. Another process may
        be removing them."""
        return [
            entry.name
            for entry in self._jobs()
            if is_stale(entry.name, self._changed_ms(entry.name))
        ]

    def _jobs(self) -> list[DirectoryEntry]:
        try:
            return [entry for entry in self._directory.list() if entry.is_dir]
        except SegmentGone:  # nothing was ever staged here
            return []

    def _changed_ms(self, job: str) -> int:
        """Returns the time of the latest change in a job."""
        found = [0]
        _collect_changes(self._directory.child(job), found)
        return max(found) // 1_000_000


def _collect_changes(directory: WritableDirFd, found: list[int]) -> None:
    with suppress(SegmentGone):
        found.append(directory.stat().st_mtime_ns)
        for entry in directory.list(lambda name: True):
            if entry.stat is not None:
                found.append(entry.stat.st_mtime_ns)
            if entry.is_dir:
                _collect_changes(directory.child(entry.name), found)


class StagedWriter:
    """Writes the segments of one partition in one attempt. Single-threaded.

    After an OSError, only `discard` may be called.
    """

    def __init__(
        self,
        attempt: WritableDirFd,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        keeps_offsets: bool = False,
    ) -> None:
        """Creates a directory of its own in that of the attempt. `config`: the topic's. With
        `keeps_offsets` the input has its offsets, ascending, else it gets 0, 1, 2 …"""
        self._attempt = attempt
        self._name = partition_dir(topic, partition)
        self._directory = attempt.make(self._name)
        self._topic = topic
        self._partition = partition
        self._config = config
        self._keeps_offsets = keeps_offsets
        self._rules = admit_rules(config)
        self._series: SegmentSeries | None = None
        self._records = 0

    def append_records(
        self,
        records: RecordColumns,
        plan: BatchPlan,
        now_ms: int,
        base_offset: int | None = None,
    ) -> None:
        """Adds records, in batches according to `plan` and the topic's configs; records without a
        timestamp get `now_ms`. With `keeps_offsets` the first has offset `base_offset`, and the
        others follow.

        Raises InvalidRecord, InvalidTimestamp, MessageTooLarge or OffsetOutOfRange.
        """
        admitted = encoded(records.stamped(now_ms), plan, self._rules, now_ms)
        if base_offset is not None:
            self._check_next(base_offset)
        admitted.place(self._end if base_offset is None else base_offset, _NO_EPOCH_YET)
        self._append(admitted)
        self._records += len(records)

    def append_batches(self, batches: Bytes, now_ms: int) -> None:
        """Adds whole batches, validated as a producer's are; with `keeps_offsets` they stay
        unchanged. A writable buffer is modified. Raises Refused."""
        origin = AppendOrigin.REPLICATION if self._keeps_offsets else AppendOrigin.CLIENT
        admitted = validate_batches(batches, self._rules, origin, now_ms)
        if self._keeps_offsets:
            self._check_next(admitted.first_offset)
        else:
            admitted.place(self._end, _NO_EPOCH_YET)
        if any(header.magic < 2 for header in admitted.table):
            raise InvalidRecord("batches before magic 2 cannot be staged")
        self._append(admitted)
        self._records += admitted.last_offset + 1 - admitted.first_offset

    @property
    def _end(self) -> int:
        return 0 if self._series is None else self._series.end_offset

    def _check_next(self, offset: int) -> None:
        if not self._keeps_offsets:
            raise OffsetOutOfRange("no offset may be given: offsets are assigned at ingest")
        if offset < self._end:
            raise OffsetOutOfRange(f"offset {offset} is below {self._end}, the next offset")

    def _append(self, admitted: ValidationResult) -> None:
        if self._series is None:
            base = admitted.first_offset
            self._series = SegmentSeries(self._directory, base, self._config)
        self._series.append(admitted.data, admitted.table)

    def finish(self) -> StagedPart:
        """Returns the part, durable."""
        segments = () if self._series is None else tuple(self._series.finish())
        self._attempt.sync()
        return StagedPart(
            self._directory.path,
            self._topic,
            self._partition,
            self._keeps_offsets,
            segments,
            self._records,
        )

    def discard(self) -> None:
        """Removes the part's directory."""
        self._series = None
        self._attempt.remove_directory(self._name)


def finish_all(writers: Iterable[StagedWriter]) -> list[StagedPart]:
    """Returns the parts of all writers, durable; writers that got no records are left out."""
    return [part for part in (writer.finish() for writer in writers) if part.segments]
