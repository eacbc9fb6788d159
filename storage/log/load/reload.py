"""Reloads the producers of a log that was truncated while in use (UnifiedLog.truncateTo)."""

from __future__ import annotations

from collections.abc import Sequence

from ...format.files.names import FileKind, segment_file
from ...format.layout import MAX_INT32, MAX_OFFSET
from ...io.disk import DirFd
from ..state.producers import ProducerStateManager
from ..state.snapshots import SnapshotFiles
from .loading_segment import LoadingSegment
from .producer_rebuild import MAX_SNAPSHOT_BYTES, ProducerRebuild, Snapshots


def reload_producers(
    directory: DirFd,
    segments: Sequence[tuple[int, int]],
    snapshots: SnapshotFiles,
    rebuild_at: tuple[int, int],
    expiration_ms: int,
    now_ms: int,
) -> ProducerStateManager:
    """Returns the producers of a log that starts and ends at the two offsets `rebuild_at`, from the
    newest snapshot and the batches after it; `segments` are its base offsets and sizes. Updates the
    snapshots on disk to match the log."""
    start_offset, end_offset = rebuild_at

    def read(offset: int) -> bytes:
        return directory.read_small(segment_file(offset, FileKind.SNAPSHOT), MAX_SNAPSHOT_BYTES)

    wanted = Snapshots(snapshots.offsets, read)
    limits = [base for base, _ in segments[1:]] + [MAX_OFFSET]
    loading = [
        LoadingSegment(
            directory,
            base,
            segment_file(base, FileKind.LOG),
            segment_file(base, FileKind.INDEX),
            0,
            size,
            limit,
            MAX_INT32,
        )
        for (base, size), limit in zip(segments, limits, strict=True)
    ]
    rebuild = ProducerRebuild(wanted, start_offset, expiration_ms, now_ms)
    loaded = rebuild.at(end_offset, loading, is_clean=False)
    snapshots.change(wanted.written, wanted.gone)
    snapshots.start_moved(start_offset)
    return loaded.producers
