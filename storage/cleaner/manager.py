"""Which log is cleaned next, and what becomes of its cleaning.

Kafka's LogCleanerManager with the loop of its LogCleaner. A log is a candidate while its topic is
compacted, nobody has paused it and no cleaning of it failed by what is in it: such a one is
`uncleanable` until the engine is opened anew. Of the candidates that are worth it, the dirtiest is
cleaned first. How far a log was cleaned is in the `cleaner-offset-checkpoint` of its directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ..clock import Clock
from ..config import BrokerConfig
from ..errors import (
    CleaningAborted,
    ConfigError,
    LogDirOffline,
    SegmentGone,
    StorageError,
    UnknownPartition,
    UnknownTopic,
)
from ..log.leftovers import set_aside_unfinished
from ..log.loaded import LoadedSegment
from ..log.local_log import Rolled
from ..log.retention import RetentionPlan
from ..log.view import View
from ..log.writer import LogWriter
from .claims import Claims, TopicPartition
from .cleaning import CleanedSink, CleaningResult, clean
from .offset_map import OffsetMap
from .plan import COMPACT, CleanPlan, LogToClean, plan, state_of
from .throttle import Throttle

logger = logging.getLogger(__name__)

# What is raised for a log that is just being deleted, or files of it.
_GONE = (SegmentGone, UnknownPartition, UnknownTopic)

Told = Callable[[int, int], None]
#: Puts a new segment in the place of those with these base offsets: `LogWriter.replace_segments`.
Replace = Callable[[LoadedSegment, Sequence[int]], None]
#: Cleans a log, and replaces what it has cleaned.
Work = Callable[[LogToClean, Replace], CleaningResult]


class CleanedDir(Protocol):
    """What is asked of a log directory."""

    @property
    def logs(self) -> Mapping[TopicPartition, LogWriter]: ...
    def sorted_logs(self) -> Sequence[tuple[TopicPartition, LogWriter]]: ...
    def cleaner_offset(self, key: TopicPartition) -> int | None: ...
    def put_cleaner_offset(self, key: TopicPartition, offset: int) -> None: ...
    def guarded(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A compacted log, and what of it can be cleaned. `rolled` and `view` are those that `plan` is
    about."""

    key: TopicPartition
    log_dir: CleanedDir
    writer: LogWriter
    rolled: Rolled
    view: View
    plan: CleanPlan


