"""What a Kafka broker returns for a lookup by timestamp, which may differ from our result.

A broker searches one segment only: the first whose largest timestamp reaches the target. A segment
without timestamps (magic 0, or emptied by the cleaner) counts with its file's mtime, and so hides
all later segments; the record found may also be a control record (``LogSegment``,
``UnifiedLog.fetchOffsetByTimestamp``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...errors import OffsetNotFound, fresh
from ...format.layout import NO_TIMESTAMP
from ...format.records.batch import BatchHeader
from ...segment.extent import Fault
from ...segment.segment import Segment
from . import lookup
from .trace import BrokerStep
from .transactions import Isolation
from .view import View


def broker_answer(view: View, timestamp: int, isolation: Isolation) -> BrokerStep:
    """Returns a broker's answer for ``timestamp`` (ms): an offset (-1: none) and the reason.

    Raises CorruptError if the batches it would read are damaged.
    """
    for segment in view.segments:
        largest = lookup.largest_timestamp(segment, view.context.limits.max_batch_bytes)
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
