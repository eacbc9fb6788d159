"""One partition held against Kafka's rules: its segments, and what is beside them.

The batches whose checksums are right are believed. From them follow the leader epochs, the state of
the producers at any offset, and which transactions were aborted: snapshots, transaction indexes and
the epoch file are held against that, as far as the log still has what they were made from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ..disk import Directory, Entry
from ..errors import CorruptError, SegmentGone
from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable
from ..format.checkpoints import EpochEntry, parse_leader_epochs
from ..format.control import EndTxnMarker
from ..format.decoder import Decoder
from ..format.names import (
    LEADER_EPOCH_FILE,
    FileKind,
    FileState,
    parse_segment_file,
    segment_file,
)
from ..format.snapshot import ENTRY, HEADER, ProducerSnapshotEntry, parse_producer_snapshot
from ..segment.txn_index import AbortedTxn
from ..segment.verify import SegmentCheck, SegmentFacts
from ..segment.verify_index import Finding
from .context import ReadLimits
from .epochs import LeaderEpochs
from .producer_rebuild import MAX_SNAPSHOT_BYTES
from .producers import Producers

_MAX_EPOCHS_BYTES = 16 << 20
_INDEXES = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)
# No producer has expired at a time before all times.
_BEFORE_ALL_MS = -(1 << 62)


class LogCheck:
    """A partition while it is gone through.

    When `findings` is used up, `base_offset` and `end_offset` say which offsets its segments hold.
    """

    def __init__(
        self,
        directory: Directory,
        start_offset: int,
        is_closed: bool,
        may_have_gaps: bool,
        limits: ReadLimits,
    ) -> None:
        """`start_offset`: the log's, as checkpointed. `is_closed`: the last stop was a clean one.
        `may_have_gaps`: the log is compacted, or may be, so that a missing offset means nothing."""
        self.base_offset = self.end_offset = 0
        self._directory = directory
        self._start_offset = start_offset
        self._is_closed = is_closed
        self._may_have_gaps = may_have_gaps
        self._limits = limits
        self._decoder = Decoder(limits.max_batch_bytes)

    def findings(self) -> Iterator[Finding]:
        """All that is wrong, file by file. SegmentGone when the directory has gone."""
        listed = _Listed()
        for entry in self._directory.list(lambda name: name.endswith(FileKind.LOG)):
            listed.add(entry)
        yield from self._orphans(listed)
        epochs = EpochCheck(self._directory, self._start_offset)
        yield from epochs.read()
        bases = sorted(listed.sizes)
        self.base_offset = self.end_offset = bases[0] if bases else 0
        producers = ProducerCheck(self._directory, listed.snapshots, self.base_offset)
        gaps = _Gaps(self.base_offset)
        for base, next_base in zip(bases, [*bases[1:], -1], strict=False):
            is_closed = self._is_closed or next_base >= 0
            files = frozenset(kind for kind in _INDEXES if base in listed.files[kind])
            facts = SegmentFacts(base, listed.sizes[base], next_base, is_closed, files)
            yield from self._segment(facts, epochs, producers, gaps)
        yield from epochs.finish(self.end_offset)
        yield from producers.finish(self.end_offset)
        if not self._may_have_gaps:
            yield from gaps.findings()

    def _segment(
        self, facts: SegmentFacts, epochs: EpochCheck, producers: ProducerCheck, gaps: _Gaps
    ) -> Iterator[Finding]:
        limit = self._limits.max_batch_bytes
        check = SegmentCheck(self._directory, facts, self._decoder, limit)
        aborts: _Aborts = _Aborts()
        for table in check.tables():
            gaps.batches(check, table)
            epochs.batches(check, table)
            producers.batches(check, table, aborts, gaps.has_all)
        gaps.end_of(check)
        self.end_offset = check.next_offset
        entries = check.aborted() if FileKind.TXNINDEX in facts.files else []
        knows_all = gaps.has_all and producers.knows_all
        check.findings += aborts.held_against(entries, facts, check, knows_all)
        yield from sorted(check.findings)

    def _orphans(self, listed: _Listed) -> Iterator[Finding]:
        for entry in listed.no_files:
            what = f"a {entry.kind}, not a regular file"
            yield Finding(self._directory.path_of(entry.name), -1, what)
        for kind in _INDEXES:
            for base in sorted(listed.files[kind] - listed.sizes.keys()):
                name = segment_file(base, kind)
                yield Finding(self._directory.path_of(name), -1, "there is no .log to it")


class _Listed:
    """The files of a partition that count: `sizes` of the logs by base offset, the base offsets of
    the `files` of each kind, the offsets of the `snapshots`; and what is no file."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.files: dict[FileKind, set[int]] = {kind: set() for kind in FileKind}
        self.no_files: list[Entry] = []

    @property
    def snapshots(self) -> list[int]:
        return sorted(self.files[FileKind.SNAPSHOT])

    def add(self, entry: Entry) -> None:
        name = parse_segment_file(entry.name)
        if name is None or name.state is not FileState.LIVE:
            return
        if not entry.is_file:
            self.no_files.append(entry)
            return
        self.files[name.kind].add(name.base_offset)
        if name.kind is FileKind.LOG:
            assert entry.stat is not None  # asked for
            self.sizes[name.base_offset] = entry.stat.st_size


