"""Small files that are made when they are opened: status and settings."""

from __future__ import annotations

from collections.abc import Callable

from ..handles import BytesHandle, Handle
from .node import Attributes, File, stream_attributes


class ComputedFile(File):
    """What `compute` gives. Its size is not known before, so it is read like a stream."""

    def __init__(self, inode: int, mtime_ns: int, compute: Callable[[], bytes]) -> None:
        self.inode = inode
        self._mtime_ns = mtime_ns
        self._compute = compute

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns)

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._compute(), direct_io=True)
