"""`range/A-B/`: the records of offsets A to B as files of exact size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn

from kafkafs.storage import MAX_OFFSET, Columns, CorruptError, Damage, StorageError, View, fresh

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
from ..streams.copies import CopyWriter
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
from ..streams.streams import StreamPiece
from ..vfs.errnos import NoSuchName, NoSuchRange, Stale
from ..vfs.handles import Handle
from ..vfs.pending import Pending
from ..vfs.timeouts import BRIEFLY, FOR_EVER, NOT_AT_ALL
from .member import FixedDirectory, Member, MemberDirectory, member_inode
from .stream import ARROW_END, FIELDS, LinesSource, PartitionSource, arrow_schema, format_of

if TYPE_CHECKING:  # pyarrow is large
    import pyarrow as pa

    from kafkafs.storage import Decoders, TableLimits

#: In listing order.
NAMES: Final = {
    "values": RangeMember.VALUES,
    "keys": RangeMember.KEYS,
    "records.jsonl": RangeMember.RECORDS_JSONL,
    "records.arrow": RangeMember.RECORDS_ARROW,
    "records.parquet": RangeMember.RECORDS_PARQUET,
    "decoded.jsonl": RangeMember.DECODED_JSONL,
}
_NAME: Final = re.compile(r"([0-9]+)-([0-9]+)")
# Number of entries made at a time.
_MOST_ENTRIES: Final = 1024
_PARQUET_CODEC: Final = "zstd"


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
        if NAMES[name] is RangeMember.DECODED_JSONL:
            return self._decoded(self.catalog.decoders())
        return RangeFile(self._ranges, self.range, NAMES[name])

    def child_may_block(self, name: str) -> bool:
        return NAMES.get(name) is RangeMember.DECODED_JSONL  # it needs the registry

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        """Lists the files without reading records: unknown sizes are left out."""
        for at, name in enumerate(NAMES, FIRST_READDIR_OFFSET):
            if at >= start:
                yield self._listed(name).listed(name, at + 1)

    def _listed(self, name: str) -> RangeFile:
        """Returns the same as `child`, even if the registry cannot be read."""
        try:
            return self.child(name)
        except (StorageError, OSError):
            return self._decoded(self.catalog.last_decoders)

    def _decoded(self, decoders: Decoders | None) -> RangeFile:
        number = NO_SCHEMAS if decoders is None else decoders.number
        range_ = replace(self.range, schemas=number)
        return RangeFile(self._ranges, range_, RangeMember.DECODED_JSONL, decoders)


class RangeFile(File):
    """A file whose bytes and attributes never change; its name vanishes with the records."""

    def __init__(
        self,
        ranges: Ranges,
        range_: Range,
        member: RangeMember,
        decoders: Decoders | None = None,
    ) -> None:
        """`decoders`: those of DECODED_JSONL, None if it is only to be listed."""
        self.partition = range_.partition
        self.inode = ranges.inode(range_, member)
        self._ranges = ranges
        self._key: Key = (range_, member)
        if member is RangeMember.DECODED_JSONL:
            self._content: Streamed | WrittenFile = _decoded_content(decoders)
        else:
            self._content = _CONTENTS[member]
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

    def listed(self, name: str, readdir_offset: int) -> DirEntryRun:
        """Returns the file's directory entry, with its size if that is known."""
        found = self._ranges.at_hand(self._key)
        size, mtime_ns, entry_timeout, attr_timeout = UNKNOWN_SIZE, 0, NOT_AT_ALL, NOT_AT_ALL
        if found is not None:
            size, mtime_ns = found.size, found.mtime_ns
            entry_timeout, attr_timeout = self.partition.entry_timeout(BRIEFLY), FOR_EVER
        entries = DirEntries.of([(name.encode(), self.inode, size, mtime_ns, readdir_offset)])
        return DirEntryRun(entries, FILE_MODE, entry_timeout, attr_timeout, STREAM_BLOCK)

    def open(self, *, waits: bool = True) -> Handle:
        self.attributes()
        return self._ranges.open(self._key, self._content)


