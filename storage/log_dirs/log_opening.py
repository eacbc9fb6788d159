"""Opens a partition's log for writing, and recovers it first if necessary."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ..clock import Clock
from ..config.kafka import BrokerConfig, TopicConfig
from ..format.files.names import TopicPartition, partition_dir
from ..log.append.writer import LogWriter
from ..log.load.log_loader import LogLoader, RecoveryPlan
from ..log.read.context import ReadLimits
from ..log.state.epochs import LeaderEpochFileCache
from .writable_log_dir import WritableLogDir

Recovered = Callable[[TopicPartition, RecoveryPlan], None]
#: See `Copied`, for a log of a partition.
CopiedOf = Callable[[TopicPartition, LeaderEpochFileCache, int], int]


class LogOpening:
    """Opens an engine's logs, which share a clock, limits and a thread for deferred work."""

    def __init__(
        self,
        clock: Clock,
        limits: ReadLimits,
        config: BrokerConfig,
        recovered: Recovered | None,
        finds_deleted: bool,
        copied: CopiedOf,
    ) -> None:
        """`recovered` is called with the actions taken on a log that needed recovery. If
        `finds_deleted` is true, segments deleted earlier are searched for, so that they can be
        restored. `copied` tells what remote storage is known to have."""
        self._clock = clock
        self._limits = limits
        self._producer_expiration_ms = config.producer_id_expiration_ms
        self._recovered = recovered or (lambda key, planned: None)
        self._finds_deleted = finds_deleted
        self._copied = copied
        self._background = ThreadPoolExecutor(1, thread_name_prefix="kafkafs-flush")

    def open(
        self,
        log_dir: WritableLogDir,
        key: TopicPartition,
        config: TopicConfig,
        is_clean: bool,
        finds_deleted: bool = False,
        is_tiered: bool = False,
    ) -> LogWriter:
        """Opens a partition in `log_dir`. `is_clean`: it was shut down cleanly; `finds_deleted`:
        enables the search for this partition, even if it is disabled in general; `is_tiered`: as
        for LogLoader."""
        directory = log_dir.directory.child(partition_dir(*key))
        loader = LogLoader(
            directory,
            log_dir.checkpoints.recovery_point(key),
            log_dir.checkpoints.log_start_offset(key),
            is_clean,
            config,
            self._clock.now_ms(),
            self._limits,
            self._producer_expiration_ms,
            finds_deleted or self._finds_deleted,
            is_tiered,
        )
        planned = loader.plan()
        planned.apply(directory)
        if planned.actions:
            self._recovered(key, planned)
        return LogWriter(
            directory,
            *key,
            config=config,
            clock=self._clock,
            loaded=planned,
            leader_epoch=max(planned.latest_epoch, 0),
            on_failure=log_dir.went_offline,
            on_deleted=partial(log_dir.note_has_deleted, key),
            copied=partial(self._copied, key),
            later=self._later,
        )

    def _later(self, task: Callable[[], object]) -> None:
        """Runs `task` soon in another thread: work that an append need not wait for."""
        try:
            self._background.submit(task)
        except RuntimeError:  # the engine is being closed
            task()

    def close(self) -> None:
        """Completes deferred work; from now on nothing is deferred."""
        self._background.shutdown()
