"""Swaps cleaned segments in for the originals: the two-phase commit on the level of files.

Kafka's LocalLog.replaceSegments. The new files exist as `.cleaned`, complete and durable. They are
renamed to `.swap` in descending order of base offset; the last rename commits the swap: before it,
the next load ignores the new files, after it, the next load finishes the swap. Then the old files
become `.deleted`, oldest first, and finally the new ones get their names. If part of a swap is
lost, it is lost from the front, and no superseded file outlives the one that superseded it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ...errors import LogDirOffline
from ...format.files.names import FileKind, FileState, segment_file
from ...io.durable import SyncFailed, WritableDirFd
from ...segment.stored import FILES
from .deleted import DeletedFiles
from .leftovers import set_aside_unfinished


def replace_files(
    directory: WritableDirFd,
    new: Sequence[int],
    old: Sequence[int],
    deleted: DeletedFiles,
    due_ms: int,
) -> None:
    """Swaps in the `.cleaned` segments with the base offsets `new` for the segments `old`, whose
    files are removed at `due_ms`.

    An OSError means that nothing has changed, except that the `.cleaned` files are removed. After
    SyncFailed or LogDirOffline the segments are unknown until the partition is loaded again.
    """
    _commit(directory, new)
    try:
        for base in sorted(old):
            deleted.mark(base, due_ms)
        for base in sorted(new):
            _rename(directory, base, FileState.SWAP, FileState.LIVE)
        directory.sync()
    except OSError as error:
        why = f"a segment swap was not finished: {error}"
        raise LogDirOffline(directory.path, why) from error


def commit_cleaned(directory: WritableDirFd, new: Sequence[int]) -> None:
    """Commits a swap whose segments all exist, as `.cleaned` or already as `.swap`; the next load
    finishes it."""
    set_aside_unfinished(directory, new)
    for base in sorted(new, reverse=True):
        for kind in FILES:
            with suppress(FileNotFoundError):
                cleaned = segment_file(base, kind, FileState.CLEANED)
                directory.rename(cleaned, segment_file(base, kind, FileState.SWAP))
    directory.sync()


def discard_cleaned(directory: WritableDirFd, new: Sequence[int]) -> None:
    """Removes `.cleaned` segments that are no longer needed. `.swap` files go first: they are
    invalid as long as there is a `.cleaned` file. Without one their `.log` makes them valid, so it
    is removed last."""
    for state in (FileState.SWAP, FileState.CLEANED):
        for base in new:
            for kind in reversed(FILES):
                directory.remove(segment_file(base, kind, state), missing_ok=True)


def _commit(directory: WritableDirFd, new: Sequence[int]) -> None:
    try:
        for base in sorted(new, reverse=True):
            _rename(directory, base, FileState.CLEANED, FileState.SWAP)
        # Unlike Kafka: no old file may be deleted before this is durable, on any file system.
        directory.sync()
    except SyncFailed:
        raise
    except OSError as error:
        try:
            discard_cleaned(directory, new)
        except OSError as second:
            why = f"a segment swap failed ({error}) and cannot be reverted: {second}"
            raise LogDirOffline(directory.path, why) from error
        raise


def _rename(directory: WritableDirFd, base: int, old: FileState, new: FileState) -> None:
    """Renames the `.log` first. A `.txnindex` exists only if transactions were aborted."""
    for kind in FILES:
        with suppress(*([FileNotFoundError] if kind is FileKind.TXNINDEX else [])):
            directory.rename(segment_file(base, kind, old), segment_file(base, kind, new))