def range_node(catalog: Catalog, inode: int) -> RangeDirectory | RangeFile:
    """Returns the node of an inode number of InodeKind.RANGE. Raises Stale if it is not served."""
    range_, member = catalog.ranges.by_inode(inode)
    range_.view()
    if member is RangeMember.DIRECTORY:
        return RangeDirectory(catalog, range_)
    if member is RangeMember.DECODED_JSONL:
        decoders = catalog.last_decoders
        if decoders is None or decoders.number != range_.schemas:
            raise Stale
        return RangeFile(catalog.ranges, range_, member, decoders)
    return RangeFile(catalog.ranges, range_, member)


# -- the contents of the files ------------------------------------------------------------------


class _Whole:
    """A range's records if all can be read: damage raises CorruptError."""

    def __init__(self, range_: Range, view: View) -> None:
        self.range = range_
        self.partition = range_.partition
        self._view = view

    def columns(self, start: int) -> Iterator[Columns]:
        """Yields the records from offset `start` on. Raises CorruptError."""
        begin, end = max(start, self.range.first), self.range.last + 1
        parts = self._view.scan(begin, end, self.partition.isolation, ahead=True)
        with closing(parts):  # an error must keep neither it nor its threads alive
            for part in parts:
                if isinstance(part, Damage):
                    self._fail(part.error)
                else:
                    yield part

    def lines(self, source: PartitionSource, start: int) -> Iterator[StreamPiece]:
        """Yields what `source` makes of the records. Raises CorruptError."""
        begin, end = max(start, self.range.first), self.range.last + 1
        for piece in source.pieces_between(begin, end):
            if isinstance(piece, CorruptError):
                self._fail(piece)
            else:
                yield piece

    def _fail(self, error: CorruptError) -> NoReturn:
        self.partition.note_damage(error)
        raise fresh(error)

    def tables(self, start: int, most: TableLimits) -> Iterator[tuple[int, pa.Table]]:
        """Yields Arrow tables of the records, each with the offset of its first record. Raises
        CorruptError."""
        from kafkafs.storage import record_tables  # with pyarrow

        return record_tables(self.columns(start), self.partition.topic, self.partition.number, most)


class TextSource:
    """Lines of a range's records, in the format of the stream `like`. `decoders`: those of
    DECODED_JSONL."""

    def __init__(
        self, range_: Range, view: View, like: Member, decoders: Decoders | None = None
    ) -> None:
        self._whole = _Whole(range_, view)
        made = format_of(like, range_.partition.topic, decoders)
        self._source = PartitionSource(range_.partition, view, made)
        if like in FIELDS:
            self._source = LinesSource(range_.partition, view, made, FIELDS[like])

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        return self._whole.lines(self._source, restart)


class ArrowSource:
    """A range's records as an Arrow stream."""

    def __init__(self, range_: Range, view: View) -> None:
        self._whole = _Whole(range_, view)

    def pieces(self, restart: int) -> Iterator[StreamPiece | CorruptError]:
        from kafkafs.storage import RECORD_BATCH_LIMITS

        if restart < 0:
            yield StreamPiece(arrow_schema())
        for offset, table in self._whole.tables(restart, RECORD_BATCH_LIMITS):
            for batch in table.to_batches():
                yield StreamPiece(memoryview(batch.serialize()), offset)
        yield StreamPiece(ARROW_END)


def write_parquet(range_: Range, view: View, output: CopyWriter) -> None:
    """Writes a range's records as a Parquet file."""
    import pyarrow.parquet as pq  # large

    from kafkafs.storage import RECORD_SCHEMA, ROW_GROUP_LIMITS

    with pq.ParquetWriter(output, RECORD_SCHEMA, compression=_PARQUET_CODEC) as writer:
        for _, table in _Whole(range_, view).tables(-1, ROW_GROUP_LIMITS):
            writer.write_table(table, row_group_size=ROW_GROUP_LIMITS.rows)


_CONTENTS: Final[dict[RangeMember, Streamed | WrittenFile]] = {
    RangeMember.VALUES: Streamed(partial(TextSource, like=Member.VALUES)),
    RangeMember.KEYS: Streamed(partial(TextSource, like=Member.KEYS)),
    RangeMember.RECORDS_JSONL: Streamed(partial(TextSource, like=Member.RECORDS_JSONL)),
    RangeMember.RECORDS_ARROW: Streamed(ArrowSource),
    RangeMember.RECORDS_PARQUET: WrittenFile(write_parquet),
}


def _decoded_content(decoders: Decoders | None) -> Streamed:
    return Streamed(partial(TextSource, like=Member.DECODED_JSONL, decoders=decoders))
