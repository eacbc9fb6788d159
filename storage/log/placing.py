"""New segments at the end of a log, all of them at once and not batch by batch.

They are brought into the partition's directory as `.cleaned`, whole and durable, while the log ends
with an empty segment of their first offset; then they take its place as segments do after a
cleaning (see `replacing`). Whoever loads the partition in between, a broker too, finds all of them
or none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from ..config import TopicConfig
from ..durable import WritableDirectory
from ..errors import LogDirOffline, OffsetOutOfRange
from .leftovers import set_aside_unfinished
from .loaded import LoadedSegment
from .producers import ProducerUpdate
from .replacing import replace_files
from .unified_log import UnifiedLog


class PlacedSegment(LoadedSegment, Protocol):
    """A new one: bytes in its `.log`, and the offset behind its last batch."""

    @property
    def end_offset(self) -> int: ...


class Placing:
    """One partition while segments are placed in it; nobody else changes it meanwhile. `producers`:
    what the new batches change about those."""

    def __init__(self, log: UnifiedLog, noting: Callable[[], AbstractContextManager[None]]) -> None:
        """`noting` is for what changes something: it keeps what an error says about the disk."""
        self._log = log
        self._noting = noting
        self.producers: ProducerUpdate = log.producers.begin_update()

    @property
    def directory(self) -> WritableDirectory:
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

    def make_room(self, base_offset: int) -> None:
        """Lets the log end with an empty segment at `base_offset`, its end or above it, and all in
        front of that be durable: a crash that took some of it would take what is placed behind it,
        too. After an OSError nothing has changed, but that the log may have been rolled."""
        log, local = self._log, self._log.local
        if base_offset < local.end_offset:
            what = f"the first batch is at offset {base_offset}"
            raise OffsetOutOfRange(f"{what}, the log goes on at {local.end_offset}")
        with self._noting():
            set_aside_unfinished(self.directory)
            if log.leader_epoch != log.epochs.latest:
                log.epochs.assign(log.leader_epoch, base_offset)
            if local.active.base_offset != base_offset:
                log.roll(base_offset)
            unflushed = local.unflushed(base_offset)
            unflushed.sync()
            local.mark_flushed(unflushed)

    def exchange(self, segments: Sequence[PlacedSegment]) -> None:
        """Puts the segments, which are there as `.cleaned` and durable, at the log's end; that is
        decided. LogDirOffline when it cannot be finished: nothing may be written then until the
        partition was loaded again."""
        log, local = self._log, self._log.local
        with self._noting():
            due = local.clock.now_ms() + local.config.file_delete_delay_ms
            bases = [segment.base_offset for segment in segments]
            try:
                replace_files(self.directory, bases, [], local.deleted, due)
            except OSError as error:
                raise self._unfinished(str(error)) from error
            local.go_on_with(segments, segments[-1].end_offset)
            self.producers.commit()
            log.producers.map_end_offset = local.end_offset

    def give_up(self) -> None:
        """What was decided is not done, on account of something else. LogDirOffline."""
        with self._noting():
            raise self._unfinished("interrupted")

    def _unfinished(self, why: str) -> LogDirOffline:
        what = f"segments that were decided on were not put in place: {why}"
        return LogDirOffline(self.directory.path, what)