class CleanerManager:
    """Cleans the logs of an engine, one at a time. Any thread may call.

    `uncleanable`: the logs that are not cleaned any more, and why.
    """

    def __init__(
        self,
        dirs: Sequence[CleanedDir],
        view_of: Callable[[TopicPartition], View],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self.claims = Claims()
        self.uncleanable: dict[TopicPartition, str] = {}
        self._dirs = dirs
        self._view_of = view_of
        self._config = config
        self._clock = clock

    @property
    def problems(self) -> list[str]:
        """Why logs are not cleaned any more, a line each."""
        return [
            f"{topic}-{number}: not cleaned until it is opened anew: {why}"
            for (topic, number), why in sorted(self.uncleanable.items())
        ]

    # -- choosing --------------------------------------------------------------------------------

    def candidate(self, key: TopicPartition) -> Candidate | None:
        """What of a log could be cleaned now; None when it is not compacted, uncleanable, or
        somebody has it."""
        for log_dir in self._dirs:
            writer = log_dir.logs.get(key)
            if writer is not None and self._is_wanted(key, writer):
                return self._planned(key, log_dir, writer)
        return None

    def due(self) -> list[Candidate]:
        """The logs that Kafka would clean now, the dirtiest first
        (LogCleanerManager.grabFilthiestCompactedLog). One that cannot be judged becomes
        uncleanable."""
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
                if self._is_wanted(key, writer):
                    yield key, log_dir, writer

    def _is_wanted(self, key: TopicPartition, writer: LogWriter) -> bool:
        is_compacted = COMPACT in writer.config.cleanup_policy
        return is_compacted and key not in self.uncleanable and self.claims.is_free(key)

    def _planned(self, key: TopicPartition, log_dir: CleanedDir, writer: LogWriter) -> Candidate:
        # Asked for before the view is made: what is rolled or decided after it waits.
        rolled = writer.rolled()
        view = self._view_of(key)
        stable = min(rolled.stable_offset, rolled.end_offset)
        state = state_of(view, log_dir.cleaner_offset(key), stable)
        planned = plan(state, writer.config, self._clock.now_ms())
        if planned.resets_checkpoint:
            logger.warning("%s-%d: cleaned from its start on: the checkpoint cannot be right", *key)
            log_dir.put_cleaner_offset(key, planned.first_dirty)
        return Candidate(key, log_dir, writer, rolled, view, planned)

    # -- cleaning --------------------------------------------------------------------------------

    def run(self) -> None:
        """Cleans every log that is due until none is, each time followed by the retention of all
        compacted logs (LogCleaner.cleanFilthiestLog). An OSError that held up one of them is raised
        when all were tried; what is wrong with a log or a directory is known there."""
        failures: list[OSError] = []
        passed_over: set[TopicPartition] = set()
        offset_map: OffsetMap | None = None
        while True:
            chosen = next((each for each in self.due() if each.key not in passed_over), None)
            if chosen is not None:
                offset_map = offset_map or self.new_map()
                if not self._cleans(chosen, offset_map, failures):
                    passed_over.add(chosen.key)
            failures += self._retain()
            if chosen is None:
                break
        if failures:
            try:
                raise failures[0]
            finally:
                del failures  # else they and this frame would keep each other

    def _cleans(self, chosen: Candidate, offset_map: OffsetMap, failures: list[OSError]) -> bool:
        """Whether a pass got on, and another one may be made at once."""
        try:
            return self.clean(chosen, offset_map).end_offset > chosen.plan.first_dirty
        except OSError as error:
            failures.append(error)
        except Exception:
            # It is in `uncleanable`, or offline; or somebody wanted it to stop.
            logger.debug("%s-%d: the cleaning ended", *chosen.key, exc_info=True)
        return False

    def clean(
        self, chosen: Candidate, offset_map: OffsetMap, told: Told | None = None
    ) -> CleaningResult:
        """One pass over a log. `told` is called with the bytes gone through, and of how many.
        Raises what `clean_by` does."""
        writer = chosen.writer
        most = self._config.log_cleaner_io_max_bytes_per_second

        def work(log: LogToClean, replace: Replace) -> CleaningResult:
            sink = CleanedSink(writer.directory, writer.config, replace)
            throttle = Throttle(most, self._clock, partial(self.claims.wait, chosen.key))
            return clean(log, offset_map, sink, throttle)

        return self.clean_by(chosen, work, told)

    def clean_by(self, chosen: Candidate, work: Work, told: Told | None = None) -> CleaningResult:
        """One pass over a log, which `work` does.

        CleaningAborted when the log was cut or deleted, or somebody else has it; LogDirOffline, or
        OSError (ENOSPC) that says nothing about the disk. After any other error, such as
        CorruptError, the log is uncleanable. What was swapped in before an error stays.
        """
        key, log_dir, writer = chosen.key, chosen.log_dir, chosen.writer
        with self.claims.take(key) as is_mine:
            if not is_mine:
                raise CleaningAborted("the partition is cleaned or changed by somebody else")
            try:
                with log_dir.guarded():
                    # It may have been cut since it was chosen.
                    now = self._planned(key, log_dir, writer)
                    # Nothing may go for what a power cut could still take: a later record, or the
                    # end of its transaction, which may lie behind all that is cleaned.
                    writer.flush()
                    result = self._clean(now, work, told or (lambda done, of: None))
                    log_dir.put_cleaner_offset(key, result.end_offset)
                    return result
            except _GONE as error:
                raise CleaningAborted(f"the log changed: {error}") from error
            except (CleaningAborted, LogDirOffline, OSError):
                raise
            except Exception as error:
                self._give_up(key, error)
                raise

    def _clean(self, now: Candidate, work: Work, told: Told) -> CleaningResult:
        check = partial(self.claims.check, now.key)
        check()
        set_aside_unfinished(now.writer.directory)
        log = self.log_to_clean(now, check, told)
        result = work(log, lambda new, bases: now.writer.replace_segments(new, bases, now.rolled))
        check()  # what is cut just now does not count as cleaned
        return result

    def log_to_clean(
        self,
        chosen: Candidate,
        check: Callable[[], None] = lambda: None,
        told: Told = lambda done, of: None,
    ) -> LogToClean:
        """What a pass over a candidate is about, begun now; nothing keeps anybody from it yet."""
        return LogToClean(
            view=chosen.view,
            config=chosen.writer.config,
            first_dirty=chosen.plan.first_dirty,
            first_uncleanable=chosen.plan.first_uncleanable,
            now_ms=self._clock.now_ms(),
            producers=chosen.writer.producer_states,
            check=check,
            told=told,
        )

    def new_map(self) -> OffsetMap:
        """An offset map as the settings want it. ConfigError when no key would fit into it."""
        size = self._config.log_cleaner_dedupe_buffer_size // max(
            self._config.log_cleaner_threads, 1
        )
        try:
            return OffsetMap(size, self._config.log_cleaner_io_buffer_load_factor)
        except ValueError as error:
            raise ConfigError("log.cleaner.dedupe.buffer.size", str(error)) from None

    # -- retention -------------------------------------------------------------------------------

    def retain(self, key: TopicPartition, writer: LogWriter) -> RetentionPlan | None:
        """Retention of one log, compacted or not, unless it is just being cleaned; what went."""
        with self.claims.take(key) as is_mine:
            return writer.retain() if is_mine else None

    def delete_below_start(self, key: TopicPartition, writer: LogWriter) -> int | None:
        """Deletes the segments of one log that lie below its start, unless it is just being
        cleaned; how many."""
        with self.claims.take(key) as is_mine:
            return writer.delete_below_start() if is_mine else None

    def _retain(self) -> list[OSError]:
        """Retention of all compacted logs, which also takes what lies below the log start offset of
        those that are never deleted from; what failed."""
        failures: list[OSError] = []
        for key, log_dir, writer in self._compacted():
            try:
                with suppress(StorageError), log_dir.guarded():  # told where it is offline
                    self.retain(key, writer)
            except OSError as error:
                failures.append(error)
        return failures

    # -- what others do --------------------------------------------------------------------------

    def forget(self, key: TopicPartition) -> None:
        """The partition is there no more."""
        self.uncleanable.pop(key, None)

    def stop(self) -> None:
        """Has what is under way given up; nothing is cleaned any more."""
        self.claims.stop()

    def _give_up(self, key: TopicPartition, error: Exception) -> None:
        self.uncleanable[key] = str(error) or type(error).__name__
        known = isinstance(error, StorageError)
        logger.error("%s-%d: cannot be cleaned: %s", *key, error, exc_info=None if known else error)
