"""`segments/`: the files of the partition's directory, unchanged."""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from kafkafs.storage import (
    CorruptError,
    FileKind,
    FileState,
    LogDirError,
    SegmentFileName,
    SegmentGone,
    did_you_mean,
    parse_segment_file,
    printable,
    segment_file,
)

from ..catalog import Catalog
from ..node import (
    FILE_MODE,
    FIRST_READDIR_OFFSET,
    Attributes,
    DirEntryRun,
    File,
    Readdir,
    entries_at,
)
from ..partition import MountedPartition, Scope
from ..vfs.errnos import Busy, NoSuchName, NotPermitted, Stale
from ..vfs.handles import FileHandle, Handle
from ..vfs.inodes import NUMBER_MASK, Inode, InodeKind, segment_file_name, segment_kind
from ..vfs.timeouts import BRIEFLY, FOR_EVER, NOT_AT_ALL
from .member import Member, MemberDirectory, RemovedName

# The files whose removal removes their segment.
_REMOVABLE: Final = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX)


class SegmentsDirectory(MemberDirectory):
    member = Member.SEGMENTS

    def child(self, name: str) -> SegmentFile:
        self.visit()
        losses = self.losses()
        return SegmentFile(self.partition, name, status(self.partition, name), losses)

    def remove(self, name: str, pid: int) -> None:
        """Deletes a segment and all older ones; their names no longer exist when this returns."""
        partition, deletions = self.partition, self.writable().deletions
        try:
            self.child(name)
        except NoSuchName:
            if self.removed(name, pid) is None:
                raise
            deletions.removed_again(partition, pid, name)
            return
        if not deletions.is_emptied(partition):
            deletions.delete_below(partition, _end_of_segment(partition, name), name, pid)
        deletions.make_durable(partition)

    def removed(self, name: str, pid: int) -> RemovedName | None:
        return removed_file(self, name, parse_segment_file(name), pid)

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        return self.opendir()(start)

    def opendir(self) -> Readdir:
        """Returns a listing in order of name. A readdir offset is an index into the current names,
        so that none is skipped when files are created or deleted meanwhile."""
        entries = self.partition.log.directory.list()
        return partial(self._runs_of, sorted(entry.name for entry in entries if entry.is_file))

    def _runs_of(self, names: Sequence[str], start: int) -> Iterator[DirEntryRun]:
        """Yields those of the names that still exist."""
        self.visit()
        losses = self.losses()
        found = statuses(self.partition, names)
        nodes = (
            (at, name, SegmentFile(self.partition, name, found[name], losses))
            for at, name in enumerate(names, FIRST_READDIR_OFFSET)
            if name in found
        )
        yield from entries_at(nodes, start)


def status(partition: MountedPartition, name: str) -> os.stat_result:
    """Returns the stat of a file in a partition's directory. Raises NoSuchName if it does not exist
    or is not a regular file."""
    try:
        found = partition.log.directory.stat(name)
    except (SegmentGone, LogDirError):
        raise missing_file(partition, name) from None
    if not stat.S_ISREG(found.st_mode):
        raise NoSuchName(name, lambda: f"{name}: not a regular file, so it is not shown")
    return found


def missing_file(partition: MountedPartition, name: str) -> NoSuchName:
    """Returns the error for a file that a partition does not have."""

    def why() -> str:
        names = [entry.name for entry in partition.log.directory.list() if entry.is_file]
        return f"{partition.name} has no file {name}{did_you_mean(name, names)}"

    return NoSuchName(name, why)


def removed_file(
    directory: MemberDirectory, name: str, file: SegmentFileName | None, pid: int
) -> RemovedName | None:
    """Returns the stand-in for a file whose segment process `pid` recently removed, or None."""
    by_this = directory.removed_by(name, pid)
    if by_this is None or file is None or not by_this.has_segment(file.base_offset):
        return None
    return RemovedName(directory.partition)


