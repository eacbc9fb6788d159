"""Files that have to be written before they can be read: temporary ones, without a name, in
`$TMPDIR` or /var/tmp.

All of them have at most so many bytes together. For a new one those that nobody has open go, the
one used longest ago first; whoever wants one of them again makes it again.
"""

from __future__ import annotations

import io
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from kafkafs.storage.errors import CorruptError

from ..errnos import NoRoom, TooLarge

_DIRECTORY: Final = "/var/tmp"


class Copy:
    """A temporary file of `size` bytes, which `users` have open."""

    def __init__(self) -> None:
        directory = os.environ.get("TMPDIR") or _DIRECTORY
        self._fd = -1
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
            self._fd = os.dup(file.fileno())
        self.size = 0
        self.users = 0

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes from `position`, fewer only at the end. OSError."""
        wanted = max(min(size, self.size - position), 0)
        data = os.pread(self._fd, wanted, position)
        if len(data) < wanted:
            raise CorruptError("a temporary file became shorter", "", position + len(data))
        return data

    def write(self, data: memoryview) -> None:
        """Writes all of `data` behind what was written before. OSError."""
        while data:
            data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Nothing may be read or written any more. Safe to repeat."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close  # with the tree, where nobody mounts it


class Copies:
    """The temporary files of a mount. Any thread may use it."""

    def __init__(self, most: int) -> None:
        """`most`: bytes that they may have together."""
        self.most = most
        self._size = 0
        self._kept: OrderedDict[Copy, None] = OrderedDict()  # the one used last comes last
        self._lock = threading.Lock()  # guards all of these

    def make(self, write: Callable[[Output], None], check: Callable[[], None]) -> Copy:
        """What `write` writes, which nobody has open. `check` is called before each write. Raises
        TooLarge for more than `most` bytes, NoRoom if files that are open leave too little room,
        and OSError."""
        copy = Copy()
        try:
            write(Output(self, copy, check))
        except BaseException:
            self._close(copy)
            raise
        with self._lock:
            self._kept[copy] = None
        return copy

    def reserve(self, copy: Copy, size: int) -> None:
        """Room for `copy` to grow by `size` bytes. Raises as `make` does."""
        if copy.size + size > self.most:
            raise TooLarge(f"it would take more than kafkafs.range.parquet.bytes={self.most}")
        with self._lock:
            self._make_room(size)
            self._size += size
            copy.size += size

    def _make_room(self, size: int) -> None:
        for idle in [copy for copy in self._kept if not copy.users]:
            if self._size + size <= self.most:
                return
            self._remove(idle)
        if self._size + size > self.most:
            raise NoRoom(f"others that are open take kafkafs.range.parquet.bytes={self.most}")

    def take(self, copy: Copy) -> bool:
        """Have it stay until `let_go`. False if it has gone."""
        with self._lock:
            if copy not in self._kept:
                return False
            self._kept.move_to_end(copy)
            copy.users += 1
            return True

    def let_go(self, copy: Copy) -> None:
        with self._lock:
            copy.users -= 1

    def drop(self, copy: Copy) -> None:
        """Nobody will take it any more. It goes at once unless it is open."""
        with self._lock:
            if copy in self._kept and not copy.users:
                self._remove(copy)

    def _remove(self, copy: Copy) -> None:
        del self._kept[copy]
        self._size -= copy.size
        copy.close()

    def _close(self, copy: Copy) -> None:
        with self._lock:
            self._size -= copy.size
        copy.close()


class Output(io.RawIOBase):
    """What a copy is written to, from its beginning to its end."""

    def __init__(self, copies: Copies, copy: Copy, check: Callable[[], None]) -> None:
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
