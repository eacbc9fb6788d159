"""Power cuts at every moment: whatever unsynced data the disk keeps, the log opens, holds every
record that was acknowledged as durable, and holds nothing that was not written."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import left_by, refuse_complaints
from tests.crash.model import Event, Model
from tests.crash.moments import moments
from tests.crash.workload import NOW_MS, Workload, contents, open_engine
from tests.faults import CrashState, RecordingCalls, crash_states


class Recorded:
    """A run of an engine on a directory, and what power cuts would leave of it."""

    def __init__(self, path: Path, seed: int, before: Iterable[Event] = ()) -> None:
        """`path` is empty, or holds what the events `before` and a power cut have left."""
        self.before = tuple(before)
        self.root = path
        self.recording = RecordingCalls(path)
        self._seed = seed

    def run(self, steps: int, threads: int = 0) -> None:
        """Takes `steps` steps of all kinds, while `threads` more threads append."""
        clock = SetClock(NOW_MS)
        with replaced(self.recording), open_engine(self.root, clock) as engine:
            workloads = [
                self._workload(engine, clock, each, not threads) for each in range(threads + 1)
            ]
            first, *others = workloads
            first.make_topic()
            with ThreadPoolExecutor(threads or 1) as executor:
                jobs = [executor.submit(take, steps, other.append_step) for other in others]
                take(steps, first.step)
                for job in jobs:
                    job.result()

    def _workload(
        self, engine: LogManager, clock: SetClock, thread: int, is_alone: bool
    ) -> Workload:
        name = f"{self._seed}x{thread}"
        chance = random.Random(f"power cuts {name}")
        tell = self.recording.mark
        return Workload(engine, clock, tell, chance, name, 1000 * (thread + 1), is_alone)

    def states(self, every: int) -> list[CrashState]:
        """Returns what a power cut after each `every`-th operation may leave."""
        prefixes = moments(len(self.recording.operations), every)
        return list(crash_states(self.recording, prefixes=prefixes))

    def events(self, state: CrashState) -> list[Event]:
        return [*self.before, *cast("tuple[Event, ...]", state.marks)]


def take(count: int, step: Callable[[], None]) -> None:
    for _ in range(count):
        step()


def check(state: CrashState, events: list[Event], path: Path) -> None:
    """Opens what is left, continues with it, and opens it again."""
    clock = SetClock(NOW_MS + 100_000)
    model = Model(events)
    with left_by(state, path):
        with open_engine(path, clock) as engine:
            model.check(contents(engine), power_cut=True)
            refuse_complaints(engine, model)
            workload = Workload(engine, clock, model.add, random.Random(0), "after", 10**6)
            workload.make_topic()
            for _ in range(3):
                workload.append()
        with open_engine(path, clock) as engine:
            model.check(contents(engine))
            refuse_complaints(engine, model)


def check_all(recorded: Recorded, path: Path, every: int) -> int:
    """Checks the states; returns their number."""
    states = recorded.states(every)
    for number, state in enumerate(states):
        check(state, recorded.events(state), path / f"state-{number}")
    return len(states)


def test_a_power_cut_now_and_then(memory_path: Path) -> None:
    (memory_path / "root").mkdir()
    recorded = Recorded(memory_path / "root", seed=1)
    recorded.run(steps=30)
    assert check_all(recorded, memory_path, every=41) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
def test_power_cuts_at_many_moments(memory_path: Path, seed: int) -> None:
    (memory_path / "root").mkdir()
    recorded = Recorded(memory_path / "root", seed)
    recorded.run(steps=40)
    assert check_all(recorded, memory_path, every=27) > 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_power_cuts_of_several_threads_that_share_writes_and_fsyncs(memory_path: Path) -> None:
    (memory_path / "root").mkdir()
    recorded = Recorded(memory_path / "root", seed=7)
    recorded.run(steps=25, threads=3)
    assert check_all(recorded, memory_path, every=33) > 40


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_power_cut_during_the_recovery_from_another(memory_path: Path) -> None:
    (memory_path / "root").mkdir()
    first = Recorded(memory_path / "root", seed=0)
    first.run(steps=40)
    for number, state in enumerate(itertools.islice(first.states(every=60), 0, None, 6)):
        path = memory_path / f"again-{number}"
        path.mkdir()
        state.write_to(path)
        second = Recorded(path, 100, first.events(state))
        second.run(steps=0)
        check_all(second, memory_path, every=9)
