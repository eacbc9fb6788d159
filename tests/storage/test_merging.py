"""Tests that small appends of records are merged before they are encoded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import InvalidTimestamp, MessageTooLarge
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.format.records.validate import ValidationRules
from kafkafs.storage.log.append.appending import AppendRequest, LogAppendInfo
from kafkafs.storage.log.append.merging import MergedRequest, RecordsRequest, may_merge, merge
from tests.reading import open_view, read
from tests.threads import in_threads
from tests.writing import NOW, open_log

RULES = ValidationRules()
PLANS = (BatchPlan(), BatchPlan(codec=Codec.ZSTD), BatchPlan(batch_bytes=300))
VALUES = st.none() | st.binary(max_size=40)
RECORDS = st.lists(
    st.builds(SimpleRecord, st.integers(-1, NOW), VALUES, VALUES), min_size=1, max_size=5
)


def requests(*appends: Sequence[SimpleRecord], plan: BatchPlan = PLANS[0]) -> list[RecordsRequest]:
    return [RecordsRequest(RecordColumns.from_records(records), plan) for records in appends]


def prepared(asked: Sequence[AppendRequest], segment_size: int = 1 << 20) -> list[AppendRequest]:
    return merge(asked, RULES, segment_size, NOW)


@given(st.lists(st.tuples(RECORDS, st.sampled_from(PLANS)), max_size=8))
def test_batches_are_those_of_all_the_records(
    appends: list[tuple[list[SimpleRecord], BatchPlan]],
) -> None:
    asked = [each for records, plan in appends for each in requests(records, plan=plan)]
    left = list(zip(asked, appends, strict=True))
    for found in prepared(asked):
        parts = found._parts if isinstance(found, MergedRequest) else [found]
        mine, left = left[: len(parts)], left[len(parts) :]
        assert [request for request, _ in mine] == list(parts)
        together = [record for _, (records, _) in mine for record in records]
        plan = mine[0][1][1]
        assert all(other == plan for _, (_, other) in mine)
        assert not left or left[0][1][1] != plan or plan == PLANS[2]
        expected = encode(RecordColumns.from_records(together), plan)
        assert len(parts) == 1 or len(found.admitted.table) == 1
        assert bytes(found.admitted.data) == bytes(expected.data)
        assert found.admitted.table.rows.tolist() == expected.table.rows.tolist()
    assert not left


def test_each_gets_its_own_offsets_or_the_error() -> None:
    records = [SimpleRecord(NOW, b"k", b"v")]
    asked = requests(records, records * 3, records * 2)
    [merged] = prepared(asked)
    merged.answer(LogAppendInfo(10, 15, 7))
    assert [each.result() for each in asked] == [
        LogAppendInfo(10, 10, 7),
        LogAppendInfo(11, 13, 7),
        LogAppendInfo(14, 15, 7),
    ]
    merged.fail(OSError(5, "no"))
    assert all(isinstance(each.error, OSError) for each in asked)
    assert len({id(each.error) for each in asked}) == 3


def test_one_that_is_refused_is_refused_alone() -> None:
    good = [SimpleRecord(NOW, b"k", b"v")]
    late = [*good, SimpleRecord(NOW + RULES.after_max_ms + 1)]
    large = [SimpleRecord(NOW, b"k", bytes(3000))]
    asked = requests(good, late, large, good)
    found = merge(asked, ValidationRules(max_message_bytes=2000), 1 << 20, NOW)
    assert found == [asked[0], asked[3]]
    assert isinstance(asked[1].error, InvalidTimestamp)
    assert asked[1].error.index == 1
    assert isinstance(asked[2].error, MessageTooLarge)


def test_what_fits_a_segment_alone_fits_it_together() -> None:
    asked = requests(*[[SimpleRecord(NOW, None, bytes(100))]] * 10)
    sizes = [each.admitted.table.column(b.SIZE).tolist() for each in prepared(asked, 400)]
    assert len(sizes) == 5
    assert all(len(batches) == 1 and batches[0] <= 400 for batches in sizes)
    assert prepared(asked, segment_size=120) == list(asked)


def test_what_others_cannot_come_into() -> None:
    one = RecordColumns.from_values([b"v"])
    assert may_merge(one, BatchPlan())
    assert not may_merge(one, BatchPlan(producer_id=1))
    assert not may_merge(RecordColumns.from_values([]), BatchPlan())
    assert not may_merge(RecordColumns.from_values([bytes(5000)]), BatchPlan())
    assert not may_merge(RecordColumns.from_values([b""] * 200), BatchPlan())
    headed = RecordColumns.from_records([SimpleRecord(NOW, headers=[("h", None)])])
    assert not may_merge(headed, BatchPlan())


@pytest.mark.parametrize("is_durable", [True, False])
def test_threads_find_their_records_where_they_were_told(tmp_path: Path, is_durable: bool) -> None:
    path = tmp_path / "t-0"
    log = open_log(path)
    told: dict[int, bytes] = {}

    def work(thread: int) -> None:
        for number in range(20):
            values = [b"%d-%d-%d" % (thread, number, each) for each in range(1 + number % 3)]
            done = log.append_records(RecordColumns.from_values(values), durable=is_durable)
            assert done.last_offset - done.first_offset == len(values) - 1
            assert not is_durable or log.recovery_point > done.last_offset
            told.update(zip(range(done.first_offset, done.last_offset + 1), values, strict=True))

    in_threads(*[partial(work, number) for number in range(8)])
    assert sorted(told) == list(range(log.end_offset))
    log.close()
    found = [record.value for record in read(open_view(path))]
    assert found == [told[offset] for offset in range(len(told))]
