"""Runs everything that reads, repeatedly, while a broker under load creates and deletes topics.

    KAFKAFS_SOAK_SECONDS=600 python -m pytest -s tests/broker/test_soak.py

runs for ten minutes and prints its figures; without the variable it is a short test of the suite.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kafkafs.cli.main import cli
from tests.broker.driver import Driver
from tests.broker.kafka import Broker
from tests.broker.readers import mounted
from tests.waiting import wait_until

SECONDS = float(os.environ.get("KAFKAFS_SOAK_SECONDS", "20"))
SMALL_SEGMENTS = {"internal.segment.bytes": "100000", "segment.index.bytes": "8192"}
LOADED = {
    "soak-retained": {**SMALL_SEGMENTS, "retention.bytes": "2000000"},
    "soak-compacted": {
        **SMALL_SEGMENTS,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
    "soak-indexed": {
        **SMALL_SEGMENTS,
        "retention.bytes": "8000000",
        "index.interval.bytes": "100",
    },
}
#: How much more a mount may use in the last third of a run than in the second: in a run long enough
#: for deletions, retention keeps up to 130 segments of three files each, and the allocator does not
#: return all memory.
SPARE_DESCRIPTORS = 400
SPARE_BYTES = 48 << 20
#: Descriptors of deleted files, a moment after the load has ended.
UNLINKED_DESCRIPTORS = 16
#: The verbs of one round, with the arguments after the log directory.
VERBS = (
    ("verify",),
    ("expire", "--dry-run", "--all"),
    ("compact", "--dry-run", "--all"),
    ("recover", "--dry-run"),
    ("undelete", "--list"),
    ("topic", "list"),
    ("transactions",),
)


@dataclass
class Load:
    """A load on every topic of LOADED without pauses."""

    driver: Driver
    running: dict[str, Future[Any]] = field(default_factory=dict)
    lots: int = 0

    def keep_up(self) -> None:
        """Sends the next lot to each topic whose last one is done."""
        for topic in LOADED:
            if topic not in self.running or self.running[topic].done():
                if topic in self.running:
                    self.running[topic].result()
                sent = {"count": 5_000, "batch": 40, "value_size": 80, "pause_ms": 10, "keys": 50}
                self.running[topic] = self.driver.submit(
                    "generate", topic=topic, partition=0, **sent
                )
                self.lots += 1


@dataclass(frozen=True)
class Usage:
    """The resources of a process: open descriptors, those of deleted files, and resident bytes."""

    descriptors: int
    unlinked: int
    resident: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
        files = []
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed since it was listed
                files.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        return cls(len(files), sum(name.endswith("(deleted)") for name in files), resident << 10)


@contextmanager
def loaded(driver: Driver) -> Iterator[Load]:
    for topic, settings in LOADED.items():
        driver.create_topic(topic, configs=settings)
    load = Load(driver)
    load.keep_up()
    yield load
    for future in load.running.values():
        future.result()
    for topic in LOADED:
        driver.call("delete_topic", topic=topic)


def read_all(mountpoint: Path) -> int:
    """Reads what a partition of each topic under load shows; returns the number of records."""
    count = 0
    for topic in LOADED:
        directory = mountpoint / topic / "0"
        with (directory / "records.jsonl").open(encoding="utf-8") as lines:
            offsets = [json.loads(line)["offset"] for line in lines]
        assert offsets == sorted(set(offsets))
        if topic != "soak-compacted" and offsets:
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
        count += len(offsets)
        for name in ("status.json", "why.json"):
            assert json.loads((directory / name).read_bytes())
        assert os.listdir(directory / "segments")
        with suppress(FileNotFoundError):  # retention deleted it between the two calls
            (directory / "offset" / os.readlink(directory / "offset" / "first")).read_bytes()
    return count


def run_verbs(log_dir: Path) -> list[str]:
    """Runs all verbs; returns what went wrong."""
    wrong = []
    lots = [*VERBS, *(("why", f"{topic}/0") for topic in LOADED)]
    lots.append(("explain", "soak-indexed/0/offset/last"))
    for verb, *rest in lots:
        where = 1 if verb == "topic" else 0
        words = [verb, *rest[:where], str(log_dir), *rest[where:]]
        result = CliRunner().invoke(cli, words)
        if result.exit_code:
            wrong.append(f"{' '.join(words)}: {result.exit_code}: {result.output[-500:]}")
    return wrong


def test_nothing_goes_wrong_beside_a_broker_under_load(
    broker: Broker, driver: Driver, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    done: Counter[str] = Counter()
    wrong: list[str] = []
    usages: list[Usage] = []
    begun = time.monotonic()
    mountpoint = tmp_path / "mnt"
    with loaded(driver) as load, mounted(broker.log_dirs, mountpoint, "debug") as pid:
        for number in itertools.count():
            topic = f"soak-{number}"
            driver.create_topic(topic, partitions=3, configs=SMALL_SEGMENTS)
            # Until there is a leader, a producer's second batch may get in before its first one.
            driver.offsets(topic, number % 3)
            driver.call("generate", topic=topic, partition=number % 3, count=500, value_size=50)
            load.keep_up()
            with (mountpoint / topic / str(number % 3) / "records.jsonl").open("rb") as lines:
                assert sum(1 for _ in lines) == 500
            done["records"] += read_all(mountpoint)
            deleted = driver.submit("delete_topic", topic=topic)
            wrong += run_verbs(broker.log_dir)
            deleted.result()
            load.keep_up()
            done["rounds"] += 1
            usages.append(Usage.of(pid))
            if time.monotonic() - begun > SECONDS and number > 5:
                break
        with suppress(AssertionError):  # checked below, with the figures
            wait_until(lambda: Usage.of(pid).unlinked <= UNLINKED_DESCRIPTORS)
        unlinked = Usage.of(pid).unlinked
    third = len(usages) // 3  # the first is the warm-up
    early, late = usages[third:-third], usages[-third:]
    descriptors = [max(each.descriptors for each in part) for part in (early, late)]
    resident = [max(each.resident for each in part) for part in (early, late)]
    figures = {
        "seconds": round(time.monotonic() - begun),
        "rounds": done["rounds"],
        "records read": done["records"],
        "lots of 5000 records": load.lots,
        "errors": len(wrong),
        "descriptors": descriptors,
        "of deleted files at the end": unlinked,
        "resident MiB": [size >> 20 for size in resident],
    }
    record_property("figures", figures)
    print(json.dumps(figures))
    print("\n".join(sorted({line[:300] for line in wrong})))
    assert wrong == []
    assert descriptors[1] <= descriptors[0] + SPARE_DESCRIPTORS
    assert resident[1] <= resident[0] + SPARE_BYTES
    assert unlinked <= UNLINKED_DESCRIPTORS
