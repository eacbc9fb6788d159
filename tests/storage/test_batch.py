"""Tests batch headers: every field of every magic, walks over many, and what is rejected."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.layout import Codec, ControlType, TimestampType
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchHeader, BatchTable, parse_header, scan
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.batches import damaged_logs, logs
from tests.building import (
    BatchFields,
    MessageFields,
    build_batch,
    build_end_txn_marker,
    build_messages,
)

ONE = [SimpleRecord(5, b"k", b"v")]
GREATEST = (1 << 63) - 1


def put(batch: bytes, at: int, layout: str, *values: int) -> bytes:
    """Returns `batch` with other values packed at position `at`."""
    out = bytearray(batch)
    struct.pack_into(layout, out, at, *values)
    return bytes(out)


def headers(data: bytes, *, whole: bool = True, rows: int = 100) -> list[BatchHeader]:
    table, _ = scan(data, len(data), 0, BatchTable.empty(rows), whole=whole)
    return list(table)


def test_every_field_of_magic_2() -> None:
    fields = BatchFields(
        base_offset=7,
        last_offset=12,
        leader_epoch=3,
        codec=Codec.ZSTD,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        producer_id=1 << 40,
        producer_epoch=9,
        base_sequence=2**31 - 2,
        is_transactional=True,
        base_timestamp=1000,
        max_timestamp=2000,
    )
    batch = build_batch([*ONE, *ONE], fields)
    header = parse_header(batch, position=500)
    assert header == BatchHeader(
        position=500,
        size=len(batch),
        base_offset=7,
        last_offset=12,
        leader_epoch=3,
        magic=2,
        crc=int.from_bytes(batch[17:21], "big"),
        attributes=4 | 8 | 16,
        base_timestamp=1000,
        max_timestamp=2000,
        producer_id=1 << 40,
        producer_epoch=9,
        base_sequence=2**31 - 2,
        record_count=2,
    )
    assert header.codec is Codec.ZSTD
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.next_position == 500 + len(batch)
    assert (header.is_transactional, header.is_control) == (True, False)
    assert not header.has_delete_horizon


def test_no_epoch_no_producer_and_negative_numbers() -> None:
    header = parse_header(build_batch(ONE, BatchFields(leader_epoch=-1, base_timestamp=-5)))
    assert (header.leader_epoch, header.base_timestamp) == (-1, -5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.sequence(0) == -1


def test_sequences_wrap_at_2_to_the_31() -> None:
    header = parse_header(
        build_batch(ONE * 4, BatchFields(base_offset=10, producer_id=1, base_sequence=2**31 - 2))
    )
    assert [header.sequence(offset) for offset in range(10, 14)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_a_marker_and_a_delete_horizon() -> None:
    marker = parse_header(
        build_end_txn_marker(ControlType.ABORT, 5, 1, BatchFields(producer_id=4, producer_epoch=1))
    )
    assert (marker.is_control, marker.is_transactional, marker.size) == (True, True, 78)
    horizon = parse_header(build_batch(ONE, BatchFields(delete_horizon_ms=99)))
    assert (horizon.has_delete_horizon, horizon.base_timestamp) == (True, 99)


@pytest.mark.parametrize("magic", [0, 1])
def test_every_field_of_a_message(magic: int) -> None:
    batch = build_messages(ONE, MessageFields(magic=magic, base_offset=7))
    header = parse_header(batch, position=3)
    assert (header.position, header.size, header.magic) == (3, len(batch), magic)
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 7, 1)
    assert header.crc == int.from_bytes(batch[12:16], "big")
    assert header.max_timestamp == header.base_timestamp == (5 if magic else -1)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (-1, -1, -1)
    assert header.timestamp_type is (
        TimestampType.CREATE_TIME if magic else TimestampType.NO_TIMESTAMP
    )
    # Magic 0 and 1 have none of these flags, whatever their attribute bits are.
    flagged = header._replace(attributes=0xF0)
    assert not flagged.is_transactional
    assert not flagged.is_control
    assert not flagged.has_delete_horizon


def test_a_wrapper_has_the_offset_of_its_last_message_and_no_count() -> None:
    batch = build_messages(ONE * 3, MessageFields(magic=1, base_offset=7, codec=Codec.GZIP))
    header = parse_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (9, 9, -1)
    assert header.codec is Codec.GZIP


@given(logs())
def test_a_walk_takes_every_batch(log: bytes) -> None:
    table, walk = scan(log, len(log), 1000, BatchTable.empty(200), whole=True)
    assert (walk.end, walk.is_fault) == (len(log), False)
    position = 1000
    for header in table:
        assert header.position == position
        position = header.next_position
    assert position == 1000 + len(log)


@given(damaged_logs(), st.integers(1, 5))
def test_a_walk_with_little_room_takes_the_same_batches(log: bytes, rows: int) -> None:
    at, previous = 0, -1
    found: list[BatchHeader] = []
    while True:
        room = BatchTable.empty(rows)
        table, walk = scan(log, len(log), at, room, start=at, previous_offset=previous, whole=True)
        found += list(table)
        at = walk.end
        if len(table) < rows:
            break
        previous = found[-1].last_offset
    assert found == headers(log, rows=1000)


@given(logs(), st.integers(0, 400))
def test_a_batch_that_is_cut_off_is_for_the_next_read(log: bytes, cut: int) -> None:
    available = max(len(log) - cut, 0)
    table, walk = scan(log, available, 0, BatchTable.empty(200), whole=True)
    assert not walk.is_fault
    assert walk.end == sum(header.size for header in table)
    assert walk.end <= available


def test_headers_alone_are_enough_for_a_walk_past_the_buffer() -> None:
    batch = build_batch(ONE)
    table, walk = scan(batch, 61, 0, BatchTable.empty(3), whole=False)
    assert len(table) == 1
    assert walk.end == len(batch)
    table, _ = scan(batch, 60, 0, BatchTable.empty(3), whole=False)
    assert len(table) == 0


BATCH = build_batch(ONE, BatchFields(base_offset=7))
TWO = build_batch([*ONE, *ONE], BatchFields(base_offset=7))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(100), "zeros where a batch should begin"),
        (put(BATCH, 8, ">i", 48), "batch size field is 48, too small"),
        (put(BATCH, 8, ">i", -1), "batch size field is -1, too small"),
        (put(BATCH, 8, ">i", -(1 << 31)), "batch size field is -2147483648, too small"),
        (put(BATCH, 16, ">b", 3), "magic is 3, expected 0, 1 or 2"),
        (put(BATCH, 16, ">B", 255), "magic is 255"),
        (put(BATCH, 16, ">b", 1), "codec 5 does not exist"),
        (put(BATCH, 0, ">q", -1), "base offset -1"),
        (put(BATCH, 0, ">q", GREATEST), f"base offset {GREATEST}"),
        (put(BATCH, 23, ">i", -1), "out of order"),
        (put(BATCH, 57, ">i", -1), "record count is -1"),
        (put(BATCH, 57, ">i", 2), "record count is 2, more than the batch can hold"),
        (put(put(BATCH, 57, ">i", 9), 23, ">i", 8), "record count is 9"),
        (put(TWO, 23, ">i", 0), "record count is 2, more than the batch can hold"),
        (put(BATCH, 22, ">B", 5), "codec 5 does not exist"),
        (put(BATCH, 22, ">B", 7), "codec 7 does not exist"),
    ],
)
def test_a_header_that_no_broker_wrote_is_refused_in_words(data: bytes, what: str) -> None:
    if what.startswith("codec 5") and data[16] == 1:
        data = put(data, 17, ">B", 5)
    with pytest.raises(CorruptError) as raised:
        parse_header(data, position=41)
    assert what in raised.value.what
    assert raised.value.position == 41


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_smaller_than_its_fields_is_refused(magic: int) -> None:
    message = build_messages([SimpleRecord(5)], MessageFields(magic=magic))
    assert parse_header(message).size == len(message) == (34 if magic else 26)
    with pytest.raises(CorruptError, match="too small"):
        parse_header(put(message, 8, ">i", len(message) - 13))


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_came_with_magic_2(magic: int) -> None:
    message = build_messages(ONE, MessageFields(magic=magic))
    with pytest.raises(CorruptError, match="codec 4 does not exist"):
        parse_header(put(message, 17, ">B", 4))


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_less_than_a_header_is_no_batch(size: int) -> None:
    with pytest.raises(CorruptError, match="too short"):
        parse_header(BATCH[:size])


def test_the_greatest_offset_leaves_room_for_the_one_after_it() -> None:
    top = GREATEST - 1
    assert parse_header(put(BATCH, 0, ">q", top)).last_offset == top
    for base, delta in ((top, 1), (top, 2**31 - 1), (GREATEST, 0), (GREATEST, 2**31 - 1)):
        with pytest.raises(CorruptError, match="out of order"):
            parse_header(put(put(BATCH, 0, ">q", base), 23, ">i", delta))
    for magic in (0, 1):
        message = build_messages(ONE, MessageFields(magic=magic, base_offset=top))
        assert parse_header(message).last_offset == top
        with pytest.raises(CorruptError, match="out of order"):
            parse_header(put(message, 0, ">q", GREATEST))


@pytest.mark.parametrize("second", [0, 6, 7, 9])
def test_offsets_that_do_not_rise_end_a_walk(second: int) -> None:
    log = build_batch(ONE * 3, BatchFields(base_offset=7)) + build_batch(
        ONE, BatchFields(base_offset=second)
    )
    table, walk = scan(log, len(log), 0, BatchTable.empty(9), whole=True)
    assert [header.base_offset for header in table] == [7]
    assert walk.is_fault
    assert f"base offset {second}" in walk.what


def test_a_table_is_filtered_by_flags_that_only_magic_2_has() -> None:
    marker = build_end_txn_marker(
        ControlType.COMMIT, 5, 1, BatchFields(base_offset=8, producer_id=4)
    )
    old = put(build_messages(ONE, MessageFields(magic=1)), 17, ">B", 0x30)
    log = old + BATCH + marker
    table, _ = scan(log, len(log), 0, BatchTable.empty(9), whole=True)
    assert table.flagged(0x20).tolist() == [False, False, True]
    assert [header.magic for header in table.select(slice(0, 2))] == [1, 2]
    assert table.column(b.MAGIC).tolist() == [1, 2, 2]


def test_old_messages_tell_where_they_begin_only_when_they_are_not_compressed() -> None:
    wrapper = parse_header(
        build_messages(ONE * 3, MessageFields(magic=1, base_offset=7, codec=Codec.GZIP))
    )
    single = parse_header(build_messages(ONE, MessageFields(magic=1, base_offset=9)))
    assert not wrapper.begins_after(5)
    assert single.begins_after(8)
    assert parse_header(BATCH).begins_after(6)
    assert not parse_header(BATCH).begins_after(7)
