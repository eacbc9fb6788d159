"""Tests Columns: rows as records, selections, copies, and how long they are valid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import Codec, TimestampType
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import HEADER_COUNT, KEY_SIZE, VALUE_SIZE, Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.joined_columns import JoinedColumns
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.batches import simple_records
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.logs import write_partition
from tests.reading import Plain, open_view, plain, written


def columns_of(*batches: bytes, file: str = "f") -> Columns:
    """Decodes uncompressed batches of magic 2 into one `Columns`."""
    data = b"".join(batches)
    table, _ = scan(data, len(data), 0, BatchTable.empty(99), whole=True)
    [columns] = Decoder(1 << 20).decode(memoryview(data), 0, table, file)
    assert isinstance(columns, Columns)
    return columns


def three_batches() -> tuple[Columns, list[Plain]]:
    parts = []
    expected: list[Plain] = []
    for base, count in ((0, 2), (10, 3), (20, 1)):
        records = [
            SimpleRecord(base + n, b"k%d" % n, None if n else b"v", offset=base + 2 * n)
            for n in range(count)
        ]
        empty = build_batch([], BatchFields(base_offset=base + 7))
        batch = build_batch(records, BatchFields(base_offset=base, leader_epoch=base))
        parts += [batch, empty]
        expected += written(batch, records)
    return columns_of(*parts), expected


def test_rows_are_records() -> None:
    columns, expected = three_batches()
    assert len(columns) == 6
    assert plain(columns) == expected
    assert [columns.record(row).batch.leader_epoch for row in range(6)] == [0, 0, 10, 10, 10, 20]
    assert columns.key(1) == b"k1"
    assert (columns.value(0), columns.value(1)) == (b"v", None)
    assert columns.file == "f"
    assert columns.nbytes >= len(columns.data)


def test_a_record_tells_its_sequence_and_timestamp_type() -> None:
    fields = BatchFields(
        base_offset=5,
        producer_id=1,
        base_sequence=2**31 - 1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=9,
    )
    columns = columns_of(build_batch([SimpleRecord(1), SimpleRecord(2)], fields))
    assert [columns.record(row).sequence for row in range(2)] == [2**31 - 1, 0]
    assert columns.record(0).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert columns.record(0).timestamp == 9


def test_timestamp_types_of_rows() -> None:
    append = MessageFields(magic=1, base_offset=2, log_append_time=5)
    data = build_messages([SimpleRecord(1)], MessageFields(magic=0)) + build_messages(
        [SimpleRecord(1), SimpleRecord(2)], append
    )
    table, _ = scan(data, len(data), 0, BatchTable.empty(9), whole=True)
    [columns] = Decoder(1 << 20).decode(memoryview(data), 0, table, "")
    assert isinstance(columns, Columns)
    assert columns.timestamp_types().tolist() == [-1, 1, 1]


def test_the_timestamp_type_of_all_rows() -> None:
    def build(*types: TimestampType) -> Columns:
        batches = [
            build_batch(
                [SimpleRecord(1, None, b"v", offset=at)],
                BatchFields(base_offset=at, timestamp_type=kind),
            )
            for at, kind in enumerate(types)
        ]
        return columns_of(b"".join(batches))

    created, appended = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
    assert build(created, created).timestamp_type() is created
    assert build(appended, appended).timestamp_type() is appended
    assert build(created, appended).timestamp_type() is None
    legacy = build_messages([SimpleRecord(1, None, b"v", offset=0)], MessageFields(magic=0))
    assert columns_of(legacy).timestamp_type() is None


def test_sizes_are_minus_one_for_null() -> None:
    columns = columns_of(build_batch([SimpleRecord(1), SimpleRecord(1, b"", b"")]))
    assert columns.spans[:, KEY_SIZE].tolist() == [-1, 0]
    assert columns.spans[:, VALUE_SIZE].tolist() == [-1, 0]
    assert columns.spans[:, HEADER_COUNT].tolist() == [0, 0]


def test_headers_of_any_kind() -> None:
    headers: list[tuple[str | bytes, bytes | None]] = [
        ("", b""), ("a", None), ("a", b"1"), (b"\xff\xfe", b"x"), ("ключ", b"\0" * 300),
    ]  # fmt: skip
    record = SimpleRecord(1, b"k", b"v", headers)
    columns = columns_of(build_batch([SimpleRecord(1), record]))
    assert columns.headers(0) == []
    assert columns.headers(1) == [
        ("", b""), ("a", None), ("a", b"1"), ("\ufffd\ufffd", b"x"), ("ключ", b"\0" * 300),
    ]  # fmt: skip


def test_the_row_of_an_offset() -> None:
    columns, expected = three_batches()
    rows = {record.offset: row for row, record in enumerate(expected)}
    for offset in range(-2, 30):
        assert columns.row_of(offset) == rows.get(offset, -1)


@given(st.data())
def test_any_slice_is_the_same_rows(data: st.DataObject) -> None:
    columns, expected = three_batches()
    low = data.draw(st.integers(0, 6))
    high = data.draw(st.integers(low, 6))
    part = columns.slice(low, high)
    assert plain(part) == expected[low:high]
    assert part.timestamp_types().tolist() == [0] * (high - low)
    assert part.first_row[0] == 0
    assert part.first_row[-1] == high - low
    assert len(part.first_row) == len(part.batches) + 1
    again = part.slice(0, len(part))
    assert plain(again) == plain(part)
    for row in range(high - low):
        assert part.record(row).batch == columns.record(low + row).batch


@given(st.lists(st.booleans(), min_size=6, max_size=6))
def test_any_chosen_rows(chosen: list[bool]) -> None:
    columns, expected = three_batches()
    part = columns.where(np.array(chosen))
    rows = [row for row, taken in enumerate(chosen) if taken]
    assert plain(part) == [expected[row] for row in rows]
    assert part.timestamp_types().tolist() == [0] * len(rows)
    assert [part.record(at).batch for at in range(len(rows))] == [
        columns.record(row).batch for row in rows
    ]
    assert len(part.first_row) == len(part.batches) + 1
    assert all(chosen) or (np.diff(part.first_row) > 0).all()  # no batch without rows
    assert plain(part.slice(1, 4)) == [expected[row] for row in rows[1:4]]


@given(simple_records(), st.sampled_from(Codec))
def test_a_copy_is_kept_while_its_decoder_goes_on(
    records: list[SimpleRecord], codec: Codec
) -> None:
    first = build_batch(records, BatchFields(codec=codec))
    second = build_batch(
        [SimpleRecord(7, b"x" * 50, b"y" * 50)] * 20, BatchFields(base_offset=100, codec=codec)
    )
    decoder = Decoder(1 << 20)
    kept = []
    for data in (first, second):
        table, _ = scan(data, len(data), 0, BatchTable.empty(9), whole=True)
        buffer = bytearray(data)
        [columns] = decoder.decode(memoryview(buffer), 0, table, "")
        assert isinstance(columns, Columns)
        kept.append(columns.copy())
        buffer[:] = bytes(len(buffer))  # as if the next read reused the buffer
    assert plain(kept[0]) == written(first, records)
    assert len(kept[1]) == 20
    assert isinstance(kept[0].data, bytes)


def test_columns_of_a_scan_are_good_until_the_next_and_copies_for_ever(tmp_path: Path) -> None:
    """Consecutive Columns share buffers, which is what makes scans fast."""
    batches = [
        build_batch(
            [SimpleRecord(1, None, bytes([n]) * 400_000)],
            BatchFields(base_offset=n, codec=Codec.ZSTD),
        )
        for n in range(8)
    ]
    write_partition(tmp_path / "p-0", batches)
    views, copies = [], []
    for columns in open_view(tmp_path / "p-0").read():
        assert columns.value(0) == bytes([columns.offsets[0]]) * 400_000
        views.append(columns)
        copies.append(columns.copy())
    assert len(views) > 1
    assert np.shares_memory(views[0].offsets, views[1].offsets)
    for columns in copies:
        for row in range(len(columns)):
            assert columns.value(row) == bytes([columns.offsets[row]]) * 400_000


def test_columns_are_joined_in_order_and_more_than_once() -> None:
    columns, expected = three_batches()
    headers = columns_of(build_batch([SimpleRecord(1, b"k", b"v", [("h", b"1")])]))
    joined = JoinedColumns()
    for times in (1, 700):
        joined.clear()
        for _ in range(times):
            joined.add(columns.slice(1, 6))
            joined.add(headers)
        found = joined.columns("f")
        assert len(found) == len(joined) == 6 * times
        assert plain(found) == times * (expected[1:] + plain(headers))
        assert found.headers(6 * times - 1) == [("h", b"1")]
        assert (found.batch_of(5).base_offset, len(found.timestamp_types())) == (0, 6 * times)
