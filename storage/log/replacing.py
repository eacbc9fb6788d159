"""Putting cleaned segments in the place of those that they were made from, as files.

Kafka's LocalLog.replaceSegments. The new files are there, whole and durable, as `.cleaned`. They
become `.swap` in descending order of their bases; when the last one is, the exchange counts: what
was before does not count at the next loading, what comes after is finished by it. Then the old
files become `.deleted`, oldest first, and at last the new ones get their names. So whatever is lost
of an exchange is lost from the front, and nothing that was superseded outlives what superseded it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..durable import SyncFailed, WritableDirectory
from ..errors import LogDirOffline
from ..format.names import FileKind, FileState, segment_file
from ..segment.stored import FILES
from .deleted import DeletedFiles
from .leftovers import set_aside_unfinished


def replace_files(
    directory: WritableDirectory,
    new: Sequence[int],
    old: Sequence[int],
    deleted: DeletedFiles,
    due_ms: int,
) -> None:
    """Puts the `.cleaned` segments with the bases `new` in the place of the segments `old`, whose
    files go at `due_ms`.

    OSError when nothing has changed, but that the `.cleaned` files are gone. SyncFailed or
    LogDirOffline when only loading the partition again tells which segments it has.
    """
    _commit(directory, new)
    try:
        for base in sorted(old):
            deleted.mark(base, due_ms)
        for base in sorted(new):
            _rename(directory, base, FileState.SWAP, FileState.LIVE)
        directory.sync()
    except OSError as error:
        why = f"an exchange of segments was not finished: {error}"
        raise LogDirOffline(directory.path, why) from error


def commit_cleaned(directory: WritableDirectory, new: Sequence[int]) -> None:
    """Lets an exchange count whose `.cleaned` segments are all there, some of them `.swap` already;
    the next loading finishes it."""
    set_aside_unfinished(directory, new)
    for base in sorted(new, reverse=True):
        for kind in FILES:
            with suppress(FileNotFoundError):
                cleaned = segment_file(base, kind, FileState.CLEANED)
                directory.rename(cleaned, segment_file(base, kind, FileState.SWAP))
    directory.sync()


def discard_cleaned(directory: WritableDirectory, new: Sequence[int]) -> None:
    """Removes `.cleaned` segments that are not wanted any more. First those that are `.swap`
    already: a `.cleaned` file beside them tells that they do not count or, where there is none, the
    `.log` that they do, which therefore goes last."""
    for state in (FileState.SWAP, FileState.CLEANED):
        for base in new:
            for kind in reversed(FILES):
                directory.remove(segment_file(base, kind, state), missing_ok=True)


def _commit(directory: WritableDirectory, new: Sequence[int]) -> None:
    try:
        for base in sorted(new, reverse=True):
            _rename(directory, base, FileState.CLEANED, FileState.SWAP)
        # Not Kafka's: no old file may go before this is on the disk, whatever the file system.
        directory.sync()
    except SyncFailed:
        raise
    except OSError as error:
        try:
            discard_cleaned(directory, new)
        except OSError as second:
            why = f"an exchange of segments failed ({error}) and cannot be taken back: {second}"
            raise LogDirOffline(directory.path, why) from error
        raise


def _rename(directory: WritableDirectory, base: int, old: FileState, new: FileState) -> None:
    """The `.log` first. A `.txnindex` is there only where transactions were aborted."""
    for kind in FILES:
        with suppress(*([FileNotFoundError] if kind is FileKind.TXNINDEX else [])):
            directory.rename(segment_file(base, kind, old), segment_file(base, kind, new))
