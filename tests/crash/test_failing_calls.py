"""Each system call that changes something fails once: the caller gets the error, acknowledged data
stays, and a retry or a restart continues."""

from __future__ import annotations

import errno
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.errors import ConfigsNotRemoved, LogDirOffline, NotClosed, StorageError
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import refuse_complaints
from tests.crash.failing import fail_each
from tests.crash.model import Model, Refused
from tests.crash.workload import NOW_MS, Workload, contents, open_engine
from tests.faults import FailingCalls

STEPS = 25
ERRNOS = (errno.ENOSPC, errno.EIO, errno.EMFILE)


class Run:
    """A workload that continues after every error."""

    def __init__(self, root: Path, calls: FailingCalls) -> None:
        self.root = root
        self.calls = calls
        self.model = Model()
        self.outcomes: Counter[str] = Counter()
        self._clock = SetClock(NOW_MS)
        self._lives = 0

    def run(self, seed: int) -> None:
        """Opens, takes all steps and closes; repeats whatever failed."""
        chance = random.Random(f"failing calls {seed}")
        with replaced(self.calls):
            engine, workload = self.open(chance)
            for number in range(STEPS):
                if not self._do(engine, workload.step if number else workload.make_topic):
                    engine, workload = self.open(chance)
                    workload.make_topic()
            self._close(engine)
        self.check()

    def check(self) -> None:
        """Opens the directory again and checks it."""
        with open_engine(self.root, self._clock) as engine:
            self.model.check(contents(engine))
            refuse_complaints(engine)

    def open(self, chance: random.Random) -> tuple[LogManager, Workload]:
        """Opens the engine, again if that fails, and checks it against the model."""
        self._lives += 1
        try:
            engine = open_engine(self.root, self._clock)
        except (OSError, LogDirOffline) as error:
            self._note("opening", error)
            engine = open_engine(self.root, self._clock)
        if any("offline" in problem for problem in engine.problems):
            assert len(self.calls.failed) == 1
            self.outcomes["opened offline"] += 1
            engine.close()
            engine = open_engine(self.root, self._clock)
        self.model.check(contents(engine))
        refuse_complaints(engine)
        name, producer_id = f"{self._lives}", self._lives * 10_000
        return engine, Workload(engine, self._clock, self.model.add, chance, name, producer_id)

    def _do(self, engine: LogManager, step: Callable[[], None]) -> bool:
        """Takes a step, again if it failed. Returns False if the directory went offline; it is
        closed then."""
        try:
            step()
            return True
        except LogDirOffline as error:
            self._note("offline", error)
        except ConfigsNotRemoved as error:  # all else of the step is done
            self._note("refused", error)
            assert not engine.problems
            self.model.check(contents(engine))
            return True
        except OSError as error:
            self._note("refused", error)
            assert not engine.problems
            self.refuse_tried()
            self.model.check(contents(engine))
            step()
            return True
        with suppress(LogDirOffline, NotClosed):
            engine.close()
        return False

    def refuse_tried(self) -> None:
        """Notes that a failure which left the directory online has left nothing."""
        for partition in self.model.partitions.values():
            for name in list(partition.tried):
                self.model.add(Refused(partition.name, name))

    def _close(self, engine: LogManager) -> None:
        try:
            engine.close()
        except (LogDirOffline, NotClosed) as error:
            self._note("closing", error)

    def _note(self, what: str, error: OSError | StorageError) -> None:
        """Counts an error, which must be caused by an injected one."""
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError):
            assert cause.errno == self.calls.errno
        assert len(self.calls.failed) == 1
        self.outcomes[what] += 1


def run_workload(root: Path, calls: FailingCalls, seed: int) -> Counter[str]:
    """Runs the workload in a new directory; returns the outcomes."""
    root.mkdir()
    run = Run(root, calls)
    run.run(seed)
    unnoticed = {f"unnoticed {each.split()[0]}": 1 for each in calls.failed}
    return run.outcomes or Counter(unnoticed)


def step_while_full(run: Run, workload: Workload) -> Counter[str]:
    """Takes steps on a full disk until one takes the directory offline; returns how they ended."""
    ended: Counter[str] = Counter()
    for _ in range(STEPS):
        try:
            workload.step()
            ended["done"] += 1
        except LogDirOffline:
            ended["offline"] += 1
            break
        except ConfigsNotRemoved:
            ended["ENOSPC"] += 1
        except OSError as error:
            ended[errno.errorcode[error.errno or 0]] += 1
            run.refuse_tried()
    return ended


@pytest.mark.parametrize("seed", range(4))
def test_a_disk_that_is_full_for_a_while(memory_path: Path, seed: int) -> None:
    calls = FailingCalls(sys.maxsize, errno.ENOSPC, {"pwritev", "mkdir"}, lasting=True)
    run = Run(memory_path, calls)
    chance = random.Random(f"full {seed}")
    with replaced(calls):
        engine, workload = run.open(chance)
        workload.make_topic()
        for _ in range(STEPS):
            workload.step()
        calls.at = len(calls.made) + seed
        ended = step_while_full(run, workload)
        calls.at = sys.maxsize
        assert set(ended) <= {"done", "offline", "ENOSPC"}
        assert ended["ENOSPC"] + ended["offline"] > 0
        if ended["offline"]:
            with suppress(LogDirOffline, NotClosed):
                engine.close()
            engine, workload = run.open(chance)
        for _ in range(STEPS):
            workload.step()
        engine.close()
    run.check()


@pytest.mark.parametrize("which", ["root", "t-0"])
def test_a_directory_that_vanishes_and_comes_back(memory_path: Path, which: str) -> None:
    (memory_path / "root").mkdir()
    run = Run(memory_path / "root", FailingCalls(-1, errno.ENOENT))
    chance = random.Random(which)
    engine, workload = run.open(chance)
    workload.make_topic()
    for _ in range(STEPS):
        workload.step()
    path = memory_path / "root" / which.replace("root", "")
    path.rename(memory_path / "elsewhere")
    errors = 0
    for _ in range(3 * STEPS):
        try:
            workload.step()
        except (OSError, StorageError):
            errors += 1
    assert errors > 0
    with suppress(OSError, StorageError):
        engine.close()
    (memory_path / "elsewhere").rename(path)
    engine, workload = run.open(chance)
    for _ in range(STEPS):
        workload.step()
    engine.close()
    run.check()


@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
def test_calls_that_fail_now_and_then(memory_path: Path, number: int) -> None:
    assert fail_each(memory_path, number, 41, partial(run_workload, seed=2)).total() > 3


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", ERRNOS, ids=errno.errorcode.get)
def test_many_calls_failing_one_at_a_time(memory_path: Path, number: int) -> None:
    outcomes = fail_each(memory_path, number, 3, partial(run_workload, seed=number))
    assert {"opening", "opened offline", "offline", "closing"} <= outcomes.keys()
