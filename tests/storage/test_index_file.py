"""The part that both indexes share: where the entries end, maps that stay safe, the warm search."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.disk import Directory
from kafkafs.storage.segment.index_file import IndexFile, floor_slot

ENTRY = Struct(">ii")
PREALLOCATED = 10485760


def index_file(path: Path) -> IndexFile:
    return IndexFile(Directory(str(path.parent)).open(path.name), ENTRY, any)


def pack(*numbers: int) -> bytes:
    return b"".join(ENTRY.pack(number, number * 100) for number in numbers)


def first_fields(index: IndexFile) -> list[int]:
    entries = index.entries()
    mapped = [entries[slot][0] for slot in range(entries.count)]
    assert [fields[0] for fields in index.stream()] == mapped
    return mapped


@pytest.mark.parametrize("count", [0, 1, 2, 3, 511, 512, 513, 5000])
def test_padding_of_a_live_or_crashed_broker_is_no_entry(tmp_path: Path, count: int) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(*range(1, count + 1)))
    os.truncate(path, PREALLOCATED)
    assert first_fields(index_file(path)) == list(range(1, count + 1))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_less_than_one_entry_is_none(tmp_path: Path, size: int) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(1)[:size])
    assert first_fields(index_file(path)) == []


def test_an_entry_half_in_the_file_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(1, 2, 3)[:-1])
    assert first_fields(index_file(path)) == [1, 2]


def test_a_full_file_without_padding_is_all_entries(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(*range(1, 40001)))
    assert first_fields(index_file(path)) == list(range(1, 40001))


@pytest.mark.parametrize("steps", [[1], [1, 1, 1], [600, 1, 600], [5000, 0, 20000]])
def test_growth_into_the_padding_is_seen_by_refresh(tmp_path: Path, steps: list[int]) -> None:
    path = tmp_path / "i"
    path.write_bytes(b"")
    os.truncate(path, PREALLOCATED)
    index = index_file(path)
    written = 0
    for step in steps:
        with path.open("r+b") as broker:
            broker.seek(written * ENTRY.size)
            broker.write(pack(*range(written + 1, written + step + 1)))
        written += step
        assert index.refresh() is (step > 0)
        assert first_fields(index) == list(range(1, written + 1))
        assert index.refresh() is False


def test_the_map_covers_only_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(1, 2, 3))
    os.truncate(path, PREALLOCATED)
    assert len(index_file(path).entries().memory) == 3 * ENTRY.size


def test_a_file_cut_under_the_map_is_measured_again_and_not_touched(tmp_path: Path) -> None:
    # 40000 entries are 79 pages; touching one of them behind the new end would be a SIGBUS.
    path = tmp_path / "i"
    path.write_bytes(pack(*range(1, 40001)))
    index = index_file(path)
    assert index.entries().count == 40000
    os.truncate(path, 10 * ENTRY.size)
    assert first_fields(index) == list(range(1, 11))
    os.truncate(path, 0)
    assert first_fields(index) == []


def test_an_entry_outside_is_an_index_error(tmp_path: Path) -> None:
    path = tmp_path / "i"
    path.write_bytes(pack(1, 2))
    entries = index_file(path).entries()
    for slot in (-1, 2):
        with pytest.raises(IndexError):
            entries[slot]


@given(
    keys=st.lists(st.integers(0, 1 << 40), unique=True, max_size=200).map(sorted),
    target=st.integers(-1, 1 << 40),
    entry_size=st.sampled_from([8, 12, 512, 4096]),
)
def test_the_search_finds_the_floor(keys: list[int], target: int, entry_size: int) -> None:
    expected = bisect_right(keys, target) - 1
    assert floor_slot(keys.__getitem__, len(keys), target, entry_size) == expected
    for key in keys[:5] + keys[-5:]:
        found = floor_slot(keys.__getitem__, len(keys), key, entry_size)
        assert found == bisect_right(keys, key) - 1


@given(keys=st.lists(st.integers(-5, 5), max_size=50), target=st.integers(-6, 6))
def test_the_search_ends_in_any_file(keys: list[int], target: int) -> None:
    assert -1 <= floor_slot(keys.__getitem__, len(keys), target, 512) < max(len(keys), 1)


@pytest.mark.parametrize(("entry_size", "warm"), [(8, 1024), (12, 682)])
def test_a_lookup_near_the_end_touches_only_the_warm_section(entry_size: int, warm: int) -> None:
    count = 1_000_000
    probed: list[int] = []

    def key(slot: int) -> int:
        probed.append(slot)
        return slot

    assert floor_slot(key, count, count - 5, entry_size) == count - 5
    assert min(probed) == count - 1 - warm
    assert len(probed) <= 12


def test_a_lookup_in_the_cold_part_does_not_bisect_the_warm_section() -> None:
    count = 1_000_000
    probed: list[int] = []

    def key(slot: int) -> int:
        probed.append(slot)
        return slot

    assert floor_slot(key, count, 17, 8) == 17
    assert max(probed) == count - 1 - 1024
    assert len(probed) <= 22
