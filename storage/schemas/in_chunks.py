"""What JSON and Protobuf have in common when their datums, which exist as Python's objects in
between, become Arrow columns; and how many values all formats' lists may have in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .conventions import TOO_MANY_ITEMS

Int64s = NDArray[np.int64]
#: Values, and a string column with why a datum does not fit, null if it does.
Built = tuple[pa.Array, pa.Array]
#: The datums that exist as objects at the same time: few, so that they stay in the processor's
#: cache.
_CHUNK: Final = 1024
#: The values that the items of a datum's lists and maps may have together: so many, and some more
#: for each of its bytes. An item of two bytes can be of a type with thousands of fields.
MOST_VALUES: Final = 1 << 18
VALUES_PER_BYTE: Final = 4


class FailedDatums(dict[int, str]):
    """By the number of a datum, why it does not fit."""

    def __init__(self, spans: Int64s) -> None:
        """`spans`: start and end of each datum."""
        super().__init__()
        self._left = MOST_VALUES + VALUES_PER_BYTE * (spans[:, 1] - spans[:, 0])

    def refuse(self, lengths: Int64s, rows: Int64s, of: pa.DataType) -> NDArray[np.bool_]:
        """Returns which lists or maps have more items than their datum, whose number is in `rows`,
        may have of this type. Such a datum fails."""
        width = width_of(of)
        if width == 1:
            return np.zeros(len(rows), dtype=np.bool_)
        np.subtract.at(self._left, rows, lengths * width)
        refused: NDArray[np.bool_] = self._left[rows] < 0
        for row in rows[refused].tolist():
            self.setdefault(row, TOO_MANY_ITEMS)
        return refused


def width_of(of: pa.DataType) -> int:
    """Returns the number of arrays in one of this type."""
    return 1 + sum(width_of(of.field(place).type) for place in range(of.num_fields))


def built_in_chunks(spans: Int64s, build: Callable[[Int64s], Built]) -> Built:
    """Returns, joined, what `build` returns for a few rows of `spans` at a time; for no rows it is
    called once."""
    parts = [build(spans[at : at + _CHUNK]) for at in range(0, max(len(spans), 1), _CHUNK)]
    if len(parts) == 1:
        return parts[0]
    values, reasons = zip(*parts, strict=True)
    return pa.concat_arrays(values), pa.concat_arrays(reasons)


def with_reasons(dense: pa.Array, is_there: NDArray[np.bool_], failed: Mapping[int, str]) -> Built:
    """Returns a column with the values of `dense` in the rows where `is_there`, and null in the
    others and in those that `failed`, with their reasons."""
    if not failed:
        return dense, pa.nulls(len(is_there), pa.string())
    places = np.cumsum(is_there) - 1
    fits = is_there.copy()
    fits[list(failed)] = False
    reasons = [failed.get(row) for row in range(len(is_there))]
    return dense.take(pa.array(places, mask=~fits)), pa.array(reasons, pa.string())


def item_offsets(lengths: Int64s, rows: Int64s) -> tuple[NDArray[np.int32], Int64s]:
    """Returns the offsets of lists or maps with these lengths, and in which datum each of their
    items is; `rows`: in which datum each list is."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return ends, np.repeat(rows, lengths)


def in_whole_chunks(rows: int) -> int:
    """Returns `rows`, or a little less, so that no chunk of them is much smaller than others."""
    return rows if rows < _CHUNK else rows - rows % _CHUNK
