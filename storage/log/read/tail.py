"""The end of a log: where the last whole batch ends, and which transactions are open there.

Both come from one walk over batch headers, which begins at the newest producer snapshot (written at
every roll and clean shutdown) and later covers only what was appended since. (`LogLoader`,
`ProducerStateManager`.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from ...errors import CorruptError, SegmentGone
from ...format.files.snapshot import parse_producer_snapshot
from ...format.layout import MAX_OFFSET
from ...format.records.batch import BatchHeader, BatchTable
from ...io.directory import HeldDirectory, NoFile
from ...segment.extent import Extent, Fault
from ...segment.salvage import is_intact, read_checksum_error
from ...segment.segment import Segment
from ...segment.walk import walk_headers
from ..state.snapshots import read_snapshot
from .lookup import extent_from, header_at, position_for
from .transactions import advance_open_transactions

# Data that looks torn may be in the middle of a broker's write; after this time it is not.
_SETTLED_NS = 1_000_000_000
# The headers of a segment of this size are read faster than its index is opened.
_SMALL_BYTES = 16 << 10


_NO_TRANSACTIONS: Final[Mapping[int, int]] = MappingProxyType({})


class Tail(NamedTuple):
    """The result of a walk up to ``position`` in the segment with the ``.log`` ``identity``.

    ``next_offset``: the log end offset. ``open_transactions``: first offset by producer id, from
    all batches below ``counted``. ``last``: the last whole batch. ``fault``: what follows it, if
    that is not a batch. ``has_gaps``: whether the walk passed damage, which may have hidden
    transactions.
    """

    counted: int
    open_transactions: Mapping[int, int] = _NO_TRANSACTIONS
    identity: tuple[int, int] = (0, 0)
    position: int = 0
    next_offset: int = 0
    last: BatchHeader | None = None
    fault: Fault | None = None
    has_gaps: bool = False

    def continues(self, segments: Sequence[Segment]) -> bool:
        """Whether the walk can continue: its segment still exists, with its last batch in place.

        A broker may have truncated the log and written other batches since.
        """
        for segment in segments:
            if segment.files.identity == self.identity and segment.size >= self.position:
                log, last = segment.files.log(), self.last
                return last is None or header_at(log, last.position) == last
        return False


def walk_from_start(
    directory: Callable[[], HeldDirectory],
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    max_batch_bytes: int,
) -> Tail:
    """Returns the tail of a log that was not read before. ``snapshots``: the offsets of the
    snapshots in its ``directory``, which is opened if one is needed, ascending."""
    first = segments[0]
    if first.is_active and first.base_offset == 0 and first.size <= _SMALL_BYTES:
        # All batches that the log ever had are walked, so no snapshot can know more.
        tail = advance(Tail(0), segments, max_batch_bytes)
        if not tail.has_gaps:
            return tail
    state = _newest_state(directory, snapshots, segments, MAX_OFFSET)
    tail = advance(state, segments, max_batch_bytes)
    if tail.counted > tail.next_offset:
        # The snapshot is beyond the log's end: the end was lost, and the snapshot is void.
        state = _newest_state(directory, snapshots, segments, tail.next_offset)
        tail = advance(state, segments, max_batch_bytes)
    return tail


def _newest_state(
    directory: Callable[[], HeldDirectory],
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    highest: int,
) -> Tail:
    """Loads the newest readable snapshot up to ``highest``; else an empty state at the start."""
    start = segments[0].base_offset
    for offset in reversed(snapshots):
        if offset > highest:
            continue
        if offset < start:
            break
        try:
            entries = parse_producer_snapshot(read_snapshot(directory(), offset))
        except (CorruptError, SegmentGone, OSError):
            continue
        open_transactions = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        }
        return Tail(offset, open_transactions)
    return Tail(start)


def advance(tail: Tail, segments: Sequence[Segment], max_batch_bytes: int) -> Tail:
    """Returns the tail after all of ``segments``; batches already counted are read again only as
    far as needed to find the end. The last segment's ``size`` is that of its file."""
    for segment in segments:
        if segment.is_active or segment.next_base > tail.counted:
            tail = _advance_segment(tail, segment, max_batch_bytes)
    return tail


def _advance_segment(tail: Tail, segment: Segment, max_batch_bytes: int) -> Tail:
    if tail.identity == segment.files.identity:
        position, previous = tail.position, tail.next_offset - 1
        return _walk(tail, extent_from(segment, position, max_batch_bytes, previous))
    position = 0
    if segment.size > _SMALL_BYTES:
        position = position_for(segment, tail.counted - 1, max_batch_bytes)
    found = _walk_from(tail, segment, position, max_batch_bytes)
    if position and found.last is None:  # the index points to no batch
        found = _walk_from(tail, segment, 0, max_batch_bytes)
    return found


def _walk_from(tail: Tail, segment: Segment, position: int, max_batch_bytes: int) -> Tail:
    """Returns the tail after all batches of a segment that ``tail`` has not reached before."""
    entered = Tail(
        tail.counted,
        tail.open_transactions,
        identity=segment.files.identity,
        position=position,
        next_offset=segment.base_offset,
    )
    return _walk(entered, extent_from(segment, position, max_batch_bytes))


def _walk(tail: Tail, extent: Extent) -> Tail:
    """Returns the tail after all batches of an extent.

    The last batch's checksum is verified: no later batch confirms it, and it determines the end.
    """
    if tail.fault is not None:
        tail = tail._replace(fault=None)
    before, latest = tail, BatchTable.empty()
    for part in walk_headers(extent):
        if isinstance(part, Fault):
            reaches_end = part.reaches(extent.end)
            tail = tail._replace(
                fault=part if reaches_end else None, has_gaps=tail.has_gaps or not reaches_end
            )
            continue
        before, latest = tail, BatchTable(part.rows.copy())
        tail = _taken(tail, part, extent)
    if not len(latest) or (tail.last is not None and is_intact(extent, tail.last)):
        return tail
    sound = len(latest) - 1
    while sound and not is_intact(extent, latest[sound - 1]):
        sound -= 1
    bad = latest[sound]
    tail = _taken(before, latest.select(slice(0, sound)), extent)
    return tail._replace(fault=Fault(read_checksum_error(extent, bad), extent.end, bad))


def _taken(tail: Tail, table: BatchTable, extent: Extent) -> Tail:
    """Returns the tail after the batches of a table."""
    if not len(table):
        return tail
    last = table[-1]
    return Tail(
        counted=max(tail.counted, last.last_offset + 1),
        open_transactions=advance_open_transactions(
            tail.open_transactions, table, tail.counted, extent
        ),
        identity=tail.identity,
        position=last.next_position,
        next_offset=last.last_offset + 1,
        last=last,
        has_gaps=tail.has_gaps,
    )


def settled_fault(tail: Tail, segment: Segment) -> Fault | None:
    """Returns the fault after the last batch, unless a broker may be writing there. No broker
    writes to what is not a regular file."""
    if tail.fault is None:
        return None
    may_be_written = abs(time.time_ns() - segment.mtime_ns) < _SETTLED_NS
    if may_be_written and not isinstance(segment.files.log(), NoFile):
        return None
    return tail.fault
