"""Log directories open for writing, with their background tasks; like Kafka's LogManager.

Only one engine or broker at a time holds a directory, so this one may change everything in it. A
LogManager is also an `Engine` for reading; readers never wait for writers.

It composes these parts: which partition is where (`writable_log_dirs.py`), opening
(`log_opening.py`), topics (`topics.py`, `topic_configs.py`), restoring (`restoring.py`), and
periodic work (`background_tasks.py`, `scheduler.py`).

    with LogManager("/data") as engine:
        engine.create_topic("orders", 3, {"retention.ms": "86400000"})
        engine.writer("orders", 0).append_records(records)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from .cleaner.cleaning import check_rate
from .cleaner.manager import CleanerManager
from .clock import Clock, SystemClock
from .concurrency.interruption import uninterrupted
from .concurrency.scheduler import Scheduler, TaskStatus
from .config.kafka import Resolved, broker_config, run_configs
from .errors import ConfigError, LogDirOffline, NotClosed, StorageError
from .format.files.checkpoints import MetaProperties
from .format.files.names import TopicPartition
from .ingest import two_phase as ingest
from .ingest.commit_file import CommitFile
from .log.append.writer import LogWriter
from .log.delete.deletions import Deletion
from .log_dirs.background_tasks import BackgroundTasks
from .log_dirs.engine import Engine
from .log_dirs.lock_dirs import hold, identify, refuse_paths
from .log_dirs.log_dir import LogDir, PartitionDir
from .log_dirs.log_dirs import LogDirs
from .log_dirs.log_opening import LogOpening, Recovered
from .log_dirs.purging import FoundLeftover, find_leftovers, purge
from .log_dirs.writable_log_dir import WritableLogDir
from .log_dirs.writable_log_dirs import WritableLogDirs, refuse_same_partitions
from .tier.configs import TIER_CONFIG
from .topics.registering import Registering
from .topics.remote_part import may_be_tiered
from .topics.restoring import Restoring
from .topics.topic_configs import StoredTopicConfigs
from .topics.topics import Topics
from .transactions.decisions import TransactionLog, read_decisions
from .transactions.producer import finish_decided


class LogManager(Engine):
    """Log directories, locked and open for writing until `close`.

    Thread-safe. Methods that change something raise LogDirOffline if the directory concerned has
    failed; an OSError that does not indicate a faulty disk (ENOSPC) propagates, and the call can be
    repeated.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        configs: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        *,
        owner: MetaProperties | None = None,
        loaded: Callable[[int, int], None] | None = None,
        recovered: Recovered | None = None,
        finds_deleted: bool = False,
        maintain: bool = False,
        unregistered: bool = False,
    ) -> None:
        """Creates missing directories, locks all, and opens every partition, recovering those that
        were not shut down cleanly.

        `owner`: the cluster and node that the directories belong to, as a broker would be
        configured; checked, and assigned to directories without an owner. `loaded` is called with
        the number of open partitions and their total, and `recovered` with the actions taken on a
        partition that needed recovery; both by any thread.

        Opening deletes nothing, neither records nor leftovers of other processes (see
        `log/leftovers.py`). With `maintain` the tasks that do so are scheduled after `start`:
        retention, the cleaner and, after file.delete.delay.ms, the removal of leftovers. With
        `finds_deleted`, records that were deleted earlier and still exist are searched for, so that
        they can be restored; that requires reading them. With `unregistered`, topics and partitions
        are created even where Unregistered would be raised.

        Raises LogDirLocked if another process holds a directory, LogDirError if one is not a log
        directory or they do not belong together, ConfigError for a config that Kafka would refuse,
        CorruptError for a damaged file of topic configs.
        """
        self.clock = clock or SystemClock()
        self.broker_config = broker_config(run_configs((configs or {}).items()))
        if (configs or {}).get(TIER_CONFIG):
            raise ConfigError(TIER_CONFIG, "remote storage is only read, and this verb writes")
        check_rate(self.broker_config.log_cleaner_io_max_bytes_per_second)
        self._closed = False
        there = refuse_paths(paths, owner)
        if there:
            refuse_same_partitions(LogDirs(there))
        with ExitStack() as undo:
            held = hold(paths, undo)
            identify(held, owner, self.clock.now_ms())
            super().__init__([each.directory.path for each in held], configs)
            threads = self.broker_config.num_recovery_threads_per_data_dir
            self.dirs = WritableLogDirs(held, self.log_dirs, self.clock, threads)
            self._compose(recovered, finds_deleted, maintain, unregistered)
            self._resume_ingests()
            self.dirs.load(self._open, loaded or (lambda done, of: None))
            ingest.finish_committed(self)
            ingest.undo_started(self)
            decided = [read_decisions(each.directory) for each in held]
            finish_decided(self, itertools.chain.from_iterable(decided))
            undo.pop_all()

    def _compose(
        self,
        recovered: Recovered | None,
        finds_deleted: bool,
        maintain: bool,
        unregistered: bool,
    ) -> None:
        """Creates the parts, which share the directories, the clock and the cleaner."""
        config, clock, dirs = self.broker_config, self.clock, self.dirs
        kept = self._kept = StoredTopicConfigs(dirs, self._configs_of)
        cleaner = self.cleaner = CleanerManager(
            dirs.dirs, lambda key: self.log(*key).view(), config, clock
        )
        self.background_tasks = BackgroundTasks(
            dirs, cleaner, clock, kept.delete_delay_ms, self.purge, maintains=maintain
        )
        self._tasks = Scheduler(self.background_tasks.tasks(config), clock)
        self.transactions = TransactionLog(lambda: [each.directory for each in dirs.live()])
        self.commits = CommitFile(
            [each.directory for each in dirs.dirs], lambda: [each.directory for each in dirs.live()]
        )
        limits, copied = self.context.limits, self.copied_until
        opening = LogOpening(clock, limits, config, recovered, finds_deleted, copied)
        topics = Topics(self, dirs, kept, opening, cleaner, clock, unregistered)
        self._opening, self._topics = opening, topics
        self._restoring = Restoring(self, topics, dirs, kept, opening, cleaner, clock)
        self.registering = Registering(self, topics, dirs, kept, opening, clock)

    # -- partitions -----------------------------------------------------------------------------

    def writer(self, topic: str, partition: int) -> LogWriter:
        """Returns one partition, for appending. Raises UnknownTopic; UnknownPartition, also for the
        KRaft quorum's own log; PartitionNotOpened; LogDirOffline."""
        return self.dirs.writer((topic, partition))

    def writers(self) -> dict[TopicPartition, LogWriter]:
        """Returns all partitions that can be written to, by topic and number."""
        return self.dirs.live_logs()

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        """Deletes a partition's records at and above `offset`, and aborts a cleaning in progress
        (LogManager.truncateTo). Raises what `writer` raises."""
        key = (topic, partition)
        writer = self.writer(*key)
        log_dir = self.dirs.of(key)
        with self.cleaner.cleaning_state.abort_and_pause(key):
            if writer.truncate_to(offset) and log_dir is not None:
                log_dir.checkpoints.write_recovery_points()
                log_dir.checkpoints.limit_cleaner_offset(
                    key, writer.retention_state().segments[-1].base_offset
                )

    # -- topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int | Sequence[int] = 1,
        configs: Mapping[str, str] | None = None,
        topic_id: str = "",
        *,
        carried_over: bool = False,
        unregistered: bool = False,
        register: Callable[[str], None] | None = None,
    ) -> str:
        """Creates a topic with partitions 0 to `partitions` - 1 or, on a node that has only some of
        them, with the given partition numbers. Returns its id, generated unless given. With
        `carried_over` the configs come from another cluster, and may be ones that only an older
        Kafka accepted. `register` is called last, with the topic's id, to make the topic known to
        the cluster of the directories, which then is not checked.

        Raises Unregistered if a KRaft broker would turn its partitions into strays, unless
        `unregistered`; InvalidTopic, TopicExists, InvalidPartitions or ConfigError, and what
        `register` raises. On failure nothing of it remains.
        """
        return self._topics.create(
            topic, partitions, configs or {}, topic_id, carried_over, unregistered, register
        )

    def create_partitions(self, topic: str, total: int, *, unregistered: bool = False) -> None:
        """Increases the number of a topic's partitions to `total`. Raises UnknownTopic or
        InvalidPartitions; `unregistered` and Unregistered as for `create_topic`."""
        self._topics.extend(topic, total, unregistered)

    def add_partitions(self, topic: str, numbers: Sequence[int]) -> None:
        """Creates further partitions of a topic, with these numbers. Raises UnknownTopic, or
        InvalidPartitions if one of them exists."""
        self._topics.add(topic, numbers)

    def delete_topic(self, topic: str, *, keep_remote: bool = False) -> None:
        """Deletes a topic. Its files are removed after file.delete.delay.ms. Raises UnknownTopic,
        or InRemoteStorage if remote storage has or may have segments of it, which are not deleted;
        with `keep_remote` they stay there."""
        self._topics.delete(topic, keep_remote)

    def delete_unchanged_topic(self, topic: str, ends: Mapping[int, int]) -> bool:
        """Deletes a topic if it has exactly the partitions in `ends` and each ends at the offset
        given there; otherwise returns False. No append can intervene. What remote storage has of it
        stays there. Raises PartitionNotOpened if one of them could not be opened."""
        return self._topics.delete_unchanged(topic, ends)

    def set_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> Resolved:
        """Changes a topic's configs in kafkafs's own file, where None removes a config, and applies
        them at once. Raises UnknownTopic, or ConfigError, in which case nothing is changed."""
        return self._topics.configure(topic, changes)

    def incarnation(self, topic: str) -> int:
        """Returns how many topics of this name were deleted since the directories were opened, so
        that cached facts about one are not applied to its successor."""
        return self._topics.incarnation(topic)

    def stored_configs(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's configs in kafkafs's own file."""
        return self._kept.of(topic)

    # -- restoring ------------------------------------------------------------------------------

    def deleted(self) -> list[Deletion]:
        """Returns what was deleted and can be restored: records of partitions, whatever deleted
        them, and whole topics; the oldest deletion first."""
        return self._restoring.deleted()

    def undelete(
        self, topic: str, partition: int | None = None, offset: int | None = None
    ) -> list[Deletion]:
        """Restores deleted data durably, and returns what was restored. With a partition: its
        records from `offset` on, or all that still exist if that is None. Without one: the whole
        topic, with its configs and id, if it was deleted, else the records of each partition that
        still exist.

        A topic is restored as it was. Records of it that were deleted before the topic, and still
        exist, are then listed and can be restored, too.

        Retention by time and size would delete restored records again at once, so it spares them
        for file.delete.delay.ms. To retain them longer, change the topic's configs. Deleting
        records, or the topic, takes effect at once.

        Raises CannotUndelete; TopicExists if there is another topic of the deleted one's name;
        UnknownPartition; LogDirOffline. After another OSError nothing has changed or, of several
        partitions, the first ones are restored; the call can be repeated.
        """
        return self._restoring.undelete(topic, partition, offset)

    # -- leftovers ------------------------------------------------------------------------------

    def leftovers(self, *, strays: bool = False) -> list[FoundLeftover]:
        """Returns what other processes have left in the directories (see `log_dirs/purging.py`).
        Excludes what this engine deleted itself. `strays`: include the directories of stray
        partitions, which hold records."""
        return list(find_leftovers(self.log_dirs, strays=strays, is_left=self.dirs.is_left))

    def purge(self, found: Sequence[FoundLeftover] | None = None) -> list[FoundLeftover]:
        """Removes leftovers, either `found` or all except stray partitions; returns those removed.
        Raises CleaningAborted for a partition that is being cleaned; the first failure is raised
        after all were tried."""
        selected = self.leftovers() if found is None else found
        return purge(self.dirs, self.cleaner.cleaning_state, selected)

    # -- tasks ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Schedules the background tasks until `close`: those that delete records or leftovers only
        if the engine was opened with `maintain`."""
        self._tasks.start()

    def run(self, task: str) -> object:
        """Runs one of the background tasks, `task_names`, now, paused or not. Raises KeyError for
        another name."""
        return self._tasks.run(task)

    def pause(self, task: str) -> None:
        """Suspends a task's schedule until `resume`. Raises KeyError for an unknown name."""
        self._tasks.pause(task)

    def resume(self, task: str) -> None:
        """Resumes a task's schedule. Raises KeyError for an unknown name."""
        self._tasks.resume(task)

    def task_status(self) -> list[TaskStatus]:
        """Returns the status of the background tasks."""
        return self._tasks.status()

    @property
    def task_names(self) -> list[str]:
        return self._tasks.names

    # -- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Flushes everything, shuts down cleanly and releases the directories. The first failure is
        raised after everything else is closed. Idempotent."""
        with self._topics.changing:
            if self._closed:
                return
            self._closed = True
        self.cleaner.stop()
        self._tasks.stop()
        self._opening.close()
        super().close()
        with suppress(StorageError, OSError):  # the next start removes what remains
            self.background_tasks.remove_deleted()
        self.dirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with uninterrupted:
                self.close()
        except NotClosed:
            if error is None:  # else the other error explains what was not done
                raise

    @property
    def failures(self) -> list[str]:
        """Directories that are offline and partitions that could not be opened, one line each."""
        return self.dirs.failures

    @property
    def problems(self) -> list[str]:
        """The failures, uncleanable logs, failures of background tasks, and what is wrong with the
        directories; one line each."""
        ours = [*self.failures, *self.cleaner.problems, *self._tasks.problems]
        return [*ours, *super().problems]

    # -- internal -------------------------------------------------------------------------------

    def _resume_ingests(self) -> None:
        for log_dir in self.dirs.dirs:
            with suppress(LogDirOffline), log_dir.guarded():
                ingest.resume_committed(log_dir.directory, self.commits)

    def _open(self, log_dir: WritableLogDir, found: PartitionDir, is_clean: bool) -> LogWriter:
        """Opens an existing partition, recovering it first if necessary."""
        key = (found.topic, found.partition)
        config = self._kept.config_of(found.topic)
        is_tiered = config.remote_storage_enable or may_be_tiered(self, found)
        return self._opening.open(log_dir, key, config, is_clean, is_tiered=is_tiered)

    def _log_start_offset(self, log_dir: LogDir, key: TopicPartition) -> Callable[[], int]:
        """Uses the writer's start offset, which advances before it is checkpointed."""
        checkpointed = super()._log_start_offset(log_dir, key)

        def start() -> int:
            writer = self.dirs.log(key)
            return checkpointed() if writer is None else writer.start_offset

        return start
