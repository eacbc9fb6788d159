"""Runs an engine on one directory in process after process, most of them killed by SIGKILL.

    python -m tests.crash.killing DIRECTORY LIVES SEED

Each process (a life) first reports what it found, which is checked against what earlier ones
reported. The last line printed counts how the lives ended.
"""

from __future__ import annotations

import os
import random
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkafs.storage.clock import SetClock
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import complaints
from tests.crash.lives import Failed, Lives, Pipe, live_and_die
from tests.crash.model import Contents, Event, Model, Truncating, Try
from tests.crash.workload import NOW_MS, PARTITIONS, Workload, contents, open_engine

STEPS = 60
THREADS = 3


@dataclass(frozen=True, slots=True)
class Found:
    """A life has opened the directory: its contents, and what is wrong with it."""

    contents: dict[str, Contents]
    complaints: list[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a life has to do first: `resend` a batch of an idempotent producer and abort
    transactions."""

    number: int
    seed: int
    resend: Try | None
    open_transactions: list[tuple[str, str]]  # partition, name


def live(root: Path, plan: Plan, pipe: Pipe) -> None:
    """Runs one life: opens, reports what it finds, takes steps, and closes cleanly."""
    clock = SetClock(NOW_MS + plan.number * 1000)
    with open_engine(root, clock) as engine:
        found = contents(engine)
        pipe.tell(Found(found, complaints(engine)))
        workloads = [
            workload(engine, clock, pipe, plan, thread)
            for thread in range(THREADS if is_shared(plan) else 1)
        ]
        first = workloads[0]
        first.make_topic()
        resume(first, plan, found)
        others = [threading.Thread(target=append, args=(each, pipe)) for each in workloads[1:]]
        for thread in others:
            thread.start()
        for _ in range(STEPS):
            first.step()
        for thread in others:
            thread.join()


def workload(engine: LogManager, clock: SetClock, pipe: Pipe, plan: Plan, thread: int) -> Workload:
    name = f"{plan.number}x{thread}"
    chance = random.Random(f"{plan.seed} {name}")
    producer_id = plan.number * 10_000 + thread * 1000
    return Workload(engine, clock, pipe.tell, chance, name, producer_id, not is_shared(plan))


def is_shared(plan: Plan) -> bool:
    """Returns whether the life runs several threads."""
    return plan.number % 3 == 0


def resume(first: Workload, plan: Plan, found: dict[str, Contents]) -> None:
    """Finishes what earlier lives started."""
    tried = plan.resend
    if tried is not None:
        there = found[tried.partition]
        is_there = tried.values[0] in there.values.values()
        first.resend(tried, is_there)
    for partition, txn in plan.open_transactions:
        if partition in PARTITIONS:
            first.abort(partition, txn)
    for partition in found.keys() - set(PARTITIONS):
        first.delete(partition.removesuffix("-0"), [0])


def append(each: Workload, pipe: Pipe) -> None:
    """Runs a further thread of a life."""
    done = False
    try:
        for _ in range(STEPS):
            each.append_step()
        done = True
    finally:
        if not done:
            pipe.tell(Failed(traceback.format_exc()))
            os._exit(1)


class EngineLives(Lives):
    """Lives of an engine, and the model that checks them."""

    longest = 0.06
    opening = 0.6

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root, seed)
        self.model = Model()
        self._resend: Try | None = None

    def live(self, pipe: Pipe) -> None:
        plan = Plan(self.number, self.seed, self._resend, self._open_transactions())
        live(self.root, plan, pipe)

    def judge(self, said: Iterator[Any]) -> None:
        opened = False
        for message in said:
            match message:
                case Found(found, wrong):
                    opened = True
                    assert not wrong, f"life {self.number} found:\n" + "\n".join(wrong)
                    self.model.check(found)
                    self._forget_lost(found)
                case _:
                    self.model.add(message)
                    self._note_resend(message)
        self.tally["opened" if opened else "killed while opening"] += 1

    def _note_resend(self, message: Event) -> None:
        """Remembers the last batch of an idempotent producer, to resend it."""
        if isinstance(message, Try) and message.producer_id >= 0 and not message.txn:
            self._resend = message
        elif isinstance(message, Truncating):
            self._resend = None

    def _forget_lost(self, found: dict[str, Contents]) -> None:
        """Forgets a batch that retention has deleted: resent, it would be appended again."""
        tried = self._resend
        if tried is not None and tried.partition in found:
            known = self.model.partitions[tried.partition].known
            first = next((o for o, k in known.items() if k.value == tried.values[0]), None)
            if first is not None and first < found[tried.partition].start:
                self._resend = None

    def _open_transactions(self) -> list[tuple[str, str]]:
        return [
            (partition.name, txn)
            for partition in self.model.partitions.values()
            for txn in sorted(partition.open_transactions())
        ]


if __name__ == "__main__":
    live_and_die(EngineLives)
