"""What a scan reports where it could not read: which error cost which offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from ..format import batch as b
from ..format.batch import BatchTable
from ..format.columns import Damage
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
        at = int(np.searchsorted(table.column(b.POSITION), bad.batch.position))
        first = int(table.rows[at - 1, b.LAST_OFFSET]) + 1 if at else reached
    return Damage(bad.error.at(file), max(first, start), min(bad.batch.last_offset + 1, end))
