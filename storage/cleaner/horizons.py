"""Finds out when the cleaner may delete the tombstones and transaction markers of a segment.

When a cleaning copies a batch with a tombstone, or a marker whose transaction has no records left,
it sets the batch's delete horizon (KIP-534); the first cleaning at or after that time deletes them.
A batch keeps its horizon after its tombstones are deleted, so the records must be examined, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..format.layout import CONTROL_MASK, DELETE_HORIZON_MASK
from ..format.records import batch as b
from ..format.records.batch import BatchTable, Int64s
from ..format.records.columns import VALUE_SIZE, Columns
from ..log.read.context import ReadContext
from ..log.read.lookup import extent_from
from ..segment.extent import Fault
from ..segment.segment import Segment
from ..segment.walk import read_runs, walk_headers

NO_HORIZON: Final = -1


def next_horizon(segment: Segment, context: ReadContext) -> int:
    """Returns the smallest delete horizon, in ms since 1970, of a batch with a tombstone or a
    marker; -1 without one. Skips damage. The result is cached while the segment is unchanged."""

    def find() -> int:
        return min(_horizons(segment, context), default=NO_HORIZON)

    return segment.files.remember("next horizon", segment.state, find)


def _horizons(segment: Segment, context: ReadContext) -> Iterator[int]:
    """Yields the smallest relevant horizons, one or more for each run of batches."""
    limit = context.limits.max_batch_bytes
    first = _first_with_horizon(segment, limit)
    if first < 0:
        return
    with context.decoder() as decoder:
        for run in read_runs(extent_from(segment, first, limit)):
            if isinstance(run, Fault):
                continue
            table = _with_horizon(run.table)
            is_control = table.flagged(CONTROL_MASK)
            if is_control.any():
                yield _least(table.select(is_control).column(b.BASE_TIMESTAMP))
            data = table.select(~is_control)
            for part in decoder.decode(run.data, run.base, data, segment.path):
                if isinstance(part, Columns):
                    yield from _of_tombstones(part)


def _first_with_horizon(segment: Segment, max_batch_bytes: int) -> int:
    """Returns the position of the first batch with a horizon and a record, -1 without one."""
    for table in walk_headers(extent_from(segment, 0, max_batch_bytes)):
        if not isinstance(table, Fault) and len(found := _with_horizon(table)):
            return int(found.rows[0, b.POSITION])
    return -1


def _with_horizon(table: BatchTable) -> BatchTable:
    return table.select(table.flagged(DELETE_HORIZON_MASK) & (table.column(b.RECORD_COUNT) > 0))


def _of_tombstones(columns: Columns) -> Iterator[int]:
    """Yields the smallest horizon of the batches with a tombstone, if there is one."""
    rows = np.flatnonzero(columns.spans[:, VALUE_SIZE] < 0)
    if len(rows):
        batches = np.searchsorted(columns.first_row, rows, side="right") - 1
        yield _least(columns.batches.column(b.BASE_TIMESTAMP)[batches])


def _least(horizons: Int64s) -> int:
    return int(horizons.min())
