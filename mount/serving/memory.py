"""What the daemon does with memory that it does not use any more: keep it, but not for ever.

Pieces of streams come and go by the megabyte. glibc's malloc would give each back to the kernel and
be given empty pages for the next one: a sixth of the time that a stream takes. So it is told to
keep them.

But between them comes to lie what lives longer, a batch in a cache, a record that was looked up.
Soon no gap is large enough for a next piece, and the heap grows although ever more of it is free.
So from time to time the pages in the gaps are given back all the same. Other C libraries have
nothing of the kind.
"""

from __future__ import annotations

import ctypes
from typing import Final

# malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD (bytes), M_ARENA_MAX.
_MALLOC: Final = {-3: 32 << 20, -1: 64 << 20, -8: 1}
# Less free memory than this is left as it is, in bytes.
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


def keep() -> None:
    """From now on freed memory is used again."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)


def give_back() -> None:
    """Gives the kernel what is free, if that is worth while. To be called now and then, by a
    thread: it takes some milliseconds."""
    trim = getattr(_LIBC, "malloc_trim", None)
    if trim is not None and _free_bytes() >= _LITTLE:
        trim(0)


def _free_bytes() -> int:
    """Bytes that malloc has and nobody uses; where it does not say, as before glibc 2.33, many."""
    mallinfo = getattr(_LIBC, "mallinfo2", None)
    if mallinfo is None:
        return _LITTLE
    mallinfo.restype = _MallInfo
    return int(mallinfo().fordblks)
