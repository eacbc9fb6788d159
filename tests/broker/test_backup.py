"""Backups of a broker's directory while it appends, rolls, deletes and compacts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.backup.making import make_point
from kafkafs.storage.operations.backup.request import Backup, FinishedPoint
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from kafkafs.storage.operations.verifier import Verifier
from tests.backups import check, failures_in
from tests.broker.driver import Driver
from tests.broker.jvm import VERSION
from tests.broker.kafka import Broker, RevivedBroker, free_listener
from tests.broker.test_live import COMPACTED, SMALL_SEGMENTS
from tests.reading import Plain, read
from tests.waiting import wait_until

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


def make(broker: Broker, repository: Path) -> FinishedPoint:
    """Makes a point in time of a running broker."""
    directories = [str(path) for path in broker.log_dirs]
    *rows, point = make_point(Engine(directories), Backup(str(repository)))
    assert failures_in(rows) == []
    assert isinstance(point, FinishedPoint)
    return point


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
        points.append(make(broker, repository))
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


@contextmanager
def reading(bootstrap: str, topic: str, group: str) -> Iterator[list[int]]:
    """Reads a topic as a member of a group, which commits after every record or two. Yields the
    numbers of the records so far."""
    configs = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**configs, "enable.auto.commit": False})
    consumer.subscribe([topic])
    numbers: list[int] = []
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            found = consumer.consume(2, 0.1)
            numbers.extend(int((each.value() or b"").split()[0]) for each in found)
            if found:
                consumer.commit(asynchronous=False)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield numbers
    finally:
        ended.set()
        thread.join()
        consumer.close()


def committed(engine: Engine, group: str) -> int:
    """Returns the offset that a group has committed, 0 if none."""
    rows = [row for row in list_groups(engine, ListGroups()) if isinstance(row, GroupOffset)]
    return max((row.offset or 0 for row in rows if row.group.name == group), default=0)


@pytest.mark.slow
def test_no_group_is_ahead_of_its_log(
    broker: Broker, driver: Driver, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A group that follows the end of a log closely. A broker on the last point serves the log up
    to its end, and the group continues where it had committed."""
    name, repository = topic(SMALL_SEGMENTS), tmp_path / "backup"
    group = f"readers-of-{name}"
    how = {"partition": 0, "count": 800, "batch": 1, "value_size": 60, "pause_ms": 4}
    points: list[FinishedPoint] = []
    with reading(broker.bootstrap, name, group) as numbers:
        writing = driver.submit("generate", topic=name, **how)
        wait_until(lambda: bool(numbers))
        while not writing.done() or not points:
            points.append(make(broker, repository))
        writing.result()
    found = []
    for point in points:
        engine = Engine(point.manifest)
        offset, end = committed(engine, group), check_plain(engine.log(name, 0).view())
        assert offset <= end
        found.append((offset, end, point))
    assert [offset for offset, _, _ in found] == sorted(offset for offset, _, _ in found)

    offset, end, point = next((each for each in found if each[1] > each[0] > 0), found[-1])
    assert offset > 0
    new, listener = tmp_path / "new", ("127.0.0.1", free_listener())
    list(revive(Engine(point.manifest), Revive(str(new), listener=listener)))
    revived = RevivedBroker(new, listener[1], VERSION, {})
    try:
        revived.start()
        with reading(revived.bootstrap, name, group) as again:
            wait_until(lambda: len(again) == end - offset)
        assert again == list(range(offset, end))
    finally:
        revived.close()
