"""Describes the records of the metadata log as changes that people recognize.

The records of a batch were written together, and those of a metadata transaction (KIP-868) apply
together: a new topic with its partitions and configs is one change, and so is what happened to
several partitions of a topic alike. A transaction with several changes is one, too. Records without
effect (NoOpRecord) are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..format.messages.metadata import RecordType
from .cluster_metadata import MetadataHistory
from .describe import Draft, UnitReader
from .reading import MetadataEntry, QuorumRecord


@dataclass(slots=True)
class ClusterChange:
    """A change, made by the records from `offset` to `last_offset`, at `timestamp` (ms since 1970).
    `kind`: what changed, a word; `details`: which and how, as in JSON; `text`: the same for people.
    """

    offset: int
    last_offset: int
    timestamp: int
    kind: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "offset": self.offset,
            "lastOffset": self.last_offset,
            "timestamp": self.timestamp,
            "change": self.kind,
            "text": self.text,
            **self.details,
        }


@dataclass(slots=True)
class _Unit:
    """Entries that take effect together. `name`: of their transaction; `failure`: why they have no
    effect, "" if they have."""

    entries: list[MetadataEntry]
    transaction: bool = False
    name: str = ""
    failure: str = ""


def changes(history: MetadataHistory) -> Iterator[ClusterChange]:
    """Yields the changes that the records make. They are applied to the state before them, which
    is needed to name what they refer to."""
    for unit in _units(history.entries):
        if unit.failure:
            yield _without_effect(unit)
            continue
        found = [_finished(each) for each in _drafts(history, unit)]
        if unit.transaction and len(found) > 1:
            yield _joined(unit, found)
            continue
        for each in found:
            if unit.transaction:
                each.details["transaction"] = unit.name
            yield each


def _units(entries: Iterable[MetadataEntry]) -> Iterator[_Unit]:
    unit: _Unit | None = None
    batch = -1
    for entry in entries:
        number = -1 if isinstance(entry.record, QuorumRecord) else entry.record.number
        begins = number == RecordType.BEGIN_TRANSACTION
        if unit is not None and unit.transaction and not begins:
            unit.entries.append(entry)
            if number == RecordType.ABORT_TRANSACTION:
                unit.failure = f"was aborted: {_field(entry, 'reason') or 'no reason given'}"
            if number in (RecordType.END_TRANSACTION, RecordType.ABORT_TRANSACTION):
                yield unit
                unit = None
        elif unit is not None and entry.batch == batch and not begins:
            unit.entries.append(entry)
        else:
            if unit is not None:
                yield _cut_short(unit)
            unit = _Unit([entry], begins, _field(entry, "name") if begins else "")
        batch = entry.batch
    if unit is not None:
        yield _cut_short(unit)


def _cut_short(unit: _Unit) -> _Unit:
    """Returns a unit after which others, or no more, follow: a transaction has not ended."""
    if unit.transaction:
        unit.failure = "is not complete"
    return unit


def _field(entry: MetadataEntry, name: str) -> str:
    record = entry.record
    data = record.message if isinstance(record, QuorumRecord) else record.data
    return str((data or {}).get(name) or "")


def _change_of(entries: Sequence[MetadataEntry], kind: str, text: str) -> ClusterChange:
    first, last = entries[0], entries[-1]
    return ClusterChange(first.offset, last.offset, first.timestamp, kind, text)


def _without_effect(unit: _Unit) -> ClusterChange:
    records = len(unit.entries) - 1 - unit.failure.startswith("was")
    what = f"transaction {unit.name}" if unit.name else "a transaction"
    text = f"{what} {unit.failure}; its records ({records}) have no effect"
    change = _change_of(unit.entries, "transactionWithoutEffect", text)
    change.details = {"transaction": unit.name, "records": records}
    return change


def _joined(unit: _Unit, found: Sequence[ClusterChange]) -> ClusterChange:
    name = f"transaction {unit.name}" if unit.name else "transaction"
    text = f"{name}: {'; '.join(each.text for each in found)}"
    change = _change_of(unit.entries, "transaction", text)
    parts = [{"change": each.kind, "text": each.text, **each.details} for each in found]
    change.details = {"transaction": unit.name, "changes": parts}
    return change


def _drafts(history: MetadataHistory, unit: _Unit) -> Iterable[Draft]:
    """Returns what the records of a unit change, and applies them."""
    replay = history.replay
    reader = UnitReader(replay, _new_topics(unit))
    for entry in unit.entries:
        reader.read(entry)
        record = entry.record
        if isinstance(record, QuorumRecord):
            replay.apply_control(record.number, record.message, entry.leader_epoch)
        elif record.number not in (RecordType.BEGIN_TRANSACTION, RecordType.END_TRANSACTION):
            replay.apply(record)
        history.problems.note_complaints(entry, replay.complaints)
    return reader.drafts.values()


def _new_topics(unit: _Unit) -> dict[str, str]:
    return {
        record.data["topicId"]: record.data["name"]
        for record in (entry.record for entry in unit.entries)
        if not isinstance(record, QuorumRecord)
        and record.number == RecordType.TOPIC
        and record.data is not None
    }


def _finished(draft: Draft) -> ClusterChange:
    entry, details = draft.entry, draft.details
    text = draft.finish(details)
    return ClusterChange(
        entry.offset, draft.last_offset, entry.timestamp, draft.kind, text, details
    )
