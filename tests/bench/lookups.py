"""Row 9: lookups by offset and by time, in a small log and in a very large one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench import mounts
from tests.bench.data import TOPIC, plain_log, time_of
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Call, Contender, Figure, Outcome, Outcomes, python_task, race
from tests.bench.sparse import sparse_log, targets_of

#: The number of records in a log of a megabyte.
_SMALL = 9500
#: The lowest allowed ratio of the small log's time to the large one's.
_FLAT = 0.5


def latency(plan: Plan) -> Outcomes:
    small = plain_log(_SMALL)
    large = sparse_log(plan.gibibytes, plan.lookups)
    offsets = {log: targets_of(log, _SMALL, plan.lookups) for log in (small, large)}
    times = {log: [time_of(offset) for offset in found] for log, found in offsets.items()}
    yield from _in_process(plan, "offset", "find", (small, large))
    yield from _in_process(plan, "time", "find_time", (small, large))
    with mounts.kafkafs(small) as small_mount, mounts.kafkafs(large) as large_mount:
        mounted = {small: small_mount, large: large_mount}
        yield from _mounted(plan, "offset", _read_record, mounted, offsets)
        yield from _mounted(plan, "time", _read_link, mounted, times)


def _in_process(plan: Plan, kind: str, task: str, logs: Sequence[Path]) -> Outcomes:
    numbers = (str(_SMALL), str(plan.lookups))
    contenders: dict[str, Contender] = {
        log.name: python_task(task, str(log), *numbers, core=last_core()) for log in logs
    }
    yield _compared(f"lookup by {kind}, in process", race(contenders, plan.repetitions), plan)


def _mounted(
    plan: Plan,
    kind: str,
    touch: Callable[[str], None],
    mounted: dict[Path, mounts.Mounted],
    wanted: dict[Path, list[int]],
) -> Outcomes:
    """Uses different records in every repetition, because the kernel caches what it has looked
    up."""
    rounds = plan.repetitions + 2
    contenders: dict[str, Contender] = {}
    for log, mount in mounted.items():
        directory = mount.path / TOPIC / "0" / kind
        parts = [wanted[log][turn::rounds] for turn in range(rounds)]
        contenders[log.name] = Call(_touching(directory, touch, parts))
    count = plan.lookups // rounds
    yield _compared(f"lookup by {kind}, mounted", race(contenders, plan.repetitions), plan, count)


def _touching(
    directory: Path, touch: Callable[[str], None], parts: Sequence[Sequence[int]]
) -> Callable[[], float]:
    turns = iter(parts)

    def work() -> float:
        paths = [f"{directory}/{number}" for number in next(turns)]
        started = time.perf_counter()
        for path in paths:
            touch(path)
        return time.perf_counter() - started

    return work


def _read_record(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    os.read(file, 1 << 16)
    os.close(file)


def _read_link(path: str) -> None:
    os.readlink(path)


def _compared(
    work: str, seconds: dict[str, float], plan: Plan, count: int | None = None
) -> Outcome:
    """Compares the large log (ours) with the small one (the peer)."""
    small, large = (taken / (count or plan.lookups) * 1e6 for taken in seconds.values())
    return Outcome(
        9, f"{work}, {plan.gibibytes:,} GiB", Figure(large, "µs"), "log of 1 MB",
        Figure(small, "µs"), small / large, _FLAT,
    )  # fmt: skip
