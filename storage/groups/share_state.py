"""The state of share partitions, replayed from `__share_group_state` like Kafka's
ShareCoordinatorShard: snapshots, and updates of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ..format.messages.coordinator_records import CoordinatorRecord
from ..format.messages.message import Message

_SNAPSHOT: Final = 0
#: In place of a start offset or a count that is not known.
UNKNOWN: Final = -1
# The value of a field of an update that leaves the old value in place.
_UNCHANGED: Final = -1


@dataclass(frozen=True, slots=True)
class SharePartition:
    """How far a share group has read a partition. `start_offset`: the first offset that is not
    finished, UNKNOWN if nothing has been read; `delivery_complete_count`: how many records after it
    are, UNKNOWN if that is not known (before Kafka 4.2); `timestamp`: of the last record about it,
    in ms since 1970."""

    start_offset: int
    leader_epoch: int
    delivery_complete_count: int
    timestamp: int


class ShareReplay:
    """The share partitions that the records replayed so far describe, by group, topic id and
    partition."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[tuple[str, int], SharePartition]] = {}

    def apply(self, record: CoordinatorRecord, timestamp: int) -> None:
        """Applies a record with that timestamp in ms."""
        key, value = record.key, record.value
        partitions = self.partitions.setdefault(key["groupId"], {})
        place = key["topicId"], key["partition"]
        if value is None:
            if record.number == _SNAPSHOT:
                partitions.pop(place, None)
            return
        found = _partition(value, timestamp)
        before = partitions.get(place)
        if record.number != _SNAPSHOT and before is not None:
            found = _updated(before, found)
        partitions[place] = found


def _partition(value: Message, timestamp: int) -> SharePartition:
    return SharePartition(
        value["startOffset"],
        value["leaderEpoch"],
        value.get("deliveryCompleteCount", UNKNOWN),
        timestamp,
    )


def _updated(before: SharePartition, update: SharePartition) -> SharePartition:
    """Returns a partition after an update."""

    def merged(old: int, new: int) -> int:
        return old if new == _UNCHANGED else new

    return replace(
        update,
        start_offset=merged(before.start_offset, update.start_offset),
        leader_epoch=merged(before.leader_epoch, update.leader_epoch),
        delivery_complete_count=merged(
            before.delivery_complete_count, update.delivery_complete_count
        ),
    )
