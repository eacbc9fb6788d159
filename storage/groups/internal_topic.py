"""Reads the partitions of `__consumer_offsets` and `__share_group_state` and replays them.

The coordinator reads its log to the end, whatever its consumers may see. A commit in a transaction
counts from the transaction's COMMIT marker on, and then overrides only what was committed by older
records: so the latest record counts whose transaction, if it has one, is committed. A tombstone
also removes what was committed before it in a transaction that is still open. An open or aborted
transaction commits nothing, but a group named in an open one exists.
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
    outcomes = _Outcomes(view)
    for columns in _columns(view, errors):
        left = table.replay(columns, outcomes.of(columns))
        for row in np.flatnonzero(left).tolist():
            record = _read(reader, columns, row, errors)
            if record is None:
                continue
            if left[row] == kernel.MALFORMED:
                errors.add_row(columns, row, CorruptError("a malformed offset commit"))
            replay.apply(record, int(columns.offsets[row]))
    return CoordinatorState(table.finish(), replay, errors)


def read_share_state(view: View, *, keeps_delivered: bool = False) -> ShareState:
    """Replays a partition of `__share_group_state`; `keeps_delivered` as in ShareReplay. Raises
    SegmentGone or OSError as reading does."""
    errors, reader = RecordErrors(), share_coordinator_records()
    replay = ShareReplay(keeps_delivered=keeps_delivered)
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
    """The outcomes of the transactions of a view's records."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._transactions = AbortedTransactions(tuple(view.segments), view.context)
        # The markers of the segment read last by producer id: their offsets, and which are aborts.
        self._segment: Segment | None = None
        self._markers: Mapping[int, tuple[list[int], list[bool]]] = {}

    def of(self, columns: Columns) -> NDArray[np.uint8]:
        """Returns the outcome for each row, of shape (n,): ABORTED, COMMITTED or OPEN of the
        kernel. Columns are of one segment."""
        batches = columns.batches
        transactional = np.flatnonzero(batches.flagged(TRANSACTIONAL_MASK))
        outcomes = np.full(len(batches), kernel.COMMITTED, dtype=np.uint8)
        if len(transactional):
            keys = batches.rows[transactional][:, (b.PRODUCER_ID, b.BASE_OFFSET)].tolist()
            segments = self._view.segments
            segment = segments[max(segments.floor_index(keys[0][1]), 0)]
            outcomes[transactional] = [self._outcome(segment, *key) for key in keys]
        return np.repeat(outcomes, np.diff(columns.first_row))

    def _outcome(self, segment: Segment, producer_id: int, offset: int) -> int:
        """Returns the outcome of the transaction of a batch, which its next marker decides."""
        if segment is not self._segment:
            self._segment = segment
            self._markers = {
                producer: ([each.offset for each in found], [each.is_abort for each in found])
                for producer, found in read_markers(segment, self._view.context).items()
            }
        offsets, are_aborts = self._markers.get(producer_id, _NO_MARKERS)
        at = bisect_left(offsets, offset)
        if at < len(offsets):
            is_abort = are_aborts[at]
        else:
            marker = self._transactions.deciding(producer_id, offset, segment)
            if marker is None:
                return int(kernel.OPEN)
            is_abort = marker.is_abort
        return int(kernel.ABORTED if is_abort else kernel.COMMITTED)


_NO_MARKERS: Final[tuple[list[int], list[bool]]] = ([], [])
