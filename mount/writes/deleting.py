"""Removing files of records and segments: a log is deleted from its start, and nowhere else.

A removal raises the log start offset in memory, which all readers see at once. The rest follows
soon, for thousands of removals together (`deferred_deletions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkafs.storage import PartitionNotOpened, StorageError, UnknownPartition, printable

from ..vfs.errnos import NotPermitted
from .deferred_deletions import DeferredDeletions
from .removed import Removed, RemovedNames

if TYPE_CHECKING:  # loading the writing engine is expensive for a read-only mount
    from kafkafs.storage import LogManager, LogWriter, View

    from ..partition import MountedPartition


class RecordDeletions:
    """The removals made through a mount. Any thread may call."""

    def __init__(self, engine: LogManager) -> None:
        self._engine = engine
        self._deferred = DeferredDeletions(engine.background_tasks.finish_deletions)
        self._names = RemovedNames()
        self._generations: dict[int, int] = {}

    # -- records and segments --------------------------------------------------------------------

    def delete_below(self, partition: MountedPartition, offset: int, name: str, pid: int) -> None:
        """Raises the log start offset to at least `offset`, because process `pid` removed `name`.
        Raises NotPermitted, PolicyViolation, PartitionNotOpened or LogDirOffline."""
        writer = self._writer(partition)
        first_base, start = writer.first_base_offset, writer.start_offset
        writer.delete_records(offset)
        self._names.note(partition, pid, name, first_base, start, offset)
        self._deferred.schedule((partition.topic, partition.number))

    def refuse_remote(self, partition: MountedPartition, name: str) -> None:
        """Raises NotPermitted if older records of the log are in remote storage only, so that it is
        not known which of them the time `name` would delete. Raises as `delete_below`."""
        writer = self._writer(partition)
        start, local = writer.log_start_offset, writer.start_offset
        if start < local:
            raise NotPermitted(
                f"time/{printable(name)} cannot be removed in {partition.topic}/{partition.number}:"
                f" offsets {start} to {local - 1} are in remote storage only, where this mount does"
                " not know their times; remove offset/N"
            )

    def may_block(self, partition: MountedPartition) -> bool:
        """Returns False if `delete_below` would change only memory and wait for nothing."""
        return not self._writer(partition).is_idle

    def _writer(self, partition: MountedPartition) -> LogWriter:
        try:
            return self._engine.writer(partition.topic, partition.number)
        except UnknownPartition:
            # Raises UnknownPartition if the partition no longer exists.
            self._engine.partition_dir(partition.topic, partition.number)
            name = f"{partition.topic}-{partition.number}"
            raise NotPermitted(f"{name} is the quorum's own log") from None

    def make_durable(self, partition: MountedPartition) -> None:
        """Makes the deletions in a partition durable before it returns. Raises StorageError or
        OSError; the work is then retried later."""
        self._deferred.write_now({(partition.topic, partition.number)})

    # -- empty partitions ------------------------------------------------------------------------

    def is_emptied(self, partition: MountedPartition) -> bool:
        """Returns whether a partition has nothing that could be read now or later: no record, no
        open transaction, no damage."""
        view = partition.view()
        if view.last_stable_offset < self._end(partition, view) or view.tail is not None:
            return False
        return next(view.scan(isolation=partition.isolation), None) is None

    def _end(self, partition: MountedPartition, view: View) -> int:
        """Returns the log end offset. The writer also counts what readers cannot see (yet)."""
        try:
            return self._engine.writer(partition.topic, partition.number).end_offset
        except (UnknownPartition, PartitionNotOpened):
            return view.end_offset

    def ignore_removal(self, partition: MountedPartition, name: str) -> None:
        """Handles the removal of a name that a partition always has. Does nothing if the partition
        is empty, as at the end of `rm -r`; otherwise raises NotPermitted."""
        if not self.is_emptied(partition):
            raise NotPermitted(f"{printable(name)} cannot be removed: it shows what is in the log")

    # -- names removed together with others ------------------------------------------------------

    def removed_by(self, partition: MountedPartition, pid: int, name: str) -> Removed | None:
        """Returns what process `pid` recently removed from a partition, which may have deleted
        `name` too; None if it removed nothing, or that very name."""
        return self._names.of(partition, pid, name)

    def removed_again(self, partition: MountedPartition, pid: int, name: str) -> None:
        """Records that the process removed a name that its earlier removals had deleted."""
        self._names.note_again(partition, pid, name)

    # -- removed directories that still exist ---------------------------------------------------

    def bury(self, inode: int) -> None:
        """Gives a directory a new inode generation under the same number: the kernel knows that
        it was removed, and never forgets that of an inode."""
        self._generations[inode] = self.generation(inode) + 1

    def generation(self, inode: int) -> int:
        """Returns the present generation of a directory's inode number."""
        return self._generations.get(inode, 0)

    # -- problems and closing --------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """Why deletions are not on the disk yet."""
        problem = self._deferred.problem
        return [f"deletions: {problem}"] if problem else []

    def close(self) -> None:
        """Makes all deletions durable. Failures are recorded and reported when the engine is
        closed."""
        try:
            self._deferred.close()
        except (StorageError, OSError):
            return
