"""The leader epochs of a partition: which term of leadership wrote from which offset on.

Kafka's LeaderEpochFileCache. Magic 0 and 1 have no epochs, so a log of theirs has no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..disk import Directory
from ..durable import WritableDirectory
from ..errors import SegmentGone
from ..format import batch as b
from ..format.batch import BatchTable
from ..format.checkpoints import EpochEntry, format_leader_epochs, parse_leader_epochs
from ..format.layout import NO_LEADER_EPOCH
from ..format.names import LEADER_EPOCH_FILE
from ..small_file import read_value

# A line is at most 32 bytes; epochs count a partition's changes of leader.
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """The entries, epochs and start offsets both strictly ascending."""

    entries: tuple[EpochEntry, ...] = ()

    @classmethod
    def assigned(cls, entries: Iterable[EpochEntry]) -> LeaderEpochs:
        """`entries` taken in one by one: a later one drops those in front that it contradicts."""
        kept: list[EpochEntry] = []
        for entry in entries:
            while kept and not (
                kept[-1].epoch < entry.epoch and kept[-1].start_offset < entry.start_offset
            ):
                kept.pop()
            kept.append(entry)
        return cls(tuple(kept))

    @property
    def latest(self) -> int:
        """The epoch of the log's end, -1 when there is none."""
        return self.entries[-1].epoch if self.entries else -1

    def epoch_of(self, offset: int) -> int:
        """The epoch that `offset` was, or is to be, written in; -1 when it lies before the
        first."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[number - 1].epoch if number else -1

    def with_assigned(self, epoch: int, start_offset: int) -> LeaderEpochs:
        """With `epoch` from `start_offset` on; the very same when it is the latest one already."""
        last = self.entries[-1] if self.entries else None
        if last is not None and epoch == last.epoch and start_offset >= last.start_offset:
            return self
        return LeaderEpochs.assigned((*self.entries, EpochEntry(epoch, start_offset)))

    def with_batches(self, table: BatchTable) -> LeaderEpochs:
        """With those that begin in these batches (LogSegment.recover)."""
        epochs, found = self, table.column(b.LEADER_EPOCH)
        if not len(table) or int(found.max()) <= max(epochs.latest, NO_LEADER_EPOCH):
            return epochs
        for header in table.select(found > epochs.latest):
            if header.leader_epoch > epochs.latest:
                epochs = epochs.with_assigned(header.leader_epoch, header.base_offset)
        return epochs

    def cut_at_end(self, offset: int) -> LeaderEpochs:
        """Without the epochs that begin at or above `offset`, where the log ends now."""
        return LeaderEpochs(tuple(entry for entry in self.entries if entry.start_offset < offset))

    def cut_at_start(self, offset: int) -> LeaderEpochs:
        """With the epoch of `offset`, where the log begins now, as the first."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        if number == 0:
            return self
        first = EpochEntry(self.entries[number - 1].epoch, offset)
        return LeaderEpochs((first, *self.entries[number:]))


NO_EPOCHS: Final = LeaderEpochs()


class LeaderEpochFile:
    """The epochs of a partition that is written to, and their file.

    As in Kafka a new epoch is on the disk, durably, before it counts. That the log begins further
    up is written with what is written next, or by `write`: an older file says no less. An OSError
    leaves things as they were.
    """

    __slots__ = ("_directory", "_written", "epochs")

    def __init__(self, directory: WritableDirectory, epochs: LeaderEpochs) -> None:
        self._directory = directory
        self._written = self.epochs = epochs

    @property
    def latest(self) -> int:
        """The epoch of the log's end, -1 when there is none."""
        return self.epochs.latest

    def assign(self, epoch: int, start_offset: int) -> None:
        """`epoch` begins at `start_offset`; what contradicts that goes."""
        self._keep(self.epochs.with_assigned(epoch, start_offset))

    def cut_at_end(self, offset: int) -> None:
        """The log ends at `offset` now (truncateFromEnd)."""
        self._keep(self.epochs.cut_at_end(offset))

    def cut_at_start(self, offset: int) -> None:
        """The log begins at `offset` now (truncateFromStartAsyncFlush)."""
        self.epochs = self.epochs.cut_at_start(offset)

    def write(self) -> None:
        """Has the file say what `epochs` does."""
        self._keep(self.epochs)

    def extend_down(self, former: LeaderEpochs) -> None:
        """The log begins further down again, where the epochs are those of `former`."""
        latest = former.latest
        newer = (entry for entry in self.epochs.entries if entry.epoch > latest)
        self._keep(LeaderEpochs((*former.entries, *newer)))

    def clear(self) -> None:
        """No epochs are known any more."""
        self._keep(LeaderEpochs())

    def _keep(self, epochs: LeaderEpochs) -> None:
        if epochs != self._written:
            data = format_leader_epochs(epochs.entries)
            self._directory.write_atomically(LEADER_EPOCH_FILE, data)
            self._written = epochs
        self.epochs = epochs


def read_leader_epochs(directory: Directory) -> LeaderEpochs:
    """The epochs of the partition in `directory`, none where the file is absent.

    CorruptError when it is torn.
    """
    try:
        entries = read_value(directory, LEADER_EPOCH_FILE, _MAX_BYTES, parse_leader_epochs)
    except SegmentGone:
        return LeaderEpochs()
    return LeaderEpochs.assigned(entries)
