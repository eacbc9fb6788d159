"""The removing process still finds the names that were removed along with another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkafs.mount.partition import MountedPartition
from kafkafs.mount.tree import Tree
from kafkafs.mount.writes.removed import REMEMBERED_SECONDS, RemovedNames
from kafkafs.storage.log_manager import LogManager

Two = tuple[MountedPartition, MountedPartition]


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def two(tmp_path: Path) -> Two:
    """Two partitions."""
    with LogManager(str(tmp_path)) as engine:
        engine.create_topic("t", 2)
        catalog = Tree(engine).catalog
        return catalog.partition("t", 0), catalog.partition("t", 1)


def test_who_removed_it_finds_what_went_with_it(two: Two) -> None:
    partition, other = two
    names = RemovedNames(Time())
    names.note(partition, 7, "10", first_base=0, start=3, end=11)
    removed = names.of(partition, 7, "5")
    assert removed is not None
    assert [removed.has_record(offset) for offset in (2, 3, 10, 11)] == [False, True, True, False]
    assert [removed.has_segment(base) for base in (0, 10, 11)] == [True, True, False]
    assert names.of(partition, 7, "10") is None
    assert names.of(partition, 8, "5") is None
    assert names.of(other, 7, "5") is None


def test_removals_of_one_process_add_up(two: Two) -> None:
    partition, _ = two
    names = RemovedNames(Time())
    names.note(partition, 7, "10", first_base=4, start=4, end=11)
    names.note(partition, 7, "30", first_base=9, start=11, end=31)
    removed = names.of(partition, 7, "5")
    assert removed is not None
    assert (removed.first_base, removed.start, removed.end) == (4, 4, 31)
    names.note_again(partition, 7, "5")
    assert names.of(partition, 7, "5") is None
    assert names.of(partition, 7, "6") is not None


def test_it_is_forgotten_after_the_last_removal(two: Two) -> None:
    partition, _ = two
    time = Time()
    names = RemovedNames(time)
    names.note(partition, 7, "10", first_base=0, start=0, end=11)
    time.now += REMEMBERED_SECONDS - 1
    names.note_again(partition, 7, "5")
    time.now += REMEMBERED_SECONDS - 1
    assert names.of(partition, 7, "6") is not None
    time.now += 2
    assert names.of(partition, 7, "6") is None
    names.note_again(partition, 7, "6")  # which is unknown by now
    assert names.of(partition, 7, "7") is None


def test_processes_that_are_not_told_apart_find_nothing(two: Two) -> None:
    partition, _ = two
    names = RemovedNames(Time())
    names.note(partition, 0, "10", first_base=0, start=0, end=11)
    assert names.of(partition, 0, "5") is None


def test_what_is_remembered_is_bounded(two: Two) -> None:
    partition, _ = two
    names = RemovedNames(Time())
    for pid in range(1, 3000):
        names.note(partition, pid, "10", first_base=0, start=0, end=11)
    assert names.of(partition, 1, "5") is None
    assert names.of(partition, 2999, "5") is not None
