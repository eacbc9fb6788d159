"""What the rules between segments need of one that was gone through: few rows for many batches.

Whether epochs, producers and offsets go on from one segment to the next is judged in order, which
nobody can do at once for all; reading and decoding the batches, which is nearly all of the work,
can be done for each segment by itself. A digest carries what is left to be judged. Its tables stand
for those of the segment: the rules find in them just what they would find in those.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..format import batch as b
from ..format.batch import BatchHeader, BatchTable, Int64s
from ..format.control import EndTxnMarker
from ..format.layout import CONTROL_MASK, NO_PRODUCER_ID, TRANSACTIONAL_MASK
from ..format.names import FileKind
from .txn_index import AbortedTxn
from .verify import SegmentCheck, SegmentFacts
from .verify_index import Finding

# Of so many batches a producer's state tells (ProducerStateEntry.NUM_BATCHES_TO_RETAIN).
_LAST_BATCHES = 5


class CheckedSegment(Protocol):
    """A segment while the rules between segments are held against it; see SegmentCheck."""

    findings: list[Finding]
    next_offset: int
    faults: int
    path: str

    def tables(self) -> Iterator[BatchTable]: ...
    def read_marker(self, header: BatchHeader) -> EndTxnMarker | None: ...
    def tell(self, header: BatchHeader, what: str) -> None: ...
    def aborted(self) -> list[tuple[int, AbortedTxn]]: ...


@dataclass(frozen=True, slots=True)
class SegmentDigest:
    """A segment gone through. `tables`: faults in front of each, and its rows. `markers`: what its
    control batches say, by base offset."""

    path: str
    findings: tuple[Finding, ...]
    next_offset: int
    faults: int
    tables: tuple[tuple[int, Int64s], ...]
    markers: dict[int, EndTxnMarker | None]
    aborted: tuple[tuple[int, AbortedTxn], ...]

    @classmethod
    def of(cls, check: SegmentCheck, facts: SegmentFacts, stops: Sequence[int]) -> SegmentDigest:
        """Goes through it. `stops`: offsets that the rules look at by themselves, such as those of
        snapshots. SegmentGone."""
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
        """For a file."""
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
    """A digest in the place of the SegmentCheck that it was made from."""

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

    def tell(self, header: BatchHeader, what: str) -> None:
        about = f"batch {header.base_offset}-{header.last_offset}"
        self.findings.append(Finding(self.path, header.position, f"{about}: {what}"))

    def aborted(self) -> list[tuple[int, AbortedTxn]]:
        return list(self._digest.aborted)


def condensed(table: BatchTable, stops: Sequence[int]) -> BatchTable:
    """The batches that a rule may have something to say about as they are; each row of others,
    that follow each other without a gap, as one batch of no producer."""
    rows = table.rows
    kept = _ends_of_runs(rows) | _at_stops(rows, stops) | _of_producers(rows, stops)
    kept |= (rows[:, b.MAGIC] < 2) | table.flagged(CONTROL_MASK)
    offsets = rows[:, b.LAST_OFFSET] - rows[:, b.BASE_OFFSET] + 1
    kept |= rows[:, b.RECORD_COUNT] != offsets
    # Each kept row begins a group, and so does the row behind one.
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
    """The first and the last of those that follow each other in one epoch without a gap."""
    begins: NDArray[np.bool_] = np.ones(len(rows), dtype=np.bool_)
    begins[1:] = rows[1:, b.LEADER_EPOCH] != rows[:-1, b.LEADER_EPOCH]
    begins[1:] |= rows[1:, b.BASE_OFFSET] != rows[:-1, b.LAST_OFFSET] + 1
    begins[:-1] |= begins[1:].copy()
    begins[-1:] = True
    return begins


def _at_stops(rows: Int64s, stops: Sequence[int]) -> NDArray[np.bool_]:
    """The batches on both sides of each stop."""
    kept = np.zeros(len(rows), dtype=np.bool_)
    for column in (b.BASE_OFFSET, b.LAST_OFFSET):
        at = np.searchsorted(rows[:, column], np.asarray(stops, dtype=np.int64))
        kept[at[at < len(rows)]] = True
        kept[at[at > 0] - 1] = True
    return kept


def _of_producers(rows: Int64s, stops: Sequence[int]) -> NDArray[np.bool_]:
    """Of each producer the last batches in front of every marker and every stop, and the first
    that may begin a transaction behind it."""
    kept = np.zeros(len(rows), dtype=np.bool_)
    known = np.flatnonzero((rows[:, b.PRODUCER_ID] > NO_PRODUCER_ID) & (rows[:, b.MAGIC] > 1))
    if not len(known):
        return kept
    attributes = rows[known, b.ATTRIBUTES]
    stretches = np.cumsum((attributes & CONTROL_MASK) != 0)
    stretches += np.searchsorted(np.sort(stops), rows[known, b.LAST_OFFSET], side="right")
    # A stretch of one producer: its batches in order.
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
