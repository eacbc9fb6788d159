"""Takes back the state of share groups that is ahead of the logs, after these were cut at a time.

Kafka would not do so: a share partition that starts after the log end offset delivers nothing until
the log has grown past it (SharePartition.updateCacheAndOffsets only moves forward), and what the
group had finished would be finished again by records that it never saw.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ...format.messages.coordinator_records import share_coordinator_records
from ...format.records.record_columns import RecordColumns, SimpleRecord
from ...groups.internal_topic import SHARE_STATE_TOPIC, read_share_state
from ...groups.share_state import SharePartition
from .request import ReviveNote

if TYPE_CHECKING:
    from ...log_manager import LogManager

_SNAPSHOT: Final = 0


def take_back_share_groups(manager: LogManager) -> list[ReviveNote]:
    """Writes a snapshot for every share partition that is ahead of its log. Returns what
    changed."""
    notes: list[ReviveNote] = []
    records: defaultdict[int, list[SimpleRecord]] = defaultdict(list)
    names = {manager.topic_id(name): name for name in manager.topics()}
    now_ms = manager.clock.now_ms()
    for number, group, (topic_id, partition), before in _share_partitions(manager):
        topic = names.get(topic_id, "")
        if partition not in manager.topics().get(topic, ()):
            continue
        end = manager.writer(topic, partition).end_offset
        after = before.cut(end)
        if after is not before:
            records[number].append(_snapshot(group, topic_id, partition, after, now_ms))
            notes.append(_note(f"group {group}: {topic}-{partition}", before, end))
    for number, snapshots in records.items():
        columns = RecordColumns.from_records(snapshots)
        manager.writer(SHARE_STATE_TOPIC, number).append_records(columns)
    return notes


def _share_partitions(
    manager: LogManager,
) -> Iterator[tuple[int, str, tuple[str, int], SharePartition]]:
    """Yields each with the partition of the topic that has its state, its group, and its topic's id
    and number."""
    for number in manager.topics().get(SHARE_STATE_TOPIC, ()):
        view = manager.log(SHARE_STATE_TOPIC, number).view()
        replay = read_share_state(view, keeps_delivered=True).replay
        for group, partitions in replay.partitions.items():
            for place, state in partitions.items():
                yield number, group, place, state


def _note(where: str, before: SharePartition, end: int) -> ReviveNote:
    if before.start_offset > end:
        return ReviveNote(
            f"{where}: offset {before.start_offset} is taken back to the log end, {end}"
        )
    return ReviveNote(f"{where}: what was delivered from the log end, {end}, on is forgotten")


def _snapshot(
    group: str, topic_id: str, partition: int, state: SharePartition, now_ms: int
) -> SimpleRecord:
    records = share_coordinator_records()
    value = {
        "snapshotEpoch": state.snapshot_epoch + 1,
        "stateEpoch": max(state.state_epoch, 0),
        "leaderEpoch": state.leader_epoch,
        "startOffset": state.start_offset,
        "deliveryCompleteCount": state.delivery_complete_count,
        "createTimestamp": now_ms,
        "writeTimestamp": now_ms,
        "stateBatches": [
            {
                "firstOffset": batch.first,
                "lastOffset": batch.last,
                "deliveryState": batch.state,
                "deliveryCount": batch.delivery_count,
            }
            for batch in state.delivered
        ],
    }
    key = {"groupId": group, "topicId": topic_id, "partition": partition}
    return SimpleRecord(
        now_ms, records.encode_key(_SNAPSHOT, key), records.encode_value(_SNAPSHOT, value, 0)
    )
