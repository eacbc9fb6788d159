"""What a scan is asked for: which records, as what, and read by whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..ahead import one_ahead
from ..format import batch as b
from ..format.batch import BatchTable
from ..format.columns import Columns
from ..segment.extent import Extent, Fault
from ..segment.walk import RUN_BYTES, Run, read_runs
from .transactions import Isolation

# Bytes of a run that is read ahead: three are in memory, and what is made of them is as large.
_AHEAD_BYTES: Final = 4 << 20

#: Which batches of a table are wanted: bool of shape (n,).
Choose = Callable[[BatchTable], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a scan is to give: ``field`` None for columns, else its lines. The rest as in
    ``View.scan``."""

    isolation: Isolation
    field: int | None
    ahead: bool
    choose: Choose | None

    def runs(self, extent: Extent) -> Iterator[Run | Fault]:
        if self.ahead:
            return one_ahead(read_runs(extent, _AHEAD_BYTES, stay_good=True, together=True))
        run_bytes = RUN_BYTES if self.field is None else _AHEAD_BYTES
        return read_runs(extent, run_bytes, together=True)


def are_within(table: BatchTable, start: int, end: int) -> bool:
    """Whether all offsets that the batches may have are."""
    if not len(table):
        return True
    return bool(table.rows[0, b.BASE_OFFSET] >= start and table.rows[-1, b.LAST_OFFSET] < end)


def within(columns: Columns, start: int, end: int) -> Columns:
    """The rows of columns with ``start`` <= offset < ``end``."""
    offsets = columns.offsets
    if not len(offsets) or (offsets[0] >= start and offsets[-1] < end):
        return columns
    low, high = np.searchsorted(offsets, (start, end)).tolist()
    return columns.slice(low, high)
