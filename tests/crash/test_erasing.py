"""Erasing through power cuts and failing calls: all other records are always there, and another run
erases what is left of the records."""

from __future__ import annotations

import errno
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from kafkafs.storage.errors import LogDirOffline, NotClosed, RecordNotFound
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from kafkafs.storage.operations.request import PartitionFailed
from tests.crash.checks import left_by, refuse_complaints
from tests.crash.failing import fail_each
from tests.crash.moments import moments
from tests.erasing import KEY, TOPIC, make, open_manager, records_of, traces
from tests.faults import FailingCalls, RecordingCalls, crash_states
from tests.reading import Plain

REQUEST = Erase(Selection.of(TOPIC), keys=frozenset([KEY]))


def check(root: Path, expected: list[Plain]) -> bool:
    """Checks that all other records are there, erases the rest, and checks again. Returns whether
    there was anything left to erase."""
    assert [each for each in records_of(root) if each.key != KEY] == expected
    with open_manager(root) as manager:
        refuse_complaints(manager)
        rows = list(erase(manager, REQUEST))
        refuse_complaints(manager)
    is_left = all(isinstance(row, ErasedFile) for row in rows)
    if not is_left:
        [failed] = rows
        assert isinstance(failed, PartitionFailed)
        assert isinstance(failed.cause, RecordNotFound)
    assert records_of(root) == expected
    assert traces(root) == []
    return is_left


# -- power cuts -----------------------------------------------------------------------------------


def cut_at(path: Path, every: int) -> Counter[bool]:
    """Checks what power cuts after each `every`-th operation may leave; returns how many left
    something to erase."""
    root = path / "root"
    root.mkdir()
    expected = make(root)
    recording = RecordingCalls(root)
    with replaced(recording), open_manager(root) as manager:
        assert all(isinstance(row, ErasedFile) for row in erase(manager, REQUEST))
    outcomes: Counter[bool] = Counter()
    prefixes = moments(len(recording.operations), every)
    for state in crash_states(recording, prefixes=prefixes, samples=1):
        left = path / f"state-{outcomes.total()}"
        with left_by(state, left):
            outcomes[check(left, expected)] += 1
    return outcomes


def test_a_power_cut_now_and_then(memory_path: Path) -> None:
    assert cut_at(memory_path, every=71).total() > 3


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_power_cuts_at_many_moments(memory_path: Path) -> None:
    outcomes = cut_at(memory_path, every=7)
    assert outcomes[True] > 30
    assert outcomes[False] > 3


# -- failing calls --------------------------------------------------------------------------------


def erase_with(calls: FailingCalls, root: Path) -> str:
    """Erases while a call fails; returns how that ended."""
    outcome = "opening"
    manager: LogManager | None = None
    with replaced(calls), suppress(LogDirOffline, NotClosed, OSError):
        manager = open_manager(root)
        rows = list(erase(manager, REQUEST))
        failed = [row for row in rows if isinstance(row, PartitionFailed)]
        is_offline = any(isinstance(row.cause, LogDirOffline) for row in failed)
        outcome = "offline" if is_offline else "refused" if failed else "done"
        if outcome == "refused":
            unfinished = [*root.rglob("*.cleaned"), *root.rglob("*.swap")]
            assert unfinished == []
        manager.close()
    if manager is not None:
        with suppress(LogDirOffline, NotClosed):
            manager.close()
    return outcome


def erase_failing(path: Path, number: int, every: int) -> Counter[str]:
    """Fails each `every`-th call of an erasure, one at a time; returns how they ended."""
    made = path / "made"
    made.mkdir()
    expected = make(made)

    def run(root: Path, calls: FailingCalls) -> Counter[str]:
        shutil.copytree(made, root)
        outcome = erase_with(calls, root)
        assert outcome == "done" or calls.failed
        check(root, expected)
        return Counter({outcome: 1})

    return fail_each(path, number, every, run)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_calls_that_fail_now_and_then(memory_path: Path, number: int) -> None:
    assert erase_failing(memory_path, number, every=211).total() > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_many_calls_failing_one_at_a_time(memory_path: Path, number: int) -> None:
    outcomes = erase_failing(memory_path, number, every=11)
    assert outcomes["refused"] + outcomes["offline"] > 3
