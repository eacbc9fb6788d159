"""Tests producer snapshots; test_dumps compares those of the corpora with Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.files.snapshot import (
    ProducerSnapshotEntry,
    format_producer_snapshot,
    hash_map_order,
    parse_producer_snapshot,
)

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
    assert format_producer_snapshot([entry]) == VECTOR
    assert entry.has_batch


def test_no_producers() -> None:
    assert parse_producer_snapshot(snapshot(0, b"")) == []


@pytest.mark.parametrize(
    ("data", "what", "position"),
    [
        (b"", "0 bytes are too few", 0),
        (VECTOR[:9], "9 bytes are too few", 0),
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


def test_snapshots_are_written_as_brokers_wrote_them(corpus: Callable[[str], Path]) -> None:
    counts = set()
    for name in ("kafka43-clean", "kafka43-crash", "kafka39", "kafka28", "compact-after"):
        for path in corpus(name).glob("*/*.snapshot"):
            entries = parse_producer_snapshot(path.read_bytes())
            counts.add(len(entries))
            assert format_producer_snapshot(entries) == path.read_bytes()
            order = [entry.producer_id for entry in entries]
            assert hash_map_order(sorted(order)) == order
    assert {0, 1, 2, 3} <= counts


def test_the_order_of_a_java_hash_map() -> None:
    """The expected order is that of a HashMap<Long, …> in JDK 17."""
    put = [17, 1, 33, 16, 5, 1000, 4_000_000_001, 2]
    assert hash_map_order(put) == [16, 17, 1, 33, 2, 5, 1000, 4_000_000_001]


def test_a_hash_table_never_shrinks() -> None:
    assert hash_map_order([16, 1]) == [16, 1]
    assert hash_map_order([16, 1], most=12) == [16, 1]
    assert hash_map_order([16, 1], most=13) == [1, 16]
    assert hash_map_order(range(40, 0, -1)) == [*range(1, 41)]


@given(st.lists(st.tuples(*[st.integers(-1, 2**31 - 1)] * 5), max_size=20))
def test_any_snapshot_comes_back(rows: list[tuple[int, int, int, int, int]]) -> None:
    entries = [
        ProducerSnapshotEntry(producer_id, -1, sequence, offset, 0, timestamp, -1, first)
        for producer_id, sequence, offset, timestamp, first in rows
    ]
    assert parse_producer_snapshot(format_producer_snapshot(entries)) == entries
