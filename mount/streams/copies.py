"""Files that have to be written before they can be read, as unnamed temporary files in `$TMPDIR` or
/var/tmp.

Their total size is bounded. To make space for a new one, files that are not open are deleted, the
least recently used first; they are written again when needed.
"""

from __future__ import annotations

import io
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from kafkafs.storage import CorruptError

from ..vfs.errnos import NoSpace, TooLarge

_DIRECTORY: Final = "/var/tmp"


class TemporaryCopy:
    """A temporary file of `size` bytes, open `users` times."""

    def __init__(self) -> None:
        directory = os.environ.get("TMPDIR") or _DIRECTORY
        self._fd = -1
        from tempfile import TemporaryFile

        with TemporaryFile(dir=directory, buffering=0) as file:
            self._fd = os.dup(file.fileno())
        self.size = 0
        self.users = 0

    def read(self, position: int, size: int) -> bytes:
        """Returns `size` bytes from `position`, fewer only at the end. Raises OSError."""
        expected = max(min(size, self.size - position), 0)
        data = os.pread(self._fd, expected, position)
        if len(data) < expected:
            raise CorruptError("a temporary file became shorter", "", position + len(data))
        return data

    def write(self, data: memoryview) -> None:
        """Appends all of `data`. Raises OSError."""
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Closes the file; it must not be used afterwards. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # when the tree is deleted, if it is not mounted


class Copies:
    """The temporary files of a mount. Any thread may use it."""

    def __init__(self, most: int) -> None:
        """`most`: the limit of their total size, in bytes."""
        self.most = most
        self._size = 0
        self._kept: OrderedDict[TemporaryCopy, None] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # guards all of the above

    def make(self, write: Callable[[CopyWriter], None], check: Callable[[], None]) -> TemporaryCopy:
        """Returns a new copy with the output of `write`, not yet open. Calls `check` before each
        write. Raises TooLarge if it needs more than `most` bytes, NoSpace if open files leave too
        little space, and OSError."""
        copy = TemporaryCopy()
        try:
            write(CopyWriter(self, copy, check))
        except BaseException:
            self._close(copy)
            raise
        with self._lock:
            self._kept[copy] = None
        return copy

    def reserve(self, copy: TemporaryCopy, size: int) -> None:
        """Reserves space for `copy` to grow by `size` bytes. Raises as `make` does."""
        if copy.size + size > self.most:
            raise TooLarge(f"it would need more than kafkafs.range.parquet.bytes={self.most}")
        with self._lock:
            self._free_space(size)
            self._size += size
            copy.size += size

    def _free_space(self, size: int) -> None:
        for idle in [copy for copy in self._kept if not copy.users]:
            if self._size + size <= self.most:
                return
            self._remove(idle)
        if self._size + size > self.most:
            raise NoSpace(f"other open files use up kafkafs.range.parquet.bytes={self.most}")

    def acquire(self, copy: TemporaryCopy) -> bool:
        """Keeps `copy` until `release`. Returns False if it was already deleted."""
        with self._lock:
            if copy not in self._kept:
                return False
            self._kept.move_to_end(copy)
            copy.users += 1
            return True

    def release(self, copy: TemporaryCopy) -> None:
        with self._lock:
            copy.users -= 1

    def drop(self, copy: TemporaryCopy) -> None:
        """Deletes `copy` if it is not open; it will not be needed again."""
        with self._lock:
            if copy in self._kept and not copy.users:
                self._remove(copy)

    def _remove(self, copy: TemporaryCopy) -> None:
        del self._kept[copy]
        self._size -= copy.size
        copy.close()

    def _close(self, copy: TemporaryCopy) -> None:
        with self._lock:
            self._size -= copy.size
        copy.close()


class CopyWriter(io.RawIOBase):
    """A write-only file object for a copy, from its beginning to its end."""

    def __init__(self, copies: Copies, copy: TemporaryCopy, check: Callable[[], None]) -> None:
        super().__init__()
        self._copies = copies
        self._copy = copy
        self._check = check

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._copy.size

    def write(self, data: Any) -> int:
        self._check()
        written = memoryview(data).cast("B")
        self._copies.reserve(self._copy, len(written))
        self._copy.write(written)
        return len(written)
