"""Log directories opened for writing: topics made and deleted, logs recovered, kept and closed.

Kafka's LogManager. One engine or broker at a time holds a directory, so everything in it is this
one's to change. Reading goes on as in `Engine`, which this is, too; no reader waits for a writer.

    with WritableEngine("/data") as engine:
        engine.create_topic("orders", 3, {"retention.ms": "86400000"})
        engine.writer("orders", 0).append_records(records)
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from . import placing
from .cleaner.cleaning import check_rate
from .cleaner.manager import CleanerManager
from .cleaner.plan import COMPACT
from .clock import Clock, SystemClock
from .config import Resolved, TopicConfig, broker_config, lag_conflict, run_settings, topic_config
from .deleted_topics import DeletedPartition, DeletedTopic, Doomed, deleted_topics
from .engine import Engine
from .errors import (
    CannotUndelete,
    InvalidPartitions,
    InvalidTopic,
    LogDirError,
    LogDirOffline,
    StorageError,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
    printable,
)
from .format.checkpoints import MetaProperties
from .format.names import METADATA_TOPIC, PartitionState, is_legal_topic, partition_dir
from .format.uuids import is_uuid_text, random_uuid_text
from .held_directory import hold, identify
from .log import recovery
from .log.deletions import Deletion
from .log.recovery import RecoveryPlan
from .log.writer import LogWriter
from .log_dir import LogDir, PartitionDir, TopicPartition
from .placements import Placements
from .tasks import Tasks, TaskStatus
from .topic_settings import TopicSettings
from .transaction_log import TransactionLog, read_decisions
from .transactional import finish_decided
from .upkeep import Upkeep
from .writable_log_dir import WritableLogDir

# As many as one request to a controller may ask for (ReplicationControlManager).
_MAX_PARTITIONS = 10_000


class WritableEngine(Engine):
    """Several log directories, held and opened for writing until `close`.

    Any thread may call. What changes something raises LogDirOffline when the directory concerned
    has failed; an OSError that says nothing about the disk (ENOSPC) comes as it is, and the call
    can be repeated.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        settings: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        *,
        owner: MetaProperties | None = None,
        loaded: Callable[[int, int], None] | None = None,
        recovered: Callable[[TopicPartition, RecoveryPlan], None] | None = None,
        keeps_deleted: bool = False,
    ) -> None:
        """Makes the directories that do not exist, holds all, and opens every partition,
        recovering those that were not closed in good order.

        `owner`: cluster and node that the directories belong to, as a broker would be told;
        checked, and given to those that are nobody's. `loaded` is told how many partitions of how
        many are open, and `recovered` what was done to one that needed it; both by any thread.
        `keeps_deleted`: what was deleted before, and would be removed now, can be brought back for
        file.delete.delay.ms from now on.
        LogDirLocked when somebody else has a directory, LogDirError when one is something else or
        they do not belong together, ConfigError for a setting that Kafka would refuse, CorruptError
        for a damaged file of topic settings.
        """
        self.clock = clock or SystemClock()
        self.broker_config = broker_config(run_settings((settings or {}).items()))
        check_rate(self.broker_config.log_cleaner_io_max_bytes_per_second)
        self._changing = threading.RLock()  # over topics being made, deleted, configured
        self._closed = False
        self._incarnations: dict[str, int] = {}
        self._recovered = recovered or (lambda key, planned: None)
        self._keeps_deleted = keeps_deleted
        self._background = ThreadPoolExecutor(1, thread_name_prefix="kafkafs-flush")
        with ExitStack() as undo:
            held = hold(paths, undo)
            identify(held, owner, self.clock.now_ms())
            super().__init__([each.directory.path for each in held], settings)
            self._refuse_twice()
            self._topic_settings = TopicSettings([each.directory for each in held])
            self._is_settings_file_right = True
            for directory in self._topic_settings.stale:
                self._topic_settings.write(directory)
            self._dirs = [
                WritableLogDir(each, log_dir, self.clock)
                for each, log_dir in zip(held, self.log_dirs.dirs, strict=True)
            ]
            self.cleaner = CleanerManager(
                self._dirs, lambda key: self.log(*key).view(), self.broker_config, self.clock
            )
            self.upkeep = Upkeep(self._dirs, self.cleaner, self.clock, self._delete_delay_ms)
            self._tasks = Tasks(self.upkeep.tasks(self.broker_config), self.clock)
            self.transactions = TransactionLog(lambda: [each.directory for each in self._live()])
            self.placements = Placements(
                [each.directory for each in held], lambda: [each.directory for each in self._live()]
            )
            self._resume_placing()
            self._load(loaded or (lambda done, of: None))
            placing.finish_decided(self)
            decided = [read_decisions(each.directory) for each in held]
            finish_decided(self, itertools.chain.from_iterable(decided))
            undo.pop_all()

    # -- partitions -----------------------------------------------------------------------------

    def writer(self, topic: str, partition: int) -> LogWriter:
        """One partition, to append to. UnknownTopic; UnknownPartition, also for the quorum's own
        log and for what could not be opened; LogDirOffline."""
        key = (topic, partition)
        log_dir = self._dir_of(key)
        self._refuse_offline(log_dir)
        writer = log_dir.logs.get(key) if log_dir is not None else None
        if writer is None:
            self.partition_dir(topic, partition)  # raises what it is that is not there
            raise UnknownPartition(topic, partition)
        return writer

    def writers(self) -> dict[TopicPartition, LogWriter]:
        """All partitions that can be written to, by topic and number."""
        live = (each.logs for each in self._live())
        return dict(sorted(itertools.chain.from_iterable(map(dict.items, live))))

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        """Cuts off a partition's records at and above `offset`, and gives up a cleaning of it that
        is under way (LogManager.truncateTo). Otherwise as `writer`."""
        key = (topic, partition)
        writer = self.writer(*key)
        log_dir = self._dir_of(key)
        with self.cleaner.claims.paused(key):
            if writer.truncate_to(offset) and log_dir is not None:
                log_dir.checkpoint_recovery_points()
                log_dir.limit_cleaner_offset(key, writer.retention_state().segments[-1].base_offset)

    # -- topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        settings: Mapping[str, str] | None = None,
        topic_id: str = "",
    ) -> str:
        """Makes a topic with partitions 0 to `partitions` - 1; its id, a new one unless given.

        InvalidTopic, TopicExists, InvalidPartitions, ConfigError. When it cannot be finished
        nothing of it is left.
        """
        with self._changing:
            self._refuse_topic(topic)
            _refuse_count(partitions)
            topic_id = topic_id or random_uuid_text()
            if not is_uuid_text(topic_id):
                raise InvalidTopic(f"not a topic's id: {printable(topic_id)}")
            resolved = self._check_settings(topic, settings or {})
            # First the settings: what a topic holds must never be kept by others than its own.
            self._keep_settings(topic, settings or {})
            try:
                self._make_partitions(topic, range(partitions), topic_id, resolved)
            except BaseException:
                with suppress(StorageError, OSError):  # the first error is the one to tell
                    self._remove(topic)
                raise
            return topic_id

    def create_partitions(self, topic: str, total: int) -> None:
        """Raises the number of a topic's partitions to `total`. UnknownTopic, InvalidPartitions."""
        with self._changing:
            there = self._partitions_of(topic)
            count = there[-1] + 1
            _refuse_count(total)
            if total <= count:
                raise InvalidPartitions(f"{topic} has {count} partitions, not fewer than {total}")
            resolved = self.topic_config(topic)
            self._make_partitions(topic, range(count, total), self.topic_id(topic), resolved)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic. Its files are removed after file.delete.delay.ms. UnknownTopic."""
        with self._changing:
            for number in self._partitions_of(topic):
                self._refuse_offline(self._dir_of((topic, number)))
            self._remove(topic, comes_back=True)

    def delete_unchanged_topic(self, topic: str, ends: Mapping[int, int]) -> bool:
        """The same, if it has exactly the partitions in `ends` and each ends at the offset given
        for it there; False when it does not. No append comes in between. UnknownPartition when one
        of them could not be opened."""
        with self._changing:
            if self._partitions_of(topic) != sorted(ends):
                return False
            writers = [self.writer(topic, number) for number in ends]
            with ExitStack() as undo:
                for writer, end in zip(writers, ends.values(), strict=True):
                    if not writer.seal(end):
                        return False
                    undo.callback(writer.unseal)
                self._remove(topic, comes_back=True)
            return True

    def set_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> Resolved:
        """Changes a topic's settings in kafkafs's own file, where None takes one away, and lets
        them count from now on. UnknownTopic; ConfigError, and then nothing is changed."""
        with self._changing:
            self._partitions_of(topic)
            settings = self._topic_settings.changed(topic, changes)
            resolved = self._check_settings(topic, settings)
            self._keep_settings(topic, settings)
            for key, writer in self.writers().items():
                if key[0] == topic:
                    self._configure(key, writer, resolved.config)
            return resolved

    def _configure(self, key: TopicPartition, writer: LogWriter, config: TopicConfig) -> None:
        """What is no longer compacted is not cleaned any further (LogManager.updateTopicConfig)."""
        before = writer.config
        writer.config = config
        if COMPACT in before.cleanup_policy and COMPACT not in config.cleanup_policy:
            self.cleaner.claims.abort(key)

    def incarnation(self, topic: str) -> int:
        """How many topics of this name were deleted since the directories were opened: what was
        known of one is not to be taken for the next one's."""
        return self._incarnations.get(topic, 0)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """What is kept of the topic in kafkafs's own file."""
        return self._topic_settings.of(topic)

    # -- bringing back --------------------------------------------------------------------------

    def deleted(self) -> list[Deletion]:
        """What was deleted and can be brought back: records of partitions, by whatever rule, and
        whole topics; what went first before what went later."""
        delay_ms, now_ms = self._delete_delay_ms(), self.clock.now_ms()
        topics = [topic.deletion(delay_ms) for topic in self._deleted_topics()]
        found = [topic for topic in topics if now_ms < topic.until_ms]
        for writer in self.writers().values():
            with suppress(LogDirOffline, UnknownPartition):  # it failed, or was deleted, just now
                found += writer.deleted()
        return sorted(found, key=lambda each: each.deleted_at_ms)

    def undelete(
        self, topic: str, partition: int | None = None, offset: int | None = None
    ) -> list[Deletion]:
        """Brings back, durably, what was deleted: of a partition all from `offset` on, None: all
        that is still there; without a partition the whole topic, with its settings and id, where it
        was deleted, else what is still there of each partition. What came back.

        A topic comes back as it was. What was deleted of it before, and is still there, is listed
        then, and can be brought back, too.

        Retention by time and size would delete it again at once: it leaves the log alone below what
        came back for file.delete.delay.ms. Who wants to keep it longer changes the topic's
        settings. Deleting records, or the topic, counts at once.

        CannotUndelete; TopicExists when there is another topic of the deleted one's name;
        UnknownPartition; LogDirOffline. After another OSError nothing has changed, or of several
        partitions the first ones have come back; it can be repeated.
        """
        with self._changing:
            if partition is not None:
                return self._undelete((topic, partition), offset)
            if topic not in self.topics():
                return [self._undelete_topic(topic)]
            writers = [key for key, writer in self.writers().items() if key[0] == topic]
            wanted = [key for key in writers if self.writer(*key).deleted()]
            if not wanted and any(each.was[0].topic == topic for each in self._deleted_topics()):
                raise TopicExists(topic, topic)
            if not wanted:
                raise CannotUndelete(topic, "nothing was deleted a moment ago")
            return [found for key in wanted for found in self._undelete(key, offset)]

    def _undelete(self, key: TopicPartition, offset: int | None) -> list[Deletion]:
        writer, log_dir = self.writer(*key), self._dir_of(key)
        assert log_dir is not None  # where the writer is
        with self.cleaner.claims.paused(key), log_dir.guarded():
            found = writer.undelete(offset)
            log_dir.checkpoint_start_offsets()
            return found

    def _deleted_topics(self) -> list[DeletedTopic]:
        return deleted_topics(each.doomed for each in self._dirs)

    def _undelete_topic(self, topic: str) -> Deletion:
        found = [each for each in self._deleted_topics() if each.was[0].topic == topic]
        delay_ms = self._delete_delay_ms()
        if not found or found[-1].deletion(delay_ms).until_ms <= self.clock.now_ms():
            raise CannotUndelete(topic, "it was not deleted a moment ago, or its files are removed")
        newest = found[-1]
        self._refuse_topic(topic)
        # First the settings: what a topic holds must never be kept by others than its own.
        self._keep_settings(topic, newest.was[0].settings)
        try:
            for number, doomed in newest.partitions:
                self._reopen(self._dirs[number], doomed)
        except BaseException:
            with suppress(StorageError, OSError):  # the first error is the one to tell
                self._take_out_again(topic, newest)
            raise
        for log_dir in {self._dirs[number] for number, _ in newest.partitions}:
            log_dir.checkpoint()
        return newest.deletion(delay_ms)

    def _take_out_again(self, topic: str, deleted: DeletedTopic) -> None:
        """What of it has come back goes; all that was known of it still is."""
        there = self.log_dirs.partitions()
        for number, doomed in deleted.partitions:
            if doomed.was is not None and (topic, doomed.was.partition) in there:
                self._dirs[number].delete((topic, doomed.was.partition), doomed.was)
        self._keep_settings(topic, {})

    def _reopen(self, log_dir: WritableLogDir, doomed: Doomed) -> None:
        """Takes a partition of a deleted topic into service again. It was not closed."""
        was = doomed.was
        assert was is not None  # else it would be none of a topic that can come back
        key = (was.topic, was.partition)
        log_dir.bring_back(doomed)
        if was.cleaner_offset >= 0:
            log_dir.put_cleaner_offset(key, was.cleaner_offset)
        with log_dir.guarded():
            config = self._config_of(was.topic)
            log = self._open_log(log_dir, key, config, is_clean=False, keeps_deleted=True)
            log_dir.logs[key] = log

    # -- tasks ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Lets the background tasks run by themselves until `close`."""
        self._tasks.start()

    def run(self, task: str) -> object:
        """Does one of the background tasks, `task_names`, now, paused or not. KeyError for another
        name."""
        return self._tasks.run(task)

    def pause(self, task: str) -> None:
        """Has a task no longer run by itself until `resume`. KeyError for another name."""
        self._tasks.pause(task)

    def resume(self, task: str) -> None:
        """Has a task run by itself again. KeyError for another name."""
        self._tasks.resume(task)

    def task_status(self) -> list[TaskStatus]:
        """How the background tasks fare."""
        return self._tasks.status()

    @property
    def task_names(self) -> list[str]:
        return self._tasks.names

    # -- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Makes everything durable, closes it in good order and lets others have the directories.
        What fails is raised when all that can be closed is. Harmless when repeated."""
        with self._changing:
            if self._closed:
                return
            self._closed = True
        self.cleaner.stop()
        self._tasks.stop()
        self._background.shutdown()
        super().close()
        failures: list[Exception] = []
        with suppress(StorageError, OSError):  # what it could not remove, the next start removes
            self.upkeep.remove_deleted()
        with self._executor() as executor:
            closing = [(each, each.close(executor)) for each in self._dirs]
            for log_dir, futures in closing:
                failed = _failures(futures)
                try:
                    log_dir.finish(is_well=not failed)
                except (StorageError, OSError) as error:
                    failed.append(error)
                failures += failed
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def failures(self) -> list[str]:
        """Directories that are offline and partitions that could not be opened, a line each."""
        offline = [str(each.offline) for each in self._dirs if each.offline is not None]
        return [*offline, *(problem for each in self._dirs for problem in each.problems)]

    @property
    def problems(self) -> list[str]:
        """The failures, what is not cleaned any more, what background tasks could not do, and what
        is wrong with the directories; a line each."""
        ours = [*self.failures, *self.cleaner.problems, *self._tasks.problems]
        return [*ours, *super().problems]

    # -- within ---------------------------------------------------------------------------------

    def _resume_placing(self) -> None:
        for log_dir in self._dirs:
            with suppress(LogDirOffline), log_dir.guarded():
                placing.resume_decided(log_dir.directory, self.placements)

    def _load(self, loaded: Callable[[int, int], None]) -> None:
        counting = threading.Lock()
        done = total = 0

        def one_more() -> None:
            nonlocal done
            with counting:
                done += 1
                loaded(done, total)

        with self._executor() as executor:
            jobs: list[Future[None]] = []
            with counting:  # nobody reports before the total is known
                for log_dir in self._dirs:
                    jobs += log_dir.load(executor, self._open, one_more, self._keeps_deleted)
                total = len(jobs)
            for job in jobs:
                job.result()
        for log_dir in self._dirs:
            log_dir.finish_loading()

    def _open(self, log_dir: WritableLogDir, found: PartitionDir, is_clean: bool) -> LogWriter:
        """Opens a partition that is there, after recovering it where that is needed."""
        config = self._config_of(found.topic)
        return self._open_log(log_dir, (found.topic, found.partition), config, is_clean)

    def _open_log(
        self,
        log_dir: WritableLogDir,
        key: TopicPartition,
        config: TopicConfig,
        is_clean: bool,
        keeps_deleted: bool = False,
    ) -> LogWriter:
        directory = log_dir.directory.child(partition_dir(*key))
        planned = recovery.plan(
            directory,
            log_dir.recovery_point(key),
            log_dir.log_start_offset(key),
            is_clean,
            config,
            self.clock.now_ms(),
            self.context.limits,
            self.broker_config.producer_id_expiration_ms,
            keeps_deleted or self._keeps_deleted,
        )
        recovery.apply(planned, directory)
        if planned.actions:
            self._recovered(key, planned)
        return LogWriter(
            directory,
            *key,
            config=config,
            clock=self.clock,
            loaded=planned,
            leader_epoch=max(planned.latest_epoch, 0),
            on_failure=log_dir.went_offline,
            later=self._later,
        )

    def _later(self, task: Callable[[], object]) -> None:
        """Has `task` done soon, by another thread: what an appending one need not wait for."""
        try:
            self._background.submit(task)
        except RuntimeError:  # the engine is being closed
            task()

    def _make_partitions(
        self, topic: str, numbers: Sequence[int], topic_id: str, resolved: Resolved
    ) -> None:
        for number in numbers:
            self._make_partition((topic, number), topic_id, resolved.config)

    def _make_partition(self, key: TopicPartition, topic_id: str, config: TopicConfig) -> None:
        """In the live directory with the fewest partitions; where that fails, in the next."""
        live = sorted(self._live(), key=lambda each: len(each.logs))  # stable: a tie keeps order
        failure: OSError | LogDirError | None = self._dirs[0].offline
        for log_dir in live:
            try:
                with log_dir.guarded():
                    log_dir.make(key, topic_id)
                    log_dir.logs[key] = self._open_log(log_dir, key, config, is_clean=True)
                return
            except (OSError, LogDirOffline) as error:
                failure = error
                log_dir.unmake(key)
        assert failure is not None  # without a live one the first is offline
        raise failure

    def _remove(self, topic: str, comes_back: bool = False) -> None:
        """Takes out whatever there is of a topic: partitions, settings, checkpoints. `comes_back`:
        it may be wanted again."""
        keys = [key for key in self.log_dirs.partitions() if key[0] == topic]
        touched = set()
        now_ms, topic_id = self.clock.now_ms(), self.topic_id(topic) if keys else ""
        for key in keys:
            log_dir = self._dir_of(key)
            if log_dir is not None:
                with self.cleaner.claims.paused(key):
                    was = self._as_it_is(log_dir, key, topic_id, len(keys), now_ms)
                    log_dir.delete(key, was if comes_back else None)
                log_dir.forget_cleaner_offset(key)
                self.cleaner.forget(key)
                touched.add(log_dir)
            with self._lock:
                self._logs.pop(key, None)  # a directory made later may have the same inode number
        for log_dir in touched:
            log_dir.checkpoint()
        self._keep_settings(topic, {})
        self._incarnations[topic] = self.incarnation(topic) + 1

    def _as_it_is(
        self,
        log_dir: WritableLogDir,
        key: TopicPartition,
        topic_id: str,
        partitions: int,
        now_ms: int,
    ) -> DeletedPartition:
        """One of so many partitions of a topic, about to be deleted."""
        writer = log_dir.logs.get(key)
        cleaned = log_dir.cleaner_offset(key)
        return DeletedPartition(
            topic=key[0],
            topic_id=topic_id,
            partition=key[1],
            partitions=partitions,
            start_offset=log_dir.log_start_offset(key) if writer is None else writer.start_offset,
            recovery_point=log_dir.recovery_point(key) if writer is None else writer.recovery_point,
            cleaner_offset=-1 if cleaned is None else cleaned,
            size=0 if writer is None else writer.size,
            deleted_at_ms=now_ms,
            settings=self._topic_settings.of(key[0]),
        )

    def _keep_settings(self, topic: str, settings: Mapping[str, str]) -> None:
        """Makes them those of the topic in the file of every live directory."""
        if settings == self._topic_settings.of(topic) and self._is_settings_file_right:
            return
        if not self._live():
            self._refuse_offline(self._dirs[0])
        before = self._topic_settings.of(topic)
        self._topic_settings.replace(topic, settings)

        def write(log_dir: WritableLogDir) -> None:
            with log_dir.guarded():
                self._topic_settings.write(log_dir.directory)

        self._is_settings_file_right = False
        try:
            self.upkeep.for_each_dir(write)
        except BaseException:
            self._topic_settings.replace(topic, before)
            raise
        self._is_settings_file_right = True

    def _check_settings(self, topic: str, settings: Mapping[str, str]) -> Resolved:
        """What a topic's settings are with these in the file. ConfigError."""
        self._topic_settings.changed(topic, settings)
        resolved = topic_config(self._settings_of(topic, settings))
        conflict = lag_conflict(resolved.config)
        if conflict is not None:
            raise conflict
        return resolved

    def _config_of(self, topic: str) -> TopicConfig:
        return topic_config(self._settings_of(topic, self._topic_settings.of(topic))).config

    def _partitions_of(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. UnknownTopic."""
        there = self.topics().get(topic)
        if not there:
            raise UnknownTopic(topic)
        if topic == METADATA_TOPIC:
            raise InvalidTopic(f"{METADATA_TOPIC} is the quorum's own log, and not changed here")
        return there

    def _refuse_topic(self, topic: str) -> None:
        if not is_legal_topic(topic) or topic == METADATA_TOPIC:
            allowed = "1 to 249 of A-Z a-z 0-9 . _ -, and neither . nor .."
            raise InvalidTopic(f"{printable(topic)!r} cannot be a topic's name: {allowed}")
        like = topic.replace(".", "_")
        for existing in self.topics():
            if existing.replace(".", "_") == like:
                raise TopicExists(topic, existing)

    def _refuse_twice(self) -> None:
        """A partition in two directories: which one is right nobody can tell (LogManager)."""
        seen: dict[TopicPartition, PartitionDir] = {}
        for found in (each for log_dir in self.log_dirs.dirs for each in log_dir.partitions()):
            key = (found.topic, found.partition)
            if found.state is PartitionState.NORMAL and seen.setdefault(key, found) is not found:
                why = f"the same partition as {printable(seen[key].path)}; remove one of them"
                raise LogDirError(found.path, why)

    def _dir_of(self, key: TopicPartition) -> WritableLogDir | None:
        """Where a partition is, whether or not it could be opened."""
        for log_dir in self._dirs:
            if key in log_dir.logs:
                return log_dir
        found = self.log_dirs.partitions().get(key)
        return next((each for each in self._dirs if found and each.holds(found)), None)

    def _refuse_offline(self, log_dir: WritableLogDir | None) -> None:
        if log_dir is not None and log_dir.offline is not None:
            raise LogDirOffline(*log_dir.offline.args)

    def _live(self) -> list[WritableLogDir]:
        return [each for each in self._dirs if each.offline is None]

    def _log_start_offset(self, log_dir: LogDir, key: TopicPartition) -> Callable[[], int]:
        """The writer's, which goes up before it is checkpointed."""
        checkpointed = super()._log_start_offset(log_dir, key)

        def start() -> int:
            writer = next((each.logs[key] for each in self._dirs if key in each.logs), None)
            return checkpointed() if writer is None else writer.start_offset

        return start

    def _delete_delay_ms(self) -> int:
        """The broker's, as for a topic that has no settings of its own (LogManager.deleteLogs)."""
        return self._config_of("").file_delete_delay_ms

    def _executor(self) -> ThreadPoolExecutor:
        """For loading and closing: so many threads for each directory."""
        threads = self.broker_config.num_recovery_threads_per_data_dir * len(self._dirs)
        return ThreadPoolExecutor(threads, thread_name_prefix="kafkafs-load")


def _refuse_count(partitions: int) -> None:
    if not 1 <= partitions <= _MAX_PARTITIONS:
        raise InvalidPartitions(f"{partitions} partitions; 1 to {_MAX_PARTITIONS} can be made")


def _failures(jobs: Sequence[Future[None]]) -> list[Exception]:
    """What closing raised. What is no failure of the disk or the engine passes."""
    failures: list[Exception] = []
    for job in jobs:
        try:
            job.result()
        except (StorageError, OSError) as error:
            failures.append(error)
    return failures
