"""A partition's directory together with its segments in remote storage: one directory, whose files
have the names of a log directory wherever they lie.

So everything that reads a partition continues from remote storage into the local log without a
seam. Where both have an offset, the local file is read. The boundary is an offset: a remote segment
ends where the first local one begins.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..errors import CorruptError, SegmentGone, StorageError
from ..format.files.checkpoints import (
    PartitionMetadata,
    format_leader_epochs,
    format_partition_metadata,
    parse_partition_metadata,
)
from ..format.files.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    parse_partition_dir,
    parse_segment_file,
    segment_file,
)
from ..format.layout import MAX_OFFSET
from ..format.messages.remote_log_metadata import TopicIdPartition
from ..io.assembled import (
    AssembledDirectory,
    AssembledListing,
    FileOfBytes,
    FilePart,
    directory_status,
    file_status,
)
from ..io.directory import Directory, DirectoryEntry, FileType, HeldDirectory, ReadableFile
from ..io.small_file import read_value
from ..log.state.epochs import LeaderEpochFileCache, read_epoch_entries
from .layout import SEGMENT_FILES, ObjectId, RemoteFileKind
from .segments import RemotePiece, cut_at
from .tier import RemoteLog, RemotePartition, Tier, describe

_LOG_STATES: Final = (FileState.LIVE, FileState.SWAP)


@dataclass(frozen=True, slots=True)
class _RemoteFile:
    """A file of the segment of which a piece is served."""

    piece: RemotePiece
    kind: RemoteFileKind


@dataclass(frozen=True, slots=True)
class _Hole:
    """Offsets [`start`, `until`) that neither remote storage nor the local log has."""

    start: int
    until: int


class TieredDirectory(AssembledDirectory):
    """A partition in a log directory whose older segments may be in remote storage."""

    __slots__ = ("_last", "_local", "_tier")

    def __init__(self, local: Directory, tier: Tier) -> None:
        super().__init__(local.path, local.name, local.parent)
        self._local = local
        self._tier = tier
        self._last: TieredListing | None = None

    @property
    def is_local(self) -> bool:
        return self._local.is_local

    def hold(self, parent: HeldDirectory | None = None) -> TieredListing:
        held = self._local.hold(parent)
        listing = TieredListing(self, held, *self._remote(held))
        self._last = listing
        return listing

    def stat(self, name: str | None = None) -> os.stat_result:
        if name is not None:
            listing = self.hold()
            return listing.status_of(name) if listing.has(name) else self._local.stat(name)
        local = self._local.stat()
        partition, log = self._remote(self._local)
        return _status(local, log) if partition is not None else local

    def _remote(self, local: Directory | HeldDirectory) -> tuple[RemotePartition | None, RemoteLog]:
        """Returns the partition in remote storage, None if it cannot be there: without its id, or
        without leader epochs."""
        found = self.partition_id(local)
        if found is None:
            return None, RemoteLog()
        try:
            entries = read_epoch_entries(local)
        except SegmentGone:
            return None, RemoteLog()
        except CorruptError as error:
            self._tier.report(f"{describe(found)}: nothing of the tier is served: {error}")
            return None, RemoteLog()
        partition = self._tier.partition(found)
        return partition, partition.log(LeaderEpochFileCache.assigned(entries).entries)

    def partition_id(
        self, local: Directory | HeldDirectory | None = None
    ) -> TopicIdPartition | None:
        """Returns the topic's name and id, and the partition's number; None without an id."""
        name = parse_partition_dir(self.name)
        if name is None:
            return None
        try:
            metadata = read_value(
                local or self._local, PARTITION_METADATA_FILE, 4 << 10, parse_partition_metadata
            )
        except (SegmentGone, CorruptError):
            return None
        return TopicIdPartition(name.topic, metadata.topic_id, name.partition)

    def path_of(self, name: str) -> str:
        if self._last is not None and self._last.is_remote(name):
            return self._last.path_of(name)
        return super().path_of(name)

    def is_remote(self, name: str) -> bool:
        return self._last is not None and self._last.is_remote(name)

    def has_indexes(self, name: str) -> bool:
        return (self._last or self.hold()).has_indexes(name)

    def latest_remote_offset(self) -> int:
        return self._remote(self._local)[1].latest_offset


class RemotePartitionDirectory(AssembledDirectory):
    """A partition that is only in remote storage, as the directory that a broker would have."""

    __slots__ = ("_last", "_partition")

    def __init__(self, parent: Directory, name: str, partition: RemotePartition) -> None:
        super().__init__(parent.path_of(name), name, parent)
        self._partition = partition
        self._last: TieredListing | None = None

    def hold(self, parent: HeldDirectory | None = None) -> TieredListing:
        listing = TieredListing(self, None, self._partition, self._partition.log(None))
        self._last = listing
        return listing

    def path_of(self, name: str) -> str:
        if self._last is not None and self._last.is_remote(name):
            return self._last.path_of(name)
        return super().path_of(name)

    def is_remote(self, name: str) -> bool:
        return True

    def has_indexes(self, name: str) -> bool:
        return (self._last or self.hold()).has_indexes(name)

    def latest_remote_offset(self) -> int:
        return self._partition.log(None).latest_offset


class TieredListing(AssembledListing):
    """What a partition's directory and remote storage have at one moment."""

    __slots__ = ("_epochs", "_files", "_local", "_log", "_partition")

    def __init__(
        self,
        directory: Directory,
        local: HeldDirectory | None,
        partition: RemotePartition | None,
        log: RemoteLog,
    ) -> None:
        """Without `local` the partition is only in remote storage."""
        super().__init__(directory)
        self._local = local
        self._partition = partition
        self._log = log
        self._epochs = None if local is None else log.epochs
        self._files: Mapping[str, _RemoteFile | _Hole | bytes] | None = None

    def stat(self) -> os.stat_result:
        if self._local is None:
            newest = max((self._mtime_ns(each) for each in self._log.pieces[-1:]), default=0)
            return directory_status(_identity(self._directory.path), self._log.version, newest)
        local = self._local.stat()
        return local if self._partition is None else _status(local, self._log)

    def is_remote(self, name: str) -> bool:
        return isinstance(self._remote_files().get(name), _RemoteFile)

    def has_indexes(self, name: str) -> bool:
        found = self._remote_files().get(name)
        return not isinstance(found, _RemoteFile) or _begins(found.piece)

    def has(self, name: str) -> bool:
        """Returns whether a name is not one of the local directory."""
        return name in self._remote_files()

    def path_of(self, name: str) -> str:
        found = self._remote_files().get(name)
        if isinstance(found, _RemoteFile):
            return self._layout_path(found)
        return Directory.path_of(self._directory, name)

    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        # In this order, because a broker deletes local segments after it has copied them.
        local = [] if self._local is None else self._local.list(wants_stat)
        self._files = self._looked_up({entry.name for entry in local})
        remote = [
            DirectoryEntry(name, FileType.FILE, 0)
            for name, found in self._files.items()
            if not self._is_absent(found)
        ]
        return [*local, *remote]

    def status_of(self, name: str) -> os.stat_result:
        found = self._remote_files().get(name)
        if isinstance(found, _RemoteFile):
            return self._status(found)
        if isinstance(found, _Hole):
            return file_status((-1, found.start), 1, 0)
        if isinstance(found, bytes):
            return self._of_bytes(name, found).stat()
        raise SegmentGone(self.path_of(name))

    def open(self, name: str) -> ReadableFile:
        found = self._remote_files().get(name)
        if isinstance(found, _RemoteFile):
            return self._open(found)
        if isinstance(found, _Hole):
            where = f"offsets {found.start} to {found.until - 1} are not in remote storage"
            raise CorruptError(f"{where}, and not in the local log", self.path_of(name))
        if isinstance(found, bytes):
            return self._of_bytes(name, found)
        if self._local is None:
            raise SegmentGone(self.path_of(name))
        return self._local.open(name)

    def is_removed(self) -> bool:
        return self._local is not None and self._local.is_removed()

    # -- remote files ---------------------------------------------------------------------------

    def _remote_files(self) -> Mapping[str, _RemoteFile | _Hole | bytes]:
        files = self._files
        if files is None:
            local = [] if self._local is None else self._local.list()
            files = self._files = self._looked_up({entry.name for entry in local})
        return files

    def _looked_up(self, there: set[str]) -> Mapping[str, _RemoteFile | _Hole | bytes]:
        """Returns the files in remote storage beside those of the local directory."""
        if self._partition is None:
            return {}
        self._log = self._partition.log(self._epochs)
        return dict(self._names(there))

    def _names(self, there: set[str]) -> Iterator[tuple[str, _RemoteFile | _Hole | bytes]]:
        assert self._partition is not None
        first = min(map(_base_of_log, there), default=MAX_OFFSET)
        if self._local is None:
            metadata = PartitionMetadata(0, self._partition.partition.topic_id)
            yield PARTITION_METADATA_FILE, format_partition_metadata(metadata)
            yield LEADER_EPOCH_FILE, format_leader_epochs(self._log.epochs)
        pieces = cut_at(self._log.pieces, first)
        for piece in pieces:
            yield from (each for each in _files_of(piece) if each[0] not in there)
        bounds = [(piece.start, piece.until) for piece in pieces]
        if bounds and first < MAX_OFFSET:
            bounds.append((first, first))
        for (_, until), (start, _) in pairwise(bounds):
            if until < start:
                yield segment_file(until, FileKind.LOG), _Hole(until, start)

    def _object(self, found: _RemoteFile) -> ObjectId:
        assert self._partition is not None
        return ObjectId.of(self._partition.partition, found.piece.segment)

    def _layout_path(self, found: _RemoteFile) -> str:
        assert self._partition is not None
        return self._partition.tier.layout.path(self._object(found), found.kind)

    def _is_absent(self, found: _RemoteFile | _Hole | bytes) -> bool:
        """Returns whether a file does not exist that need not exist."""
        is_optional = isinstance(found, _RemoteFile) and found.kind is not RemoteFileKind.LOG
        if not is_optional:
            return False
        assert isinstance(found, _RemoteFile)
        try:
            self._status(found)
        except StorageError:
            return True
        return False

    def _status(self, found: _RemoteFile) -> os.stat_result:
        assert self._partition is not None
        layout, segment = self._partition.tier.layout, found.piece.segment
        try:
            there = layout.status(self._object(found), found.kind)
        except (SegmentGone, CorruptError):
            if found.kind is not RemoteFileKind.LOG:
                raise
            return file_status(_identity(segment.id), segment.size, 0)
        if found.kind is not RemoteFileKind.LOG or not stat.S_ISREG(there.st_mode):
            return there
        try:
            start, end = self._partition.byte_range(found.piece)
        except (SegmentGone, CorruptError):
            start, end = 0, segment.size
        if (start, end) == (0, there.st_size):
            return there
        identity = (there.st_dev, there.st_ino)
        if start:  # positions of batches are other ones
            identity = _identity(f"{there.st_dev} {there.st_ino} {start}")
        return file_status(identity, end - start, there.st_mtime_ns)

    def _open(self, found: _RemoteFile) -> ReadableFile:
        assert self._partition is not None
        try:
            file = self._partition.tier.layout.open(self._object(found), found.kind)
            if found.kind is not RemoteFileKind.LOG:
                return file
            start, end = self._partition.byte_range(found.piece)
        except SegmentGone:
            if found.kind is RemoteFileKind.LOG and self._is_current():
                path = self._layout_path(found)
                what = "missing, although the metadata of remote storage have it"
                raise CorruptError(what, path) from None
            raise
        self._check_size(found, file)
        if (start, end) == (0, file.size()):
            return file
        return FilePart(file, start, self._status(found))

    def _check_size(self, found: _RemoteFile, file: ReadableFile) -> None:
        assert self._partition is not None
        expected = found.piece.segment.size
        if file.size() != expected:
            what = f"{file.size()} bytes, but the metadata of remote storage say {expected}"
            self._partition.tier.report(str(CorruptError(what, file.path)))

    def _is_current(self) -> bool:
        """Returns whether the partition's segments are still those of this listing."""
        assert self._partition is not None
        return self._partition.log(self._epochs).version == self._log.version

    def _mtime_ns(self, piece: RemotePiece) -> int:
        try:
            return self._status(_RemoteFile(piece, RemoteFileKind.LOG)).st_mtime_ns
        except (StorageError, OSError):
            return 0

    def _of_bytes(self, name: str, data: bytes) -> FileOfBytes:
        path = Directory.path_of(self._directory, name)
        return FileOfBytes(path, data, _identity(path), self.stat().st_mtime_ns)


