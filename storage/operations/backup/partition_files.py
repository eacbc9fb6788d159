"""The files of a partition that a point in time has, as they are copied.

- Logs: of each segment that is served, under its final name, also if a broker died before it had
  renamed the cleaner's output. The active one ends with its last whole batch.
- Indexes: those of the active segment without the space that a broker keeps at their ends, and up
  to the end of the log.
- Producer snapshots, the leader epochs and the topic's id; of the metadata, also its snapshots and
  the state of the quorum.

Files that are being deleted, cleaned or swapped in are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...backup.manifest import Noted
from ...errors import CorruptError, LogDirError, SegmentGone
from ...format.files.checkpoints import format_leader_epochs, parse_leader_epochs
from ...format.files.names import (
    LEADER_EPOCH_FILE,
    METADATA_TOPIC,
    PARTITION_METADATA_FILE,
    QUORUM_STATE_FILE,
    FileKind,
    FileState,
    parse_metadata_snapshot,
    parse_segment_file,
    segment_file,
)
from ...io.directory import NoFile, ReadableFile, read_all
from ...segment import offset_index, time_index, txn_index
from ...segment.index_file import IndexFile
from ...segment.offset_index import OffsetIndex
from ...segment.segment import Segment
from ...segment.time_index import TimeIndex
from ...segment.txn_index import TransactionIndex
from .fixing import Changed, FixedPartition

_INDEXES: Final = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)
_MAX_EPOCHS_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A log to copy, and its indexes."""

    name: str
    file: ReadableFile
    indexes: Sequence[OpenedIndex]


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """An index to copy, the first `size` bytes of it."""

    name: str
    file: ReadableFile
    size: int


def open_log(fixed: FixedPartition, segment: Segment, *, is_clean: bool) -> OpenedLog | None:
    """Opens a segment, None if something else has the name of its log. Raises SegmentGone if it was
    deleted or replaced. `is_clean`: its broker has shut down, and completed the indexes."""
    file = segment.files.log()
    if isinstance(file, NoFile):
        return None
    name = segment_file(segment.base_offset, FileKind.LOG)
    is_growing = segment.is_active and not is_clean
    return OpenedLog(name, file, _open_indexes(fixed, segment, is_growing=is_growing))


def _open_indexes(
    fixed: FixedPartition, segment: Segment, *, is_growing: bool
) -> list[OpenedIndex]:
    """Opens the indexes of a segment; returns none at all if one of them may belong to another log
    of the same name: whoever opens the copy rebuilds all of them then."""
    directory, base = fixed.found.directory, segment.base_offset
    found = []
    for kind in _INDEXES:
        try:
            file = directory.open(segment.files.name(kind))
        except (SegmentGone, CorruptError):
            if kind is not FileKind.TXNINDEX:
                return []
            continue
        size = file.size()
        if is_growing:
            size = _bytes_within(kind, file, segment.size, fixed.view.end_offset - base, base)
        found.append(OpenedIndex(segment_file(base, kind), file, size))
    # A log is renamed before its indexes: as long as it has its name, they are its own.
    try:
        status = directory.stat(segment.files.name(FileKind.LOG))
    except (SegmentGone, LogDirError, CorruptError):
        return []
    return found if (status.st_dev, status.st_ino) == segment.files.identity else []


def _bytes_within(kind: FileKind, file: ReadableFile, size: int, offsets: int, base: int) -> int:
    """Returns how many bytes of a growing index are entries for the first `size` bytes of its log,
    which are as many `offsets` from its base on."""
    if kind is FileKind.TXNINDEX:
        aborted = list(TransactionIndex(file).entries())
        return txn_index.ENTRY.size * sum(each.last_offset < base + offsets for each in aborted)
    layout, is_written = (
        (offset_index.ENTRY, OffsetIndex.is_written)
        if kind is FileKind.INDEX
        else (time_index.ENTRY, TimeIndex.is_written)
    )
    entries = IndexFile(file, layout, is_written).entries()
    limit = size if kind is FileKind.INDEX else offsets
    count = entries.count
    while count and entries[count - 1][1] >= limit:
        count -= 1
    return count * layout.size


@dataclass(frozen=True, slots=True)
class EpochsFile:
    """The content of the file of leader epochs, as the copy has it."""

    data: bytes
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class OtherFiles:
    """The files of a partition beside its segments: `opened` by name, `epochs` (None if there is no
    such file, or it is damaged), and those that are left out."""

    opened: Sequence[tuple[str, ReadableFile]]
    epochs: EpochsFile | None
    left_out: Sequence[Noted]
    damage: Sequence[CorruptError]


def open_others(fixed: FixedPartition) -> OtherFiles:
    """Opens the small files of a partition. Raises Changed if the partition has disappeared."""
    found, view = fixed.found, fixed.view
    try:
        held = found.directory.hold()
        entries = held.list()
    except (SegmentGone, LogDirError):
        raise Changed(found.path) from None
    if held.stat().st_ino != found.inode:
        raise Changed(found.path)
    kept = {segment.files.name(FileKind.LOG) for segment in view.segments}
    opened: list[tuple[str, ReadableFile]] = []
    left_out: list[Noted] = []
    for entry in sorted(entries):
        if entry.name in kept or entry.name == LEADER_EPOCH_FILE:
            continue
        parsed = parse_segment_file(entry.name)
        if parsed is not None and parsed.kind in _INDEXES and parsed.state is FileState.LIVE:
            continue
        why = _why_not(fixed, entry.name) if entry.is_file else f"a {entry.kind}"
        if why:
            left_out.append(Noted(held.path_of(entry.name), why))
            continue
        with suppress(SegmentGone):  # a snapshot that is no longer needed
            opened.append((entry.name, held.open(entry.name)))
    epochs, damage = None, []
    with suppress(SegmentGone):
        file = held.open(LEADER_EPOCH_FILE)
        try:
            epochs = EpochsFile(_epochs(file, view.end_offset), file.stat().st_mtime_ns)
        except CorruptError as error:
            damage.append(error.at(file.path))
            opened.append((LEADER_EPOCH_FILE, file))
    return OtherFiles(opened, epochs, left_out, damage)


def _why_not(fixed: FixedPartition, name: str) -> str:
    """Returns why a file is not copied, "" if it is."""
    end = fixed.view.end_offset
    parsed = parse_segment_file(name)
    if parsed is not None:
        if parsed.state is not FileState.LIVE:
            return f"not served: its state is {parsed.state}"
        if parsed.kind is FileKind.LOG:
            return "not served: another segment has replaced it, or it is new"
        return "" if parsed.base_offset <= end else "later than the end of the log"
    if name == PARTITION_METADATA_FILE:
        return ""
    if fixed.found.topic == METADATA_TOPIC:
        snapshot = parse_metadata_snapshot(name)
        if name == QUORUM_STATE_FILE or (snapshot is not None and snapshot.end_offset <= end):
            return ""
    return "not a file of a log, or not yet one"


def _epochs(file: ReadableFile, end: int) -> bytes:
    """Returns the leader epochs that begin up to the end of the log, as a broker truncates them.
    Raises CorruptError."""
    entries = parse_leader_epochs(read_all(file, _MAX_EPOCHS_BYTES))
    return format_leader_epochs([each for each in entries if each.start_offset <= end])
