"""Distributes independent units of work over threads: the local counterpart of Spark's tasks.

Threads suffice, because the kernels, Arrow's writers and system calls release the GIL.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from .read_ahead import processors

Unit = TypeVar("Unit")
Result = TypeVar("Result")

#: Called by a unit of work with the part of it, in bytes, that has been done since the last call.
Advance = Callable[[int], None]

_LOOK_SECONDS: Final = 0.1


class UnitEnded(BaseException):
    """Ends a unit of work because another one failed."""


def ignore_advance(size: int) -> None:
    """Ignores the progress."""


def run_units(
    units: Sequence[Unit],
    work: Callable[[Unit, Advance], Result],
    size: Callable[[Unit], int],
    report: Callable[[int, int], None],
    waiting: int = 0,
) -> list[Result]:
    """Returns the results of `work` for all units, in their order. The largest units begin first.

    There are as many threads as processors, and `waiting` more for units that wait for a disk.
    `size` returns the bytes of a unit; `report` is called in this thread with the bytes that are
    done and the total. The first error, also one of `report` or of a signal, ends the other units
    at their next `Advance`, and is raised when they have ended.
    """
    total = sum(map(size, units))
    if len(units) < 2 or processors() < 2:
        progress = _Progress(lambda done: report(min(done, total), total))
        return [work(unit, progress.advance) for unit in units]
    progress = _Progress(lambda done: None)
    order = sorted(range(len(units)), key=lambda number: -size(units[number]))
    executor = ThreadPoolExecutor(processors() + waiting, thread_name_prefix="kafkafs-unit")
    try:
        started = {
            number: executor.submit(work, units[number], progress.advance) for number in order
        }
        _wait(list(started.values()), lambda: report(min(progress.done, total), total))
    finally:
        progress.is_over = True
        executor.shutdown(cancel_futures=True)
    return [started[number].result() for number in range(len(units))]


def _wait(started: Sequence[Future[Result]], look: Callable[[], None]) -> None:
    """Waits until all units have ended. Raises the error of the first one that has failed."""
    waiting = set(started)
    while waiting:
        ended, waiting = wait(waiting, _LOOK_SECONDS, FIRST_EXCEPTION)
        for each in ended:
            each.result()
        look()


class _Progress:
    def __init__(self, look: Callable[[int], None]) -> None:
        self.done = 0
        self.is_over = False
        self._look = look
        self._lock = threading.Lock()

    def advance(self, size: int) -> None:
        if self.is_over:
            raise UnitEnded
        with self._lock:
            self.done += size
        self._look(self.done)
