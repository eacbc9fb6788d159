"""Ingest into several partitions through power cuts, failing calls and kills: each write appears
completely or not at all, and once. To a reader that does not know the commit record, this holds for
each partition."""

from __future__ import annotations

import errno
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from kafkafs.storage.errors import LogDirOffline, StorageError
from kafkafs.storage.ingest.commit_file import COMMIT_FILE, IngestWrite
from kafkafs.storage.ingest.two_phase import ingest_parts
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import complaints, left_by
from tests.crash.ingesting import (
    PARTITIONS,
    SETTINGS,
    WAYS,
    append,
    check,
    open_engine,
    write,
    written,
)
from tests.crash.moments import moments, seeds
from tests.crash.program import tally_of
from tests.faults import CrashState, FailingCalls, RecordingCalls, crash_states
from tests.reading import read
from tests.staging import ALL, JOINED, NONE, large_from, stage

T = TypeVar("T")

WRITES = len(WAYS)


def recorded(root: Path) -> RecordingCalls:
    """Records some writes, with appends around them."""
    root.mkdir()
    with open_engine(root / "logs") as engine:
        engine.create_topic("t", len(PARTITIONS), SETTINGS)
        append(engine, "before")
    recording = RecordingCalls(root)
    with replaced(recording), open_engine(root / "logs") as engine:
        for number in range(WRITES):
            with large_from(WAYS[number]):
                write(engine, root / "logs", number)
            recording.mark(number)
            append(engine, "after")
    return recording


def cuts(root: Path, every: int) -> list[CrashState]:
    """Returns what power cuts may leave. Write the states to `root`, because the files name it."""
    recording = recorded(root)
    shutil.rmtree(root)
    return list(crash_states(recording, prefixes=moments(len(recording.operations), every)))


def go_on(log_dir: Path, marks: set[int]) -> set[int]:
    """Opens what is left, repeats all writes, and reopens; returns what was there at first."""
    with open_engine(log_dir) as engine:
        found = check(engine, marks)
        assert not engine.commits.pending()
        for number in range(WRITES + 1):
            write(engine, log_dir, number)
        check(engine, range(WRITES + 1))
    with open_engine(log_dir) as engine:
        check(engine, range(WRITES + 1))
    return found


def each_cut(root: Path, every: int, look: Callable[[Path, set[int]], T]) -> list[T]:
    found: list[T] = []
    for state in cuts(root, every):
        marks = {mark for mark in state.marks if isinstance(mark, int)}
        with left_by(state, root):
            found.append(look(root / "logs", marks))
    return found


def test_power_cuts(memory_path: Path) -> None:
    found = each_cut(memory_path / "root", 359, go_on)
    assert set(map(frozenset, found)) <= set(map(frozenset, map(range, range(WRITES + 1))))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_power_cuts_at_many_moments(memory_path: Path) -> None:
    found = each_cut(memory_path / "root", 73, go_on)
    assert set(map(frozenset, found)) == set(map(frozenset, map(range, range(WRITES + 1))))


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 23])
def test_a_topic_is_made_with_its_records_or_not_at_all(memory_path: Path, every: int) -> None:
    root = memory_path / "root"
    root.mkdir()
    with open_engine(root / "logs") as engine:
        engine.create_topic("new", 2)
        staged = {("new", 0): [["a"], ["b"]], ("new", 1): [["c"]]}
        parts = stage(root / "logs", "j", staged)
        engine.delete_topic("new")
    recording = RecordingCalls(root)
    with replaced(recording), open_engine(root / "logs") as engine:
        ingest_parts(engine, IngestWrite("j"), parts, {"new": 2})
        recording.mark(0)
    shutil.rmtree(root)
    found = set()
    for state in crash_states(recording, prefixes=moments(len(recording.operations), every)):
        with left_by(state, root), open_engine(root / "logs") as engine:
            assert complaints(engine) == []
            is_there = "new" in engine.topics()
            assert is_there or 0 not in state.marks, state
            if not is_there:
                ingest_parts(engine, IngestWrite("again"), parts, {"new": 2})
            read_ = [read(engine.log("new", number).view()) for number in range(2)]
            assert [[each.value for each in some] for some in read_] == [[b"a", b"b"], [b"c"]]
            assert not engine.commits.started()
        found.add(is_there)
    assert found == {True, False}


