"""Row 8: opening a large broker's directory."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from tests.bench import mounts
from tests.bench.commands import KAFKAFS
from tests.bench.compacting import scratch_directory
from tests.bench.data import build, kept, placed
from tests.bench.plan import Plan
from tests.bench.race import Figure, Outcome, Outcomes
from tests.logs import TopicSettings, write_log_dir, write_partition

_PARTITIONS_OF_A_TOPIC = 50
_RECORDS_OF_A_SEGMENT = 4
_SECONDS = Figure(1.0, "s")
_MEMORY = Figure(200.0, "MiB")
_REPORT_SECONDS = Figure(30.0, "s")


def many_partitions(plan: Plan) -> Outcomes:
    log_dir = _log_dir(plan)
    what = f"{plan.partitions:,} partitions × {plan.segments}"
    started = time.perf_counter()
    with mounts.kafkafs(log_dir) as mounted:
        answering = time.perf_counter()
        topics = os.listdir(mounted.path)
        listed = time.perf_counter()
        yield Outcome(
            8, f"{what}: first ls", Figure(listed - answering, "s"), limit=_SECONDS,
            note=f"{len(topics)} names",
        )  # fmt: skip
        yield Outcome(
            8, f"{what}: mount and first ls", Figure(listed - started, "s"), limit=_SECONDS,
            note="from the start of the command, Python's own start included",
        )  # fmt: skip
        partitions = [path for topic in mounted.path.glob("t*") for path in topic.iterdir()]
        numbered = [path for path in partitions if path.name.isdigit()]
        yield Outcome(
            8, f"{what}: ls of every topic", Figure(time.perf_counter() - listed, "s"),
            note=f"{len(numbered):,} partitions",
        )  # fmt: skip
        yield _memory(mounted, f"{what}: daemon after ls of every topic")
        started = time.perf_counter()
        for path in numbered:
            _open_whole(path)
        yield Outcome(
            8, f"{what}: first and last record of each", Figure(time.perf_counter() - started, "s")
        )
        yield _memory(mounted, f"{what}: daemon after opening each partition")


def report_of_many(plan: Plan) -> Outcomes:
    """The report of the same directory, from indexes and batch headers."""
    log_dir = _log_dir(plan)
    with scratch_directory() as scratch:
        page = scratch / "report.html"
        started = time.perf_counter()
        subprocess.run([*KAFKAFS, "report", str(log_dir), "-o", str(page)], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        seconds = Figure(time.perf_counter() - started, "s")
        size = page.stat().st_size / 2**20
    yield Outcome(
        8, f"{plan.partitions:,} partitions × {plan.segments}: report", seconds,
        limit=_REPORT_SECONDS, note=f"a page of {size:.1f} MiB",
    )  # fmt: skip


def _open_whole(partition: Path) -> None:
    """Reads the first and the last record, and the status; that opens a log."""
    for name in ("offset/first", "offset/last", "status.json"):
        (partition / name).read_bytes()


def _memory(mounted: mounts.Mounted, work: str) -> Outcome:
    return Outcome(8, work, Figure(mounted.resident_bytes() / 2**20, "MiB"), limit=_MEMORY)


def _log_dir(plan: Plan) -> Path:
    batch = build(0, _RECORDS_OF_A_SEGMENT, Codec.NONE)
    settings = TopicSettings(segment_bytes=len(batch))
    records = plan.segments * _RECORDS_OF_A_SEGMENT

    def make(directory: Path) -> None:
        ends: dict[tuple[str, int], int] = {}
        for number in range(plan.partitions):
            topic = f"t{number // _PARTITIONS_OF_A_TOPIC:03}"
            partition = number % _PARTITIONS_OF_A_TOPIC
            batches = [placed(batch, base) for base in range(0, records, _RECORDS_OF_A_SEGMENT)]
            write_partition(directory / f"{topic}-{partition}", batches, settings)
            ends[topic, partition] = records
        write_log_dir(directory, ends)

    return kept(f"many-{plan.partitions}-{plan.segments}", make)
