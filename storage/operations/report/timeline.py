"""Puts the growth of many logs on one axis of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ...format.records.batch import Int64s
from .model import Growth

# Bins of the axis: at most so many, each as long as one of these, in seconds.
_MOST_BINS: Final = 150
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_WIDTHS: Final = (
    *(1, 2, 5, 10, 30),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 30 * _DAY, 90 * _DAY, 365 * _DAY),
)
# The share of bytes that may be older than the axis: one record of 1970 would hide all others.
_OLDER_SHARE: Final = 0.001


def time_axis(growths: Sequence[Growth]) -> Int64s:
    """Returns the ends of the bins of an axis for all of `growths`: ascending and equally far
    apart, in ms since 1970; empty if nothing has a timestamp. What is older than the first belongs
    to it."""
    used = [each for each in growths if len(each)]
    if not used:
        return np.empty(0, dtype=np.int64)
    times = np.concatenate([each.timestamps for each in used])
    weights = np.concatenate([np.diff(each.sizes, prepend=0) for each in used])
    order = np.argsort(times, kind="stable")
    reached = np.cumsum(weights[order])
    first = int(times[order][np.searchsorted(reached, _OLDER_SHARE * int(reached[-1]))])
    last = int(times.max())
    least = max(-(-(last - first) // (_MOST_BINS - 2)), 1)
    width = next((1000 * each for each in _WIDTHS if 1000 * each >= least), least)
    begin = first // width * width
    return np.arange(begin, last + 2 * width, width, dtype=np.int64)


def sizes_at(growth: Growth, axis: Int64s) -> Int64s:
    """Returns the bytes that a log had at each time of an axis, int64 of its shape; between two
    points of its growth it grows evenly."""
    return _at(growth.timestamps, growth.sizes, axis)


def offsets_at(growth: Growth, axis: Int64s) -> Int64s:
    """Returns the number of offsets that a log had at each time of an axis, likewise."""
    if not len(growth):
        return np.zeros(len(axis), dtype=np.int64)
    return _at(growth.timestamps, growth.offsets - growth.offsets[0], axis)


def _at(timestamps: Int64s, amounts: Int64s, axis: Int64s) -> Int64s:
    if not len(timestamps):
        return np.zeros(len(axis), dtype=np.int64)
    # Of several points at one time, the last counts at that time, and the first just before it.
    found = np.interp(axis, timestamps, amounts, left=0)
    last = np.searchsorted(timestamps, axis, side="right") - 1
    is_exact = (last >= 0) & (timestamps[np.maximum(last, 0)] == axis)
    found[is_exact] = amounts[last[is_exact]]
    return np.rint(found).astype(np.int64)
