"""The producers of a partition that is only read: the newest snapshot, and the batches behind it.

What a broker that opened the partition now would know of them (``UnifiedLog.rebuildProducerState``
for a log that was closed in good order). Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..errors import CorruptError, SegmentGone
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable
from ..format.control import EndTxnMarker, parse_end_txn_marker
from ..segment.extent import Fault
from ..segment.segment import Segment
from ..segment.walk import walk_headers
from .lookup import extent_from, position_for
from .producer_rebuild import MAX_SNAPSHOT_BYTES
from .producers import EXPIRATION_MS, Producers
from .tail import newest_snapshots
from .view import View

# A marker's batch has 78 bytes as Kafka writes it; one of more than this is no marker.
_MARKER_BYTES = 512


def producers_of(view: View, now_ms: int, expiration_ms: int = EXPIRATION_MS) -> Producers:
    """The producers at the end of ``view``, without those of its newest snapshot that have expired
    by ``now_ms``. What is damaged is passed over."""
    producers = Producers(expiration_ms)
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


def _load_newest(producers: Producers, view: View, now_ms: int) -> None:
    """The newest snapshot that can be read and is not of later than the log's end; without one,
    nothing, at the log's start."""
    directory = view.segments[0].files.directory
    producers.clear(view.start_offset)
    for offset, name in newest_snapshots(directory):
        if not view.start_offset < offset <= view.end_offset:
            continue
        try:
            producers.load(directory.read_small(name, MAX_SNAPSHOT_BYTES), offset, now_ms)
        except (CorruptError, SegmentGone, OSError):
            continue
        return


def _tables(segment: Segment, view: View, from_offset: int) -> Iterator[BatchTable]:
    """The batches of a segment, from some that is not behind ``from_offset`` on."""
    limit = view.context.limits.max_batch_bytes
    position = position_for(segment, from_offset, limit)
    for part in walk_headers(extent_from(segment, position, limit)):
        if not isinstance(part, Fault):
            yield part


def _read_marker(segment: Segment, header: BatchHeader) -> EndTxnMarker | None:
    size = min(header.size, _MARKER_BYTES)
    return parse_end_txn_marker(segment.files.log().read(header.position, size))
