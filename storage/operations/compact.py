"""Compacts a log on request, or previews the result without changing anything.

The result is what Kafka's cleaner would reach if it had nothing else to do: retention, cleaning
passes until nothing is left to clean, and retention once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ..cleaner.cleaning import CleaningResult
from ..cleaner.manager import CleaningCandidate, OnProgress
from ..cleaner.offset_map import OffsetMap
from ..cleaner.plan import COMPACT, CleanPlan, compacts
from ..cleaner.preview.compacted_view import REASONS, CompactedView, records_in
from ..cleaner.preview.preview import PreviewRequest, preview
from ..cleaner.record_filter import RecordRetention
from ..config.kafka import broker_config
from ..errors import CleaningAborted, NotCompacted, fresh
from ..format.files.names import TopicPartition
from ..format.layout import DELETE_HORIZON_MASK
from ..format.records.columns import VALUE_SIZE, Columns, Damage
from ..io.retry import retry_if_gone
from ..lines.json_output import bytes_as_json
from ..log.read.view import View
from ..log_dirs.engine import Engine
from ..log_manager import LogManager
from .request import (
    SILENT,
    PartitionFailed,
    PreviewableRequest,
    ProgressListener,
    per_partition,
    writable,
)

# Further reasons for discarding records, besides `REASONS`, and for retaining them, besides the
# names of `Bound`.
EXPIRED = "expired"
NEWEST = "newest"
TOMBSTONE = "tombstone"
UNCLEANED = "uncleaned"


@dataclass(frozen=True, slots=True)
class Compact(PreviewableRequest):
    """Compacts the logs that Kafka's cleaner would clean now; with `force`, all that have anything
    to clean. `everything`: also report the logs that do not change."""

    force: bool = False
    everything: bool = False

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition. Returns the failures if topics are named, but
        none of them is compacted."""
        keys = self.units(engine)
        if not self.selection or any(_is_compacted(engine, key) for key in keys):
            return ()
        return [
            PartitionFailed.of(_not_compacted(engine, key), "{}-{}".format(*key)) for key in keys
        ]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a log. `records`: those from the log start offset on, including aborted and open
    transactions; `bytes`: of the `.log` files."""

    segments: int
    records: int
    bytes: int

    @classmethod
    def of(cls, view: View) -> Sizes:
        records = sum(records_in(segment, view) for segment in view.segments)
        return cls(len(view.segments), records, view.size)


@dataclass(frozen=True, slots=True)
class CompactedLog:
    """The actual or previewed result of compacting a log.

    `gone`: the number of discarded records by reason: superseded, tombstone, aborted, keyless, or
    expired, which retention deleted. `markers_gone`: discarded transaction markers, which are not
    records. `stays`: the retained records by reason: newest of their keys, tombstones before their
    delete horizons, or what keeps the cleaner from their segments (see `Bound`); uncleaned if no
    pass ran.

    `is_eligible`, `dirty_ratio` (0 to 1), `is_overdue`: whether Kafka would clean the log now, and
    why. If `passes` is 0, nothing was cleaned.
    """

    topic: str
    partition: int
    is_eligible: bool
    dirty_ratio: float
    min_ratio: float
    is_overdue: bool
    passes: int
    before: Sizes
    after: Sizes
    gone: Mapping[str, int]
    markers_gone: int
    stays: Mapping[str, int]

    @property
    def is_change(self) -> bool:
        """Whether anything was cleaned or deleted."""
        return self.passes > 0 or self.before != self.after

    def as_json(self) -> dict[str, Any]:
        before, after = asdict(self.before), asdict(self.after)
        sizes = {name: {"before": before[name], "after": after[name]} for name in before}
        return {
            "topic": self.topic,
            "partition": self.partition,
            **sizes,
            "gone": dict(self.gone),
            "markersGone": self.markers_gone,
            "stays": dict(self.stays),
            "passes": self.passes,
            "isEligible": self.is_eligible,
            "dirtyRatio": round(self.dirty_ratio, 4),
            "minCleanableDirtyRatio": self.min_ratio,
            "isOverdue": self.is_overdue,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> CompactedLog:
        """Restores an object from the result of `as_json`."""
        before, after = (
            Sizes(*(row[name][when] for name in ("segments", "records", "bytes")))
            for when in ("before", "after")
        )
        return cls(
            topic=row["topic"],
            partition=row["partition"],
            is_eligible=row["isEligible"],
            dirty_ratio=row["dirtyRatio"],
            min_ratio=row["minCleanableDirtyRatio"],
            is_overdue=row["isOverdue"],
            passes=row["passes"],
            before=before,
            after=after,
            gone=row["gone"],
            markers_gone=row["markersGone"],
            stays=row["stays"],
        )


def compact(
    engine: Engine, request: Compact, progress: ProgressListener = SILENT
) -> Iterator[CompactedLog | PartitionFailed]:
    """Compacts each log if it is due or, with `force`, if there is anything to clean; the others
    only undergo retention. A log that is not compacted is skipped or, if its topic is named, fails
    with NotCompacted; one that is being cleaned or changed fails with CleaningAborted. A preview
    fails with CorruptError, with file and position, where damage would end a pass."""
    offset_map = writable(engine).cleaner.new_map() if request.writes else None

    def work(key: TopicPartition) -> Iterator[CompactedLog]:
        if not _is_compacted(engine, key):
            if request.selection.has_topic(key[0]):
                raise _not_compacted(engine, key)
            return
        report = partial(progress.report, "{}/{}".format(*key))
        if offset_map is not None:
            result = _applied(writable(engine), key, request, offset_map, report)
        else:
            result = retry_if_gone(lambda: _previewed(engine, key, request, report))
        row = result.row(key)
        if row.is_change or request.everything:
            yield row

    yield from per_partition(engine, request, "compacting logs", work, progress)


def _is_compacted(engine: Engine, key: TopicPartition) -> bool:
    return compacts(engine.topic_config(key[0]).config)


def _not_compacted(engine: Engine, key: TopicPartition) -> NotCompacted:
    """Returns why a log is not compacted."""
    if COMPACT in engine.topic_config(key[0]).config.cleanup_policy:
        return NotCompacted("a topic with remote.storage.enable=true cannot be compacted")
    return NotCompacted()


def is_due(planned: CleanPlan, force: bool) -> bool:
    """Whether there is anything to clean, and Kafka would clean it now or has to."""
    return planned.first_dirty < planned.first_uncleanable and (planned.is_eligible or force)


def candidate(engine: LogManager, key: TopicPartition) -> CleaningCandidate:
    """Returns what could be cleaned of a log. Raises NotCompacted, CleaningAborted, and what
    `LogManager.writer` raises."""
    engine.writer(*key)
    found = engine.cleaner.candidate(key)
    if found is not None:
        return found
    if not _is_compacted(engine, key):
        raise _not_compacted(engine, key)
    why = engine.cleaner.uncleanable.get(key, "the log is already being cleaned or changed")
    raise CleaningAborted(why)


@dataclass(frozen=True, slots=True)
class _Result:
    """What compacting a log did, or would do. `view`: the log after the first retention, on which
    `planned` is based; `gone`: see CompactedLog; `above`: base offset and records of the segments
    afterwards; `tombstones`: those retained in the cleaned part."""

    view: View
    planned: CleanPlan
    passes: int
    before: Sizes
    after: Sizes
    gone: Mapping[str, int]
    markers_gone: int
    tombstones: int
    above: Sequence[tuple[int, int]]

    def row(self, key: TopicPartition) -> CompactedLog:
        planned = self.planned
        return CompactedLog(
            *key,
            is_eligible=planned.is_eligible,
            dirty_ratio=planned.ratio,
            min_ratio=planned.min_ratio,
            is_overdue=planned.is_overdue,
            passes=self.passes,
            before=self.before,
            after=self.after,
            gone=self.gone,
            markers_gone=self.markers_gone,
            stays=self._stays(),
        )

    def _stays(self) -> dict[str, int]:
        """Counts the retained records by reason."""
        records = self.after.records
        if not self.passes:
            return {UNCLEANED: records} if records else {}
        bounds = _bounds_above(self.view, self.planned)
        held: Counter[str] = Counter()
        for base, count in self.above:
            if base in bounds:
                held[bounds[base]] += count
        cleaned = records - held.total()
        stays = {NEWEST: cleaned - self.tombstones, TOMBSTONE: self.tombstones, **held}
        return {why: count for why, count in stays.items() if count}


def _applied(
    engine: LogManager,
    key: TopicPartition,
    request: Compact,
    offset_map: OffsetMap,
    on_progress: OnProgress,
) -> _Result:
    found = candidate(engine, key)
    before = Sizes.of(found.view)
    engine.cleaner.retain(key, found.writer)
    found = engine.cleaner.candidate(key) or found
    kept = Sizes.of(found.view)
    results = []
    if is_due(found.plan, request.force):
        results = list(_passes(engine, found, offset_map, on_progress))
    cleaned = Sizes.of(engine.log(*key).view())
    engine.cleaner.retain(key, found.writer)
    view = engine.log(*key).view()
    after = Sizes.of(view)
    counts = sum((Counter(result.counts) for result in results), Counter[RecordRetention]())
    gone = {reason: counts[fate] for reason, fate in REASONS.items()}
    gone[EXPIRED] = before.records - kept.records + cleaned.records - after.records
    return _Result(
        found.view,
        found.plan,
        len(results),
        before,
        after,
        gone,
        counts[RecordRetention.MARKER],
        results[-1].tombstones if results else 0,
        _records_by_base(view),
    )


def _passes(
    engine: LogManager,
    found: CleaningCandidate,
    offset_map: OffsetMap,
    on_progress: OnProgress | None,
) -> Iterator[CleaningResult]:
    """Runs passes until nothing is left to clean, or until one makes no progress."""
    planned = found.plan
    while planned.first_dirty < planned.first_uncleanable:
        result = engine.cleaner.clean(found, offset_map, on_progress)
        yield result
        if result.end_offset <= planned.first_dirty:
            return
        planned = replace(planned, first_dirty=result.end_offset)


def _previewed(
    engine: Engine, key: TopicPartition, request: Compact, on_progress: OnProgress
) -> _Result:
    to_preview = preview_request(engine, key, request.now_ms(engine))
    planned, view = to_preview.planned, to_preview.view
    if not is_due(planned, request.force):
        # Nothing will be cleaned; only retention remains.
        nothing = replace(planned, first_uncleanable=planned.first_dirty)
        to_preview = replace(to_preview, planned=nothing)
    compacted = CompactedView(to_preview, preview(to_preview, on_progress))
    summary = compacted.summary()
    before, after = (
        Sizes(*(summary[name][when] for name in ("segments", "records", "bytes")))
        for when in ("before", "after")
    )
    return _Result(
        view,
        planned,
        summary["passes"],
        before,
        after,
        summary["gone"],
        summary["markersGone"],
        compacted.totals.tombstones,
        _records_by_base(view),
    )


def _records_by_base(view: View) -> list[tuple[int, int]]:
    return [(segment.base_offset, records_in(segment, view)) for segment in view.segments]


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key that is retained, the `offset` of its newest record, and the reason (see
    `CompactedLog.stays`). `until_ms`: when a tombstone may be discarded, -1 if unknown."""

    key: bytes
    offset: int
    why: str
    until_ms: int = -1

    def as_json(self) -> dict[str, Any]:
        return {
            "key": bytes_as_json(self.key),
            "offset": self.offset,
            "stays": self.why,
            "until": None if self.until_ms < 0 else self.until_ms,
        }


