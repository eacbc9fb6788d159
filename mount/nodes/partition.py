"""`<topic>/<partition>/`: the directory of a partition, with fixed names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from kafkafs.storage import UnknownPartition

from ..catalog import Catalog
from ..documents.status import partition_status, partition_why
from ..node import Attributes, DirEntryRun, Node, directory_attributes, entries_of, missing
from ..partition import MountedPartition
from ..vfs.errnos import NoSuchName, Stale
from . import append, compacted
from .dump import DumpDirectory
from .keys import KeyDirectory
from .member import FixedDirectory, Member, RemovedName, changed_ns, member_inode
from .offsets import OffsetDirectory, RecordLink
from .ranges import RangesDirectory
from .segments import SegmentsDirectory
from .small_files import ComputedFile
from .stream import DecodedName, FollowFile, stream_file
from .times import TimeDirectory
from .writable_keys import WritableKeyDirectory

#: In listing order.
NAMES: Final = {
    "offset": Member.OFFSET,
    "time": Member.TIME,
    "range": Member.RANGE,
    "compacted": Member.COMPACTED,
    "key": Member.KEY,
    "segments": Member.SEGMENTS,
    "dump": Member.DUMP,
    "records.jsonl": Member.RECORDS_JSONL,
    "records.arrow": Member.RECORDS_ARROW,
    "decoded.jsonl": Member.DECODED_JSONL,
    "values": Member.VALUES,
    "keys": Member.KEYS,
    "why.json": Member.WHY,
    "status.json": Member.STATUS,
}
#: Show files as they are on the disk now, and so do not exist in a mount as of a time.
_ON_DISK: Final = ("segments", "dump")
#: Not listed, but can be opened: a program that reads every file it finds would wait forever at the
#: end of one of these.
_UNLISTED: Final = {
    "follow": Member.FOLLOW,
    "follow.jsonl": Member.FOLLOW_JSONL,
    "follow.decoded.jsonl": Member.FOLLOW_DECODED_JSONL,
}
_NAMES_AS_OF: Final = {name: NAMES[name] for name in NAMES if name not in _ON_DISK}
_NOT_AS_OF: Final = "{}/ shows files as they are on the disk now, and does not exist as of a time"
_DIRECTORIES: Final[dict[Member, Callable[[Catalog, MountedPartition], Node]]] = {
    Member.OFFSET: OffsetDirectory,
    Member.TIME: TimeDirectory,
    Member.SEGMENTS: SegmentsDirectory,
}
_COMPUTED: Final[dict[Member, Callable[[Catalog, MountedPartition], bytes]]] = {
    Member.STATUS: partition_status,
    Member.WHY: partition_why,
}


class PartitionDirectory(FixedDirectory):
    def __init__(self, catalog: Catalog, partition: MountedPartition, parent_inode: int) -> None:
        super().__init__(catalog, partition)
        self.parent_inode = parent_inode
        self.inode = member_inode(partition, Member.DIRECTORY)

    def attributes(self) -> Attributes:
        """The mtime is that of the broker's directory, so that listing a topic of a thousand
        partitions opens none of them."""
        status = self.partition.log.directory.stat()
        generation = self.catalog.generation(self.inode)
        return directory_attributes(self.inode, status.st_mtime_ns, generation)

    def _names(self) -> Mapping[str, Member]:
        if self.catalog.engine.at_ms is not None:
            return _NAMES_AS_OF
        return NAMES if self.changes is None else NAMES | append.NAMES

    def child(self, name: str) -> Node:
        member = self._names().get(name, _UNLISTED.get(name))
        if member is None:
            if name in _ON_DISK:
                raise NoSuchName(name, partial(_NOT_AS_OF.format, name))
            raise missing(name, self.partition.name, self._names())
        return member_node(self.catalog, self.partition, member)

    def child_may_block(self, name: str) -> bool:
        return not self.partition.has_view

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        nodes = ((name, self.child(name)) for name in self._names())
        return entries_of(nodes, start)


def member_node(catalog: Catalog, partition: MountedPartition, member: Member) -> Node:
    """Returns the node of a fixed name in a partition."""
    if member in compacted.MEMBERS:
        return compacted.compacted_node(catalog, partition, member)
    changes = catalog.changes
    if member in append.MEMBERS:
        if changes is None:
            raise Stale
        return append.AppendFile(changes, partition, member)
    if member in _DIRECTORIES:
        return _DIRECTORIES[member](catalog, partition)
    if member is Member.RANGE:
        return RangesDirectory(catalog, partition)
    if member is Member.KEY:
        if changes is not None:
            return WritableKeyDirectory(catalog, partition, changes)
        return KeyDirectory(catalog, partition)
    if member is Member.DECODED_JSONL:
        return DecodedName(catalog, partition)
    if member in _UNLISTED.values():
        return FollowFile(catalog, partition, member)
    if member in (Member.FIRST_RECORD, Member.LAST_RECORD):
        return RecordLink(partition, member)
    if member is Member.DUMP:
        return DumpDirectory(catalog, partition)
    if member in _COMPUTED:
        compute = partial(_COMPUTED[member], catalog, partition)
        inode = member_inode(partition, member)
        return ComputedFile(catalog.contents, inode, changed_ns(partition), compute)
    if member is Member.REMOVED:
        return RemovedName(partition)
    if member is Member.DIRECTORY:
        raise UnknownPartition(partition.topic, partition.number)
    return stream_file(catalog, partition, member)


def member_by_number(number: int) -> Member:
    """Returns the member with an inode's number. Raises Stale if there is none."""
    try:
        return Member(number)
    except ValueError:
        raise Stale from None
