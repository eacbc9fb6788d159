"""Tests background tasks: scheduled, run by hand, and closed without making anybody wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from kafkafs.storage.clock import SetClock, SystemClock
from kafkafs.storage.concurrency import scheduler
from kafkafs.storage.concurrency.scheduler import ScheduledTask, Scheduler, TaskStatus
from kafkafs.storage.config.kafka import UNLIMITED
from kafkafs.storage.errors import LogDirError
from tests.waiting import PATIENCE_SECONDS, wait_until

HOUR_MS = 3_600_000


def test_a_task_runs_when_asked_for_and_gives_what_it_found() -> None:
    tasks = Scheduler([ScheduledTask("one", lambda: 7, HOUR_MS, HOUR_MS)])
    assert (tasks.names, tasks.run("one")) == (["one"], 7)
    with pytest.raises(KeyError):
        tasks.run("two")


def test_tasks_run_by_themselves_until_they_are_stopped() -> None:
    runs = threading.Semaphore(0)
    late = threading.Event()
    tasks = Scheduler(
        [
            ScheduledTask("often", runs.release, 1, 0),
            ScheduledTask("late", late.set, HOUR_MS, HOUR_MS),
            ScheduledTask("never", late.set, UNLIMITED, 0),
        ]
    )
    tasks.start()
    for _ in range(3):
        assert runs.acquire(timeout=PATIENCE_SECONDS)
    assert [thread for thread in threading.enumerate() if thread.name == "kafkafs-often"]
    tasks.stop()  # without waiting an hour
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"kafkafs-often", "kafkafs-late", "kafkafs-never"}
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

    tasks = Scheduler([ScheduledTask("work", work, 1, 0)])
    tasks.start()
    assert runs.acquire(timeout=PATIENCE_SECONDS)
    assert runs.acquire(timeout=PATIENCE_SECONDS)
    assert tasks.problems == ["work: /data: no disk"]
    broken.clear()
    wait_until(lambda: tasks.problems == [])
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

    tasks = Scheduler([ScheduledTask("work", work, 1, 0)])
    tasks.start()
    assert [tasks.run("work") for _ in range(5)] == [1] * 5
    tasks.stop()


class CountingClock(SystemClock):
    """Counts how often the time was read."""

    count = 0

    def now_ms(self) -> int:
        self.count += 1
        return super().now_ms()


def test_a_paused_task_runs_only_when_asked_for() -> None:
    runs = threading.Semaphore(0)
    rounds = CountingClock()
    tasks = Scheduler(
        [
            ScheduledTask("work", runs.release, 1, 0),
            ScheduledTask("other", lambda: None, HOUR_MS, HOUR_MS),
        ],
        rounds,
    )
    tasks.pause("work")
    tasks.start()
    wait_until(lambda: rounds.count > 10)  # "other" takes one reading, each round of "work" one
    assert not runs.acquire(blocking=False)
    tasks.run("work")
    assert runs.acquire(blocking=False)
    work, other = tasks.status()
    assert (work.is_paused, work.next_run_ms, work.runs) == (True, -1, 1)
    assert (other.is_paused, other.next_run_ms > 0) == (False, True)
    tasks.resume("work")
    assert runs.acquire(timeout=PATIENCE_SECONDS)
    assert not tasks.status()[0].is_paused
    tasks.stop()


def test_what_is_known_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SetClock(5)
    monkeypatch.setattr(scheduler, "monotonic", lambda: clock.value / 1000)
    inside, go_on = threading.Event(), threading.Event()
    errors = [LogDirError("/data", "no disk")]

    def work() -> None:
        inside.set()
        assert go_on.wait(PATIENCE_SECONDS)
        clock.advance(10)
        if errors:
            raise errors.pop()

    tasks = Scheduler([ScheduledTask("work", work, HOUR_MS, HOUR_MS)], clock)
    assert tasks.status() == [TaskStatus("work", 0, 0, 0.0, -1, -1, False, False)]

    def fail() -> None:
        with pytest.raises(LogDirError):
            tasks.run("work")

    thread = threading.Thread(target=fail)
    thread.start()
    assert inside.wait(PATIENCE_SECONDS)
    (status,) = tasks.status()
    assert (status.is_running, status.runs, status.last_run_ms) == (True, 0, 5)
    go_on.set()
    thread.join()
    tasks.run("work")
    (status,) = tasks.status()
    assert (status.is_running, status.runs, status.failures, status.last_run_ms) == (
        False,
        2,
        1,
        15,
    )
    assert status.seconds == pytest.approx(0.02)


@pytest.mark.parametrize("verb", [Scheduler.run, Scheduler.pause, Scheduler.resume])
def test_a_task_that_does_not_exist(verb: Callable[[Scheduler, str], object]) -> None:
    with pytest.raises(KeyError):
        verb(Scheduler([]), "work")
