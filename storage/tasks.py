"""What an engine does every so often by itself, each of it also at once when it is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .errors import StorageError, printable

log = logging.getLogger(__name__)

# What a thread can be told to wait; a longer interval is none.
_LONGEST_WAIT_MS = int(threading.TIMEOUT_MAX * 1000)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be done `delay_ms` after the start and then every `interval_ms`; an interval of
    UNLIMITED means only when it is asked for."""

    name: str
    work: Callable[[], object]
    interval_ms: int
    delay_ms: int


class Tasks:
    """Tasks with a thread each, so that a slow one holds up none of the others."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._running = {name: threading.Lock() for name in self._tasks}  # one run at a time
        self._failures: dict[str, str] = {}
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def names(self) -> list[str]:
        return list(self._tasks)

    @property
    def problems(self) -> list[str]:
        """Why the last run of a task by itself did not do its work, a line each."""
        return [f"{name}: {why}" for name, why in self._failures.items()]

    def run(self, name: str) -> object:
        """Does the task now, after a run that is under way, and gives what it gave. KeyError for a
        task that does not exist; what the task raises passes."""
        with self._running[name]:
            return self._tasks[name].work()

    def start(self) -> None:
        """Lets all tasks run by themselves."""
        for task in self._tasks.values():
            if task.interval_ms <= _LONGEST_WAIT_MS:
                thread = threading.Thread(
                    target=self._repeat, args=(task,), name=f"kafkafs-{task.name}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Ends the threads; what is under way is finished. Harmless when repeated."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _repeat(self, task: Task) -> None:
        wait_ms = min(task.delay_ms, _LONGEST_WAIT_MS)
        while not self._stopped.wait(wait_ms / 1000):
            self._try(task)
            # At least a moment: an interval of 0 shall not keep a processor busy.
            wait_ms = max(task.interval_ms, 1)

    def _try(self, task: Task) -> None:
        try:
            self.run(task.name)
        except (StorageError, OSError) as error:
            why = printable(str(error))
            if self._failures.get(task.name) != why:
                log.warning("%s: %s", task.name, why)
            self._failures[task.name] = why
        else:
            self._failures.pop(task.name, None)
