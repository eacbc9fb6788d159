"""What is done to logs from time to time: retention, cleaning, flushing, checkpoints, forgetting,
removing.

What deletes records or files that nobody has named, which are retention, cleaning and the removal
of leftovers, happens by itself only where whoever opened the directories wants them maintained.

Each of it for every log that is online. One that fails holds up none of the others: the first
failure is raised when all were tried.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import chain

from .cleaner.manager import CleanerManager
from .cleaner.plan import COMPACT
from .clock import Clock
from .config import UNLIMITED, BrokerConfig
from .errors import UnknownPartition
from .log.retention import RetentionPlan
from .log.writer import LogWriter
from .log_dir import TopicPartition
from .tasks import Task
from .writable_log_dir import WritableLogDir
from .writable_log_dirs import WritableLogDirs, do_all

# How often is looked for files whose file.delete.delay.ms has passed.
_DELETION_INTERVAL_MS = 1000
#: Why retention and cleaning do not run by themselves.
NOT_MAINTAINED = "the directories were opened without maintain"


class Upkeep:
    """The work of all background tasks of an engine, and the tasks themselves."""

    def __init__(
        self,
        dirs: WritableLogDirs,
        cleaner: CleanerManager,
        clock: Clock,
        delete_delay_ms: Callable[[], int],
        purge: Callable[[], object],
        *,
        maintains: bool,
    ) -> None:
        """`delete_delay_ms`: how long the files of a deleted topic are kept. `purge` removes what
        other processes have left. `maintains`: retention, cleaning and purging run by themselves,
        too, and not only when somebody asks for them."""
        self._dirs = dirs
        self._cleaner = cleaner
        self._clock = clock
        self._delete_delay_ms = delete_delay_ms
        self._purge = purge
        self._maintains = maintains
        self._opened_ms = clock.now_ms()
        self._has_purged = False

    def retain(self) -> dict[TopicPartition, RetentionPlan]:
        """Deletes what retention deletes now; what went, of the partitions where something went.
        Compacted logs are left to the cleaner."""
        done: dict[TopicPartition, RetentionPlan] = {}

        def retain(key: TopicPartition, writer: LogWriter) -> None:
            if COMPACT not in writer.config.cleanup_policy:
                planned = self._cleaner.retain(key, writer)
                if planned is not None and planned.count:
                    done[key] = planned

        self._dirs.for_each_log(retain)
        return done

    def settle_deletions(self, keys: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        """Puts on the disk where these logs begin now, and deletes the segments below; those are
        returned that are being cleaned, for which the latter has to be done again."""
        left: set[TopicPartition] = set()

        def delete(key: TopicPartition, writer: LogWriter) -> None:
            with suppress(UnknownPartition):  # it has just been deleted
                if self._cleaner.delete_below_start(key, writer) is None:
                    left.add(key)

        touched = [each for each in self._dirs.dirs if not keys.isdisjoint(each.logs)]
        checkpoints = (each.checkpoint_start_offsets for each in touched)
        deletions = (
            partial(log_dir.do, partial(delete, key, writer))
            for log_dir in touched
            for key, writer in log_dir.sorted_logs()
            if key in keys
        )
        do_all(chain(checkpoints, deletions))
        return left

    def flush(self) -> None:
        """Makes durable what has waited for its topic's flush.ms."""

        def flush(_: TopicPartition, writer: LogWriter) -> None:
            if self._clock.now_ms() - writer.last_flush_ms >= writer.config.flush_ms:
                writer.flush()

        self._dirs.for_each_log(flush)

    def remove_deleted(self) -> None:
        """Removes the files of segments and topics that were deleted here, when their
        file.delete.delay.ms has passed; and once, where this engine maintains, what others have
        left, when that has passed since the directories were opened."""
        # Each second: of thousands of logs few have anything to be removed, and often none.
        having = WritableLogDir.logs_with_deleted
        self._dirs.for_each_log(lambda _, writer: writer.remove_deleted(), having)
        if any(each.has_doomed for each in self._dirs.dirs):
            delay_ms = self._delete_delay_ms()
            self._dirs.for_each(lambda each: each.remove_doomed(delay_ms))
        if self._maintains and not self._has_purged and self._delay_has_passed():
            self._purge()
            self._has_purged = True

    def _delay_has_passed(self) -> bool:
        return self._clock.now_ms() - self._opened_ms >= self._delete_delay_ms()

    def expire_producers(self) -> None:
        """Forgets producers that were silent for producer.id.expiration.ms."""
        self._dirs.for_each_log(lambda _, writer: writer.expire_producers())

    def checkpoint(self) -> None:
        """Writes all checkpoints."""
        self._dirs.for_each(WritableLogDir.checkpoint)
        self._dirs.for_each(WritableLogDir.checkpoint_high_watermarks)

    def tasks(self, config: BrokerConfig) -> list[Task]:
        """The work as tasks, with the broker's intervals."""
        first = config.log_initial_task_delay_ms
        points = config.log_flush_offset_checkpoint_interval_ms
        starts = config.log_flush_start_offset_checkpoint_interval_ms
        marks = config.replica_high_watermark_checkpoint_interval_ms
        expiry = config.producer_id_expiration_check_interval_ms
        cleans = config.log_cleaner_enable and config.log_cleaner_threads > 0
        pause = config.log_cleaner_backoff_ms if cleans else UNLIMITED
        each = self._dirs.for_each
        # Where nothing happens nothing is written: the disk may rest.
        by_points = partial(each, lambda it: it.checkpoint_recovery_points(always=False))
        by_starts = partial(each, lambda it: it.checkpoint_start_offsets(always=False))
        by_marks = partial(each, lambda it: it.checkpoint_high_watermarks(always=False))
        why_not = "" if self._maintains else NOT_MAINTAINED
        checks = config.log_retention_check_interval_ms
        return [
            Task("retention", self.retain, checks, first, why_not),
            Task("cleaner", self._cleaner.run, pause, 0, why_not),  # which waits only when idle
            Task("flush", self.flush, config.log_flush_scheduler_interval_ms, first),
            Task("recovery-points", by_points, points, first),
            Task("start-offsets", by_starts, starts, first),
            Task("high-watermarks", by_marks, marks, marks),
            Task("producers", self.expire_producers, expiry, expiry),
            Task("deletion", self.remove_deleted, _DELETION_INTERVAL_MS, first),
        ]
