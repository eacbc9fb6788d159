"""Reads the headers of batches from a file, one after another, and nothing between them.

This kernel makes system calls, because a call from Python takes longer than the header is worth:
all headers of a log of 16 KiB batches are read in the time in which Python would read a tenth of
them. Systems without ``pread`` (Windows) have it uncompiled only, and do not use it.

Bounds: each read is limited to the size of ``buffer``, and parsed as far as it was filled.
"""

from __future__ import annotations

import cython

from ._headers import fill_rows

if cython.compiled:
    from cython.cimports.posix.unistd import pread
else:
    import os

    def pread(fd: int, buffer: memoryview, size: int, position: int) -> int:
        """Reads as C's function does."""
        try:
            data = os.pread(fd, size, position)
        except OSError:
            return -1
        buffer[: len(data)] = data
        return len(data)


def read_headers(
    fd: cython.int,
    start: cython.longlong,
    end: cython.longlong,
    previous_offset: cython.longlong,
    table: cython.longlong[:, ::1],
    buffer: cython.uchar[::1],
) -> int:
    """Reads the headers of the batches from file position ``start`` on into the rows of ``table``,
    and returns how many there are. Ends early at anything that is no header, at an error, and
    at a batch that goes past ``end``. ``buffer``: at least 128 bytes; batches that are smaller are
    read many at a time. ``previous_offset`` is as for ``scan_headers``."""
    rows: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t
    got: cython.Py_ssize_t
    capacity: cython.Py_ssize_t = table.shape[0]
    largest: cython.Py_ssize_t = buffer.shape[0]
    wanted: cython.Py_ssize_t = 128
    position: cython.longlong = start
    why: cython.int = 0
    if table.shape[1] != 14 or largest < 128:
        raise ValueError("a table of too few columns, or too small a buffer")
    if start < 0:
        raise ValueError("a negative position")
    with cython.nogil:
        while rows < capacity and position < end:
            if cython.compiled:
                got = pread(fd, cython.address(buffer[0]), wanted, position)
            else:
                got = pread(fd, buffer, wanted, position)
            if got <= 0:
                break
            count, _, why = fill_rows(buffer, 0, got, position, previous_offset, False, table, rows)
            while count > 0 and table[rows + count - 1, 0] + table[rows + count - 1, 1] > end:
                count -= 1
                why = 3
            if count == 0:
                break
            rows += count
            position = table[rows - 1, 0] + table[rows - 1, 1]
            previous_offset = table[rows - 1, 3]
            if why > 2:
                break
            # The next read is as large as pays: neighbours are close together, or far apart.
            wanted = largest if table[rows - 1, 1] * 4 < largest else 128
    return rows
