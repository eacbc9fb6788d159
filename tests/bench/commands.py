"""Rows 23 to 28: dumps, verification, starting, several partitions, the first byte, and memory."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import Field, Headers, RecordColumns
from tests.bench import mounts
from tests.bench.compacting import linked, scratch_directory
from tests.bench.data import TOPIC, batches, cache, kept, keyed_log, plain_log, time_of
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import (
    Call,
    Command,
    Figure,
    Outcome,
    Outcomes,
    Together,
    python_task,
    race,
    versus,
)
from tests.bench.sparse import sparse_log
from tests.broker.jvm import installation
from tests.logs import TopicSettings, write_log_dir, write_partition, write_topic

KAFKAFS = (sys.executable, "-m", "kafkafs")
_COMMITS_IN_BATCH = 100
_PARTITIONS = 8
_SPARSE_GIBIBYTES = 100
_MEASURE_MEMORY = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
_FLAT = Figure(16.0, "MiB")


def dumps(plan: Plan) -> Outcomes:
    """Row 23: the records of a log, and those of committed offsets, to a file and to a pipe,
    each measured once, because the peer takes half a minute. A file is also measured beside a copy
    of it."""
    records = plan.records
    for option, log in (
        ("--print-data-log", _log_of(plain_log(records), TOPIC)),
        ("--offsets-decoder", _log_of(_committed_offsets(records), "__consumer_offsets")),
    ):
        jars = installation() / "jars"
        java = ("java", "-Xmx512m", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments")
        for run in (_to_file, _to_pipe):
            seconds = race(
                {
                    "ours": Call(run([*KAFKAFS, "dump", option, str(log)])),
                    "java": Call(run([*java, option, "--files", str(log)])),
                },
                1,
            )
            yield versus(
                23, f"dump {option}, {run.__name__[1:].replace('_', ' a ')}",
                (seconds["ours"], seconds["java"]), "kafka-dump-log", 20,
                amount=records / 1e6, unit="M rec/s",
            )  # fmt: skip
            if run is _to_file:
                yield versus(
                    23, f"dump {option}, to a file",
                    (seconds["ours"], _copying([*KAFKAFS, "dump", option, str(log)])),
                    "cp of these lines", None, amount=records / 1e6, unit="M rec/s",
                )  # fmt: skip


def _copying(words: Sequence[str]) -> float:
    """Returns how long a file with the output of a command takes to copy: no dump to a file of this
    file system is faster."""
    lines, copy = cache() / "dump.txt", cache() / "copy.txt"
    try:
        with lines.open("wb") as file:
            _timed(words, file.fileno())
        return _timed(["cp", str(lines), str(copy)], subprocess.DEVNULL)
    finally:
        lines.unlink()
        copy.unlink(missing_ok=True)


def _to_file(words: Sequence[str]) -> Callable[[], float]:
    def work() -> float:
        path = cache() / "dump.txt"
        with path.open("wb") as file:
            taken = _timed(words, file.fileno())
        path.unlink()
        return taken

    return work


def _to_pipe(words: Sequence[str]) -> Callable[[], float]:
    def work() -> float:
        reader = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert reader.stdin is not None
        taken = _timed(words, reader.stdin.fileno())
        reader.stdin.close()
        reader.wait()
        return taken

    return work


def _timed(words: Sequence[str], out: int) -> float:
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=out, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def _log_of(log_dir: Path, topic: str) -> Path:
    return log_dir / f"{topic}-0" / f"{0:020}.log"


def _committed_offsets(records: int) -> Path:
    """Returns a log directory with that many commits of 50 groups in `__consumer_offsets`."""

    def make(directory: Path) -> None:
        write_topic(directory, _commits(records), topic="__consumer_offsets")

    return kept(f"offsets-{records}", make)


def _commits(records: int) -> Iterator[bytes]:
    for base in range(0, records, _COMMITS_IN_BATCH):
        numbers = range(base, min(base + _COMMITS_IN_BATCH, records))
        keys = [
            struct.pack(">h", 1) + _string(f"group-{n % 50}") + _string(f"orders-{n % 7}")
            + struct.pack(">i", n % 100)
            for n in numbers
        ]  # fmt: skip
        values = [
            struct.pack(">hqi", 3, n, 5) + _string("") + struct.pack(">q", time_of(n))
            for n in numbers
        ]
        times = time_of(np.asarray(numbers, dtype=np.int64))
        columns = RecordColumns(times, _field(keys), _field(values), Headers.none())
        yield bytes(encode(columns, BatchPlan(base_offset=base, batch_bytes=1 << 20)).data)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _field(parts: Sequence[bytes]) -> Field:
    sizes = np.array([len(part) for part in parts])
    return Field(b"".join(parts), np.cumsum(sizes) - sizes, sizes)


def verification(plan: Plan) -> Outcomes:
    """Row 24: against the checksum of the same file, which is read in the same way."""
    log = str(plain_log(plan.records))
    contenders = {"ours": python_task("verify", log), "crc": python_task("checksum", log)}
    seconds = race(contenders, plan.repetitions)
    size = os.path.getsize(_log_of(Path(log), TOPIC))
    yield versus(
        24, "verify", (seconds["ours"], seconds["crc"]), "crc32c alone", 0.5,
        amount=size / 1e9, unit="GB/s",
    )  # fmt: skip


def starts(plan: Plan) -> Outcomes:
    """Row 25: from start to exit."""
    log = str(plain_log(plan.records))
    seconds = race(
        {
            "cat": Command([*KAFKAFS, "cat", log, f"{TOPIC}/0/offset/5"]),
            "help": Command([*KAFKAFS, "--help"]),
        },
        plan.repetitions,
    )
    yield Outcome(25, "kafkafs cat", Figure(seconds["cat"], "s"), limit=Figure(0.15, "s"))
    yield Outcome(25, "kafkafs --help", Figure(seconds["help"], "s"), limit=Figure(0.1, "s"))


def partitions(plan: Plan) -> Outcomes:
    """Row 26: a thread per core scans partitions to Arrow. Two processes, which share nothing but
    the machine, show the most that its second core can add."""
    records = plan.records // _PARTITIONS
    numbers = range(_PARTITIONS)

    def make(directory: Path) -> None:
        for number in numbers:
            where = directory / f"{TOPIC}-{number}"
            write_partition(where, batches(records), TopicSettings())
        write_log_dir(directory, {(TOPIC, number): records for number in numbers})

    log = str(kept(f"none-{_PARTITIONS}x-{records}", make))
    seconds = race(
        {
            "two": python_task("scan_partitions", log, "2"),
            "one": python_task("scan_partitions", log, "1", core=last_core()),
            "processes": Together(
                [
                    python_task(
                        "scan_partitions", log, "1", f"{part}/2", core=last_core() + 1 - part
                    )
                    for part in (1, 2)
                ]
            ),
        },
        plan.repetitions,
    )
    work, amount = f"scan of {_PARTITIONS} partitions, two cores", plan.records / 1e6
    yield versus(
        26, work, (seconds["two"], seconds["one"]),
        "one core", 1.7, amount=amount, unit="M rec/s",
    )  # fmt: skip
    yield versus(
        26, work, (seconds["two"], seconds["processes"]),
        "two processes, each on a core of its own", None, amount=amount, unit="M rec/s",
    )  # fmt: skip


def first_byte(plan: Plan) -> Outcomes:
    """Row 27: the first read of a stream of a large log, which is new to the mount each time."""

    def work() -> float:
        with mounts.kafkafs(sparse_log(_SPARSE_GIBIBYTES, plan.lookups)) as mounted:
            started = time.perf_counter()
            file = os.open(mounted.path / TOPIC / "0" / "values", os.O_RDONLY)
            os.read(file, 1)
            taken = time.perf_counter() - started
            os.close(file)
            return taken

    seconds = race({"ours": Call(work)}, plan.repetitions)["ours"]
    work_name = f"cat values of {_SPARSE_GIBIBYTES} GiB: first byte"
    yield Outcome(27, work_name, Figure(seconds, "s"), limit=Figure(0.05, "s"))


def memory(plan: Plan) -> Outcomes:
    """Row 28: what a log of three times the size adds to the largest resident memory. A compaction
    and its preview have the cleaner's offset map."""
    plain = [plain_log(plan.records // 3), plain_log(plan.records)]
    keyed = [keyed_log(plan.compacted // part, plan.keys, Codec.NONE) for part in (3, 1)]
    compact = ["-c", "log.cleanup.policy=compact", TOPIC]
    with scratch_directory() as scratch:
        changed = [linked(scratch / log.name, log) for log in keyed]
        for name, logs, words in (
            ("cat records.jsonl", plain, ["cat", "{}", f"{TOPIC}/0/records.jsonl"]),
            ("verify", plain, ["verify", "{}"]),
            ("compact --dry-run", keyed, ["compact", "--dry-run", "--force", "{}", *compact]),
            ("compact", changed, ["compact", "--force", "{}", *compact]),
        ):
            small, large = (
                _resident_bytes([word.replace("{}", str(log)) for word in words]) for log in logs
            )
            growth = Figure(max(large - small, 0) / 2**20, "MiB")
            note = f"{large / 2**20:.0f} MiB"
            yield Outcome(28, f"memory of {name}: growth", growth, limit=_FLAT, note=note)


def _resident_bytes(words: Sequence[str]) -> int:
    """Returns the largest resident memory of a command. A small process starts it, because what
    starts a command counts as its memory, too."""
    command = [sys.executable, "-S", "-c", _MEASURE_MEMORY, *KAFKAFS, *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return int(done.stdout) * 1024
