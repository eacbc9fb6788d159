"""The producers of a read-only partition: its newest snapshot plus the batches after it.

The state that a broker would have if it opened the partition now
(``UnifiedLog.rebuildProducerState`` after a clean shutdown). Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...errors import CorruptError, SegmentGone
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...segment.extent import Fault
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from ..read.lookup import extent_from, position_for
from ..read.markers import read_end_txn_marker
from ..read.view import View
from ..state.producers import EXPIRATION_MS, ProducerStateManager
from ..state.snapshots import read_snapshot, snapshot_offsets


def producers_of(
    view: View, now_ms: int, expiration_ms: int = EXPIRATION_MS
) -> ProducerStateManager:
    """Returns the producers at the end of ``view``, without those of its newest snapshot that
    expired by ``now_ms``. Damaged batches are skipped."""
    producers = ProducerStateManager(expiration_ms)
    if not len(view.segments):
        return producers
    _load_newest(producers, view, now_ms)
    for segment in view.segments.from_offset(producers.map_end_offset):
        for table in _tables(segment, view, producers.map_end_offset):
            new = table.column(b.LAST_OFFSET) >= producers.map_end_offset
            replayed = table.select(new & (table.column(b.MAGIC) > 1))
            producers.replay(replayed, partial(_read_marker, segment))
    producers.map_end_offset = view.end_offset
    return producers


def _load_newest(producers: ProducerStateManager, view: View, now_ms: int) -> None:
    """Loads the newest readable snapshot within the log; without one, starts empty at the log
    start."""
    directory = view.segments[0].files.directory
    producers.clear(view.start_offset)
    for offset in reversed(snapshot_offsets(directory)):
        if not view.start_offset < offset <= view.end_offset:
            continue
        try:
            producers.load(read_snapshot(directory, offset), offset, now_ms)
        except (CorruptError, SegmentGone, OSError):
            continue
        return


def _tables(segment: Segment, view: View, from_offset: int) -> Iterator[BatchTable]:
    """Yields the batches of a segment, beginning at or before ``from_offset``."""
    limit = view.context.limits.max_batch_bytes
    position = position_for(segment, from_offset, limit)
    for part in walk_headers(extent_from(segment, position, limit)):
        if not isinstance(part, Fault):
            yield part


def _read_marker(segment: Segment, header: BatchHeader) -> EndTxnMarker | None:
    return read_end_txn_marker(segment.files.log(), header)
