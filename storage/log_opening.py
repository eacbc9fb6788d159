"""Opening a partition's log for writing, and recovering it first where that is needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from .clock import Clock
from .config import BrokerConfig, TopicConfig
from .format.names import partition_dir
from .log import recovery
from .log.context import ReadLimits
from .log.recovery import RecoveryPlan
from .log.writer import LogWriter
from .log_dir import TopicPartition
from .writable_log_dir import WritableLogDir

Recovered = Callable[[TopicPartition, RecoveryPlan], None]


class LogOpening:
    """Opens logs of an engine, all with the same clock, limits and thread for what can wait."""

    def __init__(
        self,
        clock: Clock,
        limits: ReadLimits,
        config: BrokerConfig,
        recovered: Recovered | None,
        finds_deleted: bool,
    ) -> None:
        """`recovered` is told what was done to a log that needed it. `finds_deleted`: what
        was deleted before is looked for, so that it can be brought back."""
        self._clock = clock
        self._limits = limits
        self._producer_expiration_ms = config.producer_id_expiration_ms
        self._recovered = recovered or (lambda key, planned: None)
        self._finds_deleted = finds_deleted
        self._background = ThreadPoolExecutor(1, thread_name_prefix="kafkafs-flush")

    def open(
        self,
        log_dir: WritableLogDir,
        key: TopicPartition,
        config: TopicConfig,
        is_clean: bool,
        finds_deleted: bool = False,
    ) -> LogWriter:
        """A partition that is in `log_dir`. `is_clean`: it was closed in good order;
        `finds_deleted`: for this one, whatever is said of all."""
        directory = log_dir.directory.child(partition_dir(*key))
        planned = recovery.plan(
            directory,
            log_dir.recovery_point(key),
            log_dir.log_start_offset(key),
            is_clean,
            config,
            self._clock.now_ms(),
            self._limits,
            self._producer_expiration_ms,
            finds_deleted or self._finds_deleted,
        )
        recovery.apply(planned, directory)
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
            later=self._later,
        )

    def _later(self, task: Callable[[], object]) -> None:
        """Has `task` done soon, by another thread: what an appending one need not wait for."""
        try:
            self._background.submit(task)
        except RuntimeError:  # the engine is being closed
            task()

    def close(self) -> None:
        """What was put off is done; from now on nothing is put off."""
        self._background.shutdown()
