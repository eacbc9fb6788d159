"""Segments made beside a log directory, by any number of processes, to be placed in it at once.

A staging place is a directory outside of the log directories, where no broker looks:

    <place>/<job>/<attempt>/<topic>-<partition>/00000000000000000000.log.cleaned …

What is written there is a log's segments but for offsets and leader epochs, which no checksum
covers: those are given when it is placed (see `placing`). Until then it is nobody's; a job that
came to nothing is removed as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from posixpath import normpath

from .config import TopicConfig
from .disk import Entry
from .durable import WritableDirectory
from .errors import InvalidRecord, OffsetOutOfRange, SegmentGone
from .format.batch import Bytes
from .format.encoder import BatchPlan, RecordColumns
from .format.names import partition_dir
from .format.origin import Origin
from .format.validate import Admitted, judge
from .log.preparing import admit_rules, encoded
from .placements import STAGING_SUFFIX, StagedPart
from .segment_series import SegmentSeries

# Ours; the epoch of the log that takes the batches comes with their offsets.
_NO_EPOCH_YET = 0
# How often a directory is made again that somebody else has just removed.
_TRIES = 3


def staging_path(log_dir: str) -> str:
    """The place beside a log directory: on the same file system, unless that is a mount point."""
    above, slash, name = log_dir.rstrip("/").rpartition("/")
    return f"{above}{slash}.{name}.{STAGING_SUFFIX}"


class StagingPlace:
    """A directory with the jobs of many processes in it."""

    def __init__(self, path: str) -> None:
        """It is made by the first job. ValueError for a path that is not absolute: other processes
        have to find it, and whoever goes on after a crash; and for one whose name does not end as
        those of all staging places do, by which that one knows what it may remove."""
        if not path.startswith("/"):
            raise ValueError(f"not an absolute path: {path!r}")
        if not path.endswith(STAGING_SUFFIX):
            raise ValueError(f"not the name of a staging place: {path!r}")
        self.path = normpath("/" + path.lstrip("/"))
        self._directory = WritableDirectory(self.path)

    def attempt(self, job: str, name: str) -> WritableDirectory:
        """A new directory in that of a job, which is made where it does not exist yet."""
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):  # the last one to leave removes the place
                return self._made(job, name)
        return self._made(job, name)

    def _made(self, job: str, name: str) -> WritableDirectory:
        self._directory.make_itself()
        with suppress(FileExistsError):
            self._directory.make(job)
            self._directory.sync()
        directory = self._directory.child(job)
        made = directory.make(name)
        directory.sync()
        return made

    def remove(self, job: str) -> None:
        """Removes a job and all that is in it, if it is there."""
        with suppress(FileNotFoundError):
            self._directory.remove_directory(job)

    def remove_stale(self, is_stale: Callable[[str, int], bool]) -> list[str]:
        """Removes the jobs of which `is_stale(name, last_change_ms)` is true; their names. What
        somebody else is removing is left to that one."""
        stale = [
            entry.name
            for entry in self._jobs()
            if is_stale(entry.name, self._changed_ms(entry.name))
        ]
        for job in stale:
            self.remove(job)
        return stale

    def _jobs(self) -> list[Entry]:
        try:
            return [entry for entry in self._directory.list() if entry.is_dir]
        except SegmentGone:  # nothing was ever staged here
            return []

    def _changed_ms(self, job: str) -> int:
        """When anything in a job was changed last."""
        found = [0]
        _collect_changes(self._directory.child(job), found)
        return max(found) // 1_000_000


def _collect_changes(directory: WritableDirectory, found: list[int]) -> None:
    with suppress(SegmentGone):
        found.append(directory.stat().st_mtime_ns)
        for entry in directory.list(lambda name: True):
            if entry.stat is not None:
                found.append(entry.stat.st_mtime_ns)
            if entry.is_dir:
                _collect_changes(directory.child(entry.name), found)


class StagedWriter:
    """The segments of one partition that one attempt makes. One thread at a time.

    After an OSError it is good for nothing but `discard`.
    """

    def __init__(
        self,
        attempt: WritableDirectory,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        keeps_offsets: bool = False,
    ) -> None:
        """In a directory of its own in that of the attempt. `config`: the topic's. With
        `keeps_offsets` what comes has its offsets, ascending, else it gets 0, 1, 2 …"""
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
        """Adds records, in batches as `plan` says and the topic wants them; those without a
        timestamp get `now_ms`. With `keeps_offsets` the first has offset `base_offset`, and the
        others the next ones.

        InvalidRecord, InvalidTimestamp, MessageTooLarge; OffsetOutOfRange.
        """
        admitted = encoded(records.stamped(now_ms), plan, self._rules, now_ms)
        if base_offset is not None:
            self._check_next(base_offset)
        admitted.place(self._end if base_offset is None else base_offset, _NO_EPOCH_YET)
        self._append(admitted)
        self._records += len(records)

    def append_batches(self, batches: Bytes, now_ms: int) -> None:
        """Adds whole batches, judged as a producer's are; with `keeps_offsets` they stay as they
        are. A writable buffer is changed. Raises Refused."""
        origin = Origin.REPLICATION if self._keeps_offsets else Origin.CLIENT
        admitted = judge(batches, self._rules, origin, now_ms)
        if self._keeps_offsets:
            self._check_next(admitted.first_offset)
        else:
            admitted.place(self._end, _NO_EPOCH_YET)
        if any(header.magic < 2 for header in admitted.table):
            raise InvalidRecord("batches before magic 2 are not staged")
        self._append(admitted)
        self._records += admitted.last_offset + 1 - admitted.first_offset

    @property
    def _end(self) -> int:
        return 0 if self._series is None else self._series.end_offset

    def _check_next(self, offset: int) -> None:
        if not self._keeps_offsets:
            raise OffsetOutOfRange("offsets are given when it is placed")
        if offset < self._end:
            raise OffsetOutOfRange(f"offset {offset} is below {self._end}, which comes next")

    def _append(self, admitted: Admitted) -> None:
        if self._series is None:
            base = admitted.first_offset
            self._series = SegmentSeries(self._directory, base, self._config)
        self._series.append(admitted.data, admitted.table)

    def finish(self) -> StagedPart:
        """All of it, durable."""
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
        """Removes it."""
        self._series = None
        self._attempt.remove_directory(self._name)


def finish_all(writers: Iterable[StagedWriter]) -> list[StagedPart]:
    """What all of them have made, durable; those that got nothing are left out."""
    return [part for part in (writer.finish() for writer in writers) if part.segments]
