"""Tests of `revive` without a broker: what is refused, what is reported, and what is written. Those
with a broker are in tests/broker/test_revive.py."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.errors import ConfigError, LogDirError, StorageError, UnknownTopic
from kafkafs.storage.format.files.names import METADATA_TOPIC
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.messages.metadata import (
    MetadataRecord,
    RecordType,
    ResourceType,
    format_metadata_record,
    parse_metadata_record,
)
from kafkafs.storage.format.primitives import random_uuid_text, uuid_text
from kafkafs.storage.format.records.columns import Damage
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.ingest.commit_file import (
    COMMIT_FILE,
    CommitRecord,
    CommitRecords,
    IngestWrite,
    format_commit_records,
)
from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.log.read.as_of import first_later
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.metadata.bootstrap import NewRecord, format_bootstrap
from kafkafs.storage.metadata.cluster_metadata import ClusterMetadata
from kafkafs.storage.metadata.image import PartitionRegistration
from kafkafs.storage.metadata.settings import SettingsReplay
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, OffsetProblem, list_groups
from kafkafs.storage.operations.request import PartitionFailed, ProgressListener
from kafkafs.storage.operations.revive.releases import RELEASES, features_for, release_for
from kafkafs.storage.operations.revive.request import (
    Revive,
    RevivedNode,
    RevivedPartition,
    RevivedTransaction,
    ReviveNote,
)
from kafkafs.storage.operations.revive.revive import revive
from kafkafs.storage.operations.revive.topic_configs import configs_for
from kafkafs.storage.transactions.decisions import (
    TRANSACTIONS_FILE,
    Decision,
    format_decisions,
)
from kafkafs.storage.transactions.producer import TransactionalProducer
from tests import answers
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.conftest import Corpora, differences, fingerprint
from tests.logs import write_log_dir, write_partition
from tests.reading import read

Corpus = Callable[[str], Path]


@pytest.mark.parametrize("corpus", ["groups43", "kafka39"])
def test_metadata_records_are_encoded_as_kafka_encodes_them(corpora: Corpora, corpus: str) -> None:
    log = Engine(str(corpora.path(corpus))).log(METADATA_TOPIC, 0)
    kinds = set()
    for columns in log.view().scan():
        assert not isinstance(columns, Damage)
        for row in range(len(columns)):
            value = columns.value(row)
            assert value is not None
            record = parse_metadata_record(value)
            assert record.data is not None
            assert format_metadata_record(record.number, value[2], record.data) == value
            kinds.add(record.number)
    assert len(kinds) > 8


def test_a_message_that_does_not_fit_its_schema() -> None:
    for version, message in (
        (0, {"name": "a"}),
        (0, {"name": "a", "featureLevel": 1 << 15}),
        (0, {"name": None, "featureLevel": 1}),
        (9, {"name": "a", "featureLevel": 1}),
    ):
        with pytest.raises(ValueError, match="FeatureLevelRecord"):
            format_metadata_record(RecordType.FEATURE_LEVEL, version, message)


def test_the_bootstrap_file_is_kafkas_own(corpora: Corpora) -> None:
    """But for the times."""
    path = corpora.path("groups43") / "bootstrap.checkpoint"
    records = [
        NewRecord(RecordType.FEATURE_LEVEL, 0, {"name": name, "featureLevel": level})
        for name, level in RELEASES[-1].features.items()
    ]
    expected = bytearray(path.read_bytes())
    found = bytearray(format_bootstrap(records, 0))
    assert len(found) == len(expected)
    at = 0
    while at < len(found):
        # checksum and timestamps
        for data in (found, expected):
            data[at + 17 : at + 21] = bytes(4)
            data[at + 27 : at + 43] = bytes(16)
        at += 12 + int.from_bytes(found[at + 8 : at + 12], "big")
    assert found == expected


# -- releases and configs --------------------------------------------------------------------------


def test_the_release_is_not_older_than_the_sources() -> None:
    old, new = RELEASES
    assert release_for({"metadata.version": old.level}, None, "x") is old
    assert release_for({"metadata.version": old.level + 1}, None, "x") is new
    assert release_for({"metadata.version": old.level}, "4.3.1", "x") is new
    assert release_for({}, None, "x") is new
    assert release_for({}, "3.9.2", "x") is old
    with pytest.raises(LogDirError, match=r"which Kafka 3\.9 cannot read; choose .* 4\.3"):
        release_for({"metadata.version": new.level}, "3.9", "x")
    with pytest.raises(LogDirError, match=r"newer than that of Kafka 4\.3"):
        release_for({"metadata.version": new.level + 1}, None, "x")
    with pytest.raises(ConfigError, match=r"must be 3\.9 or 4\.3"):
        release_for({}, "4.30", "x")


def test_features_stay_as_they_were() -> None:
    old, new = RELEASES
    without = {**new.features, "share.version": 0, "other.version": 1}
    assert "share.version" not in features_for(without, new)
    assert "other.version" not in features_for(without, new)
    assert features_for(dict(old.features), new) == new.features
    assert features_for({}, old) == old.features


def test_configs_that_the_release_refuses() -> None:
    old, new = RELEASES
    notes: list[str] = []
    configs = {"segment.bytes": "4096", "message.format.version": "2.8", "segment.ms": "0"}
    assert configs_for("t", configs, new, notes) == {"internal.segment.bytes": "4096"}
    assert [note.split(":")[0] for note in notes] == [
        "the config message.format.version of t is left out",
        "a config of t is left out",
    ]
    assert configs_for("t", configs, old, notes) == configs
    own = {"internal.segment.bytes": "4096"}
    assert configs_for("t", own, old, notes) == {"segment.bytes": "4096"}
    assert configs_for("__consumer_offsets", {}, new, notes)["cleanup.policy"] == "compact"
    remote = {"remote.storage.enable": "true", "local.retention.ms": "5", "segment.ms": "7"}
    assert configs_for("t", remote, new, notes) == {"segment.ms": "7"}
    assert "remote storage" in notes[-1]


def test_settings_that_were_removed_do_not_count() -> None:
    """Of a topic that was deleted and created again, those of its first life do not."""
    replay = SettingsReplay()
    config = {"resourceType": 2, "resourceName": "t", "name": "retention.ms", "value": "1"}
    other = {**config, "name": "segment.ms"}
    user = {"entity": [{"entityType": "user", "entityName": None}], "key": "k", "value": 1.0}
    kept = {**user, "key": "other", "remove": False}
    acl = {
        "id": random_uuid_text(),
        "resourceType": 2,
        "resourceName": "t",
        "patternType": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permissionType": 3,
    }
    scram = {"name": "a", "mechanism": 1, "salt": b"s", "storedKey": b"k", "serverKey": b"v"}
    records: list[tuple[RecordType, dict[str, Any]]] = [
        (RecordType.TOPIC, {"name": "t", "topicId": "one"}),
        (RecordType.CONFIG, config),
        (RecordType.CONFIG, other),
        (RecordType.CONFIG, {**other, "value": None}),
        (RecordType.CLIENT_QUOTA, {**user, "remove": False}),
        (RecordType.CLIENT_QUOTA, kept),
        (RecordType.CLIENT_QUOTA, {**user, "remove": True}),
        (RecordType.ACCESS_CONTROL_ENTRY, acl),
        (RecordType.REMOVE_ACCESS_CONTROL_ENTRY, {"id": acl["id"]}),
        (RecordType.USER_SCRAM_CREDENTIAL, {**scram, "iterations": 4096}),
        (RecordType.USER_SCRAM_CREDENTIAL, {**scram, "iterations": 8192}),
        (RecordType.BEGIN_TRANSACTION, {}),
        (RecordType.CONFIG, {**other, "value": "5"}),
        (RecordType.ABORT_TRANSACTION, {}),
    ]
    for number, message in records:
        replay.apply(MetadataRecord(number, message))
    settings = replay.settings()
    assert settings.of(RecordType.CONFIG) == [config]
    assert settings.of(RecordType.CLIENT_QUOTA) == [kept]
    assert settings.of(RecordType.ACCESS_CONTROL_ENTRY) == []
    assert settings.of(RecordType.USER_SCRAM_CREDENTIAL) == [{**scram, "iterations": 8192}]
    replay.apply(MetadataRecord(RecordType.REMOVE_TOPIC, {"topicId": "one"}))
    replay.apply(MetadataRecord(RecordType.TOPIC, {"name": "t", "topicId": "two"}))
    assert replay.settings().of(RecordType.CONFIG) == []


# -- requests --------------------------------------------------------------------------------------


def run(*sources: Path, new: Path, **options: Any) -> list[Any]:
    return list(revive(Engine(list(map(str, sources))), Revive(str(new), **options)))


def rows_of_partitions(rows: list[Any]) -> list[RevivedPartition]:
    return [row for row in rows if isinstance(row, RevivedPartition)]


def partitions(rows: list[Any], topic: str) -> list[RevivedPartition]:
    return [row for row in rows if isinstance(row, RevivedPartition) and row.topic == topic]


def test_nothing_but_the_new_directory_changes(corpora: Corpora, tmp_path: Path) -> None:
    source = corpora.path("groups43")
    before = fingerprint(source)
    planned = run(source, new=tmp_path / "new", dry_run=True)
    assert list(tmp_path.iterdir()) == []
    done = run(source, new=tmp_path / "new")
    assert done == planned
    assert differences(before, fingerprint(source)) == []
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "data",
        "server.properties",
    ]
    node = done[-1]
    assert isinstance(node, RevivedNode)
    assert (node.node_id, node.kafka_version, node.topics, node.partitions) == (1, "4.3", 11, 23)
    properties = (tmp_path / "new" / "server.properties").read_text()
    assert "\noffsets.topic.num.partitions=3\n" in properties
    assert f"\nlog.dirs={tmp_path}/new/data\n" in properties


def test_nobody_is_let_in_whom_the_sources_keep_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    with LogManager(str(source)) as manager:
        manager.create_topic("t", 1)
    (source / "t-0").chmod(0o750)
    run(source, new=tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new" / "data").stat().st_mode) & 0o027 == 0


def test_only_named_topics_and_the_internal_ones(corpora: Corpora, tmp_path: Path) -> None:
    rows = run(corpora.path("groups43"), new=tmp_path / "new", selection=Selection.of("main/1"))
    found = [(row.topic, row.partition) for row in rows if isinstance(row, RevivedPartition)]
    assert [key for key in found if not key[0].startswith("__")] == [
        ("main", 0),
        ("main", 1),
        ("main", 2),
    ]
    assert {topic for topic, _ in found if topic.startswith("__")} == {
        "__consumer_offsets",
        "__share_group_state",
        "__transaction_state",
    }
    assert [row.partition for row in partitions(rows, "main") if row.sources] == [1]


def test_what_is_refused_leaves_nothing(corpora: Corpora, tmp_path: Path) -> None:
    source = corpora.path("groups43")
    new = tmp_path / "new"
    cases: list[tuple[dict[str, Any], type[StorageError], str]] = [
        ({"selection": Selection.of("nosuch")}, UnknownTopic, "no topic nosuch"),
        ({"kafka_version": "3.9"}, LogDirError, "cannot read"),
        ({"kafka_version": "2.8"}, ConfigError, "kafka-version"),
        ({"new": source / "inside"}, LogDirError, "would be in the log directory"),
        ({"new": source}, LogDirError, "would be in the log directory"),
    ]
    for options, error, text in cases:
        with pytest.raises(error, match=text):
            run(source, **{"new": new, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_empty(corpora: Corpora, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "letter").write_text("mine")
    with pytest.raises(LogDirError, match="already exists and is not empty"):
        run(corpora.path("groups43"), new=tmp_path / "new")
    assert (tmp_path / "new" / "letter").read_text() == "mine"


class Interrupting(ProgressListener):
    """Ends the operation before the tenth partition."""

    def __init__(self) -> None:
        self.count = 0
        self.reported: list[tuple[int, int]] = []

    def check(self) -> None:
        self.count += 1
        if self.count == 10:
            raise KeyboardInterrupt

    def report(self, what: str, done: int, total: int) -> None:
        self.reported.append((done, total))


def test_the_same_request_starts_again_and_no_other(corpora: Corpora, tmp_path: Path) -> None:
    source, new = corpora.path("groups43"), tmp_path / "new"
    listener = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        list(revive(Engine(str(source)), Revive(str(new)), listener))
    assert listener.reported == sorted(listener.reported)
    assert listener.reported[-1][1] == 307586
    assert (new / "data" / "aged-0").exists()
    assert not (new / "server.properties").exists()
    with pytest.raises(LogDirError, match="another command left it unfinished"):
        run(source, new=new, node_id=5)
    assert isinstance(run(source, new=new)[-1], RevivedNode)
    with pytest.raises(LogDirError, match="already exists"):
        run(source, new=new)


def test_directories_in_use(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1)
        with pytest.raises(LogDirError, match="has it open for writing; stop that process first"):
            run(tmp_path / "data", new=tmp_path / "new")


def test_kafkafs_own_directory(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2, {"retention.ms": "77"})
        topic_id = engine.topic_id("t")
    note, first, _, node = run(tmp_path / "data", new=tmp_path / "new")
    assert isinstance(note, ReviveNote)
    assert "no log of the cluster's metadata" in note.note
    assert (first.topic, first.topic_id) == ("t", topic_id)
    data = (tmp_path / "new" / "data" / "bootstrap.checkpoint").read_bytes()
    assert b"retention.ms\x0377" in data
    assert node.kafka_version == "4.3"


def test_a_partition_that_is_missing(corpora: Corpora, tmp_path: Path) -> None:
    shutil.copytree(corpora.path("groups43"), tmp_path / "source")
    shutil.rmtree(tmp_path / "source" / "main-1")
    rows = run(tmp_path / "source", new=tmp_path / "new")
    [failed] = [row for row in rows if isinstance(row, PartitionFailed)]
    assert failed.error == (
        "partition 1 of main: in none of the directories, and starts empty; replicas were on"
        " broker 1"
    )
    [row] = [
        r for r in rows if isinstance(r, RevivedPartition) and (r.topic, r.partition) == ("main", 1)
    ]
    assert (row.sources, row.end_offset) == ((), 0)


def test_open_transactions_are_listed_and_aborted(corpora: Corpora, tmp_path: Path) -> None:
    source = corpora.path("groups43")
    listed = [row for row in run(source, new=tmp_path / "a", dry_run=True) if is_open(row)]
    found = [(row.topic, row.partition, row.transactional_id, row.outcome) for row in listed]
    assert found == [
        ("__consumer_offsets", 1, "tx-open-amber", "open until its timeout"),
        ("main", 1, "tx-open-amber", "open until its timeout"),
    ]
    rows = run(source, new=tmp_path / "b", abort_open=True)
    assert [row.outcome for row in rows if is_open(row)] == ["aborted"] * 2
    assert [row.end_offset for row in partitions(rows, "main")] == [270, 298, 322]
    again = run(tmp_path / "b" / "data", new=tmp_path / "c", dry_run=True)
    assert not any(map(is_open, again))


@pytest.mark.parametrize("is_decided", [True, False])
def test_transactions_of_kafkafs_that_have_no_coordinator(tmp_path: Path, is_decided: bool) -> None:
    """One that was decided is committed in all its partitions; another one hangs."""
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 2)
        producer = TransactionalProducer(engine)
        producer.begin()
        for number in range(2):
            producer.append("t", number, RecordColumns.from_values([b"v"]))
        decision = Decision(producer.producer_id, producer.producer_epoch, (("t", 0), ("t", 1)))
    if is_decided:
        (tmp_path / "data" / TRANSACTIONS_FILE).write_bytes(format_decisions([decision]))
    rows = run(tmp_path / "data", new=tmp_path / "new")
    outcome = "committed" if is_decided else "hanging: open until it is aborted"
    assert [row.outcome for row in rows if is_open(row)] == [outcome] * 2
    new = Engine(str(tmp_path / "new" / "data"))
    assert [len(read(new.log("t", number).view())) for number in range(2)] == [is_decided] * 2
    image = cluster_of(tmp_path / "new", tmp_path / "looked-at").image_at()
    assert image.next_producer_id == -1
    rows = run(tmp_path / "data", new=tmp_path / "aborted", abort_open=True)
    outcome = "committed" if is_decided else "aborted"
    assert [row.outcome for row in rows if is_open(row)] == [outcome] * 2


def test_a_write_that_is_committed_but_not_complete(tmp_path: Path) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1)
    record = CommitRecord(IngestWrite("w"), ())
    (tmp_path / "data" / COMMIT_FILE).write_bytes(
        format_commit_records(CommitRecords(pending=[record]))
    )
    with pytest.raises(LogDirError, match="`kafkafs recover` does"):
        run(tmp_path / "data", new=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def is_open(row: object) -> bool:
    return isinstance(row, RevivedTransaction)


def test_a_partition_with_an_impossible_number(tmp_path: Path) -> None:
    write_log_dir(tmp_path / "data", {})
    batch = build_batch([SimpleRecord(5)], BatchFields())
    write_partition(tmp_path / "data" / "t-0", [batch])
    write_partition(tmp_path / "data" / "t-2147483647", [batch])
    with pytest.raises(LogDirError, match="t has 2 partitions, one of them with number 2147483647"):
        run(tmp_path / "data", new=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_links_share_sealed_segments_only(corpora: Corpora, tmp_path: Path) -> None:
    shutil.copytree(corpora.path("groups43"), tmp_path / "source")
    run(tmp_path / "source", new=tmp_path / "new", link=True)
    logs = sorted((tmp_path / "source" / "main-0").glob("*.log"))
    linked = [
        log.stat().st_ino == (tmp_path / "new" / "data" / "main-0" / log.name).stat().st_ino
        for log in logs
    ]
    assert linked == [True] * (len(logs) - 1) + [False]
    crashed = tmp_path / "crashed"
    shutil.copytree(corpora.path("groups43"), crashed)
    (crashed / ".kafka_cleanshutdown").unlink()
    run(crashed, new=tmp_path / "recovered", link=True)
    assert all(path.stat().st_nlink == 1 for path in crashed.rglob("*.log"))


def test_holes_stay_holes(corpora: Corpora, tmp_path: Path) -> None:
    run(corpora.path("kafka43-crash"), new=tmp_path / "new")
    sizes = [path.stat().st_blocks * 512 for path in (tmp_path / "new").rglob("*index")]
    assert sum(sizes) < 1 << 20
    assert DirFd(str(tmp_path / "new" / "data")).stat(".kafka_cleanshutdown").st_size


# -- the cluster's metadata ------------------------------------------------------------------------


def write_cluster(path: Path, records: list[NewRecord], *partitions: tuple[str, bytes]) -> Path:
    """Writes the directory of broker 1 with these records as its metadata log, and partitions, by
    name and topic id, with a record each."""
    write_log_dir(path, {}, node_id=1, cluster_id="c")
    for name, topic_id in partitions:
        batch = build_batch([SimpleRecord(5)], BatchFields())
        write_partition(path / name, [batch], topic_id=topic_id)
    metadata = path / f"{METADATA_TOPIC}-0"
    metadata.mkdir()
    (metadata / f"{0:020}.log").write_bytes(format_bootstrap(records, 0))
    return path


def cluster_of(new: Path, scratch: Path) -> ClusterMetadata:
    """Returns the metadata that the new node's controller will have at first."""
    metadata = scratch / f"{METADATA_TOPIC}-0"
    metadata.mkdir(parents=True)
    shutil.copy(new / "data" / "bootstrap.checkpoint", metadata / f"{0:020}.log")
    shutil.copy(new / "data" / "meta.properties", scratch)
    return Engine(str(scratch)).cluster_metadata()


