"""The steps of a lookup, as values that ``kafkafs explain`` prints.

The steps come from a walk of its own, so that a lookup need not record any; the outcome is that of
the lookup itself.

A Kafka broker's answer to a lookup by timestamp may differ from ours. A broker searches one segment
only: the first whose largest timestamp reaches the target. A segment without timestamps (magic 0,
or emptied by the cleaner) counts with its file's mtime, and so hides all later segments; the record
found may also be a control record (``LogSegment``, ``UnifiedLog.fetchOffsetByTimestamp``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ...errors import OffsetNotFound, fresh
from ...format.layout import NO_TIMESTAMP
from ...format.records.batch import BatchHeader
from ...segment.extent import Fault
from ...segment.segment import Segment
from . import lookup
from .transactions import Isolation
from .view import HiddenBatch, View


class Verdict(StrEnum):
    """Why a walk passed or ended at a batch."""

    TAKEN = "taken"
    ENDS_BEFORE = "its last offset is below the target"
    BEGINS_AFTER = "its base offset is above the target"
    TOO_OLD = "its greatest timestamp is below the target"
    CONTROL = HiddenBatch.CONTROL.value
    ABORTED = HiddenBatch.ABORTED.value
    NO_RECORD = "no record in it qualifies"
    EMPTY = "a batch without records"


@dataclass(frozen=True, slots=True)
class SegmentStep:
    """The segment to search. ``largest_timestamp``: the one used in a lookup by timestamp, ms, else
    -1; ``skipped``: the number of older segments that were too old. ``is_remote``: it is in remote
    storage."""

    base_offset: int
    file: str
    largest_timestamp: int = -1
    skipped: int = 0
    is_remote: bool = False


@dataclass(frozen=True, slots=True)
class TimeIndexStep:
    """Greatest time index entry below the target; ``slot`` -1: none, start at the base offset."""

    file: str
    slot: int
    entries: int
    timestamp: int
    offset: int
    relative_offset: int


@dataclass(frozen=True, slots=True)
class OffsetIndexStep:
    """Greatest offset index entry at or below ``target``; ``slot`` -1: none, start at position 0.

    ``refused``: no matching batch was at the entry's position, so the walk starts at 0."""

    file: str
    slot: int
    entries: int
    target: int
    offset: int
    relative_offset: int
    position: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A batch that the walk reached."""

    batch: BatchHeader
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class FoundStep:
    """The record. ``row``: its index among the records of its batch."""

    offset: int
    timestamp: int
    row: int


@dataclass(frozen=True, slots=True)
class BrokerStep:
    """A broker's answer to the same lookup by timestamp, if it differs from ours: ``offset`` -1 for
    "none"."""

    offset: int
    why: str


Step = SegmentStep | TimeIndexStep | OffsetIndexStep | WalkStep | FoundStep | BrokerStep


def explain_offset(view: View, offset: int, isolation: Isolation) -> Iterator[Step]:
    """Yields the steps of ``view.find``; raises what that raises, after the steps before it."""
    segment = view.segment_of(offset, isolation)
    yield SegmentStep(segment.base_offset, segment.path, is_remote=segment.is_remote)
    limit = view.context.limits.max_batch_bytes
    yield from _offset_index_steps(segment, offset, limit)
    for header in _batches_to(segment, offset, limit):
        yield WalkStep(header, _verdict_on(header, view, segment, offset, isolation))
    columns, row = view.locate_in(segment, offset, isolation)
    yield FoundStep(offset, int(columns.timestamps[row]), row)


def _batches_to(segment: Segment, offset: int, limit: int) -> Iterator[BatchHeader]:
    """Yields the batches that a lookup walks, to the first with a last offset >= ``offset``."""
    for table in lookup.walk_from(segment, offset, limit):
        if isinstance(table, Fault):
            continue
        for header in table:
            yield header
            if header.last_offset >= offset:
                return


def _verdict_on(
    header: BatchHeader, view: View, segment: Segment, offset: int, isolation: Isolation
) -> Verdict:
    if header.last_offset < offset:
        return Verdict.ENDS_BEFORE
    if header.begins_after(offset):
        return Verdict.BEGINS_AFTER
    hidden = view.why_hidden(header, segment, isolation)
    return Verdict.TAKEN if hidden is None else Verdict(hidden)


def explain_time(view: View, timestamp: int, isolation: Isolation) -> Iterator[Step]:
    """Yields the steps of ``view.offset_for_time``, and a broker's answer if it differs; raises
    what either raises, after the steps before it."""
    found = -1
    for skipped, segment in view.segments_reaching(timestamp, isolation):
        largest = view.largest_timestamp(segment)
        place = segment.base_offset, segment.path, largest, skipped
        yield SegmentStep(*place, segment.is_remote)
        for step in _steps_since(view, segment, timestamp, isolation):
            yield step
            if isinstance(step, FoundStep):
                found = step.offset
        if found >= 0:
            break
    answer = broker_answer(view, timestamp, isolation)
    if answer.offset != found:
        yield answer


def _steps_since(
    view: View, segment: Segment, timestamp: int, isolation: Isolation
) -> Iterator[Step]:
    """Yields the steps in a segment, to the first record from ``timestamp`` (ms) on."""
    limit = view.context.limits.max_batch_bytes
    yield from _time_index_steps(segment, timestamp, view.start_offset, limit)
    for table in lookup.walk_for_time(segment, timestamp, view.start_offset, limit):
        if isinstance(table, Fault):
            raise fresh(table.error)
        for header in table:
            verdict = _verdict_by_time(header, view, segment, timestamp, isolation)
            if verdict is not None:
                yield WalkStep(header, verdict)
                continue
            if header.base_offset >= view.bound(isolation):
                return
            columns = view.batch(segment, header)
            row = view.first_row_since(columns, timestamp, isolation)
            yield WalkStep(header, Verdict.NO_RECORD if row < 0 else Verdict.TAKEN)
            if row >= 0:
                yield FoundStep(int(columns.offsets[row]), int(columns.timestamps[row]), row)
                return


def _verdict_by_time(
    header: BatchHeader, view: View, segment: Segment, timestamp: int, isolation: Isolation
) -> Verdict | None:
    """Returns why a batch is passed without being decoded, None if it is not."""
    if header.max_timestamp < timestamp:
        return Verdict.TOO_OLD
    if not header.record_count:
        return Verdict.EMPTY
    if header.last_offset < view.start_offset:
        return Verdict.ENDS_BEFORE
    if header.base_offset >= view.bound(isolation):
        return None
    hidden = HiddenBatch.CONTROL if header.is_control else None
    hidden = hidden or view.why_hidden(header, segment, isolation)
    return None if hidden is None else Verdict(hidden)


def _time_index_steps(
    segment: Segment, timestamp: int, start_offset: int, limit: int
) -> Iterator[Step]:
    """Yields what the two indexes contribute to a lookup by timestamp."""
    index = segment.time_index()
    entry = lookup.entry_before(segment, timestamp, limit)
    if index is not None and len(index) and lookup.is_ascending(segment, index):
        slot = -1 if entry is None else index.floor_slot(timestamp - 1)
        at = NO_TIMESTAMP if entry is None else entry.timestamp
        offset = segment.base_offset if entry is None else entry.offset
        relative = offset - segment.base_offset
        yield TimeIndexStep(index.path, slot, len(index), at, offset, relative)
    start = lookup.start_for_time(segment, start_offset, entry)
    if start >= 0:
        yield from _offset_index_steps(segment, start, limit)


def _offset_index_steps(segment: Segment, target: int, limit: int) -> Iterator[Step]:
    index = segment.offset_index()
    if index is None or not len(index):
        return
    found = index.lookup(target, segment.size)
    yield OffsetIndexStep(
        index.path,
        index.floor_slot(target) if found.position else -1,
        len(index),
        target,
        found.offset,
        found.offset - index.base_offset,
        found.position,
        refused=found.position > 0 and lookup.walk_from_entry(segment, found, limit) is None,
    )


def broker_answer(view: View, timestamp: int, isolation: Isolation) -> BrokerStep:
    """Returns a broker's answer for ``timestamp`` (ms): an offset (-1: none) and the reason.

    Raises CorruptError if the batches it would read are damaged.
    """
    for segment in view.segments:
        largest = view.largest_timestamp(segment)
        reason = "the first segment whose largest timestamp reaches the time"
        if largest == NO_TIMESTAMP:
            largest = segment.mtime_ns // 1_000_000
            reason = "the first segment, which has no timestamps, counts with its file's mtime"
        if largest >= timestamp:
            return _answer_from(view, segment, timestamp, isolation, reason)
    return BrokerStep(-1, "no segment's largest timestamp reaches the time")


def _answer_from(
    view: View, segment: Segment, timestamp: int, isolation: Isolation, reason: str
) -> BrokerStep:
    for header in _young_batches(view, segment, timestamp):
        offset = _first_in(view, segment, header, timestamp)
        if offset is None:
            continue
        if offset >= view.bound(isolation):
            return BrokerStep(-1, f"record {offset} in segment {segment.base_offset} is not stable")
        if header.is_control:
            return BrokerStep(offset, "a control record, which consumers never receive")
        return BrokerStep(offset, f"segment {segment.base_offset}: {reason}")
    return BrokerStep(-1, f"segment {segment.base_offset} has no such record: {reason}")


def _young_batches(view: View, segment: Segment, timestamp: int) -> Iterator[BatchHeader]:
    limit = view.context.limits.max_batch_bytes
    for header in lookup.find_batches_since(segment, timestamp, limit):
        if isinstance(header, Fault):
            raise fresh(header.error)
        if header.last_offset >= view.start_offset:
            yield header


def _first_in(view: View, segment: Segment, header: BatchHeader, timestamp: int) -> int | None:
    try:
        columns = view.batch(segment, header)
    except OffsetNotFound:  # compaction removed all records of the batch
        return None
    young = (columns.timestamps >= timestamp) & (columns.offsets >= view.start_offset)
    rows = np.flatnonzero(young)
    return int(columns.offsets[rows[0]]) if len(rows) else None
