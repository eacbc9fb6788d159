"""Files open for writing: the operations of a handle besides reading."""

from __future__ import annotations

from abc import abstractmethod

from .errnos import NotPermitted
from .handles import Data, Handle


class WriteHandle(Handle):
    """An open file that can be written. One call at a time; each may block on the disk.

    Reads and writes bypass the kernel's page cache, so that each arrives here as it was made.
    """

    direct_io = True
    keep_cache = False
    #: False if writing needs only memory.
    write_may_block = True

    def write_is_quick(self, size: int) -> bool:
        """Returns whether writing `size` bytes now is expected to take at most a millisecond or
        two: it needs memory and pages, and waits for no other thread."""
        return False

    def read(self, position: int, size: int) -> Data:
        """Raises NotPermitted unless a subclass allows reading."""
        raise NotPermitted("it can only be written")

    @abstractmethod
    def write(self, position: int, data: bytes) -> int:
        """Writes `data` at `position`; returns how many bytes were accepted."""

    def truncate(self, size: int) -> None:
        """Implements ftruncate(2)."""
        raise NotPermitted("its size cannot be set")

    @property
    def flushes(self) -> bool:
        """Whether `flush` has anything to do. Costs nothing."""
        return True

    @property
    def flush_may_block(self) -> bool:
        """False if `flush` only writes into pages, without waiting for another thread."""
        return True

    @property
    def closes(self) -> bool:
        """Whether `close` may block on the disk. Costs nothing."""
        return True

    def flush(self) -> None:
        """Completes the written data, as one of the file's descriptors is closed. An error raised
        here is returned by close(2). May be called more than once."""

    def sync(self) -> None:
        """Implements fsync(2): makes the written data durable."""