class _Gaps:
    """Offsets that no batch has, though nothing was seen of compaction. `has_all`: every offset so
    far has its record."""

    def __init__(self, base_offset: int) -> None:
        self.has_all = True
        self._next = base_offset
        self._found: list[Finding] = []
        self._is_compacted = False
        self._is_behind_damage = False
        self._faults = 0  # seen in the present segment

    def batches(self, check: SegmentCheck, table: BatchTable) -> None:
        bases, lasts = table.column(b.BASE_OFFSET), table.column(b.LAST_OFFSET)
        counts = table.column(b.RECORD_COUNT)
        self._is_behind_damage |= check.faults > self._faults
        self._faults = check.faults
        before = np.concatenate(([self._next - 1], lasts[:-1]))
        # A wrapper tells neither its first offset nor how many it has.
        is_wrapper = counts < 0
        missing = np.flatnonzero((bases != before + 1) & ~is_wrapper)
        if (is_wrapper | (counts != lasts - bases + 1)).any():
            self._is_compacted, self.has_all = True, False
        for row in missing.tolist():
            self.has_all = False
            if row or not self._is_behind_damage:
                first, last = int(before[row]) + 1, int(bases[row]) - 1
                what = f"the offsets {first} to {last} in front of it are in no batch"
                self._found.append(Finding(check.path, int(table.rows[row, b.POSITION]), what))
        self._is_behind_damage = False
        self._next = int(lasts[-1]) + 1

    def end_of(self, check: SegmentCheck) -> None:
        """A segment has been gone through."""
        self._is_behind_damage |= check.faults > self._faults
        self._faults = 0
        self.has_all &= check.faults == 0

    def findings(self) -> list[Finding]:
        return [] if self._is_compacted else self._found


