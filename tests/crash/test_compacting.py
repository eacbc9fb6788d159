"""Compaction through kills, power cuts and failing calls; `cleaned` says what must hold."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import LogDirOffline, NotClosed
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import left_by, refuse_complaints
from tests.crash.cleaned import TOPIC, Durable, Event, Model, Steps, check, open_engine
from tests.crash.failing import fail_each
from tests.crash.moments import moments
from tests.crash.program import tally_of
from tests.crash.workload import NOW_MS
from tests.faults import CrashState, FailingCalls, RecordingCalls, crash_states

STEPS = 50


# -- kills ----------------------------------------------------------------------------------------


def test_a_kill_leaves_the_latest_of_every_key(memory_path: Path) -> None:
    tally = tally_of("compacting", memory_path, 8, 1)
    assert tally["killed"] == 8
    assert tally["passes"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kills_amid_passes(memory_path: Path) -> None:
    """For more kills, such as a thousand, run the program itself."""
    tally = tally_of("compacting", memory_path, 100, 1)
    assert tally["killed"] == 100
    assert tally["opened"] >= 40
    assert tally["passes"] >= 10


# -- power cuts -----------------------------------------------------------------------------------


class Recorded:
    """Passes over an existing log, and what power cuts would leave of it."""

    def __init__(self, root: Path, seed: int) -> None:
        """`root` is an empty directory."""
        clock, chance = SetClock(NOW_MS), random.Random(f"power cuts {seed}")
        self.before: list[Event] = []
        with open_engine(root, clock) as engine:
            steps = Steps(engine, clock, self.before.append, chance, 1)
            for _ in range(STEPS // 2):
                steps.append_step()
            steps.end_and_clean()
            for _ in range(STEPS // 4):
                steps.append_step()
            self.before.append(Durable(engine.writer(TOPIC, 0).end_offset))
        self.recording = RecordingCalls(root)
        with replaced(self.recording), open_engine(root, clock) as engine:
            steps = Steps(engine, clock, self.recording.mark, chance, 2)
            for step in (steps.append, steps.roll, steps.append, steps.clean, steps.append):
                step()
            clock.advance(1000)
            steps.end_and_clean()
            engine.run("deletion")
        assert steps.passes > 0

    def model(self, state: CrashState) -> Model:
        model = Model()
        for event in [*self.before, *cast("tuple[Event, ...]", state.marks)]:
            model.add(event)
        return model


def check_state(state: CrashState, model: Model, path: Path) -> None:
    """Opens what a power cut has left, continues with it, and opens it again."""
    clock = SetClock(NOW_MS + 100_000)
    with left_by(state, path):
        with open_engine(path, clock) as engine:
            check(engine, model, power_cut=True)
            refuse_complaints(engine)
            steps = Steps(engine, clock, model.add, random.Random(0), 2)
            for step in (steps.append, steps.roll, steps.clean, steps.append):
                step()
            check(engine, model)
        with open_engine(path, clock) as engine:
            check(engine, model)
            refuse_complaints(engine)


def check_states(recorded: Recorded, path: Path, every: int) -> int:
    """Checks what a power cut after each `every`-th operation may leave; returns the number of
    states."""
    prefixes = moments(len(recorded.recording.operations), every)
    checked = 0
    for state in crash_states(recorded.recording, prefixes=prefixes, samples=1):
        check_state(state, recorded.model(state), path / f"state-{checked}")
        checked += 1
    return checked


def test_a_power_cut_now_and_then(memory_path: Path) -> None:
    (memory_path / "root").mkdir()
    assert check_states(Recorded(memory_path / "root", seed=1), memory_path, every=41) > 10


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_power_cuts_at_many_moments(memory_path: Path) -> None:
    (memory_path / "root").mkdir()
    assert check_states(Recorded(memory_path / "root", seed=0), memory_path, every=27) > 30


# -- failing calls --------------------------------------------------------------------------------


class Run:
    """Steps that continue after every error."""

    def __init__(self, root: Path, calls: FailingCalls) -> None:
        self.root = root
        self.calls = calls
        self.outcomes: Counter[str] = Counter()
        self._model = Model()
        self._clock = SetClock(NOW_MS)
        self._chance = random.Random("failing calls")
        self._lives = 0

    def run(self) -> None:
        with replaced(self.calls):
            engine, steps = self._open()
            for _ in range(STEPS):
                if not self._do(engine, steps.step):
                    engine, steps = self._open()
            try:
                engine.close()
            except (LogDirOffline, NotClosed):
                self.outcomes["closing"] += 1
        engine, _ = self._open()
        engine.close()

    def _open(self) -> tuple[LogManager, Steps]:
        """Opens the engine, again if that fails, and checks it against the model."""
        self._lives += 1
        try:
            engine = self._opened()
        except (OSError, LogDirOffline):
            self.outcomes["opening"] += 1
            engine = self._opened()
        check(engine, self._model)
        refuse_complaints(engine)
        return engine, Steps(engine, self._clock, self._model.add, self._chance, self._lives)

    def _opened(self) -> LogManager:
        engine = open_engine(self.root, self._clock)
        if engine.failures:
            with suppress(LogDirOffline, NotClosed):
                engine.close()
            raise LogDirOffline(str(self.root), "opened offline")
        return engine

    def _do(self, engine: LogManager, step: Callable[[], None]) -> bool:
        """Takes a step. Returns False if the directory went offline; it is closed then."""
        try:
            step()
            assert not engine.failures or self.calls.failed
            if not engine.failures:
                return True
        except LogDirOffline:
            pass
        except OSError as error:
            if error.errno != self.calls.errno:
                raise
            self.outcomes["refused"] += 1
            assert engine.problems == []
            self._check_untouched(engine)
            return True
        self.outcomes["offline"] += 1
        with suppress(LogDirOffline, NotClosed):
            engine.close()
        return False

    def _check_untouched(self, engine: LogManager) -> None:
        """Checks that a failure which left the directory online has left no files of a cleaning."""
        left = [path.name for path in self.root.rglob("*") if path.suffix in (".cleaned", ".swap")]
        assert left == []
        # A failed append has left nothing.
        self._model.tried.clear()
        check(engine, self._model)


def run_steps(root: Path, calls: FailingCalls) -> Counter[str]:
    """Takes the steps in a new directory; returns the outcomes."""
    root.mkdir()
    run = Run(root, calls)
    run.run()
    return run.outcomes


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_calls_that_fail_now_and_then(memory_path: Path, number: int) -> None:
    assert fail_each(memory_path, number, 271, run_steps).total() > 2


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_many_calls_failing_one_at_a_time(memory_path: Path, number: int) -> None:
    outcomes = fail_each(memory_path, number, 67, run_steps)
    assert outcomes["offline"] > 3
    if number == errno.ENOSPC:
        assert outcomes["refused"] > 3


def test_the_topic_is_compacted_at_all(memory_path: Path) -> None:
    """Otherwise the tests above would prove little."""
    clock = SetClock(NOW_MS)
    model = Model()
    with open_engine(memory_path, clock) as engine:
        steps = Steps(engine, clock, model.add, random.Random("compacted"), 1)
        for _ in range(2 * STEPS):
            steps.step()
        written = len(model.known)
        segments = engine.writer(TOPIC, 0).rolled().segments
        check(engine, model)
    assert steps.passes > 8
    assert len(segments) > 1
    assert len(model.known) < written / 3
