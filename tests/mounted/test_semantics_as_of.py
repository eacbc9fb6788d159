"""The promises of SEMANTICS.md about mounts as of a time."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.building import BatchFields, build_batch
from tests.mounted.conftest import Mounting
from tests.mounted.mounting import errno_of
from tests.mounted.promises import promise

NOON = 1_700_000_000_000
HOUR_MS = 3_600_000
#: When a topic of groups43 was to be deleted and created again, and another to be extended.
BEFORE_CHANGES = 1795474214201


def one(value: bytes, key: bytes, timestamp: int) -> RecordColumns:
    return RecordColumns.from_values([value], keys=[key], timestamp=timestamp)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Returns a log directory whose records' values are their offsets. `t` gets a record each hour
    until noon and after it, and then one that is stamped before noon. In `txn` a transaction
    that began before noon was committed after it."""
    clock = SetClock(NOON - 3 * HOUR_MS)
    with LogManager(str(tmp_path / "data"), clock=clock) as engine:
        engine.create_topic("t", configs={"cleanup.policy": "compact", "segment.ms": "1000"})
        engine.create_topic("txn")
        producer = TransactionalProducer(engine)
        for number in range(6):
            engine.writer("t", 0).append_records(one(b"%d" % number, b"k", clock.now_ms()))
            if number == 2:
                engine.writer("txn", 0).append_records(one(b"0", b"k", clock.now_ms()))
                producer.begin()
                producer.append("txn", 0, one(b"1", b"k", clock.now_ms()))
            if number == 4:
                producer.commit()
            clock.advance(HOUR_MS)
        engine.writer("t", 0).append_records(one(b"6", b"late", NOON - HOUR_MS))
    return tmp_path / "data"


@pytest.fixture
def noon(data: Path, mount: Mounting) -> Path:
    return mount(data, f"at={NOON}").point


@promise(
    "Each partition ends before its first record, in the order of offsets, whose timestamp is later"
    " than T; that record and all later ones are nowhere in the mount."
)
@promise(
    "A transaction whose marker has a later timestamp is open: under `read_committed`, the"
    " partition ends before it."
)
@promise(
    "`key/K` is the latest value of that time, `compacted` and `why.json` are evaluated at T, and"
    " the `maxTimestamp` in `status.json` is not later."
)
@promise(
    "`segments` and `dump`, which show files as they are on the disk, are ENOENT; `follow` ends"
    " after the last record of that time."
)
@promise("What is appended later, with later timestamps, changes nothing.")
def test_noon(data: Path, noon: Path) -> None:
    check_noon(noon)
    later = build_batch([SimpleRecord(NOON + 9, b"k", b"7")], BatchFields(base_offset=7))
    with max((data / "t-0").glob("*.log")).open("ab") as file:
        file.write(later)
    check_noon(noon)


def check_noon(noon: Path) -> None:
    partition = noon / "t" / "0"
    assert (partition / "values").read_text().split() == ["0", "1", "2", "3"]
    assert (partition / "follow").read_text().split() == ["0", "1", "2", "3"]
    assert set(os.listdir(partition / "offset")) == {"first", "last", "0", "1", "2", "3"}
    assert os.readlink(partition / "offset" / "last") == "3"
    for name in (
        "offset/4",
        "offset/6",
        "key/late",
        f"time/{NOON + 1}",
        "range/0-4",
        "segments",
        "dump",
    ):
        assert errno_of(os.stat, partition / name) == errno.ENOENT, name
    assert not {"segments", "dump"} & set(os.listdir(partition))
    assert (partition / "key" / "k").read_text() == "3"
    assert (partition / "compacted" / "values").read_text().split() == ["2", "3"]
    why = json.loads((partition / "why.json").read_text())
    assert (why["at"], why["logEndOffset"], len(why["segments"])) == (NOON, 4, 4)
    status = json.loads((partition / "status.json").read_text())
    assert (status["logEndOffset"], status["maxTimestamp"]) == (4, NOON)
    assert (noon / "txn" / "0" / "values").read_text().split() == ["0"]
    status = json.loads((noon / "txn" / "0" / "status.json").read_text())
    assert (status["lastStableOffset"], status["logEndOffset"]) == (1, 2)
    assert json.loads((noon / ".kafkafs" / "status.json").read_text())["at"] == NOON


@promise(
    "Topics and partitions that the cluster's metadata knows to have been created later are ENOENT."
)
def test_topics_of_the_time(corpus: Callable[[str], Path], mount: Mounting) -> None:
    point = mount(corpus("groups43"), f"at={BEFORE_CHANGES}").point
    assert "reborn" not in os.listdir(point)
    assert errno_of(os.stat, point / "reborn") == errno.ENOENT
    assert sorted(os.listdir(point / "grown")) == ["0", "1", "config.properties"]
    assert errno_of(os.stat, point / "grown" / "2") == errno.ENOENT
