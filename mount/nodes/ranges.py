"""`range/A-B/`: the records of offsets A to B as files of exact size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkafs.storage import MAX_OFFSET, StorageError, View

from ..catalog import Catalog
from ..node import (
    DIRECTORY_MODE,
    FILE_MODE,
    FIRST_READDIR_OFFSET,
    LISTING_BLOCK,
    STREAM_BLOCK,
    UNKNOWN_SIZE,
    Attributes,
    DirEntries,
    DirEntry,
    DirEntryRun,
    File,
    Readdir,
    directory_attributes,
    readdir_until,
)
from ..partition import MountedPartition, Scope
from ..streams.ranges import (
    NO_SCHEMAS,
    Key,
    MeasuredRangeFile,
    Range,
    RangeMember,
    Ranges,
    Streamed,
    WrittenFile,
)
from ..vfs.errnos import NoSuchName, NoSuchRange, Stale
from ..vfs.handles import Handle
from ..vfs.pending import Pending
from ..vfs.timeouts import BRIEFLY, FOR_EVER, NOT_AT_ALL
from .member import FixedDirectory, Member, MemberDirectory, member_inode
from .range_contents import DECODED, TYPED, content_of

if TYPE_CHECKING:
    from kafkafs.storage import Decoders

#: In listing order.
NAMES: Final = {
    "values": RangeMember.VALUES,
    "keys": RangeMember.KEYS,
    "records.jsonl": RangeMember.RECORDS_JSONL,
    "records.arrow": RangeMember.RECORDS_ARROW,
    "records.parquet": RangeMember.RECORDS_PARQUET,
    "decoded.jsonl": RangeMember.DECODED_JSONL,
    "decoded.arrow": RangeMember.DECODED_ARROW,
    "decoded.parquet": RangeMember.DECODED_PARQUET,
}
_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)")
# Number of entries made at a time.
_MOST_ENTRIES: Final = 1024


class RangesDirectory(FixedDirectory, MemberDirectory):
    """Lists a range for each segment; any other range can be opened by name."""

    member = Member.RANGE

    def __init__(self, catalog: Catalog, partition: MountedPartition) -> None:
        super().__init__(catalog, partition)
        self._ranges = catalog.ranges

    def child(self, name: str) -> RangeDirectory:
        return RangeDirectory(self.catalog, named_range(self.partition, name))

    def opendir(self) -> Readdir:
        """Returns a listing that ends with what is served now."""
        end = _readdir_offset_after(self.partition.bound(self.partition.view()))
        return partial(readdir_until, end, self.readdir)

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        """Yields the ranges; the readdir offsets are those of the last records + 1, after those of
        `.` and `..`."""
        seen = self.partition.seen()
        version = seen.versions.of(Scope.FILES)
        entries: list[DirEntry] = []
        for first, last in segment_ranges(self.partition, seen.view):
            if _readdir_offset_after(last) <= start:
                continue
            range_ = Range(self.partition, version, first, last)
            inode = self._ranges.inode(range_, RangeMember.DIRECTORY)
            after = _readdir_offset_after(last)
            entries.append((range_.name.encode(), inode, 0, range_.mtime_ns(seen.view), after))
            if len(entries) == _MOST_ENTRIES:
                yield self._run(entries)
                entries = []
        if entries:
            yield self._run(entries)

    def _run(self, entries: list[DirEntry]) -> DirEntryRun:
        entry_timeout = self.partition.entry_timeout(BRIEFLY)
        return DirEntryRun(
            DirEntries.of(entries), DIRECTORY_MODE, entry_timeout, BRIEFLY, LISTING_BLOCK
        )


def _readdir_offset_after(offset: int) -> int:
    return min(offset + 1 + FIRST_READDIR_OFFSET, MAX_OFFSET)


def segment_ranges(partition: MountedPartition, view: View) -> Iterator[tuple[int, int]]:
    """Yields the first and last served offset of each segment."""
    end = partition.bound(view)
    for segment in view.segments.from_offset(view.start_offset):
        first = max(segment.base_offset, view.start_offset)
        last = end if segment.next_base < 0 else min(segment.next_base, end)
        if first < last:
            yield first, last - 1


def named_range(partition: MountedPartition, name: str) -> Range:
    """Returns the range that a name stands for. Raises NoSuchRange with the reason."""
    parsed = _NAME.fullmatch(name)
    seen = partition.seen()
    start, end = seen.view.start_offset, partition.bound(seen.view)
    if parsed is None:
        bounds = f"offsets from {start} to {end - 1}" if end > start else "offsets; none is served"
        raise NoSuchRange(name, f"range/A-B needs two {bounds}")
    first, last = map(int, parsed.groups())
    if last < first:
        raise NoSuchRange(name, "the range ends before it begins")
    if first < start:
        raise NoSuchRange(name, f"the log begins at offset {start}")
    if last >= end:
        why = f"the last offset served is {end - 1}" if end > start else "no offset is served"
        raise NoSuchRange(name, why)
    return Range(partition, seen.versions.of(Scope.FILES), first, last)


class RangeDirectory(FixedDirectory):
    def __init__(self, catalog: Catalog, range_: Range) -> None:
        super().__init__(catalog, range_.partition)
        self.range = range_
        self._ranges = catalog.ranges
        self.inode = catalog.ranges.inode(range_, RangeMember.DIRECTORY)
        self.parent_inode = member_inode(range_.partition, Member.RANGE)

    def attributes(self) -> Attributes:
        generation = self.catalog.generation(self.inode)
        mtime_ns = self.range.mtime_ns(self.range.view())
        return directory_attributes(self.inode, mtime_ns, generation)

    def child(self, name: str) -> RangeFile:
        if name not in NAMES:
            raise NoSuchName(name)
        member = NAMES[name]
        decoders = self.catalog.decoders() if member in DECODED else None
        if not self._is_there(member, decoders):
            raise NoSuchName(name, partial(_no_schema, self.partition.topic))
        return range_file(self.catalog, self._key(member, decoders), decoders)

    def child_may_block(self, name: str) -> bool:
        return NAMES.get(name) in DECODED  # it needs the registry

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        """Lists the files without reading the range's records: unknown sizes are left out. If the
        registry cannot be read, all files are listed."""
        try:
            decoders: Decoders | None = self.catalog.decoders()
        except (StorageError, OSError):
            decoders = self.catalog.last_decoders
        for at, (name, member) in enumerate(NAMES.items(), FIRST_READDIR_OFFSET):
            if at >= start and self._is_listed(member, decoders):
                used = decoders if member in DECODED else None
                yield self._entry(name, self._key(member, used), at + 1)

    def _is_listed(self, member: RangeMember, decoders: Decoders | None) -> bool:
        try:
            return decoders is None or self._is_there(member, decoders)
        except (StorageError, OSError):
            return True

    def _is_there(self, member: RangeMember, decoders: Decoders | None) -> bool:
        """Returns whether there is a file. Raises SchemaError if the topic's schema cannot be
        used."""
        if member not in TYPED or decoders is None:
            return True
        return self.catalog.decoded_columns(decoders, self.partition.topic) is not None

    def _key(self, member: RangeMember, decoders: Decoders | None) -> Key:
        number = NO_SCHEMAS if decoders is None else decoders.number
        return replace(self.range, schemas=number), member

    def _entry(self, name: str, key: Key, readdir_offset: int) -> DirEntryRun:
        """Returns a file's directory entry, with its size if that is known."""
        found = self._ranges.at_hand(key)
        size, mtime_ns, entry_timeout, attr_timeout = UNKNOWN_SIZE, 0, NOT_AT_ALL, NOT_AT_ALL
        if found is not None:
            size, mtime_ns = found.size, found.mtime_ns
            entry_timeout, attr_timeout = self.partition.entry_timeout(BRIEFLY), FOR_EVER
        inode = self._ranges.inode(*key)
        entries = DirEntries.of([(name.encode(), inode, size, mtime_ns, readdir_offset)])
        return DirEntryRun(entries, FILE_MODE, entry_timeout, attr_timeout, STREAM_BLOCK)


