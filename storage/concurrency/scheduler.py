"""Background tasks that an engine runs periodically, and on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any

from ..clock import Clock, SystemClock
from ..errors import StorageError
from ..wording import printable

log = logging.getLogger(__name__)

# The longest time a thread can wait; a longer interval counts as none.
_LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX * 1000)


@dataclass(frozen=True, slots=True)
class ScheduledTask:
    """Work to run `delay_ms` after the start and then every `interval_ms`. An interval of UNLIMITED
    means only on request, as does a non-empty `why_not`, the reason why the task is not
    scheduled."""

    name: str
    work: Callable[[], object]
    interval_ms: int
    delay_ms: int
    why_not: str = ""

    @property
    def why_not_scheduled(self) -> str:
        """Why the task is not scheduled, "" if it is."""
        if not self.why_not and self.interval_ms > _LONGEST_WAIT_MS:
            return "its interval is unlimited"
        return self.why_not


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task. `runs` and `failures`: completed runs, scheduled or requested, and
    those that raised; `seconds`: their total duration. `last_run_ms`: start of the last run,
    `next_run_ms`: start of the next scheduled one, in ms since 1970, -1 if none.
    `why_not_scheduled`: why the task is not scheduled, "" if it is."""

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
        """Returns the fields, with null instead of -1 or ""."""
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
    """A task and its statistics. Each field is written under `one`, by the task's own thread, or
    atomically."""

    def __init__(self, task: ScheduledTask, clock: Clock) -> None:
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


class Scheduler:
    """Tasks with a thread each, so that a slow one does not delay the others. Thread-safe. Methods
    raise KeyError for an unknown task name."""

    def __init__(self, tasks: Iterable[ScheduledTask], clock: Clock | None = None) -> None:
        """`clock` provides the reported times; waiting uses the machine's clock."""
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
        """Why the last scheduled run of each failing task failed, one line each."""
        return [f"{name}: {why}" for name, why in list(self._failures.items())]

    def status(self) -> list[TaskStatus]:
        """Returns the status of every task."""
        return [runner.status() for runner in self._runners.values()]

    def run(self, name: str) -> object:
        """Runs the task now, paused or not, after a run in progress, and returns its result; its
        exceptions propagate."""
        return self._runners[name].run()

    def pause(self, name: str) -> None:
        """Suspends the task's schedule. A run in progress is completed."""
        self._runners[name].is_paused = True

    def resume(self, name: str) -> None:
        """Resumes the task's schedule. A task that is not scheduled still runs only on request."""
        self._runners[name].is_paused = False

    def start(self) -> None:
        """Starts the schedules of the tasks that have one."""
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
        """Stops the threads after runs in progress are completed. Idempotent."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _repeat(self, runner: _Runner) -> None:
        wait_ms = min(runner.task.delay_ms, _LONGEST_WAIT_MS)
        runner.plan(wait_ms)
        while not self._stopped.wait(wait_ms / 1000):
            # At least 1 ms: an interval of 0 must not keep a processor busy.
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
