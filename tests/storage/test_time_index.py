"""Tests lookups by time, in valid indexes and in wrong ones."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.time_index import TimeIndex, TimestampOffset

BASE = 251
ENTRIES = [(1526384718283, 279), (1526384718300, 279), (1526384719000, 290)]
NAME = "00000000000000000251.timeindex"
NONE = TimestampOffset(-1, BASE)


def write(path: Path, entries: list[tuple[int, int]]) -> TimeIndex:
    (path / NAME).write_bytes(
        b"".join(pack(">qi", time, offset - BASE) for time, offset in entries)
    )
    return TimeIndex.open(DirFd(str(path)), NAME, BASE)


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        (-1, NONE),
        (1526384718282, NONE),
        (1526384718283, TimestampOffset(1526384718283, 279)),
        (1526384718288, TimestampOffset(1526384718283, 279)),
        (1526384718300, TimestampOffset(1526384718300, 279)),
        (1 << 62, TimestampOffset(1526384719000, 290)),
    ],
)
def test_lookup_is_the_last_entry_not_after(
    tmp_path: Path, timestamp: int, found: TimestampOffset
) -> None:
    assert write(tmp_path, ENTRIES).lookup(timestamp) == found


def test_entries_by_number_in_order_and_the_last(tmp_path: Path) -> None:
    index = write(tmp_path, ENTRIES)
    assert len(index) == 3
    assert index.floor_slot(1526384718288) == 0
    assert index.entry(2) == index.last_entry() == TimestampOffset(1526384719000, 290)
    assert list(index.entries()) == [TimestampOffset(*entry) for entry in ENTRIES]
    for low, high in ((0, 3), (1, 2), (2, 9), (3, 3), (3, 1)):
        times, offsets = index.columns(low, high)
        assert list(zip(times.tolist(), offsets.tolist(), strict=True)) == ENTRIES[low:high]


def test_a_log_without_timestamps_has_an_empty_index(tmp_path: Path) -> None:
    index = write(tmp_path, [])
    assert (len(index), index.last_entry(), index.lookup(5)) == (0, NONE, NONE)


def test_zero_is_a_timestamp_where_more_follows(tmp_path: Path) -> None:
    index = write(tmp_path, [(0, BASE), (5, BASE + 3)])
    assert index.lookup(0) == TimestampOffset(0, BASE)
    assert len(index) == 2


def test_padding_is_cut(tmp_path: Path) -> None:
    index = write(tmp_path, ENTRIES)
    os.truncate(tmp_path / NAME, 10485756)
    assert index.refresh() is False
    assert TimeIndex.open(DirFd(str(tmp_path)), NAME, BASE).last_entry() == index.last_entry()


@pytest.mark.parametrize(
    "lies",
    [
        [(1000, 260), (1000, 270)],
        [(1000, 260), (2000, 259)],
        [(-2, 260)],
        [(1000, 250)],
    ],
)
def test_an_entry_that_cannot_be_true_is_not_believed(
    tmp_path: Path, lies: list[tuple[int, int]]
) -> None:
    index = write(tmp_path, lies)
    assert index.lookup(lies[-1][0]) == NONE
    assert index.last_entry() == NONE


@given(data=st.binary(max_size=400), timestamp=st.integers(-(2**63), 2**63))
def test_any_bytes_give_an_answer_not_after(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, timestamp: int
) -> None:
    path = tmp_path_factory.getbasetemp() / NAME
    path.write_bytes(data)
    index = TimeIndex.open(DirFd(str(path.parent)), NAME, BASE)
    found = index.lookup(timestamp)
    assert found == NONE or (0 <= found.timestamp <= timestamp and found.offset >= BASE)
    assert index.last_entry().offset >= BASE
    assert len(list(index.entries())) == len(index) <= len(data) // 12
    os.unlink(path)
