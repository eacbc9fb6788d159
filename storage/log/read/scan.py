"""The parameters of a scan: which records, in which form, and how they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...concurrency.read_ahead import read_ahead
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...format.records.columns import Columns
from ...segment.extent import Extent, Fault
from ...segment.walk import RUN_BYTES, BatchRun, read_runs
from .transactions import Isolation

# Bytes per run when reading ahead: three are in memory, and their results are as large.
_AHEAD_BYTES: Final = 4 << 20

#: Selects batches of a table: bool of shape (n,).
Choose = Callable[[BatchTable], NDArray[np.bool_]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The parameters of a scan: ``field`` is None for columns, else the field whose lines are
    requested. The rest as in ``View.scan``."""

    isolation: Isolation
    field: int | None
    ahead: bool
    choose: Choose | None

    def runs(self, extent: Extent) -> Iterator[BatchRun | Fault]:
        if self.ahead:
            return read_ahead(read_runs(extent, _AHEAD_BYTES, stay_good=True, together=True))
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
