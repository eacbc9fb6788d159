"""Tests the encoder of columns: its bytes equal those that `tests.building` makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import InvalidTimestamp
from kafkafs.storage.format.kernels import encode as kernel
from kafkafs.storage.format.layout import MAX_INT32, Codec, TimestampType
from kafkafs.storage.format.records import arrow
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.encoder import BatchPlan, empty_batch, encode
from kafkafs.storage.format.records.from_arrow import to_record_columns
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from tests import kernel_forms
from tests.batches import BYTES, HEADERS
from tests.building import BatchFields, build_batch
from tests.profiles import percent

TIMESTAMPS = st.one_of(
    st.integers(-1, (1 << 63) - 2), st.integers(1_700_000_000_000, 1_700_000_100_000)
)
RECORDS = st.lists(
    st.builds(SimpleRecord, TIMESTAMPS, BYTES, BYTES, HEADERS), min_size=1, max_size=30
)
PLANS = st.builds(
    BatchPlan,
    base_offset=st.integers(0, 1 << 62),
    leader_epoch=st.integers(-1, 1 << 30),
    batch_bytes=st.sampled_from([1, 100, 150, 300, 16384]),
    codec=st.sampled_from(Codec),
    timestamp_type=st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]),
    append_time=st.integers(0, 1 << 60),
    producer_id=st.integers(-1, 1 << 62),
    producer_epoch=st.integers(-1, (1 << 15) - 1),
    base_sequence=st.one_of(st.integers(-1, 5), st.integers((1 << 31) - 20, (1 << 31) - 1)),
    is_transactional=st.booleans(),
)


def built(
    records: Sequence[SimpleRecord], plan: BatchPlan, offsets: Sequence[int] = ()
) -> list[bytes]:
    """Builds the same batches slowly. They are split as Kafka's producer does and, with `offsets`,
    where a delta would not fit in an int32."""
    batches: list[bytes] = []
    if not offsets:
        offsets = range(plan.base_offset, plan.base_offset + len(records))
    records = [
        replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)
    ]
    first = 0
    while first < len(records):
        count = 1
        while first + count < len(records):
            longer = records[first : first + count + 1]
            if longer[-1].offset - longer[0].offset > MAX_INT32:
                break
            if len(_build(longer, replace(plan, codec=Codec.NONE), 0)) > plan.batch_bytes:
                break
            count += 1
        batches.append(_build(records[first : first + count], plan, first))
        first += count
    return batches


def _build(records: Sequence[SimpleRecord], plan: BatchPlan, first: int) -> bytes:
    appended = plan.timestamp_type is TimestampType.LOG_APPEND_TIME
    sequence = plan.base_sequence
    return build_batch(
        records,
        BatchFields(
            base_offset=records[0].offset,
            leader_epoch=plan.leader_epoch,
            codec=plan.codec,
            level=plan.level,
            timestamp_type=plan.timestamp_type,
            producer_id=plan.producer_id,
            producer_epoch=plan.producer_epoch,
            base_sequence=-1 if sequence < 0 else (sequence + first) % (1 << 31),
            is_transactional=plan.is_transactional,
            max_timestamp=plan.append_time if appended else None,
        ),
    )


def decoded(data: memoryview, table: BatchTable) -> Columns:
    [columns] = Decoder(1 << 20).decode(data, 0, table, "")
    assert isinstance(columns, Columns)
    return columns.copy()


@given(RECORDS, PLANS)
def test_the_bytes_are_the_builders(records: list[SimpleRecord], plan: BatchPlan) -> None:
    encoded = encode(RecordColumns.from_records(records), plan)
    assert bytes(encoded.data) == b"".join(built(records, plan))


@given(RECORDS, PLANS, st.data())
def test_offsets_may_have_gaps(
    records: list[SimpleRecord], plan: BatchPlan, data: st.DataObject
) -> None:
    steps = st.one_of(st.integers(1, 3), st.sampled_from([MAX_INT32, MAX_INT32 + 1, 1 << 40]))
    count = len(records)
    gaps = data.draw(st.lists(steps, min_size=count - 1, max_size=count - 1))
    offsets = list(accumulate(gaps, initial=data.draw(st.integers(0, 1 << 50))))
    columns, numbers = RecordColumns.from_records(records), np.array(offsets, dtype=np.int64)
    encoded = encode(columns, plan, numbers)
    assert bytes(encoded.data) == b"".join(built(records, plan, offsets))
    found = bytes(encoded.data)
    table, _ = scan(found, len(found), 0, BatchTable.empty(count), whole=True)
    assert table.rows.tolist() == encoded.table.rows.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "encode_batches", kernel_forms.uncompiled("encode").encode_batches)
        assert bytes(encode(columns, plan, numbers).data) == found


@given(st.integers(0, 1 << 62), st.integers(0, MAX_INT32))
def test_a_batch_without_records(base_offset: int, more: int) -> None:
    fields = BatchFields(base_offset=base_offset, last_offset=base_offset + more)
    assert empty_batch(base_offset, base_offset + more) == build_batch([], fields)


@given(RECORDS, PLANS)
def test_the_table_is_what_a_scan_finds(records: list[SimpleRecord], plan: BatchPlan) -> None:
    encoded = encode(RecordColumns.from_records(records), plan)
    data = bytes(encoded.data)
    table, walk = scan(data, len(data), 0, BatchTable.empty(len(records) + 1), whole=True)
    assert walk.end == len(data)
    assert table.rows.tolist() == encoded.table.rows.tolist()


@settings(max_examples=percent(30))
@given(RECORDS, PLANS.filter(lambda plan: plan.codec is Codec.NONE))
def test_uncompiled_the_kernel_gives_the_same(records: list[SimpleRecord], plan: BatchPlan) -> None:
    columns = RecordColumns.from_records(records)
    compiled = encode(columns, plan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "encode_batches", kernel_forms.uncompiled("encode").encode_batches)
        assert bytes(encode(columns, plan).data) == bytes(compiled.data)


@given(RECORDS)
def test_records_read_can_be_written_again(records: list[SimpleRecord]) -> None:
    plan = BatchPlan(batch_bytes=200)
    first = encode(RecordColumns.from_records(records), plan)
    again = encode(RecordColumns.from_columns(decoded(first.data, first.table)), plan)
    assert bytes(again.data) == bytes(first.data)


@given(
    st.lists(
        st.builds(
            SimpleRecord,
            st.integers(-1, 1 << 53),
            BYTES,
            BYTES,
            st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=2),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 3),
)
def test_records_come_through_arrow(records: list[SimpleRecord], skipped: int) -> None:
    plan = BatchPlan()
    first = encode(RecordColumns.from_records(records), plan)
    table = arrow.to_record_batch(decoded(first.data, first.table), "t", 0)
    again = encode(to_record_columns(table.slice(skipped)), plan)
    assert bytes(again.data) == b"".join(built(records[skipped:], plan))


def test_no_records_make_no_batches() -> None:
    encoded = encode(RecordColumns.from_records([]), BatchPlan())
    assert len(encoded.table) == 0
    assert len(encoded.data) == 0


def test_a_record_larger_than_a_batch_is_alone_in_one() -> None:
    values = [b"a", b"b" * 40_000, b"c"]
    encoded = encode(RecordColumns.from_values(values), BatchPlan())
    assert encoded.table.column(b.RECORD_COUNT).tolist() == [1, 1, 1]
    assert encoded.table.column(b.BASE_OFFSET).tolist() == [0, 1, 2]


def test_a_batch_is_filled_to_its_last_byte() -> None:
    columns = RecordColumns.from_values([b"v" * 100] * 500)
    sizes = encode(columns, BatchPlan(batch_bytes=16384)).table.column(b.SIZE).tolist()
    assert max(sizes) <= 16384
    assert encode(columns, BatchPlan(batch_bytes=max(sizes))).table.column(b.SIZE)[0] == max(sizes)
    assert encode(columns, BatchPlan(batch_bytes=max(sizes) - 1)).table.column(b.SIZE)[0] < max(
        sizes
    )


def test_records_of_any_shape_beside_each_other() -> None:
    """Varints of one, two and more bytes, null and empty, in every position."""
    sizes = (None, 0, 1, 63, 64, 127, 128, 8191, 8192)
    records = [
        SimpleRecord(1000 + delta, _of(key), _of(value))
        for delta in (0, 63, 64, 8191, 8192, -1, -64)
        for key in sizes
        for value in sizes
    ]
    for batch_bytes in (200, 8300, 16384, 1 << 20):
        plan = BatchPlan(batch_bytes=batch_bytes)
        encoded = encode(RecordColumns.from_records(records), plan)
        assert bytes(encoded.data) == b"".join(built(records, plan))


def _of(size: int | None) -> bytes | None:
    return None if size is None else bytes(size)


def test_the_widest_range_of_timestamps_wraps_round_as_in_java() -> None:
    records = [SimpleRecord(-1), SimpleRecord((1 << 63) - 1)]
    encoded = encode(RecordColumns.from_records(records), BatchPlan())
    assert decoded(encoded.data, encoded.table).timestamps.tolist() == [-1, (1 << 63) - 1]


def test_a_negative_timestamp_is_refused_with_its_record() -> None:
    records = [SimpleRecord(5), SimpleRecord(-1), SimpleRecord(-2)]
    with pytest.raises(InvalidTimestamp, match="record 2: timestamp -2 is negative"):
        encode(RecordColumns.from_records(records), BatchPlan())


@pytest.mark.parametrize("span", [(0, 4), (-1, 2), (4, 1), (1 << 62, 1), (1, 3)])
def test_a_span_outside_its_buffer_is_refused(span: tuple[int, int]) -> None:
    columns = RecordColumns.from_values([b"abc"])
    columns.values.starts[0], columns.values.sizes[0] = span
    with pytest.raises(ValueError, match="outside its buffer"):
        encode(columns, BatchPlan())


def test_records_without_a_timestamp_get_the_time() -> None:
    columns = RecordColumns.from_records([SimpleRecord(7), SimpleRecord(-1)])
    assert columns.stamped(99).timestamps.tolist() == [7, 99]
    assert columns.timestamps.tolist() == [7, -1]
    assert columns.slice(0, 1).stamped(99).timestamps.tolist() == [7]


def test_a_slice_of_records_has_their_headers() -> None:
    records = [SimpleRecord(1, b"k", b"v", [("n", bytes([n]))] * n) for n in range(5)]
    part = RecordColumns.from_records(records).slice(2, 4)
    assert bytes(encode(part, BatchPlan()).data) == b"".join(built(records[2:4], BatchPlan()))


def test_an_arrow_column_of_another_type_is_refused() -> None:
    import pyarrow as pa

    for name in ("key", "value", "timestamp", "headers"):
        with pytest.raises(TypeError, match="not"):
            to_record_columns(pa.table({name: pa.array([1.5])}))


def test_arrow_columns_may_come_in_pieces_and_in_any_size() -> None:
    import pyarrow as pa

    pieces = pa.chunked_array(
        [pa.array(["a", None], pa.large_string()), pa.array(["ccc"], pa.large_string())]
    )
    columns = to_record_columns(pa.table({"value": pieces, "other": pa.array([1, 2, 3])}))
    expected = [SimpleRecord(-1, None, value) for value in (b"a", None, b"ccc")]
    assert bytes(encode(columns, BatchPlan()).data) == b"".join(built(expected, BatchPlan()))
    assert np.array_equal(columns.timestamps, [-1, -1, -1])
