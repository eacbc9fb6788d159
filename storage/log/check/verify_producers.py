"""Compares the producers in a partition's snapshots, and the aborted transactions in its
transaction indexes, with those in its batches.

After a crash Kafka rebuilds both from the log start offset on, though segments below it may still
exist. A producer's batches below it may or may not be included; a transaction whose records are all
deleted has no entry, and another may seem to begin at its first remaining record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import CorruptError
from ...format.files.names import FileKind, segment_file
from ...format.files.snapshot import ENTRY, HEADER, ProducerSnapshotEntry, parse_producer_snapshot
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...io.directory import Directory
from ...segment.check.verify import SegmentFacts
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import BEYOND_END, Finding
from ...segment.txn_index import AbortedTxn
from ..state.producers import ProducerStateManager
from ..state.snapshots import read_snapshot

# With this time as the present, no producer has expired.
_BEFORE_ALL_MS = -(1 << 62)


@dataclass(slots=True)
class AbortCheck:
    """The check of a segment's `.txnindex`.

    Collects the transactions that a segment's markers end: producer and outcome by marker offset.
    `aborted`: those that need an entry according to the log; `without_records`: the markers of
    those whose records all lie below the log start offset."""

    start_offset: int
    ends: dict[int, tuple[int, bool]] = field(default_factory=dict)
    aborted: dict[int, AbortedTxn] = field(default_factory=dict)
    without_records: set[int] = field(default_factory=set)

    def findings(
        self,
        entries: list[tuple[int, AbortedTxn]],
        facts: SegmentFacts,
        check: CheckedSegment,
        knows_all: bool,
    ) -> Iterator[Finding]:
        """Compares the `.txnindex` with the log. `knows_all`: the log has everything that the
        entries were made from; otherwise a transaction may have begun before it."""
        path = check.path.removesuffix(FileKind.LOG) + FileKind.TXNINDEX
        before = facts.base_offset - 1
        for position, entry in entries:
            what = self._wrong(entry, before, check, knows_all)
            if what:
                about = f"entry of producer {entry.producer_id}, marker at {entry.last_offset}"
                yield Finding(path, position, f"{about}: {what}")
            before = max(before, entry.last_offset)
        recorded = {entry.last_offset for _, entry in entries} | self.without_records
        for offset, txn in self.aborted.items():
            if offset not in recorded and check.faults == 0:
                what = (
                    f"no entry for the transaction of producer {txn.producer_id}, aborted from "
                    f"offset {txn.first_offset} to {offset}"
                )
                yield Finding(path, -1, what)

    def _wrong(self, entry: AbortedTxn, before: int, check: CheckedSegment, knows_all: bool) -> str:
        if entry.last_offset <= before:
            return f"it is not above offset {before}"
        if not 0 <= entry.first_offset < entry.last_offset:
            return f"it begins at offset {entry.first_offset}"
        if check.faults == 0 and self.ends.get(entry.last_offset) != (entry.producer_id, True):
            return "it has no ABORT marker"
        right = self.aborted.get(entry.last_offset)
        if knows_all and right is not None and right != entry and not self._may_differ(right):
            return (
                f"first offset {entry.first_offset} and last stable offset "
                f"{entry.last_stable_offset}, the log says {right.first_offset} and "
                f"{right.last_stable_offset}"
            )
        return ""

    def _may_differ(self, right: AbortedTxn) -> bool:
        return min(right.first_offset, right.last_stable_offset) < self.start_offset


class ProducerCheck:
    """The check of the snapshots against the batches. `knows_all`: no producer is missing, nor the
    beginning of a transaction."""

    def __init__(
        self, directory: Directory, offsets: list[int], base_offset: int, start_offset: int
    ) -> None:
        self._start_offset = start_offset
        self._directory = directory
        self._producers = ProducerStateManager()
        self._pending = offsets
        self._findings: list[Finding] = []
        # All producers are known if the log is complete, or if there is a snapshot at its start.
        self.knows_all = base_offset == 0
        while self._pending and self._pending[0] <= base_offset:
            offset = self._pending.pop(0)
            data = self._read(offset)
            if offset == base_offset and data is not None:
                self._producers.load(data, offset, _BEFORE_ALL_MS)
                self.knows_all = True

    def batches(
        self, check: CheckedSegment, table: BatchTable, aborts: AbortCheck, has_all: bool
    ) -> None:
        """Adds batches. `has_all`: all offsets up to here have been seen."""
        new = table.select(table.column(b.MAGIC) > 1)

        def read_marker(header: BatchHeader) -> EndTxnMarker | None:
            marker = check.read_marker(header)
            state = self._producers.state(header.producer_id)
            if state is not None and state.last_offset < self._start_offset:
                aborts.without_records.add(header.base_offset)
            if marker is not None:
                aborts.ends[header.base_offset] = (header.producer_id, not marker.is_commit)
            elif header.record_count:
                check.add_finding(header, "it has no transaction marker")
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
        """Returns everything that is wrong with the snapshots."""
        for offset in self._pending:
            if offset <= end_offset:  # empty segments may follow the last batch
                self._check_snapshot(offset)
            elif self._read(offset) is not None:
                self._find(offset, -1, f"the log ends at offset {end_offset}", BEYOND_END)
        return self._findings

    def _check_snapshot(self, offset: int) -> None:
        """Checks the snapshot at the offset up to which the producers were replayed."""
        data = self._read(offset)
        if data is None or not self.knows_all:
            return
        entries = parse_producer_snapshot(data)
        for number, entry in enumerate(entries):
            what = self._wrong(entry)
            if what:
                position = HEADER.size + number * ENTRY.size
                self._find(offset, position, f"producer {entry.producer_id}: {what}")
        recorded = {entry.producer_id for entry in entries}
        for txn in self._producers.open_transactions():
            state = self._producers.state(txn.producer_id)
            assert state is not None  # it has a transaction
            if txn.producer_id not in recorded and state.last_offset >= self._start_offset:
                what = f"its transaction, open since offset {txn.first_offset}, is missing"
                self._find(offset, -1, f"producer {txn.producer_id}: {what}")

    def _wrong(self, entry: ProducerSnapshotEntry) -> str:
        """Returns how an entry differs from the log, "" if it does not. A producer that was
        forgotten for a while has lost its coordinator epoch."""
        state = self._producers.state(entry.producer_id)
        if state is None:
            return "the log has none of its batches"
        if state.last_offset < self._start_offset:
            return ""
        right = state.to_snapshot()
        if right.current_txn_first_offset < self._start_offset <= entry.current_txn_first_offset:
            right = replace(right, current_txn_first_offset=entry.current_txn_first_offset)
        if entry.coordinator_epoch < 0:
            right = replace(right, coordinator_epoch=entry.coordinator_epoch)
        differing = [
            f"{name.replace('_', ' ')} {getattr(entry, name)}, the log says {getattr(right, name)}"
            for name in ProducerSnapshotEntry.__dataclass_fields__
            if getattr(entry, name) != getattr(right, name)
        ]
        return "; ".join(differing)

    def _read(self, offset: int) -> bytes | None:
        """Reads a snapshot; None, after adding a finding, if it cannot be read."""
        try:
            data = read_snapshot(self._directory, offset)
            parse_producer_snapshot(data)
        except CorruptError as error:
            self._find(offset, error.position, error.what)
            return None
        return data

    def _find(self, offset: int, position: int, what: str, lasting: str = "") -> None:
        path = self._directory.path_of(segment_file(offset, FileKind.SNAPSHOT))
        self._findings.append(Finding(path, position, what, lasting))
