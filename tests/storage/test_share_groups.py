"""The state of share groups: what was delivered, and what `revive` takes back of it."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.messages.coordinator_records import CoordinatorRecord
from kafkafs.storage.groups.internal_topic import SHARE_STATE_TOPIC, read_share_state
from kafkafs.storage.groups.share_state import (
    UNKNOWN,
    DeliveredBatch,
    SharePartition,
    ShareReplay,
    combine_batches,
)
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, OffsetProblem, list_groups
from kafkafs.storage.operations.revive.request import Revive, ReviveNote
from kafkafs.storage.operations.revive.revive import revive
from tests.conftest import Corpora
from tests.share_groups import GROUP, TOPIC, TOPIC_ID, ahead_of_the_log, snapshot, update

OFFSETS = st.integers(0, 30)
BATCHES = st.lists(
    st.builds(
        lambda first, size, count, state: DeliveredBatch(first, first + size, count, state),
        OFFSETS,
        st.integers(0, 12),
        st.integers(1, 3),
        st.sampled_from([0, 2, 4]),
    ),
    max_size=8,
)


def by_offset(batches: list[DeliveredBatch], start: int) -> dict[int, tuple[int, int]]:
    """Returns the delivery count and the state of each offset, the greatest of all batches."""
    found: dict[int, tuple[int, int]] = {}
    for batch in batches:
        for offset in range(max(batch.first, start), batch.last + 1):
            found[offset] = max(found.get(offset, (-1, -1)), batch[2:])
    return found


@given(BATCHES, OFFSETS)
def test_batches_are_combined_as_by_the_coordinator(
    batches: list[DeliveredBatch], start: int
) -> None:
    combined = list(combine_batches(batches, start))
    assert by_offset(combined, 0) == by_offset(batches, start)
    for before, after in pairwise(combined):
        assert before.last < after.first
        assert before.last + 1 < after.first or before[2:] != after[2:]


@given(BATCHES, OFFSETS, OFFSETS)
def test_a_cut(batches: list[DeliveredBatch], start: int, end: int) -> None:
    state = SharePartition(start, 3, 7, 1000, 5, 2, batches)
    cut = state.cut(end)
    if start <= end and all(batch.last < end for batch in batches):
        assert cut is state
        return
    assert cut.start_offset == min(start, end)
    left = {offset: each for offset, each in by_offset(batches, start).items() if offset < end}
    assert by_offset(cut.delivered, 0) == left
    complete = [offset for offset, (_, number) in left.items() if number in {2, 4}]
    assert cut.delivery_complete_count == len(complete)
    assert cut.cut(end) is cut


def test_updates_add_to_a_snapshot() -> None:
    replay = ShareReplay(keeps_delivered=True)
    key = {"groupId": "g", "topicId": TOPIC_ID, "partition": 0}

    def apply(number: int, value: dict[str, Any]) -> SharePartition:
        replay.apply(CoordinatorRecord(number, key, value), 1000)
        return replay.partitions["g"][TOPIC_ID, 0]

    first, second = DeliveredBatch(0, 4, 1, 2), DeliveredBatch(5, 9, 1, 0)
    apply(0, snapshot(0, [first]))
    state = apply(1, update(UNKNOWN, [second]))
    assert (state.start_offset, state.delivered) == (0, [first, second])
    state = apply(0, snapshot(5, [second]))
    assert (state.start_offset, state.delivered) == (5, [second])


def test_groups_ahead_of_their_log_are_taken_back(corpora: Corpora, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(corpora.path("groups43"), source)
    at_ms, end = ahead_of_the_log(source)
    engine = Engine(str(source), at_ms=at_ms)
    rows = list(revive(engine, Revive(str(tmp_path / "new"))))
    notes = [row.note for row in rows if isinstance(row, ReviveNote)]
    start = f"group {GROUP}: {TOPIC}-0: "
    assert [note for note in notes if note.startswith(start)] == [
        f"{start}offset {end + 2} is taken back to the log end, {end}"
    ]
    new = Engine(str(tmp_path / "new" / "data"))
    found = [row for row in list_groups(new, ListGroups()) if isinstance(row, GroupOffset)]
    assert all(row.problem is not OffsetProblem.BEYOND_LOG_END for row in found)
    [row] = [r for r in found if (r.group.name, r.topic, r.partition) == (GROUP, TOPIC, 0)]
    assert (row.offset, row.log_end_offset, row.lag) == (end, end, 0)
    for number in new.partitions_of(SHARE_STATE_TOPIC):
        view = new.log(SHARE_STATE_TOPIC, number).view()
        for partitions in read_share_state(view, keeps_delivered=True).replay.partitions.values():
            for (topic_id, partition), state in partitions.items():
                [topic] = [name for name in new.topics() if new.topic_id(name) == topic_id]
                log_end = new.log(topic, partition).view().end_offset
                assert state.cut(log_end) is state
