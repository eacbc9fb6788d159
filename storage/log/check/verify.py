"""Verifies one partition against Kafka's rules: its segments and the files beside them.

Batches with correct checksums are trusted. They determine the leader epochs, the producer state at
any offset, and which transactions were aborted: snapshots, transaction indexes and the epoch file
are compared with that, as far as the log still has the batches they were derived from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...errors import CorruptError, SegmentGone
from ...format.files.checkpoints import EpochEntry
from ...format.files.names import (
    LEADER_EPOCH_FILE,
    FileKind,
    segment_file,
)
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.decoder import Decoder
from ...io.directory import Directory
from ...segment.check.verify import SegmentCheck, SegmentFacts
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import BEYOND_END, Finding
from ..read.context import ReadLimits
from ..state.epochs import LeaderEpochFileCache, read_epoch_entries
from .partition_listing import INDEXES, PartitionListing
from .verify_producers import AbortCheck, ProducerCheck

# Returns a segment that was already checked, None if there is none.
FindChecked = Callable[[SegmentFacts], CheckedSegment | None]


class LogCheck:
    """A partition being verified.

    Once `findings` is exhausted, [`base_offset`, `end_offset`) is the range of its segments.
    """

    def __init__(
        self,
        directory: Directory,
        start_offset: int,
        is_closed: bool,
        may_have_gaps: bool,
        limits: ReadLimits,
        find_checked: FindChecked = lambda facts: None,
    ) -> None:
        """`start_offset`: the checkpointed log start offset. `is_closed`: the last shutdown was
        clean. `may_have_gaps`: the log is or may be compacted, so a missing offset means nothing.
        `find_checked` returns segments that need not be read here."""
        self.base_offset = self.end_offset = 0
        self._directory = directory
        self._start_offset = start_offset
        self._is_closed = is_closed
        self._may_have_gaps = may_have_gaps
        self._limits = limits
        self._find_checked = find_checked
        self._decoder = Decoder(limits.max_batch_bytes)

    def findings(self) -> Iterator[Finding]:
        """Yields all problems, file by file. Raises SegmentGone if the directory is gone."""
        listing = PartitionListing(self._directory)
        yield from self._orphans(listing)
        epochs = EpochCheck(self._directory, self._start_offset)
        yield from epochs.read()
        segments = listing.segments(self._is_closed)
        self.base_offset = self.end_offset = segments[0].base_offset if segments else 0
        producers = ProducerCheck(
            self._directory, listing.snapshots, self.base_offset, self._start_offset
        )
        gaps = Gaps(self.base_offset)
        for facts in segments:
            yield from self._segment(facts, epochs, producers, gaps)
        yield from epochs.finish(self.end_offset)
        yield from producers.finish(self.end_offset)
        if not self._may_have_gaps:
            yield from gaps.findings()

    def _segment(
        self, facts: SegmentFacts, epochs: EpochCheck, producers: ProducerCheck, gaps: Gaps
    ) -> Iterator[Finding]:
        check = self._find_checked(facts) or SegmentCheck(
            self._directory, facts, self._decoder, self._limits.max_batch_bytes
        )
        aborts = AbortCheck(self._start_offset)
        for table in check.tables():
            gaps.batches(check, table)
            epochs.batches(check, table)
            producers.batches(check, table, aborts, gaps.has_all)
        gaps.end_of(check)
        self.end_offset = check.next_offset
        entries = check.aborted() if FileKind.TXNINDEX in facts.files else []
        knows_all = gaps.has_all and producers.knows_all
        check.findings += aborts.findings(entries, facts, check, knows_all)
        yield from sorted(check.findings)

    def _orphans(self, listing: PartitionListing) -> Iterator[Finding]:
        for entry in listing.no_files:
            what = f"a {entry.kind}, not a regular file"
            yield Finding(self._directory.path_of(entry.name), -1, what)
        for kind in INDEXES:
            for base in sorted(listing.files[kind] - listing.sizes.keys()):
                name = segment_file(base, kind)
                yield Finding(self._directory.path_of(name), -1, "its .log is missing")


class EpochCheck:
    """The check of `leader-epoch-checkpoint` against the epochs in the batches."""

    def __init__(self, directory: Directory, start_offset: int) -> None:
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
            self._entries = read_epoch_entries(self._directory)
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
                check.add_finding(header, what)
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
        recorded = known.epoch_of(header.base_offset)
        if recorded == header.leader_epoch:
            recorded = known.epoch_of(header.last_offset)
        if recorded != header.leader_epoch:
            says = f"epoch {recorded}" if recorded >= 0 else "none"
            what = f"leader epoch {header.leader_epoch}, {LEADER_EPOCH_FILE} says {says}"
            check.add_finding(header, what)

    def finish(self, end_offset: int) -> Iterator[Finding]:
        for entry in self._entries or ():
            if entry.start_offset > end_offset:
                where = f"begins at offset {entry.start_offset}, the log ends at {end_offset}"
                about = f"epoch {entry.epoch}"
                yield Finding(self._path, -1, f"{about} {where}", f"{about} {BEYOND_END}")


class Gaps:
    """Offsets that are in no batch, though there is no sign of compaction. `has_all`: every offset
    so far has its record."""

    def __init__(self, base_offset: int) -> None:
        self.has_all = True
        self._next = base_offset
        self._found: list[Finding] = []
        self._is_compacted = False
        self._is_behind_damage = False
        self._faults = 0  # seen in the current segment

    def batches(self, check: CheckedSegment, table: BatchTable) -> None:
        bases, lasts = table.column(b.BASE_OFFSET), table.column(b.LAST_OFFSET)
        counts = table.column(b.RECORD_COUNT)
        self._is_behind_damage |= check.faults > self._faults
        self._faults = check.faults
        before = np.concatenate(([self._next - 1], lasts[:-1]))
        # A wrapper records neither its first offset nor its number of records.
        is_wrapper = counts < 0
        missing = np.flatnonzero((bases != before + 1) & ~is_wrapper)
        if (is_wrapper | (counts != lasts - bases + 1)).any():
            self._is_compacted, self.has_all = True, False
        for row in missing.tolist():
            self.has_all = False
            if row or not self._is_behind_damage:
                first, last = int(before[row]) + 1, int(bases[row]) - 1
                what = f"the offsets {first} to {last} before it are in no batch"
                self._found.append(Finding(check.path, int(table.rows[row, b.POSITION]), what))
        self._is_behind_damage = False
        self._next = int(lasts[-1]) + 1

    def end_of(self, check: CheckedSegment) -> None:
        """Notes the end of a segment."""
        self._is_behind_damage |= check.faults > self._faults
        self._faults = 0
        self.has_all &= check.faults == 0

    def findings(self) -> list[Finding]:
        return [] if self._is_compacted else self._found