class EpochCheck:
    """The `leader-epoch-checkpoint`, and the epochs in the batches."""

    def __init__(self, directory: Directory, start_offset: int) -> None:
        """In front of `start_offset` epochs have been forgotten. So they have in front of the first
        entry: the log's start goes up in the file first, and in its own checkpoint later, so that a
        crash may bring back what was deleted."""
        self._directory = directory
        self._start_offset = start_offset
        self._path = directory.path_of(LEADER_EPOCH_FILE)
        self._entries: list[EpochEntry] | None = None
        self._latest = -1

    def read(self) -> Iterator[Finding]:
        """What is wrong with the file by itself."""
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

    def batches(self, check: SegmentCheck, table: BatchTable) -> None:
        epochs = table.column(b.LEADER_EPOCH)
        is_served = table.column(b.BASE_OFFSET) >= self._first_offset()
        rows = np.flatnonzero((table.column(b.MAGIC) > 1) & (epochs >= 0) & is_served)
        if not len(rows):
            return
        found = epochs[rows]
        changes = np.flatnonzero(np.diff(found, prepend=-2))
        ends = np.append(changes[1:], len(rows)) - 1
        known = None if self._entries is None else LeaderEpochs.assigned(self._entries)
        for first, last in zip(rows[changes].tolist(), rows[ends].tolist(), strict=True):
            header = table[first]
            if header.leader_epoch < self._latest:
                what = f"leader epoch {header.leader_epoch} after epoch {self._latest}"
                check.findings.append(_of_batch(check, header, what))
            self._latest = max(self._latest, header.leader_epoch)
            if known is not None:
                self._compare(check, known, header)
                if last > first:
                    self._compare(check, known, table[last])

    def _first_offset(self) -> int:
        """Below it nothing is known."""
        first = self._entries[0].start_offset if self._entries else 0
        return max(self._start_offset, first)

    @staticmethod
    def _compare(check: SegmentCheck, known: LeaderEpochs, header: BatchHeader) -> None:
        told = known.epoch_of(header.base_offset)
        if told == header.leader_epoch:
            told = known.epoch_of(header.last_offset)
        if told != header.leader_epoch:
            says = f"epoch {told}" if told >= 0 else "none"
            what = f"leader epoch {header.leader_epoch}, {LEADER_EPOCH_FILE} says {says}"
            check.findings.append(_of_batch(check, header, what))

    def finish(self, end_offset: int) -> Iterator[Finding]:
        for entry in self._entries or ():
            if entry.start_offset > end_offset:
                where = f"begins at offset {entry.start_offset}, the log ends at {end_offset}"
                yield Finding(self._path, -1, f"epoch {entry.epoch} {where}")


@dataclass(slots=True)
class _Aborts:
    """The transactions that a segment's markers end: of whom, by the marker's offset. `aborted` are
    those that the log says a reader must be told of."""

    ends: dict[int, tuple[int, bool]] = field(default_factory=dict)
    aborted: dict[int, AbortedTxn] = field(default_factory=dict)

    def held_against(
        self,
        entries: list[tuple[int, AbortedTxn]],
        facts: SegmentFacts,
        check: SegmentCheck,
        knows_all: bool,
    ) -> Iterator[Finding]:
        """The `.txnindex` against what the log says. `knows_all`: it has all that the entries were
        made from; else a transaction may have begun in front of it."""
        path = check.path.removesuffix(FileKind.LOG) + FileKind.TXNINDEX
        before = facts.base_offset - 1
        for position, entry in entries:
            what = self._wrong(entry, before, check, knows_all)
            if what:
                about = f"entry of producer {entry.producer_id}, marker at {entry.last_offset}"
                yield Finding(path, position, f"{about}: {what}")
            before = max(before, entry.last_offset)
        told = {entry.last_offset for _, entry in entries}
        for offset, txn in self.aborted.items():
            if offset not in told and check.faults == 0:
                what = (
                    f"no entry for the transaction of producer {txn.producer_id}, aborted from "
                    f"offset {txn.first_offset} to {offset}"
                )
                yield Finding(path, -1, what)

    def _wrong(self, entry: AbortedTxn, before: int, check: SegmentCheck, knows_all: bool) -> str:
        if entry.last_offset <= before:
            return f"it does not lie behind offset {before}"
        if not 0 <= entry.first_offset < entry.last_offset:
            return f"it begins at offset {entry.first_offset}"
        if check.faults == 0 and self.ends.get(entry.last_offset) != (entry.producer_id, True):
            return "there is no ABORT marker of it"
        right = self.aborted.get(entry.last_offset)
        if knows_all and right is not None and right != entry:
            return (
                f"first offset {entry.first_offset} and last stable offset "
                f"{entry.last_stable_offset}, the log says {right.first_offset} and "
                f"{right.last_stable_offset}"
            )
        return ""


