"""Tests the snapshot files of a partition that is open for writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.format.files.snapshot import ProducerSnapshotEntry, format_producer_snapshot
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log.state.producers import ProducerStateManager
from kafkafs.storage.log.state.snapshots import SnapshotFiles

EMPTY = format_producer_snapshot([])
ONE = format_producer_snapshot([ProducerSnapshotEntry(7, 0, 1, 9, 1, 1000, -1, -1)])


@pytest.fixture
def partition(tmp_path: Path) -> WritableDirFd:
    (tmp_path / "p-0").mkdir()
    return WritableDirFd(str(tmp_path)).child("p-0")


def names(directory: WritableDirFd) -> list[str]:
    return sorted(entry.name.lstrip("0") for entry in directory.list())


def producers_at(offset: int) -> ProducerStateManager:
    producers = ProducerStateManager()
    producers.load(ONE, offset, now_ms=0)
    return producers


def test_those_of_a_real_broker_are_found(corpus: Callable[[str], Path]) -> None:
    log_dir = WritableDirFd(str(corpus("kafka43-clean")))
    trimmed = SnapshotFiles(log_dir.child("trimmed-0"), 1433)
    segments = {path.stem for path in corpus("kafka43-clean").glob("trimmed-0/*.log")}
    assert f"{trimmed.offsets[0]:020d}" in segments  # not those of `.deleted` segments
    assert trimmed.newest == trimmed.offsets[-1]
    assert SnapshotFiles(log_dir.child("emptied-0"), 40).newest == 40


def test_one_is_taken_where_something_was_counted_since_the_last(
    partition: WritableDirFd,
) -> None:
    snapshots = SnapshotFiles(partition, 0)
    assert snapshots.take(ProducerStateManager()) is None
    file = snapshots.take(producers_at(10))
    assert file is not None
    assert file.read(0, 100) == ONE
    assert snapshots.take(producers_at(10)) is None
    assert snapshots.take(producers_at(9)) is None
    assert (snapshots.offsets, snapshots.newest) == ([10], 10)
    assert SnapshotFiles(partition, 0).offsets == [10]


def test_without_any_the_log_start_is_as_good(partition: WritableDirFd) -> None:
    snapshots = SnapshotFiles(partition, 10)
    assert snapshots.take(producers_at(10)) is None
    assert snapshots.take(producers_at(11)) is not None
    assert snapshots.mark_deleted(11) == f"{11:020d}.snapshot.deleted"
    snapshots.start_moved(12)
    assert snapshots.take(producers_at(12)) is None
    assert names(partition) == ["11.snapshot.deleted"]


def test_a_longer_one_of_that_name_is_replaced(partition: WritableDirFd) -> None:
    snapshots = SnapshotFiles(partition, 0)
    partition.write_in_place(f"{10:020d}.snapshot", bytes(1000))
    snapshots.take(producers_at(10))
    assert partition.read_small(f"{10:020d}.snapshot", 2000) == ONE


def test_marking_one_that_is_not_there(partition: WritableDirFd) -> None:
    snapshots = SnapshotFiles(partition, 0)
    snapshots.take(producers_at(10))
    assert snapshots.mark_deleted(9) is None
    partition.remove(f"{10:020d}.snapshot")
    assert snapshots.mark_deleted(10) is None
    assert snapshots.offsets == []


def test_a_cut_log_has_those_that_it_is_to_have(partition: WritableDirFd) -> None:
    snapshots = SnapshotFiles(partition, 0)
    for offset in (10, 20, 30):
        snapshots.take(producers_at(offset))
    snapshots.change({15: EMPTY, 10: EMPTY}, gone=[20, 30, 40])
    assert names(partition) == ["10.snapshot", "15.snapshot"]
    assert partition.read_small(f"{10:020d}.snapshot", 2000) == EMPTY
    assert (snapshots.offsets, snapshots.newest) == ([10, 15], 15)


def test_a_log_that_begins_anew_has_none(partition: WritableDirFd) -> None:
    snapshots = SnapshotFiles(partition, 0)
    for offset in (10, 20):
        snapshots.take(producers_at(offset))
    snapshots.remove_all()
    assert names(partition) == []
    assert snapshots.take(producers_at(5)) is not None
