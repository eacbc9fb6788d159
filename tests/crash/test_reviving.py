"""`kafkafs revive` through power cuts and failing calls: the new directory is complete, or the same
request starts again. The sources stay as they are."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kafkafs.storage.errors import StorageError
from kafkafs.storage.format.files.checkpoints import parse_clean_shutdown
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from kafkafs.storage.operations.transactions import Transactions, list_transactions
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests.conftest import differences, fingerprint
from tests.crash.checks import left_by
from tests.crash.moments import moments
from tests.faults import FailingCalls, RecordingCalls, crash_states
from tests.reading import Plain, read

TOPICS = {"orders": 2, "__consumer_offsets": 1}
RECORDS = 7
#: Between the records.
TIME_MS = 1003
#: What the new node has that the sources have not, or otherwise, and what differs with each run.
OWN = ("meta.properties", "bootstrap.checkpoint")

Logs = dict[tuple[str, int], list[Plain]]


@pytest.fixture
def source(memory_path: Path) -> Path:
    """A directory with a few small segments."""
    path = memory_path / "source"
    with LogManager(str(path)) as engine:
        for topic, count in TOPICS.items():
            engine.create_topic(topic, count, {"internal.segment.bytes": "150"})
            for number in range(count):
                for value in range(RECORDS):
                    record = SimpleRecord(1000 + value, b"k", str(value).encode())
                    engine.writer(topic, number).append_records(
                        RecordColumns.from_records([record])
                    )
        producer = TransactionalProducer(engine)
        producer.begin()
        producer.append("orders", 0, RecordColumns.from_records([SimpleRecord(1000, b"open")]))
    return path


def run(source: Path, new: Path) -> None:
    """Revives as the name says."""
    way = new.name
    request = Revive(str(new), link=way == "linked", abort_open=way == "aborted")
    list(revive(Engine(str(source), at_ms=TIME_MS if way == "cut" else None), request))


def contents(path: Path, at_ms: int | None = None) -> Logs:
    engine = Engine(str(path), at_ms=at_ms)
    return {
        (topic, number): read(engine.log(topic, number).view())
        for topic, numbers in engine.topics().items()
        for number in numbers
    }


def is_complete(new: Path, source: Path) -> bool:
    """Returns whether Kafka could be started, and checks that it then finds everything, and no open
    transaction if they were aborted."""
    if not (new / "server.properties").exists():
        return False
    assert contents(new / "data") == contents(source, TIME_MS if new.name == "cut" else None)
    assert all((new / "data" / name).stat().st_size for name in OWN)
    epoch = parse_clean_shutdown((new / "data" / ".kafka_cleanshutdown").read_bytes())
    assert epoch == -2
    engine = Engine(str(new / "data"))
    is_open = any(True for _ in list_transactions(engine, Transactions()))
    assert is_open == (new.name in ("new", "linked"))
    return True


@pytest.mark.parametrize("name", ["new", "aborted", "cut"])
def test_power_cuts(source: Path, memory_path: Path, name: str) -> None:
    root = memory_path / "root"
    root.mkdir()
    before = fingerprint(source)
    recording = RecordingCalls(root)
    with replaced(recording):
        run(source, root / name)
    shutil.rmtree(root)
    complete = []
    for state in crash_states(recording, prefixes=moments(len(recording.operations), 97)):
        with left_by(state, root):
            complete.append(is_complete(root / name, source))
            if not complete[-1]:
                run(source, root / name)
                assert is_complete(root / name, source)
    assert len(set(complete)) > 1 or not complete[-1]
    assert differences(before, fingerprint(source)) == []


def fails(source: Path, new: Path) -> bool:
    """Returns whether the request fails, for want of space."""
    try:
        run(source, new)
    except (OSError, StorageError) as error:
        return "No space left on device" in str(error)
    return False


@pytest.mark.parametrize("name", ["new", "linked", "aborted", "cut"])
def test_every_call_fails_once(source: Path, memory_path: Path, name: str) -> None:
    """The error is passed on; then the same request succeeds."""
    before = contents(source)
    counting = FailingCalls(-1, errno.ENOSPC)
    with replaced(counting):
        run(source, memory_path / name)
    for at in moments(len(counting.made) - 1, 41):
        shutil.rmtree(memory_path / name)
        failing = FailingCalls(at, errno.ENOSPC)
        with replaced(failing):
            assert fails(source, memory_path / name) or not failing.failed
        if not is_complete(memory_path / name, source):
            run(source, memory_path / name)
        assert is_complete(memory_path / name, source)
    assert contents(source) == before