def retained_keys(
    engine: Engine, request: Compact, progress: ProgressListener = SILENT
) -> Iterator[KeptKey | PartitionFailed]:
    """Yields the keys that a forced compaction would retain, by the offsets of their newest
    committed records. Uses the memory of the offset map, then that of `LatestRecords.live`."""

    def work(key: TopicPartition) -> Iterator[KeptKey]:
        report = partial(progress.report, "{}/{}".format(*key))
        return _retained_keys(engine, key, request.now_ms(engine), report)

    return per_partition(engine, request, "previewing compaction", work, progress)


def _retained_keys(
    engine: Engine, key: TopicPartition, now_ms: int, on_progress: OnProgress
) -> Iterator[KeptKey]:
    to_preview = retry_if_gone(lambda: preview_request(engine, key, now_ms).pinned())
    compacted = CompactedView(to_preview, preview(to_preview, on_progress, in_full=False))
    bounds = _bounds_above(to_preview.view, to_preview.planned)
    newest = engine.latest.newest(to_preview.view)
    for part in compacted.scan():
        if isinstance(part, Damage):
            raise fresh(part.error)
        part = part.where(newest.mask(part.offsets))
        for row, offset in enumerate(part.offsets.tolist()):
            at = to_preview.view.segments.floor_index(offset)
            bound = bounds.get(to_preview.view.segments[at].base_offset)
            if bound is not None:
                why, until = bound, -1
            elif part.spans[row, VALUE_SIZE] < 0:
                why, until = TOMBSTONE, _until(part, row, to_preview)
            else:
                why, until = NEWEST, -1
            yield KeptKey(part.key(row) or b"", offset, why, until)


