"""Periodic work on logs: retention, cleaning, flushing, checkpoints, expiry, removal.

Tasks that delete records or files without being asked to, which are retention, cleaning and the
removal of leftovers, are scheduled only if the directories were opened with `maintain`.

Each task processes every log that is online. A failure in one does not stop the others: the first
failure is raised after all were tried.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from itertools import chain

from ..cleaner.manager import CleanerManager
from ..cleaner.plan import compacts
from ..clock import Clock
from ..concurrency.scheduler import ScheduledTask
from ..config.kafka import UNLIMITED, BrokerConfig
from ..errors import UnknownPartition
from ..format.files.names import TopicPartition
from ..log.append.writer import LogWriter
from ..log.delete.retention import RetentionPlan
from .writable_log_dir import WritableLogDir
from .writable_log_dirs import WritableLogDirs, do_all

# How often to look for files whose file.delete.delay.ms has passed.
_DELETION_INTERVAL_MS = 1000
#: Why retention and cleaning are not scheduled.
NOT_MAINTAINED = "the directories were opened without maintain"


class BackgroundTasks:
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
        """`delete_delay_ms`: how long the files of a deleted topic are retained. `purge` removes
        leftovers of other processes. `maintains`: retention, cleaning and purging are scheduled,
        not only run on request."""
        self._dirs = dirs
        self._cleaner = cleaner
        self._clock = clock
        self._delete_delay_ms = delete_delay_ms
        self._purge = purge
        self._maintains = maintains
        self._opened_ms = clock.now_ms()
        self._has_purged = False

    def retain(self) -> dict[TopicPartition, RetentionPlan]:
        """Applies retention now; returns what was deleted, by partition. Compacted logs are left to
        the cleaner."""
        done: dict[TopicPartition, RetentionPlan] = {}

        def retain(key: TopicPartition, writer: LogWriter) -> None:
            if not compacts(writer.config):
                planned = self._cleaner.retain(key, writer)
                if planned is not None and planned.count:
                    done[key] = planned

        self._dirs.for_each_log(retain)
        return done

    def finish_deletions(self, keys: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        """Checkpoints the start offsets of these logs, and deletes the segments below. Returns the
        logs that are being cleaned, whose segments must be deleted later."""
        left: set[TopicPartition] = set()

        def delete(key: TopicPartition, writer: LogWriter) -> None:
            with suppress(UnknownPartition):  # deleted just now
                if self._cleaner.delete_below_start(key, writer) is None:
                    left.add(key)

        touched = [each for each in self._dirs.dirs if not keys.isdisjoint(each.logs)]
        checkpoints = (each.checkpoints.write_start_offsets for each in touched)
        deletions = (
            partial(log_dir.do, partial(delete, key, writer))
            for log_dir in touched
            for key, writer in log_dir.sorted_logs()
            if key in keys
        )
        do_all(chain(checkpoints, deletions))
        return left

    def flush(self) -> None:
        """Flushes logs whose topic's flush.ms has passed."""

        def flush(_: TopicPartition, writer: LogWriter) -> None:
            if self._clock.now_ms() - writer.last_flush_ms >= writer.config.flush_ms:
                writer.flush()

        self._dirs.for_each_log(flush)

    def remove_deleted(self) -> None:
        """Removes the files of segments and topics deleted by this process whose
        file.delete.delay.ms has passed; and once, if this engine maintains the directories, the
        leftovers of others, when that delay has passed since opening."""
        # This runs every second, and of thousands of logs few, often none, have files to remove.
        having = WritableLogDir.logs_with_deleted
        self._dirs.for_each_log(lambda _, writer: writer.remove_deleted(), having)
        if any(each.has_deleted_partitions for each in self._dirs.dirs):
            delay_ms = self._delete_delay_ms()
            self._dirs.for_each(lambda each: each.remove_deleted_partitions(delay_ms))
        if self._maintains and not self._has_purged and self._delay_has_passed():
            self._purge()
            self._has_purged = True

    def _delay_has_passed(self) -> bool:
        return self._clock.now_ms() - self._opened_ms >= self._delete_delay_ms()

    def expire_producers(self) -> None:
        """Drops producers that were idle for producer.id.expiration.ms."""
        self._dirs.for_each_log(lambda _, writer: writer.expire_producers())

    def checkpoint(self) -> None:
        """Writes all checkpoints."""
        self._dirs.for_each(lambda each: each.checkpoints.write())
        self._dirs.for_each(lambda each: each.checkpoints.write_high_watermarks())

    def tasks(self, config: BrokerConfig) -> list[ScheduledTask]:
        """Returns the work as tasks, with the broker's intervals."""
        first = config.log_initial_task_delay_ms
        points = config.log_flush_offset_checkpoint_interval_ms
        starts = config.log_flush_start_offset_checkpoint_interval_ms
        marks = config.replica_high_watermark_checkpoint_interval_ms
        expiry = config.producer_id_expiration_check_interval_ms
        cleans = config.log_cleaner_enable and config.log_cleaner_threads > 0
        pause = config.log_cleaner_backoff_ms if cleans else UNLIMITED
        each = self._dirs.for_each
        # Idle logs cause no writes, so that the disk can sleep.
        by_points = partial(each, lambda it: it.checkpoints.write_recovery_points(always=False))
        by_starts = partial(each, lambda it: it.checkpoints.write_start_offsets(always=False))
        by_marks = partial(each, lambda it: it.checkpoints.write_high_watermarks(always=False))
        why_not = "" if self._maintains else NOT_MAINTAINED
        checks = config.log_retention_check_interval_ms
        return [
            ScheduledTask("retention", self.retain, checks, first, why_not),
            ScheduledTask("cleaner", self._cleaner.run, pause, 0, why_not),  # waits only when idle
            ScheduledTask("flush", self.flush, config.log_flush_scheduler_interval_ms, first),
            ScheduledTask("recovery-points", by_points, points, first),
            ScheduledTask("start-offsets", by_starts, starts, first),
            ScheduledTask("high-watermarks", by_marks, marks, marks),
            ScheduledTask("producers", self.expire_producers, expiry, expiry),
            ScheduledTask("deletion", self.remove_deleted, _DELETION_INTERVAL_MS, first),
        ]
