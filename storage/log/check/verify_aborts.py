"""Compares the aborted transactions in a segment's `.txnindex` with those in the log.

After a crash Kafka rebuilds the entries from the log start offset on, though segments below it may
still exist. Then a transaction whose records are all deleted has no entry, and another may seem to
begin at its first remaining record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...format.files.names import FileKind
from ...segment.check.verify import SegmentFacts
from ...segment.check.verify_digest import CheckedSegment
from ...segment.check.verify_index import Finding
from ...segment.txn_index import AbortedTxn


@dataclass(slots=True)
class Aborts:
    """The transactions that a segment's markers end: producer and outcome by marker offset.
    `aborted`: those that need an entry according to the log; `without_records`: the markers of
    those whose records all lie below the log start offset."""

    start_offset: int
    ends: dict[int, tuple[int, bool]] = field(default_factory=dict)
    aborted: dict[int, AbortedTxn] = field(default_factory=dict)
    without_records: set[int] = field(default_factory=set)

    def held_against(
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
        told = {entry.last_offset for _, entry in entries} | self.without_records
        for offset, txn in self.aborted.items():
            if offset not in told and check.faults == 0:
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
