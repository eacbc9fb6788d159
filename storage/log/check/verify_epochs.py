"""Compares the leader epochs in a partition's file with those in its batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...errors import CorruptError, SegmentGone
from ...format.files.checkpoints import EpochEntry, parse_leader_epochs
from ...format.files.names import LEADER_EPOCH_FILE
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...io.disk import DirFd
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import BEYOND_END, Finding
from ..state.epochs import LeaderEpochFileCache

_MAX_EPOCHS_BYTES = 16 << 20


class EpochCheck:
    """The check of `leader-epoch-checkpoint` against the epochs in the batches."""

    def __init__(self, directory: DirFd, start_offset: int) -> None:
        """Epochs before `start_offset` are no longer known, nor are those before the first entry:
        the log start rises in this file and in its own checkpoint at different times, so a crash
        may restore deleted segments."""
        self._directory = directory
        self._start_offset = start_offset
        self._path = directory.path_of(LEADER_EPOCH_FILE)
        self._entries: list[EpochEntry] | None = None
        self._latest = -1

    def read(self) -> Iterator[Finding]:
        """Yields what is wrong with the file itself."""
        try:
            data = self._directory.read_small(LEADER_EPOCH_FILE, _MAX_EPOCHS_BYTES)
            self._entries = parse_leader_epochs(data)
        except SegmentGone:
            self._entries = []
            return
        except CorruptError as error:
            yield Finding(self._path, error.position, error.what)
            return
        before = EpochEntry(-1, -1)
        for entry in self._entries:
            if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
                one, other = (f"{e.epoch} from offset {e.start_offset} on" for e in (entry, before))
                yield Finding(self._path, -1, f"epoch {one} does not follow epoch {other}")
            before = entry

    def batches(self, check: CheckedSegment, table: BatchTable) -> None:
        epochs = table.column(b.LEADER_EPOCH)
        is_served = table.column(b.BASE_OFFSET) >= self._first_offset()
        rows = np.flatnonzero((table.column(b.MAGIC) > 1) & (epochs >= 0) & is_served)
        if not len(rows):
            return
        found = epochs[rows]
        changes = np.flatnonzero(np.diff(found, prepend=-2))
        ends = np.append(changes[1:], len(rows)) - 1
        known = None if self._entries is None else LeaderEpochFileCache.assigned(self._entries)
        for first, last in zip(rows[changes].tolist(), rows[ends].tolist(), strict=True):
            header = table[first]
            if header.leader_epoch < self._latest:
                what = f"leader epoch {header.leader_epoch} after epoch {self._latest}"
                check.tell(header, what)
            self._latest = max(self._latest, header.leader_epoch)
            if known is not None:
                self._compare(check, known, header)
                if last > first:
                    self._compare(check, known, table[last])

    def _first_offset(self) -> int:
        """Returns the offset below which no epochs are known."""
        first = self._entries[0].start_offset if self._entries else 0
        return max(self._start_offset, first)

    @staticmethod
    def _compare(check: CheckedSegment, known: LeaderEpochFileCache, header: BatchHeader) -> None:
        told = known.epoch_of(header.base_offset)
        if told == header.leader_epoch:
            told = known.epoch_of(header.last_offset)
        if told != header.leader_epoch:
            says = f"epoch {told}" if told >= 0 else "none"
            what = f"leader epoch {header.leader_epoch}, {LEADER_EPOCH_FILE} says {says}"
            check.tell(header, what)

    def finish(self, end_offset: int) -> Iterator[Finding]:
        for entry in self._entries or ():
            if entry.start_offset > end_offset:
                where = f"begins at offset {entry.start_offset}, the log ends at {end_offset}"
                about = f"epoch {entry.epoch}"
                yield Finding(self._path, -1, f"{about} {where}", f"{about} {BEYOND_END}")
