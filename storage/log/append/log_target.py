"""Ingests a single batch, or whole segments, at the end of a log in one step.

The batch is appended like any other. Segments are written to the partition's directory as
`.cleaned`, complete and durable, while the log ends with an empty segment at their first offset;
then they replace it as segments do after a cleaning (see `replacing`). Whoever loads the partition
in between, even a broker, finds all of the write or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ...config.kafka import TopicConfig
from ...errors import LogDirOffline, OffsetOutOfRange
from ...format.records.validate import AppendOrigin, ValidationResult
from ...io.durable import WritableDirFd
from ..delete.leftovers import set_aside_unfinished
from ..delete.replacing import replace_files
from ..load.loaded import LoadedSegment
from ..state.producers import ProducerAppendInfo
from .appending import load_of, move
from .roll import SegmentFill
from .unified_log import UnifiedLog


class IngestedSegment(LoadedSegment, Protocol):
    """A new segment: `size` in bytes of its `.log`, and the offset after its last batch."""

    @property
    def end_offset(self) -> int: ...


class IngestTarget:
    """An ingest into one partition, which nothing else may change meanwhile. `producers`: the
    changes that the new batches make to the producers."""

    def __init__(self, log: UnifiedLog, guard: Callable[[], AbstractContextManager[None]]) -> None:
        """`guard` wraps every change: it records what an error means for the state of the disk."""
        self._log = log
        self._guard = guard
        self.producers: ProducerAppendInfo = log.producers.begin_update()

    @property
    def directory(self) -> WritableDirFd:
        return self._log.local.directory

    @property
    def config(self) -> TopicConfig:
        return self._log.local.config

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def leader_epoch(self) -> int:
        return self._log.leader_epoch

    def end_at(self, base_offset: int) -> None:
        """Ends the log with an empty segment at `base_offset`, which is at or above its end, and
        makes everything before it durable: a crash that lost part of that would also lose what is
        ingested after it. After an OSError nothing has changed, except that the log may have
        rolled."""
        log, local = self._log, self._log.local
        if base_offset < local.end_offset:
            what = f"the first batch is at offset {base_offset}"
            raise OffsetOutOfRange(f"{what}, below the log end offset {local.end_offset}")
        with self._guard():
            set_aside_unfinished(self.directory)
            if log.leader_epoch != log.epochs.latest:
                log.epochs.assign(log.leader_epoch, base_offset)
            if local.active.base_offset != base_offset:
                log.roll(base_offset)
            unflushed = local.unflushed(base_offset)
            unflushed.sync()
            local.mark_flushed(unflushed)

    def swap_in(self, segments: Sequence[IngestedSegment]) -> None:
        """Appends segments, present as `.cleaned` and durable, to the log. The commit is already
        recorded: raises LogDirOffline if it cannot be finished, and nothing may be written until
        the partition is loaded again."""
        log, local = self._log, self._log.local
        with self._guard():
            due = local.clock.now_ms() + local.config.file_delete_delay_ms
            bases = [segment.base_offset for segment in segments]
            try:
                replace_files(self.directory, bases, [], local.deleted, due)
            except OSError as error:
                raise self._unfinished(str(error)) from error
            local.go_on_with(segments, segments[-1].end_offset)
            self.producers.commit()
            log.producers.map_end_offset = local.end_offset

    def reserve(self, batch: ValidationResult) -> bool:
        """Prepares to append a batch of no producer: gives it its offsets, reserves space for it,
        and makes everything before it durable, as `end_at` does. Returns False, with nothing
        changed, if it does not fit into the active segment. After an OSError nothing has
        changed."""
        log, local = self._log, self._log.local
        batch.place(local.end_offset, log.leader_epoch)
        load, fill = load_of(batch.table, AppendOrigin.CLIENT), self._fill()
        if fill.should_roll(load.whole):
            return False
        with self._guard():
            if log.leader_epoch != log.epochs.latest:
                log.epochs.assign(log.leader_epoch, local.end_offset)
            if local.recovery_point < local.end_offset:
                unflushed = local.unflushed(local.end_offset)
                unflushed.sync()
                local.mark_flushed(unflushed)
            local.active.reserve(load.whole.size)
        self.producers.add(batch.table, AppendOrigin.CLIENT)
        return True

    def _fill(self) -> SegmentFill:
        local = self._log.local
        return SegmentFill(local.active, local.config, local.clock.now_ms())

    def append(self, batch: ValidationResult) -> None:
        """Appends a batch, for which space was reserved, durably. Raises LogDirOffline as `swap_in`
        does."""
        local = self._log.local
        with self._guard():
            try:
                fill = self._fill()
                fill.add(load_of(batch.table, AppendOrigin.CLIENT).whole)
                table = move(batch.table, local.active.size)
                end = batch.last_offset + 1
                local.append([batch.data], table, fill.first_timestamp, (), end)
                unflushed = local.unflushed(end)
                unflushed.sync()
            except OSError as error:
                raise self._unfinished(str(error)) from error
            local.mark_flushed(unflushed)
            self.producers.commit()

    def abandon(self) -> None:
        """Abandons a committed ingest for an outside cause. Raises LogDirOffline."""
        with self._guard():
            raise self._unfinished("interrupted")

    def _unfinished(self, why: str) -> LogDirOffline:
        what = f"a committed write was not put in place: {why}"
        return LogDirOffline(self.directory.path, what)