def topic_record(name: str, topic_id: bytes) -> NewRecord:
    return NewRecord(RecordType.TOPIC, 0, {"name": name, "topicId": uuid_text(topic_id)})


def partition_record(number: int, topic_id: bytes) -> NewRecord:
    message = {
        "partitionId": number,
        "topicId": uuid_text(topic_id),
        "replicas": [1, 2],
        "isr": [2],
        "removingReplicas": [],
        "addingReplicas": [],
        "leader": 2,
        "leaderEpoch": 40,
        "partitionEpoch": 7,
        "directories": [],
    }
    return NewRecord(RecordType.PARTITION, 1, message)


def config_record(kind: ResourceType, resource: str, name: str, value: str) -> NewRecord:
    message = {"resourceType": kind, "resourceName": resource, "name": name, "value": value}
    return NewRecord(RecordType.CONFIG, 0, message)


ONE, OTHER = b"\x01" * 16, b"\x02" * 16


def test_the_cluster_as_one_node(tmp_path: Path) -> None:
    """Configs of the broker move with its id, but not those of its machine; all partitions have the
    new node as their only replica, in a later epoch."""
    broker = ResourceType.BROKER
    token = {
        "owner": "User:a",
        "requester": "User:b",
        "renewers": ["User:c"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expirationTimestamp": 2,
        "tokenId": "x",
    }
    records = [
        NewRecord(RecordType.FEATURE_LEVEL, 0, {"name": "metadata.version", "featureLevel": 21}),
        topic_record("t", ONE),
        partition_record(0, ONE),
        partition_record(1, ONE),
        config_record(broker, "1", "log.cleaner.threads", "3"),
        config_record(broker, "1", "listener.name.x.ssl.keystore.location", "/keys"),
        config_record(broker, "2", "log.cleaner.threads", "5"),
        config_record(broker, "", "message.max.bytes", "7000000"),
        NewRecord(RecordType.DELEGATION_TOKEN, 0, token),
        NewRecord(
            RecordType.PRODUCER_IDS, 0, {"brokerId": 1, "brokerEpoch": 9, "nextProducerId": 5000}
        ),
    ]
    source = write_cluster(tmp_path / "old", records, ("t-0", ONE), ("t-1", ONE))
    rows = run(source, new=tmp_path / "new", node_id=7)
    assert [row.note for row in rows if isinstance(row, ReviveNote)] == [
        "the broker config listener.name.x.ssl.keystore.location is left out: it is for another"
        " machine"
    ]
    assert rows[-1].kafka_version == "3.9"
    metadata = cluster_of(tmp_path / "new", tmp_path / "looked-at")
    image = metadata.image_at()
    assert image.configs[broker] == {
        "7": {"log.cleaner.threads": "3"},
        "": {"message.max.bytes": "7000000"},
    }
    [directory_id] = image.topics["t"].partitions[0].directories
    assert (
        f"directory.id={directory_id}"
        in (tmp_path / "new" / "data" / "meta.properties").read_text()
    )
    for partition in image.topics["t"].partitions.values():
        assert partition == PartitionRegistration(
            (7,), (7,), -1, 41, 8, directories=(directory_id,)
        )
    assert image.next_producer_id == 5000
    assert metadata.settings().of(RecordType.DELEGATION_TOKEN) == [token]


def test_metadata_that_do_not_reach_back(corpora: Corpora, tmp_path: Path) -> None:
    """The present topics with their present configs have the records of then."""
    engine = Engine(str(corpora.path("groups43")), at_ms=1_000_000_000_000)
    rows = list(revive(engine, Revive(str(tmp_path / "new"))))
    assert [row.note for row in rows if isinstance(row, ReviveNote)] == [
        "the cluster's metadata do not reach back to then: the present ones are used"
    ]
    image = cluster_of(tmp_path / "new", tmp_path / "looked-at").image_at()
    now = Engine(str(corpora.path("groups43"))).metadata()
    assert image.topics.keys() == now.topics.keys()
    assert image.topics["compacted"].configs == now.topics["compacted"].configs
    assert image.acls == now.acls
    assert image.quotas == now.quotas
    assert image.scram_users == now.scram_users


def test_directories_that_the_metadata_do_not_have(tmp_path: Path) -> None:
    """They are left out, as a broker would: topics unless they are named, and deleted topics of the
    same name. A torn partition.metadata counts as none."""
    records = [
        NewRecord(RecordType.FEATURE_LEVEL, 0, {"name": "metadata.version", "featureLevel": 30}),
        topic_record("t", ONE),
        partition_record(0, ONE),
        partition_record(1, ONE),
    ]
    directories = [("t-0", ONE), ("t-1", OTHER), ("stray-0", OTHER)]
    source = write_cluster(tmp_path / "old", records, *directories)
    (source / "t-0" / "partition.metadata").write_bytes(b"")
    rows = run(source, new=tmp_path / "new")
    assert [row.note for row in rows if isinstance(row, ReviveNote)] == [
        f"{source}/stray-0: topic stray is not in the cluster's metadata, and is left out unless"
        " you name it",
        f"{source}/t-1: of a deleted topic with id {uuid_text(OTHER)}, and left out; the cluster's"
        f" metadata has {uuid_text(ONE)}",
    ]
    assert [row.error for row in rows if isinstance(row, PartitionFailed)] == [
        "partition 1 of t: in none of the directories, and starts empty; replicas were on brokers"
        " 1, 2"
    ]
    assert [(row.partition, row.end_offset) for row in partitions(rows, "t")] == [(0, 1), (1, 0)]
    metadata = tmp_path / "new" / "data" / "t-0" / "partition.metadata"
    assert metadata.read_text() == f"version: 0\ntopic_id: {uuid_text(ONE)}"
    named = run(source, new=tmp_path / "named", selection=Selection.of("stray"))
    assert [row.topic_id for row in partitions(named, "stray")] == [uuid_text(OTHER)]
    assert partitions(named, "t") == []


@pytest.mark.parametrize("is_empty", [True, False])
def test_metadata_that_are_damaged_or_lost(tmp_path: Path, is_empty: bool) -> None:
    """Topics that they do not have may be among what is lost."""
    records = [
        NewRecord(RecordType.FEATURE_LEVEL, 0, {"name": "metadata.version", "featureLevel": 30}),
        topic_record("t", ONE),
        partition_record(0, ONE),
        topic_record("other", OTHER),
        partition_record(0, OTHER),
    ]
    source = write_cluster(tmp_path / "old", records, ("t-0", ONE), ("other-0", OTHER))
    log = source / f"{METADATA_TOPIC}-0" / f"{0:020}.log"
    data = log.read_bytes()
    log.write_bytes(b"" if is_empty else data[:200] + b"\xff" + data[201:])
    rows = run(source, new=tmp_path / "new")
    found = {(row.topic, row.topic_id, row.end_offset) for row in rows_of_partitions(rows)}
    assert found == {("t", uuid_text(ONE), 1), ("other", uuid_text(OTHER), 1)}
    failed = [row for row in rows if isinstance(row, PartitionFailed)]
    assert bool(failed) != is_empty
    assert any(isinstance(row, ReviveNote) for row in rows) == is_empty


# -- as of a time ----------------------------------------------------------------------------------


def at_moments() -> dict[int, dict[tuple[str, str, int], int]]:
    """Returns the offsets of groups at some moments, in ms since 1970, as Kafka said."""
    found: dict[int, dict[tuple[str, str, int], int]] = {}
    path = answers.directory("groups43") / "groups-at.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["type"] != "Share" and row["topic"] is not None:
            key = (row["group"], row["topic"], row["partition"])
            found.setdefault(row["at"], {})[key] = row["offset"]
    return found


@pytest.mark.parametrize("number", range(4))
def test_a_consistent_cut(corpora: Corpora, tmp_path: Path, number: int) -> None:
    """Groups have the offsets of that time, nothing is later, no group is ahead of its log, and no
    transaction is open but those that were ongoing."""
    at_ms, expected = sorted(at_moments().items())[number]
    engine = Engine(str(corpora.path("groups43")), at_ms=at_ms)
    planned = list(revive(engine, Revive(str(tmp_path / "new"), dry_run=True)))
    rows = list(revive(engine, Revive(str(tmp_path / "new"))))
    for before, after in zip(rows_of_partitions(planned), rows_of_partitions(rows), strict=True):
        added = after.end_offset - before.end_offset  # markers, and commits of groups
        assert replace(before, end_offset=after.end_offset) == after
        assert 0 <= added <= 1
    new = Engine(str(tmp_path / "new" / "data"))
    found = {}
    for row in list_groups(new, ListGroups()):
        assert isinstance(row, GroupOffset)
        if row.offset is not None and row.group.type != "Share":
            found[row.group.name, str(row.topic), int(str(row.partition))] = row.offset
            assert row.problem is not OffsetProblem.BEYOND_LOG_END
    there = {key: offset for key, offset in expected.items() if key[1] in new.topics()}
    changed = [key for key in there if found[key] != there[key]]
    notes = [row.note for row in rows if isinstance(row, ReviveNote)]
    assert [note.split(": offset ")[0] for note in notes] == [
        f"group {group}: {topic}-{partition}" for group, topic, partition in changed
    ]
    for topic, numbers in new.topics().items():
        for partition in numbers:
            assert first_later(new.log(topic, partition).view(), at_ms) is None
    left = [row for row in rows if isinstance(row, RevivedTransaction) and row.outcome != "aborted"]
    assert {row.outcome for row in left} <= {"open until its timeout"}


def test_a_batch_is_cut_as_a_whole(tmp_path: Path) -> None:
    """Also in the middle of a log whose earlier segments stay links."""
    batches = [
        build_batch([SimpleRecord(time), SimpleRecord(time + 50)], BatchFields(base_offset=base))
        for base, time in ((0, 100), (2, 200), (4, 300), (6, 100))
    ]
    write_log_dir(tmp_path / "data", {})
    write_partition(tmp_path / "data" / "t-0", batches, topic_id=b"\x01" * 16)
    before = fingerprint(tmp_path / "data")
    for at_ms, end in ((99, 0), (149, 0), (150, 2), (349, 4), (350, 8), (5000, 8)):
        engine = Engine(str(tmp_path / "data"), at_ms=at_ms)
        new = tmp_path / f"new-{at_ms}"
        rows = list(revive(engine, Revive(str(new))))
        [row] = partitions(rows, "t")
        assert (row.start_offset, row.end_offset) == (0, end)
        assert len(read(Engine(str(new / "data")).log("t", 0).view())) == end
    assert differences(before, fingerprint(tmp_path / "data")) == []


@pytest.mark.parametrize(
    ("records", "committed_ms", "outcomes", "end", "errors"),
    [
        # the end, of another producer's record with a late timestamp, is before the marker
        ([(7, 100), (-1, 900)], 200, ["committed"], 2, 0),
        # the marker is later, too: the transaction began and ended after that time
        ([(7, 100), (-1, 900)], 800, ["aborted"], 2, 0),
        # its own records have late timestamps: a part is lost, or all
        ([(7, 100), (7, 900)], 200, ["committed"], 2, 1),
        ([(-1, 100), (7, 900)], 200, [], 1, 1),
    ],
)
def test_transactions_with_records_that_seem_later(
    tmp_path: Path,
    records: list[tuple[int, int]],
    committed_ms: int,
    outcomes: list[str],
    end: int,
    errors: int,
) -> None:
    batches = [
        build_batch(
            [SimpleRecord(time, b"k", b"v")],
            BatchFields(
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=offset if producer_id >= 0 else -1,
                is_transactional=producer_id >= 0,
            ),
        )
        for offset, (producer_id, time) in enumerate(records)
    ]
    fields = BatchFields(base_offset=2, producer_id=7, producer_epoch=0)
    batches.append(build_end_txn_marker(ControlType.COMMIT, committed_ms, 0, fields))
    write_log_dir(tmp_path / "data", {})
    write_partition(tmp_path / "data" / "t-0", batches, topic_id=b"\x01" * 16)
    engine = Engine(str(tmp_path / "data"), at_ms=500)
    rows = list(revive(engine, Revive(str(tmp_path / "new"))))
    assert [row.outcome for row in rows if isinstance(row, RevivedTransaction)] == outcomes
    assert [row.end_offset for row in partitions(rows, "t")] == [end]
    failed = [row.error for row in rows if isinstance(row, PartitionFailed)]
    assert len(failed) == errors
    assert all("producer 7 had committed at offset 2" in error for error in failed)
    log = Engine(str(tmp_path / "new" / "data")).log("t", 0)
    assert first_later(log.view(), 500) is None
    visible = 1 if outcomes != ["aborted"] else 0
    assert len(read(log.view())) == visible


# -- several copies, and damaged ones --------------------------------------------------------------


def test_sources_that_contradict_each_other(corpora: Corpora, tmp_path: Path) -> None:
    cluster = corpora.path("cluster43")
    with pytest.raises(LogDirError, match=r"cluster43/2/reborn-0: has topic id .*cluster43/1"):
        run(cluster / "1", cluster / "2", cluster / "3", new=tmp_path / "new")
    with pytest.raises(LogDirError, match="has cluster id"):
        run(cluster / "1", corpora.path("kafka39"), new=tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    preferred = {"kafkafs.prefer.dir": str(cluster / "3")}
    engine = Engine([str(cluster / str(node)) for node in (1, 2, 3)], preferred)
    rows = list(revive(engine, Revive(str(tmp_path / "new"))))
    [row] = partitions(rows, "reborn")
    assert row.sources == (str(cluster / "3" / "reborn-0"),)
    node = rows[-1]
    assert isinstance(node, RevivedNode)
    assert node.node_id == 3


def test_replicas_that_diverge_are_merged_and_reported(corpora: Corpora, tmp_path: Path) -> None:
    cluster = corpora.path("cluster43")
    rows = run(cluster / "2", cluster / "3", new=tmp_path / "new", selection=Selection.of("split"))
    [row] = partitions(rows, "split")
    assert row.sources == (str(cluster / "3" / "split-0"), str(cluster / "2" / "split-0"))
    [failed] = [each.error for each in rows if getattr(each, "where", "") == "split-0"]
    assert f"{cluster}/2/split-0 diverges from {cluster}/3/split-0 at offset 100" in failed
    records = read(Engine(str(tmp_path / "new" / "data")).log("split", 0).view())
    expected = list(answers.records("cluster43", "split", 0))
    assert [(each.offset, each.value) for each in records] == [
        (each.offset, each.value) for each in expected
    ]


def test_three_replicas_with_damage(tmp_path: Path) -> None:
    """Each has lost another batch; what all have lost is reported."""
    batches = [
        build_batch([SimpleRecord(base, None, bytes([base]))], BatchFields(base_offset=base))
        for base in range(6)
    ]
    for node, lost in ((1, {1, 4}), (2, {2, 4}), (3, {3, 4})):
        log_dir = tmp_path / str(node)
        directory_id = uuid_text(bytes([node]) * 16)
        write_log_dir(log_dir, {}, node_id=node, cluster_id="c", directory_id=directory_id)
        damaged = [
            bytes(batch[:-1]) + b"\xff" if base in lost else batch
            for base, batch in enumerate(batches)
        ]
        write_partition(log_dir / "t-0", damaged, topic_id=b"\x01" * 16)
    rows = run(*(tmp_path / str(node) for node in (1, 2, 3)), new=tmp_path / "new")
    [row] = partitions(rows, "t")
    assert len(row.sources) == 3
    found = read(Engine(str(tmp_path / "new" / "data")).log("t", 0).view())
    assert [record.offset for record in found] == [0, 1, 2, 3, 5]
    assert [each.error for each in rows if isinstance(each, PartitionFailed)][-1] == (
        "offsets 4 to 4 are lost in both"
    )
    assert sorted(path.name for path in (tmp_path / "new" / "data").iterdir() if path.is_dir()) == [
        "t-0"
    ]


def test_damaged_logs_are_salvaged(corpora: Corpora, tmp_path: Path) -> None:
    """Without that, a log ends at the first damage."""
    source = corpora.path("kafka43-torn")
    cut = run(source, new=tmp_path / "cut")
    planned = run(source, new=tmp_path / "salvaged", salvage=True, dry_run=True)
    salvaged = run(source, new=tmp_path / "salvaged", salvage=True)
    assert rows_of_partitions(planned) == rows_of_partitions(salvaged)
    ends = [[row.end_offset for row in partitions(rows, "crash-txn")] for rows in (cut, salvaged)]
    assert ends == [[2873], [3033]]
    lost = [row.error for row in salvaged if getattr(row, "where", "") == "crash-txn-0"]
    assert [error.split(":")[0:2] for error in lost] == [
        ["lost", " offsets 2873 to 2880 (276 bytes)"]
    ]
