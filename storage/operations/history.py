"""All versions of a key that are still on the disk, in every file of its partitions.

Besides the records that the log serves, these are records below the log start offset, in deleted
segments, and in segments that compaction has replaced. A record in several files is one version.

The directories of deleted partitions are searched as long as they exist, and those that a broker
set aside as stray. One with the topic id of the partition in use is another replica of it. Another
id is another life of the topic: the records of each life are versions of their own, whatever their
offsets.

Which partition a producer chose for a key depends on its partitioner, and on how many partitions
the topic had, so all selected partitions are searched; and so are all replicas of a partition that
are in the log directories.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from ..errors import CorruptError, LogDirError, SegmentGone, UnknownPartition, UnknownTopic
from ..format.files.names import PartitionState, TopicPartition, may_be_of_topic
from ..format.kernels import keys as kernel
from ..format.layout import MAX_OFFSET
from ..format.records.columns import Columns, Damage, Record
from ..io.directory import Directory
from ..lines.json_output import record_as_json
from ..log.read.log import Log
from ..log.read.on_disk import LogOnDisk, PartitionOnDisk
from ..log.read.transactions import Isolation
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import PartitionDir
from .request import SILENT, PartitionFailed, PartitionsRequest, ProgressListener, per_partition


class VersionState(StrEnum):
    """Whether the log still serves a version, and if not, why."""

    SERVED = "served"
    UNSTABLE = "after the last stable offset"
    BELOW_START = "below the log start offset"
    COMPACTED = "compacted away"
    REPLICA = "only in another replica"
    PAST_END = "past the log end offset"
    DELETED = "in a deleted partition"
    STRAY = "in a stray partition"


@dataclass(frozen=True, slots=True)
class History(PartitionsRequest):
    """Lists all versions of `key` in the selected partitions, by partition and offset. With
    read_committed, those of aborted transactions are left out."""

    key: bytes = b""
    isolation: Isolation = Isolation.READ_COMMITTED

    def units(self, engine: Engine) -> list[TopicPartition]:
        """Returns the partitions, also deleted ones, named ones of the quorum's own log, and
        strays."""
        aside = {(each.topic, each.partition) for each in set_aside(engine)}
        if not self.selection:
            return sorted({*PartitionsRequest.units(self, engine), *aside})
        return [key for name in self.selection.names for key in _partitions(engine, *name)]

    def directories(self, engine: Engine) -> list[Directory]:
        """Returns the directories that are searched."""
        found = (life for key in self.units(engine) for life in lives(engine, key))
        return [each for life in found for each in life.directories]


def _partitions(engine: Engine, topic: str, number: int | None) -> list[TopicPartition]:
    """Returns the partitions of a topic, or one, in use or set aside. Raises UnknownTopic or
    UnknownPartition if there is neither."""
    aside = {each.partition for each in set_aside(engine, topic)}
    try:
        numbers = engine.numbers_of(topic) if number is None else [number]
        for each in numbers:
            if each not in aside:
                engine.partition_dir(topic, each)
    except UnknownTopic:
        if number is not None or not aside:
            raise
        numbers = []
    return [(topic, each) for each in sorted({*numbers, *(aside if number is None else ())})]


def set_aside(engine: Engine, topic: str | None = None) -> list[PartitionDir]:
    """Returns the directories of deleted and stray partitions, or of those of one topic. A log
    directory that cannot be listed is left out, as it is for partitions in use."""
    found: list[PartitionDir] = []
    for log_dir in engine.log_dirs.dirs:
        with suppress(LogDirError, OSError):
            found += (each for each in log_dir.partitions() if each.state in _ASIDE)
    return [each for each in found if topic is None or may_be_of_topic(each.name, topic)]


@dataclass(frozen=True, slots=True)
class Life:
    """The directories of a partition during one life of its topic: that of `log`, of other
    `replicas`, and of those that were deleted or set aside. `state`: that of all its versions; None
    for the partition in use."""

    log: Log
    replicas: Sequence[Directory] = ()
    aside: Sequence[Directory] = ()
    state: VersionState | None = None

    @property
    def directories(self) -> list[Directory]:
        return [self.log.directory, *self.replicas, *self.aside]


def lives(engine: Engine, key: TopicPartition) -> Iterator[Life]:
    """Yields the lives of a partition: those that ended, the one that was last written to at the
    end, then the one in use. Raises UnknownTopic or UnknownPartition if there is none."""
    topic, number = key
    ended: defaultdict[str, list[PartitionDir]] = defaultdict(list)
    for each in set_aside(engine, topic):
        if each.partition == number:
            ended[_topic_id(each) or each.path].append(each)
    current: Life | None = None
    try:
        log = engine.log(*key)
        others = [each for each in engine.copies_of(*key) if each.path != log.path]
        aside = ended.pop(_topic_id(engine.partition_dir(*key)), [])
        current = Life(log, _directories(others), _directories(aside))
    except (UnknownTopic, UnknownPartition):
        if not ended:
            raise
    for dirs in sorted(ended.values(), key=_changed_at):
        first, *rest = dirs
        log = Log(first.directory, topic, number, lambda: 0, engine.context, engine.at_ms)
        yield Life(log, (), _directories(rest), _ASIDE[first.state])
    if current is not None:
        yield current


def _directories(found: Sequence[PartitionDir]) -> list[Directory]:
    return [each.directory for each in found]


def _topic_id(directory: PartitionDir) -> str:
    try:
        return directory.topic_id()
    except (CorruptError, SegmentGone):
        return ""


def _changed_at(directories: Sequence[PartitionDir]) -> int:
    try:
        return max(each.directory.stat().st_mtime_ns for each in directories)
    except SegmentGone:
        return 0


# The states of directories that are no partition in use, and what their records are.
_ASIDE: Final = {
    PartitionState.DELETE: VersionState.DELETED,
    PartitionState.STRAY: VersionState.STRAY,
}


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """A version of a key; a tombstone is a record without a value. `file`: the path of the `.log`
    that holds it; `record.batch` has the position there."""

    topic: str
    partition: int
    record: Record
    file: str
    state: VersionState

    @property
    def is_served(self) -> bool:
        return self.state is VersionState.SERVED

    def as_json(self) -> dict[str, Any]:
        """Returns the record as in `records.jsonl`, and where it was found."""
        return {
            **record_as_json(self.record, self.topic, self.partition),
            "served": self.is_served,
            "state": str(self.state),
            "file": self.file,
            "position": self.record.batch.position,
        }


def history(
    engine: Engine, request: History, progress: ProgressListener = SILENT
) -> Iterator[KeyVersion | PartitionFailed]:
    """Yields the versions by partition, life of the topic and offset, and the damage of files that
    may have held others."""

    def search(key: TopicPartition) -> Iterator[KeyVersion | PartitionFailed]:
        for life in lives(engine, key):
            try:
                found = _Search(engine, key, life, request, progress)
            except (UnknownPartition, SegmentGone):
                if life.state is None:
                    raise
                continue  # its files are being removed
            yield from found.versions()

    return per_partition(engine, request, "searching", search, progress)


@dataclass(frozen=True, slots=True)
class _Found:
    """A record with the key, and the file that holds it."""

    record: Record
    file: LogOnDisk

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def content(self) -> tuple[object, ...]:
        """What two copies of a record have in common. After a truncation, the offset of a deleted
        record has another one."""
        record = self.record
        return record.timestamp, record.key, record.value, tuple(record.headers)


class _Search:
    """The search in one life of a partition."""

    def __init__(
        self,
        engine: Engine,
        key: TopicPartition,
        life: Life,
        request: History,
        progress: ProgressListener,
    ) -> None:
        self._topic, self._partition = key
        self._life = life
        self._request = request
        self._progress = progress
        self._disk = PartitionOnDisk(life.log, life.replicas, engine.at_ms, deleted=life.aside)
        self._damage: list[PartitionFailed] = []

    def versions(self) -> Iterator[KeyVersion | PartitionFailed]:
        for _, copies in groupby(self._in_order(), lambda found: found.offset):
            yield from self._reported()
            yield from self._distinct(copies)
        yield from self._reported()

    def _in_order(self) -> Iterator[_Found]:
        """Yields the records with the key by offset. No file has an offset below its base, so that
        what lies below the next file's base is complete."""
        waiting: Iterable[_Found] = ()
        files = self._disk.files
        ends = [*(file.segment.base_offset for file in files), MAX_OFFSET][1:]
        total = sum(file.segment.size for file in files)
        done = 0
        for file, next_base in zip(files, ends, strict=True):
            self._progress.check()
            self._progress.report("searching", done, total)
            later: list[_Found] = []
            for found in heapq.merge(waiting, self._in_file(file), key=lambda each: each.offset):
                if found.offset < next_base:
                    yield found
                else:
                    later.append(found)
            waiting = later
            done += file.segment.size

    def _in_file(self, file: LogOnDisk) -> Iterator[_Found]:
        hides_aborted = self._request.isolation is Isolation.READ_COMMITTED
        for part in self._disk.scan(file):
            if isinstance(part, Damage):
                where = f"{self._topic}-{self._partition}"
                self._damage.append(PartitionFailed.of(part.error, where))
                continue
            for row in _rows_of(part, self._request.key):
                record = part.record(row)
                batch = record.batch
                if not (hides_aborted and batch.is_transactional and self._disk.is_aborted(batch)):
                    yield _Found(record, file)

    def _reported(self) -> Iterator[PartitionFailed]:
        yield from self._damage
        self._damage.clear()

    def _distinct(self, copies: Iterable[_Found]) -> Iterator[KeyVersion]:
        """Yields the different records among those with one offset, the served one first."""
        by_rank = sorted(copies, key=lambda found: found.file.rank)
        seen: set[tuple[object, ...]] = set()
        for found in by_rank:
            if found.content not in seen:
                seen.add(found.content)
                file = found.file.segment.path
                state = self._state(found)
                yield KeyVersion(self._topic, self._partition, found.record, file, state)

    def _state(self, found: _Found) -> VersionState:
        if self._life.state is not None:
            return self._life.state
        view = self._disk.view
        if found.offset < view.start_offset:
            return VersionState.BELOW_START
        if found.offset >= view.end_offset:
            return VersionState.PAST_END
        if not found.file.is_served:
            is_of_replica = found.file.is_of_replica
            return VersionState.REPLICA if is_of_replica else VersionState.COMPACTED
        is_stable = found.offset < view.bound(self._request.isolation)
        return VersionState.SERVED if is_stable else VersionState.UNSTABLE


def _rows_of(columns: Columns, key: bytes) -> list[int]:
    """Returns the rows whose key is `key`, ascending."""
    rows: list[int] = []
    row = kernel.last_row(columns.data, columns.spans, key)
    while row >= 0:
        rows.append(row)
        row = kernel.last_row(columns.data, columns.spans[:row], key)
    return rows[::-1]
