"""Commits offsets again: those that are ahead of their logs, after these were cut at a time, and
those that Kafka would not find where Redpanda has recorded them.

A commit has the time of the broker, records have that of their producers. So a group may have
committed by then what was not there yet by the records' own times.

The partition of `__consumer_offsets` that records a group follows from its name, in Redpanda by
another rule (`kafka/server/coordinator_ntp_mapper.h`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ...format.messages.coordinator_records import group_coordinator_records
from ...format.records.record_columns import RecordColumns, SimpleRecord
from ...groups.coordinator import GroupType
from ...groups.groups import coordinator_partition
from ...groups.internal_topic import OFFSETS_TOPIC
from ..groups import GroupOffset, ListGroups, OffsetProblem, list_groups
from .request import ReviveNote

if TYPE_CHECKING:
    from ...log_manager import LogManager

_OFFSET_COMMIT: Final = 1
_VALUE_VERSION: Final = 3  # which every release that can be started reads
_NO_EPOCH: Final = -1


def take_back_offsets(manager: LogManager) -> list[ReviveNote]:
    """Commits the log end offset for every group that is ahead of it; for share groups see
    `share_groups`. Returns what changed."""
    ahead = [
        row
        for row in list_groups(manager, ListGroups())
        if isinstance(row, GroupOffset)
        and row.problem is OffsetProblem.BEYOND_LOG_END
        and row.group.type is not GroupType.SHARE
    ]
    notes: list[ReviveNote] = []
    records: defaultdict[int, list[SimpleRecord]] = defaultdict(list)
    count = len(manager.partitions_of(OFFSETS_TOPIC)) if ahead else 0
    now_ms = manager.clock.now_ms()
    for row in ahead:
        where = f"group {row.group.name}: {row.topic}-{row.partition}: offset {row.offset}"
        number = coordinator_partition(row.group.name, count)
        end = row.log_end_offset
        again = replace(row, offset=end, leader_epoch=None, commit_timestamp=now_ms)
        records[number].append(_commit(again))
        notes.append(ReviveNote(f"{where} is taken back to the log end, {row.log_end_offset}"))
    _append(manager, records)
    return notes


def move_offsets(manager: LogManager) -> list[ReviveNote]:
    """Commits the offsets of groups that are recorded in another partition than Kafka's for them.
    Returns what could not be moved."""
    numbers = manager.partitions_of(OFFSETS_TOPIC) if OFFSETS_TOPIC in manager.topics() else ()
    notes: dict[str, ReviveNote] = {}
    records: defaultdict[int, list[SimpleRecord]] = defaultdict(list)
    for row in list_groups(manager, ListGroups()):
        if not isinstance(row, GroupOffset) or row.offset is None:
            continue
        name = row.group.name
        number = coordinator_partition(name, len(numbers))
        if number == row.group.coordinator:
            continue
        if number in numbers:
            records[number].append(_commit(row))
        else:
            what = f"group {name}: its offsets are lost, {OFFSETS_TOPIC}-{number} is not here"
            notes[name] = ReviveNote(what)
    _append(manager, records)
    return list(notes.values())


def _append(manager: LogManager, records: Mapping[int, Sequence[SimpleRecord]]) -> None:
    for number, commits in records.items():
        columns = RecordColumns.from_records(commits)
        manager.writer(OFFSETS_TOPIC, number).append_records(columns)


def _commit(row: GroupOffset) -> SimpleRecord:
    records = group_coordinator_records()
    key = {"group": row.group.name, "topic": row.topic, "partition": row.partition}
    value = {
        "offset": row.offset,
        "leaderEpoch": _NO_EPOCH if row.leader_epoch is None else row.leader_epoch,
        "metadata": row.metadata or "",
        "commitTimestamp": row.commit_timestamp,
    }
    return SimpleRecord(
        row.commit_timestamp or 0,
        records.encode_key(_OFFSET_COMMIT, key),
        records.encode_value(_OFFSET_COMMIT, value, _VALUE_VERSION),
    )
