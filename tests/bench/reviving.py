"""Row 38: `revive` of a log, beside a copy of the same files that is on the disk, too.

`revive` loads each partition after it was copied, and writes what a new Kafka needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.commands import KAFKAFS
from tests.bench.compacting import scratch_directory
from tests.bench.data import TOPIC, plain_log
from tests.bench.plan import Plan
from tests.bench.race import Call, Command, Outcomes, race, versus

_COPY = 'cp -a --reflink=never "$0" "$1" && sync -f "$1"'


def against_copy(plan: Plan) -> Outcomes:
    """Row 38."""
    source = plain_log(plan.records)
    with scratch_directory() as scratch:
        target = scratch / "new"
        seconds = race(
            {
                "revive": Call(_into(target, [*KAFKAFS, "revive", str(source), "-o", str(target)])),
                "cp": Call(_into(target, ["sh", "-c", _COPY, str(source), str(target)])),
            },
            plan.repetitions,
        )
    size = sum(path.stat().st_size for path in (source / f"{TOPIC}-0").iterdir())
    yield versus(
        38, f"revive {size / 1e6:,.0f} MB", (seconds["revive"], seconds["cp"]),
        "cp -a --reflink=never, sync", None, amount=size / 1e9, unit="GB/s",
    )  # fmt: skip


def _into(target: Path, words: Sequence[str]) -> Callable[[], float]:
    """Returns what runs a command that creates `target`, and times that."""

    def work() -> float:
        shutil.rmtree(target, ignore_errors=True)
        return Command(words).measure()

    return work
