"""Tests lookups by offset and by position, in valid indexes and in wrong ones."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import SegmentGone
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.offset_index import OffsetIndex, OffsetPosition

# The index of a segment at 522, as given in the literature on Kafka.
BASE = 522
ENTRIES = [(587, 6410), (639, 13795), (691, 21060), (743, 28367), (795, 35674)]
NAME = "00000000000000000522.index"


def write(path: Path, entries: list[tuple[int, int]]) -> OffsetIndex:
    (path / NAME).write_bytes(b"".join(pack(">ii", offset - BASE, at) for offset, at in entries))
    return OffsetIndex.open(DirFd(str(path)), NAME, BASE)


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        (0, (522, 0)),
        (522, (522, 0)),
        (586, (522, 0)),
        (587, (587, 6410)),
        (600, (587, 6410)),
        (794, (743, 28367)),
        (795, (795, 35674)),
        (1 << 62, (795, 35674)),
    ],
)
def test_lookup_is_the_greatest_entry_not_above(
    tmp_path: Path, offset: int, found: tuple[int, int]
) -> None:
    index = write(tmp_path, ENTRIES)
    assert index.lookup(offset) == OffsetPosition(*found)
    assert index.around(offset, 40_000)[:2] == found


@pytest.mark.parametrize(
    ("position", "found"),
    [(0, (522, 0)), (6409, (522, 0)), (6410, (587, 6410)), (30000, (743, 28367))],
)
def test_lookup_by_position(tmp_path: Path, position: int, found: tuple[int, int]) -> None:
    assert write(tmp_path, ENTRIES).lookup_position(position) == OffsetPosition(*found)


def test_entries_by_number_and_in_order(tmp_path: Path) -> None:
    index = write(tmp_path, ENTRIES)
    assert len(index) == 5
    assert index.floor_slot(600) == 0
    assert index.floor_slot(586) == -1
    assert index.entry(3) == OffsetPosition(743, 28367)
    assert list(index.entries()) == [OffsetPosition(*entry) for entry in ENTRIES]
    with pytest.raises(IndexError):
        index.entry(5)


def test_a_missing_index_is_gone(tmp_path: Path) -> None:
    with pytest.raises(SegmentGone):
        OffsetIndex.open(DirFd(str(tmp_path)), NAME, BASE)


def test_an_entry_behind_the_end_of_the_log_is_not_believed(tmp_path: Path) -> None:
    index = write(tmp_path, ENTRIES)
    assert index.lookup(700, log_size=21060) == OffsetPosition(BASE, 0)
    assert index.lookup(700, log_size=21061) == OffsetPosition(691, 21060)


@pytest.mark.parametrize(
    "lies",
    [
        [(587, 6410), (639, 6410)],
        [(587, 6410), (639, 6409)],
        [(587, 0)],
        [(587, -1)],
        [(522, 100)],
        [(521, 100)],
        [(587, 6410), (587, 6500)],
        [(587, 6410), (690, 9000), (680, 9500), (680, 9600)],
    ],
)
def test_an_entry_that_cannot_be_true_gives_the_start(
    tmp_path: Path, lies: list[tuple[int, int]]
) -> None:
    index = write(tmp_path, lies)
    assert index.lookup(lies[-1][0]) == OffsetPosition(BASE, 0)
    assert index.around(lies[-1][0], 40_000)[:2] == (BASE, 0)


@pytest.mark.parametrize("later", [(600, 6410), (600, 6409), (586, 9000)])
def test_an_entry_that_the_next_one_contradicts_gives_the_start(
    tmp_path: Path, later: tuple[int, int]
) -> None:
    index = write(tmp_path, [(587, 6410), later, (620, 9500)])
    assert index.lookup(590) == OffsetPosition(BASE, 0)
    assert index.around(590, 40_000)[:2] == (BASE, 0)


def test_an_entry_that_is_being_written_does_not_count_yet(tmp_path: Path) -> None:
    index = write(tmp_path, ENTRIES)
    with (tmp_path / NAME).open("ab") as broker:
        broker.write(pack(">i", 850 - BASE) + bytes(1000))
    assert index.refresh() is False
    assert index.lookup(900) == OffsetPosition(795, 35674)
    with (tmp_path / NAME).open("r+b") as broker:
        broker.seek(5 * 8 + 4)
        broker.write(pack(">i", 40000))
    assert index.refresh() is True
    assert index.lookup(900) == OffsetPosition(850, 40000)


@given(data=st.binary(max_size=400), offset=st.integers(-(2**63), 2**63))
def test_any_bytes_give_an_answer_not_above(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int
) -> None:
    path = tmp_path_factory.getbasetemp() / NAME
    path.write_bytes(data)
    index = OffsetIndex.open(DirFd(str(path.parent)), NAME, BASE)
    found = index.lookup(offset, log_size=1 << 20)
    if found != index.start:
        assert BASE < found.offset <= offset
        assert 0 < found.position < 1 << 20
    found = index.lookup_position(1000)
    if found != index.start:
        assert found.offset > BASE
        assert 0 < found.position <= 1000
    assert len(list(index.entries())) == len(index) <= len(data) // 8
    os.unlink(path)
