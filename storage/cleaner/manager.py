"""Selects the log to clean next, and records the outcome of each cleaning.

Kafka's LogCleanerManager with the loop of its LogCleaner. A log is a candidate if its topic is
compacted, its cleaning is not paused and no cleaning of it has failed because of its content; such
a failure makes it `uncleanable` until the engine is reopened. Of the eligible candidates, the
dirtiest is cleaned first. The `cleaner-offset-checkpoint` of a log directory contains the offsets
up to which its logs are clean.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..clock import Clock
from ..config.kafka import BrokerConfig
from ..errors import (
    CleaningAborted,
    ConfigError,
    LogDirOffline,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from ..format.files.names import TopicPartition
from ..log.append.local_log import Rolled
from ..log.append.writer import LogWriter
from ..log.delete.leftovers import set_aside_unfinished
from ..log.delete.retention import RetentionPlan
from ..log.load.loaded import LoadedSegment
from ..log.read.view import View
from .cleaning import CleanedSink, CleaningResult, Throttle, clean
from .cleaning_state import LogCleaningState
from .offset_map import OffsetMap
from .plan import CleanPlan, LogToClean, compacts, plan, state_of
from .record_filter import RecordRetention

logger = logging.getLogger(__name__)

# Raised if a log or files of it are being deleted.
_GONE = (SegmentGone, UnknownPartition, UnknownTopic)

OnProgress = Callable[[int, int], None]
#: Swaps in a new segment for those with these base offsets: `LogWriter.replace_segments`.
Replace = Callable[[LoadedSegment, Sequence[int]], None]
#: Cleans a log and swaps in the new segments.
Work = Callable[[LogToClean, Replace], CleaningResult]


class CleanerOffsets(Protocol):
    """The checkpoints of a log directory, as far as the manager needs them."""

    def cleaner_offset(self, key: TopicPartition) -> int | None: ...
    def put_cleaner_offset(self, key: TopicPartition, offset: int) -> None: ...


class CleanedDir(Protocol):
    """The interface of a log directory that the manager needs."""

    @property
    def logs(self) -> Mapping[TopicPartition, LogWriter]: ...
    @property
    def checkpoints(self) -> CleanerOffsets: ...
    def sorted_logs(self) -> Sequence[tuple[TopicPartition, LogWriter]]: ...
    def guarded(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class CleaningCandidate:
    """A compacted log and what can be cleaned of it. `plan` is based on `rolled` and `view`."""

    key: TopicPartition
    log_dir: CleanedDir
    writer: LogWriter
    rolled: Rolled
    view: View
    plan: CleanPlan


class CleanerManager:
    """Cleans the logs of an engine, one at a time. Thread-safe.

    `uncleanable`: the logs that are no longer cleaned, and why.
    """

    def __init__(
        self,
        dirs: Sequence[CleanedDir],
        view_of: Callable[[TopicPartition], View],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self.cleaning_state = LogCleaningState()
        self.uncleanable: dict[TopicPartition, str] = {}
        self._dirs = dirs
        self._view_of = view_of
        self._config = config
        self._clock = clock

    @property
    def problems(self) -> list[str]:
        """Why logs are no longer cleaned, one line for each."""
        return [
            f"{topic}-{number}: not cleaned until the log directory is reopened: {why}"
            for (topic, number), why in sorted(self.uncleanable.items())
        ]

    # -- selection -------------------------------------------------------------------------------

    def candidate(self, key: TopicPartition) -> CleaningCandidate | None:
        """Returns what could be cleaned of a log now; None if it is not compacted, uncleanable, or
        its partition is claimed or paused."""
        for log_dir in self._dirs:
            writer = log_dir.logs.get(key)
            if writer is not None and self._is_cleanable(key, writer):
                return self._planned(key, log_dir, writer)
        return None

    def due(self) -> list[CleaningCandidate]:
        """Returns the logs that Kafka would clean now, the dirtiest first
        (LogCleanerManager.grabFilthiestCompactedLog). A log for which this cannot be determined
        becomes uncleanable."""
        found = []
        for key, log_dir, writer in self._compacted():
            if not writer.has_rolled:
                continue  # the active segment is never cleaned
            try:
                candidate = self._planned(key, log_dir, writer)
            except (*_GONE, LogDirOffline):
                continue  # it is being deleted, or its disk fails
            except StorageError as error:
                self._give_up(key, error)
                continue
            if candidate.plan.is_eligible:
                found.append(candidate)
        return sorted(found, key=lambda each: -each.plan.ratio)

    def _compacted(self) -> Iterator[tuple[TopicPartition, CleanedDir, LogWriter]]:
        for log_dir in self._dirs:
            for key, writer in log_dir.sorted_logs():
                if self._is_cleanable(key, writer):
                    yield key, log_dir, writer

    def _is_cleanable(self, key: TopicPartition, writer: LogWriter) -> bool:
        return (
            compacts(writer.config)
            and key not in self.uncleanable
            and self.cleaning_state.is_idle(key)
        )

    def _planned(
        self, key: TopicPartition, log_dir: CleanedDir, writer: LogWriter
    ) -> CleaningCandidate:
        # Read before the view is made: later rolls and commits have to wait for the next pass.
        rolled = writer.rolled()
        view = self._view_of(key)
        stable = min(rolled.stable_offset, rolled.end_offset)
        state = state_of(view, log_dir.checkpoints.cleaner_offset(key), stable)
        planned = plan(state, writer.config, self._clock.now_ms())
        if planned.resets_checkpoint:
            logger.warning("%s-%d: cleaning from the log start: checkpoint out of range", *key)
            log_dir.checkpoints.put_cleaner_offset(key, planned.first_dirty)
        return CleaningCandidate(key, log_dir, writer, rolled, view, planned)

    # -- cleaning --------------------------------------------------------------------------------

    def run(self) -> None:
        """Cleans logs until none is due, and after each applies retention to all compacted logs
        (LogCleaner.cleanFilthiestLog). An OSError that stopped one of them is raised after all were
        tried; errors of a log or a directory are recorded there."""
        failures: list[OSError] = []
        skipped: set[TopicPartition] = set()
        offset_map: OffsetMap | None = None
        while True:
            candidate = next((each for each in self.due() if each.key not in skipped), None)
            if candidate is not None:
                offset_map = offset_map or self.new_map()
                if not self._makes_progress(candidate, offset_map, failures):
                    skipped.add(candidate.key)
            failures += self._retain()
            if candidate is None:
                break
        if failures:
            try:
                raise failures[0]
            finally:
                del failures  # avoids a reference cycle between the errors and this frame

    def _makes_progress(
        self, candidate: CleaningCandidate, offset_map: OffsetMap, failures: list[OSError]
    ) -> bool:
        """Returns whether a pass made progress, so that the next one may follow at once."""
        try:
            return self.clean(candidate, offset_map).end_offset > candidate.plan.first_dirty
        except OSError as error:
            failures.append(error)
        except Exception:
            # The log is in `uncleanable`, its directory is offline, or the cleaning was aborted.
            logger.debug("%s-%d: the cleaning ended", *candidate.key, exc_info=True)
        return False

    def clean(
        self,
        candidate: CleaningCandidate,
        offset_map: OffsetMap,
        on_progress: OnProgress | None = None,
    ) -> CleaningResult:
        """Makes one pass over a log. `on_progress` is called with the bytes processed and the
        total. Raises the same errors as `clean_by`."""
        writer = candidate.writer
        most = self._config.log_cleaner_io_max_bytes_per_second

        def work(log: LogToClean, replace: Replace) -> CleaningResult:
            sink = CleanedSink(writer.directory, writer.config, replace)
            throttle = Throttle(most, self._clock, partial(self.cleaning_state.wait, candidate.key))
            return clean(log, offset_map, sink, throttle)

        return self.clean_by(candidate, work, on_progress)

    def clean_by(
        self, candidate: CleaningCandidate, work: Work, on_progress: OnProgress | None = None
    ) -> CleaningResult:
        """Makes one pass over a log by calling `work`.

        Raises CleaningAborted if the log was truncated or deleted, or its partition is claimed;
        LogDirOffline; or an OSError that does not mean a failed disk (ENOSPC). Any other error,
        such as CorruptError, makes the log uncleanable. Segments swapped in before an error are
        kept.
        """
        key, log_dir, writer = candidate.key, candidate.log_dir, candidate.writer
        with self.cleaning_state.in_progress(key) as is_mine:
            if not is_mine:
                raise CleaningAborted("the partition is already being cleaned or changed")
            try:
                with log_dir.guarded():
                    # The log may have been truncated since it was selected.
                    now = self._planned(key, log_dir, writer)
                    # A record may only be discarded if a power failure cannot undo the reason: a
                    # later record, or the end of its transaction, possibly above the cleaned part.
                    writer.flush()
                    result = self._clean(now, work, on_progress or (lambda done, of: None))
                    log_dir.checkpoints.put_cleaner_offset(key, result.end_offset)
                    _log_cleaning(key, now.plan, result)
                    return result
            except _GONE as error:
                raise CleaningAborted(f"the log changed: {error}") from error
            except (CleaningAborted, LogDirOffline, OSError):
                raise
            except Exception as error:
                self._give_up(key, error)
                raise

    def _clean(self, now: CleaningCandidate, work: Work, on_progress: OnProgress) -> CleaningResult:
        check = partial(self.cleaning_state.check_aborted, now.key)
        check()
        set_aside_unfinished(now.writer.directory)
        log = self.log_to_clean(now, check, on_progress)
        result = work(log, lambda new, bases: now.writer.replace_segments(new, bases, now.rolled))
        check()  # a log about to be truncated must not get a checkpoint
        return result

    def log_to_clean(
        self,
        candidate: CleaningCandidate,
        check: Callable[[], None] = lambda: None,
        on_progress: OnProgress = lambda done, of: None,
    ) -> LogToClean:
        """Returns the input of a pass over a candidate that starts now. Does not claim the
        partition."""
        return LogToClean(
            view=candidate.view,
            config=candidate.writer.config,
            first_dirty=candidate.plan.first_dirty,
            first_uncleanable=candidate.plan.first_uncleanable,
            now_ms=self._clock.now_ms(),
            producers=candidate.writer.producer_states,
            check=check,
            on_progress=on_progress,
        )

    def new_map(self) -> OffsetMap:
        """Returns an offset map sized by the broker configs. Raises ConfigError if not even one key
        would fit."""
        size = self._config.log_cleaner_dedupe_buffer_size // max(
            self._config.log_cleaner_threads, 1
        )
        try:
            return OffsetMap(size, self._config.log_cleaner_io_buffer_load_factor)
        except ValueError as error:
            raise ConfigError("log.cleaner.dedupe.buffer.size", str(error)) from None

    # -- retention -------------------------------------------------------------------------------

    def retain(
        self, key: TopicPartition, writer: LogWriter, now_ms: int | None = None
    ) -> RetentionPlan | None:
        """Applies retention as of `now_ms`, by default now, to one log, compacted or not, unless it
        is being cleaned; returns what was deleted."""
        with self.cleaning_state.in_progress(key) as is_mine:
            return writer.retain(now_ms) if is_mine else None

    def delete_below_start(self, key: TopicPartition, writer: LogWriter) -> int | None:
        """Deletes the segments of one log below its log start offset, unless it is being cleaned;
        returns how many."""
        with self.cleaning_state.in_progress(key) as is_mine:
            return writer.delete_below_start() if is_mine else None

    def _retain(self) -> list[OSError]:
        """Applies retention to all compacted logs, and returns the errors. Without `delete` in the
        cleanup.policy, it only deletes segments below the log start offset."""
        failures: list[OSError] = []
        for key, log_dir, writer in self._compacted():
            try:
                with suppress(StorageError), log_dir.guarded():  # recorded in the directory
                    self.retain(key, writer)
            except OSError as error:
                failures.append(error)
        return failures

    # -- lifecycle -------------------------------------------------------------------------------

    def forget(self, key: TopicPartition) -> None:
        """Drops the state of a deleted partition."""
        self.uncleanable.pop(key, None)

    def stop(self) -> None:
        """Aborts the current cleaning; no other can start."""
        self.cleaning_state.stop()

    def _give_up(self, key: TopicPartition, error: Exception) -> None:
        self.uncleanable[key] = str(error) or type(error).__name__
        known = isinstance(error, StorageError)
        logger.error("%s-%d: cannot be cleaned: %s", *key, error, exc_info=None if known else error)


def _log_cleaning(key: TopicPartition, planned: CleanPlan, result: CleaningResult) -> None:
    """Logs what a pass has changed, if anything."""
    records, left = sum(result.counts.values()), result.counts.get(RecordRetention.KEPT, 0)
    before = (records, result.bytes_before, result.segments_before)
    if before != (left, result.bytes_after, result.segments_after):
        logger.info(
            "%s-%d: cleaned below offset %d, first dirty offset %d:"
            " %d records with %d bytes before, %d with %d after",
            *key,
            result.end_offset,
            planned.first_dirty,
            *(records, result.bytes_before, left, result.bytes_after),
        )
