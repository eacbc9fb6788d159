"""Lists and restores recently deleted records of partitions, and deleted topics."""

from __future__ import annotations

from contextlib import suppress

from ..cleaner.manager import CleanerManager
from ..cleaner.plan import COMPACT
from ..clock import Clock
from ..errors import (
    CannotUndelete,
    LogDirOffline,
    SegmentGone,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)
from ..format.files.names import METADATA_TOPIC, PartitionState, TopicPartition
from ..log.delete.deletions import (
    NEVER_MS,
    NOTHING_DELETED,
    UNKNOWN_MS,
    Cause,
    Deletion,
    select_start,
)
from ..log.load.deleted_front import DeletedFrontFinder
from ..log.load.partition_files import PartitionFiles
from ..log_dirs.deleted_topics import (
    DeletedPartitionDir,
    DeletedTopic,
    deleted_topics,
    read_deleted_dir,
)
from ..log_dirs.engine import Engine
from ..log_dirs.log_opening import LogOpening
from ..log_dirs.selection import Selection
from ..log_dirs.writable_log_dir import WritableLogDir
from ..log_dirs.writable_log_dirs import WritableLogDirs
from .topic_configs import StoredTopicConfigs
from .topics import Topics

_TOPIC_IS_LOST = "it was not deleted recently, or its files were removed"


def found_deletions(engine: Engine, topic: str | None = None) -> list[Deletion]:
    """Returns what other processes have deleted in the directories, or of one topic, and can still
    be restored. Only reads, also beside a live broker, whose deletions vanish. Raises CorruptError
    or OSError."""
    deleted_dirs = [
        [
            read_deleted_dir(each)
            for each in log_dir.partitions()
            if each.state is PartitionState.DELETE
        ]
        for log_dir in engine.log_dirs.dirs
    ]
    deleted = [each.deletion(0) for each in deleted_topics(deleted_dirs)]
    found = [each for each in deleted if topic in (None, each.topic)]
    for key in engine.log_dirs.partitions():
        if key[0] != METADATA_TOPIC and topic in (None, key[0]):
            with suppress(SegmentGone, UnknownTopic, UnknownPartition):  # deleted just now
                found += _found_records(engine, key)
    return sorted(found, key=lambda each: each.deleted_at_ms)


def refuse_undelete(engine: Engine, topic: str, partition: int | None, offset: int | None) -> None:
    """Raises what `LogManager.undelete` would raise in directories that no process has open, as
    far as reading shows. Raises CorruptError or OSError if reading fails."""
    if partition is not None:
        Selection(((topic, partition),)).partitions(engine.topics())
        _refuse_records(engine, (topic, partition), offset)
        return
    found = found_deletions(engine, topic)
    if topic not in engine.topics():
        if not found:
            raise CannotUndelete(topic, _TOPIC_IS_LOST)
    elif not any(each.partition >= 0 for each in found):
        if found:
            raise TopicExists(topic, topic)
        raise CannotUndelete(topic, NOTHING_DELETED)


def _refuse_records(engine: Engine, key: TopicPartition, offset: int | None) -> None:
    found = _found_records(engine, key)
    path = engine.partition_dir(*key).path
    if not found:
        raise CannotUndelete(path, NOTHING_DELETED)
    select_start(path, offset, found[0].start_offset, found[0].end_offset)


def _found_records(engine: Engine, key: TopicPartition) -> list[Deletion]:
    config = engine.topic_config(key[0]).config
    if COMPACT in config.cleanup_policy:
        return []
    view, directory = engine.log(*key).view(), engine.partition_dir(*key).directory
    first_base = view.segments[0].base_offset if len(view.segments) else view.start_offset
    limit = engine.context.limits.max_batch_bytes
    finder = DeletedFrontFinder(directory, config, limit)
    files = PartitionFiles(directory).deleted_segments()
    front = finder.find(files, first_base).segments if files else ()
    lowest = front[0].base_offset if front else first_base
    if lowest >= view.start_offset:
        return []
    segments = tuple(each.base_offset for each in front)
    size = sum(each.size for each in front)
    offsets = lowest, view.start_offset
    return [Deletion(*key, *offsets, segments, (), size, Cause.FOUND, UNKNOWN_MS, NEVER_MS)]


