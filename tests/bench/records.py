"""Rows 6 and 7: reading single records as files, and listing them."""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.bench import mounts
from tests.bench.data import TOPIC, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Command, Figure, Outcome, Outcomes, race, versus

_READ_BYTES = 1 << 16
#: How much a daemon's memory may grow during a listing and still count as flat.
_FLAT_MIB = 16.0


def cold(plan: Plan) -> Outcomes:
    """Row 6: opens files that were not accessed before, in random order."""
    with (
        mounts.kafkafs(plain_log(plan.records)) as ours,
        mounts.static(files=plan.records) as static,
    ):
        directories = {
            "ours": ours.path / TOPIC / "0" / "offset",
            "static": static.path / "files",
        }
        fresh = {name: _fresh(path, plan) for name, path in directories.items()}
        contenders = {name: Call(_opened(paths)) for name, paths in fresh.items()}
        seconds = race(contenders, plan.repetitions)
        yield _per_file("cat offset/N, never looked up", seconds, plan, 0.8)
        contenders = {name: Call(_opened(paths, look_up=True)) for name, paths in fresh.items()}
        seconds = race(contenders, plan.repetitions)
        yield _per_file("cat offset/N, looked up before", seconds, plan, None)


def _per_file(work: str, seconds: dict[str, float], plan: Plan, target: float | None) -> Outcome:
    return versus(
        6, work, (seconds["ours"], seconds["static"]), "static pyfuse3 file", target,
        amount=plan.opened, unit="files/s",
    )  # fmt: skip


def _fresh(directory: Path, plan: Plan) -> Iterator[list[str]]:
    """Yields paths of random records, `plan.opened` at a time, without repetitions."""
    source = random.Random(6)
    seen: set[int] = set()
    while True:
        chosen: list[int] = []
        while len(chosen) < plan.opened:
            number = source.randrange(plan.records)
            if number not in seen:
                seen.add(number)
                chosen.append(number)
        yield [f"{directory}/{number}" for number in chosen]


def _opened(fresh: Iterator[list[str]], *, look_up: bool = False) -> Callable[[], float]:
    def work() -> float:
        paths = next(fresh)
        if look_up:
            for path in paths:
                os.stat(path)
        started = time.perf_counter()
        for path in paths:
            file = os.open(path, os.O_RDONLY)
            os.read(file, _READ_BYTES)
            os.close(file)
        return time.perf_counter() - started

    return work


def listing(plan: Plan) -> Outcomes:
    """Row 7: lists each while the other is not mounted, because the kernel's tables are too small
    for the two million names of both, and the one listed last would win. Each is mounted twice, in
    turns."""
    taken: dict[str, list[float]] = {"ours": [], "static": []}
    for _ in range(2):
        with mounts.static(files=plan.listed) as static:
            alone = {"static": _list(static.path / "files")}
            taken["static"].append(race(alone, plan.repetitions)["static"])
        with mounts.kafkafs(plain_log(plan.listed)) as ours:
            contender = _list(ours.path / TOPIC / "0" / "offset")
            contender.measure()  # fills caches, whose size is fixed
            before = ours.resident_bytes()
            taken["ours"].append(race({"ours": contender}, plan.repetitions)["ours"])
            growth = ours.resident_bytes() - before
    seconds = {name: statistics.median(medians) for name, medians in taken.items()}
    work = f"ls offset/ of {plan.listed:,} records"
    yield versus(
        7, work, (seconds["ours"], seconds["static"]), "static pyfuse3 readdir", 0.8,
        amount=plan.listed / 1e3, unit="k names/s",
    )  # fmt: skip
    yield Outcome(
        7, "daemon's growth during the listing", Figure(growth / 2**20, "MiB"),
        limit=Figure(_FLAT_MIB, "MiB"), note=f"{before / 2**20:.0f} MiB resident before",
    )  # fmt: skip


def _list(directory: Path) -> Command:
    return Command(["ls", "-U", str(directory)])
