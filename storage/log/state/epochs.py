"""The leader epochs of a partition: which leader term wrote from which offset on.

Kafka's LeaderEpochFileCache. Magic 0 and 1 have no epochs, so a log in these formats has no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ...errors import SegmentGone
from ...format.files.checkpoints import EpochEntry, format_leader_epochs, parse_leader_epochs
from ...format.files.names import LEADER_EPOCH_FILE
from ...format.layout import NO_LEADER_EPOCH
from ...format.records import batch as b
from ...format.records.batch import BatchTable
from ...io.directory import Directory, HeldDirectory
from ...io.durable import WritableDirFd
from ...io.small_file import read_value

# A line has at most 32 bytes; an epoch is one change of the partition's leader.
_MAX_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class LeaderEpochFileCache:
    """The entries; both epochs and start offsets are strictly ascending."""

    entries: tuple[EpochEntry, ...] = ()

    @classmethod
    def assigned(cls, entries: Iterable[EpochEntry]) -> LeaderEpochFileCache:
        """Builds the entries one by one: each drops the earlier ones that contradict it."""
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
        """The epoch at the log's end, -1 if there is none."""
        return self.entries[-1].epoch if self.entries else -1

    def epoch_of(self, offset: int) -> int:
        """Returns the epoch in which `offset` was, or will be, written; -1 if it precedes the
        first."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[number - 1].epoch if number else -1

    def with_assigned(self, epoch: int, start_offset: int) -> LeaderEpochFileCache:
        """Returns the entries with `epoch` from `start_offset` on; self if it is already the
        latest."""
        last = self.entries[-1] if self.entries else None
        if last is not None and epoch == last.epoch and start_offset >= last.start_offset:
            return self
        return LeaderEpochFileCache.assigned((*self.entries, EpochEntry(epoch, start_offset)))

    def with_batches(self, table: BatchTable) -> LeaderEpochFileCache:
        """Returns the entries with the epochs that begin in `table` (LogSegment.recover)."""
        epochs, found = self, table.column(b.LEADER_EPOCH)
        if not len(table) or int(found.max()) <= max(epochs.latest, NO_LEADER_EPOCH):
            return epochs
        for header in table.select(found > epochs.latest):
            if header.leader_epoch > epochs.latest:
                epochs = epochs.with_assigned(header.leader_epoch, header.base_offset)
        return epochs

    def cut_at_end(self, offset: int) -> LeaderEpochFileCache:
        """Returns the entries below `offset`, the log's new end."""
        return LeaderEpochFileCache(
            tuple(entry for entry in self.entries if entry.start_offset < offset)
        )

    def cut_at_start(self, offset: int) -> LeaderEpochFileCache:
        """Returns the entries for a log that begins at `offset`: its epoch becomes the first."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        if number == 0:
            return self
        first = EpochEntry(self.entries[number - 1].epoch, offset)
        return LeaderEpochFileCache((first, *self.entries[number:]))


NO_EPOCHS: Final = LeaderEpochFileCache()


class LeaderEpochFile:
    """The epochs of a partition that is written to, and their file.

    As in Kafka, a new epoch is durable on disk before it takes effect. A higher log start is
    written with the next change, or by `write`: until then the file only has entries too many. An
    OSError leaves everything unchanged.
    """

    __slots__ = ("_directory", "_written", "epochs")

    def __init__(self, directory: WritableDirFd, epochs: LeaderEpochFileCache) -> None:
        self._directory = directory
        self._written = self.epochs = epochs

    @property
    def latest(self) -> int:
        """The epoch at the log's end, -1 if there is none."""
        return self.epochs.latest

    def assign(self, epoch: int, start_offset: int) -> None:
        """Starts `epoch` at `start_offset`; drops the entries that contradict it."""
        self._keep(self.epochs.with_assigned(epoch, start_offset))

    def cut_at_end(self, offset: int) -> None:
        """Removes the epochs at or above `offset`, the log's new end (truncateFromEnd)."""
        self._keep(self.epochs.cut_at_end(offset))

    def cut_at_start(self, offset: int) -> None:
        """Adjusts to `offset`, the log's new start (truncateFromStartAsyncFlush)."""
        self.epochs = self.epochs.cut_at_start(offset)

    def write(self) -> None:
        """Writes `epochs` to the file."""
        self._keep(self.epochs)

    def extend_down(self, former: LeaderEpochFileCache) -> None:
        """Puts the epochs of `former` first: the log's start was moved down."""
        latest = former.latest
        newer = (entry for entry in self.epochs.entries if entry.epoch > latest)
        self._keep(LeaderEpochFileCache((*former.entries, *newer)))

    def clear(self) -> None:
        """Removes all epochs."""
        self._keep(LeaderEpochFileCache())

    def _keep(self, epochs: LeaderEpochFileCache) -> None:
        if epochs != self._written:
            data = format_leader_epochs(epochs.entries)
            self._directory.write_atomically(LEADER_EPOCH_FILE, data)
            self._written = epochs
        self.epochs = epochs


def read_leader_epochs(directory: Directory) -> LeaderEpochFileCache:
    """Reads the epochs of the partition in `directory`; none if the file is absent.

    Raises CorruptError if the file is malformed.
    """
    try:
        entries = read_epoch_entries(directory)
    except SegmentGone:
        return LeaderEpochFileCache()
    return LeaderEpochFileCache.assigned(entries)


def read_epoch_entries(directory: Directory | HeldDirectory) -> list[EpochEntry]:
    """Reads the entries as they are in the file, which may contradict each other.

    Raises SegmentGone if the file is absent, and CorruptError if it is malformed.
    """
    return read_value(directory, LEADER_EPOCH_FILE, _MAX_BYTES, parse_leader_epochs)
