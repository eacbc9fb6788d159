"""Tests leader epochs: the epoch of an offset, and files that contradict themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.files.checkpoints import EpochEntry
from kafkafs.storage.io import durable
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.io.durable import Calls, WritableDirFd
from kafkafs.storage.log.state.epochs import (
    LeaderEpochFile,
    LeaderEpochFileCache,
    read_leader_epochs,
)


def epochs(*entries: tuple[int, int]) -> LeaderEpochFileCache:
    return LeaderEpochFileCache.assigned(EpochEntry(*entry) for entry in entries)


def test_an_offset_is_of_the_epoch_that_began_at_or_before_it() -> None:
    found = epochs((0, 40), (4, 2500), (6, 3750))
    assert [found.epoch_of(offset) for offset in (0, 39, 40, 2499, 2500, 3750, 9999)] == [
        -1, -1, 0, 0, 4, 6, 6,
    ]  # fmt: skip
    assert found.latest == 6


def test_a_log_without_epochs() -> None:
    assert (epochs().latest, epochs().epoch_of(7)) == (-1, -1)


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ([(0, 0), (2, 10), (4, 10)], [(0, 0), (4, 10)]),
        ([(0, 0), (5, 10), (3, 20)], [(0, 0), (3, 20)]),
        ([(0, 100), (1, 5)], [(1, 5)]),
    ],
)
def test_a_later_entry_drops_what_it_contradicts(
    entries: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    assert epochs(*entries) == LeaderEpochFileCache(tuple(EpochEntry(*entry) for entry in kept))


def test_a_brokers_file(corpus: Callable[[str], Path]) -> None:
    root = DirFd(str(corpus("kafka43-clean")))
    assert read_leader_epochs(root.child("trimmed-0")).entries == (EpochEntry(0, 1433),)
    assert read_leader_epochs(DirFd(str(corpus("kafka28"))).child("v0-none-0")).latest == -1


def test_a_torn_file_is_corrupt_and_named(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0\n")
    with pytest.raises(
        CorruptError, match="leader-epoch-checkpoint: position 4: 1 fields in an entry"
    ):
        read_leader_epochs(DirFd(str(tmp_path)))


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ((2, 20), [(0, 0), (2, 10)]),
        ((2, 7), [(0, 0), (2, 7)]),
        ((3, 20), [(0, 0), (2, 10), (3, 20)]),
        ((3, 10), [(0, 0), (3, 10)]),
        ((1, 30), [(0, 0), (1, 30)]),
        ((5, 0), [(5, 0)]),
    ],
)
def test_an_epoch_is_assigned(
    assigned: tuple[int, int], kept: list[tuple[int, int]], tmp_path: Path
) -> None:
    file = LeaderEpochFile(WritableDirFd(str(tmp_path)), epochs((0, 0), (2, 10)))
    file.assign(*assigned)
    assert file.epochs == epochs(*kept)
    changed = file.epochs != epochs((0, 0), (2, 10))
    assert (tmp_path / "leader-epoch-checkpoint").exists() == changed
    if changed:
        assert read_leader_epochs(DirFd(str(tmp_path))) == file.epochs


@pytest.mark.parametrize(
    ("end", "kept"),
    [(11, [(0, 0), (2, 10)]), (10, [(0, 0)]), (1, [(0, 0)]), (0, [])],
)
def test_epochs_at_and_behind_the_logs_end_go(end: int, kept: list[tuple[int, int]]) -> None:
    assert epochs((0, 0), (2, 10)).cut_at_end(end) == epochs(*kept)


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (4, [(1, 5), (2, 10)]),
        (5, [(1, 5), (2, 10)]),
        (9, [(1, 9), (2, 10)]),
        (10, [(2, 10)]),
        (99, [(2, 99)]),
    ],
)
def test_the_first_epoch_begins_where_the_log_does(start: int, kept: list[tuple[int, int]]) -> None:
    assert epochs((1, 5), (2, 10)).cut_at_start(start) == epochs(*kept)


def test_the_epochs_are_in_the_file_and_when_that_fails_as_they_were(tmp_path: Path) -> None:
    class NoSpace(Calls):
        def pwritev(self, *_: object) -> int:
            raise OSError(28, "No space left on device")

    path = tmp_path / "leader-epoch-checkpoint"
    file = LeaderEpochFile(WritableDirFd(str(tmp_path)), LeaderEpochFileCache())
    file.assign(0, 0)
    file.assign(3, 1000)
    file.cut_at_start(500)
    assert path.read_text() == "0\n2\n0 0\n3 1000\n"  # the rest can wait
    file.write()
    assert path.read_text() == "0\n2\n0 500\n3 1000\n"
    with durable.replaced(NoSpace()), pytest.raises(OSError, match="No space") as raised:
        file.clear()
    assert str(raised.value.filename).startswith(str(path))
    assert file.latest == 3
    assert path.read_text() == "0\n2\n0 500\n3 1000\n"
    file.extend_down(epochs((0, 200)))
    assert path.read_text() == "0\n2\n0 200\n3 1000\n"
    file.clear()
    assert path.read_text() == "0\n0\n"
