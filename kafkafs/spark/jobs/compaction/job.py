"""The `compact` job: does the work of `kafkafs compact` in many processes.

It distributes Kafka's cleaner: one task cleans a whole small partition, many tasks clean a large
one in pieces (`storage.cleaner`: `split_plan`, `split_pass`). Tasks only read the log directories
and write next to them. The driver holds the directories' locks throughout. When a partition is
done, it swaps in the new segments as the cleaner does, oldest first. If the job is killed, each log
is therefore unchanged, compacted, or in the state that a cleaner leaves if it is killed between two
segments.

A restarted job reuses the results of `learn` and `decide` for large partitions; passes over small
partitions, and copies, are repeated.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kafkafs.storage import (
    FILES,
    REASONS,
    CleaningAborted,
    CleaningCandidate,
    CleaningResult,
    Compact,
    Copied,
    CorruptError,
    FileKind,
    FileState,
    LogManager,
    LogToClean,
    NotCompacted,
    Plan,
    RecordRetention,
    Replace,
    SegmentGone,
    Selected,
    Selection,
    Shape,
    StagedSegment,
    StorageError,
    TopicPartition,
    WritableDirFd,
    candidate,
    discard_cleaned,
    fingerprint,
    is_due,
    local_path,
    partition_dir,
    segment_file,
)

from ...read.planning import refuse_within_log_dir
from .. import tasks
from ..job_log_dirs import JobLogDirs
from ..report import Report, Row
from ..tasks import OnProgress, silent
from . import pieces
from .pieces import Failed, LargePartition, WholePass, how_many_to_cut, map_bytes
from .staging import Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unit = TypeVar("Unit")
Result = TypeVar("Result")

# How much of a large partition a task reads; less if that keeps more processors busy.
_MOST_RANGE_BYTES: Final = 1 << 30
_LEAST_RANGE_BYTES: Final = 16 << 20
_RANGES_A_PROCESSOR: Final = 4
_PARTS_A_PROCESSOR: Final = 2
# Bytes of partitions per processor that are processed at a time, to bound the space for staging.
_WAVE_BYTES: Final = 4 << 30
_MOST_SHAPE_BYTES: Final = 4 << 10
_SHAPE: Final = "shape.json"
_COLUMNS: Final = (
    *("topic", "partition", "segments", "segments_after", "bytes", "bytes_after", "kept"),
    *(*REASONS, "markers", "tasks"),
)


class RunUnits(Protocol):
    """Runs units of work and returns their results, in order."""

    def __call__(
        self,
        what: str,
        units: Sequence[Unit],
        work: Callable[[Unit], Result],
        size: Callable[[Unit], int] = ...,
    ) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class CompactOptions:
    """`force`: also compact logs that are not due. `split_bytes`: partitions with more bytes to
    process are cleaned in pieces; None: those that would keep processors waiting
    (`how_many_to_cut`). `staging`: the directory where pieces are made, on the file system of the
    log directories; None: next to each. `processors`: their approximate number."""

    force: bool = False
    split_bytes: int | None = None
    staging: str | None = None
    processors: int = 1


def compact(
    spark: SparkSession,
    log_dirs: str | Sequence[str],
    topics: Sequence[Selected] = (),
    *,
    force: bool = False,
    split_bytes: int | None = None,
    staging: str | None = None,
    configs: Mapping[str, str] | None = None,
    on_progress: OnProgress = silent,
) -> Report:
    """Compacts the logs in `log_dirs`, or of the selected `topics` (and partitions), that Kafka's
    cleaner would clean now; with `force` also those that are not due. The report has a row for each
    log that changed.

    `configs` are the configs of this run, as for `kafkafs compact`: the offset map of a task takes
    at most log.cleaner.dedupe.buffer.size bytes. For `split_bytes` and `staging` see
    `CompactOptions`.

    Raises LogDirLocked if another process holds a directory; LogDirError, ConfigError, UnknownTopic
    or UnknownPartition.
    """
    if staging is not None:
        staging = os.path.abspath(local_path(staging))
    processors = spark.sparkContext.defaultParallelism
    options = CompactOptions(force, split_bytes, staging, processors)
    run = partial(tasks.run, spark, on_progress=on_progress)
    dirs = JobLogDirs.of(log_dirs, configs)
    if staging is not None:
        refuse_within_log_dir(staging, dirs.log_dirs)
    there = dirs.engine().topics()  # opening for writing would create missing directories
    selection = Selection(tuple(topics))
    refused = Compact(selection, force=force).check(dirs.engine())
    if refused:
        # With invalid arguments the job neither locks nor changes anything.
        named = zip(selection.partitions(there), refused, strict=True)
        wrong = [_wrong(key, each.error) for key, each in named]
        return Report("compact", _COLUMNS, [], wrong, 0, totals={"partitions": 0, "changed": 0})
    with LogManager(dirs.log_dirs, dict(dirs.configs)) as engine:
        return CompactionJob(engine, dirs, options, run).compact(topics)


@dataclass(slots=True)
class _Log:
    """The progress of one log. `before`: its number of segments and bytes; `tasks`: the number of
    tasks that clean it, 0 if there is nothing to clean; `plan`: only if it is cleaned in pieces;
    `result`: set after its new segments are swapped in."""

    candidate: CleaningCandidate
    log: LogToClean
    before: tuple[int, int]
    is_due: bool
    tasks: int = 0
    staging: str = ""
    plan: Plan | None = None
    result: CleaningResult | None = None

    @property
    def key(self) -> TopicPartition:
        return self.candidate.key

    @property
    def log_dir(self) -> str:
        return os.path.dirname(self.candidate.writer.path)

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        """Base offsets and sizes of the segments that the pass covers."""
        end = self.log.first_uncleanable
        return tuple((s.base_offset, s.size) for s in self.log.view.segments if s.base_offset < end)

    @property
    def size(self) -> int:
        return sum(size for _, size in self.segments)

    @property
    def dirty_offsets(self) -> int:
        return self.log.first_uncleanable - self.log.first_dirty

    @property
    def name(self) -> str:
        """The name of its staging directory, which differs if the log has changed."""
        text = f"{partition_dir(*self.key)} {fingerprint(self.log)}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]


class CompactionJob:
    """One compaction of the logs of an engine, which nobody else uses meanwhile."""

    def __init__(
        self, engine: LogManager, dirs: JobLogDirs, options: CompactOptions, run: RunUnits
    ) -> None:
        self._engine = engine
        self._dirs = dirs
        self._options = options
        self._run = run
        self._wrong: list[Row] = []
        self._map_bytes = engine.broker_config.log_cleaner_dedupe_buffer_size

    def compact(self, topics: Sequence[Selected]) -> Report:
        """Compacts the selected logs; see the module's `compact`."""
        named = {topic for topic, _ in topics}
        selected = Selection(tuple(topics)).partitions(self._engine.topics())
        logs = [log for key in selected for log in self._log(key, key[0] in named)]
        due = sorted((e for e in logs if e.is_due), key=lambda each: each.size, reverse=True)
        small, large = self._small_and_large(due)
        staging = Staging(self._dirs.log_dirs, self._options.staging)
        self._stage(staging, small, large)
        wave_bytes = _WAVE_BYTES * self._options.processors
        for wave in tasks.grouped(small, lambda each: each.size, wave_bytes):
            self._clean_small(wave)
        for wave in tasks.grouped(large, lambda each: each.size, wave_bytes):
            self._clean_large(wave)
        staging.remove()
        rows = [row for each in logs for row in self._rows(each)]
        totals = {"partitions": len(logs), "changed": len(rows)}
        return Report("compact", _COLUMNS, rows, self._wrong, len(due), totals=totals)

    # -- selection ------------------------------------------------------------------------------

    def _log(self, key: TopicPartition, is_named: bool) -> Iterator[_Log]:
        """Yields the log after retention, if it is compacted; records its errors."""
        try:
            found = candidate(self._engine, key)
            before = len(found.view.segments), found.view.size
            self._engine.cleaner.retain(key, found.writer)
            found = candidate(self._engine, key)
            due = is_due(found.plan, self._options.force)
            yield _Log(found, self._engine.cleaner.log_to_clean(found), before, due)
        except NotCompacted as error:
            if is_named:
                self._note(key, error)
        except (StorageError, OSError) as error:
            self._note(key, error)

    def _small_and_large(self, logs: Sequence[_Log]) -> tuple[list[_Log], list[_Log]]:
        """Returns the logs to clean as a whole, and those to clean in pieces; `logs`: the largest
        first."""
        fit = [each for each in logs if map_bytes(each.dirty_offsets) <= self._map_bytes]
        most = self._options.split_bytes
        if most is None:
            cut = how_many_to_cut([each.size for each in fit], self._options.processors)
        else:
            cut = sum(each.size > most for each in fit)
        small = {each.key for each in fit[cut:]}
        return fit[cut:], [each for each in logs if each.key not in small]

    def _stage(self, staging: Staging, small: Sequence[_Log], large: Sequence[_Log]) -> None:
        for log_dir in {each.log_dir for each in (*small, *large)}:
            ours = [each for each in large if each.log_dir == log_dir]
            root = staging.begin(log_dir, {each.name for each in ours})
            for each in ours:
                each.staging = staging.large(root, each.name).path
            for each in small:
                if each.log_dir == log_dir:
                    each.staging = staging.whole(root)

    # -- small partitions -----------------------------------------------------------------------

    def _clean_small(self, logs: Sequence[_Log]) -> None:
        units = [self._whole(each) for each in logs]
        found = self._run(
            "compact: whole partitions", units, pieces.clean_whole, self._shares(units)
        )
        for each, result in zip(logs, found, strict=True):
            each.tasks = 1
            if isinstance(result, Failed):
                self._note(each.key, result.error)
            else:
                self._put_in_place(each, result.segments, result.result)

    def _whole(self, each: _Log) -> WholePass:
        log = each.log
        return WholePass(
            self._dirs,
            each.key,
            log.config,
            log.first_dirty,
            log.first_uncleanable,
            log.now_ms,
            tuple(log.producers()),
            each.segments,
            each.staging,
        )

    # -- large partitions -----------------------------------------------------------------------

    def _clean_large(self, logs: Sequence[_Log]) -> None:
        total = sum(each.size for each in logs)
        planned = [each for each in logs if self._is_planned(each, total)]
        learned = self._step(planned, "learn keys", pieces.learn, _ranges)
        for each, found in learned:
            assert each.plan is not None
            each.plan = each.plan.with_transactions(found)
        decided = self._step([each for each, _ in learned], "decide", pieces.decide, _parts)
        keys = {each.key: sum(found) for each, found in decided}
        logs = [each for each, _ in decided]
        for each, copies in self._step(logs, "copy", pieces.copy, _groups):
            result = _joined(each, copies, keys[each.key])
            self._put_in_place(each, [copied.segment for copied in copies], result)

    def _is_planned(self, each: _Log, total: int) -> bool:
        """Plans a log; returns False if that fails, for example because its indexes cannot be read.
        `total`: bytes of all logs that are cleaned together with it."""
        try:
            plan = each.plan = Plan.of(each.log, self._shape(each, total))
        except (StorageError, OSError) as error:
            self._note(each.key, error)
            return False
        each.tasks = len(plan.ranges) + plan.split.shape.parts + len(plan.groups)
        return True

    def _shares(self, units: Sequence[Any]) -> Callable[[Any], int]:
        """Returns the `size` function that groups units into tasks: a few of similar size for each
        processor, or so many that none has more than _MOST_RANGE_BYTES."""
        total = sum(map(_size, units))
        even = total // (self._options.processors * _RANGES_A_PROCESSOR)
        share = min(max(even, 1), _MOST_RANGE_BYTES)
        return lambda unit: _size(unit) * tasks.TASK_BYTES // share

    def _shape(self, each: _Log, total: int) -> Shape:
        """Returns how the partition is divided; if an earlier job started it, in the same way as
        then."""
        directory = WritableDirFd(each.staging)
        with suppress(SegmentGone, ValueError):
            return Shape.of_json(directory.read_small(_SHAPE, _MOST_SHAPE_BYTES))
        processors = self._options.processors
        even = total // (processors * _RANGES_A_PROCESSOR)
        range_bytes = min(max(even, _LEAST_RANGE_BYTES), _MOST_RANGE_BYTES)
        parts = -(-processors * _PARTS_A_PROCESSOR * each.size // max(total, 1))
        shape = Shape.of(each.dirty_offsets, range_bytes, self._map_bytes, parts)
        directory.write_atomically(_SHAPE, shape.as_json())
        return shape

    def _step(
        self,
        logs: Sequence[_Log],
        what: str,
        work: Callable[..., Result | Failed],
        units_of: Callable[[Plan], Sequence[Any]],
    ) -> list[tuple[_Log, list[Result]]]:
        """Runs `work` on all units of all logs; returns the results of those logs whose units all
        succeeded."""
        plans = [each.plan for each in logs if each.plan is not None]
        units = [(n, unit) for n, plan in enumerate(plans) for unit in units_of(plan)]
        large = tuple(
            LargePartition(self._dirs, each.key, plan.split, each.staging)
            for each, plan in zip(logs, plans, strict=True)
        )
        found = self._run(f"compact: {what}", units, partial(work, large), self._shares(units))
        results: list[list[Result]] = [[] for _ in logs]
        failed: dict[int, StorageError | OSError] = {}
        for (number, _), result in zip(units, found, strict=True):
            if isinstance(result, Failed):
                failed.setdefault(number, result.error)
            else:
                results[number].append(result)
        for number, error in failed.items():
            self._note(logs[number].key, error)
        return [pair for n, pair in enumerate(zip(logs, results, strict=True)) if n not in failed]

    # -- swapping in ----------------------------------------------------------------------------

    def _put_in_place(
        self, each: _Log, segments: Sequence[StagedSegment], result: CleaningResult
    ) -> None:
        """Swaps in the new segments, oldest first, and writes the cleaner checkpoint."""
        directory = each.candidate.writer.directory
        expected = fingerprint(each.log)

        def work(log: LogToClean, exchange: Replace) -> CleaningResult:
            if fingerprint(log) != expected:
                raise CleaningAborted("the log changed during the compaction")
            for staged in segments:
                _bring(directory, staged)
                exchange(staged, staged.bases)
            return result

        try:
            each.result = self._engine.cleaner.clean_by(each.candidate, work)
            self._engine.cleaner.retain(each.key, each.candidate.writer)
        except (StorageError, OSError) as error:
            self._note(each.key, error)

    # -- reporting ------------------------------------------------------------------------------

    def _note(self, key: TopicPartition, error: StorageError | OSError) -> None:
        row = _wrong(key, str(error))
        if isinstance(error, CorruptError):
            row |= {"what": error.what, "file": error.file, "position": error.position}
        self._wrong.append(row)

    def _rows(self, each: _Log) -> Iterator[Row]:
        """Yields a row for a log that changed."""
        view = self._engine.log(*each.key).view()
        after = len(view.segments), view.size
        if each.result is None and after == each.before:
            return
        counts = Counter(each.result.counts if each.result is not None else {})
        (segments, size), (segments_after, size_after) = each.before, after
        gone = {reason: counts[fate] for reason, fate in REASONS.items()}
        values = (
            *(*each.key, segments, segments_after, size, size_after, counts[RecordRetention.KEPT]),
            *(*gone.values(), counts[RecordRetention.MARKER], each.tasks),
        )
        yield dict(zip(_COLUMNS, values, strict=True))


def _wrong(key: TopicPartition, what: str) -> dict[str, Any]:
    return {"topic": key[0], "partition": key[1], "what": what}


def _size(unit: Any) -> int:
    """Returns the bytes of `.log` that a unit covers; 1 for a part of the keys, as these are
    alike."""
    about = unit[1] if isinstance(unit, tuple) else unit
    return 1 if isinstance(about, int) else about.size


def _ranges(plan: Plan) -> Sequence[Any]:
    return plan.ranges


def _parts(plan: Plan) -> Sequence[Any]:
    return range(plan.split.shape.parts)


def _groups(plan: Plan) -> Sequence[Any]:
    return plan.groups


def _joined(each: _Log, copies: Sequence[Copied], keys: int) -> CleaningResult:
    """Returns the combined result of a pass in pieces."""
    results = [copied.result for copied in copies]
    return CleaningResult(
        each.log.first_uncleanable,
        sum(result.segments_before for result in results),
        len(results),
        sum(result.bytes_before for result in results),
        sum(result.bytes_after for result in results),
        sum((Counter(result.counts) for result in results), Counter()),
        keys,
        sum(result.tombstones for result in results),
    )


def _bring(directory: WritableDirFd, staged: StagedSegment) -> None:
    """Moves a staged segment's files into the partition's directory, under their `.cleaned`
    names."""
    source = WritableDirFd(staged.directory)
    try:
        for kind in FILES:
            is_optional = kind is FileKind.TXNINDEX
            with suppress(*([FileNotFoundError] if is_optional else [])):
                directory.take(segment_file(staged.base_offset, kind, FileState.CLEANED), source)
    except OSError as error:
        try:
            discard_cleaned(directory, [staged.base_offset])
        except OSError as another:
            error.add_note(f"also failed to remove the moved files: {another}")
        raise
