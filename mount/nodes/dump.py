"""`dump/`: segment files as kafka-dump-log prints them, including records."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from functools import partial
from typing import Final

from kafkafs.storage import (
    MAX_OFFSET,
    FileState,
    SegmentFileName,
    parse_metadata_snapshot,
    parse_segment_file,
    segment_file,
)

from ..catalog import Catalog
from ..node import (
    FILE_MODE,
    FIRST_READDIR_OFFSET,
    STREAM_BLOCK,
    Attributes,
    DirEntryRun,
    File,
    MeasuredFile,
    Readdir,
    entries_at,
    stream_attributes,
)
from ..partition import MountedPartition, Scope
from ..streams.reported import MARGIN, UNSAMPLED_RATIO, Reported
from ..streams.streams import StreamHandle, StreamPiece
from ..vfs.errnos import NoSuchName, Stale
from ..vfs.handles import BytesHandle, Handle
from ..vfs.inodes import Inode, InodeKind, segment_file_name, segment_kind
from ..vfs.timeouts import BRIEFLY, NOT_AT_ALL
from .member import Member, MemberDirectory, RemovedName
from .segments import removed_file, status, statuses
from .stream import latest_file

_SUFFIX: Final = ".txt"
# Up to this size in bytes a dump is made when its name is looked up.
_SHORT: Final = 1 << 20
# The position of a batch in the file.
_POSITION: Final = re.compile(rb" position: (\d+) ")


class DumpDirectory(MemberDirectory):
    """A directory with a name for each file that can be dumped: those of segments, and snapshots of
    the cluster's metadata."""

    member = Member.DUMP

    def child(self, name: str) -> DumpFile:
        self.visit()
        file = name.removesuffix(_SUFFIX)
        if _parsed(name) is None and not _is_snapshot(name):
            why = f"{name!r} is not the name of a segment file followed by {_SUFFIX}"
            raise NoSuchName(name, lambda: why)
        return DumpFile(self.catalog, self.partition, file, status(self.partition, file))

    def remove(self, name: str, pid: int) -> None:
        """Checks the name but removes nothing; this lets `rm -r` finish."""
        deletions = self.writable().deletions
        try:
            self.child(name)
        except NoSuchName:
            if self.removed(name, pid) is None:
                raise
            deletions.removed_again(self.partition, pid, name)
            return
        deletions.ignore_removal(self.partition, name)

    def removed(self, name: str, pid: int) -> RemovedName | None:
        return removed_file(self, name, _parsed(name), pid)

    def readdir(self, start: int) -> Iterator[DirEntryRun]:
        return self.opendir()(start)

    def opendir(self) -> Readdir:
        """Returns a listing, in order of name, of the current names that still exist when their
        turn comes."""
        found, _ = self.partition.log.directory.files()
        names = (each for each in found if _parsed(each + _SUFFIX) or _is_snapshot(each + _SUFFIX))
        return partial(self._runs_of, sorted(names))

    def _runs_of(self, names: list[str], start: int) -> Iterator[DirEntryRun]:
        self.visit()
        found = statuses(self.partition, names)
        nodes = (
            (at, name + _SUFFIX, DumpFile(self.catalog, self.partition, name, found[name]))
            for at, name in enumerate(names, FIRST_READDIR_OFFSET)
            if name in found
        )
        yield from entries_at(nodes, start)


def _parsed(name: str) -> SegmentFileName | None:
    """Returns the segment file that a name stands for; None if there is none."""
    file = name.removesuffix(_SUFFIX)
    parsed = parse_segment_file(file) if file != name else None
    return parsed if parsed is not None and parsed.state is FileState.LIVE else None


def _is_snapshot(name: str) -> bool:
    """Returns whether a name stands for a snapshot of the cluster's metadata."""
    return (
        name.endswith(_SUFFIX) and parse_metadata_snapshot(name.removesuffix(_SUFFIX)) is not None
    )


class DumpFile(File):
    """The dump of the file `name` of the partition's directory, as it is listed. Its name leads to
    a `DumpText` that depends on the current content of that file."""

    is_fixed = False

    def __init__(
        self, catalog: Catalog, partition: MountedPartition, name: str, status: os.stat_result
    ) -> None:
        self.partition = partition
        self.name = name
        self.inode = _inode(partition, name)
        self._catalog = catalog
        self._status = status

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._status.st_mtime_ns, entry_timeout=NOT_AT_ALL)

    def fixed(self) -> DumpText:
        status = self._status
        key = (self.inode, status.st_ino, status.st_size, status.st_mtime_ns)

        def make(inode: int, reported: Reported) -> DumpText:
            return DumpText(self.partition, self.name, status, reported, inode)

        name = f"{self.partition.name}/dump/{self.name}{_SUFFIX}"
        found = latest_file(self._catalog, key, Reported(name), make)
        assert isinstance(found, DumpText)
        found.begin()
        return found

    def open(self, *, waits: bool = True) -> Handle:
        return self.fixed().open()