def _no_schema(topic: str) -> str:
    return f"the values and keys of topic {topic} have no schema; decoded.jsonl needs none"


class RangeFile(File):
    """A file whose bytes and attributes never change; its name vanishes with the records."""

    def __init__(self, ranges: Ranges, key: Key, content: Streamed | WrittenFile) -> None:
        range_, _ = key
        self.partition = range_.partition
        self.inode = ranges.inode(*key)
        self._ranges = ranges
        self._key = key
        self._content = content
        self._measured: MeasuredRangeFile | None = None

    def pending(self) -> Pending | None:
        if self._measured is not None:
            return None
        return self._ranges.pending(self._key, self._content)

    def attributes(self) -> Attributes:
        """Raises the errors of reading the range."""
        found = self._measured
        if found is None:
            self._measured = found = self._ranges.measured(self._key, self._content)
        entry_timeout = self.partition.entry_timeout(BRIEFLY)
        return Attributes(
            self.inode, FILE_MODE, found.size, found.mtime_ns, entry_timeout, FOR_EVER, STREAM_BLOCK
        )

    def open(self, *, waits: bool = True) -> Handle:
        self.attributes()
        return self._ranges.open(self._key, self._content)


def range_file(catalog: Catalog, key: Key, decoders: Decoders | None) -> RangeFile:
    """`decoders`: those of a file of DECODED, whose number is in `key`. Raises SchemaError if the
    topic's schema cannot be used."""
    range_, member = key
    columns = None
    if member in TYPED and decoders is not None:
        columns = catalog.decoded_columns(decoders, range_.partition.topic)
    return RangeFile(catalog.ranges, key, content_of(member, decoders, columns))


def range_node(catalog: Catalog, inode: int) -> RangeDirectory | RangeFile:
    """Returns the node of an inode number of InodeKind.RANGE. Raises Stale if it is not served."""
    range_, member = catalog.ranges.by_inode(inode)
    range_.view()
    if member is RangeMember.DIRECTORY:
        return RangeDirectory(catalog, range_)
    decoders = catalog.last_decoders if member in DECODED else None
    if member in DECODED and (decoders is None or decoders.number != range_.schemas):
        raise Stale
    return range_file(catalog, (range_, member), decoders)