def statuses(partition: MountedPartition, names: Sequence[str]) -> Mapping[str, os.stat_result]:
    """Returns the stat of those files in a partition's directory that still exist."""
    entries = partition.log.directory.list(frozenset(names).__contains__)
    return {e.name: e.stat for e in entries if e.is_file and e.stat is not None}


def _end_of_segment(partition: MountedPartition, name: str) -> int:
    """Returns the base offset of the segment after that of a file. Raises NotPermitted if it is not
    one of a segment's three files, Busy if it belongs to the active segment."""
    parsed = parse_segment_file(name)
    if parsed is None or parsed.kind not in _REMOVABLE or parsed.state is not FileState.LIVE:
        raise NotPermitted(f"{printable(name)} can only be removed with its segment or topic")
    bases = [segment.base_offset for segment in partition.view().segments]
    at = bisect_left(bases, parsed.base_offset)
    if bases[at : at + 1] != [parsed.base_offset]:
        raise NotPermitted(f"{printable(name)} belongs to no segment")
    if at + 1 == len(bases):
        raise Busy(f"{printable(name)} is in use: it is the active segment's")
    return bases[at + 1]


class SegmentFile(File):
    """One of the broker's files, as of the time of `status`. `losses`: those of the directory
    before that."""

    def __init__(
        self, partition: MountedPartition, name: str, status: os.stat_result, losses: int
    ) -> None:
        self.partition = partition
        self.name = name
        self.status = status
        self.inode = _inode(partition, name)
        self._losses = losses

    def revalidate(self) -> bool:
        return self._losses == self.partition.losses

    @property
    def name_bytes(self) -> bytes:
        return os.fsencode(self.name)

    def attributes(self) -> Attributes:
        size, mtime_ns = self.status.st_size, self.status.st_mtime_ns
        is_final = _is_final(self.partition, self.name)
        entry_timeout = self.partition.entry_timeout(FOR_EVER if is_final else BRIEFLY)
        attr_timeout = FOR_EVER if is_final else NOT_AT_ALL
        return Attributes(self.inode, FILE_MODE, size, mtime_ns, entry_timeout, attr_timeout)

    def open(self, *, waits: bool = True) -> Handle:
        try:
            file = self.partition.log.directory.open(self.name)
            return FileHandle(file, is_final=_is_final(self.partition, self.name))
        except (SegmentGone, LogDirError, CorruptError):
            raise Stale from None


def _is_final(partition: MountedPartition, name: str) -> bool:
    """Returns whether the file can no longer change: the `.log` of an inactive segment.

    A broker that starts after a crash may rebuild the indexes.
    """
    parsed = parse_segment_file(name)
    if parsed is None or parsed.kind is not FileKind.LOG or parsed.state is not FileState.LIVE:
        return False
    segments = partition.view().segments
    return len(segments) > 0 and parsed.base_offset < segments[-1].base_offset


def _inode(partition: MountedPartition, name: str) -> int:
    parsed = parse_segment_file(name)
    if parsed is not None:
        return partition.inode(segment_kind(parsed), Scope.FILES, parsed.base_offset)
    return partition.inode(InodeKind.OTHER_FILE, Scope.FILES, _digest(name))


def _digest(name: str) -> int:
    """Returns a number for a name that has none: 36 bits of its hash."""
    import hashlib  # loads OpenSSL

    digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
    return int.from_bytes(digest, "big") & NUMBER_MASK


def segment_file_by_inode(
    catalog: Catalog, partition: MountedPartition, inode: Inode, number: int
) -> SegmentFile:
    """Returns the file of an inode number; `number` is its full number. Raises Stale."""
    directory = SegmentsDirectory(catalog, partition)
    try:
        if inode.kind >= InodeKind.SEGMENT_FILE:
            parsed = segment_file_name(inode.kind, number)
            return directory.child(segment_file(parsed.base_offset, parsed.kind, parsed.state))
        for entry in partition.log.directory.list():
            if parse_segment_file(entry.name) is None and _digest(entry.name) == number:
                return directory.child(entry.name)
    except (NoSuchName, LogDirError, SegmentGone):
        raise Stale from None
    raise Stale
