"""Lives of an engine on one directory, most of them ended by SIGKILL at a random moment.

    python -m tests.crash.killing DIRECTORY LIVES SEED

A process of its own, without threads, so that each life is a fork and begins at once. What a life
says comes through a pipe, which survives it. Every life first says what it found, and that is held
against what the lives before it said; the last line tells how many ended how.
"""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkafs.storage.clock import SetClock
from kafkafs.storage.writable_engine import WritableEngine
from tests.crash.checks import complaints
from tests.crash.model import Contents, Event, Model, Truncating, Try
from tests.crash.workload import NOW_MS, PARTITIONS, Workload, contents, open_engine

STEPS = 60
THREADS = 3
#: The longest that a life is let live, in seconds, after it was born or after it has opened.
LONGEST = 0.06
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Found:
    """A life has opened the directory: what is in it, and what is wrong with it."""

    contents: dict[str, Contents]
    complaints: list[str]


@dataclass(frozen=True, slots=True)
class Failed:
    """A life has ended by an error of its own."""

    traceback: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a life is to do: `resend` a batch of an idempotent producer, abort transactions."""

    number: int
    seed: int
    resend: Try | None
    open_transactions: list[tuple[str, str]]  # partition, name


class Pipe:
    """The writing end. Messages of several threads do not mix."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def tell(self, message: object) -> None:
        data = pickle.dumps(message)
        data = _LENGTH.pack(len(data)) + data
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


def messages(data: bytes | bytearray) -> Iterator[Any]:
    """All whole messages; the last may have been cut by the kill."""
    at = 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size <= len(data):
            yield pickle.loads(data[at : at + size])
        at += size


def live(root: Path, plan: Plan, pipe: Pipe) -> None:
    """One life: opens, says what it finds, takes steps, and closes in good order."""
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


def workload(
    engine: WritableEngine, clock: SetClock, pipe: Pipe, plan: Plan, thread: int
) -> Workload:
    name = f"{plan.number}x{thread}"
    chance = random.Random(f"{plan.seed} {name}")
    producer_id = plan.number * 10_000 + thread * 1000
    return Workload(engine, clock, pipe.tell, chance, name, producer_id, not is_shared(plan))


def is_shared(plan: Plan) -> bool:
    """Whether a life has several threads."""
    return plan.number % 3 == 0


def resume(first: Workload, plan: Plan, found: dict[str, Contents]) -> None:
    """Finishes what earlier lives began."""
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
    """What the threads beside the first one do."""
    done = False
    try:
        for _ in range(STEPS):
            each.append_step()
        done = True
    finally:
        if not done:
            pipe.tell(Failed(traceback.format_exc()))
            os._exit(1)


class Lives:
    """One life after the other, and the model that judges them."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.model = Model()
        self.tally: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._number = 0
        self._resend: Try | None = None

    def run(self, kill: bool) -> None:
        """One more life; if `kill`, it is ended at a random moment, unless it ends before."""
        self._number += 1
        plan = Plan(self._number, self.seed, self._resend, self._open_transactions())
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._be_born(plan, Pipe(writing))
        os.close(writing)
        seconds = self._chance.uniform(0, LONGEST) if kill else 60
        data, ended = drain(reading, child, seconds, after_opening=self._chance.random() < 0.6)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        self._judge(data)
        if ended and status:
            raise AssertionError(f"life {self._number} ended with {status}, and did not say why")
        self.tally["closed" if ended else "killed"] += 1

    def _be_born(self, plan: Plan, pipe: Pipe) -> None:
        status = 1
        try:
            live(self.root, plan, pipe)
            status = 0
        finally:
            if status:
                pipe.tell(Failed(traceback.format_exc()))
            os._exit(status)

    def _judge(self, data: bytes) -> None:
        opened = False
        for message in messages(data):
            match message:
                case Failed(text):
                    raise AssertionError(f"life {self._number} failed:\n{text}")
                case Found(found, wrong):
                    opened = True
                    assert not wrong, f"life {self._number} found:\n" + "\n".join(wrong)
                    self.model.check(found)
                    self._forget_lost(found)
                case _:
                    self.model.add(message)
                    self._note_resend(message)
        self.tally["opened" if opened else "killed while opening"] += 1

    def _note_resend(self, message: Event) -> None:
        """The last batch of an idempotent producer is the one to send again."""
        if isinstance(message, Try) and message.producer_id >= 0 and not message.txn:
            self._resend = message
        elif isinstance(message, Truncating):
            self._resend = None

    def _forget_lost(self, found: dict[str, Contents]) -> None:
        """A batch that retention took is not sent again: it would be written anew."""
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


def drain(fd: int, child: int, seconds: float, after_opening: bool) -> tuple[bytes, bool]:
    """Reads all that `child` says and kills it after so many seconds, counted from its birth or
    from its first message. Whether it ended before."""
    data = bytearray()
    give_up = time.monotonic() + (60 if after_opening else seconds)
    ended = True
    while True:
        left = give_up - time.monotonic()
        if ended and (left <= 0 or not select.select([fd], [], [], left)[0]):
            os.kill(child, signal.SIGKILL)
            ended = False
        part = os.read(fd, 1 << 16)
        if not part:
            return bytes(data), ended
        data += part
        if after_opening and next(messages(data), None) is not None:
            after_opening, give_up = False, time.monotonic() + seconds


def main() -> None:
    root, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    lives = Lives(root, seed)
    while lives.tally["killed"] < count:
        lives.run(kill=True)
    lives.run(kill=False)
    lives.run(kill=False)
    print(dict(lives.tally))


if __name__ == "__main__":
    main()
