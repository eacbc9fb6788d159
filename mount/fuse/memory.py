"""Tunes glibc's malloc for the daemon: freed memory is kept for reuse and trimmed periodically.

Streams allocate and free pieces of about a megabyte. By default glibc's malloc returns each to the
kernel and gets zeroed pages for the next one, which costs a sixth of a stream's time. `keep` makes
it retain them.

Longer-lived objects, such as cached batches and looked-up records, are then allocated between
them. Soon no gap is large enough for another piece, and the heap grows although more and more of
it is free. So `trim` returns the free pages from time to time. With other C libraries neither
function does anything.
"""

from __future__ import annotations

import ctypes
from typing import Final

# malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD (bytes), M_ARENA_MAX.
_MALLOC: Final = {-3: 32 << 20, -1: 64 << 20, -8: 1}
# Below this many free bytes nothing is trimmed.
_LITTLE: Final = 16 << 20
_LIBC: Final = ctypes.CDLL(None)


class _MallInfo(ctypes.Structure):
    """malloc.h: struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def retain_freed() -> None:
    """Makes malloc keep freed memory for reuse from now on."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def trim() -> None:
    """Returns free memory to the kernel if there is enough of it. To be called periodically and in
    a thread: it takes some milliseconds."""
    malloc_trim = getattr(_LIBC, "malloc_trim", None)
    if malloc_trim is not None and _free_bytes() >= _LITTLE:
        malloc_trim(0)


def _free_bytes() -> int:
    """Returns the free bytes in malloc's heap; where they are unknown (before glibc 2.33),
    `_LITTLE`, so that the heap is trimmed."""
    mallinfo = getattr(_LIBC, "mallinfo2", None)
    if mallinfo is None:
        return _LITTLE
    mallinfo.restype = _MallInfo
    return int(mallinfo().fordblks)
