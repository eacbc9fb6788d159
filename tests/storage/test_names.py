"""Tests names of partitions and their files: valid and invalid ones, and formatting them again."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.format.files.names import (
    FileKind,
    FileState,
    MetadataSnapshotName,
    PartitionDirName,
    PartitionState,
    SegmentFileName,
    deleted_partition_dir,
    is_legal_topic,
    parse_metadata_snapshot,
    parse_partition_dir,
    parse_segment_file,
    partition_dir,
    segment_file,
)

UUID = "6a08f8af448249df8321444637a2de96"
LEGAL_TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(
    lambda topic: topic not in (".", "..")
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-0", PartitionDirName("orders", 0)),
        ("a-b.c_d-7-1", PartitionDirName("a-b.c_d-7", 1)),
        ("a--3", PartitionDirName("a-", 3)),
        ("---2147483647", PartitionDirName("--", 2147483647)),
        (".hidden-0", PartitionDirName(".hidden", 0)),
        ("..-0", None),
        ("t" * 249 + "-0", PartitionDirName("t" * 249, 0)),
        (f"gone-0.{UUID}-delete", PartitionDirName("gone", 0, PartitionState.DELETE, UUID)),
        (f"a.b-12.{UUID}-future", PartitionDirName("a.b", 12, PartitionState.FUTURE, UUID)),
        (f"a-1-2.{UUID}-stray", PartitionDirName("a-1", 2, PartitionState.STRAY, UUID)),
        # A topic's name may look like a deleted partition, but its directory still ends in a
        # number.
        (f"t-0.{UUID}-delete-5", PartitionDirName(f"t-0.{UUID}-delete", 5)),
    ],
)
def test_partition_directories(name: str, expected: PartitionDirName | None) -> None:
    assert parse_partition_dir(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "-0",
        "orders",
        "orders-",
        "orders-x",
        "orders-+1",
        "orders--",
        "orders-00",
        "orders-01",
        "orders-2147483648",
        "orders-99999999999999999999",
        "orders-1_0",
        "orders- 1",
        "orders-١",  # an Arabic digit, which int() and Java both accept
        "orders-0\n",
        "ord\ners-0",
        "ord ers-0",
        "ord/ers-0",
        "örders-0",
        os.fsdecode(b"\xff-0"),
        "t" * 250 + "-0",
        ".",
        "..",
        "orders-0-delete",
        f"orders-0.{UUID[1:]}-delete",
        f"orders-0.{UUID.upper()}-delete",
        f"orders.{UUID}-delete",
        f"orders-0.{UUID}-gone",
        f"orders-0.{UUID}-delete\n",
        "lost+found",
        "remote-log-index-cache",
    ],
)
def test_what_is_no_partition_directory(name: str) -> None:
    assert parse_partition_dir(name) is None


@given(topic=LEGAL_TOPICS, partition=st.integers(0, 2**31 - 1))
def test_partition_names_come_back(topic: str, partition: int) -> None:
    assert is_legal_topic(topic)
    name = partition_dir(topic, partition)
    assert parse_partition_dir(name) == PartitionDirName(topic, partition)


@given(name=st.text() | st.binary().map(os.fsdecode))
def test_any_name_parses_to_itself_or_not_at_all(name: str) -> None:
    partition = parse_partition_dir(name)
    if partition is not None and partition.state is PartitionState.NORMAL:
        assert partition_dir(partition.topic, partition.partition) == name
    file = parse_segment_file(name)
    if file is not None:
        assert segment_file(file.base_offset, file.kind, file.state) == name
    parse_metadata_snapshot(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000000.log", SegmentFileName(0, FileKind.LOG)),
        ("00000000000000000522.index", SegmentFileName(522, FileKind.INDEX)),
        (
            "09223372036854775807.timeindex",
            SegmentFileName(2**63 - 1, FileKind.TIMEINDEX),
        ),
        (
            "00000000000000000001.txnindex.deleted",
            SegmentFileName(1, FileKind.TXNINDEX, FileState.DELETED),
        ),
        (
            "00000000000000000001.snapshot.deleted",
            SegmentFileName(1, FileKind.SNAPSHOT, FileState.DELETED),
        ),
        (
            "00000000000000000001.log.cleaned",
            SegmentFileName(1, FileKind.LOG, FileState.CLEANED),
        ),
        ("00000000000000000001.log.swap", SegmentFileName(1, FileKind.LOG, FileState.SWAP)),
    ],
)
def test_segment_files(name: str, expected: SegmentFileName) -> None:
    assert parse_segment_file(name) == expected
    assert segment_file(expected.base_offset, expected.kind, expected.state) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "0.log",
        "0000000000000000000.log",
        "000000000000000000000.log",
        "-0000000000000000001.log",
        "+0000000000000000001.log",
        "09223372036854775808.log",
        "99999999999999999999.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log",
        "00000000000000000000",
        "00000000000000000000.",
        "00000000000000000000.LOG",
        "00000000000000000000.log.",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.swap.deleted",
        "00000000000000000000.log\n",
        "00000000000000000000.deleted",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ],
)
def test_what_is_no_segment_file(name: str) -> None:
    assert parse_segment_file(name) is None


def test_metadata_snapshots() -> None:
    name = "00000000000000001234-0000000007.checkpoint"
    assert parse_metadata_snapshot(name) == MetadataSnapshotName(1234, 7)
    for other in (f"{name}.part", f"{name}.deleted", "bootstrap.checkpoint", f"{name}\n"):
        assert parse_metadata_snapshot(other) is None
    assert max(MetadataSnapshotName(9, 1), MetadataSnapshotName(10, 0)).end_offset == 10


@pytest.mark.parametrize("topic", ["", ".", "..", "a" * 250, "a b", "a/b", "é", "a\n", "a\0"])
def test_illegal_topics(topic: str) -> None:
    assert not is_legal_topic(topic)


@given(LEGAL_TOPICS, st.integers(0, 2**31 - 1))
def test_a_deleted_partitions_name_fits_and_says_what_it_was(topic: str, partition: int) -> None:
    name = deleted_partition_dir(topic, partition, UUID)
    assert len(name) <= 255
    parsed = parse_partition_dir(name)
    assert parsed is not None
    assert (parsed.partition, parsed.state, parsed.uuid) == (partition, PartitionState.DELETE, UUID)
    assert topic.startswith(parsed.topic)
    if len(topic) < 200:
        assert parsed.topic == topic
