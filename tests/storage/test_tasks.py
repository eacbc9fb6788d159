"""Background tasks: by themselves, by hand, and an end that does not keep anybody waiting."""

from __future__ import annotations

import threading
import time

import pytest

from kafkafs.storage.config import UNLIMITED
from kafkafs.storage.errors import LogDirError
from kafkafs.storage.tasks import Task, Tasks

HOUR_MS = 3_600_000


def test_a_task_runs_when_asked_for_and_gives_what_it_found() -> None:
    tasks = Tasks([Task("one", lambda: 7, HOUR_MS, HOUR_MS)])
    assert (tasks.names, tasks.run("one")) == (["one"], 7)
    with pytest.raises(KeyError):
        tasks.run("two")


def test_tasks_run_by_themselves_until_they_are_stopped() -> None:
    runs = threading.Semaphore(0)
    late = threading.Event()
    tasks = Tasks(
        [
            Task("often", runs.release, 1, 0),
            Task("late", late.set, HOUR_MS, HOUR_MS),
            Task("never", late.set, UNLIMITED, 0),
        ]
    )
    tasks.start()
    for _ in range(3):
        assert runs.acquire(timeout=10)
    began = time.monotonic()
    tasks.stop()
    assert time.monotonic() - began < 5
    while runs.acquire(blocking=False):
        pass
    assert not runs.acquire(timeout=0.05)
    assert not late.is_set()
    tasks.stop()


def test_a_failure_is_told_until_the_task_works_again_and_stops_no_other() -> None:
    broken = threading.Event()
    broken.set()
    runs = threading.Semaphore(0)

    def work() -> None:
        try:
            if broken.is_set():
                raise LogDirError("/data", "no disk")
        finally:
            runs.release()

    tasks = Tasks([Task("work", work, 1, 0)])
    tasks.start()
    assert runs.acquire(timeout=10)
    assert runs.acquire(timeout=10)
    assert tasks.problems == ["work: /data: no disk"]
    broken.clear()
    for _ in range(3):
        assert runs.acquire(timeout=10)
    assert tasks.problems == []
    broken.set()
    with pytest.raises(LogDirError):
        tasks.run("work")
    tasks.stop()


def test_two_runs_of_a_task_never_meet() -> None:
    inside = 0

    def work() -> int:
        nonlocal inside
        inside += 1
        time.sleep(0.01)
        found, inside = inside, inside - 1
        return found

    tasks = Tasks([Task("work", work, 1, 0)])
    tasks.start()
    assert [tasks.run("work") for _ in range(5)] == [1] * 5
    tasks.stop()
