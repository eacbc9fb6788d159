"""`revive --in-place` and `topic create --register` through power cuts and failing calls: the
metadata log is the old or the new one, both as Kafka takes them, and no record is lost."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.errors import LogDirOffline, StorageError
from kafkafs.storage.format.files.quorum_state import parse_quorum_state
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import replaced
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.metadata.image import MetadataImage
from kafkafs.storage.operations.register import Register, register
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.topics import CreateTopic, create_topic
from kafkafs.storage.topics.registering import planned_term
from tests.conftest import Corpora
from tests.crash.checks import left_by
from tests.crash.moments import moments
from tests.faults import FailingCalls, RecordingCalls, crash_states
from tests.reading import read

VALUES = [b"0", b"1", b"2"]
KEPT = ("__cluster_metadata-0", "meta.properties")


@pytest.fixture
def source(corpora: Corpora, memory_path: Path) -> Path:
    """A node's directory with its metadata log, and a topic that the log does not have."""
    path, whole = memory_path / "source", corpora.path("groups43")
    path.mkdir()
    for name in KEPT:
        copy = shutil.copytree if (whole / name).is_dir() else shutil.copy
        copy(whole / name, path / name)
    with LogManager(str(path), unregistered=True) as engine:
        engine.create_topic("lost", 2)
        for value in VALUES:
            record = SimpleRecord(1000, b"k", value)
            engine.writer("lost", 0).append_records(RecordColumns.from_records([record]))
    return path


def in_place(path: Path) -> None:
    with LogManager(str(path)) as engine:
        for row in register(engine, Register(("lost",))):
            if isinstance(row, PartitionFailed) and row.cause is not None:
                raise row.cause


def stray(path: Path) -> None:
    """Does the same for a topic that a broker has made a stray."""
    for number in (0, 1):
        name = path / f"lost-{number}"
        if name.exists():
            name.rename(path / f"lost-{number}.{number:032x}-stray")
    in_place(path)


def create(path: Path) -> None:
    with LogManager(str(path)) as engine:
        request = CreateTopic("made", 2, {"retention.ms": "5"}, register=True)
        list(create_topic(engine, request))


def metadata(path: Path) -> MetadataImage:
    """Returns what Kafka finds after its recovery."""
    engine = Engine(str(path))
    _, image = planned_term(engine, engine.clock.now_ms())
    assert not image.has_open_transaction
    return image


def is_done(path: Path, topic: str) -> bool:
    """Returns whether the cluster knows the topic, and checks that what it knows is there, and that
    the node's next term will have an epoch of its own."""
    image = metadata(path)
    state = parse_quorum_state((path / "__cluster_metadata-0/quorum-state").read_bytes())
    assert (state.leader_id, state.voters) == (1, (1,))
    assert state.leader_epoch >= image.quorum.leader_epoch
    strays = Engine(str(path)).log_dirs.strays()
    if topic not in image.topics:
        return False
    engine = Engine(str(path))
    assert not strays
    assert set(image.topics[topic].partitions) == {0, 1}
    numbers = engine.topics().get(topic, [])
    # An fsync that fails is the end, also of the partitions of a new topic. Kafka makes them.
    assert numbers == [0, 1] or topic == "made"
    for number in numbers:
        assert image.topics[topic].topic_id == engine.partition_dir(topic, number).topic_id()
    configs = {"retention.ms": "5"} if topic == "made" else {}
    assert image.topics[topic].configs == configs
    return True


def has_records(path: Path) -> bool:
    """Returns whether the records are there, under the partition's name or as a stray."""
    engine = Engine(str(path))
    names = [name for name, number in engine.log_dirs.strays() if not number] or ["lost"]
    return [each.value for each in read(engine.log(names[0], 0).view())] == VALUES


WAYS = [(in_place, "lost", 7), (stray, "lost", 11), (create, "made", 17)]


@pytest.mark.parametrize(("run", "topic", "every"), WAYS)
def test_power_cuts(
    source: Path, memory_path: Path, run: Callable[[Path], None], topic: str, every: int
) -> None:
    root = memory_path / "root"
    shutil.copytree(source, root)
    if run is stray:
        for number in (0, 1):
            (root / f"lost-{number}").rename(root / f"lost-{number}.{number:032x}-stray")
    before = metadata(root)
    recording = RecordingCalls(root)
    with replaced(recording):
        (in_place if run is stray else run)(root)
    assert is_done(root, topic)
    shutil.rmtree(root)
    done = set()
    for state in crash_states(recording, prefixes=moments(len(recording.operations), every)):
        with left_by(state, root):
            there = is_done(root, topic)
            done.add(there)
            assert has_records(root)
            after = metadata(root)
            assert {name: after.topics[name] for name in before.topics} == before.topics
            if not there:
                in_place_again(root, topic)
    assert done == {True, False}


def in_place_again(path: Path, topic: str) -> None:
    """Repeats what was interrupted. A topic that was being created is removed, as far as it is
    there, and created; it has no records."""
    if topic == "lost":
        in_place(path)
    else:
        for number in (0, 1):
            shutil.rmtree(path / f"made-{number}", ignore_errors=True)
        create(path)
    assert is_done(path, topic)
    assert has_records(path)


@pytest.mark.parametrize(("run", "topic", "every"), WAYS)
def test_every_call_fails_once(
    source: Path, memory_path: Path, run: Callable[[Path], None], topic: str, every: int
) -> None:
    """A full disk: the cluster knows the topic, or the request can be repeated."""
    root = memory_path / "root"
    shutil.copytree(source, root)
    counting = FailingCalls(-1, errno.ENOSPC)
    with replaced(counting):
        run(root)
    for at in moments(len(counting.made) - 1, every):
        shutil.rmtree(root)
        shutil.copytree(source, root)
        failing = FailingCalls(at, errno.ENOSPC)
        with replaced(failing):
            error = error_of(run, root)
        assert has_records(root)
        if not is_done(root, topic):
            assert "No space left on device" in str(error)
            # After a failed fsync, nothing is changed any more.
            if run is create and not isinstance(error, LogDirOffline):
                assert "made" not in Engine(str(root)).topics()
            in_place_again(root, topic)


def error_of(run: Callable[[Path], None], path: Path) -> Exception | None:
    try:
        run(path)
    except (OSError, StorageError) as error:
        return error
    return None
