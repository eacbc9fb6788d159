"""Takes back committed offsets that are ahead of their logs, after these were cut at a time.

A commit has the time of the broker, records have that of their producers. So a group may have
committed by then what was not there yet by the records' own times.
"""

from __future__ import annotations

from collections import defaultdict
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
    for row in ahead:
        where = f"group {row.group.name}: {row.topic}-{row.partition}: offset {row.offset}"
        number = coordinator_partition(row.group.name, count)
        records[number].append(_commit(row, manager.clock.now_ms()))
        notes.append(ReviveNote(f"{where} is taken back to the log end, {row.log_end_offset}"))
    for number, commits in records.items():
        columns = RecordColumns.from_records(commits)
        manager.writer(OFFSETS_TOPIC, number).append_records(columns)
    return notes


def _commit(row: GroupOffset, now_ms: int) -> SimpleRecord:
    records = group_coordinator_records()
    key = {"group": row.group.name, "topic": row.topic, "partition": row.partition}
    value = {
        "offset": row.log_end_offset,
        "leaderEpoch": _NO_EPOCH,
        "metadata": row.metadata or "",
        "commitTimestamp": now_ms,
    }
    return SimpleRecord(
        now_ms,
        records.encode_key(_OFFSET_COMMIT, key),
        records.encode_value(_OFFSET_COMMIT, value, _VALUE_VERSION),
    )
