"""Row 37: Spark reads very many small partitions, against as many records in a hundredth of the
partitions; and plans the read of ten times as many."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.data import TOPIC, batches, kept, made
from tests.bench.plan import Plan
from tests.bench.race import Call, Figure, Outcome, Outcomes, race, versus
from tests.bench.scanning import aggregate, ours
from tests.bench.sessions import spark_session
from tests.logs import TopicSettings, write_log_dir, write_partition

_RECORDS = 100
_FEWER = 100
_PLANNED = 10
# At most 1.5 times as long.
_TARGET = 0.67
_MOST_SECONDS = Figure(10, "s")
_MOST_MEMORY = Figure(500, "MB")
# What file systems allow at least.
_LINKS = 30_000


def reading(plan: Plan) -> Outcomes:
    """The same aggregates of the same columns, on two cores; each turn loads again."""
    few = max(plan.small // _FEWER, 1)
    records = few * _FEWER * _RECORDS
    logs = {
        "many": _partitions(few * _FEWER, _RECORDS),
        "few": _partitions(few, _FEWER * _RECORDS),
    }
    with spark_session() as spark:
        seconds = race(
            {name: Call(partial(_read, spark, log, records)) for name, log in logs.items()},
            plan.repetitions,
        )
    yield versus(
        37, f"Spark, {few * _FEWER:,} partitions × {_RECORDS}",
        (seconds["many"], seconds["few"]), f"{few:,} partitions × {_FEWER * _RECORDS:,}",
        _TARGET, amount=records / 1e6, unit="M rec/s",
    )  # fmt: skip


def _read(spark: SparkSession, log: Path, records: int) -> float:
    return aggregate(ours(spark, log), records)


def planning(plan: Plan) -> Outcomes:
    """In a process of its own, as in Spark."""
    partitions = plan.small * _PLANNED
    log = _linked_partitions(partitions)
    command = [sys.executable, "-m", "tests.bench.plan_reading", str(log), TOPIC]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    seconds, kibibytes, ranges = float(found[0]), int(found[1]), int(found[2])
    assert ranges == partitions
    work = f"Spark, plan the read of {partitions:,} partitions"
    yield Outcome(37, work, Figure(seconds, "s"), limit=_MOST_SECONDS)
    memory = Figure(kibibytes * 1.024 / 1000, "MB")
    yield Outcome(37, f"{work}: memory", memory, limit=_MOST_MEMORY)


def _partitions(count: int, records: int) -> Path:
    def make(directory: Path) -> None:
        for number in range(count):
            write_partition(directory / f"{TOPIC}-{number}", batches(records), TopicSettings())
        write_log_dir(directory, {(TOPIC, number): records for number in range(count)})

    return kept(f"small-{count}x-{records}", make)


def _linked_partitions(count: int) -> Path:
    """Returns partitions that share their files, so that they can be made within a minute."""

    def make(directory: Path) -> None:
        for number in range(count):
            partition = directory / f"{TOPIC}-{number}"
            if number % _LINKS == 0:
                write_partition(partition, batches(_RECORDS), TopicSettings())
                files = sorted(partition.iterdir())
                continue
            partition.mkdir()
            for file in files:
                os.link(file, partition / file.name)
        write_log_dir(directory, {(TOPIC, number): _RECORDS for number in range(count)})

    return made(f"linked-{count}x-{_RECORDS}", make)
