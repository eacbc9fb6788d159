"""Removes leftover files of brokers and other processes, or lists them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ..errors import StorageError
from ..log_dirs.engine import Engine
from ..log_dirs.purging import FoundLeftover, find_leftovers, select
from .request import (
    SILENT,
    PartitionFailed,
    PartitionsRequest,
    ProgressListener,
    manager_of,
    writable,
)


@dataclass(frozen=True, slots=True)
class Purge(PartitionsRequest):
    """Removes leftovers of the selected topics and partitions. `strays`: include stray partitions,
    which hold whole logs."""

    strays: bool = False
    dry_run: bool = False

    @property
    def writes(self) -> bool:
        return not self.dry_run

    def check(self, engine: Engine) -> Sequence[PartitionFailed]:
        """Raises UnknownTopic or UnknownPartition for a name that neither exists nor has
        leftovers."""
        self.leftovers(engine)
        return ()

    def leftovers(self, engine: Engine) -> list[FoundLeftover]:
        """Returns the selected leftovers, without those of the engine's own deletions."""
        manager = manager_of(engine)
        if manager is not None:
            found = manager.leftovers(strays=self.strays)
        else:
            found = list(find_leftovers(engine.log_dirs, strays=self.strays))
        return select(engine, found, self.selection)


def purge(
    engine: Engine, request: Purge, progress: ProgressListener = SILENT
) -> Iterator[FoundLeftover | PartitionFailed]:
    """Yields each leftover after it was removed or, in a dry run, that would be. What is no longer
    a leftover is skipped; a partition that is being cleaned fails with CleaningAborted."""
    found = request.leftovers(engine)
    if request.dry_run:
        yield from found
        return
    ordered = sorted(found, key=lambda each: each.path)
    for _, group in groupby(ordered, key=lambda each: (each.log_dir, each.directory)):
        those = list(group)
        progress.check()
        try:
            yield from writable(engine).purge(those)
        except (StorageError, OSError) as error:
            yield PartitionFailed.of(error, f"{those[0].topic}-{those[0].partition}")
