"""Tests what both indexes share: where the entries end, safe maps, and the warm search."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.index_file import WARM_BYTES, IndexFile
from tests.kernel_forms import in_use, uncompiled

ENTRY = Struct(">ii")
PREALLOCATED = 10485760


def index_file(path: Path) -> IndexFile:
    return IndexFile(DirFd(str(path.parent)).open(path.name), ENTRY, any)


def pack(*numbers: int) -> bytes:
    return b"".join(ENTRY.pack(number, number * 100) for number in numbers)


def first_fields(index: IndexFile) -> list[int]:
    entries = index.entries()
    mapped = [entries[slot][0] for slot in range(entries.count)]
    assert [fields[0] for fields in index.stream()] == mapped
    return mapped


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "i"


@pytest.mark.parametrize("count", [0, 1, 2, 3, 511, 512, 513, 5000])
def test_padding_of_a_live_or_crashed_broker_is_no_entry(path: Path, count: int) -> None:
    path.write_bytes(pack(*range(1, count + 1)))
    os.truncate(path, PREALLOCATED)
    assert first_fields(index_file(path)) == list(range(1, count + 1))


@pytest.mark.parametrize("size", [0, 1, 7])
def test_less_than_one_entry_is_none(path: Path, size: int) -> None:
    path.write_bytes(pack(1)[:size])
    assert first_fields(index_file(path)) == []


def test_an_entry_half_in_the_file_is_left_out(path: Path) -> None:
    path.write_bytes(pack(1, 2, 3)[:-1])
    assert first_fields(index_file(path)) == [1, 2]


def test_a_full_file_without_padding_is_all_entries(path: Path) -> None:
    path.write_bytes(pack(*range(1, 40001)))
    assert first_fields(index_file(path)) == list(range(1, 40001))


@pytest.mark.parametrize("steps", [[1], [1, 1, 1], [600, 1, 600], [5000, 0, 20000]])
def test_growth_into_the_padding_is_seen_by_refresh(path: Path, steps: list[int]) -> None:
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


def test_the_map_covers_only_what_is_written(path: Path) -> None:
    path.write_bytes(pack(1, 2, 3))
    os.truncate(path, PREALLOCATED)
    assert len(index_file(path).entries().memory) == 3 * ENTRY.size


def test_a_file_cut_under_the_map_is_measured_again_and_not_touched(path: Path) -> None:
    # 40000 entries are 79 pages; touching a page past the new end would raise SIGBUS.
    path.write_bytes(pack(*range(1, 40001)))
    index = index_file(path)
    assert index.entries().count == 40000
    os.truncate(path, 10 * ENTRY.size)
    assert first_fields(index) == list(range(1, 11))
    os.truncate(path, 0)
    assert first_fields(index) == []


def test_an_entry_outside_is_an_index_error(path: Path) -> None:
    path.write_bytes(pack(1, 2))
    entries = index_file(path).entries()
    for slot in (-1, 2):
        with pytest.raises(IndexError):
            entries[slot]


WIDTHS = {4: Struct(">i"), 8: Struct(">q")}


def packed(keys: list[int], size: int, at: int, width: int) -> bytes:
    """Returns entries of `size` bytes with a key of `width` at byte `at`, and 0xFF around it."""
    fields = (WIDTHS[width].pack(key) for key in keys)
    return b"".join(b"\xff" * at + field + b"\xff" * (size - at - width) for field in fields)


def floor_slots(
    keys: list[int], target: int, size: int, at: int, width: int, warm: int
) -> set[int]:
    """Returns the answers of both forms of the kernel."""
    memory = packed(keys, size, at, width)
    forms = (in_use("search"), uncompiled("search"))
    return {form.floor_slot(memory, len(keys), size, at, width, target, warm) for form in forms}


@given(
    keys=st.lists(st.integers(-(1 << 31), (1 << 31) - 1), unique=True, max_size=200).map(sorted),
    target=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-300, 300),
    place=st.sampled_from([(8, 0, 4), (8, 4, 4), (12, 0, 8), (8, 0, 8), (13, 3, 8)]),
    warm=st.sampled_from([0, 1, 2, 50, 1024]),
)
def test_the_search_finds_the_floor(
    keys: list[int], target: int, place: tuple[int, int, int], warm: int
) -> None:
    for wanted in (target, *keys[:3], *keys[-3:]):
        assert floor_slots(keys, wanted, *place, warm) == {bisect_right(keys, wanted) - 1}


@given(
    keys=st.lists(st.integers(-5, 5), max_size=50),
    target=st.integers(-6, 6),
    warm=st.sampled_from([0, 2, 1024]),
)
def test_the_search_ends_in_any_file(keys: list[int], target: int, warm: int) -> None:
    (slot,) = floor_slots(keys, target, 8, 0, 4, warm)
    assert -1 <= slot < max(len(keys), 1)


@pytest.mark.parametrize(
    "claims",
    [
        (3, 8, 0, 4),
        (-1, 8, 0, 4),
        (2, 8, 5, 4),
        (2, 8, -1, 4),
        (2, 8, 0, 9),
        (2, 8, 0, 0),
        (1, 0, 0, 0),
    ],
)
def test_entries_that_the_memory_does_not_hold_are_refused(
    claims: tuple[int, int, int, int],
) -> None:
    for form in (in_use("search"), uncompiled("search")):
        with pytest.raises(ValueError, match="no such entries"):
            form.floor_slot(bytes(16), *claims, 1, 1024)


class Probed:
    """A million entries whose keys are their numbers; records which ones are read."""

    COUNT = 1_000_000

    def __init__(self) -> None:
        self.shape = (self.COUNT * ENTRY.size,)
        self.slots: set[int] = set()

    def __getitem__(self, at: int) -> int:
        slot, byte = divmod(at, ENTRY.size)
        self.slots.add(slot)
        return slot.to_bytes(4, "big")[byte]

    def floor_slot(self, target: int) -> int:
        warm = WARM_BYTES // ENTRY.size
        slot: int = uncompiled("search").floor_slot(
            self, self.COUNT, ENTRY.size, 0, 4, target, warm
        )
        return slot


def test_a_lookup_near_the_end_touches_only_the_warm_section() -> None:
    entries = Probed()
    assert entries.floor_slot(entries.COUNT - 5) == entries.COUNT - 5
    assert min(entries.slots) == entries.COUNT - 1 - 1024
    assert len(entries.slots) <= 12


def test_a_lookup_in_the_cold_part_does_not_bisect_the_warm_section() -> None:
    entries = Probed()
    assert entries.floor_slot(17) == 17
    assert max(entries.slots) == entries.COUNT - 1 - 1024
    assert len(entries.slots) <= 22


def test_a_target_beyond_any_key(path: Path) -> None:
    path.write_bytes(pack(1, 2, 3))
    entries = index_file(path).entries()
    assert entries.floor_slot(0, 4, 1 << 70) == 2
    assert entries.floor_slot(0, 4, -(1 << 70)) == -1
