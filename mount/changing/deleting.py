"""What removing a name means: a log is cut from its front, and nowhere else.

A removal moves the log start offset up, in memory and for every reader at once. The rest is done
soon after, for thousands of removals together (`settling.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkafs.storage.errors import StorageError, UnknownPartition, printable

from ..errnos import Forbidden
from .removed import Removed, RemovedNames
from .settling import Settling

if TYPE_CHECKING:  # an engine that writes is much to load for who only reads
    from kafkafs.storage.log.view import View
    from kafkafs.storage.log.writer import LogWriter
    from kafkafs.storage.writable_engine import WritableEngine

    from ..partition import Partition


class Deletions:
    """What is removed through a mount. Any thread may call."""

    def __init__(self, engine: WritableEngine) -> None:
        self._engine = engine
        self._settling = Settling(engine.upkeep.settle_deletions)
        self._names = RemovedNames()
        self._generations: dict[int, int] = {}

    # -- records and segments --------------------------------------------------------------------

    def delete_below(self, partition: Partition, offset: int, name: str, pid: int) -> None:
        """Process `pid` removed `name`: the log begins at `offset`, unless it begins above it.
        Forbidden, PolicyViolation, LogDirOffline."""
        writer = self._writer(partition)
        first_base, start = writer.first_base_offset, writer.start_offset
        writer.delete_records(offset)
        self._names.note(partition, pid, name, first_base, start, offset)
        self._settling.soon((partition.topic, partition.number))

    def is_near(self, partition: Partition) -> bool:
        """Whether `delete_below` would change memory only, and wait for nobody."""
        return self._writer(partition).is_idle

    def _writer(self, partition: Partition) -> LogWriter:
        try:
            return self._engine.writer(partition.topic, partition.number)
        except UnknownPartition:
            self._engine.partition_dir(partition.topic, partition.number)  # or has it gone?
            why = "is the quorum's own log, or could not be opened for writing"
            raise Forbidden(f"{partition.topic}-{partition.number} {why}") from None

    def settle(self, partition: Partition) -> None:
        """What was deleted in a partition is on the disk when this returns. StorageError and
        OSError; it is tried again."""
        self._settling.now({(partition.topic, partition.number)})

    # -- names that went with others -------------------------------------------------------------

    def removed_by(self, partition: Partition, pid: int, name: str) -> Removed | None:
        """What process `pid` removed from a partition lately, and that `name` may have gone with;
        None where it removed nothing, or the name itself."""
        return self._names.of(partition, pid, name)

    def removed_again(self, partition: Partition, pid: int, name: str) -> None:
        """The process removed a name that had gone already, by its own doing."""
        self._names.note_again(partition, pid, name)

    # -- directories that were removed and are there nevertheless -------------------------------

    def bury(self, inode: int) -> None:
        """The kernel was told that a directory was removed, which it never forgets of an inode. So
        the directory gets another one, of the same number."""
        self._generations[inode] = self.generation(inode) + 1

    def generation(self, inode: int) -> int:
        """Which inode of that number a directory is now."""
        return self._generations.get(inode, 0)

    # -- faults and end --------------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """Why something that was deleted is not on the disk yet."""
        problem = self._settling.problem
        return [f"deletions: {problem}"] if problem else []

    def close(self) -> None:
        """Puts everything on the disk. What cannot be is noted, and the engine's closing tells."""
        try:
            self._settling.close()
        except (StorageError, OSError):
            return


def is_emptied(partition: Partition) -> bool:
    """Whether nothing is left in a partition that anybody could read, now or later: no record, no
    transaction that is not decided, no damage."""
    view = partition.view()
    if view.last_stable_offset < _end(partition, view) or view.tail is not None:
        return False
    return next(view.scan(isolation=partition.isolation), None) is None


def _end(partition: Partition, view: View) -> int:
    """Where the log ends: who writes it knows also of what cannot be read, and seems not to be
    there (yet)."""
    try:
        if partition.changes is not None:
            return partition.changes.writer(partition).end_offset
    except UnknownPartition:
        pass  # it is not opened for writing
    return view.end_offset


def ignore_removal(partition: Partition, name: str) -> None:
    """A name that a partition always has is to be removed: nothing happens when the partition is
    emptied, as at the end of `rm -r`. Else Forbidden."""
    if not is_emptied(partition):
        raise Forbidden(f"{printable(name)} cannot be removed: it shows what is in the log")
