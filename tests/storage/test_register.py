"""Tests of registering topics in a node's metadata log: what is refused, and what is appended.

Those with brokers are in tests/broker/test_register.py, power cuts in
tests/crash/test_registering.py."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.clock import SystemClock
from kafkafs.storage.errors import ConfigError, LogDirError, TopicExists, UnknownTopic
from kafkafs.storage.format.files.names import METADATA_TOPIC
from kafkafs.storage.format.files.quorum_state import format_leader, parse_quorum_state
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.messages.control import quorum_record
from kafkafs.storage.format.messages.metadata import MetadataRecord, RecordType
from kafkafs.storage.format.primitives import random_uuid_text
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.metadata.bootstrap import NewRecord
from kafkafs.storage.metadata.image import MetadataImage
from kafkafs.storage.operations.register import Register, RegisteredPartition, register
from kafkafs.storage.operations.register_new import MetadataRecordRow
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import ReviveNote
from kafkafs.storage.operations.sole_node import find_sole_node
from kafkafs.storage.operations.topics import CreateTopic, create_topic
from kafkafs.storage.topics.registering import planned_term
from tests.conftest import Corpora, differences, fingerprint

LOG = f"{METADATA_TOPIC}-0/00000000000000000000.log"
STATE = f"{METADATA_TOPIC}-0/quorum-state"


@pytest.fixture
def node(corpora: Corpora, tmp_path: Path) -> Path:
    """A directory with nothing but a node's metadata log."""
    path, whole = tmp_path / "node", corpora.path("groups43")
    path.mkdir()
    shutil.copytree(whole / f"{METADATA_TOPIC}-0", path / f"{METADATA_TOPIC}-0")
    shutil.copy(whole / "meta.properties", path)
    return path


def make(path: Path, topic: str, partitions: int = 1, **options: Any) -> str:
    """Makes a topic that the cluster does not know."""
    with LogManager(str(path), unregistered=True) as engine:
        return engine.create_topic(topic, partitions, **options)


def run(path: Path, *topics: str) -> list[Any]:
    with LogManager(str(path)) as engine:
        return list(register(engine, Register(topics)))


def image(path: Path) -> MetadataImage:
    return Engine(str(path)).cluster_metadata().image_at()


def append(path: Path, *groups: list[NewRecord]) -> None:
    """Appends records to the metadata log, whatever they say."""
    term, _ = planned_term(Engine(str(path)), 0)
    term.append(WritableDirFd(str(path / f"{METADATA_TOPIC}-0")), groups, SystemClock())


def notes(rows: list[Any]) -> str:
    return " ".join(row.note for row in rows if isinstance(row, ReviveNote))


# -- what is refused -------------------------------------------------------------------------------


def quorum_state(**changes: object) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        found = json.loads((path / STATE).read_text())
        (path / STATE).write_text(json.dumps({**found, **changes}))

    return change


def properties(old: str, new: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        text = (path / "meta.properties").read_text()
        assert old in text
        (path / "meta.properties").write_text(text.replace(old, new))

    return change


def damaged(path: Path) -> None:
    data = bytearray((path / LOG).read_bytes())
    data[1000] ^= 1
    (path / LOG).write_bytes(data)


def records(*found: NewRecord) -> Callable[[Path], None]:
    return lambda path: append(path, list(found))


def feature(level: int) -> NewRecord:
    message = {"name": "metadata.version", "featureLevel": level}
    return NewRecord(RecordType.FEATURE_LEVEL, 0, message)


DIRECTORY = "_yKDSkBxPkp41kBBfh8fcA"
BEGIN = NewRecord(RecordType.BEGIN_TRANSACTION, 0, {})
GONE = NewRecord(RecordType.UNREGISTER_BROKER, 0, {"brokerId": 1, "brokerEpoch": 267})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (quorum_state(currentVoters=[{"voterId": 1}, {"voterId": 2}]), "quorum are 1, 2; node 1"),
        (quorum_state(leaderId=2, leaderEpoch=9), "node 2 has led the metadata quorum last"),
        (quorum_state(leaderEpoch=2**31 - 1), "no leader epoch after"),
        (quorum_state(data_version=7), "data_version is 7"),
        (lambda path: (path / STATE).unlink(), "the node has never run"),
        (properties("node.id=1", "node.id=5"), "node 5 is none: its log is only a copy"),
        (properties(DIRECTORY, "MkU3OEVBNTcwNTJENDM2Qg"), "none of the log directories"),
        (damaged, "the metadata log is damaged"),
        (lambda path: shutil.rmtree(path / f"{METADATA_TOPIC}-0"), "there is no __cluster_meta"),
        (records(BEGIN), "ends within a transaction"),
        (records(feature(31)), "metadata.version is 31, newer"),
        (records(feature(6)), "metadata.version is 6, older"),
        (records(GONE), "node 1 is only a controller"),
    ],
)
def test_a_node_that_cannot_decide_alone(
    node: Path, change: Callable[[Path], None], why: str
) -> None:
    make(node, "lost")
    change(node)
    before = fingerprint(node)
    for request in (Register(), Register(dry_run=True)):
        with pytest.raises(LogDirError, match=why):
            request.check(Engine(str(node)))
        with pytest.raises(LogDirError, match=why):
            list(register(Engine(str(node)), request))
    with pytest.raises(LogDirError, match=why):
        CreateTopic("new", register=True).check(Engine(str(node)))
    assert differences(before, fingerprint(node)) == []


