"""The files of a log directory beside its partitions, as a point in time has them.

The checkpoints are written anew, for the partitions that the point has and not beyond their ends.
The marker of a clean shutdown is only copied if the directory was clean all the time. All other
files are copied as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from ...backup.manifest import Noted
from ...errors import CorruptError, SegmentGone
from ...format.files.checkpoints import format_offsets
from ...format.files.names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    REMOTE_INDEX_CACHE,
    PartitionState,
    TopicPartition,
    parse_partition_dir,
)
from ...io.directory import DirectoryEntry, ReadableFile
from ...io.durable import TEMPORARY_SUFFIX
from ...io.lock import LOCK_FILE
from ...log.read.view import View
from ...log_dirs.log_dir import LogDir

_CHECKPOINTS: Final[Mapping[str, Callable[[LogDir], Mapping[TopicPartition, int]]]] = {
    RECOVERY_POINT_FILE: lambda log_dir: log_dir.recovery_points,
    LOG_START_OFFSET_FILE: lambda log_dir: log_dir.log_start_offsets,
    HIGH_WATERMARK_FILE: lambda log_dir: log_dir.high_watermarks,
    CLEANER_OFFSET_FILE: lambda log_dir: log_dir.cleaner_offsets,
}
_STATES: Final = {
    PartitionState.DELETE: "a deleted partition",
    PartitionState.FUTURE: "a copy in progress of a partition that is being moved",
    PartitionState.STRAY: "a stray partition, which its cluster did not know",
}


def checkpoints(
    log_dir: LogDir, views: Mapping[TopicPartition, View]
) -> Iterator[tuple[str, bytes]]:
    """Yields the names and contents of the checkpoints that a directory has."""
    for name, read in _CHECKPOINTS.items():
        try:
            log_dir.directory.stat(name)
        except SegmentGone:
            continue
        offsets = read(log_dir)
        kept = {
            key: min(offset, views[key].end_offset)
            for key, offset in offsets.items()
            if key in views
        }
        yield name, format_offsets(kept)


def open_files(log_dir: LogDir, *, is_clean: bool) -> Iterator[tuple[str, ReadableFile]]:
    """Yields the other files to copy, opened."""
    own = (*_CHECKPOINTS, LOCK_FILE)
    for entry in sorted(log_dir.directory.list()):
        if not entry.is_file or entry.name in own or entry.name.endswith(TEMPORARY_SUFFIX):
            continue
        if entry.name == CLEAN_SHUTDOWN_FILE and not is_clean:
            continue
        with suppress(SegmentGone, CorruptError):
            yield entry.name, log_dir.directory.open(entry.name)


def left_out(log_dir: LogDir) -> Iterator[Noted]:
    """Yields what a directory has beside files and partitions in normal use, and temporary
    files."""
    for entry in sorted(log_dir.directory.list()):
        why = _why_not(entry)
        if why:
            yield Noted(log_dir.directory.path_of(entry.name), why)


def _why_not(entry: DirectoryEntry) -> str:
    if entry.is_file:
        return "a temporary file" if entry.name.endswith(TEMPORARY_SUFFIX) else ""
    if not entry.is_dir:
        return f"a {entry.kind}"
    if entry.name == REMOTE_INDEX_CACHE:
        return "a cache of remote segments' indexes"
    parsed = parse_partition_dir(entry.name)
    return "not the directory of a partition" if parsed is None else _STATES.get(parsed.state, "")
