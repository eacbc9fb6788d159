"""Condenses a verified segment to what the rules between segments need: few rows for many batches.

Whether epochs, producers and offsets continue from one segment to the next must be checked in
order; reading and decoding the batches, which is nearly all of the work, can be done for segments
in parallel, and produces a digest of each. A digest's tables replace those of the segment: the
rules find in them exactly what they would find in the originals.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...format.files.names import FileKind
from ...format.layout import CONTROL_MASK, NO_PRODUCER_ID, TRANSACTIONAL_MASK
from ...format.messages.control import EndTxnMarker
from ...format.records import batch as b
from ...format.records.batch import BatchHeader, BatchTable, Int64s
from ..txn_index import AbortedTxn
from .verify import SegmentCheck, SegmentFacts
from .verify_index import Finding

# Number of batches in a producer's state (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
_LAST_BATCHES = 5


class CheckedSegment(Protocol):
    """The interface that the rules between segments need; see SegmentCheck."""

    findings: list[Finding]
    next_offset: int
    faults: int
    path: str

    def tables(self) -> Iterator[BatchTable]: ...
    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None: ...
    def add_finding(self, header: BatchHeader, what: str) -> None: ...
    def aborted(self) -> list[tuple[int, AbortedTxn]]: ...


@dataclass(frozen=True, slots=True)
class SegmentDigest:
    """The digest of a verified segment. `tables`: for each table, the number of faults before it
    and its rows. `markers`: the markers in its control batches, by base offset."""

    path: str
    findings: tuple[Finding, ...]
    next_offset: int
    faults: int
    tables: tuple[tuple[int, Int64s], ...]
    markers: dict[int, EndTxnMarker | None]
    aborted: tuple[tuple[int, AbortedTxn], ...]

    @classmethod
    def of(cls, check: SegmentCheck, facts: SegmentFacts, stops: Sequence[int]) -> SegmentDigest:
        """Runs a check. `stops`: offsets that the rules examine individually, such as those of
        snapshots. Raises SegmentGone if a file no longer exists."""
        tables: list[tuple[int, Int64s]] = []
        markers: dict[int, EndTxnMarker | None] = {}
        for table in check.tables():
            for header in table.select(table.flagged(CONTROL_MASK)):
                markers[header.base_offset] = check.read_marker(header)
            tables.append((check.faults, condensed(table, stops).rows))
        entries = check.aborted() if FileKind.TXNINDEX in facts.files else []
        return cls(
            check.path,
            tuple(check.findings),
            check.next_offset,
            check.faults,
            tuple(tables),
            markers,
            tuple(entries),
        )

    def as_json(self) -> dict[str, Any]:
        """Returns a value for `from_json`, to be stored in a file."""
        return {
            "path": self.path,
            "findings": [astuple(each) for each in self.findings],
            "next_offset": self.next_offset,
            "faults": self.faults,
            "tables": [
                (faults, base64.b64encode(rows.astype("<i8").tobytes()).decode())
                for faults, rows in self.tables
            ],
            "markers": [
                (offset, marker and astuple(marker)) for offset, marker in self.markers.items()
            ],
            "aborted": [(position, astuple(entry)) for position, entry in self.aborted],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SegmentDigest:
        columns = BatchTable.empty().rows.shape[1]
        return cls(
            value["path"],
            tuple(Finding(*each) for each in value["findings"]),
            value["next_offset"],
            value["faults"],
            tuple(
                (faults, np.frombuffer(base64.b64decode(rows), "<i8").reshape(-1, columns))
                for faults, rows in value["tables"]
            ),
            {offset: marker and EndTxnMarker(*marker) for offset, marker in value["markers"]},
            tuple((position, AbortedTxn(*entry)) for position, entry in value["aborted"]),
        )


class DigestCheck:
    """Replaces the SegmentCheck that a digest was made from."""

    def __init__(self, digest: SegmentDigest) -> None:
        self.findings = list(digest.findings)
        self.next_offset = digest.next_offset
        self.faults = 0
        self.path = digest.path
        self._digest = digest

    def tables(self) -> Iterator[BatchTable]:
        for faults, rows in self._digest.tables:
            self.faults = faults
            yield BatchTable(rows)
        self.faults = self._digest.faults

    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None:
        return self._digest.markers[header.base_offset]

    def add_finding(self, header: BatchHeader, what: str) -> None:
        about = f"batch {header.base_offset}-{header.last_offset}"
        self.findings.append(Finding(self.path, header.position, f"{about}: {what}"))

    def aborted(self) -> list[tuple[int, AbortedTxn]]:
        return list(self._digest.aborted)


def condensed(table: BatchTable, stops: Sequence[int]) -> BatchTable:
    """Returns the batches that a rule may object to unchanged, and merges each run of other batches
    that follow each other without a gap into one batch without a producer."""
    rows = table.rows
    kept = _ends_of_runs(rows) | _at_stops(rows, stops) | _of_producers(rows, stops)
    kept |= (rows[:, b.MAGIC] < 2) | table.flagged(CONTROL_MASK)
    offsets = rows[:, b.LAST_OFFSET] - rows[:, b.BASE_OFFSET] + 1
    kept |= rows[:, b.RECORD_COUNT] != offsets
    # Each kept row begins a group, and so does the row after one.
    begins = kept | np.concatenate(([True], kept[:-1]))
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(rows)) - 1
    made = rows[firsts].copy()
    joined = ~kept[firsts]
    made[joined, b.LAST_OFFSET] = rows[lasts[joined], b.LAST_OFFSET]
    made[joined, b.RECORD_COUNT] = made[joined, b.LAST_OFFSET] - made[joined, b.BASE_OFFSET] + 1
    made[joined, b.SIZE] = (
        rows[lasts[joined], b.POSITION] + rows[lasts[joined], b.SIZE] - made[joined, b.POSITION]
    )
    made[joined, b.PRODUCER_ID] = NO_PRODUCER_ID
    made[joined, b.ATTRIBUTES] = 0
    return BatchTable(made)


def _ends_of_runs(rows: Int64s) -> NDArray[np.bool_]:
    """Marks the first and last batch of each run in one epoch without a gap."""
    begins: NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = rows[1:, b.LEADER_EPOCH] != rows[:-1, b.LEADER_EPOCH]
    begins[1:] |= rows[1:, b.BASE_OFFSET] != rows[:-1, b.LAST_OFFSET] + 1
    begins[:-1] |= begins[1:].copy()
    begins[-1:] = True
    return begins


def _at_stops(rows: Int64s, stops: Sequence[int]) -> NDArray[np.bool_]:
    """Marks the batches on both sides of each stop."""
    kept = np.zeros(len(rows), dtype=np.bool_)
    for column in (b.BASE_OFFSET, b.LAST_OFFSET):
        at = np.searchsorted(rows[:, column], np.asarray(stops, dtype=np.int64))
        kept[at[at < len(rows)]] = True
        kept[at[at > 0] - 1] = True
    return kept


def _of_producers(rows: Int64s, stops: Sequence[int]) -> NDArray[np.bool_]:
    """Marks, for each producer, the last batches before every marker and every stop, and the first
    batch after it that may begin a transaction."""
    kept = np.zeros(len(rows), dtype=np.bool_)
    known = np.flatnonzero((rows[:, b.PRODUCER_ID] > NO_PRODUCER_ID) & (rows[:, b.MAGIC] > 1))
    if not len(known):
        return kept
    attributes = rows[known, b.ATTRIBUTES]
    stretches = np.cumsum((attributes & CONTROL_MASK) != 0)
    stretches += np.searchsorted(np.sort(stops), rows[known, b.LAST_OFFSET], side="right")
    # Sorted by stretch, then producer, then position.
    order = np.lexsort((known, rows[known, b.PRODUCER_ID], stretches))
    ids, parts = rows[known[order], b.PRODUCER_ID], stretches[order]
    begins = np.flatnonzero(np.diff(ids, prepend=-1) | np.diff(parts, prepend=-1))
    ends = np.append(begins[1:], len(order))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        kept[known[order[max(begin, end - _LAST_BATCHES) : end]]] = True
        transactional = np.flatnonzero(attributes[order[begin:end]] & TRANSACTIONAL_MASK)
        if len(transactional):
            kept[known[order[begin + int(transactional[0])]]] = True
    return kept
