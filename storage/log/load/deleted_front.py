"""Finds deleted segments that still exist when a partition is loaded and can be restored.

These are the intact segments before the log that reach up to it without a gap. Other files with
the suffix `.deleted` come from a truncation or a segment swap and are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...config.kafka import TopicConfig
from ...errors import CorruptError
from ...format.files.names import FileKind, FileState, segment_file
from ...format.layout import MAX_OFFSET
from ...format.records import batch as b
from ...io.directory import Directory
from ...segment.index_builder import IndexBuilder
from ...segment.rebuild import Rebuild
from ...segment.txn_index import TransactionIndex
from ..state.epochs import NO_EPOCHS, LeaderEpochFileCache
from .loaded import FoundDeleted
from .loading_segment import LoadingSegment
from .recovery_actions import WriteFile

# If one is missing, the deletion did not finish or the removal has begun.
_NEEDED = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX)


@dataclass(frozen=True, slots=True)
class DeletedFront:
    """The segments, ascending; their leader epochs; and the index contents to write before they
    are restored, where a power failure may have torn the files."""

    segments: tuple[FoundDeleted, ...] = ()
    epochs: LeaderEpochFileCache = NO_EPOCHS
    writes: tuple[WriteFile, ...] = ()


class DeletedFrontFinder:
    """The finder for one partition's directory."""

    def __init__(self, directory: Directory, config: TopicConfig, max_batch_bytes: int) -> None:
        self._directory = directory
        self._config = config
        self._max_batch_bytes = max_batch_bytes

    def find(self, deleted: Mapping[int, Sequence[FileKind]], first_base: int) -> DeletedFront:
        """Selects from the `deleted` segments, given as files by base offset, those before a log
        whose oldest segment has the base offset `first_base`."""
        found: list[tuple[FoundDeleted, LeaderEpochFileCache, list[WriteFile]]] = []
        limit = first_base
        for base in sorted(deleted, reverse=True):
            if base < limit:
                one = self._read(base, deleted[base], limit)
                if one is not None:
                    found.append(one)
                    limit = base
        found.reverse()
        epochs = NO_EPOCHS
        for entry in (entry for _, those, _ in found for entry in those.entries):
            epochs = epochs.with_assigned(entry.epoch, entry.start_offset)
        return DeletedFront(
            tuple(segment for segment, _, _ in found),
            epochs,
            tuple(write for _, _, writes in found for write in writes),
        )

    def _read(
        self, base: int, kinds: Sequence[FileKind], limit: int
    ) -> tuple[FoundDeleted, LeaderEpochFileCache, list[WriteFile]] | None:
        """Reads a segment that must end just before `limit`; None if it is not intact."""
        if not set(_NEEDED) <= set(kinds) or not self._has_right_aborts(base, kinds):
            return None
        config = self._config
        builder = IndexBuilder(base, config.index_interval_bytes, config.segment_index_bytes)
        epochs = NO_EPOCHS
        name = _deleted(base, FileKind.LOG)
        size = self._directory.open(name).size()
        segment = LoadingSegment(
            self._directory, base, name, "", 0, size, MAX_OFFSET, self._max_batch_bytes
        )
        with segment.opened() as file:
            rebuild = Rebuild(segment.extent(file), builder)
            for table in rebuild.tables():
                epochs = epochs.with_batches(table.select(table.column(b.MAGIC) > 1))
        if (rebuild.size, rebuild.next_offset) != (size, limit):
            return None
        expected = {FileKind.INDEX: rebuild.offsets, FileKind.TIMEINDEX: rebuild.times}
        why = "rebuilt from its .log"
        writes = [
            WriteFile(_deleted(base, kind), data, why)
            for kind, data in expected.items()
            if not self._directory.open(_deleted(base, kind)).holds(data)
        ]
        return FoundDeleted(base, size, tuple(kinds)), epochs, writes

    def _has_right_aborts(self, base: int, kinds: Sequence[FileKind]) -> bool:
        if FileKind.TXNINDEX not in kinds:
            return True
        index = TransactionIndex(self._directory.open(_deleted(base, FileKind.TXNINDEX)))
        try:
            is_right = all(entry.last_offset >= base for entry in index.entries())
        except CorruptError:
            return False
        return is_right and not index.has_stray_bytes


def _deleted(base: int, kind: FileKind) -> str:
    return segment_file(base, kind, FileState.DELETED)
