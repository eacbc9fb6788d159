"""`offset/N`, `offset/N.key` and `offset/N.json`: one record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from kafkafs.storage.errors import CorruptError, OffsetNotFound, SegmentGone
from kafkafs.storage.format.columns import VALUE_SIZE, Columns
from kafkafs.storage.format.layout import NO_TIMESTAMP

from .. import render
from ..handles import BytesHandle, Handle
from ..inodes import Kind
from ..lifetimes import FOR_EVER
from ..partition import Partition, Scope
from .node import FILE_MODE, Attributes, File

# A file no larger than this is kept in its node, so that what was looked up is opened at once.
_KEPT_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Located:
    """A record in its decoded batch. `losses`: those of the partition when it was found."""

    columns: Columns
    row: int
    losses: int


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
    return Located(columns, row, seen.losses)


class Content(NamedTuple):
    """What is in a record's file: `data`, None where it is too large to be kept, its `size` in
    bytes, and the record's `timestamp` in ms. `losses`: as in `Located`."""

    data: bytes | None
    size: int
    timestamp: int
    losses: int


def mtime_ns(timestamp: int) -> int:
    """A record's timestamp (ms) as the time of a file; that of a record without one is 1970."""
    return 0 if timestamp == NO_TIMESTAMP else timestamp * 1_000_000


class RecordFile(File):
    """What the three files of a record have in common. Bytes and attributes never change.

    `name_lifetime`: seconds for which the name may be believed; a name that is not the one listed
    is believed briefly, because nobody could take it back.
    """

    kind: Kind
    suffix = ""
    scope = Scope.RECORDS

    def __init__(self, partition: Partition, offset: int, name_lifetime: float = FOR_EVER) -> None:
        """OffsetNotFound, or CorruptError where the record's batch is damaged."""
        self.partition = partition
        self.offset = offset
        self._data, self.size, timestamp, self._losses = self._content()
        self.mtime_ns = mtime_ns(timestamp)
        # numbers may be others since a look that finding the record took
        self.inode = partition.inode(self.kind, self.scope, offset)
        self.name_lifetime = name_lifetime

    @property
    def name(self) -> str:
        """The name that is believed for as long as the kernel likes."""
        return f"{self.offset}{self.suffix}"

    @property
    def is_at_hand(self) -> bool:
        """Whether the file's bytes are kept in the node."""
        return self._data is not None

    def data(self) -> bytes:
        """The file's bytes. OffsetNotFound when they were not kept and the record has gone."""
        if self._data is not None:
            return self._data
        return self._data_of(locate(self.partition, self.offset))

    def _content(self) -> Content:
        located = locate(self.partition, self.offset)
        size = self._size_of(located)
        data = self._data_of(located) if size <= _KEPT_BYTES else None
        timestamp = int(located.columns.timestamps[located.row])
        return Content(data, size, timestamp, located.losses)

    @abstractmethod
    def _data_of(self, located: Located) -> bytes: ...

    def _size_of(self, located: Located) -> int:
        return len(self._data_of(located))

    def attributes(self) -> Attributes:
        return Attributes(
            self.inode, FILE_MODE, self.size, self.mtime_ns, self.name_lifetime, FOR_EVER
        )

    def still_holds(self) -> bool:
        seen = self.partition.last_seen
        return seen is not None and seen.losses == self._losses

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self.data())

    def xattrs(self) -> Mapping[str, bytes]:
        return self._xattrs

    @cached_property
    def _xattrs(self) -> Mapping[str, bytes]:
        """Made once: they are asked for one by one."""
        located = locate(self.partition, self.offset)
        found = render.record_xattrs(
            located.columns, located.row, self.partition.topic, self.partition.number
        )
        return {render.XATTR_PREFIX + name: value for name, value in found.items()}


class ValueFile(RecordFile):
    """The one that nearly all look-ups are for: found without decoding a batch, where it can be."""

    kind = Kind.VALUE

    def _content(self) -> Content:
        seen = self.partition.seen_with(self.offset)
        try:
            found = seen.view.value_at(self.offset, self.partition.isolation)
        except SegmentGone:
            found = None
        if found is None:
            return super()._content()
        timestamp, value = found
        data = value or b""
        kept = data if len(data) <= _KEPT_BYTES else None
        return Content(kept, len(data), timestamp, seen.losses)

    def _data_of(self, located: Located) -> bytes:
        return located.columns.value(located.row) or b""

    def _size_of(self, located: Located) -> int:
        return max(int(located.columns.spans[located.row, VALUE_SIZE]), 0)


class KeyFile(RecordFile):
    """There is none for a null key."""

    kind = Kind.KEY
    suffix = ".key"

    def _data_of(self, located: Located) -> bytes:
        key = located.columns.key(located.row)
        if key is None:
            why = f"the record at offset {self.offset} of {self.partition.name} has a null key"
            raise OffsetNotFound(self.offset, why)
        return key


class JsonFile(RecordFile):
    """Tells the place of the record's batch, which changes when the cleaner rewrites it."""

    kind = Kind.JSON
    suffix = ".json"
    scope = Scope.FILES

    def _data_of(self, located: Located) -> bytes:
        return render.record_json(
            located.columns, located.row, self.partition.topic, self.partition.number
        )


#: A record's files by the kind of their inode numbers.
RECORD_FILES: dict[int, type[RecordFile]] = {
    file.kind: file for file in (ValueFile, KeyFile, JsonFile)
}
