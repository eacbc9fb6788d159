"""Computes index entries of batches from the rows of their headers.

Bounds: before the first write, the buffers are checked to hold as many entries as there are rows.
"""

from __future__ import annotations

import cython

from ._primitives import put_int

# Positions in the state array of an index; index_builder.py explains them.
INDEXED = 0
OFFSET_COUNT = 1
TIME_COUNT = 2
LAST_TIME = 3
LAST_TIME_OFFSET = 4
LARGEST = 5
LARGEST_OFFSET = 6
STATE_SIZE = 7


def index_batches(
    table: cython.longlong[:, ::1],
    state: cython.longlong[::1],
    base_offset: cython.longlong,
    interval: cython.longlong,
    max_offsets: cython.longlong,
    max_times: cython.longlong,
    offsets: cython.uchar[::1],
    times: cython.uchar[::1],
) -> tuple[int, int]:
    """Writes the entries of the batches into ``offsets`` (8 bytes each) and ``times`` (12 bytes
    each) and updates ``state``. Returns the number of bytes written to each."""
    row: cython.Py_ssize_t
    rows: cython.Py_ssize_t = table.shape[0]
    offset_bytes: cython.Py_ssize_t = 0
    time_bytes: cython.Py_ssize_t = 0
    if table.shape[1] < 14 or state.shape[0] < 7:
        raise ValueError("a table or state of too few columns")
    if offsets.shape[0] < 8 * rows or times.shape[0] < 12 * rows:
        raise ValueError("not enough room for the entries")
    with cython.nogil:
        for row in range(rows):
            if table[row, 9] > state[5]:
                state[5] = table[row, 9]
                state[6] = table[row, 3]
            if table[row, 0] - state[0] <= interval:
                continue
            state[0] = table[row, 0]
            if state[1] < max_offsets:
                put_int(offsets, offset_bytes, table[row, 3] - base_offset, 4)
                put_int(offsets, offset_bytes + 4, table[row, 0], 4)
                offset_bytes += 8
                state[1] += 1
            if state[5] > state[3] and state[2] < max_times:
                put_int(times, time_bytes, state[5], 8)
                put_int(times, time_bytes + 8, state[6] - base_offset, 4)
                time_bytes += 12
                state[2] += 1
                state[3] = state[5]
                state[4] = state[6]
    return offset_bytes, time_bytes
