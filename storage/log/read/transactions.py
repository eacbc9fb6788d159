"""Which records a reader with ``isolation=read_committed`` may see.

The first later marker of its producer, COMMIT or ABORT, decides a transactional batch. Markers are
read from the log itself, where a checksum covers them; the ``.txnindex`` is used only if a marker
cannot be read, as it may be lost or damaged. The last stable offset is the first offset of the
oldest transaction without a marker: taken from the newest producer snapshot, updated with the
batches after it (``ProducerStateManager``).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError, SegmentGone
from ...format.files.names import FileKind
from ...format.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...segment.extent import Extent, Fault
from ...segment.salvage import is_intact
from ...segment.segment import Segment
from ...segment.txn_index import TransactionIndex
from ...segment.walk import walk_headers
from .context import ReadContext
from .lookup import extent_from
from .markers import Marker, Markers, end_transaction_batches, read_marker

_NEARBY_BATCHES = 1024


class Isolation(StrEnum):
    """Kafka's ``isolation.level``."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def read_markers(segment: Segment, context: ReadContext) -> Markers:
    """Returns all transaction markers in a segment, cached in the context.

    If the log is damaged, the ``.txnindex`` supplies aborts whose markers cannot be read.
    """

    def read() -> Markers:
        markers: defaultdict[int, list[Marker]] = defaultdict(list)
        log = segment.files.log()
        is_damaged = False
        limit = context.limits.max_batch_bytes
        for part in walk_headers(extent_from(segment, 0, limit)):
            if isinstance(part, Fault):
                is_damaged = True
                continue
            for header in end_transaction_batches(part):
                marker = read_marker(log, header)
                if marker is not None:
                    markers[header.producer_id].append(marker)
                is_damaged |= marker is None
        if is_damaged:
            _add_indexed_aborts(segment, markers)
        return dict(markers)

    return context.markers.get((segment.files.identity, segment.state), read)


def _add_indexed_aborts(segment: Segment, markers: defaultdict[int, list[Marker]]) -> None:
    name = segment.files.name(FileKind.TXNINDEX)
    try:
        entries = list(TransactionIndex.open(segment.files.directory, name).entries())
    except (SegmentGone, CorruptError, OSError):
        return
    for entry in entries:
        if segment.end is not None and entry.last_offset >= segment.end.offset:
            continue
        known = markers[entry.producer_id]
        if all(marker.offset != entry.last_offset for marker in known):
            insort(known, Marker(entry.last_offset, True), key=lambda marker: marker.offset)


def nearby_marker(segment: Segment, header: BatchHeader, context: ReadContext) -> Marker | None:
    """Returns the marker that decides ``header`` if it is near, else None.

    Most transactions are short, so a single lookup need not walk a whole segment.
    """
    log = segment.files.log()
    limit = context.limits.max_batch_bytes
    seen = 0
    for part in walk_headers(extent_from(segment, header.next_position, limit)):
        if isinstance(part, Fault):
            return None
        for candidate in end_transaction_batches(part):
            if candidate.producer_id == header.producer_id:
                return read_marker(log, candidate)
        seen += len(part)
        if seen > _NEARBY_BATCHES:
            return None
    return None


class AbortedTransactions:
    """The outcome of transactional batches in consecutive segments.

    Segments are read one by one, as far as a producer's next marker requires.
    """

    def __init__(self, segments: tuple[Segment, ...], context: ReadContext) -> None:
        self._segments = segments
        self._context = context

    def aborted(self, producer_id: int, offset: int, segment: Segment) -> bool:
        """Whether the batch of ``producer_id`` at ``offset`` in ``segment`` was aborted; False if
        no marker follows it."""
        marker = self.deciding(producer_id, offset, segment)
        return marker is not None and marker.is_abort

    def deciding(self, producer_id: int, offset: int, segment: Segment) -> Marker | None:
        """Returns the first marker of ``producer_id`` from ``offset`` in ``segment`` on, or
        None."""
        first = bisect_left(self._segments, segment.base_offset, key=_base_offset)
        for number in range(first, len(self._segments)):
            markers = read_markers(self._segments[number], self._context).get(producer_id)
            if markers:
                at = bisect_left(markers, offset, key=lambda marker: marker.offset)
                if at < len(markers):
                    return markers[at]
        return None

    def is_aborted(self, header: BatchHeader, segment: Segment) -> bool:
        """As ``aborted`` for one batch, without walking whole segments if a marker is near."""
        near = nearby_marker(segment, header, self._context)
        if near is not None:
            return near.is_abort
        return self.aborted(header.producer_id, header.base_offset, segment)

    def hidden(self, table: BatchTable, segment: Segment) -> NDArray[np.bool_]:
        """Returns which batches of a table are invisible under read_committed."""
        hidden = table.flagged(CONTROL_MASK)
        transactional = table.flagged(TRANSACTIONAL_MASK) & ~hidden
        for index in np.flatnonzero(transactional).tolist():
            row = table.rows[index]
            producer_id, offset = int(row[b.PRODUCER_ID]), int(row[b.BASE_OFFSET])
            hidden[index] = self.aborted(producer_id, offset, segment)
        return hidden


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def advance_open_transactions(
    open_transactions: Mapping[int, int], table: BatchTable, start: int, extent: Extent
) -> Mapping[int, int]:
    """Returns the first offset of each producer's open transaction, after the batches of ``table``
    from the offset ``start`` on.

    Only an intact batch begins one: a flipped bit must not make all later records unstable.
    """
    if not table.summary().any_has & TRANSACTIONAL_MASK:
        return open_transactions
    transactional = table.flagged(TRANSACTIONAL_MASK)
    transactional &= table.column(b.BASE_OFFSET) >= start
    transactions = dict(open_transactions)
    for header in table.select(transactional):
        if header.is_control:
            transactions.pop(header.producer_id, None)
        elif header.producer_id not in transactions and is_intact(extent, header):
            transactions[header.producer_id] = header.base_offset
    return transactions
