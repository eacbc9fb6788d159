"""`compacted/`: the partition as log compaction would leave it now.

What would be left is for `Previews` to find, which may take long. So nodes here say that it is
`pending`, and the streams find it when they are first read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkafs.storage.cleaner.compacted_view import CompactedView
from kafkafs.storage.errors import CorruptError, OffsetNotFound, SegmentGone, printable
from kafkafs.storage.format.batch import Int64s
from kafkafs.storage.format.columns import Columns, Damage

from .. import render
from ..catalog import Catalog
from ..errnos import Forbidden, NoSuchName
from ..handles import Handle
from ..lifetimes import BRIEFLY
from ..partition import Partition
from ..pending import Pending
from ..reading.previews import Previews
from ..reading.streams import Piece, PreparedStreamHandle
from .keys import KeyDirectory
from .member import FixedDirectory, Member, MemberDirectory, changed_ns, member_inode
from .node import (
    Attributes,
    File,
    Link,
    Node,
    Run,
    link_attributes,
    rows_of,
    stream_attributes,
)
from .offsets import OffsetDirectory, parse_name
from .stream import FORMATS, PartitionSource

#: In the order in which they are listed.
NAMES: Final = {
    "offset": Member.COMPACTED_OFFSET,
    "latest": Member.COMPACTED_LATEST,
    "records.jsonl": Member.COMPACTED_RECORDS_JSONL,
    "values": Member.COMPACTED_VALUES,
    "keys": Member.COMPACTED_KEYS,
    "summary.json": Member.COMPACTED_SUMMARY,
}
#: What the streams are made like.
_LIKE: Final = {
    Member.COMPACTED_RECORDS_JSONL: Member.RECORDS_JSONL,
    Member.COMPACTED_VALUES: Member.VALUES,
    Member.COMPACTED_KEYS: Member.KEYS,
}
MEMBERS: Final = frozenset(
    {Member.COMPACTED, *NAMES.values(), Member.COMPACTED_FIRST, Member.COMPACTED_LAST}
)
# How often what is left of a partition is found anew when segments vanish meanwhile.
_ATTEMPTS: Final = 8


def compacted_node(catalog: Catalog, partition: Partition, member: Member) -> Node:
    """What one of `MEMBERS` stands for."""
    previews = catalog.previews
    if member is Member.COMPACTED:
        return CompactedDirectory(catalog, partition)
    if member is Member.COMPACTED_OFFSET:
        return CompactedOffsets(previews, partition)
    if member is Member.COMPACTED_LATEST:
        return CompactedLatest(catalog, partition)
    if member in (Member.COMPACTED_FIRST, Member.COMPACTED_LAST):
        return CompactedLink(previews, partition, member)
    return CompactedFile(previews, partition, member)


class CompactedDirectory(FixedDirectory, MemberDirectory):
    member = Member.COMPACTED

    def __init__(self, catalog: Catalog, partition: Partition) -> None:
        super().__init__(partition)
        self._catalog = catalog

    def child(self, name: str) -> Node:
        if name not in NAMES:
            raise NoSuchName(name)
        return compacted_node(self._catalog, self.partition, NAMES[name])

    def runs(self, start: int) -> Iterator[Run]:
        return rows_of(((name, self.child(name)) for name in NAMES), start)


class CompactedOffsets(OffsetDirectory):
    """The files of `offset/` whose records stay. Names are believed briefly: they can go."""

    member = Member.COMPACTED_OFFSET
    links: Mapping[str, Member] = {
        "first": Member.COMPACTED_FIRST,
        "last": Member.COMPACTED_LAST,
    }
    name_lifetime = BRIEFLY

    def __init__(self, previews: Previews, partition: Partition) -> None:
        super().__init__(partition)
        self.parent_inode = member_inode(partition, Member.COMPACTED)
        self._previews = previews

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def child(self, name: str) -> Node:
        if name in self.links:
            return super().child(name)
        offset, kind = parse_name(name)
        if not self._previews.of(self.partition).keeps(offset):
            raise OffsetNotFound(offset, "compaction would remove it, or has")
        return kind(self.partition, offset, self.partition.lifetime(BRIEFLY))

    def child_is_near(self, name: str) -> bool:
        """The log may have changed since all was found."""
        return False

    def remove(self, name: str, pid: int) -> None:
        self.child(name)
        raise Forbidden(f"{printable(name)} shows what compaction would leave, and is not the log")

    def link(self, name: str) -> Link:
        return CompactedLink(self._previews, self.partition, self.links[name])

    def scan(self, offset: int) -> Iterator[Columns | Damage]:
        left = self._previews.of(self.partition)
        return left.scan(offset, isolation=self.partition.isolation)


class CompactedLatest(KeyDirectory):
    """The files of `key/` whose records stay."""

    member = Member.COMPACTED_LATEST
    name_lifetime = BRIEFLY

    def __init__(self, catalog: Catalog, partition: Partition) -> None:
        super().__init__(catalog, partition)
        self.parent_inode = member_inode(partition, Member.COMPACTED)
        self._previews = catalog.previews

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def kept(self, offsets: Int64s) -> NDArray[np.bool_]:
        return self._previews.of(self.partition).mask(offsets)


class CompactedLink(Link):
    """`first` or `last`."""

    def __init__(self, previews: Previews, partition: Partition, member: Member) -> None:
        self._previews = previews
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        return link_attributes(self.inode, 0)

    def pending(self) -> Pending | None:
        return self._previews.pending(self.partition)

    def target(self) -> str:
        left = self._previews.of(self.partition)
        is_last = self.member is Member.COMPACTED_LAST
        offset = (left.last if is_last else left.first)(self.partition.isolation)
        if offset is None:
            raise NoSuchName(self.member.name)
        return str(offset)


class CompactedFile(File):
    """A stream, or `summary.json`, which is read like one."""

    def __init__(self, previews: Previews, partition: Partition, member: Member) -> None:
        self._previews = previews
        self.partition = partition
        self.member = member
        self.inode = member_inode(partition, member)

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, changed_ns(self.partition))

    def open(self, *, waits: bool = True) -> Handle:
        source = CompactedSource(self._previews, self.partition, self.member)
        return PreparedStreamHandle(source, self.partition.note_damage)


class CompactedSource:
    """What `member` shows of a partition, found when it is first asked for."""

    def __init__(self, previews: Previews, partition: Partition, member: Member) -> None:
        self._previews = previews
        self._partition = partition
        self._member = member
        self._is_summary = member is Member.COMPACTED_SUMMARY
        self._lock = threading.Lock()  # held while it is found
        self._left: CompactedView | None = None

    def pending(self) -> Pending | None:
        if self._left is not None:
            return None
        return self._previews.pending(self._partition, in_full=self._is_summary)

    def pieces(self, restart: int) -> Iterator[Piece | CorruptError]:
        left = self._found()
        if self._is_summary:
            yield Piece(render.status(left.summary()))
            return
        made = FORMATS[_LIKE[self._member]]
        yield from PartitionSource(self._partition, left, made).pieces(restart)

    def _found(self) -> CompactedView:
        with self._lock:
            for _ in range(_ATTEMPTS):
                if self._left is not None:
                    return self._left
                try:
                    found = self._previews.of(self._partition, in_full=self._is_summary)
                    self._left = found.pinned()
                except SegmentGone:  # deleted or replaced since the view was made
                    continue
        raise SegmentGone(self._partition.log.path)
