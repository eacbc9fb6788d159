"""Kills processes with SIGKILL while they commit transactions over several partitions.

    python -m tests.crash.committing DIRECTORY LIVES SEED

A life is one such process. It first checks that every transaction of earlier lives is committed in
all of its partitions or in none, and in all if its `commit` had returned. Then it aborts the
transactions left open and continues. The last line printed reports what the last life found: the
number of committed transactions, and of written ones.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer, abort_transaction
from tests.crash.checks import complaints
from tests.crash.workload import NOW_MS
from tests.reading import COMMITTED, UNCOMMITTED, read

PARTITIONS = range(3)
#: A life is killed at most this many seconds after it has opened the directory.
LONGEST = 0.03


def names(engine: LogManager, partition: int, isolation: Isolation) -> list[str]:
    """Returns the names of the transactions whose records are present, in record order."""
    view = engine.log("t", partition).view()
    return [(each.value or b"").decode() for each in read(view, isolation=isolation)]


def check(engine: LogManager, acknowledged: set[str]) -> Counter[str]:
    """Raises AssertionError if a transaction is not all or nothing."""
    wrong = complaints(engine)
    assert not wrong, wrong
    counted = [Counter(names(engine, number, COMMITTED)) for number in PARTITIONS]
    written = [Counter(names(engine, number, UNCOMMITTED)) for number in PARTITIONS]
    assert counted[0] == counted[1] == counted[2], "a transaction is committed in part"
    assert set(counted[0].values()) <= {2}, "a transaction has missing or extra records"
    assert acknowledged <= counted[0].keys(), "an acknowledged transaction is not committed"
    return Counter(committed=len(counted[0]), written=len(written[0]))


def live(root: Path, number: int, seed: int, acknowledged: set[str], out: int) -> None:
    """Runs one life, which writes its lines to `out`."""

    def say(line: str) -> None:
        os.write(out, f"{line}\n".encode())

    with LogManager(str(root), clock=SetClock(NOW_MS)) as engine:
        if "t" not in engine.topics():
            engine.create_topic("t", len(PARTITIONS), {"internal.segment.bytes": "3000"})
        for partition in PARTITIONS:
            writer = engine.writer("t", partition)
            for hanging in writer.producers.open_transactions():
                abort_transaction(writer, hanging.producer_id)
        found = check(engine, acknowledged)
        say(f"found {found['committed']} {found['written']}")
        chance = random.Random(f"{seed} {number}")
        producer = TransactionalProducer(engine)
        for count in range(10**6):
            name = f"{number}x{count}"
            producer.begin()
            for partition in [*PARTITIONS, *PARTITIONS]:
                producer.append("t", partition, [SimpleRecord(NOW_MS, b"k", name.encode())])
            if chance.random() < 0.2:
                producer.abort()
            else:
                producer.commit()
                say(f"committed {name}")


def lived(root: Path, number: int, seed: int, acknowledged: set[str], seconds: float) -> list[str]:
    """Returns the lines of a life that is killed `seconds` after its first line."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live(root, number, seed, acknowledged, writing)
        finally:  # reached only on failure
            os.write(writing, f"failed {traceback.format_exc()}".encode())
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as lines:
        first = lines.readline()
        if first.startswith("found "):
            time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        said = [first, *lines]
    os.waitpid(child, 0)
    assert not any(line.startswith("failed ") for line in said), "".join(said)
    return said


def main() -> None:
    root, lives, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    found = "found 0 0\n"
    for number in range(lives):
        found, *said = lived(root, number, seed, acknowledged, chance.uniform(0, LONGEST))
        # The kill may have cut the last line.
        acknowledged.update(line.split()[1] for line in said if line.endswith("\n"))
    _, committed, written = found.split()
    print({"committed": int(committed), "written": int(written)})


if __name__ == "__main__":
    main()