def _until(part: Columns, row: int, to_preview: PreviewRequest) -> int:
    """Returns when a tombstone may be discarded: at its batch's delete horizon, which the next pass
    sets if there is none. Tombstones before magic 2 have none."""
    batch = part.batch_of(row)
    if batch.magic < 2:
        return -1
    if batch.attributes & DELETE_HORIZON_MASK:
        return batch.base_timestamp
    return to_preview.now_ms + to_preview.config.delete_retention_ms


def preview_request(engine: Engine, key: TopicPartition, now_ms: int) -> PreviewRequest:
    """Returns a log and how it would be compacted at `now_ms`, from its configs and the state of
    its segments; reads no records."""
    topic, number = key
    checkpoint = engine.partition_dir(topic, number).log_dir.cleaner_offsets.get(key)
    return PreviewRequest.of(
        engine.log(topic, number).view(),
        engine.topic_config(topic).config,
        broker_config(engine.configs),
        checkpoint,
        now_ms,
    )


def _bounds_above(view: View, planned: CleanPlan) -> dict[int, str]:
    """Returns what keeps the cleaner from the segments it does not process, by their base
    offsets."""
    return {
        segment.base_offset: bound.name.lower()
        for segment, bound in zip(view.segments, planned.bounds, strict=True)
        if segment.base_offset >= planned.first_uncleanable
    }
