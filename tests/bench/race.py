"""Runs contenders for the same work in turns, and holds the results.

Turns, because the speed of a shared machine varies: the ratio of two medians from the same minutes
is meaningful, that of figures from different times is not. Between turns the machine becomes idle,
so that no contender pays for work left over from the one before.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from tests.bench import trial
from tests.bench.data import cache
from tests.bench.machine import settle

#: Rounds that do not count: they fill the page cache and let JITs compile.
WARM_UPS = 2


def turns(repetitions: int) -> int:
    """Returns the number of rounds of a race; a trial has no WARM_UPS."""
    return repetitions if trial.is_trial() else WARM_UPS + repetitions


class MissingPeer(Exception):
    """A program to measure against is not installed."""


def need(*programs: str) -> None:
    """Raises MissingPeer, before anything is generated, started or measured, unless all of these
    programs are installed."""
    if missing := [each for each in programs if shutil.which(each) is None]:
        what = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"
        raise MissingPeer(f"{what}: apt-get install {' '.join(missing)}")


class Contender(Protocol):
    """A piece of work that measures how long it takes."""

    def measure(self) -> float:
        """Does the work once. Returns the seconds."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, timed from start to exit; its output is discarded."""

    words: Sequence[str]

    def measure(self) -> float:
        started = time.perf_counter()
        subprocess.run(self.words, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Call:
    """A function that returns the seconds that count."""

    function: Callable[[], float]

    def measure(self) -> float:
        return self.function()


class Worker:
    """A process that does the work once for every line it reads, and answers with the seconds.

    It times itself, so neither its start nor its set-up counts.
    """

    def __init__(self, command: Sequence[str], warm_ups: int = 0) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._warm_ups = warm_ups

    def measure(self) -> float:
        while self._warm_ups and not trial.is_trial():
            self._warm_ups -= 1
            self._ask()
        return self._ask()

    def _ask(self) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return float(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Together:
    """Workers that do the work at the same time."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._open = ExitStack()

    def measure(self) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(len(self._workers)) as executor:
            list(executor.map(Worker.measure, self._workers))
        return time.perf_counter() - started

    def __enter__(self) -> Self:
        for worker in self._workers:
            self._open.enter_context(worker)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()


def python_task(task: str, *arguments: str, core: int | None = None) -> Worker:
    """Returns a Worker for one of `tasks.TASKS`, pinned to one core if `core` is given."""
    pinned = [] if core is None else ["taskset", "-c", str(core)]
    return Worker([*pinned, sys.executable, "-m", "tests.bench.tasks", task, *arguments])


def race(contenders: Mapping[str, Contender], repetitions: int) -> dict[str, float]:
    """Returns the median seconds of each contender, after WARM_UPS rounds and `repetitions` that
    count. In a trial each turn starts at once, without waiting for the machine to come to rest."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    with ExitStack() as stack:
        for contender in contenders.values():
            if isinstance(contender, AbstractContextManager):
                stack.enter_context(contender)
        for turn in range(turns(repetitions)):
            for name, contender in contenders.items():
                if not trial.is_trial():
                    settle(cache())
                taken = contender.measure()
                if turn >= turns(repetitions) - repetitions:
                    seconds[name].append(taken)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number and its unit, as displayed."""

    value: float
    unit: str

    def __str__(self) -> str:
        digits = 0 if self.value >= 1000 else 3 if self.value < 1 else 2 if self.value < 10 else 1
        return f"{self.value:,.{digits}f} {self.unit}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A line of the table. `ratio`: how many times as good as the peer we are, if there is one;
    `target`: the least allowed ratio. Without a peer, `limit` is the most that `ours` may be."""

    row: int
    work: str
    ours: Figure
    peer: str = ""
    theirs: Figure | None = None
    ratio: float | None = None
    target: float | None = None
    limit: Figure | None = None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """None if there is no target or limit."""
        if self.target is not None and self.ratio is not None:
            return self.ratio >= self.target
        return None if self.limit is None else self.ours.value <= self.limit.value

    @property
    def demanded(self) -> str:
        if self.target is not None:
            return f"≥ {self.target:g}×"
        return "" if self.limit is None else f"≤ {self.limit}"

    def as_dict(self) -> dict[str, object]:
        theirs = None if self.theirs is None else [self.theirs.value, self.theirs.unit]
        return {
            "row": self.row,
            "work": self.work,
            "ours": [self.ours.value, self.ours.unit],
            "peer": self.peer,
            "theirs": theirs,
            "ratio": self.ratio,
            "target": self.demanded,
            "passed": self.passed,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Failed:
    """A line of the table for work that could not be measured, and the reason."""

    row: int
    work: str
    note: str

    def as_dict(self) -> dict[str, object]:
        return {"row": self.row, "work": self.work, "failed": self.note}


Outcomes = Iterator[Outcome]


def versus(
    row: int,
    work: str,
    seconds: tuple[float, float],
    peer: str,
    target: float | None,
    *,
    amount: float = 1.0,
    unit: str = "s",
    note: str = "",
) -> Outcome:
    """Returns an outcome of ours against a peer, from (our seconds, its seconds). Shows `amount` /
    seconds if `unit` is not "s", and the seconds otherwise."""
    ours, theirs = (amount / s if unit != "s" else s for s in seconds)
    return Outcome(
        row, work, Figure(ours, unit), peer, Figure(theirs, unit), seconds[1] / seconds[0], target,
        note=note,
    )  # fmt: skip
