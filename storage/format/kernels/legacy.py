"""Finds key and value in messages of magic 0 and 1.

Bounds: every message is checked to lie in the buffer, and every read to lie in its message.
"""

from __future__ import annotations

import cython

from ._primitives import int32

OK = 0
KEY_LENGTH = 1
VALUE_LENGTH = 2
MESSAGE_END = 3


def decode_messages(
    data: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
    magics: cython.longlong[::1],
    spans: cython.int[:, ::1],
) -> tuple[int, int]:
    """Fills a row of ``spans`` (as ``decode_records`` does, without headers) for each message
    ``data[starts[i]:ends[i]]``. Returns (messages decoded, error of the message after them)."""
    row: cython.Py_ssize_t = 0
    rows: cython.Py_ssize_t = starts.shape[0]
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.longlong
    error: cython.int = 0
    if (
        ends.shape[0] != rows
        or magics.shape[0] != rows
        or spans.shape[0] < rows
        or spans.shape[1] != 6
        or data.shape[0] > 2147483647
    ):
        raise ValueError("arrays of different lengths, or a buffer past 2 GiB")
    with cython.nogil:
        while row < rows:
            at = starts[row]
            end = ends[row]
            if at < 0 or end > data.shape[0] or end - at < (34 if magics[row] == 1 else 26):
                error = 3
                break
            at += 26 if magics[row] == 1 else 18
            size = int32(data, at)
            at += 4
            if size > end - at - 4:
                error = 1
                break
            spans[row, 0] = cython.cast(cython.int, at)
            spans[row, 1] = -1
            if size >= 0:
                spans[row, 1] = cython.cast(cython.int, size)
                at += size
            if end - at < 4:
                error = 1
                break
            size = int32(data, at)
            at += 4
            if size > end - at:
                error = 2
                break
            spans[row, 2] = cython.cast(cython.int, at)
            spans[row, 3] = -1
            if size >= 0:
                spans[row, 3] = cython.cast(cython.int, size)
                at += size
            spans[row, 4] = cython.cast(cython.int, at)
            spans[row, 5] = 0
            if at != end:
                error = 3
                break
            row += 1
    return row, error
