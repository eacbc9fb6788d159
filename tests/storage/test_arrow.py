"""Tests Arrow record batches: the schema, all values, and selections of columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from kafkafs.storage.format.layout import TimestampType
from kafkafs.storage.format.records.arrow import (
    RECORD_SCHEMA,
    schema_of,
    to_message,
    to_record_batch,
)
from kafkafs.storage.format.records.batch import BatchTable, scan
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.decoder import Decoder
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.batches import any_batches
from tests.building import BatchFields, MessageFields, build_batch, build_messages
from tests.reading import plain

NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]


def columns_of(data: bytes) -> Columns:
    table, _ = scan(data, len(data), 0, BatchTable.empty(99), whole=True)
    [columns] = Decoder(64 << 20).decode(memoryview(data), 0, table, "")
    assert isinstance(columns, Columns)
    return columns


def rows(columns: Columns, **options: Any) -> list[dict[str, Any]]:
    batch = to_record_batch(columns, "t", 3, **options)
    batch.validate(full=True)
    # Python's datetime cannot represent timestamps in the far past or future.
    fields = [
        column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
        for column in batch.columns
    ]
    found: list[dict[str, Any]] = pa.table(fields, names=batch.schema.names).to_pylist()
    return found


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    assert RECORD_SCHEMA.names == NAMES
    assert [str(field.type) for field in RECORD_SCHEMA] == [
        "binary", "binary", "string", "int32", "int64", "timestamp[ms, tz=UTC]", "int32",
        "list<item: struct<key: string, value: binary>>",
    ]  # fmt: skip


@given(any_batches(7))
def test_every_value_arrives(batch: tuple[bytes, list[SimpleRecord]]) -> None:
    data, records = batch
    if not records:
        return
    columns = columns_of(data)
    found = rows(columns)
    types = columns.timestamp_types().tolist()
    for row, record, kind in zip(found, plain(columns), types, strict=True):
        assert list(row) == NAMES
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert (row["topic"], row["partition"]) == ("t", 3)
        assert row["offset"] == record.offset
        assert row["timestamp"] == (None if record.timestamp == -1 else record.timestamp)
        assert row["timestampType"] == kind
        assert row["headers"] == [{"key": name, "value": v} for name, v in record.headers]


def test_a_timestamp_is_utc() -> None:
    batch = to_record_batch(columns_of(build_batch([SimpleRecord(1526384718288)])), "t", 0)
    [time] = batch.column("timestamp").to_pylist()
    assert time == datetime(2018, 5, 15, 11, 45, 18, 288000, tzinfo=UTC)


def test_a_timestamp_that_is_missing_is_null_and_a_negative_one_is_not() -> None:
    records = [SimpleRecord(-1), SimpleRecord(-2), SimpleRecord(5)]
    found = rows(columns_of(build_batch(records)))
    assert [row["timestamp"] for row in found] == [None, -2, 5]


def test_several_timestamp_types_in_one_batch() -> None:
    append = BatchFields(
        base_offset=1, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=5
    )
    data = build_batch([SimpleRecord(1)]) + build_batch([SimpleRecord(1)] * 2, append)
    assert [row["timestampType"] for row in rows(columns_of(data))] == [0, 1, 1]
    old = build_messages([SimpleRecord(1)] * 2, MessageFields(magic=0))
    assert [row["timestampType"] for row in rows(columns_of(old))] == [-1, -1]


def test_chosen_columns_in_the_order_of_the_schema() -> None:
    columns = columns_of(build_batch([SimpleRecord(1, b"k", b"v")]))
    assert schema_of(["offset", "key"]).names == ["key", "offset"]
    assert rows(columns, names=["offset", "key"]) == [{"key": b"k", "offset": 0}]
    for name in NAMES:
        assert to_record_batch(columns, "t", 0, [name]).schema.names == [name]
    with pytest.raises(KeyError, match="size"):
        schema_of(["key", "size"])


@pytest.mark.parametrize("count", [1, 7, 8, 9, 64, 1000])
def test_nulls_at_every_place_of_a_byte_of_bits(count: int) -> None:
    for null in {0, 1, count // 2, count - 1}:
        records = [SimpleRecord(1, None if n == null else b"%d" % n) for n in range(count)]
        found = rows(columns_of(build_batch(records)))
        assert [row["key"] for row in found] == [record.key for record in records]
        assert all(row["value"] is None for row in found)


def test_a_header_name_that_is_not_utf8_gets_replacement_characters() -> None:
    headers: list[tuple[str | bytes, bytes | None]] = [
        ("ключ", b"1"), (b"\xff", None), (b"ab\xe2\x82", b""),
    ]  # fmt: skip
    [row] = rows(columns_of(build_batch([SimpleRecord(1, headers=headers)])))
    assert [header["key"] for header in row["headers"]] == ["ключ", "\ufffd", "ab\ufffd"]
    assert [header["value"] for header in row["headers"]] == [b"1", None, b""]


def test_a_slice_is_gathered_alone() -> None:
    records = [SimpleRecord(n, b"k%d" % n, b"v", [("h", b"%d" % n)]) for n in range(10)]
    found = rows(columns_of(build_batch(records)).slice(4, 7))
    assert [row["key"] for row in found] == [b"k4", b"k5", b"k6"]
    assert [row["headers"][0]["value"] for row in found] == [b"4", b"5", b"6"]
    assert rows(columns_of(build_batch(records)).slice(4, 4)) == []


def test_no_memory_is_shared_with_the_buffers_that_are_used_again() -> None:
    data = bytearray(build_batch([SimpleRecord(5, b"key", b"value", [("h", b"x")])]))
    table, _ = scan(data, len(data), 0, BatchTable.empty(9), whole=True)
    [columns] = Decoder(1 << 20).decode(memoryview(data), 0, table, "")
    assert isinstance(columns, Columns)
    batch = to_record_batch(columns, "t", 0)
    data[:] = b"\xee" * len(data)
    for array in (columns.offsets, columns.timestamps, columns.spans):
        array[:] = 0
    [row] = batch.to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (
        b"key", b"value", [{"key": "h", "value": b"x"}],
    )  # fmt: skip
    assert row["timestamp"] == datetime(1970, 1, 1, microsecond=5000, tzinfo=UTC)


@given(any_batches(7))
def test_a_message_is_the_same_bytes_whatever_its_memory_held(
    batch: tuple[bytes, list[SimpleRecord]],
) -> None:
    data, records = batch
    if not records:
        return
    columns = columns_of(data)
    first = to_message(columns, "topic", 1).tobytes()
    to_message(columns, "topic", 1)[:] = b"\xff" * len(first)
    assert to_message(columns, "topic", 1) == first


@given(any_batches(7))
def test_messages_are_what_pyarrow_reads_in_a_stream(
    batch: tuple[bytes, list[SimpleRecord]],
) -> None:
    data, records = batch
    if not records:
        return
    columns = columns_of(data)
    message = to_message(columns, "t", 3).tobytes()
    end = b"\xff\xff\xff\xff\x00\x00\x00\x00"
    with pa.ipc.open_stream(RECORD_SCHEMA.serialize().to_pybytes() + 2 * message + end) as stream:
        batches = list(stream)
    assert batches == 2 * [to_record_batch(columns, "t", 3)]
