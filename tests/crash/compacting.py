"""Kills processes with SIGKILL while they compact a log over and over.

    python -m tests.crash.compacting DIRECTORY LIVES SEED

What each process (a life) finds is checked against what earlier ones reported. In every third life,
a second thread appends and a third one reads during the passes. The last line printed counts how
the lives ended and how many passes were made.
"""

from __future__ import annotations

import os
import random
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import SegmentGone
from tests.crash.checks import complaints
from tests.crash.cleaned import TOPIC, Model, Steps, open_engine
from tests.crash.lives import Failed, Lives, Pipe, live_and_die
from tests.crash.workload import NOW_MS
from tests.reading import Plain, read

ROUNDS = 100
STEPS = 40
ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a life finds on opening the directory, and what is wrong with it."""

    records: list[Plain]
    end_offset: int
    complaints: list[str]


@dataclass(frozen=True, slots=True)
class Passed:
    """The number of passes just made."""

    passes: int


def live(root: Path, number: int, seed: int, pipe: Pipe) -> None:
    """Runs one life: opens, reports what it finds, takes steps, and closes cleanly."""
    clock = SetClock(NOW_MS + number * 10_000)
    with open_engine(root, clock) as engine:
        view = engine.log(TOPIC, 0).view()
        pipe.tell(Found(read(view), view.end_offset, complaints(engine)))
        steps = Steps(engine, clock, pipe.tell, random.Random(f"{seed} {number}"), number)
        # Clean what the previous life left first, so that early kills also hit a pass.
        steps.roll()
        steps.clean()
        pipe.tell(Passed(steps.passes))
        if number % 3:
            for _ in range(STEPS):
                before = steps.passes
                steps.step()
                if steps.passes > before:
                    pipe.tell(Passed(steps.passes - before))
        else:
            side_by_side(steps, pipe)


def side_by_side(steps: Steps, pipe: Pipe) -> None:
    """Runs passes, appends and reads in parallel, in one thread each."""
    done = threading.Event()

    def repeat(work: Sequence[Callable[[], object]]) -> None:
        is_well = False
        try:
            for _ in range(ROUNDS):  # bounded, or the log would grow faster than it is cleaned
                if done.is_set():
                    break
                for each in work:
                    each()
            is_well = True
        finally:
            if not is_well:
                pipe.tell(Failed(traceback.format_exc()))
                os._exit(1)

    for _ in range(10):
        steps.append()
    threads = [
        threading.Thread(target=repeat, args=(work,))
        for work in (
            [steps.append, steps.append_in_transaction, steps.end_transaction],
            [lambda: look(steps)],
        )
    ]
    for thread in threads:
        thread.start()
    for _ in range(STEPS // 4):
        steps.clean()
        pipe.tell(Passed(1))
    done.set()
    for thread in threads:
        thread.join()


def look(steps: Steps) -> None:
    """Reads while other threads write. For every key acknowledged before, the read must find a
    record at least as new."""
    known = dict(steps.latest)
    found = read_now(steps)
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets)), f"duplicate or unordered offsets: {offsets}"
    latest = {(each.key or b"").decode(): each.offset for each in found}
    for key, (offset, is_tombstone) in known.items():
        there = latest.get(key, -1)
        assert there >= offset or (is_tombstone and there < 0), f"{key} at {offset}, not {there}"


def read_now(steps: Steps) -> list[Plain]:
    """Returns all records, retrying with a new view if a pass has replaced a segment since the view
    was made, as any reader must."""
    for _ in range(ATTEMPTS):
        with suppress(SegmentGone):
            return read(steps.engine.log(TOPIC, 0).view())
    raise AssertionError(f"a segment had been removed {ATTEMPTS} times in a row")


class CompactingLives(Lives):
    """Lives that compact, and the model that checks them."""

    longest = 0.1
    opening = 0.7

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed)
        self._model = Model()

    def live(self, pipe: Pipe) -> None:
        live(self.root, self.number, self.seed, pipe)

    def judge(self, said: Iterator[Any]) -> None:
        for message in said:
            match message:
                case Found(records, end_offset, wrong):
                    assert not wrong, f"life {self.number} found:\n" + "\n".join(wrong)
                    self._model.check(records, end_offset, end_offset)
                    self.tally["opened"] += 1
                case Passed(passes):
                    self.tally["passes"] += passes
                case _:
                    self._model.add(message)


if __name__ == "__main__":
    live_and_die(CompactingLives)
