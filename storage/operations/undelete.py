"""Lists and restores what was deleted recently: records of partitions, and topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..errors import StorageError
from ..log.delete.deletions import Deletion
from ..log_dirs.engine import Engine
from ..topics.restoring import found_deletions, refuse_undelete
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    manager_of,
    writable,
)


@dataclass(frozen=True, slots=True)
class ListDeleted(PartitionsRequest):
    """Lists what can be restored of the selected topics and partitions."""

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Accepts any names, also those of deleted topics."""
        return ()


@dataclass(frozen=True, slots=True)
class Undelete(PartitionsRequest):
    """Restores the named topics, or the deleted records of the named topics and partitions.
    `offset`: restore only the records from this offset on."""

    offset: int | None = None

    @property
    def writes(self) -> bool:
        return True

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Returns the failures if none of the names can be restored."""
        if manager_of(engine) is not None:
            return ()  # it knows only when it tries
        refused = []
        for topic, number in self.selection.names:
            try:
                refuse_undelete(engine, topic, number, self.offset)
            except (StorageError, OSError) as error:
                refused.append(PartitionFailed.of(error))
        return refused if len(refused) == len(self.selection.names) else ()


def list_deleted(
    engine: Engine, request: ListDeleted, progress: ProgressListener = SILENT
) -> Iterator[Deletion]:
    """Yields what can be restored, the oldest deletion first. An engine that is open for writing
    knows its own deletions; otherwise the files show those of all processes that have exited."""
    manager = manager_of(engine)
    found = found_deletions(engine) if manager is None else manager.deleted()
    return (each for each in found if request.selection.includes(each.topic, each.partition))


def undelete(
    engine: Engine, request: Undelete, progress: ProgressListener = SILENT
) -> Iterator[Deletion | PartitionFailed]:
    """Restores each name durably; yields what was restored."""
    for topic, number in request.selection.names:
        try:
            yield from writable(engine).undelete(topic, number, request.offset)
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error)