def test_a_cluster_of_several_voters(corpora: Corpora) -> None:
    source = corpora.path("cluster43")
    with pytest.raises(LogDirError, match="cannot decide alone what its log holds"):
        find_sole_node(Engine(str(source / "1")))
    with pytest.raises(LogDirError, match="give the directories of one node"):
        find_sole_node(Engine([str(source / "1"), str(source / "3")]))


def test_a_directory_before_kraft(corpora: Corpora) -> None:
    with pytest.raises(LogDirError, match="there is no __cluster_metadata-0"):
        find_sole_node(Engine(str(corpora.path("kafka28"))))


@pytest.mark.parametrize("tail", [b"\0" * 100, b"torn"])
def test_a_torn_end(node: Path, tail: bytes) -> None:
    """Kafka truncates it, and so does the next term."""
    make(node, "lost")
    log = (node / LOG).read_bytes()
    (node / LOG).write_bytes(log + tail)
    run(node)
    assert (node / LOG).read_bytes().startswith(log)
    assert "lost" in image(node).topics
    assert image(node).problems == ()


def voters(path: Path, directory_id: str) -> None:
    """Makes the voters dynamic: one, with this directory."""
    term, _ = planned_term(Engine(str(path)), 0)
    endpoint = {"name": "CONTROLLER", "host": "localhost", "port": 1}
    voter = {
        "voterId": 1,
        "voterDirectoryId": directory_id,
        "endpoints": [endpoint],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }
    messages: dict[ControlType, dict[str, Any]] = {
        ControlType.KRAFT_VERSION: {"version": 0, "kRaftVersion": 1},
        ControlType.KRAFT_VOTERS: {"version": 0, "voters": [voter]},
    }
    found = [SimpleRecord(1, *quorum_record(*each)) for each in messages.items()]
    plan = BatchPlan(term.offset, 2, is_control=True)
    batch = bytes(encode(RecordColumns.from_records(found), plan).data)
    with (path / LOG).open("ab") as file:
        file.write(batch)
    state = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "data_version": 1}
    (path / STATE).write_text(json.dumps({**state, "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA"}))


def test_a_voter_in_the_log_is_one_directory(node: Path) -> None:
    make(node, "lost")
    voters(node, DIRECTORY)
    run(node)
    assert json.loads((node / STATE).read_text())["leaderEpoch"] == 3
    assert "lost" in image(node).topics
    voters(node, random_uuid_text())
    with pytest.raises(LogDirError, match=f"but this one is {DIRECTORY}"):
        find_sole_node(Engine(str(node)))


# -- the term --------------------------------------------------------------------------------------


def topics(count: int) -> list[list[NewRecord]]:
    return [
        [NewRecord(RecordType.TOPIC, 0, {"name": f"t{n}", "topicId": random_uuid_text()})]
        for n in range(count)
    ]


