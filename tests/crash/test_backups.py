"""`kafkafs backup` through power cuts, kills, failing calls and full disks: every point that can be
seen is complete, and the next run makes one. The same for pruning."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkafs.storage.backup.keeping import Keep
from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.backup.points import prune_points
from tests.backups import Contents, back_up, check, contents
from tests.conftest import differences, fingerprint
from tests.crash.checks import left_by
from tests.crash.moments import moments, seeds
from tests.faults import FailingCalls, RecordingCalls, crash_states

#: A segment's size, beyond what shares an object with others.
LARGE = 70_000


@pytest.fixture
def source(memory_path: Path) -> Path:
    path = memory_path / "source"
    with LogManager(str(path)) as engine:
        engine.create_topic("orders", 1, {"internal.segment.bytes": str(LARGE)})
        engine.create_topic("__consumer_offsets", 1)
        append(engine, "orders", 3)
        append(engine, "__consumer_offsets", 1)
    return path


def append(engine: LogManager, topic: str, count: int) -> None:
    for number in range(count):
        record = SimpleRecord(number, b"k", os.urandom(LARGE - 1000))
        engine.writer(topic, 0).append_records(RecordColumns.from_records([record]))


def grow(source: Path) -> None:
    with LogManager(str(source)) as engine:
        append(engine, "orders", 1)


def points_of(repository: Path, allowed: list[Contents]) -> int:
    """Returns how many points can be seen, of which each must be complete, and one of `allowed`."""
    manifests = sorted((repository / "points").glob("*.json"))
    if not manifests:
        return 0
    assert check(repository) == len(manifests)
    for manifest in manifests:
        assert contents(manifest) in allowed
    return len(manifests)


def test_power_cuts_while_a_backup_is_made(source: Path, memory_path: Path) -> None:
    """Of a second point, which uses objects of the first."""
    root = memory_path / "root"
    root.mkdir()
    first = contents(source)
    recording = RecordingCalls(root)
    with replaced(recording):
        back_up(source, root / "backup")
    grow(source)
    before = fingerprint(source)
    with replaced(recording):
        back_up(source, root / "backup")
    second = contents(source)
    shutil.rmtree(root)
    seen = []
    for state in crash_states(recording, prefixes=moments(len(recording.operations), 23)):
        with left_by(state, root):
            seen.append(points_of(root / "backup", [first, second]))
            back_up(source, root / "backup")
            assert points_of(root / "backup", [first, second]) == seen[-1] + 1
            assert contents(root / "backup") == second
    assert {0, 1} <= set(seen)
    assert differences(before, fingerprint(source)) == []


def test_power_cuts_while_points_are_pruned(source: Path, memory_path: Path) -> None:
    root = memory_path / "root"
    root.mkdir()
    recording = RecordingCalls(root)
    with replaced(recording):
        back_up(source, root / "backup")
        first = contents(source)
        shutil.rmtree(source / "orders-0")
        back_up(source, root / "backup")
        begin = len(recording.operations)
        prune_points(str(root / "backup"), Keep(last=1))
    second = contents(source)
    shutil.rmtree(root)
    count = len(recording.operations)
    chosen = [begin + each for each in moments(count - begin, 5)]
    for state in crash_states(recording, prefixes=chosen):
        with left_by(state, root):
            assert points_of(root / "backup", [first, second]) >= 1
            prune_points(str(root / "backup"), Keep(last=1))
            assert points_of(root / "backup", [second]) == 1


def fails(source: Path, repository: Path) -> bool:
    """Returns whether a backup fails, for want of space."""
    try:
        back_up(source, repository)
    except (OSError, StorageError) as error:
        return "No space left on device" in str(error)
    return False


@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk(source: Path, memory_path: Path, lasting: bool) -> None:
    """The error is passed on, there is no point, and nothing that is not whole; then the same
    command succeeds."""
    repository = memory_path / "backup"
    expected = contents(source)
    counting = FailingCalls(-1, errno.ENOSPC)
    with replaced(counting):
        back_up(source, repository)
    for at in moments(len(counting.made) - 1, 11):
        shutil.rmtree(repository)
        failing = FailingCalls(at, errno.ENOSPC, lasting=lasting)
        with replaced(failing):
            failed = fails(source, repository)
        assert failed or not failing.failed or not lasting
        there = points_of(repository, [expected])
        assert there <= 1
        back_up(source, repository)
        assert points_of(repository, [expected]) == there + 1


CODE = """
import sys
from kafkafs.storage import Backup, Engine, make_point
print("started", flush=True)
for row in make_point(Engine(sys.argv[1]), Backup(sys.argv[2], bandwidth=int(sys.argv[3]))):
    pass
"""


@pytest.mark.parametrize("seed", seeds(12, 6))
def test_a_killed_run_is_continued(source: Path, memory_path: Path, seed: int) -> None:
    """With a bandwidth that lets the copying take about half a second."""
    repository = memory_path / "backup"
    expected = contents(source)
    arguments = [sys.executable, "-c", CODE, str(source), str(repository), str(600_000)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"started\n"
        time.sleep(0.06 * seed)
        run.send_signal(signal.SIGKILL)
    there = points_of(repository, [expected])
    kept = {path.name: path.stat().st_ino for path in (repository / "objects").glob("*-0/*")}
    back_up(source, repository)
    assert points_of(repository, [expected]) == there + 1
    assert not list((repository / "unfinished").iterdir())
    for path in (repository / "objects").glob("*-0/*"):
        assert kept.get(path.name, path.stat().st_ino) == path.stat().st_ino
