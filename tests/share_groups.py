"""A share group that is ahead of its log as of a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from kafkafs.storage.clock import SystemClock
from kafkafs.storage.format.messages.coordinator_records import share_coordinator_records
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.groups.internal_topic import SHARE_STATE_TOPIC, read_share_state
from kafkafs.storage.groups.share_state import DeliveredBatch
from kafkafs.storage.log_manager import LogManager

GROUP: Final = "billing-share"
TOPIC: Final = "main"
TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAQ"
_SNAPSHOT: Final = 0


def ahead_of_the_log(log_dir: Path) -> tuple[int, int]:
    """Appends three records to the first partition of TOPIC in a copy of groups43, and lets GROUP
    have finished two of them a minute before. Returns the time between, in ms since 1970, and the
    log end offset as of then."""
    now_ms = SystemClock().now_ms()
    at_ms = now_ms - 30_000
    with LogManager(str(log_dir)) as manager:
        writer = manager.writer(TOPIC, 0)
        end = writer.end_offset
        writer.append_records(
            RecordColumns.from_records([SimpleRecord(now_ms, None, b"late") for _ in range(3)])
        )
        number, place = _place(manager)
        key = {"groupId": GROUP, "topicId": place, "partition": 0}
        value = snapshot(end + 2, [DeliveredBatch(end + 2, end + 2, 1, 0)])
        records = share_coordinator_records()
        record = SimpleRecord(
            now_ms - 60_000,
            records.encode_key(_SNAPSHOT, key),
            records.encode_value(_SNAPSHOT, value, 0),
        )
        manager.writer(SHARE_STATE_TOPIC, number).append_records(
            RecordColumns.from_records([record])
        )
    return at_ms, end


def _place(manager: LogManager) -> tuple[int, str]:
    """Returns the partition that has the group's state, and the id of TOPIC."""
    topic_id = manager.topic_id(TOPIC)
    for number in manager.partitions_of(SHARE_STATE_TOPIC):
        state = read_share_state(manager.log(SHARE_STATE_TOPIC, number).view())
        if (topic_id, 0) in state.replay.partitions.get(GROUP, {}):
            return number, topic_id
    raise AssertionError(f"no state of {GROUP}")


def snapshot(start: int, batches: Sequence[DeliveredBatch]) -> dict[str, Any]:
    """Returns a ShareSnapshotValue."""
    times = {"createTimestamp": 1000, "writeTimestamp": 1000}
    return {**update(start, batches), **times, "snapshotEpoch": 9, "stateEpoch": 0}


def update(start: int, batches: Sequence[DeliveredBatch]) -> dict[str, Any]:
    """Returns a ShareUpdateValue."""
    return {
        "snapshotEpoch": 9,
        "leaderEpoch": 2,
        "startOffset": start,
        "deliveryCompleteCount": 0,
        "stateBatches": [
            {
                "firstOffset": batch.first,
                "lastOffset": batch.last,
                "deliveryState": batch.state,
                "deliveryCount": batch.delivery_count,
            }
            for batch in batches
        ],
    }
