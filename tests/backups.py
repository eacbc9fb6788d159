"""Makes backups and reads them, for several tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import EVERYTHING, Selection
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.points import CheckedPoint, verify_points
from kafkafs.storage.operations.backup.request import Backup, FinishedPoint
from kafkafs.storage.operations.request import PartitionFailed
from tests.reading import Plain, scan

R = TypeVar("R")

#: The records, and the last stable offset, of each partition.
Contents = dict[tuple[str, int], tuple[list[Plain], int]]


def back_up(
    source: Path | str,
    repository: Path | str,
    selection: Selection = EVERYTHING,
    *,
    reread: bool = False,
) -> FinishedPoint:
    """Makes a point in time, which must have no damage."""
    request = Backup(str(repository), selection, reread=reread)
    rows = list(make_point(Engine(str(source)), request))
    assert failures_in(rows) == []
    found = rows[-1]
    assert isinstance(found, FinishedPoint)
    return found


def failures_in(rows: Iterable[object]) -> list[str]:
    return [row.error for row in rows if isinstance(row, PartitionFailed)]


def contents(source: Path | str, at_ms: int | None = None) -> Contents:
    """Returns what an engine serves of all topics."""
    engine = Engine(str(source), at_ms=at_ms)
    views = {
        (topic, number): engine.log(topic, number).view()
        for topic, numbers in engine.topics().items()
        for number in numbers
    }
    return {key: (scan(view)[0], view.last_stable_offset) for key, view in views.items()}


def check(repository: Path | str) -> int:
    """Verifies a backup, and returns how many points it has."""
    rows = list(verify_points(str(repository)))
    assert failures_in(rows) == []
    points = [row for row in rows if isinstance(row, CheckedPoint)]
    assert not any(point.problems for point in points)
    return len(points)
