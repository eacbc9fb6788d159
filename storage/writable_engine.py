"""Log directories opened for writing: topics made and deleted, logs recovered, kept and closed.

Kafka's LogManager. One engine or broker at a time holds a directory, so everything in it is this
one's to change. Reading goes on as in `Engine`, which this is, too; no reader waits for a writer.

Here the parts are put together: which partition is where (`writable_log_dirs.py`), how it is opened
(`log_opening.py`), what is done to topics (`topics.py`, `kept_settings.py`), brought back
(`undeleting.py`), and done from time to time (`upkeep.py`, `tasks.py`).

    with WritableEngine("/data") as engine:
        engine.create_topic("orders", 3, {"retention.ms": "86400000"})
        engine.writer("orders", 0).append_records(records)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

from . import placing
from .cleaner.manager import CleanerManager
from .cleaner.throttle import check_rate
from .clock import Clock, SystemClock
from .config import Resolved, broker_config, run_settings
from .engine import Engine
from .errors import LogDirOffline, NotClosed, StorageError
from .format.checkpoints import MetaProperties
from .held_directory import hold, identify, refuse_paths
from .interruption import uninterrupted
from .kept_settings import KeptSettings
from .log.deletions import Deletion
from .log.writer import LogWriter
from .log_dir import LogDir, LogDirs, PartitionDir, TopicPartition
from .log_opening import LogOpening, Recovered
from .placements import Placements
from .purging import FoundLeftover, find_leftovers, purge
from .tasks import Tasks, TaskStatus
from .topics import Topics
from .transaction_log import TransactionLog, read_decisions
from .transactional import finish_decided
from .undeleting import Undeleting
from .upkeep import Upkeep
from .writable_log_dir import WritableLogDir
from .writable_log_dirs import WritableLogDirs, refuse_same_partitions


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
        recovered: Recovered | None = None,
        finds_deleted: bool = False,
        maintain: bool = False,
        unregistered: bool = False,
    ) -> None:
        """Makes the directories that do not exist, holds all, and opens every partition,
        recovering those that were not closed in good order.

        `owner`: cluster and node that the directories belong to, as a broker would be told;
        checked, and given to those that are nobody's. `loaded` is told how many partitions of how
        many are open, and `recovered` what was done to one that needed it; both by any thread.

        Nothing is deleted, neither records nor what other processes have left (see
        `log/leftovers.py`). With `maintain` the tasks that do that run by themselves after `start`:
        retention, the cleaner and, file.delete.delay.ms from now, the removal of leftovers.
        `finds_deleted`: records that were deleted before, and are still there, are looked for, so
        that they can be brought back; that means reading them.
        `unregistered`: topics and partitions are made also where Unregistered would be raised.

        LogDirLocked when somebody else has a directory, LogDirError when one is something else or
        they do not belong together, ConfigError for a setting that Kafka would refuse, CorruptError
        for a damaged file of topic settings.
        """
        self.clock = clock or SystemClock()
        self.broker_config = broker_config(run_settings((settings or {}).items()))
        check_rate(self.broker_config.log_cleaner_io_max_bytes_per_second)
        self._closed = False
        there = refuse_paths(paths, owner)
        if there:
            refuse_same_partitions(LogDirs(there))
        with ExitStack() as undo:
            held = hold(paths, undo)
            identify(held, owner, self.clock.now_ms())
            super().__init__([each.directory.path for each in held], settings)
            threads = self.broker_config.num_recovery_threads_per_data_dir
            self.dirs = WritableLogDirs(held, self.log_dirs, self.clock, threads)
            self._compose(recovered, finds_deleted, maintain, unregistered)
            self._resume_placing()
            self.dirs.load(self._open, loaded or (lambda done, of: None))
            placing.finish_decided(self)
            placing.undo_begun(self)
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
        """The parts, which share the directories, the clock and the cleaner."""
        config, clock, dirs = self.broker_config, self.clock, self.dirs
        kept = self._kept = KeptSettings(dirs, self._settings_of)
        cleaner = self.cleaner = CleanerManager(
            dirs.dirs, lambda key: self.log(*key).view(), config, clock
        )
        self.upkeep = Upkeep(
            dirs, cleaner, clock, kept.delete_delay_ms, self.purge, maintains=maintain
        )
        self._tasks = Tasks(self.upkeep.tasks(config), clock)
        self.transactions = TransactionLog(lambda: [each.directory for each in dirs.live()])
        self.placements = Placements(
            [each.directory for each in dirs.dirs], lambda: [each.directory for each in dirs.live()]
        )
        opening = LogOpening(clock, self.context.limits, config, recovered, finds_deleted)
        topics = Topics(self, dirs, kept, opening, cleaner, clock, unregistered)
        self._opening, self._topics = opening, topics
        self._undeleting = Undeleting(self, topics, dirs, kept, opening, cleaner, clock)

    # -- partitions -----------------------------------------------------------------------------

    def writer(self, topic: str, partition: int) -> LogWriter:
        """One partition, to append to. UnknownTopic; UnknownPartition, also for the quorum's own
        log and for what could not be opened; LogDirOffline."""
        return self.dirs.writer((topic, partition))

    def writers(self) -> dict[TopicPartition, LogWriter]:
        """All partitions that can be written to, by topic and number."""
        return self.dirs.live_logs()

    def truncate_to(self, topic: str, partition: int, offset: int) -> None:
        """Cuts off a partition's records at and above `offset`, and gives up a cleaning of it that
        is under way (LogManager.truncateTo). Otherwise as `writer`."""
        key = (topic, partition)
        writer = self.writer(*key)
        log_dir = self.dirs.of(key)
        with self.cleaner.claims.paused(key):
            if writer.truncate_to(offset) and log_dir is not None:
                log_dir.checkpoint_recovery_points()
                log_dir.limit_cleaner_offset(key, writer.retention_state().segments[-1].base_offset)

    # -- topics ---------------------------------------------------------------------------------

    def create_topic(
        self,
        topic: str,
        partitions: int | Sequence[int] = 1,
        settings: Mapping[str, str] | None = None,
        topic_id: str = "",
        *,
        carried_over: bool = False,
        unregistered: bool = False,
    ) -> str:
        """Makes a topic with partitions 0 to `partitions` - 1, or with those of a sequence of
        numbers, as a node has them that is not the only one. Returns its id, a new one unless
        given. With `carried_over` the settings come from another cluster, and may be those that
        only an older Kafka accepted.

        Unregistered where a KRaft broker would make strays of its partitions, unless
        `unregistered`; InvalidTopic, TopicExists, InvalidPartitions, ConfigError. When it cannot
        be finished nothing of it is left.
        """
        return self._topics.create(
            topic, partitions, settings or {}, topic_id, carried_over, unregistered
        )

    def create_partitions(self, topic: str, total: int, *, unregistered: bool = False) -> None:
        """Raises the number of a topic's partitions to `total`. UnknownTopic, InvalidPartitions;
        `unregistered` and Unregistered as for `create_topic`."""
        self._topics.extend(topic, total, unregistered)

    def add_partitions(self, topic: str, numbers: Sequence[int]) -> None:
        """Makes more partitions of a topic, with these numbers. Raises UnknownTopic, or
        InvalidPartitions if one of them is there."""
        self._topics.add(topic, numbers)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic. Its files are removed after file.delete.delay.ms. UnknownTopic."""
        self._topics.delete(topic)

    def delete_unchanged_topic(self, topic: str, ends: Mapping[int, int]) -> bool:
        """The same, if it has exactly the partitions in `ends` and each ends at the offset given
        for it there; False when it does not. No append comes in between. UnknownPartition when one
        of them could not be opened."""
        return self._topics.delete_unchanged(topic, ends)

    def set_topic_config(self, topic: str, changes: Mapping[str, str | None]) -> Resolved:
        """Changes a topic's settings in kafkafs's own file, where None takes one away, and lets
        them count from now on. UnknownTopic; ConfigError, and then nothing is changed."""
        return self._topics.configure(topic, changes)

    def incarnation(self, topic: str) -> int:
        """How many topics of this name were deleted since the directories were opened: what was
        known of one is not to be taken for the next one's."""
        return self._topics.incarnation(topic)

    def topic_settings(self, topic: str) -> Mapping[str, str]:
        """What is kept of the topic in kafkafs's own file."""
        return self._kept.of(topic)

    # -- bringing back --------------------------------------------------------------------------

    def deleted(self) -> list[Deletion]:
        """What was deleted and can be brought back: records of partitions, by whatever rule, and
        whole topics; what went first before what went later."""
        return self._undeleting.deleted()

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
        return self._undeleting.undelete(topic, partition, offset)

    # -- leftovers ------------------------------------------------------------------------------

    def leftovers(self, *, strays: bool = False) -> list[FoundLeftover]:
        """What other processes have left in the directories: see `storage/purging.py`. What this
        engine deleted itself is not among it. `strays`: also the directories of stray partitions,
        which hold records."""
        return list(find_leftovers(self.log_dirs, strays=strays, is_left=self.dirs.is_left))

    def purge(self, found: Sequence[FoundLeftover] | None = None) -> list[FoundLeftover]:
        """Removes leftovers, `found` or all that there are but for stray partitions; what was
        removed. CleaningAborted for a partition that is being cleaned; the first failure is raised
        when all were tried."""
        chosen = self.leftovers() if found is None else found
        return purge(self.dirs, self.cleaner.claims, chosen)

    # -- tasks ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Lets the background tasks run by themselves until `close`: those that delete records or
        leftovers only if the engine was opened with `maintain`."""
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
        with self._topics.changing:
            if self._closed:
                return
            self._closed = True
        self.cleaner.stop()
        self._tasks.stop()
        self._opening.close()
        super().close()
        with suppress(StorageError, OSError):  # what it could not remove, the next start removes
            self.upkeep.remove_deleted()
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
            if error is None:  # else that one says what was not done
                raise

    @property
    def failures(self) -> list[str]:
        """Directories that are offline and partitions that could not be opened, a line each."""
        return self.dirs.failures

    @property
    def problems(self) -> list[str]:
        """The failures, what is not cleaned any more, what background tasks could not do, and what
        is wrong with the directories; a line each."""
        ours = [*self.failures, *self.cleaner.problems, *self._tasks.problems]
        return [*ours, *super().problems]

    # -- within ---------------------------------------------------------------------------------

    def _resume_placing(self) -> None:
        for log_dir in self.dirs.dirs:
            with suppress(LogDirOffline), log_dir.guarded():
                placing.resume_decided(log_dir.directory, self.placements)

    def _open(self, log_dir: WritableLogDir, found: PartitionDir, is_clean: bool) -> LogWriter:
        """Opens a partition that is there, after recovering it where that is needed."""
        key = (found.topic, found.partition)
        return self._opening.open(log_dir, key, self._kept.config_of(found.topic), is_clean)

    def _log_start_offset(self, log_dir: LogDir, key: TopicPartition) -> Callable[[], int]:
        """The writer's, which goes up before it is checkpointed."""
        checkpointed = super()._log_start_offset(log_dir, key)

        def start() -> int:
            writer = self.dirs.log(key)
            return checkpointed() if writer is None else writer.start_offset

        return start
