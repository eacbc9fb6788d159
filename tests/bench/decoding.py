"""Rows 1, 2 and half of 5: decoding logs to columns and to Arrow, without a mount."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from tests.bench.data import TOPIC, cache, plain_log
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Outcomes, Worker, python_task, race, versus
from tests.broker.jvm import installation

#: Rounds after which the JVM has compiled the whole iterator.
_JAVA_WARM_UPS = 6


def uncompressed(plan: Plan) -> Outcomes:
    """Row 1: uncompressed logs."""
    log = str(plain_log(plan.records))
    core = last_core()
    seconds = race(
        {
            "ours": python_task("decode", log, core=core),
            "java": Worker(_record_iterator(log, core), _JAVA_WARM_UPS),
            "aiokafka": python_task("aiokafka", log, core=core),
        },
        plan.repetitions,
    )
    million = plan.records / 1e6
    for peer, name, target in (
        ("aiokafka", "aiokafka's compiled reader", 3.0),
        ("java", "Kafka's Java record iterator", 1.3),
    ):
        yield versus(
            1, "decode, uncompressed, one core", (seconds["ours"], seconds[peer]), name, target,
            amount=million, unit="M rec/s",
        )  # fmt: skip


def compressed(plan: Plan) -> Outcomes:
    """Row 2: compressed logs."""
    core = last_core()
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        log = str(plain_log(plan.records, codec))
        name = codec.kafka_name
        seconds = race(
            {
                "ours": python_task("decode", log, core=core),
                "bare": python_task("bare", name, log, core=core),
                "java": Worker(_record_iterator(log, core), _JAVA_WARM_UPS),
            },
            plan.repetitions,
        )
        yield versus(
            2, f"decode, {name}, one core", (seconds["ours"], seconds["java"]),
            "Kafka's Java record iterator", 1.3, amount=plan.records / 1e6, unit="M rec/s",
        )  # fmt: skip
        yield versus(
            2, f"decode, {name}, one core", (seconds["ours"], seconds["bare"]),
            "decompression alone", 0.8, amount=plan.records / 1e6, unit="M rec/s",
        )  # fmt: skip


def to_arrow(plan: Plan) -> Outcomes:
    """Row 5, the Python API: on all cores, as a user would run it; then on one core, for
    information."""
    log = str(plain_log(plan.records))
    core = last_core()
    seconds = race(
        {
            "columns": python_task("decode", log, core=core),
            "arrow": python_task("arrow", log),
            "arrow on one core": python_task("arrow", log, core=core),
        },
        plan.repetitions,
    )
    for contender, work, target in (
        ("arrow", "scan to Arrow, Python API", 0.8),
        ("arrow on one core", "scan to Arrow, Python API, one core", None),
    ):
        yield versus(
            5, work, (seconds[contender], seconds["columns"]), "column decoder alone", target,
            amount=plan.records / 1e6, unit="M rec/s",
        )  # fmt: skip


def _record_iterator(log: str, core: int) -> list[str]:
    classes = _compiled(Path(__file__).with_name("RecordIterator.java"))
    path = f"{classes}:{_jars()}/*"
    pinned = ["taskset", "-c", str(core)]
    return [*pinned, "java", "-Xmx512m", "-cp", path, "RecordIterator", f"{log}/{TOPIC}-0"]


def _jars() -> Path:
    return installation() / "jars"


def _compiled(source: Path) -> Path:
    """Returns the directory of the program's classes, compiling it if its source has changed."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    classes = cache() / f"java-{digest}"
    if not (classes / f"{source.stem}.class").exists():
        command = ["javac", "-cp", f"{_jars()}/*", "-d", str(classes), str(source)]
        subprocess.run(command, check=True)
    return classes
