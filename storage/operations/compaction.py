"""Compacts a log on request, or previews the result without changing anything.

The result is what Kafka's cleaner would reach if it had nothing else to do: retention, cleaning
passes until nothing is left to clean, and retention once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..cleaner.cleaning import CleaningResult
from ..cleaner.fates import RecordRetention
from ..cleaner.manager import CleaningCandidate, Told
from ..cleaner.offset_map import OffsetMap
from ..cleaner.plan import COMPACT, CleanPlan
from ..cleaner.preview.compacted_view import REASONS, CompactedView, records_in
from ..cleaner.preview.preview import PreviewRequest, preview
from ..config.kafka import broker_config
from ..errors import CleaningAborted, fresh
from ..format.layout import DELETE_HORIZON_MASK
from ..format.records.columns import VALUE_SIZE, Columns, Damage
from ..io.retry import look_again
from ..log.delete.retention import RetentionPlan
from ..log.read.view import View
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import TopicPartition
from ..log_manager import LogManager

# Further reasons for discarding records, besides `REASONS`, and for retaining them, besides the
# names of `Bound`.
EXPIRED = "expired"
NEWEST = "newest"
TOMBSTONE = "tombstone"
UNCLEANED = "uncleaned"


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
class Compaction:
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
    def of_json(cls, row: Mapping[str, Any]) -> Compaction:
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
    engine: LogManager,
    key: TopicPartition,
    offset_map: OffsetMap,
    is_forced: bool = False,
    told: Told | None = None,
) -> Compaction | None:
    """Compacts a log if Kafka would clean it now or, if `is_forced`, if there is anything to clean.
    Other logs only undergo retention. Returns None for a log that is not compacted.

    `told` is called with the bytes that a pass has processed and their total. Raises what
    `CleanerManager.clean` raises.
    """
    if COMPACT not in engine.writer(*key).config.cleanup_policy:
        return None
    found = engine.cleaner.candidate(key)
    if found is None:
        why = engine.cleaner.uncleanable.get(key, "the log is already being cleaned or changed")
        raise CleaningAborted(why)
    before = Sizes.of(found.view)
    _expire(engine, found)
    found = engine.cleaner.candidate(key) or found
    planned, kept = found.plan, Sizes.of(found.view)
    results = []
    if planned.is_eligible or is_forced:
        results = list(_passes(engine, found, offset_map, told))
    cleaned = Sizes.of(engine.log(*key).view())
    _expire(engine, found)
    view = engine.log(*key).view()
    after = Sizes.of(view)
    counts = sum((Counter(result.counts) for result in results), Counter[RecordRetention]())
    gone = {reason: counts[fate] for reason, fate in REASONS.items()}
    gone[EXPIRED] = before.records - kept.records + cleaned.records - after.records
    above = [(segment.base_offset, records_in(segment, view)) for segment in view.segments]
    tombstones = results[-1].tombstones if results else 0
    stays = _stays(found.view, planned, after.records, above if results else [], tombstones)
    return _compaction(
        key, planned, len(results), before, after, gone, counts[RecordRetention.MARKER], stays
    )


def _passes(
    engine: LogManager, found: CleaningCandidate, offset_map: OffsetMap, told: Told | None
) -> Iterator[CleaningResult]:
    """Runs passes until nothing is left to clean, or until one makes no progress."""
    planned = found.plan
    while planned.first_dirty < planned.first_uncleanable:
        result = engine.cleaner.clean(found, offset_map, told)
        yield result
        if result.end_offset <= planned.first_dirty:
            return
        planned = replace(planned, first_dirty=result.end_offset)


def _expire(engine: LogManager, found: CleaningCandidate) -> RetentionPlan | None:
    return engine.cleaner.retain(found.key, found.writer)


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key that is retained, the `offset` of its newest record, and the reason (see
    `Compaction.stays`). `until_ms`: when a tombstone may be discarded, -1 if unknown."""

    key: bytes
    offset: int
    why: str
    until_ms: int = -1


