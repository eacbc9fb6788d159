"""Small files that are made when their names are looked up: status and configs."""

from __future__ import annotations

from collections.abc import Callable

from ..node import FILE_MODE, Attributes, File, FixedFile, stream_attributes
from ..vfs.contents import Contents
from ..vfs.handles import BytesHandle, Handle
from ..vfs.lifetimes import BRIEFLY, NOT_AT_ALL


class ComputedFile(File):
    """A file with the result of `compute`. A listing does not compute it and so has no size."""

    is_fixed = False

    def __init__(
        self,
        contents: Contents[FixedFile],
        inode: int,
        mtime_ns: int,
        compute: Callable[[], bytes],
    ) -> None:
        """`inode`: the inode number in a listing."""
        self.inode = inode
        self._contents = contents
        self._mtime_ns = mtime_ns
        self._compute = compute

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns, name_lifetime=NOT_AT_ALL)

    def fixed(self) -> Document:
        data = self._compute()

        def make(inode: int) -> Document:
            return Document(inode, self._mtime_ns, data)

        found = self._contents.file((self.inode, self._mtime_ns, data), make)
        assert isinstance(found, Document)
        return found

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


class Document(FixedFile):
    """The content of a `ComputedFile` when its name was looked up."""

    def __init__(self, inode: int, mtime_ns: int, data: bytes) -> None:
        self.inode = inode
        self.memory = 1024 + 2 * len(data)
        self._mtime_ns = mtime_ns
        self._data = data

    def attributes(self) -> Attributes:
        size = len(self._data)
        return Attributes(self.inode, FILE_MODE, size, self._mtime_ns, NOT_AT_ALL, BRIEFLY)

    def check(self) -> None:
        """Does nothing: it shows a past state, so it cannot become stale."""

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._data)
