"""Appends to a new file past the page cache, where the file system can.

A backup writes much that nobody reads soon: in the page cache it would take the place of what a
broker needs, and the copying there takes more of a processor than reading and the checksums.
"""

from __future__ import annotations

import errno
from mmap import PAGESIZE, mmap
from typing import Final

from ..io.durable import Buffer, WritableFile

#: Bytes per write, which are in memory.
_WRITE_BYTES: Final = 1 << 20
# The kernel is asked to begin writing to the disk after as many bytes, if they are in the cache.
_SYNC_BYTES: Final = 8 << 20


class UncachedWriter:
    """Writes a file from its beginning to its end. For one thread."""

    def __init__(self, file: WritableFile) -> None:
        """`file` is empty."""
        self._file = file
        # Mapped memory begins with a page, as direct writes must; they are also whole pages.
        self._buffer = memoryview(mmap(-1, _WRITE_BYTES))
        self._filled = self._written = self._begun = 0
        self._is_direct = file.bypass_cache(True)

    def write(self, data: Buffer) -> None:
        """Appends bytes. Raises OSError."""
        left = memoryview(data).cast("B")
        while left:
            count = min(len(left), _WRITE_BYTES - self._filled)
            self._buffer[self._filled : self._filled + count] = left[:count]
            self._filled += count
            left = left[count:]
            if self._filled == _WRITE_BYTES:
                self._flush(_WRITE_BYTES)

    def finish(self) -> None:
        """Writes what is left, and makes the file durable. Raises OSError."""
        whole = self._filled - self._filled % PAGESIZE
        if whole:
            self._flush(whole)
        if self._filled:
            self._use_cache()
            self._flush(self._filled)
        self._file.sync()

    def _flush(self, size: int) -> None:
        """Writes the first bytes of the buffer."""
        data = self._buffer[:size]
        try:
            self._file.write(self._written, data)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
            self._use_cache()  # this file system wants more than whole pages
            self._file.write(self._written, data)
        self._written += size
        self._filled -= size
        self._buffer[: self._filled] = self._buffer[size : size + self._filled]
        if not self._is_direct and self._written - self._begun >= _SYNC_BYTES:
            self._file.begin_sync(self._begun, self._written - self._begun)
            self._begun = self._written

    def _use_cache(self) -> None:
        if self._is_direct:
            self._file.bypass_cache(False)
            self._is_direct = False
