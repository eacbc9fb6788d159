"""Where a partition's log begins, and how many of the offsets before that Kafka's clients do not
see.

Redpanda removes segments only after it has written a snapshot of the partition's raft group, which
replaces them: the file `snapshot` beside them (`storage/snapshot.h`, `raft::snapshot_metadata`).
All numbers are little-endian: 0 uint32 CRC-32C of [4, 13), 4 uint32 CRC-32C of the metadata, 8 int8
version, 9 int32 size of the metadata. These begin with int64 last included offset, int64 term, int8
version (64), and end with int64 cluster time and int64 number of unseen offsets.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptError, SegmentGone
from ..format.checksum import crc32c
from ..format.layout import MAX_OFFSET
from ..io.directory import Directory, HeldDirectory, ReadableFile

SNAPSHOT_FILE: Final = "snapshot"
_HEADER: Final = Struct("<IIbi")
_CHECKED: Final = Struct("<Ibi")
_FIRST: Final = Struct("<qqb")
_LAST: Final = Struct("<qq")
_VERSION: Final = 1
_METADATA_VERSION: Final = 64
_MAX_METADATA_BYTES: Final = 16 << 20


class LogStart(NamedTuple):
    """The offset of Redpanda at which a log begins. `unseen`: of the offsets before it, those that
    Kafka's clients do not see; -1 if the snapshot does not say, as that of an old version."""

    offset: int
    unseen: int

    @property
    def kafka_offset(self) -> int:
        """The offset for Kafka's clients, if `unseen` is known."""
        return self.offset - self.unseen


def read_log_start(directory: Directory | HeldDirectory) -> LogStart | None:
    """Returns where the log in a partition's directory begins, None if nothing of it was removed.
    Raises CorruptError if the snapshot is damaged, OSError."""
    try:
        file = directory.open(SNAPSHOT_FILE)
    except SegmentGone:
        return None
    metadata, _ = snapshot_parts(file, _FIRST.size + _LAST.size)
    last, _, metadata_version = _FIRST.unpack_from(metadata)
    _, unseen = _LAST.unpack_from(metadata, len(metadata) - _LAST.size)
    if not -1 <= last < MAX_OFFSET or unseen > last + 1:
        raise CorruptError(f"the snapshot cannot end at offset {last}", file.path, _HEADER.size)
    return LogStart(last + 1, unseen if metadata_version >= _METADATA_VERSION else -1)


def snapshot_parts(file: ReadableFile, least: int) -> tuple[bytes, int]:
    """Returns the metadata of a snapshot, of which `least` bytes are needed, and the position after
    them. Raises CorruptError."""
    header = file.read(0, _HEADER.size)
    if len(header) < _HEADER.size:
        what = f"has {len(header)} bytes, its header needs {_HEADER.size}"
        raise CorruptError(what, file.path, 0)
    checksum, metadata_checksum, version, size = _HEADER.unpack(header)
    if crc32c(_CHECKED.pack(metadata_checksum, version, size)) != checksum:
        raise CorruptError("the header of the snapshot does not match its checksum", file.path, 0)
    if version != _VERSION:
        raise CorruptError(f"a snapshot of version {version}, known is {_VERSION}", file.path, 8)
    if not least <= size <= _MAX_METADATA_BYTES:
        raise CorruptError(f"the snapshot's metadata cannot have {size} bytes", file.path, 9)
    metadata = file.read(_HEADER.size, size)
    if len(metadata) < size or crc32c(metadata) != metadata_checksum:
        what = "the metadata of the snapshot are cut off or do not match their checksum"
        raise CorruptError(what, file.path, _HEADER.size)
    return metadata, _HEADER.size + size
