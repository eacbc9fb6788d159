"""`.kafkafs/groups/<group>/<topic>/<partition>`: how far groups have read.

A group's name is percent-encoded like a key's; so is a topic's, since a group may have committed
offsets for any name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    GroupLags,
    GroupOffset,
    LogDirError,
    PartitionFailed,
    UnknownGroup,
    UnknownPartition,
    UnknownTopic,
)

from ..catalog import Catalog, GroupPath
from ..node import File, Node, missing
from ..vfs import render
from ..vfs.errnos import NoSuchName, Stale
from ..vfs.inodes import GROUPS_NUMBER, GROUPS_PLACE, InodeKind, pack
from ..vfs.key_names import name_of_text, named
from .member import Member
from .record import mtime_ns
from .small_directory import SmallDirectory
from .small_files import ComputedFile, DescribedDocument
from .stream import stream_file

if TYPE_CHECKING:
    from kafkafs.storage import DescribedGroup, GroupsImage, PartitionOffset

STATUS: Final = "status.json"
_UNREAD: Final = ".unread.jsonl"
# The name of the directory of a topic that is called like the status file.
_STATUS_TOPIC: Final = "status%2Ejson"


class _GroupsNode(SmallDirectory):
    """A directory of groups. The kernel looks its names up each time it needs them."""

    def child_may_block(self, name: str) -> bool:
        return True

    def image(self) -> GroupsImage:
        return self.catalog.groups.image()


class GroupsDirectory(_GroupsNode):
    """`groups/`: a directory for each group, by name."""

    def child(self, name: str) -> GroupDirectory:
        image = self.image()
        found = named(name, image.groups)
        if found is None:
            raise NoSuchName(name, image.unknown_group(name).__str__)
        return GroupDirectory(self.catalog, found)

    def children(self) -> Iterator[tuple[str, GroupDirectory]]:
        for name in self.image().groups:
            yield name_of_text(name), GroupDirectory(self.catalog, name)


class GroupDirectory(_GroupsNode):
    """`<group>/`: a directory for each topic, and the status file."""

    def __init__(self, catalog: Catalog, group: str) -> None:
        parent = pack(InodeKind.TOP, 0, GROUPS_NUMBER)
        super().__init__(catalog, group_inode(catalog, GroupPath(group)), parent)
        self.group = group

    def child(self, name: str) -> Node:
        if name == STATUS:
            return StatusFile(self.catalog, self.group)
        topics = self._topics()
        topic = named(name, topics)
        if topic is None:
            raise missing(name, f"group {self.group}", [STATUS, *map(_topic_name, topics)])
        return GroupTopicDirectory(self.catalog, self.group, topic)

    def children(self) -> Iterator[tuple[str, Node]]:
        yield STATUS, StatusFile(self.catalog, self.group)
        for topic in self._topics():
            yield _topic_name(topic), GroupTopicDirectory(self.catalog, self.group, topic)

    def _topics(self) -> list[str]:
        """Returns the topics in order of name. Raises UnknownGroup."""
        image = self.image()
        offsets = image.offsets(image.group(self.group))
        return list(dict.fromkeys(each.topic for each in offsets))


class GroupTopicDirectory(_GroupsNode):
    """`<group>/<topic>/`: files for each partition."""

    def __init__(self, catalog: Catalog, group: str, topic: str) -> None:
        inode = group_inode(catalog, GroupPath(group, topic))
        super().__init__(catalog, inode, group_inode(catalog, GroupPath(group)))
        self.group = group
        self.topic = topic

    def child(self, name: str) -> File:
        group, offsets = self._offsets()
        number = name.removesuffix(_UNREAD)
        found = offsets.get(number)
        if found is not None and number == name:
            return OffsetFile(self.catalog, group, found)
        unread = None if found is None else self._unread(found)
        if unread is None:
            raise missing(name, f"group {self.group}", offsets)
        return unread

    def children(self) -> Iterator[tuple[str, Node]]:
        group, offsets = self._offsets()
        for number, offset in offsets.items():
            yield number, OffsetFile(self.catalog, group, offset)
            unread = self._unread(offset)
            if unread is not None:
                yield number + _UNREAD, unread

    def _offsets(self) -> tuple[DescribedGroup, Mapping[str, PartitionOffset]]:
        """Returns the group, and the offsets by partition. Raises UnknownGroup."""
        image = self.image()
        group = image.group(self.group)
        offsets = [each for each in image.offsets(group) if each.topic == self.topic]
        return group, {str(each.partition): each for each in offsets}

    def _unread(self, offset: PartitionOffset) -> File | None:
        """Returns the stream of what is served from an offset on; None if the partition is not
        here or not served, or nothing is committed."""
        if offset.offset is None:
            return None
        try:
            partition = self.catalog.partition(offset.topic, offset.partition)
            return stream_file(
                self.catalog, partition, Member.RECORDS_JSONL, offset.offset, self.group
            )
        except (UnknownTopic, UnknownPartition, LogDirError):
            return None


class OffsetFile(ComputedFile):
    """`<partition>`: the committed offset; an empty file if none is stored yet."""

    def __init__(self, catalog: Catalog, group: DescribedGroup, offset: PartitionOffset) -> None:
        timestamp = offset.commit_timestamp
        mtime = 0 if timestamp is None else mtime_ns(timestamp)
        path = GroupPath(group.name, offset.topic, offset.partition)
        data = b"" if offset.offset is None else b"%d\n" % offset.offset
        super().__init__(catalog.contents, group_inode(catalog, path), mtime, lambda: data)
        self._catalog = catalog
        self._group = group
        self._offset = offset

    def fixed(self) -> DescribedDocument:
        data = self._compute()

        def make(inode: int) -> DescribedDocument:
            return DescribedDocument(inode, self._mtime_ns, data, self.xattrs)

        # Another commit is another file, even of the same offset.
        found = self._contents.file((self.inode, self._group, self._offset), make)
        assert isinstance(found, DescribedDocument)
        return found

    @property
    def xattrs_may_block(self) -> bool:
        return True

    def xattrs(self) -> Mapping[str, bytes]:
        """Returns the facts about the commit, compared with the log as it is now."""
        for row in GroupLags(self._catalog.engine).rows(self._group, [self._offset]):
            if isinstance(row, GroupOffset):
                return _xattrs(row)
        return {}


class StatusFile(ComputedFile):
    """`<group>/status.json`: the group with its members and offsets."""

    def __init__(self, catalog: Catalog, group: str) -> None:
        inode = group_inode(catalog, GroupPath(group, is_status=True))
        super().__init__(
            catalog.contents, inode, catalog.started_ns, partial(group_status, catalog, group)
        )


def group_status(catalog: Catalog, name: str) -> bytes:
    """Returns a group's `status.json`. Raises UnknownGroup."""
    image = catalog.groups.image()
    group = image.group(name)
    rows = list(GroupLags(catalog.engine).rows(group, image.offsets(group)))
    offsets = [row.as_json() for row in rows if isinstance(row, GroupOffset)]
    failed = [row.error for row in rows if isinstance(row, PartitionFailed)]
    shared = ("group", "type", "state")
    return render.status(
        {
            **group.as_json(),
            "members": [each.as_json() for each in image.members(group)],
            "offsets": [
                {field: value for field, value in row.items() if field not in shared}
                for row in offsets
                if row["topic"] is not None
            ],
            "problems": [*(f"{where}: {error}" for where, error in image.failed), *failed],
        }
    )


