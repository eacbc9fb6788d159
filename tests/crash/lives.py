"""Lives: processes that run on one directory, most of them ended by SIGKILL at a random moment.

Each is forked from a process without threads, so it starts at once. It reports through a pipe,
whose contents survive it.
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
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Failed:
    """A life has ended with an exception."""

    traceback: str


class Pipe:
    """The writing end of a pipe. Messages of several threads do not interleave."""

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
    """Yields all complete messages; the kill may have cut the last one."""
    at = 0
    while at + _LENGTH.size <= len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if at + size <= len(data):
            yield pickle.loads(data[at : at + size])
        at += size


class Lives(ABC):
    """One life after another; `tally` counts how they ended."""

    #: The longest time until the kill, in seconds after the start or after opening.
    longest: ClassVar[float]
    #: The share of lives whose kill is timed from when they have opened the directory.
    opening: ClassVar[float]

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.seed = seed
        self.tally: Counter[str] = Counter()
        self.number = 0
        self._chance = random.Random(seed)

    @abstractmethod
    def live(self, pipe: Pipe) -> None:
        """Runs life number `number`, in its own process."""

    @abstractmethod
    def judge(self, said: Iterator[Any]) -> None:
        """Checks the messages of a life against those of earlier ones."""

    def run(self, kill: bool) -> None:
        """Runs one more life. If `kill` is true, it is killed at a random moment unless it exits
        earlier."""
        self.number += 1
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._be_born(Pipe(writing))
        os.close(writing)
        seconds = self._chance.uniform(0, self.longest) if kill else 60
        after_opening = self._chance.random() < self.opening
        data, ended = drain(reading, child, seconds, after_opening)
        os.close(reading)
        _, status = os.waitpid(child, 0)
        self.judge(self._without_failure(data))
        if ended and status:
            raise AssertionError(f"life {self.number} ended with {status} and reported no error")
        self.tally["closed" if ended else "killed"] += 1

    def _be_born(self, pipe: Pipe) -> None:
        status = 1
        try:
            self.live(pipe)
            status = 0
        finally:
            if status:
                pipe.tell(Failed(traceback.format_exc()))
            os._exit(status)

    def _without_failure(self, data: bytes) -> Iterator[Any]:
        for message in messages(data):
            if isinstance(message, Failed):
                raise AssertionError(f"life {self.number} failed:\n{message.traceback}")
            yield message


def drain(fd: int, child: int, seconds: float, after_opening: bool) -> tuple[bytes, bool]:
    """Reads the messages of `child` and kills it after `seconds`, counted from its start or from
    its first message. Returns the data, and whether the child exited by itself."""
    data = bytearray()
    give_up = time.monotonic() + (60 if after_opening else seconds)
    ended = True
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    while True:
        left = give_up - time.monotonic()
        if ended and (left <= 0 or not waiting.poll(left * 1000)):
            os.kill(child, signal.SIGKILL)
            ended = False
        part = os.read(fd, 1 << 16)
        if not part:
            return bytes(data), ended
        data += part
        if after_opening and next(messages(data), None) is not None:
            after_opening, give_up = False, time.monotonic() + seconds


def live_and_die(lives: type[Lives]) -> None:
    """Runs lives as the command line (DIRECTORY LIVES SEED) says, until LIVES of them were killed,
    and then two that are not; prints the tally."""
    root, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    all_of_them = lives(root, seed)
    while all_of_them.tally["killed"] < count:
        all_of_them.run(kill=True)
    all_of_them.run(kill=False)
    all_of_them.run(kill=False)
    print(dict(all_of_them.tally))
