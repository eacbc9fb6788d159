"""The parameters of a scan, and the damage that it reports: which error affects which offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...concurrency.read_ahead import read_ahead
from ...errors import CorruptError
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.columns import Columns, Damage
from ...format.records.decoder import BadBatch
from ...segment.extent import Extent, Fault
from ...segment.walk import RUN_BYTES, BatchRun, read_runs
from .transactions import Isolation

# Bytes per run when reading ahead: three are in memory, and their results are as large.
_AHEAD_BYTES: Final = 4 << 20

#: Selects batches of a table: bool of shape (n,).
BatchSelector = Callable[[BatchTable], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The parameters of a scan: ``field`` is None for columns, else the field whose lines are
    requested. ``counts``: only numbers of records are. The rest as in ``View.scan``."""

    isolation: Isolation
    field: int | None
    ahead: bool
    select: BatchSelector | None
    counts: bool = False

    def runs(self, extent: Extent) -> Iterator[BatchRun | Fault]:
        if self.ahead:
            return read_ahead(read_runs(extent, _AHEAD_BYTES, stay_valid=True, together=True))
        run_bytes = RUN_BYTES if self.field is None else _AHEAD_BYTES
        return read_runs(extent, run_bytes, together=True)


def are_within(table: BatchTable, start: int, end: int) -> bool:
    """Whether all offsets that the batches may hold are within [``start``, ``end``)."""
    if not len(table):
        return True
    return bool(table.rows[0, b.BASE_OFFSET] >= start and table.rows[-1, b.LAST_OFFSET] < end)


def within(columns: Columns, start: int, end: int) -> Columns:
    """Returns the rows of columns with ``start`` <= offset < ``end``."""
    offsets = columns.offsets
    if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
        return columns
    low, high = np.searchsorted(offsets, (start, end)).tolist()
    return columns.slice(low, high)


def lost_between(
    faults: Sequence[Fault], reached: int, resumed: int, start: int, end: int
) -> Iterator[Damage]:
    """Yields the damage of consecutive faults between the offset ``reached`` before and
    ``resumed`` after them (-1: nothing follows), limited to offsets in [``start``, ``end``).

    The boundary between two faults is the base offset in the second one's header, clamped to
    these bounds.
    """
    if 0 <= resumed <= start or reached >= end:
        return
    highest = end if resumed < 0 else min(resumed, end)
    edges = [reached]
    for fault in faults[1:]:
        claimed = edges[-1] if fault.batch is None else fault.batch.base_offset
        edges.append(min(max(claimed, edges[-1]), highest))
    edges.append(highest)
    for fault, (first, following) in zip(faults, pairwise(edges), strict=True):
        if following > start or first == following:
            is_last = fault is faults[-1]
            next_offset = -1 if is_last and resumed < 0 else max(following, start)
            yield Damage(fault.error, max(first, start), next_offset)


def lost_batch(
    bad: BadBatch, file: str, table: BatchTable, reached: int, start: int, end: int
) -> Damage:
    """Returns the damage of a batch in the run ``table`` that could not be decoded; ``reached`` is
    the offset where the run begins. A wrapper does not record its first offset: it is taken to
    follow the previous batch."""
    first = bad.batch.base_offset
    if bad.batch.record_count < 0:
        first = _lowest_offset(bad.batch, table, reached)
    return Damage(bad.error.at(file), max(first, start), min(bad.batch.last_offset + 1, end))


def misplaced(columns: Columns, table: BatchTable, reached: int) -> BadBatch | None:
    """Returns a wrapper whose inner offsets overlap the previous batch, or None: then its own
    offset, which no checksum covers, is wrong."""
    if table.rows[0, b.MAGIC] > 1 and table.rows[-1, b.MAGIC] > 1:
        return None
    batch = columns.batches[0]
    if batch.record_count >= 0:
        return None
    first, lowest = int(columns.offsets[0]), _lowest_offset(batch, table, reached)
    if first >= lowest:
        return None
    what = f"batch {first}-{batch.last_offset} overlaps the one before, which ends at {lowest - 1}"
    return BadBatch(batch, CorruptError(what, position=batch.position))


def _lowest_offset(batch: BatchHeader, table: BatchTable, reached: int) -> int:
    """Returns the offset that follows the batch before ``batch``, in its run or before the run."""
    at = int(np.searchsorted(table.column(b.POSITION), batch.position))
    return int(table.rows[at - 1, b.LAST_OFFSET]) + 1 if at else reached
