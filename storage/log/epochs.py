"""The leader epochs of a partition: which term of leadership wrote from which offset on.

Kafka's LeaderEpochFileCache, read only. Magic 0 and 1 have no epochs, so such a log has no file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from ..disk import Directory
from ..errors import SegmentGone
from ..format.checkpoints import EpochEntry, parse_leader_epochs
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


def read_leader_epochs(directory: Directory) -> LeaderEpochs:
    """The epochs of the partition in `directory`, none where the file is absent.

    CorruptError when it is torn.
    """
    try:
        entries = read_value(directory, LEADER_EPOCH_FILE, _MAX_BYTES, parse_leader_epochs)
    except SegmentGone:
        return LeaderEpochs()
    return LeaderEpochs.assigned(entries)
