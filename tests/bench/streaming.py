"""Rows 3, 4 and half of 5: reading a partition as one stream through a real mount."""

from __future__ import annotations

from pathlib import Path

from tests.bench import broker, mounts
from tests.bench.data import TOPIC, VALUE_BYTES, plain_log
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Command, Outcomes, need, python_task, race, versus


def values(plan: Plan) -> Outcomes:
    """Row 3: the values."""
    need("kcat")
    log = plain_log(plan.records)
    size = plan.records * (VALUE_BYTES + 1)
    with (
        mounts.kafkafs(log) as ours,
        mounts.static(size=size) as static,
        broker.serving(log) as kafka,
    ):
        seconds = race(
            {
                "ours": _cat(ours.path / TOPIC / "0" / "values"),
                "direct": _cat(static.path / "direct"),
                "cached": _cat(static.path / "cached"),
                "kcat": _kcat(kafka.bootstrap),
            },
            plan.repetitions,
        )
    faster = min("direct", "cached", key=lambda name: seconds[name])
    yield versus(
        3, "cat values", (seconds["ours"], seconds[faster]), f"static pyfuse3 file ({faster})", 0.6,
        amount=size / 1e9, unit="GB/s",
        note=f"static: {seconds['direct']:.3f} s direct, {seconds['cached']:.3f} s cached",
    )  # fmt: skip
    yield versus(
        3, "cat values", (seconds["ours"], seconds["cached"]),
        "static pyfuse3 file, as pyfuse3 opens one (cached)", None,
        amount=size / 1e9, unit="GB/s",
    )  # fmt: skip
    yield versus(3, "cat values", (seconds["ours"], seconds["kcat"]), "kcat -C", 3.0)


def json(plan: Plan) -> Outcomes:
    """Row 4: the records as JSON."""
    need("kcat")
    log = plain_log(plan.records)
    with mounts.kafkafs(log) as ours, broker.serving(log) as kafka:
        seconds = race(
            {
                "ours": _cat(ours.path / TOPIC / "0" / "records.jsonl"),
                "kcat": _kcat(kafka.bootstrap, "-J"),
            },
            plan.repetitions,
        )
    yield versus(4, "cat records.jsonl", (seconds["ours"], seconds["kcat"]), "kcat -C -J", 10.0)


def arrow(plan: Plan) -> Outcomes:
    """Row 5, through the mount; a static file of the same size for information."""
    log = plain_log(plan.records)
    with mounts.kafkafs(log) as ours:
        stream = ours.path / TOPIC / "0" / "records.arrow"
        size = _size(stream)
        with mounts.static(size=size) as static:
            seconds = race(
                {
                    "ours": _cat(stream),
                    "columns": python_task("decode", str(log), core=last_core()),
                    "static": _cat(static.path / "direct"),
                },
                plan.repetitions,
            )
    million = plan.records / 1e6
    yield versus(
        5, "cat records.arrow", (seconds["ours"], seconds["columns"]), "column decoder alone", 0.8,
        amount=million, unit="M rec/s",
    )  # fmt: skip
    yield versus(
        5, "cat records.arrow", (seconds["ours"], seconds["static"]), "static pyfuse3 file", None,
        amount=size / 1e9, unit="GB/s",
    )  # fmt: skip


def _cat(path: Path) -> Command:
    return Command(["cat", str(path)])


def _kcat(bootstrap: str, *options: str) -> Command:
    """Runs kcat from the first record to the last."""
    place = ["-b", bootstrap, "-t", TOPIC, "-p", "0", "-o", "beginning"]
    return Command(["kcat", "-C", "-q", "-e", *place, *options])


def _size(path: Path) -> int:
    """Returns the number of bytes in a stream."""
    total = 0
    with path.open("rb", buffering=0) as stream:
        while data := stream.read(1 << 20):
            total += len(data)
    return total
