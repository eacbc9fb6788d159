"""The tree of a mount as objects, by path or by inode number; it needs neither FUSE nor trio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkafs.storage import (
    Clock,
    Engine,
    OffsetNotFound,
    SegmentGone,
    UnknownPartition,
    UnknownTopic,
)

from .catalog import Catalog
from .node import DirectoryNode, Node
from .nodes.dump import dump_file_by_inode
from .nodes.member import Member
from .nodes.offsets import OffsetDirectory
from .nodes.partition import PartitionDirectory, member_by_number, member_node
from .nodes.ranges import range_node
from .nodes.record import RECORD_FILES
from .nodes.segments import segment_file_by_inode
from .nodes.small_files import ScratchNode
from .nodes.times import TimeLink, first_since
from .nodes.top import RootDirectory, top_node
from .nodes.topic import CONFIG_FILE_NUMBER, DIRECTORY_NUMBER, TopicDirectory
from .nodes.writable_keys import key_file_by_inode, written_file
from .options import MountOptions
from .partition import InodePlace, MountedPartition, Scope, Topic
from .vfs.contents import CONTENT_PLACE
from .vfs.errnos import NoSuchName, Stale
from .vfs.inodes import GROUPS_PLACE, NUMBER_BITS, SCHEMAS_PLACE, Inode, InodeKind, unpack

if TYPE_CHECKING:
    from .writes.changes import Changes


class Tree:
    """The tree of a mount of `engine` with `options`. Any thread may use it."""

    def __init__(
        self,
        engine: Engine,
        options: MountOptions | None = None,
        clock: Clock | None = None,
        changes: Changes | None = None,
    ) -> None:
        """`clock`: the current time for `compacted` and `why.json`; the system clock by default.
        `changes`: the operations of a writable tree; None for a read-only one."""
        self.catalog = Catalog(engine, options or MountOptions(), clock, changes)
        self.root = RootDirectory(self.catalog)
        self._offset_directories: dict[int, OffsetDirectory] = {}  # by inode number

    def resolve(self, path: str) -> Node:
        """Returns the node at `path` below the root; links are not followed. Raises NoSuchName, or
        an error of the engine for an offset or partition."""
        node: Node = self.root
        above = "/"
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, DirectoryNode):
                raise NoSuchName(path, partial("{} is not a directory".format, above))
            if name == ".." or "\0" in name:
                raise NoSuchName(path, partial("{!r} cannot be part of a path here".format, name))
            node, above = node.child(name), name
        return node

    def node(self, number: int) -> Node:
        """Returns the node of an inode number. Raises Stale if it no longer exists."""
        inode = unpack(number)
        if inode.kind == InodeKind.TOP and inode.place == CONTENT_PLACE:
            return self.catalog.contents[inode.number]
        if inode.kind == InodeKind.TOP and inode.place == GROUPS_PLACE:
            from .nodes.groups import group_node

            return group_node(self.catalog, inode.number)
        if inode.kind == InodeKind.TOP and inode.place == SCHEMAS_PLACE:
            from .nodes.schemas import schema_node

            return schema_node(self.catalog, inode.number)
        if inode.kind == InodeKind.TOP:
            return top_node(self.catalog, inode.number)
        if inode.kind == InodeKind.SCRATCH:
            return self._scratch_node(number)
        if inode.kind == InodeKind.RANGE:
            return self._range_node(number)
        place = self.catalog.places[inode.place]
        if isinstance(place, Topic) != (inode.kind == InodeKind.TOPIC):
            raise Stale
        if isinstance(place, Topic):
            return self._topic_node(place, inode)
        return self._partition_node(place, inode)

    def directory(self, number: int) -> DirectoryNode | None:
        """Returns as `node` does, but cached, the directory of most lookups: a partition's
        `offset`. Returns None for all others."""
        directory = self._offset_directories.get(number)
        if directory is None:
            inode = unpack(number)
            if inode.kind != InodeKind.PARTITION or inode.number != Member.OFFSET:
                return None
            place = self.catalog.places[inode.place]
            if isinstance(place, Topic):
                return None
            directory = OffsetDirectory(self.catalog, place.partition)
            self._offset_directories[number] = directory
        if not self.catalog.was_current(directory.partition):
            del self._offset_directories[number]
            raise Stale
        return directory

    def node_may_block(self, number: int) -> bool:
        """Returns False if `node(number)` needs only memory and pages that are mostly cached."""
        inode = unpack(number)
        if inode.kind in (InodeKind.TOP, InodeKind.SCRATCH):
            return inode.place in (GROUPS_PLACE, SCHEMAS_PLACE)
        if inode.kind == InodeKind.RANGE:
            range_, _ = self.catalog.ranges.by_inode(number)
            return not range_.partition.has_view
        place = self.catalog.places[inode.place]
        if isinstance(place, Topic):
            return inode.number != DIRECTORY_NUMBER and self.catalog.changes is not None
        return not place.partition.has_view or inode.kind == InodeKind.TIME

    def _scratch_node(self, number: int) -> Node:
        changes = self.catalog.changes
        if changes is None:
            raise Stale
        return ScratchNode(changes.scratch, changes.scratch.by_inode(number))

    def _range_node(self, number: int) -> Node:
        range_, _ = self.catalog.ranges.by_inode(number)
        if not self.catalog.is_current(range_.partition):
            raise Stale
        try:
            return range_node(self.catalog, number)
        except UnknownPartition:
            raise Stale from None

    def _topic_node(self, place: Topic, inode: Inode) -> Node:
        topic = TopicDirectory(self.catalog, place.name)
        try:
            self.catalog.topic(place.name)
        except UnknownTopic:
            raise Stale from None
        if topic.inode_place != inode.place:
            raise Stale
        if inode.number == DIRECTORY_NUMBER:
            return topic
        if inode.number == CONFIG_FILE_NUMBER:
            return topic.config_node()
        raise Stale

    def _partition_node(self, place: InodePlace, inode: Inode) -> Node:
        partition = place.partition
        if not self.catalog.is_current(partition):
            raise Stale
        number = place.window << NUMBER_BITS | inode.number
        try:
            if (known := self._known_node(place, inode, number)) is not None:
                return known
            partition.view()  # updates the versions
            partition.check_current(place)
            if place.scope is Scope.DUMPS:
                return dump_file_by_inode(self.catalog, partition, inode, number)
            return self._node_in(partition, inode, number)
        except (NoSuchName, OffsetNotFound, SegmentGone, UnknownPartition):
            raise Stale from None

    def _known_node(self, place: InodePlace, inode: Inode, number: int) -> Node | None:
        """Returns the node if it is one for writing values that needs no view of the log."""
        partition = place.partition
        if inode.kind == InodeKind.KEYED:
            partition.check_current(place)
            return written_file(self.catalog.changes, partition, number)
        if inode.kind == InodeKind.PARTITION and number == Member.KEY and partition.is_writable:
            return member_node(self.catalog, partition, Member.KEY)
        return None

    def _node_in(self, partition: MountedPartition, inode: Inode, number: int) -> Node:
        if inode.kind in RECORD_FILES:
            return RECORD_FILES[inode.kind](partition, number)
        if inode.kind in (InodeKind.KEYED, InodeKind.NEW_KEY):
            return key_file_by_inode(self.catalog.changes, partition, inode, number)
        if inode.kind == InodeKind.PARTITION:
            member = member_by_number(number)
            if member is Member.DIRECTORY:
                topic = TopicDirectory(self.catalog, partition.topic)
                return PartitionDirectory(self.catalog, partition, topic.inode)
            return member_node(self.catalog, partition, member)
        if inode.kind == InodeKind.TIME:
            if first_since(partition, number) is None:
                raise Stale
            return TimeLink(partition, number)
        return segment_file_by_inode(self.catalog, partition, inode, number)
