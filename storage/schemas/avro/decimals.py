"""Avro's decimals as Arrow columns."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DatumError
from ..conventions import TOO_MANY_DIGITS, avro_converter
from .columns import Column, Int64s, Shredded

#: The bytes of a decimal128.
_WIDTH: Final = 16


@dataclass(slots=True)
class Decimals(Column):
    """Decimals: big-endian two's complement, of a fixed `size`, or with start and size if it is -1.
    Those that decimal128 cannot hold are decimal256, or text."""

    size: int
    precision: int
    scale: int

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        if self.size >= 0:
            starts = found.of(self.row)
            sizes = np.full(len(starts), self.size, dtype=np.int64)
        else:
            starts, sizes = found.spans(self.row).T
        if not pa.types.is_decimal128(self.type) or (len(sizes) and sizes.max() > _WIDTH):
            return self._one_by_one(found, rows, starts, sizes)
        halves = _widened(np.frombuffer(found.data, dtype=np.uint8), starts, sizes)
        outside = _is_outside(halves, 10**self.precision)
        if outside.any():
            found.fail(rows[outside], TOO_MANY_DIGITS)
            halves[outside] = 0
        return pa.Array.from_buffers(self.type, len(starts), [None, pa.py_buffer(halves)])

    def _one_by_one(self, found: Shredded, rows: Int64s, starts: Int64s, sizes: Int64s) -> pa.Array:
        convert = avro_converter("bytes", "decimal", self.precision, self.scale)
        assert convert is not None
        is_text = pa.types.is_string(self.type)
        values: list[str | Decimal | None] = []
        for row, start, size in zip(rows.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            try:
                text = convert(bytes(found.data[start : start + size]))
                values.append(text if is_text else Decimal(text))
            except DatumError as error:
                found.failed.setdefault(row, error.why)
                values.append(None)
        return pa.array(values, self.type)


def _widened(data: NDArray[np.uint8], starts: Int64s, sizes: Int64s) -> NDArray[np.uint64]:
    """Returns numbers of at most 16 bytes as (low, high) halves: uint64 of shape (n, 2)."""
    wide = np.zeros((len(starts), _WIDTH), dtype=np.uint8)
    if len(starts) == 0:
        return wide.view(np.uint64)
    filled = sizes > 0
    signs = np.zeros(len(starts), dtype=np.uint8)
    signs[filled] = data[starts[filled]] >> 7
    wide[signs == 1] = 0xFF
    for place in range(int(sizes.max())):
        has = sizes > place
        wide[has, place] = data[starts[has] + sizes[has] - 1 - place]
    return wide.view(np.uint64)


def _is_outside(halves: NDArray[np.uint64], bound: int) -> NDArray[np.bool_]:
    """Returns which numbers are `bound` or more in magnitude."""
    if bound >= 1 << 127:
        return np.zeros(len(halves), dtype=np.bool_)
    low, high = halves[:, 0], halves[:, 1]
    negative = high >> np.uint64(63) == 1
    low = np.where(negative, ~low + np.uint64(1), low)
    high = np.where(negative, ~high + (low == 0).astype(np.uint64), high)
    bound_low, bound_high = np.uint64(bound & (1 << 64) - 1), np.uint64(bound >> 64)
    outside: NDArray[np.bool_] = (high > bound_high) | ((high == bound_high) & (low >= bound_low))
    return outside
