"""What an engine does every so often by itself, each of it also at once when it is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from .clock import Clock, SystemClock
from .errors import StorageError, printable

log = logging.getLogger(__name__)

# What a thread can be told to wait; a longer interval is none.
_LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX * 1000)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done `delay_ms` after the start and then every `interval_ms`; an interval of
    UNLIMITED means only when it is asked for. So does `why_not`: why it does not run by itself, ""
    if it does."""

    name: str
    work: Callable[[], object]
    interval_ms: int
    delay_ms: int
    why_not: str = ""

    @property
    def why_not_scheduled(self) -> str:
        """Why the task does not run by itself, "" if it does."""
        if not self.why_not and self.interval_ms > _LONGEST_WAIT_MS:
            return "its interval is unlimited"
        return self.why_not


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What is known of a task. `runs` and `failures`: those that ended, by themselves or asked for,
    and those of them that raised; `seconds`: what they took together. `last_run_ms`: when the last
    one began, `next_run_ms`: when the next one begins by itself, in ms since 1970, -1 for none.
    `why_not_scheduled`: why the task never runs by itself, "" if it does."""

    name: str
    runs: int
    failures: int
    seconds: float
    last_run_ms: int
    next_run_ms: int
    is_running: bool
    is_paused: bool
    why_not_scheduled: str = ""

    def as_json(self) -> dict[str, Any]:
        """The same with null for none."""
        return {
            "task": self.name,
            "runs": self.runs,
            "failures": self.failures,
            "seconds": round(self.seconds, 6),
            "lastRun": None if self.last_run_ms < 0 else self.last_run_ms,
            "nextRun": None if self.next_run_ms < 0 else self.next_run_ms,
            "running": self.is_running,
            "paused": self.is_paused,
            "notScheduled": self.why_not_scheduled or None,
        }


class _Runner:
    """A task, and how it fares. Each field is written under `one`, by the task's own thread, or in
    one step."""

    def __init__(self, task: Task, clock: Clock) -> None:
        self.task = task
        self.one = threading.Lock()  # one run at a time
        self.is_paused = False
        self.next_run_ms = -1
        self._clock = clock
        self._runs = self._failures = 0
        self._seconds = 0.0
        self._last_run_ms = -1

    def run(self) -> object:
        with self.one, self._counted():
            return self.task.work()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        began, self._last_run_ms = monotonic(), self._clock.now_ms()
        try:
            yield
        except BaseException:
            self._failures += 1
            raise
        finally:
            self._runs += 1
            self._seconds += monotonic() - began

    def plan(self, wait_ms: int) -> None:
        self.next_run_ms = self._clock.now_ms() + wait_ms

    def status(self) -> TaskStatus:
        return TaskStatus(
            self.task.name,
            self._runs,
            self._failures,
            self._seconds,
            self._last_run_ms,
            -1 if self.is_paused else self.next_run_ms,
            self.one.locked(),
            self.is_paused,
            self.task.why_not_scheduled,
        )


class Tasks:
    """Tasks with a thread each, so that a slow one holds up none of the others. Any thread may
    call. KeyError for the name of a task that does not exist."""

    def __init__(self, tasks: Iterable[Task], clock: Clock | None = None) -> None:
        """`clock`: by which is told when they run; how long they wait is the machine's affair."""
        clock = clock or SystemClock()
        self._runners = {task.name: _Runner(task, clock) for task in tasks}
        self._failures: dict[str, str] = {}
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def names(self) -> list[str]:
        return list(self._runners)

    @property
    def problems(self) -> list[str]:
        """Why the last run of a task by itself did not do its work, a line each."""
        return [f"{name}: {why}" for name, why in list(self._failures.items())]

    def status(self) -> list[TaskStatus]:
        """Of every task."""
        return [runner.status() for runner in self._runners.values()]

    def run(self, name: str) -> object:
        """Does the task now, paused or not, after a run that is under way, and gives what it gave;
        what the task raises passes."""
        return self._runners[name].run()

    def pause(self, name: str) -> None:
        """Has the task no longer run by itself. A run that is under way goes on to its end."""
        self._runners[name].is_paused = True

    def resume(self, name: str) -> None:
        """Has the task run by itself again, when its time comes. A task that is not scheduled
        still waits until somebody asks for it."""
        self._runners[name].is_paused = False

    def start(self) -> None:
        """Lets the tasks that are scheduled run by themselves."""
        for runner in self._runners.values():
            if not runner.task.why_not_scheduled:
                thread = threading.Thread(
                    target=self._repeat,
                    args=(runner,),
                    name=f"kafkafs-{runner.task.name}",
                    daemon=True,
                )
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Ends the threads; what is under way is finished. Harmless when repeated."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _repeat(self, runner: _Runner) -> None:
        wait_ms = min(runner.task.delay_ms, _LONGEST_WAIT_MS)
        runner.plan(wait_ms)
        while not self._stopped.wait(wait_ms / 1000):
            # At least a moment: an interval of 0 shall not keep a processor busy.
            wait_ms = max(runner.task.interval_ms, 1)
            if not runner.is_paused:
                self._try(runner)
            runner.plan(wait_ms)

    def _try(self, runner: _Runner) -> None:
        name = runner.task.name
        try:
            runner.run()
        except (StorageError, OSError) as error:
            why = printable(str(error))
            if self._failures.get(name) != why:
                log.warning("%s: %s", name, why)
            self._failures[name] = why
        else:
            self._failures.pop(name, None)
