"""Reads the partitions of `__consumer_offsets` and `__share_group_state` and replays them.

The coordinator reads its log to the end, whatever its consumers may see. A commit in a transaction
counts from the transaction's COMMIT marker on, and then overrides only what was committed by older
records: so the latest record counts whose transaction, if it has one, is committed. A tombstone
also removes what was committed before it in a transaction that is still open. An open or aborted
transaction commits nothing, but a group named in it exists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptError
from ..format.kernels import offset_commits as kernel
from ..format.layout import TRANSACTIONAL_MASK
from ..format.messages.coordinator_records import (
    CoordinatorRecord,
    CoordinatorRecords,
    group_coordinator_records,
    share_coordinator_records,
)
from ..format.records import batch as b
from ..format.records.columns import Columns, Damage
from ..log.read.transactions import AbortedTransactions, Isolation, read_markers
from ..log.read.view import View
from ..segment.segment import Segment
from .coordinator import GroupReplay
from .offset_table import OffsetsByGroup, OffsetTable
from .share_state import ShareReplay

OFFSETS_TOPIC: Final = "__consumer_offsets"
SHARE_STATE_TOPIC: Final = "__share_group_state"
# Errors kept of one partition; a log that is all garbage would produce them without end.
_MAX_ERRORS: Final = 100


@dataclass(slots=True)
class RecordErrors:
    """Damaged and unknown records, the first ones by file and position; `more`: how many others
    there are."""

    found: list[CorruptError] = field(default_factory=list)
    more: int = 0

    def add(self, error: CorruptError) -> None:
        if len(self.found) < _MAX_ERRORS:
            self.found.append(error)
        else:
            self.more += 1

    def add_row(self, columns: Columns, row: int, error: CorruptError) -> None:
        """Adds an error in a record."""
        what = f"offset {int(columns.offsets[row])}: {error.what}"
        self.add(CorruptError(what, columns.file, columns.batch_of(row).position))


@dataclass(frozen=True, slots=True)
class CoordinatorState:
    """What a partition of `__consumer_offsets` says."""

    offsets: OffsetsByGroup
    replay: GroupReplay
    errors: RecordErrors


@dataclass(frozen=True, slots=True)
class ShareState:
    """What a partition of `__share_group_state` says."""

    replay: ShareReplay
    errors: RecordErrors


def read_coordinator(view: View) -> CoordinatorState:
    """Replays a partition of `__consumer_offsets`. Raises SegmentGone or OSError as reading
    does."""
    errors, reader = RecordErrors(), group_coordinator_records()
    table, replay = OffsetTable(), GroupReplay(reader.by_name)
    counts = _Outcomes(view).counts
    for columns in _columns(view, errors):
        left = table.replay(columns, counts(columns))
        for row in np.flatnonzero(left).tolist():
            record = _read(reader, columns, row, errors)
            if record is None:
                continue
            if left[row] == kernel.MALFORMED:
                errors.add_row(columns, row, CorruptError("a malformed offset commit"))
            replay.apply(record, int(columns.offsets[row]))
    return CoordinatorState(table.finish(), replay, errors)


def read_share_state(view: View) -> ShareState:
    """Replays a partition of `__share_group_state`. Raises SegmentGone or OSError as reading
    does."""
    errors, reader, replay = RecordErrors(), share_coordinator_records(), ShareReplay()
    for columns in _columns(view, errors):
        for row in range(len(columns)):
            record = _read(reader, columns, row, errors)
            if record is not None:
                replay.apply(record, int(columns.timestamps[row]))
    return ShareState(replay, errors)


def _columns(view: View, errors: RecordErrors) -> Iterator[Columns]:
    for part in view.scan(isolation=Isolation.READ_UNCOMMITTED, ahead=True):
        if isinstance(part, Damage):
            errors.add(part.error)
        else:
            yield part


def _read(
    reader: CoordinatorRecords, columns: Columns, row: int, errors: RecordErrors
) -> CoordinatorRecord | None:
    """Returns the record of a row; None, and an error, if it is malformed or unknown."""
    try:
        return reader.read(columns.key(row), columns.value(row))
    except CorruptError as error:
        errors.add_row(columns, row, error)
        return None


class _Outcomes:
    """Which records of a view count: all but those of open and aborted transactions."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._transactions = AbortedTransactions(tuple(view.segments), view.context)
        # The markers of the segment read last: their offsets by producer id, and who aborted.
        self._segment: Segment | None = None
        self._markers: Mapping[int, tuple[list[int], list[bool]]] = {}

    def counts(self, columns: Columns) -> NDArray[np.bool_]:
        """Returns which rows count, bool of shape (n,). Columns are of one segment."""
        batches = columns.batches
        transactional = np.flatnonzero(batches.flagged(TRANSACTIONAL_MASK))
        if not len(transactional):
            return np.ones(len(columns), dtype=np.bool_)
        counted = np.ones(len(batches), dtype=np.bool_)
        keys = batches.rows[transactional][:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist()
        segments = self._view.segments
        segment = segments[max(segments.floor_index(keys[0][1]), 0)]
        counted[transactional] = [self._counts(segment, *key) for key in keys]
        return np.repeat(counted, np.diff(columns.first_row))

    def _counts(self, segment: Segment, producer_id: int, offset: int) -> bool:
        """Returns whether the batch of a transaction counts: the next marker is COMMIT."""
        if segment is not self._segment:
            self._segment = segment
            self._markers = {
                producer: ([each.offset for each in found], [each.is_abort for each in found])
                for producer, found in read_markers(segment, self._view.context).items()
            }
        offsets, are_aborts = self._markers.get(producer_id, _NO_MARKERS)
        at = bisect_left(offsets, offset)
        if at < len(offsets):
            return not are_aborts[at]
        marker = self._transactions.deciding(producer_id, offset, segment)
        return marker is not None and not marker.is_abort


_NO_MARKERS: Final[tuple[list[int], list[bool]]] = ([], [])