def test_a_term_has_an_epoch_of_its_own(node: Path) -> None:
    before = (node / LOG).read_bytes()
    for epoch in (3, 4):
        append(node, topics(1)[0])
        assert image(node).quorum.leader_epoch == epoch
        state = parse_quorum_state((node / STATE).read_bytes())
        assert (state.leader_id, state.leader_epoch, state.voters) == (1, epoch, (1,))
    assert (node / LOG).read_bytes().startswith(before)
    epochs = (node / f"{METADATA_TOPIC}-0/leader-epoch-checkpoint").read_text().split("\n")
    assert epochs[1:6] == ["4", "1 0", "2 263", "3 555", "4 557"]


def test_groups_share_batches(node: Path) -> None:
    groups = topics(30_000)
    append(node, *groups)
    found = image(node)
    assert set(found.topics) >= {group[0].message["name"] for group in groups}
    view = Engine(str(node)).log(METADATA_TOPIC, 0).view()
    assert view.end_offset == found.offset == 556 + len(groups)


def test_a_group_that_fits_into_no_batch(node: Path) -> None:
    before = fingerprint(node)
    configs = {"resourceType": 2, "resourceName": "t", "name": "n", "value": "v" * 1000}
    with pytest.raises(LogDirError, match="do not fit into a batch"):
        append(node, 9000 * [NewRecord(RecordType.CONFIG, 0, configs)])
    assert differences(before, fingerprint(node)) == []


@given(
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.integers(0, 9), unique=True),
    st.sampled_from([0, 1]),
)
def test_quorum_state_of_a_leader(
    leader: int, epoch: int, voter_ids: list[int], version: int
) -> None:
    old: dict[str, Any] = {"leaderId": -1, "leaderEpoch": 1, "votedId": 5, "data_version": version}
    if version == 0:
        old |= {"clusterId": "", "currentVoters": [{"voterId": each} for each in voter_ids]}
    new = format_leader(json.dumps(old).encode(), leader, epoch)
    state = parse_quorum_state(new)
    assert (state.leader_id, state.leader_epoch) == (leader, epoch)
    assert state.voters == (tuple(voter_ids) if version == 0 else ())
    found = json.loads(new)
    assert found["votedId"] == -1
    assert found.get("votedDirectoryId") == (None if version == 0 else "A" * 22)


# -- what is registered ----------------------------------------------------------------------------


def test_a_topic_with_its_configs(node: Path) -> None:
    topic_id = make(node, "lost", 2, configs={"retention.ms": "7"})
    planned = list(register(Engine(str(node)), Register(("lost",), dry_run=True)))
    shown = [row.as_json() for row in planned if isinstance(row, MetadataRecordRow)]
    assert [row["offset"] for row in shown] == [556, 557, 558, 559]
    assert shown[1]["data"]["directories"] == [DIRECTORY]
    rows = run(node, "lost")
    assert [row for row in planned if isinstance(row, RegisteredPartition)] == rows
    found = image(node).topics["lost"]
    assert (found.topic_id, found.configs) == (topic_id, {"retention.ms": "7"})
    assert {n: (p.replicas, p.isr, p.leader) for n, p in found.partitions.items()} == dict.fromkeys(
        (0, 1), ((1,), (1,), 1)
    )
    engine = Engine(str(node))
    assert engine.log_dirs.stored_configs("lost") == {}
    assert engine.topic_config("lost").changed["retention.ms"] == "7"
    before = fingerprint(node / f"{METADATA_TOPIC}-0")
    assert "have all of these topics" in notes(run(node, "lost"))
    assert differences(before, fingerprint(node / f"{METADATA_TOPIC}-0")) == []


def test_a_topic_without_configs_is_noted(node: Path) -> None:
    make(node, "lost")
    assert "its defaults apply" in notes(run(node))


def test_a_deleted_topic_only_if_it_is_named(node: Path) -> None:
    removed = "doomed"
    entries = Engine(str(node)).cluster_metadata().history().entries
    records = [each.record for each in entries if isinstance(each.record, MetadataRecord)]
    [topic_id, *_] = [
        each.data["topicId"]
        for each in records
        if each.number == RecordType.REMOVE_TOPIC and each.data is not None
    ]
    make(node, removed, topic_id=topic_id)
    rows = run(node)
    assert "topic doomed was deleted at" in notes(rows)
    assert removed not in image(node).topics
    run(node, removed)
    assert removed in image(node).topics


