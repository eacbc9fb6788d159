"""`offset/`: every record served, by its offset, and links to the first and last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from kafkafs.storage import (
    MAX_OFFSET,
    VALUE_SIZE,
    Columns,
    Damage,
    Int64s,
    OffsetNotFound,
    SegmentGone,
    printable,
)

from ..node import (
    FILE_MODE,
    FIRST_READDIR_OFFSET,
    LINK_MODE,
    Attributes,
    DirEntries,
    DirEntry,
    DirEntryRun,
    Link,
    Node,
    Readdir,
    link_attributes,
    readdir_until,
)
from ..partition import MountedPartition, Scope
from ..vfs.errnos import NoSuchName, NotPermitted
from ..vfs.inodes import NUMBER_BITS, NUMBER_MASK, InodeKind, pack
from ..vfs.timeouts import BRIEFLY, FOR_EVER, NOT_AT_ALL
from .member import Member, MemberDirectory, RemovedName
from .record import DecodedRecordName, JsonFile, KeyFile, RecordFile, ValueFile, mtime_ns
from .times import first_since

_SUFFIXES: Final[dict[str, type[RecordFile | DecodedRecordName]]] = {
    "": ValueFile,
    "json": JsonFile,
    "decoded.json": DecodedRecordName,
    "key": KeyFile,
}
# After the links: the readdir offset after record N is N + 1 + _OFFSETS_FROM, so that a listing can
# resume at any record. (The six largest possible offsets share the last readdir offset.)
_OFFSETS_FROM: Final = FIRST_READDIR_OFFSET + 2
# Number of entries made at a time, which bounds the memory of a listing.
_MOST_ENTRIES: Final = 8192
# Number of offsets searched at a time for names that begin with given digits.
_MATCHED: Final = 512
# How often a listing is resumed when segments are deleted under it.
_ATTEMPTS: Final = 8
# Largest timestamp in ms that is still an int64 in ns.
_MAX_MS: Final = (2**63 - 1) // 1_000_000


_FORMS: Final = (
    "names here are N, N.json, N.decoded.json and N.key for the record at offset N, first and last"
)


def parse_name(name: str) -> tuple[int, type[RecordFile | DecodedRecordName]]:
    """Returns the offset and kind of file that a name stands for. Raises NoSuchName."""
    digits, _, suffix = name.partition(".")
    kind = _SUFFIXES.get(suffix)
    if kind is None or not (digits.isascii() and digits.isdigit()) or name[-1] == ".":
        raise NoSuchName(name, lambda: f"{name!r} is not an offset; {_FORMS}")
    return int(digits), kind


class OffsetDirectory(MemberDirectory):
    """`links`: names that link to records. `entry_timeout`: for listed names. `listed_kind`,
    `listed_mode`, `listed_attr_timeout`: common to all listed files."""

    member = Member.OFFSET
    links: Mapping[str, Member] = {"first": Member.FIRST_RECORD, "last": Member.LAST_RECORD}
    entry_timeout = FOR_EVER
    listed_kind = InodeKind.VALUE
    listed_mode = FILE_MODE
    listed_attr_timeout = FOR_EVER

    def child(self, name: str) -> Node:
        self.visit()
        if name in self.links:
            link = self.link(name)
            link.target()  # raises if there is no such record
            return link
        offset, kind = parse_name(name)
        listed = name[0] != "0" or not name[1:2].isdigit()
        entry_timeout = self.partition.entry_timeout(FOR_EVER if listed else BRIEFLY)
        node = self.record_node(kind, offset, entry_timeout)
        self.partition.last_found = name
        return node

    def record_node(
        self, kind: type[RecordFile | DecodedRecordName], offset: int, entry_timeout: float
    ) -> Node:
        """Returns the file of this kind of a record. Raises OffsetNotFound, or CorruptError if its
        batch is damaged."""
        if issubclass(kind, DecodedRecordName):
            return kind(self.catalog, self.partition, offset)
        return kind(self.partition, offset, entry_timeout)

    def remove(self, name: str, pid: int) -> None:
        """Deletes the record and all records before it."""
        partition, deletions = self.partition, self.writable().deletions
        try:
            offset = self._removable(name)
        except (NoSuchName, OffsetNotFound):
            if self.removed(name, pid) is None:
                raise
            deletions.removed_again(partition, pid, name)
            return
        deletions.delete_below(partition, offset + 1, name, pid)

    def remove_may_block(self, name: str) -> bool:
        """Returns False if removal is quick. The kernel looks up each name before removing it."""
        if self.changes is None:
            return True
        if self._was_just_found(name):
            return self.changes.deletions.may_block(self.partition)
        return not self._was_deleted(name)

    def _was_deleted(self, name: str) -> bool:
        """Returns whether the name is that of a record below the log start offset."""
        seen = self.partition.last_seen
        is_offset = self.member is Member.OFFSET and name.isdigit()
        return is_offset and seen is not None and int(name) < seen.view.start_offset

    def _was_just_found(self, name: str) -> bool:
        is_offset = self.member is Member.OFFSET  # not the subclasses for `key` and `compacted`
        return is_offset and name == self.partition.last_found and name.isdigit()

    def _removable(self, name: str) -> int:
        """Returns the offset of the record that a name leads to. Raises NoSuchName, OffsetNotFound
        or NotPermitted."""
        if self._was_just_found(name):
            self.partition.last_found = ""
            return int(name)
        if name in self.links:
            return int(self.link(name).target())
        node = self.child(name)
        if not isinstance(node, ValueFile):
            raise NotPermitted(f"{printable(name)} can only be removed together with its record")
        return node.offset

    def removed(self, name: str, pid: int) -> RemovedName | None:
        by_this = self.removed_by(name, pid)
        if by_this is None:
            return None
        if name not in self.links:
            offset, kind = parse_name(name)
            if kind is not ValueFile or not by_this.has_record(offset):
                return None
        return RemovedName(self.partition)

    def link(self, name: str) -> Link:
        """Returns the node of one of `links`."""
        return RecordLink(self.partition, self.links[name])

    def child_may_block(self, name: str) -> bool:
        return not name.isdigit()

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        offset = max(start - _OFFSETS_FROM, 0)
        has_links = start >= _OFFSETS_FROM
        for columns in self._columns(offset):
            if not has_links:
                yield self._links(start)
                has_links = True
            yield from self._records(columns)

    def opendir(self) -> Readdir:
        end = self.partition.bound(self.partition.view()) + _OFFSETS_FROM
        return partial(readdir_until, end, self.readdir)

    def between(self, since: int | None, until: int | None) -> Iterator[DirEntryRun]:
        """Yields the records from the first at or after `since` up to the first at or after
        `until`, times in ms since 1970. Raises CorruptError if the first one may be damaged."""
        low = 0 if since is None else first_since(self.partition, since)
        high = None if until is None else first_since(self.partition, until)
        if low is None:
            return
        start = low + _OFFSETS_FROM
        if high is None:
            yield from self.readdir(start)
        elif low < high:
            yield from readdir_until(high + _OFFSETS_FROM, self.readdir, start)

    def matching(self, start: str) -> Iterator[str]:
        """Scans only offsets that begin with `start`, a few at a time."""
        yield from (name for name in self.links if name.startswith(start))
        view = self.partition.view()
        for low, high in _beginning(start, view.start_offset, self.partition.bound(view)):
            for part in view.scan(low, high, self.partition.isolation):
                if isinstance(part, Columns):
                    yield from map(str, part.offsets.tolist())

    def scan(self, offset: int) -> Iterator[Columns | Damage]:
        """Yields what is listed now, from `offset` on."""
        return self.partition.view().scan(offset, isolation=self.partition.isolation)

    def _columns(self, offset: int) -> Iterator[Columns]:
        """Yields the records from `offset` on, skipping damage and segments deleted meanwhile."""
        partition = self.partition
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                for part in self.scan(offset):
                    if isinstance(part, Damage):
                        partition.note_damage(part.error)
                        continue
                    offset = int(part.offsets[-1]) + 1
                    self.visit()
                    yield part
                return
            except SegmentGone:
                if attempt == _ATTEMPTS:
                    raise

    def _links(self, start: int) -> DirEntryRun:
        entries: list[DirEntry] = [
            (
                name.encode(),
                self.partition.inode(InodeKind.PARTITION, Scope.PARTITION, member),
                0,
                0,
                at,
            )
            for at, (name, member) in enumerate(self.links.items(), FIRST_READDIR_OFFSET + 1)
            if at > start
        ]
        return DirEntryRun(DirEntries.of(entries), LINK_MODE, NOT_AT_ALL, NOT_AT_ALL)

    def _records(self, columns: Columns) -> Iterator[DirEntryRun]:
        for low in range(0, len(columns), _MOST_ENTRIES):
            high = min(low + _MOST_ENTRIES, len(columns))
            offsets = columns.offsets[low:high]
            sizes = np.maximum(columns.spans[low:high, VALUE_SIZE], 0)
            entries = DirEntries(
                self.names(columns, low, high),
                self.inodes(offsets),
                sizes.tolist(),
                _mtimes_ns(columns.timestamps[low:high]),
                _readdir_offsets(offsets),
            )
            entry_timeout = self.partition.entry_timeout(self.entry_timeout)
            yield DirEntryRun(entries, self.listed_mode, entry_timeout, self.listed_attr_timeout)

    def names(self, columns: Columns, low: int, high: int) -> list[bytes]:
        """Returns the names of rows [low, high)."""
        return list(map(b"%d".__mod__, columns.offsets[low:high].tolist()))

    def inodes(self, offsets: Int64s) -> Sequence[int]:
        """Returns the inode numbers of listed records."""
        window = int(offsets[0]) >> NUMBER_BITS
        if int(offsets[-1]) >> NUMBER_BITS != window:
            inode = self.partition.inode
            return [inode(self.listed_kind, Scope.RECORDS, offset) for offset in offsets.tolist()]
        base = pack(self.listed_kind, self.partition.place(Scope.RECORDS, window), 0)
        return _numbers((offsets & NUMBER_MASK) | base)


def _beginning(digits: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields, in pieces, the offsets in [`start`, `end`) whose decimal form begins with
    `digits`."""
    if not digits:
        yield from _pieces(start, end)
    if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and len(digits) > 1):
        return
    low, high = int(digits), int(digits) + 1
    while low < end:
        yield from _pieces(max(low, start), min(high, end))
        if not low:
            return
        low, high = low * 10, high * 10


