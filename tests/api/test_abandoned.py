"""Tests that failed and dropped scans leak nothing, even if the garbage collector never runs, and
that a running collector never waits for a thread."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkafs
from kafkafs import CorruptError
from kafkafs.storage.log.read import scan as wanted
from tests.waiting import wait_until

TIMES = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with many runs of batches, one of them damaged."""
    with kafkafs.open(tmp_path, writable=True) as directory:
        directory.create_topic("events", partitions=1)
        partition = directory["events", 0]
        for _ in range(50):
            partition.append([kafkafs.ProducerRecord(value=os.urandom(1000)) for _ in range(20)])
    log = next((tmp_path / "events-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    return tmp_path


@pytest.fixture(autouse=True)
def uncollected(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads read small runs, and reference cycles are not collected."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(wanted, "_AHEAD_BYTES", 1 << 14)
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fail(partition: kafkafs.Partition) -> None:
    with pytest.raises(CorruptError):
        partition.scan().read_all()


def fail_and_keep_the_error(partition: kafkafs.Partition) -> None:
    try:
        partition.scan().read_all()
    except CorruptError as error:
        KEPT.append(error)


def drop(partition: kafkafs.Partition) -> None:
    reader = partition.scan()
    for _ in range(5):
        reader.read_next_batch()
    assert threads(), "no thread reads ahead, so this test proves nothing"


def drop_in_a_loop(partition: kafkafs.Partition) -> None:
    for number, _ in enumerate(partition.scan()):
        if number == 5:
            break


def fail_in_an_engine(partition: kafkafs.Partition) -> None:
    with pytest.raises(CorruptError):
        for _ in partition._log.view().read():
            pass


KEPT: list[CorruptError] = []
USES = [fail, fail_and_keep_the_error, drop, drop_in_a_loop, fail_in_an_engine]


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("kafkafs-")]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("use", USES)
def test_no_thread_and_no_descriptor_stays(
    path: Path, use: Callable[[kafkafs.Partition], None]
) -> None:
    with kafkafs.open(path) as directory:
        partition = directory["events", 0]
        use(partition)
        wait_until(lambda: not threads())
        before = descriptors()
        for _ in range(TIMES):
            use(partition)
        wait_until(lambda: not threads() and descriptors() <= before)
    KEPT.clear()


def test_an_error_keeps_no_reader_open(path: Path) -> None:
    """An error is part of no cycle: all that it refers to is freed with its last reference."""
    with kafkafs.open(path) as directory:
        fail(directory["events", 0])
        fail_in_an_engine(directory["events", 0])
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for use in (fail, fail_in_an_engine):
                use(directory["events", 0])
            gc.collect()
            assert not [each for each in gc.garbage if isinstance(each, BaseException)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()


_DEADLOCK = """
import gc, sys, threading
import kafkafs
from kafkafs.storage.log.read import scan as wanted

wanted._AHEAD_BYTES = 1 << 14
gc.disable()
partition = kafkafs.open(sys.argv[1])["events", 0]
reader = partition.scan(end=int(sys.argv[2]))
for _ in range(5):
    reader.read_next_batch()
assert [each for each in threading.enumerate() if each.name.startswith("kafkafs-ahead")]
cycle = [reader]
cycle.append(cycle)
del reader, cycle
# A starting thread holds this lock, and an ending one needs it. If the collector, which may run
# while the lock is held, waited for the reader's threads, it would deadlock.
with threading._active_limbo_lock:
    gc.collect()
print("went on")
"""


def test_the_garbage_collector_waits_for_no_thread(path: Path) -> None:
    gc.enable()
    end = str(kafkafs.open(path)["events", 0].end_offset // 2 - 40)
    ran = subprocess.run(
        ["taskset", "-c", "0,1", sys.executable, "-c", _DEADLOCK, str(path), end],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (ran.stdout, ran.returncode) == ("went on\n", 0), ran.stderr
