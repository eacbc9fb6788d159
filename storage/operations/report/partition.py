"""Describes one partition: its segments, its growth, and what is unusual about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...cleaner import plan as cleaning
from ...cleaner.plan import COMPACT, Bound, CleanPlan
from ...config.kafka import TopicConfig
from ...errors import CorruptError
from ...format.files.names import TopicPartition
from ...format.records import batch as b
from ...log.delete import retention
from ...log.delete.retention import Outlook
from ...log.read.view import View
from ...log.state.producers import OpenTransaction
from ...log_dirs.engine import Engine
from ...log_dirs.selection import Selection
from ..remote import copied_until, remote_part
from ..request import PartitionFailed, ProgressListener, damage_of
from ..transactions import PartitionTransaction, Transactions, list_transactions
from .model import CodecUse, Disorder, Growth, PartitionReport, SegmentReport, SegmentState, TimeGap
from .model import RecordCounts as RecordCounts
from .reading import ReadRecords, RemovableRecords, read_records
from .sampling import (
    codecs_of,
    disorder_of,
    gaps_of,
    growth_of,
    narrowed,
    sampled_headers,
    start_times,
    thinned,
)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What was found in the batches of a log: in their headers or, with `counts`, their records."""

    first_timestamps: tuple[int, ...]
    growth: Growth
    codecs: Mapping[str, CodecUse]
    gaps: tuple[TimeGap, ...]
    disorder: Disorder
    damage: tuple[CorruptError, ...]
    counts: RecordCounts | None = None
    removable: tuple[RemovableRecords, ...] = ()


def describe_partition(
    engine: Engine,
    key: TopicPartition,
    config: TopicConfig,
    now_ms: int,
    reading: ProgressListener | None,
) -> PartitionReport:
    """Returns the report of a partition as of `now_ms`. `reading`: receives the progress of reading
    its records; None to read none.

    Raises UnknownTopic, UnknownPartition, CorruptError, SegmentGone or OSError as reading does.
    """
    found = engine.partition_dir(*key)
    log = engine.log(*key, keep=False)
    view = log.view()
    checkpoint = found.log_dir.cleaner_offsets.get(key)
    planned = None
    if COMPACT in config.cleanup_policy:
        planned = cleaning.plan(cleaning.state_of(view, checkpoint), config, now_ms)
    contents = _sampled(view, now_ms)
    if reading is not None:
        read = read_records(engine, key, view, now_ms, planned is not None, reading)
        contents = _corrected(contents, read)
    outlooks = retention.outlook_of(view, config, now_ms, copied_until(engine, view))
    name = "{}-{}".format(*key)
    faults = [PartitionFailed.of(error, name) for error in contents.damage]
    return PartitionReport(
        *key,
        found.log_dir.path,
        view.start_offset,
        view.end_offset,
        view.last_stable_offset,
        tuple(_segments(view, outlooks, planned, contents)),
        contents.growth,
        contents.codecs,
        contents.gaps,
        contents.disorder,
        tuple(_open_transactions(engine, key, view)),
        tuple(dict.fromkeys([*damage_of(log, key), *faults])),
        None if planned is None else planned.ratio,
        counts=contents.counts,
        remote=remote_part(engine, key, view),
    )


def _sampled(view: View, now_ms: int) -> _Contents:
    samples = sampled_headers(view)
    data = samples.data
    whole = growth_of(samples, view, now_ms)
    return _Contents(
        tuple(samples.first_timestamps),
        thinned(whole),
        codecs_of(data),
        tuple(narrowed(gap, view) for gap in gaps_of(whole)),
        disorder_of(
            start_times(data), data.column(b.MAX_TIMESTAMP), data.column(b.BASE_OFFSET), now_ms
        ),
        samples.damage,
    )


def _corrected(sampled: _Contents, read: ReadRecords) -> _Contents:
    """Returns the contents with what reading all records adds and corrects."""
    return replace(
        sampled,
        growth=thinned(read.growth),
        codecs=read.codecs,
        gaps=read.gaps,
        disorder=read.disorder,
        damage=read.damage,
        counts=read.counts,
        removable=read.removable,
    )


def _segments(
    view: View, outlooks: Iterable[Outlook], planned: CleanPlan | None, contents: _Contents
) -> Iterator[SegmentReport]:
    ends = [segment.base_offset for segment in view.segments[1:]] + [view.end_offset]
    for number, outlook in enumerate(outlooks):
        bound = None if planned is None else planned.bounds[number]
        removable = contents.removable[number] if contents.removable else RemovableRecords()
        yield SegmentReport(
            outlook.segment.base_offset,
            ends[number],
            outlook.segment.size,
            contents.first_timestamps[number],
            outlook.segment.largest_timestamp,
            _state(outlook, bound),
            _why(outlook, bound),
            outlook.expires_at_ms,
            outlook.bytes_to_come,
            removable.records,
            removable.bytes,
        )


def _state(outlook: Outlook, bound: Bound | None) -> SegmentState:
    if outlook.rule is not None:
        return SegmentState.EXPIRED
    return SegmentState.DIRTY if bound is Bound.DIRTY else SegmentState.LIVE


def _why(outlook: Outlook, bound: Bound | None) -> str:
    if outlook.rule is not None:
        return f"deleted by {outlook.rule}"
    return str(outlook.hold) if bound is None else f"{outlook.hold}; cleaner: {bound}"


def _open_transactions(engine: Engine, key: TopicPartition, view: View) -> list[OpenTransaction]:
    """Returns the open transactions. Without one, the last stable offset is the end, and no
    snapshot is read."""
    if view.last_stable_offset >= view.end_offset:
        return []
    rows = list_transactions(engine, Transactions(Selection((key,))))
    return [row.transaction for row in rows if isinstance(row, PartitionTransaction)]
