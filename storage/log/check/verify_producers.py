"""Compares the producers in a partition's snapshots with those in its batches.

After a crash Kafka rebuilds them from the log start offset on, though segments below it may still
exist: a producer's batches below it may or may not be included.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...errors import CorruptError
from ...format.files.names import FileKind, segment_file
from ...format.files.snapshot import ENTRY, HEADER, ProducerSnapshotEntry, parse_producer_snapshot
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...io.disk import DirFd
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import BEYOND_END, Finding
from ..load.producer_rebuild import MAX_SNAPSHOT_BYTES
from ..state.producers import ProducerStateManager
from .verify_aborts import Aborts

# With this time as the present, no producer has expired.
_BEFORE_ALL_MS = -(1 << 62)


class ProducerCheck:
    """The check of the snapshots against the batches. `knows_all`: no producer is missing, nor the
    beginning of a transaction."""

    def __init__(
        self, directory: DirFd, offsets: list[int], base_offset: int, start_offset: int
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
        self, check: CheckedSegment, table: BatchTable, aborts: Aborts, has_all: bool
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
                check.tell(header, "it has no transaction marker")
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
        told = {entry.producer_id for entry in entries}
        for txn in self._producers.open_transactions():
            state = self._producers.state(txn.producer_id)
            assert state is not None  # it has a transaction
            if txn.producer_id not in told and state.last_offset >= self._start_offset:
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
        name = segment_file(offset, FileKind.SNAPSHOT)
        try:
            data = self._directory.read_small(name, MAX_SNAPSHOT_BYTES)
            parse_producer_snapshot(data)
        except CorruptError as error:
            self._find(offset, error.position, error.what)
            return None
        return data

    def _find(self, offset: int, position: int, what: str, lasting: str = "") -> None:
        path = self._directory.path_of(segment_file(offset, FileKind.SNAPSHOT))
        self._findings.append(Finding(path, position, what, lasting))
