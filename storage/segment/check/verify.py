"""Verifies the batches, records and indexes of one segment.

Each finding has a file and a position. The walk continues after damage in the `.log`, and indexes
are checked against the readable part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...concurrency.read_ahead import read_ahead
from ...errors import CorruptError
from ...format.files.names import FileKind, segment_file
from ...format.layout import MAX_INT32, MAX_OFFSET, TIMESTAMP_TYPE_MASK
from ...format.messages.control import EndTxnMarker, parse_end_txn_marker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable
from ...format.records.columns import Columns
from ...format.records.decoder import BadBatch, Decoder
from ...io.directory import Directory
from ...io.preallocated import is_preallocated
from ..extent import Extent, Fault
from ..rebuild import large_batch
from ..txn_index import ENTRY, AbortedTxn, TransactionIndex
from ..walk import BatchRun, read_runs
from .verify_index import Finding, OffsetIndexCheck, TimeIndexCheck


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """A segment as the directory lists it. `next_base`: the base offset of the next segment, -1 for
    the last. `is_closed`: rolled, or the last of a log that was closed cleanly. `files`: the kinds
    of files that exist."""

    base_offset: int
    size: int
    next_base: int
    is_closed: bool
    files: frozenset[FileKind]


class SegmentCheck:
    """The verification of one segment.

    `tables` yields its batches; `findings`, which is unordered, is complete once `tables` is
    exhausted. `next_offset` is the offset after the last batch so far, `faults` the number of
    unreadable ranges so far.
    """

    def __init__(
        self,
        directory: Directory,
        facts: SegmentFacts,
        decoder: Decoder,
        max_batch_bytes: int,
    ) -> None:
        """`max_batch_bytes` is the decoder's limit; of larger batches, only the CRC is checked."""
        self.findings: list[Finding] = []
        self.next_offset = facts.base_offset
        self.faults = 0
        self._directory = directory
        self._facts = facts
        self._decoder = decoder
        self._max_batch_bytes = max_batch_bytes
        self._log_name = segment_file(facts.base_offset, FileKind.LOG)
        self.path = directory.path_of(self._log_name)
        self._run: BatchRun | None = None
        self._indexes: list[OffsetIndexCheck | TimeIndexCheck] = []
        self._open_indexes()

    def tables(self) -> Iterator[BatchTable]:
        """Yields the readable batches in order."""
        facts = self._facts
        highest = min(facts.base_offset + MAX_INT32 + 1, MAX_OFFSET)
        limit = highest if facts.next_base < 0 else min(highest, facts.next_base)
        file = self._directory.open(self._log_name)
        limit_bytes = self._max_batch_bytes
        # A broker appends to the log before it appends to an index. The indexes have been read
        # already, so the log up to this end has everything that they point to.
        end = file.size()
        extent = Extent(file, facts.base_offset, 0, end, limit_bytes, -1, limit)
        for part in read_ahead(read_runs(extent, stay_valid=True)):
            if isinstance(part, BatchRun):
                self._run = part
                self._check_records(part)
                yield self._taken(part.table)
            elif (large := large_batch(replace(extent, start=part.error.position))) is not None:
                self._run = None
                yield self._taken(large)
            elif not self._is_preallocated(part, extent):
                self._note_fault(part)
        for index in self._indexes:
            self.findings += index.finish(self.next_offset)

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        """Returns the marker in a control batch of the table yielded last."""
        if self._run is None:
            return None
        at = header.position - self._run.base
        return parse_end_txn_marker(self._run.data[at : at + header.size])

    def add_finding(self, header: BatchHeader, what: str) -> None:
        """Adds a finding about a batch."""
        about = f"batch {header.base_offset}-{header.last_offset}"
        self.findings.append(Finding(self.path, header.position, f"{about}: {what}"))

    def aborted(self) -> list[tuple[int, AbortedTxn]]:
        """Returns the entries of the `.txnindex` with their positions; adds findings about problems
        of the file itself."""
        name = segment_file(self._facts.base_offset, FileKind.TXNINDEX)
        index = TransactionIndex.open(self._directory, name)
        entries: list[tuple[int, AbortedTxn]] = []
        try:
            for entry in index.entries():
                entries.append((len(entries) * ENTRY.size, entry))
        except CorruptError as error:
            self.findings.append(Finding(index.path, error.position, error.what))
        if index.has_stray_bytes:
            what = f"it does not end with a whole entry of {ENTRY.size} bytes"
            self.findings.append(Finding(index.path, len(index) * ENTRY.size, what))
        return entries

    def _open_indexes(self) -> None:
        for kind, check in (
            (FileKind.INDEX, OffsetIndexCheck),
            (FileKind.TIMEINDEX, TimeIndexCheck),
        ):
            facts, name = self._facts, segment_file(self._facts.base_offset, kind)
            if kind in facts.files:
                file = self._directory.open(name)
                self._indexes.append(check(file, facts.base_offset, facts.is_closed))
            elif facts.size and self._directory.has_indexes(self._log_name):
                self.findings.append(Finding(self._directory.path_of(name), -1, "missing"))

    def _taken(self, table: BatchTable) -> BatchTable:
        for index in self._indexes:
            index.batches(table)
        self.next_offset = int(table.rows[-1, b.LAST_OFFSET]) + 1
        return table

    def _is_preallocated(self, fault: Fault, extent: Extent) -> bool:
        is_at_end = fault.reaches(extent.end) and self._facts.next_base < 0
        if not is_at_end or self._facts.is_closed:
            return False
        return is_preallocated(self._directory, extent.file, fault.error.position, extent.end)

    def _note_fault(self, fault: Fault) -> None:
        self.faults += 1
        self._find(fault.error)
        for index in self._indexes:
            index.lost(fault.resume)

    def _find(self, error: CorruptError) -> None:
        self.findings.append(Finding(self.path, error.position, error.what))

    def _check_records(self, run: BatchRun) -> None:
        for part in self._decoder.decode(run.data, run.base, run.table, self.path):
            if isinstance(part, BadBatch):
                self._find(part.error)
            else:
                self._check_timestamps(part)

    def _check_timestamps(self, columns: Columns) -> None:
        """Checks a header's largest timestamp against the records, if those have their own."""
        batches = columns.batches
        filled = np.flatnonzero(np.diff(columns.first_row))
        if not len(filled):
            return
        largest = np.maximum.reduceat(columns.timestamps, columns.first_row[filled])
        told = batches.column(b.MAX_TIMESTAMP)[filled]
        own = (batches.column(b.ATTRIBUTES)[filled] & TIMESTAMP_TYPE_MASK) == 0
        own &= batches.column(b.MAGIC)[filled] > 0
        for number in np.flatnonzero(own & (told != largest)).tolist():
            header = batches[int(filled[number])]
            says = f"{int(largest[number])}, its header says {header.max_timestamp}"
            self.add_finding(header, f"its largest timestamp is {says}")
