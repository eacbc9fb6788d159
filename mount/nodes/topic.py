"""`<topic>/`: the topic's partitions by number, and its configs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkafs.storage import (
    MAX_INT32,
    METADATA_TOPIC,
    UnknownPartition,
    UnknownTopic,
    printable,
    ranges,
)

from ..catalog import Catalog
from ..node import (
    FIRST_READDIR_OFFSET,
    Attributes,
    DirectoryNode,
    DirEntryRun,
    File,
    Node,
    directory_attributes,
    entries_at,
    entries_of,
)
from ..partition import MountedPartition
from ..vfs import render
from ..vfs.errnos import Exists, Invalid, NoSuchName, NotEmpty, NotPermitted
from ..vfs.inodes import ROOT, InodeKind, pack
from ..vfs.write_handle import WriteHandle
from .partition import PartitionDirectory
from .small_files import ComputedFile, ConfigFileNode, ScratchNode

if TYPE_CHECKING:  # a read-only mount does not load the code that writes
    from ..writes.changes import Changes
    from ..writes.config_file import ConfigFile
    from ..writes.scratch import ScratchHandle

CONFIG_FILE = "config.properties"
DIRECTORY_NUMBER, CONFIG_FILE_NUMBER = range(2)

# Readdir offsets in a topic that can be changed, such that a listing in progress can continue after
# additions and removals: partitions by number, then scratch files, then configs.
_SCRATCH_AT: Final = 1 << 32
_CONFIG_FILE_AT: Final = 1 << 61
_RENAME_NOREPLACE: Final = 1
# The number of digits of the greatest partition number.
_MAX_DIGITS: Final = len(str(MAX_INT32))


class TopicDirectory(DirectoryNode):
    parent_inode = ROOT

    def __init__(self, catalog: Catalog, name: str) -> None:
        self._catalog = catalog
        self.name = name
        self._place = catalog.topic_place(name)
        self.inode = pack(InodeKind.TOPIC, self._place, DIRECTORY_NUMBER)

    @property
    def inode_place(self) -> int:
        """The place in the topic's inode number."""
        return self._place

    def attributes(self) -> Attributes:
        return directory_attributes(self.inode, self._catalog.started_ns)

    def child(self, name: str) -> Node:
        changes = self._changes
        if name == CONFIG_FILE:
            if changes is not None and not self._config_file(changes).is_there:
                raise self._missing(name)
            return self.config_node()
        if name.isascii() and name.isdigit():
            if name != "0" and (name[0] == "0" or len(name) > _MAX_DIGITS):
                raise self._missing(name)
            return self.partition(int(name))
        if changes is None:
            raise self._missing(name)
        return ScratchNode(changes.scratch, changes.scratch.find(self._place, name))

    def _missing(self, name: str) -> NoSuchName:
        def why() -> str:
            partitions = ranges(self._catalog.topic(self.name))
            return (
                f"{self.name} has no {name}; it has the partitions {partitions} and {CONFIG_FILE}"
            )

        return NoSuchName(name, why)

    def child_may_block(self, name: str) -> bool:
        return self._changes is not None and name == CONFIG_FILE

    def partition(self, number: int) -> PartitionDirectory:
        """Returns the directory of a partition. Raises NoSuchName."""
        try:
            partition = self._partition(number)
        except (UnknownTopic, UnknownPartition) as error:
            raise NoSuchName(str(number), error.__str__) from None
        return PartitionDirectory(self._catalog, partition, self.inode)

    def config_node(self) -> File:
        inode = pack(InodeKind.TOPIC, self._place, CONFIG_FILE_NUMBER)
        if self._changes is not None:
            return ConfigFileNode(inode, self._config_file(self._changes))
        engine = self._catalog.engine
        return ComputedFile(
            self._catalog.contents,
            inode,
            self._catalog.started_ns,
            lambda: render.properties(engine.topic_config(self.name).changed),
        )

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        changes = self._changes
        if changes is None:
            return entries_of(self._children(), start)
        return entries_at(self._changeable(changes), start)

    def _children(self) -> Iterator[tuple[str, Node]]:
        yield CONFIG_FILE, self.config_node()
        for node in self._partitions():
            yield str(node.partition.number), node

    def _changeable(self, changes: Changes) -> Iterator[tuple[int, str, Node]]:
        """Yields the names with their readdir offsets. The configs are last for `rm -r`."""
        for node in self._partitions():
            number = node.partition.number
            yield FIRST_READDIR_OFFSET + number, str(number), node
        for name, file in changes.scratch.names(self._place):
            yield _SCRATCH_AT + file.number, name, ScratchNode(changes.scratch, file)
        if self._config_file(changes).is_there:
            yield _CONFIG_FILE_AT, CONFIG_FILE, self.config_node()

    def _partitions(self) -> Iterator[PartitionDirectory]:
        for number in self._catalog.topic(self.name):
            try:
                yield self.partition(number)
            except NoSuchName:  # deleted since the topic was listed
                continue

    # -- changes --------------------------------------------------------------------------------

    @property
    def _changes(self) -> Changes | None:
        """The operations of a writable mount; None also for the topic that only the quorum may
        change."""
        return self._catalog.changes if self.name != METADATA_TOPIC else None

    def _changeable_here(self) -> Changes:
        """Returns the operations. Raises NotPermitted if the topic cannot be changed."""
        from ..writes.topic_changes import refuse_quorum

        refuse_quorum(self.name)
        if self._catalog.changes is None:
            raise NotPermitted("nothing can be changed here")
        return self._catalog.changes

    def _config_file(self, changes: Changes) -> ConfigFile:
        return changes.config_file(self._place, self.name, self._catalog.started_ns)

    def remove_topic(self) -> None:
        """Deletes the topic. Raises NoSuchName, NotEmpty or NotPermitted."""
        changes = self._changeable_here()
        beside = changes.scratch.names(self._place)
        if beside:
            raise NotEmpty(f"{self.name} has the file {printable(beside[0][0])}")
        is_emptied = changes.deletions.is_emptied
        changes.topics.delete(self.name, lambda number: is_emptied(self._partition(number)))
        changes.forget_topic(self._place)

    def _partition(self, number: int) -> MountedPartition:
        return self._catalog.partition(self.name, number)

    def make_directory(self, name: str) -> Node:
        self._changeable_here().topics.add_partition(self.name, name)
        return self.partition(int(name))

    def remove_directory(self, name: str) -> None:
        """Accepts an empty partition, but only the topic as a whole is removed."""
        deletions = self._changeable_here().deletions
        directory = self.child(name)
        if not isinstance(directory, PartitionDirectory):
            raise NoSuchName(name)
        if not deletions.is_emptied(directory.partition):
            raise NotEmpty(f"{self.name}/{name} has records")
        deletions.bury(directory.inode)

    def create(self, name: str, flags: int) -> tuple[File, WriteHandle]:
        changes = self._changeable_here()
        if name == CONFIG_FILE:
            file = self._config_file(changes)
            if file.is_there and flags & os.O_EXCL:
                raise Exists(f"{self.name}/{CONFIG_FILE} exists")
            is_new = not file.is_there
            handle = self.config_node().open_writing(flags | os.O_TRUNC if is_new else flags)
            return self.config_node(), handle
        return self._create_scratch(changes, name, flags)

    def _create_scratch(
        self, changes: Changes, name: str, flags: int
    ) -> tuple[File, ScratchHandle]:
        from ..writes.scratch import ScratchHandle

        scratch = changes.scratch
        try:
            file = scratch.create(self._place, name)
        except Exists:
            if flags & os.O_EXCL:
                raise
            file = scratch.find(self._place, name)
        handle = ScratchHandle(scratch, file, appends=bool(flags & os.O_APPEND))
        if flags & os.O_TRUNC:
            handle.truncate(0)
        return ScratchNode(scratch, file), handle

    def remove(self, name: str, pid: int) -> None:
        changes = self._changeable_here()
        if name == CONFIG_FILE:
            self._config_file(changes).put_aside()
        else:
            changes.scratch.remove(self._place, name)

    def rename(self, name: str, target: DirectoryNode, new_name: str, flags: int) -> None:
        """Renames a file within the topic, or into another topic."""
        from ..writes.scratch import refuse_number

        changes = self._changeable_here()
        if not isinstance(target, TopicDirectory):
            raise NotPermitted(f"{printable(name)} cannot be moved there")
        target._changeable_here()
        if flags & ~_RENAME_NOREPLACE:
            raise Invalid("exchanging files is not supported here")
        self._refuse_directory(name)
        refuse_number(new_name)
        if flags and target.has(new_name):
            raise Exists(f"{target.name}/{printable(new_name)} exists")
        if name == CONFIG_FILE:
            self._move_config_file(changes, target, new_name)
        elif new_name == CONFIG_FILE:
            self._become_config_file(changes, name, target)
        else:
            changes.scratch.rename(self._place, name, target._place, new_name)

    def has(self, name: str) -> bool:
        """Returns whether the name exists."""
        try:
            self.child(name)
        except NoSuchName:
            return False
        return True

    def _refuse_directory(self, name: str) -> None:
        if isinstance(self.child(name), PartitionDirectory):
            raise NotPermitted(f"{self.name}/{name} is a partition and cannot be moved")

    def _move_config_file(self, changes: Changes, target: TopicDirectory, new_name: str) -> None:
        """Moves the text; the topic keeps its configs."""
        file = self._config_file(changes)
        data = file.content()
        if new_name == CONFIG_FILE:
            target._config_file(changes).replace(data, file.attributes)
        else:
            changes.scratch.put(target._place, new_name, data, file.attributes)
        file.put_aside()

    def _become_config_file(self, changes: Changes, name: str, target: TopicDirectory) -> None:
        found = changes.scratch.find(self._place, name)
        data = changes.scratch.read(found, 0, len(found.buffer))
        target._config_file(changes).replace(data, found.attributes)
        changes.scratch.remove(self._place, name)