def _inode(partition: MountedPartition, name: str) -> int:
    """Returns the inode number of a file's dump. A snapshot is identified by its end offset and,
    above the bits of that, its epoch."""
    parsed = parse_segment_file(name)
    if parsed is not None:
        return partition.inode(segment_kind(parsed), Scope.DUMPS, parsed.base_offset)
    number = _snapshot_number(name)
    assert number is not None
    return partition.inode(InodeKind.OTHER_FILE, Scope.DUMPS, number)


def _snapshot_number(file: str) -> int | None:
    """Returns the number of a snapshot in inode numbers; None if the file is not a snapshot."""
    parsed = parse_metadata_snapshot(file)
    if parsed is None:
        return None
    return parsed.epoch << MAX_OFFSET.bit_length() | parsed.end_offset


class DumpText(MeasuredFile):
    """The dump of a file with a certain content. A short one is made when its name is looked up. A
    long one has a size bound, estimated from its beginning."""

    stream_size = None

    def __init__(
        self,
        partition: MountedPartition,
        name: str,
        status: os.stat_result,
        reported: Reported,
        inode: int,
    ) -> None:
        self.partition = partition
        self.name = name
        self.inode = inode
        self.memory = 1 << 10
        self._reported = reported
        self._status = status
        self._beginning = threading.Lock()  # held while the beginning is made
        self._text: bytes | None = None
        self._estimate: int | None = None

    @property
    def reported(self) -> Reported:
        return self._reported

    @property
    def exact(self) -> int | None:
        return None if self._text is None else len(self._text)

    def begin(self) -> None:
        """Makes a short dump, or the beginning of a long one. Takes up to a moment."""
        with self._beginning:
            if self._text is not None or self._estimate is not None:
                return
            made = bytearray()
            for piece in _Source(self.partition, self.name).pieces(-1):
                made += piece.data
                if len(made) > _SHORT:
                    self._estimate = int(self._status.st_size * _growth(made) * MARGIN)
                    return
            self._text = bytes(made)

    def attributes(self) -> Attributes:
        exact, mtime_ns = self.exact, self._status.st_mtime_ns
        size, attr_timeout = exact, BRIEFLY
        if size is None:
            bound = self._reported.bound_from(self._estimate or 0)
            size, attr_timeout = self._reported.report(bound), NOT_AT_ALL
        return Attributes(
            self.inode, FILE_MODE, size, mtime_ns, NOT_AT_ALL, attr_timeout, STREAM_BLOCK
        )

    def check(self) -> None:
        now = status(self.partition, self.name)
        if (now.st_size, now.st_mtime_ns) != (self._status.st_size, self._status.st_mtime_ns):
            raise Stale

    def open(self, *, waits: bool = True) -> Handle:
        if self._text is not None:
            return BytesHandle(self._text)
        source = _Source(self.partition, self.name)
        return StreamHandle(source, self.partition.note_damage, size=self)

    # -- what the handles need to know about the size -------------------------------------------

    is_damaged = False

    def before(self, position: int) -> tuple[int, int]:
        return 0, -1


def _growth(beginning: bytearray) -> float:
    """Estimates the bytes of a dump per byte of the file from the dump's beginning."""
    places = _POSITION.findall(beginning)
    position = int(places[-1]) if places else 0
    return len(beginning) / position if position else UNSAMPLED_RATIO


class _Source:
    """The lines of a file's dump, followed by the errors found in the file."""

    def __init__(self, partition: MountedPartition, name: str) -> None:
        from kafkafs.storage import DECODERS, DumpOptions, TextDecoder

        self._directory = partition.log.directory
        self._name = name
        limit = partition.view().context.limits.max_batch_bytes
        decoder = DECODERS[partition.topic]() if partition.topic in DECODERS else TextDecoder()
        self._options = DumpOptions(
            deep=True, contents=True, max_batch_bytes=limit, decoder=decoder
        )

    def pieces(self, restart: int) -> Iterator[StreamPiece]:
        from kafkafs.storage import Dump

        dump = Dump(self._options)
        for piece in dump.text(self._directory, self._name, self._name):
            yield StreamPiece(piece)
        for heading, found in (dump.complaints | dump.gaps).items():
            yield StreamPiece("\n".join([heading, *found, ""]).encode())


def dump_file_by_inode(
    catalog: Catalog, partition: MountedPartition, inode: Inode, number: int
) -> DumpFile:
    """Returns the file of an inode number; `number` is its full number. Raises Stale."""
    if inode.kind == InodeKind.OTHER_FILE:
        file = _snapshot_file(partition, number)
    elif inode.kind < InodeKind.SEGMENT_FILE:
        raise Stale
    else:
        name = segment_file_name(inode.kind, number)
        file = segment_file(name.base_offset, name.kind)
    try:
        return DumpDirectory(catalog, partition).child(file + _SUFFIX)
    except NoSuchName:
        raise Stale from None


def _snapshot_file(partition: MountedPartition, number: int) -> str:
    """Returns the name of the snapshot with this `_snapshot_number`. Raises Stale."""
    for entry in partition.log.directory.list():
        if _snapshot_number(entry.name) == number:
            return entry.name
    raise Stale
