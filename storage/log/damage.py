"""What a scan reports where it could not read: which error cost which offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..errors import CorruptError
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable
from ..format.columns import Columns, Damage
from ..format.decoder import BadBatch
from ..segment.extent import Fault


def lost_between(
    faults: Sequence[Fault], reached: int, resumed: int, start: int, end: int
) -> Iterator[Damage]:
    """The damage of consecutive faults, between the offset ``reached`` before and ``resumed``
    behind them (-1: nothing follows), as far as it concerns offsets in [``start``, ``end``).

    Where one ends and the next begins is what the next one's header says, within these bounds.
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
    """The damage of a batch that could not be decoded, of the run ``table`` behind the offset
    ``reached``. A wrapper does not tell where it begins: right behind the batch before it."""
    first = bad.batch.base_offset
    if bad.batch.record_count < 0:
        first = _lowest_offset(bad.batch, table, reached)
    return Damage(bad.error.at(file), max(first, start), min(bad.batch.last_offset + 1, end))


def misplaced(columns: Columns, table: BatchTable, reached: int) -> BadBatch | None:
    """A wrapper, if its inner offsets overlap the batch before it: its own offset, which no
    checksum covers, is wrong."""
    if table.rows[0, b.MAGIC] > 1 and table.rows[-1, b.MAGIC] > 1:
        return None
    batch = columns.batches[0]
    if batch.record_count >= 0:
        return None
    first, lowest = int(columns.offsets[0]), _lowest_offset(batch, table, reached)
    if first >= lowest:
        return None
    what = f"batch {first}-{batch.last_offset}: the one before it ends at {lowest - 1}"
    return BadBatch(batch, CorruptError(what, position=batch.position))


def _lowest_offset(batch: BatchHeader, table: BatchTable, reached: int) -> int:
    """The offset behind the batch before ``batch``, in its run or before it."""
    at = int(np.searchsorted(table.column(b.POSITION), batch.position))
    return int(table.rows[at - 1, b.LAST_OFFSET]) + 1 if at else reached
