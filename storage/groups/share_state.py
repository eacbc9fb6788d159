"""The state of share partitions, replayed from `__share_group_state` like Kafka's
ShareCoordinatorShard: snapshots, and updates of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple

from ..format.messages.coordinator_records import CoordinatorRecord
from ..format.messages.message import Message

_SNAPSHOT: Final = 0
#: In place of a start offset or a count that is not known.
UNKNOWN: Final = -1
# The value of a field of an update that leaves the old value in place.
_UNCHANGED: Final = -1
# Kafka's RecordState: acknowledged, archived.
_COMPLETE: Final = (2, 4)


class DeliveredBatch(NamedTuple):
    """Records that a share group was given, the offsets `first` to `last`: how often, and their
    state (the number of Kafka's RecordState)."""

    first: int
    last: int
    delivery_count: int
    state: int


@dataclass(frozen=True, slots=True)
class SharePartition:
    """How far a share group has read a partition. `start_offset`: the first offset that is not
    finished, UNKNOWN if nothing has been read; `delivery_complete_count`: how many records after it
    are, UNKNOWN if that is not known (before Kafka 4.2); `timestamp`: of the last record about it,
    in ms since 1970. `snapshot_epoch`, `state_epoch`: of the last snapshot, UNKNOWN without one.
    `delivered`: what was given to the group, in the order of the records, empty unless it is
    kept."""

    start_offset: int
    leader_epoch: int
    delivery_complete_count: int
    timestamp: int
    snapshot_epoch: int = UNKNOWN
    state_epoch: int = UNKNOWN
    delivered: list[DeliveredBatch] = field(default_factory=list)

    def cut(self, end_offset: int) -> SharePartition:
        """Returns the state without all that is at or after an offset: the same object if nothing
        is."""
        if self.start_offset <= end_offset and all(b.last < end_offset for b in self.delivered):
            return self
        start = min(self.start_offset, end_offset)
        kept = [
            batch._replace(last=min(batch.last, end_offset - 1))
            for batch in combine_batches(self.delivered, self.start_offset)
            if batch.first < end_offset
        ]
        complete = sum(batch.last - batch.first + 1 for batch in kept if batch.state in _COMPLETE)
        is_known = self.delivery_complete_count != UNKNOWN
        return replace(
            self,
            start_offset=start,
            delivery_complete_count=complete if is_known else UNKNOWN,
            delivered=kept,
        )


class ShareReplay:
    """The share partitions that the records replayed so far describe, by group, topic id and
    partition. `keeps_delivered`: whether they have what was delivered, which takes memory for each
    update since a snapshot."""

    def __init__(self, *, keeps_delivered: bool = False) -> None:
        self.partitions: dict[str, dict[tuple[str, int], SharePartition]] = {}
        self._keeps_delivered = keeps_delivered

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
        if self._keeps_delivered:
            found.delivered.extend(map(_batch, value["stateBatches"]))
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
        value["snapshotEpoch"],
        value.get("stateEpoch", UNKNOWN),
    )


def _batch(value: Message) -> DeliveredBatch:
    numbers = (value["firstOffset"], value["lastOffset"], value["deliveryCount"])
    return DeliveredBatch(*numbers, value["deliveryState"])


def _updated(before: SharePartition, update: SharePartition) -> SharePartition:
    """Returns a partition after an update."""

    def merged(old: int, new: int) -> int:
        return old if new == _UNCHANGED else new

    before.delivered.extend(update.delivered)
    return replace(
        update,
        state_epoch=before.state_epoch,
        delivered=before.delivered,
        start_offset=merged(before.start_offset, update.start_offset),
        leader_epoch=merged(before.leader_epoch, update.leader_epoch),
        delivery_complete_count=merged(
            before.delivery_complete_count, update.delivery_complete_count
        ),
    )


def combine_batches(batches: Iterable[DeliveredBatch], start: int) -> Sequence[DeliveredBatch]:
    """Returns batches that do not overlap, from the offset `start` on. Of several about an offset,
    the one with the greatest delivery count and then state counts (PersisterStateBatchCombiner)."""
    waiting = sorted(
        batch._replace(first=max(batch.first, start)) for batch in batches if batch.last >= start
    )
    edges = sorted({edge for batch in waiting for edge in (batch.first, batch.last + 1)})
    found: list[DeliveredBatch] = []
    best: list[tuple[int, int, int]] = []  # negative count and state, and the last offset
    at = 0
    for first, after in pairwise(edges):
        while at < len(waiting) and waiting[at].first <= first:
            batch = waiting[at]
            heappush(best, (-batch.delivery_count, -batch.state, batch.last))
            at += 1
        while best and best[0][2] < first:
            heappop(best)
        if not best:
            continue
        batch = DeliveredBatch(first, after - 1, -best[0][0], -best[0][1])
        if found and found[-1].last + 1 == first and found[-1][2:] == batch[2:]:
            found[-1] = found[-1]._replace(last=batch.last)
        else:
            found.append(batch)
    return found
