"""Deleted segments that are still there when a partition is loaded, and could come back.

They are those in front of the log, up to it without a hole, whole and undamaged. What else has the
suffix `.deleted` was taken out by a truncation or an exchange, and is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..config import TopicConfig
from ..disk import Directory
from ..errors import CorruptError
from ..format import batch as b
from ..format.layout import MAX_OFFSET
from ..format.names import FileKind, FileState, segment_file
from ..segment.index_builder import IndexBuilder
from ..segment.rebuild import Rebuild
from ..segment.txn_index import TransactionIndex
from .epochs import NO_EPOCHS, LeaderEpochs
from .loaded import FoundDeleted
from .loading_segment import LoadingSegment
from .recovery_actions import Write

# Without one of them a deletion was not finished, or the removal has begun.
_NEEDED = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX)


@dataclass(frozen=True, slots=True)
class DeletedFront:
    """The segments, ascending; the leader epochs in them; and what their indexes have to be made
    before they come back, where a power cut may have torn them."""

    segments: tuple[FoundDeleted, ...] = ()
    epochs: LeaderEpochs = NO_EPOCHS
    writes: tuple[Write, ...] = ()


class DeletedFrontFinder:
    """In one partition's directory."""

    def __init__(self, directory: Directory, config: TopicConfig, max_batch_bytes: int) -> None:
        self._directory = directory
        self._config = config
        self._max_batch_bytes = max_batch_bytes

    def find(self, deleted: Mapping[int, Sequence[FileKind]], first_base: int) -> DeletedFront:
        """Of the `deleted` segments, with their files by base offset, those in front of a log
        whose oldest segment has the base `first_base`."""
        found: list[tuple[FoundDeleted, LeaderEpochs, list[Write]]] = []
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
    ) -> tuple[FoundDeleted, LeaderEpochs, list[Write]] | None:
        """A segment that must end just before `limit`; None when it is not as it has to be."""
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
        wanted = {FileKind.INDEX: rebuild.offsets, FileKind.TIMEINDEX: rebuild.times}
        why = "as its .log has it"
        writes = [
            Write(_deleted(base, kind), data, why)
            for kind, data in wanted.items()
            if not self._holds(_deleted(base, kind), data)
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

    def _holds(self, name: str, data: bytes) -> bool:
        file = self._directory.open(name)
        return file.size() == len(data) and file.read(0, len(data)) == data


def _deleted(base: int, kind: FileKind) -> str:
    return segment_file(base, kind, FileState.DELETED)
