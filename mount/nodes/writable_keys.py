"""`key/` on a writable mount: writing a file appends a record, removing one appends a tombstone."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kafkafs.storage import Int64s, printable

from ..catalog import Catalog
from ..node import AttributeChanges, Attributes, File
from ..partition import MountedPartition, Scope
from ..vfs.errnos import Exists, Invalid, NoSuchName, NotPermitted, Stale
from ..vfs.handles import BytesHandle, Handle
from ..vfs.inodes import Inode, InodeKind
from ..vfs.key_names import CutName, is_history, key_of
from ..vfs.timeouts import AT_ONCE, NOT_AT_ALL
from .key_history import KeyHistoryName
from .keys import KeyDirectory
from .record import ValueFile, locate, mtime_ns

if TYPE_CHECKING:  # a read-only mount does not load the code that writes
    from ..writes.changes import Changes
    from ..writes.key_writing import KeyContent, KeyHandle
    from ..writes.own_writes import Written

_MODE: Final = stat.S_IFREG | 0o644


class WritableKeyDirectory(KeyDirectory):
    """The directory `key`. Its files differ from those of `offset/`, whose bytes never change."""

    listed_kind = InodeKind.KEYED
    listed_mode = _MODE
    listed_attr_timeout = NOT_AT_ALL

    def __init__(self, catalog: Catalog, partition: MountedPartition, changes: Changes) -> None:
        super().__init__(catalog, partition)
        self._changes = changes

    def child(self, name: str) -> File:
        if is_history(os.fsencode(name)):
            return super().child(name)
        # Before the record: the content is closed after its record was appended.
        content = self._content(name)
        written = self._written(name)
        if written is not None and written.size >= 0:
            return WritableKeyFile(self._changes, self.partition, written.offset, written)
        try:
            offset = self.offset_of(name)
        except NoSuchName:
            if content is None:
                raise
            return NewKeyFile(self._changes, self.partition, content)
        return WritableKeyFile(self._changes, self.partition, offset)

    def is_cached(self, name: str) -> bool:
        written = None if is_history(os.fsencode(name)) else self._written(name)
        return written is not None and written.size >= 0

    def _written(self, name: str) -> Written | None:
        """Returns the record that a name leads to if it was written recently through the mount."""
        key = key_of(os.fsencode(name))
        if isinstance(key, CutName):
            return None
        writer = self._changes.writer(self.partition)
        return self._changes.keys.written.latest(self.partition, writer, key)

    def _content(self, name: str) -> KeyContent | None:
        """Returns the content of a key without a value that is open for writing, or None."""
        key = key_of(os.fsencode(name))
        if isinstance(key, CutName):
            return None
        return self._changes.keys.find(self.partition, key)

    def inodes(self, offsets: Int64s) -> list[int]:
        found = list(super().inodes(offsets))
        writer = self._changes.writer(self.partition)
        for offset, number in self._changes.keys.written.numbers(self.partition, writer).items():
            at = int(offsets.searchsorted(offset))
            if at < len(offsets) and offsets[at] == offset:
                found[at] = self.partition.inode(InodeKind.KEYED, Scope.RECORDS, number)
        return found

    def create(self, name: str, flags: int) -> tuple[File, KeyHandle]:
        """Opens a key's file. Raises Invalid if the name is not that of a key, or is cut."""
        try:
            key = key_of(os.fsencode(name))
        except NoSuchName:
            raise Invalid(f"not the name of a key: {name}") from None
        if isinstance(key, CutName):
            raise Invalid("a key too long for a file name cannot be written through one")
        return self._create(key, name, flags)

    def _create(self, key: bytes, name: str, flags: int) -> tuple[File, KeyHandle]:
        from ..writes.key_writing import KeyHandle

        keys = self._changes.keys
        if flags & os.O_EXCL and keys.latest_value(self.partition, key) is not None:
            raise Exists(f"the key has a value: {name}")
        handle = KeyHandle(keys, self.partition, key, flags)
        return self.child(name), handle

    def remove(self, name: str, pid: int) -> None:
        """Appends a tombstone."""
        file = self.child(name)
        if isinstance(file, KeyHistoryName):
            raise NotPermitted(f"{printable(name)} shows records, which cannot be changed")
        assert isinstance(file, WritableKeyFile | NewKeyFile)
        file.remove()


