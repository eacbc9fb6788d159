"""Tests control batches: their types, and what a transaction marker contains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.layout import ControlType, TimestampType
from kafkafs.storage.format.messages.control import EndTxnMarker, control_type, parse_end_txn_marker
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.append.preparing import end_of_transaction
from tests.building import BatchFields, build_batch, build_end_txn_marker, frame_batch

COMMIT_KEY = b"\0\0\0\1"
VECTOR = bytes.fromhex(
    "0000000000000007000000420000000302a7d9b82a0030000000000000018bcfe568000000018bcfe568"
    "0000000000000003e80002ffffffff000000012000000008000000010c00000000000500"
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"\0\0\0\0", ControlType.ABORT),
        (b"\0\0\0\1", ControlType.COMMIT),
        (b"\0\5\0\1", ControlType.COMMIT),  # a future version is read as version 0
        (b"\0\0\0\6", ControlType.KRAFT_VOTERS),
        (b"\0\0\0\7", None),
        (b"\0\0\xff\xff", None),
        (b"\0\0\0", None),
        (b"", None),
        (None, None),
    ],
)
def test_the_type_of_a_control_record(key: bytes | None, expected: ControlType | None) -> None:
    batch = build_batch([SimpleRecord(5, key, b"\0" * 6)], BatchFields(is_control=True))
    assert control_type(batch) is expected


@given(st.binary(max_size=40))
def test_any_bytes_are_some_control_record_or_none(body: bytes) -> None:
    assert control_type(frame_batch(0, 0, bytes(40) + body)) in {*ControlType, None}


def test_a_marker_that_kafka_wrote() -> None:
    assert parse_end_txn_marker(VECTOR) == EndTxnMarker(True, 5, 1700000000000)


@given(
    kind=st.sampled_from([ControlType.COMMIT, ControlType.ABORT]),
    timestamp=st.integers(-1, 2**62),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
)
def test_a_marker_is_read_as_it_was_built(
    kind: ControlType, timestamp: int, coordinator_epoch: int
) -> None:
    data = build_end_txn_marker(kind, timestamp, coordinator_epoch, BatchFields(producer_id=7))
    marker = EndTxnMarker(kind is ControlType.COMMIT, coordinator_epoch, timestamp)
    assert parse_end_txn_marker(data) == marker
    written = end_of_transaction(7, -1, marker.is_commit, coordinator_epoch, timestamp)
    assert bytes(written.data) == data


def test_a_marker_has_the_append_time_where_the_topic_has() -> None:
    fields = BatchFields(
        is_control=True, timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=99
    )
    data = build_batch([SimpleRecord(5, COMMIT_KEY, bytes(6))], fields)
    assert parse_end_txn_marker(data) == EndTxnMarker(True, 0, 99)


@pytest.mark.parametrize(
    "records",
    [
        [],  # as the cleaner leaves it
        [SimpleRecord(5, b"\0\0\0\2", bytes(6))],  # another type
        [SimpleRecord(5, COMMIT_KEY, bytes(5))],
        [SimpleRecord(5, COMMIT_KEY, None)],
        [SimpleRecord(5, COMMIT_KEY, b"\xff\xff\0\0\0\0")],
        [SimpleRecord(5, None, bytes(6))],
    ],
)
def test_what_is_no_end_of_a_transaction(records: list[SimpleRecord]) -> None:
    assert parse_end_txn_marker(build_batch(records, BatchFields(is_control=True))) is None


@pytest.mark.parametrize("size", range(61, 78))
def test_a_marker_that_is_cut_off_is_none(size: int) -> None:
    marker = parse_end_txn_marker(VECTOR[:size])
    assert marker is None or size == 77  # the number of headers is not checked


@given(st.binary(min_size=7, max_size=40))
def test_any_bytes_are_some_marker_or_none(body: bytes) -> None:
    marker = parse_end_txn_marker(frame_batch(0, 0, bytes(39) + b"\1" + body))
    known = control_type(frame_batch(0, 0, bytes(40) + body))
    assert marker is None or marker.is_commit == (known is ControlType.COMMIT)