def foretell_keys(
    engine: Engine, key: TopicPartition, now_ms: int, told: Told | None = None
) -> Iterator[KeptKey]:
    """Yields the keys that a forced compaction at `now_ms` would retain, by the offsets of their
    newest committed records. Uses the memory of the offset map, then that of `LatestRecords.live`.
    Raises CorruptError if the log is damaged."""
    question = look_again(lambda: _question(engine, key, now_ms).pinned())
    told = told or (lambda done, of: None)
    compacted = CompactedView(question, preview(question, told, in_full=False))
    bounds = _bounds_above(question.view, question.planned)
    newest = engine.latest.newest(question.view)
    for part in compacted.scan():
        if isinstance(part, Damage):
            raise fresh(part.error)
        part = part.where(newest.mask(part.offsets))
        for row, offset in enumerate(part.offsets.tolist()):
            at = question.view.segments.floor_index(offset)
            bound = bounds.get(question.view.segments[at].base_offset)
            if bound is not None:
                why, until = bound, -1
            elif part.spans[row, VALUE_SIZE] < 0:
                why, until = TOMBSTONE, _until(part, row, question)
            else:
                why, until = NEWEST, -1
            yield KeptKey(part.key(row) or b"", offset, why, until)


def _until(part: Columns, row: int, question: PreviewRequest) -> int:
    """Returns when a tombstone may be discarded: at its batch's delete horizon, which the next pass
    sets if there is none. Tombstones before magic 2 have none."""
    batch = part.batch_of(row)
    if batch.magic < 2:
        return -1
    if batch.attributes & DELETE_HORIZON_MASK:
        return batch.base_timestamp
    return question.now_ms + question.config.delete_retention_ms


def foretell(
    engine: Engine,
    key: TopicPartition,
    now_ms: int,
    is_forced: bool = False,
    told: Told | None = None,
) -> Compaction | None:
    """Returns what `compact` would do at `now_ms`, without changing anything; a broker may be
    writing to the log. Raises CorruptError, with file and position, if damage would end a pass."""
    return look_again(lambda: _foretell(_question(engine, key, now_ms), is_forced, told))


def _foretell(question: PreviewRequest, is_forced: bool, told: Told | None) -> Compaction | None:
    if not question.is_compacted:
        return None
    planned = question.planned
    if not (planned.is_eligible or is_forced):
        # Nothing will be cleaned; only retention remains.
        nothing = replace(planned, first_uncleanable=planned.first_dirty)
        question = replace(question, planned=nothing)
    compacted = CompactedView(question, preview(question, told or (lambda done, of: None)))
    summary = compacted.summary()
    before, after = (
        Sizes(*(summary[name][when] for name in ("segments", "records", "bytes")))
        for when in ("before", "after")
    )
    passes, gone = summary["passes"], summary["gone"]
    above = [(each.base_offset, records_in(each, question.view)) for each in question.view.segments]
    tombstones = compacted.totals.tombstones
    stays = _stays(question.view, planned, after.records, above if passes else [], tombstones)
    key = question.view.topic, question.view.partition
    return _compaction(key, planned, passes, before, after, gone, summary["markersGone"], stays)


def _question(engine: Engine, key: TopicPartition, now_ms: int) -> PreviewRequest:
    topic, number = key
    checkpoint = engine.partition_dir(topic, number).log_dir.cleaner_offsets.get(key)
    return PreviewRequest.of(
        engine.log(topic, number).view(),
        engine.topic_config(topic).config,
        broker_config(engine.settings),
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


def _stays(
    view: View,
    planned: CleanPlan,
    records: int,
    segments: Sequence[tuple[int, int]],
    tombstones: int,
) -> dict[str, int]:
    """Counts the retained `records` by reason. `segments`: base offset and records of each, empty
    if nothing was cleaned; `tombstones`: those in the cleaned part."""
    if not segments:
        return {UNCLEANED: records} if records else {}
    bounds = _bounds_above(view, planned)
    held: Counter[str] = Counter()
    for base, count in segments:
        if base in bounds:
            held[bounds[base]] += count
    cleaned = records - held.total()
    stays = {NEWEST: cleaned - tombstones, TOMBSTONE: tombstones, **held}
    return {why: count for why, count in stays.items() if count}


def _compaction(
    key: TopicPartition,
    planned: CleanPlan,
    passes: int,
    before: Sizes,
    after: Sizes,
    gone: Mapping[str, int],
    markers_gone: int,
    stays: Mapping[str, int],
) -> Compaction:
    return Compaction(
        *key,
        is_eligible=planned.is_eligible,
        dirty_ratio=planned.ratio,
        min_ratio=planned.min_ratio,
        is_overdue=planned.is_overdue,
        passes=passes,
        before=before,
        after=after,
        gone=gone,
        markers_gone=markers_gone,
        stays=stays,
    )
