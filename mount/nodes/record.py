"""`offset/N`, `offset/N.key`, `offset/N.json` and `offset/N.decoded.json`: the files of one
record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final, NamedTuple

from kafkafs.storage import (
    NO_TIMESTAMP,
    VALUE_SIZE,
    Columns,
    CorruptError,
    OffsetNotFound,
    SegmentGone,
)

from ..catalog import Catalog
from ..node import FILE_MODE, Attributes, File, stream_attributes
from ..partition import MountedPartition, Scope
from ..vfs import render
from ..vfs.handles import BytesHandle, Handle
from ..vfs.inodes import InodeKind
from ..vfs.timeouts import FOR_EVER, NOT_AT_ALL
from .member import Member, member_inode
from .small_files import DescribedDocument

# A file of up to this size is kept in its node, so that an open() after a lookup() is instant.
_KEPT_BYTES: Final = 2048


@dataclass(frozen=True, slots=True)
class Located:
    """A record in its decoded batch. `losses`: those of the partition when it was located."""

    columns: Columns
    row: int
    losses: int


def locate(partition: MountedPartition, offset: int) -> Located:
    """Returns the record served at `offset`. Raises OffsetNotFound, or CorruptError if its batch is
    damaged."""
    seen = partition.seen_with(offset)
    try:
        try:
            columns, row = seen.view.locate(offset, partition.isolation)
        except SegmentGone:  # deleted or replaced since the view was made: retry once
            seen = partition.seen()
            columns, row = seen.view.locate(offset, partition.isolation)
    except CorruptError as error:
        partition.note_damage(error)
        raise
    return Located(columns, row, seen.losses)


def _xattrs_of(partition: MountedPartition, offset: int) -> Mapping[str, bytes]:
    """Returns the extended attributes of a record's files. Raises as `locate`."""
    located = locate(partition, offset)
    found = render.record_xattrs(located.columns, located.row, partition.topic, partition.number)
    return {render.XATTR_PREFIX + name: value for name, value in found.items()}


class RecordContent(NamedTuple):
    """The content of a record's file: `data`, None if it is too large to be kept, its `size` in
    bytes, and the record's `timestamp` in ms. `losses`: as in `Located`."""

    data: bytes | None
    size: int
    timestamp: int
    losses: int


def mtime_ns(timestamp: int) -> int:
    """Returns a record's timestamp (ms) as an mtime in ns; 0, 1970, for a record without one."""
    return 0 if timestamp == NO_TIMESTAMP else timestamp * 1_000_000


class RecordFile(File):
    """Base of the three files of a record. Bytes and attributes never change.

    `entry_timeout`: how many seconds the name may be cached. A name other than the listed one is
    cached only briefly, because it could not be invalidated.
    """

    kind: InodeKind
    suffix = ""
    scope = Scope.RECORDS

    def __init__(
        self, partition: MountedPartition, offset: int, entry_timeout: float = FOR_EVER
    ) -> None:
        """Raises OffsetNotFound, or CorruptError if the record's batch is damaged."""
        self.partition = partition
        self.offset = offset
        self._data, self.size, timestamp, self._losses = self._content()
        self.mtime_ns = mtime_ns(timestamp)
        # computed last: finding the record may have seen a newer view with other numbers
        self.inode = partition.inode(self.kind, self.scope, offset)
        self.entry_timeout = entry_timeout

    @property
    def name(self) -> str:
        """The name that the kernel may cache as long as it likes."""
        return f"{self.offset}{self.suffix}"

    @property
    def is_at_hand(self) -> bool:
        """Whether the file's bytes are kept in the node."""
        return self._data is not None

    def data(self) -> bytes:
        """Returns the file's bytes. Raises OffsetNotFound if they were not kept and the record no
        longer exists."""
        if self._data is not None:
            return self._data
        return self._data_of(locate(self.partition, self.offset))

    def _content(self) -> RecordContent:
        located = locate(self.partition, self.offset)
        size = self._size_of(located)
        data = self._data_of(located) if size <= _KEPT_BYTES else None
        timestamp = int(located.columns.timestamps[located.row])
        return RecordContent(data, size, timestamp, located.losses)

    @abstractmethod
    def _data_of(self, located: Located) -> bytes: ...

    def _size_of(self, located: Located) -> int:
        return len(self._data_of(located))

    def attributes(self) -> Attributes:
        return Attributes(
            self.inode, FILE_MODE, self.size, self.mtime_ns, self.entry_timeout, FOR_EVER
        )

    def revalidate(self) -> bool:
        seen = self.partition.last_seen
        return seen is not None and seen.losses == self._losses

    def open(self, *, waits: bool = True) -> Handle:
        return BytesHandle(self.data())

    def xattrs(self) -> Mapping[str, bytes]:
        return self._xattrs

    @cached_property
    def _xattrs(self) -> Mapping[str, bytes]:
        """The extended attributes; cached, as they are requested one by one."""
        return _xattrs_of(self.partition, self.offset)


