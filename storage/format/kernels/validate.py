# cython: language_level=3, boundscheck=False, wraparound=False
# cython: initializedcheck=False, cdivision=True
"""Give batches of magic 2 their place in a log: offsets and leader epoch, outside the checksum.

Every access is preceded by a check that a whole header lies before the end of the buffer.
"""

from __future__ import annotations

import cython

# Why a walk ended.
DONE = 0  # at the end of the buffer
NO_BATCH = 1  # what follows is no whole batch of magic 2
BASE_OFFSET = 2  # a batch that does not begin at offset 0
COUNT = 3  # a batch whose number of records is not that of its offsets, or that has none


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _int32(data: cython.uchar[::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = (
        (cython.cast(cython.longlong, data[at]) << 24)
        | (cython.cast(cython.longlong, data[at + 1]) << 16)
        | (cython.cast(cython.longlong, data[at + 2]) << 8)
        | cython.cast(cython.longlong, data[at + 3])
    )
    return value - ((value >> 31) << 32)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_int(
    data: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong, size: cython.int
) -> cython.void:
    i: cython.int
    for i in range(size):
        data[at + i] = cython.cast(cython.uchar, (value >> (8 * (size - 1 - i))) & 0xFF)


def number(data: cython.uchar[::1], from_zero: cython.bint) -> tuple[int, int, int]:
    """Write base offsets, consecutive from 0 on, into batches that count their records rightly.
    With ``from_zero`` a batch must have the base offset 0 before. Returns (batches, position of
    what was not numbered, why)."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = data.shape[0]
    batches: cython.Py_ssize_t = 0
    offset: cython.longlong = 0
    why: cython.int = 0
    size: cython.longlong
    count: cython.longlong
    with cython.nogil:
        while at < end:
            if end - at < 61 or data[at + 16] != 2:
                why = 1
                break
            size = _int32(data, at + 8) + 12
            if size < 61 or size > end - at:
                why = 1
                break
            if from_zero and (_int32(data, at) != 0 or _int32(data, at + 4) != 0):
                why = 2
                break
            count = _int32(data, at + 57)
            if count < 1 or count != _int32(data, at + 23) + 1:
                why = 3
                break
            _put_int(data, at, offset, 8)
            offset += count
            batches += 1
            at += size
    return batches, at, why


def place(
    data: cython.uchar[::1],
    table: cython.longlong[:, ::1],
    distance: cython.longlong,
    leader_epoch: cython.longlong,
) -> None:
    """Move the batches by ``distance`` offsets and set the leader epoch, in their headers and in
    the rows of ``table``. The caller has seen to it that offsets stay in range."""
    row: cython.Py_ssize_t
    at: cython.longlong
    for row in range(table.shape[0]):
        at = table[row, 0]
        if at < 0 or at > data.shape[0] - 61:
            raise ValueError("a batch outside the buffer")
        table[row, 2] += distance
        table[row, 3] += distance
        table[row, 4] = leader_epoch
        _put_int(data, at, table[row, 2], 8)
        _put_int(data, at + 12, leader_epoch, 4)
