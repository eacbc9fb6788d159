"""Files open for writing: what a handle can do beside reading."""

from __future__ import annotations

from abc import abstractmethod

from .errnos import Forbidden
from .handles import Data, Handle


class WriteHandle(Handle):
    """An open file that can be written. One call at a time; each may wait for the disk.

    Reads and writes go past the kernel's page cache, so that each comes here as it was made.
    """

    direct_io = True
    keep_cache = False
    #: Whether writing needs no more than memory.
    writes_near = False

    def writes_soon(self, size: int) -> bool:
        """Whether to write `size` bytes now takes a millisecond or two, as far as can be told: it
        needs memory and pages, and waits for nobody."""
        return False

    def read(self, position: int, size: int) -> Data:
        """Forbidden unless a handle allows it."""
        raise Forbidden("it can only be written")

    @abstractmethod
    def write(self, position: int, data: bytes) -> int:
        """Takes `data` for `position`; how many bytes of it."""

    def truncate(self, size: int) -> None:
        """ftruncate(2)."""
        raise Forbidden("its size is not for setting")

    @property
    def flushes(self) -> bool:
        """Whether `flush` has anything to do. Costs nothing."""
        return True

    @property
    def flushes_near(self) -> bool:
        """Whether `flush` needs no more than a write into pages, and waits for nobody."""
        return False

    @property
    def closes(self) -> bool:
        """Whether `close` may have to wait for the disk. Costs nothing."""
        return True

    def flush(self) -> None:
        """One of the file's descriptors is being closed: what was written is complete. What is
        raised here is what close(2) gives. May come more than once."""

    def sync(self) -> None:
        """fsync(2): makes durable what was written."""