class Restoring:
    """Restores deleted records and topics. Thread-safe; blocks other topic changes meanwhile."""

    def __init__(
        self,
        engine: Engine,
        topics: Topics,
        dirs: WritableLogDirs,
        configs: StoredTopicConfigs,
        opening: LogOpening,
        cleaner: CleanerManager,
        clock: Clock,
    ) -> None:
        """`engine`: for reading."""
        self._engine = engine
        self._topics = topics
        self._dirs = dirs
        self._configs = configs
        self._opening = opening
        self._cleaner = cleaner
        self._clock = clock

    def deleted(self) -> list[Deletion]:
        """See LogManager.deleted."""
        delay_ms, now_ms = self._configs.delete_delay_ms(), self._clock.now_ms()
        topics = [topic.deletion(delay_ms) for topic in self._dirs.deleted_topics()]
        found = [topic for topic in topics if now_ms < topic.until_ms]
        for writer in self._dirs.live_logs().values():
            with suppress(LogDirOffline, UnknownPartition):  # failed or deleted just now
                found += writer.deleted()
        return sorted(found, key=lambda each: each.deleted_at_ms)

    def undelete(self, topic: str, partition: int | None, offset: int | None) -> list[Deletion]:
        """See LogManager.undelete."""
        with self._topics.changing:
            if partition is not None:
                return self._records((topic, partition), offset)
            if topic not in self._engine.topics():
                return [self._topic(topic)]
            keys = [key for key in self._dirs.live_logs() if key[0] == topic]
            requested = [key for key in keys if self._dirs.writer(key).deleted()]
            if not requested and any(_name(each) == topic for each in self._dirs.deleted_topics()):
                raise TopicExists(topic, topic)
            if not requested:
                raise CannotUndelete(topic, NOTHING_DELETED)
            return [found for key in requested for found in self._records(key, offset)]

    # -- records --------------------------------------------------------------------------------

    def _records(self, key: TopicPartition, offset: int | None) -> list[Deletion]:
        writer, log_dir = self._dirs.writer(key), self._dirs.of(key)
        assert log_dir is not None  # the writer's directory
        with self._cleaner.cleaning_state.abort_and_pause(key), log_dir.guarded():
            found = writer.undelete(offset)
            log_dir.checkpoints.write_start_offsets()
            return found

    # -- topics ---------------------------------------------------------------------------------

    def _topic(self, topic: str) -> Deletion:
        found = [each for each in self._dirs.deleted_topics() if _name(each) == topic]
        delay_ms = self._configs.delete_delay_ms()
        if not found or found[-1].deletion(delay_ms).until_ms <= self._clock.now_ms():
            raise CannotUndelete(topic, _TOPIC_IS_LOST)
        newest = found[-1]
        self._topics.refuse_name(topic)
        # The configs come first: a topic's records must never be retained by configs other than its
        # own.
        self._configs.keep(topic, newest.was[0].configs)
        try:
            for number, deleted_dir in newest.partitions:
                self._reopen(self._dirs.dirs[number], deleted_dir)
        except BaseException:
            with suppress(StorageError, OSError):  # report the first error
                self._delete_again(topic, newest)
            raise
        for log_dir in {self._dirs.dirs[number] for number, _ in newest.partitions}:
            log_dir.checkpoints.write()
        return newest.deletion(delay_ms)

    def _reopen(self, log_dir: WritableLogDir, deleted_dir: DeletedPartitionDir) -> None:
        """Reopens a partition of a deleted topic, as after an unclean shutdown."""
        was = deleted_dir.was
        assert was is not None  # only such partitions belong to a topic that can be restored
        key = (was.topic, was.partition)
        log_dir.restore(deleted_dir)
        if was.cleaner_offset >= 0:
            log_dir.checkpoints.put_cleaner_offset(key, was.cleaner_offset)
        with log_dir.guarded():
            config = self._configs.config_of(was.topic)
            log = self._opening.open(log_dir, key, config, is_clean=False, finds_deleted=True)
            log_dir.logs[key] = log

    def _delete_again(self, topic: str, deleted: DeletedTopic) -> None:
        """Deletes what was already restored of the topic; the knowledge about it is preserved."""
        there = self._engine.log_dirs.partitions()
        for number, deleted_dir in deleted.partitions:
            if deleted_dir.was is not None and (topic, deleted_dir.was.partition) in there:
                key = (topic, deleted_dir.was.partition)
                self._dirs.dirs[number].delete(key, deleted_dir.was, deleted_dir.since_ms)
        self._configs.keep(topic, {})


def _name(deleted: DeletedTopic) -> str:
    return deleted.was[0].topic