def test_a_partition_that_is_missing(node: Path) -> None:
    make(node, "lost", 3)
    shutil.rmtree(node / "lost-1")
    rows = run(node, "lost")
    (failed,) = [row for row in rows if isinstance(row, PartitionFailed)]
    assert failed.error.startswith("partition 1 of lost: in none of the directories")
    assert set(image(node).topics["lost"].partitions) == {0, 1, 2}


def test_more_partitions_of_a_topic(node: Path) -> None:
    known = image(node).topics["main"]
    count = len(known.partitions)
    make(node, "main", count + 2, topic_id=known.topic_id)
    rows = run(node)
    new = [row.partition for row in rows if isinstance(row, RegisteredPartition)]
    assert new == [count, count + 1]
    after = image(node).topics["main"]
    assert {n: after.partitions[n] for n in known.partitions} == known.partitions
    assert set(after.partitions) == set(range(count + 2))


def test_a_topic_without_an_id_gets_one(node: Path) -> None:
    make(node, "lost", 2)
    for number in (0, 1):
        (node / f"lost-{number}" / "partition.metadata").unlink()
    run(node, "lost")
    engine = Engine(str(node))
    ids = {engine.partition_dir("lost", number).topic_id() for number in (0, 1)}
    assert ids == {image(node).topics["lost"].topic_id}


def test_partitions_that_contradict_each_other(node: Path) -> None:
    make(node, "lost", 2)
    other = make(node, "other")
    shutil.copy(node / "other-0/partition.metadata", node / "lost-1/partition.metadata")
    with pytest.raises(LogDirError, match=rf"lost-1: its topic's id is {other}, that of .*lost-0"):
        Register(("lost",)).check(Engine(str(node)))
    with pytest.raises(UnknownTopic):
        Register(("nothing",)).check(Engine(str(node)))


def test_strays(node: Path) -> None:
    """One is registered if its topic is named; two of a partition are refused."""
    make(node, "lost")
    (node / "lost-0").rename(node / f"lost-0.{'0' * 32}-stray")
    assert "topic lost is stray, and left out" in notes(run(node))
    assert "lost" not in image(node).topics
    shutil.copytree(node / f"lost-0.{'0' * 32}-stray", node / f"lost-0.{'1' * 32}-stray")
    with pytest.raises(LogDirError, match="the same partition as"):
        Register(("lost",)).check(Engine(str(node)))
    shutil.rmtree(node / f"lost-0.{'1' * 32}-stray")
    run(node, "lost")
    assert (node / "lost-0").is_dir()
    assert "lost" in image(node).topics


def test_producer_ids_are_not_assigned_again(node: Path) -> None:
    before = image(node).next_producer_id
    make(node, "lost")
    with LogManager(str(node)) as engine:
        records = RecordColumns.from_records([SimpleRecord(engine.clock.now_ms(), b"k", b"v")])
        plan = BatchPlan(producer_id=before + 5000, producer_epoch=0, base_sequence=0)
        engine.writer("lost", 0).append_records(records, plan)
    run(node, "lost")
    after = image(node).next_producer_id
    assert after > before + 5000
    make(node, "more")
    run(node, "more")
    assert image(node).next_producer_id == after


def test_a_new_topic(node: Path) -> None:
    with LogManager(str(node)) as engine:
        request = CreateTopic("made", 2, {"retention.ms": "5"}, register=True)
        (row,) = create_topic(engine, request)
        found = engine.metadata().topics["made"]
        assert row.as_json()["registered"] is True
        assert (found.topic_id, len(found.partitions)) == (row.as_json()["topicId"], 2)
        assert engine.log_dirs.stored_configs("made") == {}
        with pytest.raises(TopicExists):
            list(create_topic(engine, CreateTopic("main", register=True)))
    tiered = CreateTopic("tiered", 1, {"remote.storage.enable": "true"}, register=True)
    with pytest.raises(ConfigError, match=r"remote\.storage\.enable"):
        tiered.check(Engine(str(node)))


def test_a_new_topic_that_the_log_cannot_take(node: Path) -> None:
    """Nothing of it remains."""
    with LogManager(str(node)) as engine:
        request = CreateTopic("made", register=True)
        rows = create_topic(engine, request)
        (node / STATE).unlink()
        with pytest.raises(LogDirError):
            list(rows)
        assert "made" not in engine.topics()
    assert not list(node.glob("made-0"))
