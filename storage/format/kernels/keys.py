"""Finds the records of one key among many.

Bounds: a span is checked against ``data`` before any byte of it is read.
"""

from __future__ import annotations

import cython


def last_row(
    data: cython.const[cython.uchar][::1],
    spans: cython.const[cython.int][:, ::1],
    key: cython.const[cython.uchar][::1],
) -> int:
    """Returns the last row whose key is ``key``, -1 if there is none."""
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t = key.shape[0]
    if spans.shape[1] < 2:
        raise ValueError("spans have a column of sizes")
    row = spans.shape[0] - 1
    with cython.nogil:
        while row >= 0:
            start = spans[row, 0]
            if spans[row, 1] == size and start >= 0 and size <= data.shape[0] - start:
                i = 0
                while i < size and data[start + i] == key[i]:
                    i += 1
                if i == size:
                    break
            row -= 1
    return row