def _xattrs(row: GroupOffset) -> Mapping[str, bytes]:
    """Returns the fields of a row as extended attributes, without those that are null."""
    return {
        render.XATTR_PREFIX + _snake_case(field): str(value).encode()
        for field, value in row.as_json().items()
        if value is not None
    }


def _snake_case(field: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in field)


def _topic_name(topic: str) -> str:
    return _STATUS_TOPIC if topic == STATUS else name_of_text(topic)


def group_inode(catalog: Catalog, path: GroupPath) -> int:
    """Returns the inode number of a node below `groups/`."""
    return pack(InodeKind.TOP, GROUPS_PLACE, catalog.group_paths.number(path))


def group_node(catalog: Catalog, number: int) -> Node:
    """Returns the node of an inode number of GROUPS_PLACE. Raises Stale if it is not remembered. A
    directory is returned even if the group was removed; looking a name up in it then fails."""
    path = catalog.group_paths[number]
    if path.is_status:
        return StatusFile(catalog, path.group)
    if path.topic is None:
        return GroupDirectory(catalog, path.group)
    directory = GroupTopicDirectory(catalog, path.group, path.topic)
    if path.partition is None:
        return directory
    try:
        return directory.child(str(path.partition))
    except (NoSuchName, UnknownGroup):
        raise Stale from None