class WritableKeyFile(File):
    """`key/K`: the latest record of K; writing it appends the next one."""

    def __init__(
        self,
        changes: Changes,
        partition: MountedPartition,
        offset: int,
        written: Written | None = None,
    ) -> None:
        """`written`: the record, if it is known without reading it. Otherwise raises OffsetNotFound
        or CorruptError."""
        self._changes = changes
        self.partition = partition
        self._offset = offset
        self._written = written
        if written is not None:
            self._size, self._mtime_ns = written.size, mtime_ns(written.timestamp)
        else:
            self._size, self._mtime_ns = self._record.size, self._record.mtime_ns
        number = offset if written is None else written.number
        self.inode = partition.inode(InodeKind.KEYED, Scope.RECORDS, number)

    @cached_property
    def _record(self) -> ValueFile:
        return ValueFile(self.partition, self._offset, NOT_AT_ALL)

    @property
    def key(self) -> bytes:
        if self._written is not None:
            return self._written.key
        located = locate(self.partition, self._offset)
        return located.columns.key(located.row) or b""

    def attributes(self) -> Attributes:
        """While the file is being written, the size is that of the written data."""
        size, keys = self._size, self._changes.keys
        if keys.are_open(self.partition):
            content = keys.find(self.partition, self.key)
            size = size if content is None else content.size
        return Attributes(self.inode, _MODE, size, self._mtime_ns, NOT_AT_ALL, AT_ONCE)

    def xattrs(self) -> Mapping[str, bytes]:
        return self._record.xattrs()

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self._record.data(), direct_io=True)

    def open_may_block(self, flags: int) -> bool:
        return self._written is None or not flags & os.O_TRUNC

    def open_writing(self, flags: int) -> KeyHandle:
        from ..writes.key_writing import KeyHandle

        return KeyHandle(self._changes.keys, self.partition, self.key, flags)

    def truncate(self, size: int) -> None:
        truncate(self, size)

    def remove(self) -> None:
        self._changes.keys.remove(self.partition, self.key)

    def change_attributes(self, changes: AttributeChanges) -> None:
        """Does nothing: `cp -p` and `mv` set attributes on what they have written."""

    def sync(self) -> None:
        self._changes.sync(self.partition)


class NewKeyFile(File):
    """`key/K` of a key without a value, while it is open for writing."""

    def __init__(self, changes: Changes, partition: MountedPartition, content: KeyContent) -> None:
        self._changes = changes
        self._partition = partition
        self._content = content
        self.key = content.key
        self.inode = partition.inode(InodeKind.NEW_KEY, Scope.PARTITION, content.number)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, _MODE, self._content.size, 0, NOT_AT_ALL, AT_ONCE)

    def open(self, *, waits: bool = True) -> Handle:
        """Opens an empty file: there is no record yet."""
        return BytesHandle(b"", direct_io=True)

    def open_writing(self, flags: int) -> KeyHandle:
        from ..writes.key_writing import KeyHandle

        return KeyHandle(self._changes.keys, self._partition, self.key, flags)

    def truncate(self, size: int) -> None:
        truncate(self, size)

    def remove(self) -> None:
        self._changes.keys.remove_content(self._partition, self._content)

    def change_attributes(self, changes: AttributeChanges) -> None:
        """Does nothing, as for a key that has a value."""


def truncate(file: WritableKeyFile | NewKeyFile, size: int) -> None:
    """Implements truncate(2) on a file that is not open."""
    handle = file.open_writing(os.O_WRONLY)
    try:
        handle.truncate(size)
        handle.flush()
    finally:
        handle.close()


def written_file(
    changes: Changes | None, partition: MountedPartition, number: int
) -> WritableKeyFile | None:
    """Returns the file of `key/` with an inode's number if it was written recently; else None, and
    it has to be read."""
    if changes is None:
        return None
    written = changes.keys.written.numbered(partition, changes.writer(partition), number)
    if written is None:
        return None
    return WritableKeyFile(changes, partition, written.offset, written)


def key_file_by_inode(
    changes: Changes | None, partition: MountedPartition, inode: Inode, number: int
) -> File:
    """Returns the file of `key/` with an inode's number. Raises Stale if it no longer exists."""
    if changes is None:
        raise Stale
    if inode.kind == InodeKind.KEYED:
        return WritableKeyFile(changes, partition, number)
    return NewKeyFile(changes, partition, changes.keys.by_number(partition, number))