class ValueFile(RecordFile):
    """The file of nearly all lookups: found without decoding a batch, if possible."""

    kind = InodeKind.VALUE

    def _content(self) -> RecordContent:
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
        return RecordContent(kept, len(data), timestamp, seen.losses)

    def _data_of(self, located: Located) -> bytes:
        return located.columns.value(located.row) or b""

    def _size_of(self, located: Located) -> int:
        return max(int(located.columns.spans[located.row, VALUE_SIZE]), 0)


class KeyFile(RecordFile):
    """A record's key. A null key has no such file."""

    kind = InodeKind.KEY
    suffix = ".key"

    def _data_of(self, located: Located) -> bytes:
        key = located.columns.key(located.row)
        if key is None:
            why = f"the record at offset {self.offset} of {self.partition.name} has a null key"
            raise OffsetNotFound(self.offset, why)
        return key


class JsonFile(RecordFile):
    """A record as JSON. It names the position of the record's batch, which changes when the cleaner
    rewrites the batch."""

    kind = InodeKind.JSON
    suffix = ".json"
    scope = Scope.FILES

    def _data_of(self, located: Located) -> bytes:
        return render.record_json(
            located.columns, located.row, self.partition.topic, self.partition.number
        )


class DecodedRecordName(File):
    """The name of a record's key and value as JSON, decoded with the schemas that they name. It
    leads to a file that depends on the schemas of now."""

    is_fixed = False

    def __init__(self, catalog: Catalog, partition: MountedPartition, offset: int) -> None:
        """Raises OffsetNotFound, or CorruptError if the record's batch is damaged."""
        self.inode = member_inode(partition, Member.OFFSET)
        self.offset = offset
        self._catalog = catalog
        self._partition = partition
        self._located = located = locate(partition, offset)
        self._mtime_ns = mtime_ns(int(located.columns.timestamps[located.row]))

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> DescribedDocument:
        located, topic, number = self._located, self._partition.topic, self._partition.number
        decoder = self._catalog.decoders().for_topic(topic)
        data = render.decoded_json(located.columns, located.row, topic, number, decoder)
        # The document must not keep the record's batch alive.
        xattrs = partial(_xattrs_of, self._partition, self.offset)

        def make(inode: int) -> DescribedDocument:
            return DescribedDocument(inode, self._mtime_ns, data, xattrs)

        found = self._catalog.contents.file((self._partition, self.offset, data), make)
        assert isinstance(found, DescribedDocument)
        return found

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()

    def xattrs(self) -> Mapping[str, bytes]:
        return _xattrs_of(self._partition, self.offset)


#: A record's files by the kind of their inode numbers.
RECORD_FILES: dict[int, type[RecordFile]] = {
    file.kind: file for file in (ValueFile, KeyFile, JsonFile)
}
