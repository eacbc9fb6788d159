"""Backups of a broker's directory while it appends, rolls, deletes and compacts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.request import Backup, FinishedPoint
from kafkafs.storage.operations.verifier import Verifier
from tests.backups import check, failures_in
from tests.broker.driver import Driver
from tests.broker.kafka import Broker
from tests.broker.test_live import COMPACTED, SMALL_SEGMENTS
from tests.reading import Plain, read

KEYS = 40


def number_of(record: Plain) -> int:
    return int((record.value or b"-1").split()[0])


def check_plain(view: View) -> int:
    """Checks that all records up to the end are there; returns their number."""
    found = [number_of(record) for record in read(view)]
    assert found == list(range(view.end_offset))
    return len(found)


def check_compacted(view: View) -> None:
    """Checks that the last record of each key is there, whatever was compacted."""
    latest = {record.key: number_of(record) for record in read(view)}
    end = view.end_offset
    assert sorted(latest.values()) == list(range(max(end - KEYS, 0), end))


def test_every_point_is_a_state_of_the_broker(
    broker: Broker, driver: Driver, topic: Callable[..., str], tmp_path: Path
) -> None:
    plain = topic(SMALL_SEGMENTS, suffix="-plain")
    compacted = topic(COMPACTED, suffix="-compacted")
    how = {"partition": 0, "count": 3_000, "batch": 7, "value_size": 60, "pause_ms": 2}
    writing = [
        driver.submit("generate", topic=plain, **how),
        driver.submit("generate", topic=compacted, keys=KEYS, **how),
    ]
    repository = tmp_path / "backup"
    points: list[FinishedPoint] = []
    while not all(each.done() for each in writing) or not points:
        rows = list(
            make_point(Engine([str(path) for path in broker.log_dirs]), Backup(str(repository)))
        )
        assert failures_in(rows) == []
        assert isinstance(rows[-1], FinishedPoint)
        points.append(rows[-1])
    for each in writing:
        each.result()
    seen = []
    for point in points:
        engine = Engine(point.manifest)
        seen.append(check_plain(engine.log(plain, 0).view()))
        check_compacted(engine.log(compacted, 0).view())
        assert set(engine.topics()) - {"__cluster_metadata"} <= set(engine.metadata().topics)
        assert not any(log_dir.is_clean for log_dir in engine.log_dirs.dirs)
    assert seen == sorted(seen)
    assert check(repository) == len(points)
    engine = Engine(str(repository))
    for name in (plain, compacted):
        found = Verifier(engine).partition(engine.partition_dir(name, 0))
        assert list(map(str, found)) == []