def as_a_stranger(log_dir: Path, marks: set[int]) -> bool:
    """Lets a reader and then a broker open the directory without the commit record. In each
    partition they see all of a write or nothing, and the broker can continue. The ingest is
    finished after that. Returns whether it had been incomplete."""
    written(Engine([str(log_dir)]))
    noted, hidden = log_dir / COMMIT_FILE, log_dir.parent / "hidden"
    was_noted = noted.exists()
    if was_noted:
        noted.rename(hidden)
    with open_engine(log_dir) as engine:
        before = written(engine)
        assert all(marks <= each for each in before)
        append(engine, "a broker's")
    if was_noted:
        hidden.rename(noted)
    with open_engine(log_dir) as engine:
        after = check(engine, marks)
    return any(each != after for each in before)


def test_a_broker_comes_first(memory_path: Path) -> None:
    assert len(each_cut(memory_path / "root", 241, as_a_stranger)) > 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_broker_comes_first_at_many_moments(memory_path: Path) -> None:
    assert any(each_cut(memory_path / "root", 37, as_a_stranger))


@pytest.mark.parametrize(
    ("number", "large"), [(errno.EIO, ALL), (errno.ENOSPC, NONE), (errno.ENOSPC, JOINED)]
)
@pytest.mark.parametrize("every", [pytest.param(9, marks=pytest.mark.slow), 37])
def test_each_call_that_changes_something_fails_once(
    memory_path: Path, number: int, large: int | None, every: int
) -> None:
    original, log_dir = memory_path / "original", memory_path / "root" / "logs"
    with open_engine(original / "logs") as engine:
        engine.create_topic("t", len(PARTITIONS), SETTINGS)
        append(engine, "before")
    outcomes = set()
    for at in moments(sys.maxsize, every):
        shutil.rmtree(log_dir.parent, ignore_errors=True)
        shutil.copytree(original, log_dir.parent)
        failing = FailingCalls(at, number)
        with large_from(large):
            outcome = fail(log_dir, failing)
        if not failing.failed:
            break
        outcomes.add(outcome)
    assert outcomes >= {"placed", "refused", "offline"}


def fail(log_dir: Path, failing: FailingCalls) -> str:
    """Ingests one write, one of whose calls fails. Returns the outcome, which must match the
    contents."""
    engine = open_engine(log_dir)
    try:
        with replaced(failing):
            outcome = tried(engine, log_dir)
        if outcome == "refused":
            assert not any(written(engine))
            append(engine, "goes on")
            write(engine, log_dir, 1)
    finally:
        try:
            engine.close()
        except (StorageError, OSError):
            assert outcome == "offline", failing.failed
    with open_engine(log_dir) as engine:
        found = check(engine, {"placed": [0], "refused": [1], "offline": []}[outcome])
        assert found <= {0} or outcome == "refused"
    return outcome


def tried(engine: LogManager, log_dir: Path) -> str:
    try:
        write(engine, log_dir, 0)
    except LogDirOffline:
        return "offline"
    except (StorageError, OSError):
        return "refused"
    return "placed"


def test_kills(memory_path: Path) -> None:
    found = tally_of("ingesting", memory_path, 10, 1)
    assert 0 < found["found"] <= found["tried"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds(2, every=2))
def test_forty_kills(memory_path: Path, seed: int) -> None:
    found = tally_of("ingesting", memory_path, 40, seed)
    assert found["found"] > 20
    assert found["killed in a write"] > 10