class ProducerCheck:
    """The snapshots, against the producers that the batches tell of. `knows_all`: no producer is
    missing, nor the beginning of a transaction."""

    def __init__(self, directory: Directory, offsets: list[int], base_offset: int) -> None:
        self._directory = directory
        self._producers = Producers()
        self._pending = offsets
        self._findings: list[Finding] = []
        # All producers are known if the log has its beginning, or what was known at its start.
        self.knows_all = base_offset == 0
        while self._pending and self._pending[0] <= base_offset:
            offset = self._pending.pop(0)
            data = self._read(offset)
            if offset == base_offset and data is not None:
                self._producers.load(data, offset, _BEFORE_ALL_MS)
                self.knows_all = True

    def batches(
        self, check: SegmentCheck, table: BatchTable, aborts: _Aborts, has_all: bool
    ) -> None:
        """`has_all`: all offsets up to here have been seen."""
        new = table.select(table.column(b.MAGIC) > 1)

        def read_marker(header: BatchHeader) -> EndTxnMarker | None:
            marker = check.read_marker(header)
            if marker is not None:
                aborts.ends[header.base_offset] = (header.producer_id, not marker.is_commit)
            elif header.record_count:
                check.findings.append(_of_batch(check, header, "no transaction marker in it"))
            return marker

        def replay(part: BatchTable) -> None:
            found = self._producers.replay(part, read_marker)
            aborts.aborted.update({txn.last_offset: txn for txn in found})

        last_offsets = new.column(b.LAST_OFFSET)
        done = 0
        self.knows_all &= has_all
        highest = int(table.rows[-1, b.LAST_OFFSET])
        while self._pending and self._pending[0] <= highest:
            stop = int(np.searchsorted(last_offsets, self._pending[0]))
            replay(new.select(slice(done, stop)))
            done = stop
            self._check_snapshot(self._pending.pop(0))
        replay(new.select(slice(done, len(new))))

    def finish(self, end_offset: int) -> list[Finding]:
        """All that is wrong with the snapshots."""
        for offset in self._pending:
            if offset <= end_offset:  # behind the last batch, segments may be empty
                self._check_snapshot(offset)
            elif self._read(offset) is not None:
                self._find(offset, -1, f"the log ends at offset {end_offset}")
        return self._findings

    def _check_snapshot(self, offset: int) -> None:
        """The snapshot of the offset that the producers have been replayed up to."""
        data = self._read(offset)
        if data is None or not self.knows_all:
            return
        entries = parse_producer_snapshot(data)
        for number, entry in enumerate(entries):
            what = self._wrong(entry)
            if what:
                position = HEADER.size + number * ENTRY.size
                self._find(offset, position, f"producer {entry.producer_id}: {what}")
        told = {entry.producer_id for entry in entries}
        for txn in self._producers.open_transactions():
            if txn.producer_id not in told:
                what = f"its transaction, open since offset {txn.first_offset}, is not there"
                self._find(offset, -1, f"producer {txn.producer_id}: {what}")

    def _wrong(self, entry: ProducerSnapshotEntry) -> str:
        """What differs from the log, "" when nothing does. A producer that was forgotten for a
        while has lost its coordinator's epoch."""
        state = self._producers.state(entry.producer_id)
        if state is None:
            return "the log has no batch of it"
        right = state.to_snapshot()
        if entry.coordinator_epoch < 0:
            right = replace(right, coordinator_epoch=entry.coordinator_epoch)
        differing = [
            f"{name.replace('_', ' ')} {getattr(entry, name)}, the log says {getattr(right, name)}"
            for name in ProducerSnapshotEntry.__dataclass_fields__
            if getattr(entry, name) != getattr(right, name)
        ]
        return "; ".join(differing)

    def _read(self, offset: int) -> bytes | None:
        """The bytes of a snapshot, None when it cannot be read; that is a finding."""
        name = segment_file(offset, FileKind.SNAPSHOT)
        try:
            data = self._directory.read_small(name, MAX_SNAPSHOT_BYTES)
            parse_producer_snapshot(data)
        except CorruptError as error:
            self._find(offset, error.position, error.what)
            return None
        return data

    def _find(self, offset: int, position: int, what: str) -> None:
        path = self._directory.path_of(segment_file(offset, FileKind.SNAPSHOT))
        self._findings.append(Finding(path, position, what))


def _of_batch(check: SegmentCheck, header: BatchHeader, what: str) -> Finding:
    about = f"batch {header.base_offset}-{header.last_offset}"
    return Finding(check.path, header.position, f"{about}: {what}")