def _pieces(low: int, high: int) -> Iterator[tuple[int, int]]:
    for piece in range(low, high, _MATCHED):
        yield piece, min(piece + _MATCHED, high)


def _mtimes_ns(timestamps: Int64s) -> list[int]:
    """Returns `mtime_ns` of many timestamps."""
    if timestamps.min() < 0 or timestamps.max() > _MAX_MS:
        return [mtime_ns(timestamp) for timestamp in timestamps.tolist()]
    nanoseconds: list[int] = (timestamps * 1_000_000).tolist()
    return nanoseconds


def _readdir_offsets(offsets: Int64s) -> Sequence[int]:
    return _numbers(np.minimum(offsets, MAX_OFFSET - _OFFSETS_FROM - 1) + (_OFFSETS_FROM + 1))


def _numbers(values: Int64s) -> Sequence[int]:
    """Returns the same values, as a range if they are consecutive: its numbers are created where
    they are used, instead of in another thread on another processor."""
    if (np.diff(values) == 1).all():
        return range(int(values[0]), int(values[-1]) + 1)
    numbers: list[int] = values.tolist()
    return numbers


class RecordLink(Link):
    """`first` or `last`. The target is determined at each use, because records come and go."""

    def __init__(self, partition: MountedPartition, member: Member) -> None:
        self.partition = partition
        self.member = member
        self.inode = partition.inode(InodeKind.PARTITION, Scope.PARTITION, member)

    def attributes(self) -> Attributes:
        return link_attributes(self.inode, 0)

    def target(self) -> str:
        is_last = self.member in (Member.LAST_RECORD, Member.COMPACTED_LAST)
        offset = self.end(is_last=is_last)
        if offset is None:
            raise nothing_served(self.partition, "last" if is_last else "first")
        return str(offset)

    def end(self, *, is_last: bool) -> int | None:
        """Returns the offset of the first or the last record, None if there is none."""
        return self.partition.end(is_last=is_last)


def nothing_served(partition: MountedPartition, name: str) -> NoSuchName:
    """Returns the error if `name`, first or last, has no target."""

    def why() -> str:
        return f"{partition.name} has no {name} record: none is served ({partition.view().extent})"

    return NoSuchName(name, why)
