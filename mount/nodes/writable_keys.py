"""`key/` on a writable mount: a file that is written becomes a record, and a removed one a
tombstone."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from ..catalog import Catalog
from ..changes import Changes
from ..errnos import Exists, Invalid, NoSuchName, Stale
from ..handles import BytesHandle, Handle
from ..inodes import Inode, Kind
from ..key_names import CutName, key_of
from ..lifetimes import NOT_AT_ALL
from ..partition import Partition, Scope
from .keys import KeyDirectory
from .node import AttributeChanges, Attributes, File
from .record import ValueFile, locate

if TYPE_CHECKING:  # no mount that only reads loads what writes
    from ..key_writing import KeyContent, KeyHandle

_MODE: Final = stat.S_IFREG | 0o644


class WritableKeyDirectory(KeyDirectory):
    """Its files are not those of `offset/`, as these have the same bytes for ever."""

    listed_kind = Kind.KEYED
    listed_mode = _MODE
    listed_lifetime = NOT_AT_ALL

    def __init__(self, catalog: Catalog, partition: Partition, changes: Changes) -> None:
        super().__init__(catalog, partition)
        self._changes = changes

    def child(self, name: str) -> File:
        try:
            offset = self.offset_of(name)
        except NoSuchName:
            content = self._content(name)
            if content is None:
                raise
            return NewKeyFile(self._changes, self.partition, content)
        return WritableKeyFile(self.partition, offset, NOT_AT_ALL)

    def _content(self, name: str) -> KeyContent | None:
        """That of a key without a value which is open for writing."""
        key = key_of(os.fsencode(name))
        if isinstance(key, CutName):
            return None
        return self._changes.keys.find(self.partition, key)

    def create(self, name: str, flags: int) -> tuple[File, KeyHandle]:
        """Invalid for a name that no key has, or one that tells only how a key begins."""
        try:
            key = key_of(os.fsencode(name))
        except NoSuchName:
            raise Invalid(f"no name of a key: {name}") from None
        if isinstance(key, CutName):
            raise Invalid("the name is that of a key too long to be named")
        return self._create(key, name, flags)

    def _create(self, key: bytes, name: str, flags: int) -> tuple[File, KeyHandle]:
        from ..key_writing import KeyHandle, latest_value

        if flags & os.O_EXCL and latest_value(self._changes, self.partition, key) is not None:
            raise Exists(f"the key has a value: {name}")
        handle = KeyHandle(self._changes, self.partition, key, flags)
        return self.child(name), handle

    def remove(self, name: str, pid: int) -> None:
        """Appends a tombstone."""
        file = self.child(name)
        assert isinstance(file, WritableKeyFile | NewKeyFile)
        is_there = isinstance(file, WritableKeyFile)
        writer = self._changes.writer(self.partition)
        self._changes.keys.remove(self.partition, writer, file.key, is_there=is_there)


class WritableKeyFile(ValueFile):
    """`key/K`: the latest record of K, and what its next one will be."""

    kind = Kind.KEYED

    @property
    def key(self) -> bytes:
        located = locate(self.partition, self.offset)
        return located.columns.key(located.row) or b""

    @property
    def _changes(self) -> Changes:
        assert self.partition.changes is not None
        return self.partition.changes

    @property
    def is_at_hand(self) -> bool:
        """Never: the kernel keeps nothing of it."""
        return False

    def attributes(self) -> Attributes:
        """While it is being written, its size is that of what was written."""
        size, keys = self.size, self._changes.keys
        if keys.are_open(self.partition):
            content = keys.find(self.partition, self.key)
            size = size if content is None else content.size
        return Attributes(self.inode, _MODE, size, self.mtime_ns, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self.data(), direct_io=True)

    def open_writing(self, flags: int) -> KeyHandle:
        from ..key_writing import KeyHandle

        return KeyHandle(self._changes, self.partition, self.key, flags)

    def truncate(self, size: int) -> None:
        truncate(self, size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        """`cp -p` and `mv` give what they have written the attributes of what they read."""

    def sync(self) -> None:
        self._changes.sync(self.partition)


class NewKeyFile(File):
    """`key/K` of a key without a value, as long as it is open for writing."""

    def __init__(self, changes: Changes, partition: Partition, content: KeyContent) -> None:
        self._changes = changes
        self._partition = partition
        self._content = content
        self.key = content.key
        self.inode = partition.inode(Kind.NEW_KEY, Scope.PARTITION, content.number)

    def attributes(self) -> Attributes:
        return Attributes(self.inode, _MODE, self._content.size, 0, NOT_AT_ALL, NOT_AT_ALL)

    def open(self, *, waits: bool = True) -> Handle:
        """There is no record yet."""
        return BytesHandle(b"", direct_io=True)

    def open_writing(self, flags: int) -> KeyHandle:
        from ..key_writing import KeyHandle

        return KeyHandle(self._changes, self._partition, self.key, flags)

    def truncate(self, size: int) -> None:
        truncate(self, size)

    def change_attributes(self, changes: AttributeChanges) -> None:
        """As for a key that has a value."""


def truncate(file: WritableKeyFile | NewKeyFile, size: int) -> None:
    """truncate(2), which has no file open."""
    handle = file.open_writing(os.O_WRONLY)
    try:
        handle.truncate(size)
        handle.flush()
    finally:
        handle.close()


def key_file_by_inode(partition: Partition, inode: Inode, number: int) -> File:
    """The file of `key/` that an inode's number stands for. Stale when it has gone."""
    if partition.changes is None:
        raise Stale
    if inode.kind == Kind.KEYED:
        return WritableKeyFile(partition, number, NOT_AT_ALL)
    content = partition.changes.keys.by_number(partition, number)
    return NewKeyFile(partition.changes, partition, content)
