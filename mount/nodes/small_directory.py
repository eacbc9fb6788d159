"""The base of directories with few names."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from ..catalog import Catalog
from ..node import (
    Attributes,
    DirectoryNode,
    DirEntryRun,
    Node,
    directory_attributes,
    entries_of,
)


class SmallDirectory(DirectoryNode):
    """A directory that lists its names all at once. Its time is that of the mount."""

    def __init__(self, catalog: Catalog, inode: int, parent_inode: int) -> None:
        self.catalog = catalog
        self.inode = inode
        self.parent_inode = parent_inode

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, self.catalog.started_ns)

    @abstractmethod
    def children(self) -> Iterable[tuple[str, Node]]:
        """Returns the names in listing order, with their nodes."""

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        return entries_of(self.children(), start)
