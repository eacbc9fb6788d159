"""The table of committed offsets, made by a kernel, equals what the schemas read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.kernels import offset_commits
from kafkafs.storage.format.messages.coordinator_records import group_coordinator_records
from kafkafs.storage.format.messages.message import Message
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.groups.offset_table import CommittedOffset, OffsetTable
from tests.building import build_batch
from tests.columns import decoded
from tests.group_records import commit_key, commit_value

GROUPS = ("billing", "", "ops/über 日本 #7", "b")
TOPICS = ("main", "main2", "")
READER = group_coordinator_records()
OUTCOMES = st.sampled_from((offset_commits.COMMITTED, offset_commits.ABORTED, offset_commits.OPEN))
ints = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.tuples(st.sampled_from((0, 0, 1, 300)), st.binary(min_size=14, max_size=20))
values = st.builds(
    commit_value,
    ints,
    st.integers(0, 5),
    epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.text(max_size=5),
    timestamp=ints,
    expires=ints,
    tags=st.lists(topic_ids, max_size=3).map(tuple),
)
keys = st.builds(
    commit_key,
    st.sampled_from(GROUPS),
    st.sampled_from(TOPICS),
    st.integers(0, 2),
    st.sampled_from((0, 1, 1, 1, 2)),
)


Key = tuple[str, str, int]  # group, topic, partition


@dataclass(frozen=True)
class Damaged:
    """A change of one byte, and an end; both are usually outside of what they are applied to."""

    at: int
    byte: int
    end: int

    def apply(self, data: bytes) -> bytes:
        if self.at < len(data):
            data = data[: self.at] + bytes([self.byte]) + data[self.at + 1 :]
        return data[: self.end]


damages = st.builds(
    Damaged, st.integers(0, 200), st.integers(0, 255), st.integers(0, 60) | st.just(10**6)
)
undamaged = st.just(Damaged(10**6, 0, 10**6))


@st.composite
def records(draw: st.DrawFn) -> SimpleRecord:
    key = draw(st.none() | keys)
    value = draw(st.none() | values | values)
    if key is not None:
        key = draw(undamaged | damages).apply(key)
    if value is not None:
        value = draw(undamaged | damages).apply(value)
    return SimpleRecord(0, key, value)


def expected(
    rows: list[tuple[SimpleRecord, int]],
) -> tuple[dict[Key, CommittedOffset], dict[str, int], list[int]]:
    """Returns what is committed, the last record of each group that has an offset or one in an open
    transaction, and which rows are not commits: 1 for those of another type, 2 for malformed ones.
    """
    offsets: dict[Key, CommittedOffset] = {}
    open_records: dict[Key, int] = {}
    left = []
    for at, (record, outcome) in enumerate(rows):
        try:
            number = READER.number(record.key)
        except CorruptError:
            left.append(2)
            continue
        if number not in (0, 1):
            left.append(1)
            continue
        try:
            found = READER.read(record.key, record.value)
        except CorruptError:
            left.append(2)
            continue
        left.append(0)
        key = found.key["group"], found.key["topic"], found.key["partition"]
        if found.value is None:
            offsets.pop(key, None)
            open_records.pop(key, None)
        elif outcome == offset_commits.COMMITTED:
            offsets[key] = committed(key, found.value, at)
        elif outcome == offset_commits.OPEN:
            open_records[key] = at
    last: dict[str, int] = {}
    for (group, *_), record_offset in [
        *((key, each.record) for key, each in offsets.items()),
        *open_records.items(),
    ]:
        last[group] = max(last.get(group, -1), record_offset)
    pending = {key: replace(each, is_pending=key in open_records) for key, each in offsets.items()}
    return pending, last, left


def committed(key: Key, value: Message, record: int) -> CommittedOffset:
    return CommittedOffset(
        topic=key[1],
        partition=key[2],
        offset=value["offset"],
        leader_epoch=value.get("leaderEpoch", -1),
        metadata=value["metadata"],
        commit_timestamp=value["commitTimestamp"],
        expire_timestamp=value.get("expireTimestamp", -1),
        topic_id=value.get("topicId", ""),
        record=record,
    )


@given(st.lists(st.tuples(records(), OUTCOMES), max_size=30), st.integers(1, 30))
def test_the_table_equals_what_the_schemas_read(
    rows: list[tuple[SimpleRecord, int]], size: int
) -> None:
    table = OffsetTable()
    left: list[int] = []
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        (columns,) = decoded(build_batch([record for record, _ in part]))
        columns.offsets += start
        outcomes = np.array([outcome for _, outcome in part], dtype=np.uint8)
        left += table.replay(columns, outcomes).tolist()
    offsets, last, kinds = expected(rows)
    assert left == kinds
    found = table.finish()
    assert found.last_records == last
    assert {(group, each.topic, each.partition): each for group, each in found} == offsets
    assert len(found) == len(offsets)
    assert (offset_commits.OTHER, offset_commits.MALFORMED) == (1, 2)


def test_a_table_grows_with_its_keys() -> None:
    table = OffsetTable()
    count = 3000
    for start in range(0, 2 * count, 1500):
        rows = [
            SimpleRecord(
                0,
                commit_key(f"group-{at % count // 10}", "main", at % 10),
                commit_value(at, metadata="x" * (at % 7)),
            )
            for at in range(start, start + 1500)
        ]
        (columns,) = decoded(build_batch(rows))
        columns.offsets += start
        assert not table.replay(columns, committed_all(rows)).any()
    found = table.finish()
    assert len(found) == count
    assert len(found.last_records) == count // 10
    assert [(each.offset, each.metadata) for each in found.of("group-7")] == [
        (count + at, "x" * ((count + at) % 7)) for at in range(70, 80)
    ]
    assert found.of("group-x") == []


def test_metadata_of_changing_length_need_no_further_space() -> None:
    table = OffsetTable()
    for at in range(40):
        metadata = "x" * (10_000 if at % 2 else 1)
        rows = [SimpleRecord(0, commit_key("g", "t", 0), commit_value(at, metadata=metadata))]
        (columns,) = decoded(build_batch(rows))
        table.replay(columns, committed_all(rows))
    assert table.size < 50_000
    assert len(table.finish().of("g")[0].metadata) == 10_000


def committed_all(rows: list[SimpleRecord]) -> NDArray[np.uint8]:
    return np.full(len(rows), offset_commits.COMMITTED, dtype=np.uint8)


KEY = commit_key("g", "t", 0)
DATA = KEY + commit_value(7, metadata="mm")
FAR = 2**31 - 1
LONG = 10**5


def arguments(
    span: tuple[int, int, int, int] = (0, len(KEY), len(KEY), len(DATA) - len(KEY)),
) -> dict[str, Any]:
    """Returns the arguments of `replay` for one row."""
    return {
        "data": np.frombuffer(DATA, dtype=np.uint8),
        "spans": np.array([span], dtype=np.int32),
        "offsets": np.zeros(1, dtype=np.int64),
        "outcomes": np.ones(1, dtype=np.uint8),
        "slots": np.zeros(4, dtype=np.int64),
        "table": np.empty((2, offset_commits.COLUMNS), dtype=np.int64),
        "arena": np.empty(len(DATA), dtype=np.uint8),
        "state": np.array([0, 0, 1, 2], dtype=np.int64),
        "value": np.empty(offset_commits.COLUMNS, dtype=np.int64),
        "left": np.zeros(1, dtype=np.uint8),
    }


def test_the_kernel_refuses_arrays_without_space_for_all_rows() -> None:
    enough = arguments()
    assert offset_commits.replay(*enough.values()) == 0
    assert enough["state"].tolist()[:2] == [2, len(KEY)]  # without its type, with the metadata
    shorter = [
        *((name, arguments()[name][:-1]) for name in enough if name not in ("data", "spans")),
        ("slots", np.zeros(2, dtype=np.int64)),
        ("spans", arguments()["spans"][:, :3].copy()),
        ("table", np.empty((2, 5), dtype=np.int64)),
        ("state", np.array([-1, 0, 1, 2], dtype=np.int64)),
        ("state", np.array([0, -1, 1, 2], dtype=np.int64)),
    ]
    for name, array in shorter:
        with pytest.raises(ValueError, match=r"no space|a column of values"):
            offset_commits.replay(*{**arguments(), name: array}.values())
    with pytest.raises(ValueError, match="no space"):
        offset_commits.fill_slots(np.zeros(2, dtype=np.int64), enough["table"], 2)


@pytest.mark.parametrize(
    "span",
    [
        *((-1, len(KEY), len(KEY), 20), (0, 1, len(KEY), 20), (0, -1, len(KEY), 20)),
        *((0, LONG, len(KEY), 20), (FAR, 14, len(KEY), 20), (0, len(KEY), -1, 20)),
        *((0, len(KEY), FAR, 20), (0, len(KEY), len(KEY), LONG)),
    ],
)
def test_spans_outside_of_the_data_are_malformed(span: tuple[int, int, int, int]) -> None:
    given = arguments(span)
    given["arena"] = np.empty(2 * LONG, dtype=np.uint8)
    assert offset_commits.replay(*given.values()) == 1
    assert given["left"].tolist() == [offset_commits.MALFORMED]
    assert given["state"].tolist() == [0, 0, 1, 2]
