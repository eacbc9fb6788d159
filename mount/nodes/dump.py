"""`dump/`: the files of segments as kafka-dump-log prints them, records and all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.internal_topics import DECODERS, as_text
from kafkafs.storage.format.names import (
    FileState,
    SegmentFileName,
    parse_segment_file,
    segment_file,
)
from kafkafs.storage.segment.dump import Dump, DumpOptions

from ..changing.deleting import ignore_removal
from ..errnos import NoSuchName, Stale
from ..handles import Handle
from ..inodes import Inode, Kind, segment_file_name, segment_kind
from ..partition import Partition, Scope
from ..reading.streams import Piece, StreamHandle
from .member import Member, MemberDirectory
from .node import FIRST, Attributes, File, Listing, Run, rows_at, stream_attributes
from .removed import RemovedName
from .segments import removed_file, status, statuses

_SUFFIX: Final = ".txt"
# Lines made at a time.
_LINES: Final = 1024


class DumpDirectory(MemberDirectory):
    """A name for each file of a segment that can be dumped."""

    member = Member.DUMP

    def child(self, name: str) -> DumpFile:
        self.visit()
        parsed = _parsed(name)
        if parsed is None:
            why = f"{name!r} is not the name of a file of a segment with {_SUFFIX} behind it"
            raise NoSuchName(name, lambda: why)
        file = segment_file(parsed.base_offset, parsed.kind)
        return DumpFile(self.partition, file, status(self.partition, file))

    def remove(self, name: str, pid: int) -> None:
        """Changes nothing; it is for the end of `rm -r`."""
        changes = self.partition.changes
        try:
            self.child(name)
        except NoSuchName:
            if changes is None or self.removed(name, pid) is None:
                raise
            changes.deletions.removed_again(self.partition, pid, name)
            return
        ignore_removal(self.partition, name)

    def removed(self, name: str, pid: int) -> RemovedName | None:
        return removed_file(self, name, _parsed(name), pid)

    def runs(self, start: int) -> Iterator[Run]:
        return self.listing()(start)

    def listing(self) -> Listing:
        """In order of name: of the names of now those that are there when their turn comes."""
        found, _ = self.partition.log.directory.files()
        return partial(self._runs_of, sorted(name for name in found if _parsed(name + _SUFFIX)))

    def _runs_of(self, names: list[str], start: int) -> Iterator[Run]:
        self.visit()
        found = statuses(self.partition, names)
        nodes = (
            (at, name + _SUFFIX, DumpFile(self.partition, name, found[name]))
            for at, name in enumerate(names, FIRST)
            if name in found
        )
        yield from rows_at(nodes, start)


def _parsed(name: str) -> SegmentFileName | None:
    """The file that a name is of."""
    file = name.removesuffix(_SUFFIX)
    parsed = parse_segment_file(file) if file != name else None
    return parsed if parsed is not None and parsed.state is FileState.LIVE else None


class DumpFile(File):
    """What is in the file `name` of the partition's directory."""

    def __init__(self, partition: Partition, name: str, status: os.stat_result) -> None:
        parsed = parse_segment_file(name)
        assert parsed is not None
        self.partition = partition
        self.name = name
        self.inode = partition.inode(segment_kind(parsed), Scope.DUMPS, parsed.base_offset)
        self._mtime_ns = status.st_mtime_ns

    def attributes(self) -> Attributes:
        return stream_attributes(self.inode, self._mtime_ns)

    def open(self, *, waits: bool = True) -> Handle:
        return StreamHandle(_Source(self.partition, self.name), self.partition.note_damage)


class _Source:
    """The lines of a file, and behind them what was found wrong with it."""

    def __init__(self, partition: Partition, name: str) -> None:
        self._directory = partition.log.directory
        self._name = name
        limit = partition.view().context.limits.max_batch_bytes
        decoder = DECODERS[partition.topic]() if partition.topic in DECODERS else as_text
        self._options = DumpOptions(
            deep=True, contents=True, max_batch_bytes=limit, decoder=decoder
        )

    def pieces(self, restart: int) -> Iterator[Piece | CorruptError]:
        lines = self._lines()
        while some := list(islice(lines, _LINES)):
            yield Piece("".join(some).encode())

    def _lines(self) -> Iterator[str]:
        dump = Dump(self._options)
        for line in dump.lines(self._directory, self._name, self._name):
            yield f"{line}\n"
        for heading, found in (dump.complaints | dump.gaps).items():
            yield "\n".join([heading, *found, ""])


def dump_file_by_inode(partition: Partition, inode: Inode, number: int) -> DumpFile:
    """The file that an inode number was given to; `number` is its whole number. Stale."""
    if inode.kind < Kind.SEGMENT_FILE:
        raise Stale
    name = segment_file_name(inode.kind, number)
    try:
        directory = DumpDirectory(partition)
        return directory.child(segment_file(name.base_offset, name.kind) + _SUFFIX)
    except NoSuchName:
        raise Stale from None
