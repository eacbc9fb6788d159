"""Lives that compact a log again and again until SIGKILL ends them.

    python -m tests.crash.compacting DIRECTORY LIVES SEED

What a life finds is held against what the lives before it said. In every third one, another thread
appends and a third one reads while passes are made. The last line tells how many ended how, and how
many passes were made.
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
    """What a life finds when it has opened the directory, and what is wrong with that."""

    records: list[Plain]
    end_offset: int
    complaints: list[str]


@dataclass(frozen=True, slots=True)
class Passed:
    """So many passes were made."""

    passes: int


def live(root: Path, number: int, seed: int, pipe: Pipe) -> None:
    """One life: opens, says what it finds, takes steps, and closes in good order."""
    clock = SetClock(NOW_MS + number * 10_000)
    with open_engine(root, clock) as engine:
        view = engine.log(TOPIC, 0).view()
        pipe.tell(Found(read(view), view.end_offset, complaints(engine)))
        steps = Steps(engine, clock, pipe.tell, random.Random(f"{seed} {number}"), number)
        # What the life before has left is cleaned first, so that early kills meet a pass, too.
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
    """Passes, appends and reads, a thread each."""
    done = threading.Event()

    def repeat(work: Sequence[Callable[[], object]]) -> None:
        is_well = False
        try:
            for _ in range(ROUNDS):  # without a bound the log would grow faster than it is cleaned
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
    """A read by somebody else: of every key that was acknowledged before, a record at least as
    new."""
    known = dict(steps.latest)
    found = read_now(steps)
    offsets = [each.offset for each in found]
    assert offsets == sorted(set(offsets)), f"twice, or not in order: {offsets}"
    latest = {(each.key or b"").decode(): each.offset for each in found}
    for key, (offset, is_tombstone) in known.items():
        there = latest.get(key, -1)
        assert there >= offset or (is_tombstone and there < 0), f"{key} at {offset}, not {there}"


def read_now(steps: Steps) -> list[Plain]:
    """All that the log has; looked for again where a pass has replaced a segment since the view was
    made, as a reader has to."""
    for _ in range(ATTEMPTS):
        with suppress(SegmentGone):
            return read(steps.engine.log(TOPIC, 0).view())
    raise AssertionError(f"a segment was gone {ATTEMPTS} times")


class CompactingLives(Lives):
    """Lives that compact, and the model that judges them."""

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