def _files_of(piece: RemotePiece) -> Iterator[tuple[str, _RemoteFile]]:
    """Yields the files that a piece of a segment has in a log directory. A piece that does not
    begin with the segment has no indexes, since their positions would be wrong."""
    segment = piece.segment
    for kind, remote in SEGMENT_FILES.items():
        if kind is FileKind.LOG or _begins(piece):
            yield segment_file(piece.start, kind), _RemoteFile(piece, remote)
    if piece.until == segment.end_offset + 1:
        name = segment_file(piece.until, FileKind.SNAPSHOT)
        yield name, _RemoteFile(piece, RemoteFileKind.PRODUCER_SNAPSHOT)


def _begins(piece: RemotePiece) -> bool:
    """Returns whether a piece is the beginning of its segment."""
    return piece.start == piece.segment.start_offset


def _base_of_log(name: str) -> int:
    """Returns the base offset of a segment's `.log`, MAX_OFFSET for any other file."""
    parsed = parse_segment_file(name)
    if parsed is None or parsed.kind is not FileKind.LOG or parsed.state not in _LOG_STATES:
        return MAX_OFFSET
    return parsed.base_offset


def _status(local: os.stat_result, log: RemoteLog) -> os.stat_result:
    """Returns the status of a directory that changes with either part of it."""
    identity = (local.st_dev, local.st_ino)
    return directory_status(identity, log.version, local.st_mtime_ns)


def _identity(text: str) -> tuple[int, int]:
    """Returns a device and inode number for what has none; no file of a disk has them."""
    from hashlib import blake2b  # which few commands need

    return -1, int.from_bytes(blake2b(text.encode(), digest_size=7).digest())
