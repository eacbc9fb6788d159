"""Recognizes the space that a broker with `log.preallocate` keeps at the end of an active segment.

It creates the `.log` with the size of a whole segment, so zeros follow the last batch, and
truncates it when it rolls or closes the segment. A broker that starts after a crash truncates the
file with a warning (`LogSegment.recover`): the zeros may be what a power cut left of lost batches.
"""

from __future__ import annotations

from typing import Final

from ..errors import StorageError
from .directory import Directory, NoFile, ReadableFile
from .lock import who_holds

_CHUNK: Final = 1 << 20


def is_preallocated(directory: Directory, file: ReadableFile, start: int, end: int) -> bool:
    """Returns whether bytes [``start``, ``end``) at the end of an active ``.log`` are only zeros,
    while a process that writes holds the lock of the partition's log directory."""
    return has_writer(directory) and is_zero(file, start, end)


def has_writer(directory: Directory) -> bool:
    """Returns whether a process that writes holds the lock of the partition's log directory. The
    answer may change although no file does: the system releases the lock of a process that is
    killed."""
    log_dir = directory.parent
    if log_dir is None:
        return False
    try:
        return who_holds(log_dir) != 0
    except (StorageError, OSError):  # the lock file is unreadable
        return False


def is_zero(file: ReadableFile, start: int, end: int) -> bool:
    """Returns whether a range of a regular file holds nothing but zeros; holes are not read."""
    if isinstance(file, NoFile):
        return False
    position = min(file.next_data(start), end)
    while position < end:
        data = file.read(position, min(_CHUNK, end - position))
        if not data or data.strip(b"\0"):
            return not data
        position = min(file.next_data(position + len(data)), end)
    return True
