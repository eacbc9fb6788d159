"""`offset/N`, `offset/N.key` and `offset/N.json`: one record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from kafkafs.storage.errors import CorruptError, OffsetNotFound, SegmentGone
from kafkafs.storage.format.columns import VALUE_SIZE, Columns
from kafkafs.storage.format.layout import NO_TIMESTAMP

from .. import render
from ..handles import BytesHandle, Handle
from ..inodes import Kind
from ..partition import Partition, Scope
from .node import FILE_MODE, FOR_EVER, Attributes, File


@dataclass(frozen=True, slots=True)
class Located:
    """A record in its decoded batch, and what the partition was like when it was found."""

    columns: Columns
    row: int
    begin: object


def locate(partition: Partition, offset: int) -> Located:
    """The record served at `offset`. OffsetNotFound, or CorruptError where its batch is damaged."""
    seen = partition.seen_with(offset)
    try:
        try:
            columns, row = seen.view.locate(offset, partition.isolation)
        except SegmentGone:  # deleted or replaced since the view was made: look once more
            seen = partition.seen()
            columns, row = seen.view.locate(offset, partition.isolation)
    except CorruptError as error:
        partition.note_damage(error)
        raise
    return Located(columns, row, seen.begin)


def mtime_ns(timestamp: int) -> int:
    """A record's timestamp (ms) as the time of a file; that of a record without one is 1970."""
    return 0 if timestamp == NO_TIMESTAMP else timestamp * 1_000_000


class RecordFile(File):
    """What the three files of a record have in common. `data` and attributes never change.

    `name_lifetime`: seconds for which the name may be believed; a name that is not the one listed
    is believed briefly, because nobody could take it back.
    """

    kind: Kind
    suffix = ""
    scope = Scope.RECORDS

    def __init__(
        self, partition: Partition, offset: int, located: Located, name_lifetime: float = FOR_EVER
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.located = located
        self._name_lifetime = name_lifetime
        self.inode = partition.inode(self.kind, self.scope, offset)

    @property
    def name(self) -> str:
        """The name that is believed for as long as the kernel likes."""
        return f"{self.offset}{self.suffix}"

    @abstractmethod
    def data(self) -> bytes:
        """The file's bytes."""

    def size(self) -> int:
        return len(self.data())

    def attributes(self) -> Attributes:
        timestamp = int(self.located.columns.timestamps[self.located.row])
        return Attributes(
            self.inode, FILE_MODE, self.size(), mtime_ns(timestamp), self._name_lifetime, FOR_EVER
        )

    def still_holds(self) -> bool:
        seen = self.partition.last_seen
        return seen is not None and self.located.begin == seen.begin

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self.data())

    def xattrs(self) -> Mapping[str, bytes]:
        return self._xattrs

    @cached_property
    def _xattrs(self) -> Mapping[str, bytes]:
        """Made once: they are asked for one by one."""
        found = render.record_xattrs(
            self.located.columns, self.located.row, self.partition.topic, self.partition.number
        )
        return {render.XATTR_PREFIX + name: value for name, value in found.items()}

    @property
    def nbytes(self) -> int:
        """Memory that the node keeps in use."""
        return self.located.columns.nbytes


class ValueFile(RecordFile):
    kind = Kind.VALUE

    def data(self) -> bytes:
        return self.located.columns.value(self.located.row) or b""

    def size(self) -> int:
        return max(int(self.located.columns.spans[self.located.row, VALUE_SIZE]), 0)


class KeyFile(RecordFile):
    """There is none for a null key."""

    kind = Kind.KEY
    suffix = ".key"

    def __init__(
        self, partition: Partition, offset: int, located: Located, name_lifetime: float = FOR_EVER
    ) -> None:
        super().__init__(partition, offset, located, name_lifetime)
        key = located.columns.key(located.row)
        if key is None:
            raise OffsetNotFound(offset, "its key is null")
        self._key = key

    def data(self) -> bytes:
        return self._key


class JsonFile(RecordFile):
    """Tells the place of the record's batch, which changes when the cleaner rewrites it."""

    kind = Kind.JSON
    suffix = ".json"
    scope = Scope.FILES

    def __init__(
        self, partition: Partition, offset: int, located: Located, name_lifetime: float = FOR_EVER
    ) -> None:
        super().__init__(partition, offset, located, name_lifetime)
        self._line = render.record_json(
            located.columns, located.row, partition.topic, partition.number
        )

    def data(self) -> bytes:
        return self._line


#: A record's files by the kind of their inode numbers.
RECORD_FILES: dict[int, type[RecordFile]] = {
    file.kind: file for file in (ValueFile, KeyFile, JsonFile)
}
