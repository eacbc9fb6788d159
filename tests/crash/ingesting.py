"""Kills processes with SIGKILL while they ingest writes into several partitions.

    python -m tests.crash.ingesting DIRECTORY LIVES SEED

Each process (a life) first checks that every earlier write is in all of its partitions, exactly
once, or in none, and in all if `ingest_parts` had returned. It repeats the last write, as a
restarted stream does, and continues. The last line printed reports what the last life found:
how many writes are present, and how many were tried.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.ingest.commit_file import IngestWrite
from kafkafs.storage.ingest.two_phase import ingest_parts
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.crash.checks import complaints
from tests.reading import read
from tests.staging import ALL, JOINED, NONE, NOW_MS, large_from, stage

PARTITIONS = range(3)
SETTINGS = {"internal.segment.bytes": "900", "segment.index.bytes": "400"}
#: The number of values that a write has in each partition, in several segments.
VALUES = 12
#: The ways in which writes are ingested, in turn.
WAYS = (JOINED, ALL, NONE)
#: A life is killed at most this many seconds after one of its lines.
LONGEST = 0.05


def open_engine(log_dir: Path) -> LogManager:
    return LogManager(str(log_dir), clock=SetClock(NOW_MS))


def write(engine: LogManager, log_dir: Path, number: int) -> None:
    """Ingests write `number` of writer `w`, staged by two tasks that append before it."""
    job = f"job-{number}-{os.getpid()}-{time.monotonic_ns()}"
    parts = [
        part
        for task in range(2)
        for part in stage(
            log_dir,
            job,
            {("t", each): _appends(number, task, each) for each in PARTITIONS},
            attempt=f"{task}-0",
        )
    ]
    ingest_parts(engine, IngestWrite("w", number), parts)


def _appends(number: int, task: int, partition: int) -> list[list[str]]:
    """Returns values padded by blanks: those of the last partition are too large to be joined."""
    count, blanks = VALUES // 4, " " * 40 * partition
    return [
        [f"{number}:{task * 6 + each * count + i}{blanks}" for i in range(count)]
        for each in range(2)
    ]


def append(engine: LogManager, value: str) -> None:
    records = RecordColumns.from_records([SimpleRecord(NOW_MS, b"k", value.encode())])
    for partition in PARTITIONS:
        engine.writer("t", partition).append_records(records, durable=True)


def values(engine: Engine | LogManager, partition: int) -> list[str]:
    return [(each.value or b"").decode() for each in read(engine.log("t", partition).view())]


def written(engine: Engine | LogManager) -> list[set[int]]:
    """Returns the writes that are in each partition. Raises AssertionError if one is incomplete,
    duplicated or out of order."""
    found = []
    for partition in PARTITIONS:
        there: dict[int, list[int]] = {}
        for value in values(engine, partition):
            number, colon, place_ = value.partition(":")
            if colon:
                there.setdefault(int(number), []).append(int(place_))
        for each, places in there.items():
            assert places == list(range(VALUES)), f"write {each} in partition {partition}: {places}"
        found.append(set(there))
    return found


def check(engine: LogManager, acknowledged: Iterable[int]) -> set[int]:
    """Returns the writes that are present. Raises AssertionError if one is not all or nothing."""
    wrong = complaints(engine)
    assert not wrong, wrong
    found = written(engine)
    assert all(each == found[0] for each in found), f"a write is in some partitions only: {found}"
    assert set(acknowledged) <= found[0], f"{set(acknowledged) - found[0]} are missing"
    return found[0]


def live(log_dir: Path, first: int, seed: int, acknowledged: set[int], out: int) -> None:
    """Runs one life, which writes its lines to `out`."""

    def say(line: str) -> None:
        os.write(out, f"{line}\n".encode())

    with open_engine(log_dir) as engine:
        if "t" not in engine.topics():
            engine.create_topic("t", len(PARTITIONS), SETTINGS)
        found = check(engine, acknowledged)
        say(f"found {len(found)} {first}")
        chance = random.Random(f"{seed} {first}")
        for number in range(max(first - 1, 0), 10**6):
            say(f"trying {number}")
            with large_from(WAYS[number % len(WAYS)]):
                write(engine, log_dir, number)
            say(f"placed {number}")
            if chance.random() < 0.3:
                append(engine, "between")


def lived(
    log_dir: Path, first: int, seed: int, acknowledged: set[int], spoken: int, seconds: float
) -> list[str]:
    """Returns the lines of a life that is killed `seconds` after its first `spoken` lines."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live(log_dir, first, seed, acknowledged, writing)
        finally:  # reached only on failure
            os.write(writing, f"failed {traceback.format_exc()}".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        said = [lines.readline() for _ in range(spoken)]
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        said += lines
    os.waitpid(child, 0)
    assert not any(line.startswith("failed ") for line in said), "".join(said)
    return said


def main() -> None:
    log_dir, lives, seed = Path(sys.argv[1]) / "logs", int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    acknowledged: set[int] = set()
    found, tally, first = "found 0 0\n", Counter[str](), 0
    for _ in range(lives):
        spoken, seconds = chance.randrange(1, 6), chance.uniform(0, LONGEST)
        found, *said = lived(log_dir, first, seed, acknowledged, spoken, seconds)
        # The kill may have cut the last line.
        told = [line.split() for line in said if line.endswith("\n")]
        acknowledged.update(int(number) for word, number in told if word == "placed")
        first = max([first, *(int(number) + 1 for _, number in told)])
        tally["killed in a write"] += bool(told) and told[-1][0] == "trying"
    print({"found": int(found.split()[1]), "tried": first, **tally})


if __name__ == "__main__":
    main()
