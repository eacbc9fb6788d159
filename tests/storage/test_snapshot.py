"""Producer snapshots. That all those of the corpora read as Kafka reads them is in test_dumps."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.snapshot import ProducerSnapshotEntry, parse_producer_snapshot

VECTOR = bytes.fromhex(
    "0001fdf77d280000000100000000000003e8000200000009000000000000003200000004"
    "0000018bcfe5680000000005000000000000002c"
)


def snapshot(count: int, body: bytes, version: int = 1) -> bytes:
    covered = pack(">i", count) + body
    return pack(">hI", version, crc32c(covered)) + covered


def test_an_entry_that_kafka_wrote() -> None:
    entry = ProducerSnapshotEntry(1000, 2, 9, 50, 4, 1700000000000, 5, 44)
    assert parse_producer_snapshot(VECTOR) == [entry]
    assert entry.has_batch


def test_no_producers() -> None:
    assert parse_producer_snapshot(snapshot(0, b"")) == []


@pytest.mark.parametrize(
    ("data", "what", "position"),
    [
        (b"", "0 bytes, less than", 0),
        (VECTOR[:9], "9 bytes, less than", 0),
        (snapshot(0, b"", version=2), "version 2", 0),
        (snapshot(0, b"", version=0), "version 0", 0),
        (VECTOR[:-1], "CRC-32C", 2),
        (VECTOR[:20] + b"\1" + VECTOR[21:], "CRC-32C", 2),
        (VECTOR + b"\0", "CRC-32C", 2),
        (snapshot(2, VECTOR[10:]), "2 entries do not fit", 6),
        (snapshot(2**31 - 1, VECTOR[10:]), "2147483647 entries do not fit", 6),
        (snapshot(-1, b""), "-1 entries do not fit", 6),
    ],
)
def test_a_broken_snapshot_says_why(data: bytes, what: str, position: int) -> None:
    with pytest.raises(CorruptError, match=what) as caught:
        parse_producer_snapshot(data)
    assert caught.value.position == position


@given(count=st.integers(-5, 5), body=st.binary(max_size=200))
def test_any_bytes_under_a_right_checksum_are_entries_or_corrupt(count: int, body: bytes) -> None:
    if 0 <= count * 46 <= len(body):
        assert len(parse_producer_snapshot(snapshot(count, body))) == count
    else:
        with pytest.raises(CorruptError):
            parse_producer_snapshot(snapshot(count, body))


@given(data=st.binary(max_size=100))
def test_any_bytes_are_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_producer_snapshot(data)
