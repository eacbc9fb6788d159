"""Compares the state and the history of a cluster with what Kafka's Admin API said about it."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import MetadataUnavailable, NoClusterMetadata, UnknownName
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.metadata import cluster_metadata
from kafkafs.storage.metadata.history import changes
from kafkafs.storage.metadata.image import MetadataImage
from kafkafs.storage.metadata.reading import (
    MetadataEntry,
    Problems,
    QuorumRecord,
    list_snapshots,
    log_entries,
)
from kafkafs.storage.metadata.replay import MetadataReplay
from kafkafs.storage.operations.cluster import (
    ClusterSubject,
    DescribeCluster,
    ListClusterChanges,
    cluster_state,
    describe_cluster,
    list_cluster_changes,
)
from kafkafs.storage.operations.request import PartitionFailed
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import walk
from tests.profiles import percent

Corpus = Callable[[str], Path]
LOG = "00000000000000000000.log"
QUORUM = "__cluster_metadata-0"
#: The broker began to shut down with this record; the Admin API was asked before.
SHUTDOWN = 529
END = 555
#: The end offsets of the snapshots of groups43.
SNAPSHOTS = (168, 433)


@pytest.fixture(scope="module")
def engine(corpus: Corpus) -> Engine:
    return Engine(str(corpus("groups43")))


def rows(engine: Engine, subject: str, offset: int | None = SHUTDOWN) -> list[dict[str, Any]]:
    request = DescribeCluster(ClusterSubject(subject), offset)
    return [row.as_json() for row in describe_cluster(engine, request)]


@pytest.fixture(scope="module")
def returned() -> dict[str, Any]:
    path = answers.directory("groups43") / "cluster.json"
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_topics_are_those_that_the_admin_api_returned(
    engine: Engine, returned: dict[str, Any]
) -> None:
    found = {
        row["topic"]: {
            "topic_id": row["topicId"],
            "internal": row["isInternal"],
            "partitions": [
                {name: each[name] for name in ("partition", "leader", "replicas", "isr")}
                for each in row["partitions"]
            ],
            "configs": row["configs"],
        }
        for row in rows(engine, "topics")
    }
    expected = {
        name: {
            **topic,
            "configs": {
                config: each["value"]
                for config, each in topic["configs"].items()
                if each["source"] == "DYNAMIC_TOPIC_CONFIG"
            },
        }
        for name, topic in returned["topics"].items()
    }
    assert found == expected
    directory_id = engine.log_dirs.dirs[0].meta.directory_id
    placed = [each for row in rows(engine, "topics") for each in row["partitions"]]
    assert all(each["directories"] == [directory_id] for each in placed)


def test_nodes_features_and_voters_are_those_that_the_admin_api_returned(
    engine: Engine, returned: dict[str, Any]
) -> None:
    (node,) = rows(engine, "brokers")
    (endpoint,) = node["broker"]["endpoints"]
    assert returned["brokers"] == [
        {
            "id": node["node"],
            "host": endpoint["host"],
            "port": endpoint["port"],
            "rack": node["broker"]["rack"],
            "fenced": node["broker"]["fenced"],
        }
    ]
    features = rows(engine, "features")
    finalized = {row["feature"]: row["level"] for row in features if row["level"]}
    assert finalized == returned["features"]["finalized"]
    supported = {row["feature"]: row["supported"] for row in features}
    assert supported == returned["features"]["supported"]
    (voter,) = rows(engine, "voters")
    assert returned["quorum"] == {
        "leader_id": voter["voter"] if voter["isLeader"] else None,
        "leader_epoch": voter["leaderEpoch"],
        "voters": [voter["voter"]],
    }
    (summary,) = rows(engine, "summary")
    assert (summary["clusterId"], summary["controller"]) == (
        returned["cluster_id"],
        returned["controller"],
    )


def test_configs_quotas_acls_and_users_are_those_that_the_admin_api_returned(
    engine: Engine, returned: dict[str, Any]
) -> None:
    configs: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows(engine, "configs"):
        name = "default" if row["resourceName"] is None else row["resourceName"]
        configs.setdefault(row["resourceType"], {})[name] = row["configs"]
    for kind, key in (
        ("broker", "broker_configs"),
        ("group", "group_configs"),
        ("client-metrics", "client_metrics"),
    ):
        assert configs[kind] == {
            name: {config: each["value"] for config, each in values.items()}
            for name, values in returned[key].items()
        }
    quotas = sorted(returned["quotas"], key=json.dumps)
    assert sorted(rows(engine, "quotas"), key=json.dumps) == quotas
    words = ("resourceType", "resourceName", "patternType", "principal", "host", "operation")
    acls = [tuple(row[word] for word in (*words, "permission")) for row in rows(engine, "acls")]
    assert sorted(acls) == sorted(tuple(each.values()) for each in returned["acls"])
    users = [
        {**each, "credentials": sorted(each["credentials"], key=lambda found: found["mechanism"])}
        for each in returned["scram_users"]
    ]
    assert rows(engine, "users") == users


@pytest.mark.parametrize("name", ["kafka39", "kafka43-clean"])
def test_other_brokers_topics_have_the_partitions_that_they_returned(
    name: str, corpus: Corpus
) -> None:
    engine = Engine(str(corpus(name)))
    state = cluster_state(engine)
    assert state.image.problems == ()
    found = [
        (topic, number) for topic, each in state.image.topics.items() for number in each.partitions
    ]
    assert sorted(found) == answers.partitions(name)
    replicas = {
        each.replicas for topic in state.image.topics.values() for each in topic.partitions.values()
    }
    assert replicas == {(1,)}
    assert set(state.image.brokers) == set(state.image.controllers) == {1}


def test_a_cluster_of_zookeeper_has_no_metadata_log(corpus: Corpus) -> None:
    with pytest.raises(NoClusterMetadata, match=r"no __cluster_metadata-0, .* ZooKeeper"):
        cluster_state(Engine(str(corpus("kafka28"))))


def test_an_unknown_name_is_named_with_those_that_exist(engine: Engine) -> None:
    state = cluster_state(engine)
    topics = state.rows(ClusterSubject.TOPICS, ["main", "trim"])
    assert [row.as_json()["topic"] for row in topics] == ["main", "trim"]
    with pytest.raises(UnknownName, match=r"no mein; did you mean main\?"):
        state.rows(ClusterSubject.TOPICS, ["mein"])
    with pytest.raises(UnknownName, match=r"the users of the cluster include no x; there are amb"):
        state.rows(ClusterSubject.USERS, ["x"])


# -- earlier offsets and times -----------------------------------------------------------------


@pytest.fixture(scope="module")
def entries(engine: Engine) -> list[MetadataEntry]:
    return list(log_entries(engine.log("__cluster_metadata", 0).view(), 0, Problems()))


def replayed(entries: list[MetadataEntry], offset: int) -> MetadataImage:
    replay = MetadataReplay()
    for entry in entries:
        if entry.offset < offset:
            if isinstance(entry.record, QuorumRecord):
                replay.apply_control(entry.record.number, entry.record.message, entry.leader_epoch)
            else:
                replay.apply(entry.record)
    return replay.image(offset, -1)


@given(offset=st.integers(0, END) | st.sampled_from(SNAPSHOTS))
@settings(max_examples=percent(60))
def test_the_state_at_an_offset_is_that_of_the_records_below_it(
    engine: Engine, entries: list[MetadataEntry], offset: int
) -> None:
    found = engine.cluster_metadata().image_at(offset)
    assert found == replayed(entries, offset)
    assert found.offset == offset


@given(data=st.data())
@settings(max_examples=percent(30))
def test_the_state_at_a_time_ends_before_the_first_later_record(
    engine: Engine, entries: list[MetadataEntry], data: st.DataObject
) -> None:
    times = [entry.timestamp for entry in entries]
    at_ms = data.draw(st.sampled_from(times) | st.integers(min(times), max(times)))
    later = [entry.offset for entry in entries if entry.timestamp > at_ms]
    end = later[0] if later else END
    found = cluster_state(Engine(engine.log_dirs.dirs[0].path, at_ms=at_ms)).image
    assert (found.offset, found) == (end, replayed(entries, end))


@pytest.fixture
def cut(tmp_path: Path, corpus: Corpus) -> Path:
    """Makes a copy whose log begins at the first snapshot, as if older segments were deleted."""
    source = corpus("groups43") / QUORUM
    shutil.copytree(source, tmp_path / QUORUM)
    shutil.copy(corpus("groups43") / "meta.properties", tmp_path)
    for path in (tmp_path / QUORUM).glob(f"{0:020d}.*"):
        path.unlink()
    data = (source / LOG).read_bytes()
    position = next(each.position for each in walk(data) if each.base_offset == SNAPSHOTS[0])
    (tmp_path / QUORUM / f"{SNAPSHOTS[0]:020d}.log").write_bytes(data[position:])
    return tmp_path


def test_what_the_disk_does_not_reach_back_to_is_refused(
    cut: Path, engine: Engine, entries: list[MetadataEntry]
) -> None:
    short = Engine(str(cut))
    for offset in (168, 200, 433, END):
        found, expected = cluster_state(short, offset).image, cluster_state(engine, offset).image
        assert (found.topics, found.acls) == (expected.topics, expected.acls)
    reach = (
        r"the log and its snapshots reach from offset 168 \(2026-11-23T22:50:40.471Z\)"
        r" to 555 \(2026-11-23T22:53:03.627Z\)"
    )
    for offset in (0, 167, END + 1):
        with pytest.raises(MetadataUnavailable, match=f"at offset {offset} is unknown: {reach}"):
            cluster_state(short, offset)
    exact = next(entry.timestamp for entry in entries if entry.offset == 167)
    assert cluster_state(Engine(str(cut), at_ms=exact)).image.offset == 168
    for path, at_ms in ((cut, exact - 1), (cut, 0), (engine.log_dirs.dirs[0].path, 0)):
        with pytest.raises(MetadataUnavailable, match=r"is unknown: .* reach from offset (168|0) "):
            cluster_state(Engine(str(path), at_ms=at_ms))
    (cut / QUORUM / f"{SNAPSHOTS[0]:020d}.log").unlink()
    (cut / QUORUM / f"{500:020d}.log").touch()
    with pytest.raises(MetadataUnavailable, match=r"there are earlier snapshots at offset 168, 43"):
        cluster_state(Engine(str(cut)))


def test_a_damaged_snapshot_is_reported_and_an_older_one_serves(
    writable_corpus: Corpus, engine: Engine
) -> None:
    path = writable_corpus("groups43")
    (newest,) = (path / QUORUM).glob(f"{SNAPSHOTS[1]:020d}-*.checkpoint")
    data = bytearray(newest.read_bytes())
    data[-200] ^= 1
    newest.chmod(0o600)
    newest.write_bytes(data)
    hurt = Engine(str(path))
    for offset in (SNAPSHOTS[1], END):
        found = cluster_state(hurt, offset).image
        assert found == cluster_state(engine, offset).image
        assert [each.split(": ")[0] for each in found.problems] == [str(newest)]
    assert hurt.metadata().topics == engine.metadata().topics


def test_a_damaged_snapshot_that_the_log_continues_serves(silent: Path, engine: Engine) -> None:
    """An older one without damage is of a state long before the log."""
    (newest,) = (silent / QUORUM).glob(f"{SNAPSHOTS[1]:020d}-*.checkpoint")
    whole = newest.read_bytes()
    header, *_, footer = walk(whole)
    expected = cluster_state(engine).image
    for size, topics in ((footer.position, expected.topics), (header.size, {})):
        newest.write_bytes(whole[:size])
        found = cluster_state(Engine(str(silent))).image
        assert found.topics == topics
        assert found.problems == (
            f"{newest}: position {size}: the snapshot has no footer, its end may be missing",
        )


def test_a_snapshot_that_was_just_removed(
    silent: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker removes it once there is a newer one."""
    snapshots = list_snapshots(Engine(str(silent)).log("__cluster_metadata", 0).directory)
    gone = replace(snapshots[0], file=f"{END:020d}-0000000002.checkpoint", end_offset=END)
    monkeypatch.setattr(cluster_metadata, "list_snapshots", lambda _: [gone, *snapshots])
    found = cluster_state(Engine(str(silent))).image
    assert (found, found.problems) == (cluster_state(engine).image, ())


def test_of_several_brokers_the_log_that_reaches_furthest_counts(corpus: Corpus) -> None:
    root = corpus("cluster43")
    ends = [cluster_state(Engine(f"{root}/{node}")).image.offset for node in (1, 2, 3)]
    assert ends == [119, 62, 116]
    together = Engine(f"{root}/2,{root}/3,{root}/1")
    assert cluster_state(together).image == cluster_state(Engine(f"{root}/1")).image
    lines = texts(list_cluster_changes(together, ListClusterChanges()))
    assert "topic reborn deleted, with 1 partition" in lines


def test_a_snapshot_of_an_unknown_time_is_no_base_beyond_the_log(
    cut: Path, entries: list[MetadataEntry]
) -> None:
    """Headers are damaged, and the newest snapshot has records later than the time that is
    shown."""
    for snapshot in (cut / QUORUM).glob("*.checkpoint"):
        data = bytearray(snapshot.read_bytes())
        data[80] ^= 1  # in the first batch, which has only the header
        snapshot.chmod(0o600)
        snapshot.write_bytes(data)
    at_ms = entries[300].timestamp
    end = next(entry.offset for entry in entries if entry.timestamp > at_ms)
    assert SNAPSHOTS[0] < end < SNAPSHOTS[1]
    found = cluster_state(Engine(str(cut), at_ms=at_ms)).image
    expected = replayed(entries, end)
    assert (found.offset, found.topics, found.acls) == (end, expected.topics, expected.acls)
    assert len(found.problems) == 1
    with pytest.raises(MetadataUnavailable):
        cluster_state(Engine(str(cut), at_ms=entries[0].timestamp))


@pytest.fixture
def silent(cut: Path) -> Path:
    """Makes a copy whose log begins after the last election, with a snapshot before it."""
    first = cut / QUORUM / f"{SNAPSHOTS[0]:020d}.log"
    data = first.read_bytes()
    position = next(each.position for each in walk(data) if each.base_offset == SNAPSHOTS[1])
    (cut / QUORUM / f"{SNAPSHOTS[1]:020d}.log").write_bytes(data[position:])
    first.unlink()
    return cut


def test_what_the_log_does_not_say_of_the_quorum_is_in_quorum_state(
    silent: Path, engine: Engine
) -> None:
    expected = cluster_state(engine).image
    assert cluster_state(Engine(str(silent))).image == expected
    time = expected.timestamp
    for earlier in (
        cluster_state(Engine(str(silent)), END),
        cluster_state(Engine(str(silent), at_ms=time)),
    ):
        quorum = earlier.image.quorum
        assert (quorum.leader_id, quorum.leader_epoch, dict(quorum.voters)) == (-1, -1, {})
        assert earlier.image.topics == expected.topics
    file = silent / QUORUM / "quorum-state"
    file.write_text(
        '{"leaderId":-1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"","data_version":1}'
    )
    quorum = cluster_state(Engine(str(silent))).image.quorum
    assert (quorum.leader_id, quorum.leader_epoch, dict(quorum.voters)) == (-1, 7, {})
    for data, what in (
        ("{", "position 0: invalid JSON"),
        ('{"data_version":2}', "position 0: data_version is 2, expected 0 or 1"),
    ):
        file.write_text(data)
        found = cluster_state(Engine(str(silent))).image
        assert found.problems[0].startswith(f"{file}: {what}")
        assert (found.topics, found.quorum.leader_id) == (expected.topics, -1)
    file.unlink()
    assert cluster_state(Engine(str(silent))).image.problems == ()


# -- history -------------------------------------------------------------------------------------


def texts(found: Iterator[Any]) -> list[str]:
    return [each.error if isinstance(each, PartitionFailed) else each.text for each in found]


def test_the_history_of_a_cluster(engine: Engine, entries: list[MetadataEntry]) -> None:
    found = list(list_cluster_changes(engine, ListClusterChanges()))
    gone = json.loads((answers.directory("groups43") / "gone.json").read_text())
    rows_found = [each.as_json() for each in found]
    deleted = [row["topic"] for row in rows_found if row["change"] == "topicDeleted"]
    assert deleted == gone["topics_deleted"]
    lines = [(each.offset, each.text) for each in found if not isinstance(each, PartitionFailed)]
    for expected in [
        (0, "node 1 became the active controller, in epoch 1"),
        (12, "broker 1 registered, at PLAINTEXT://127.0.0.1:29192, fenced"),
        (14, "broker 1 unfenced"),
        (72, "topic empty created, with 2 partitions"),
        (77, "configs of all brokers: log.segment.delete.delay.ms removed"),
        (86, "quota consumer_byte_rate of user (default) set to 7654321"),
        (94, "SCRAM-SHA-512 credential of user amber set, 8432 iterations"),
        (96, "ACL added: DENY User:amber from 127.0.0.1 WRITE on TOPIC ma (PREFIXED)"),
        (385, "producer ids up to 999 allocated to broker 1"),
        (413, "topic grown: partitions 2 to 3 added"),
        (421, "topic doomed deleted, with 2 partitions"),
        (448, "quota producer_byte_rate of user temp removed"),
        (457, "ACL removed: ALLOW User:temp READ on TOPIC temp"),
        (
            530,
            "topic main, partitions 0 to 2: leader 1 -> none, ISR [1] -> [], ELR [] -> [1],"
            " last known ELR [] -> [1]",
        ),
    ]:
        assert expected in lines
    bootstrap = next(row for row in rows_found if row["offset"] == 1)
    assert (bootstrap["lastOffset"], len(bootstrap["changes"])) == (9, 7)
    assert bootstrap["text"].startswith("transaction Bootstrap records: feature metadata.version")
    # Every record that has an effect is part of a change.
    history = engine.cluster_metadata().history()
    list(changes(history))
    assert history.replay.image(END, -1) == replayed(entries, END)


def test_secrets_are_shown_nowhere(engine: Engine, entries: list[MetadataEntry]) -> None:
    found = json.dumps(
        [
            *([rows(engine, subject, None) for subject in ClusterSubject]),
            *([each.as_json() for each in list_cluster_changes(engine, ListClusterChanges())]),
        ]
    )
    secrets = [
        entry.record.data[name]
        for entry in entries
        if not isinstance(entry.record, QuorumRecord) and entry.record.data is not None
        for name in ("salt", "storedKey", "serverKey")
        if name in entry.record.data
    ]
    assert len(secrets) == 12
    assert not [each for each in secrets if base64.b64encode(each).decode() in found]
    assert not [each for each in secrets if json.dumps(each.decode("latin-1"))[1:-1] in found]


def test_a_snapshot_hides_how_the_cluster_became_so(cut: Path) -> None:
    found = list(list_cluster_changes(Engine(str(cut)), ListClusterChanges()))
    assert (found[0].as_json()["change"], texts(iter(found))[0]) == (
        "snapshot",
        "changes before offset 168 are only known as their sum, from a snapshot: topics: 10,"
        " brokers: 1, ACLs: 9, quotas: 7, users: 3",
    )
    assert found[1].as_json()["offset"] == 241


def test_a_log_that_ends_before_its_newest_snapshot(cut: Path) -> None:
    """Or that is lost: the state is that of the snapshot, and the history says what is missing."""
    log = cut / QUORUM / f"{SNAPSHOTS[0]:020d}.log"
    data = log.read_bytes()
    header = next(each for each in walk(data) if each.base_offset > 300)
    log.write_bytes(data[: header.position])
    end = header.base_offset
    *_, problem = texts(list_cluster_changes(Engine(str(cut)), ListClusterChanges()))
    assert problem == (
        f"{cut}/{QUORUM}: offsets {end} to 432 are not in the log, only their sum in a snapshot"
    )
    with pytest.raises(MetadataUnavailable, match=rf"168 .* to {end} .*; there are other .* 433"):
        cluster_state(Engine(str(cut)), end + 1)
    assert cluster_state(Engine(str(cut))).image.offset == SNAPSHOTS[1]
    log.unlink()
    assert cluster_state(Engine(str(cut))).image.timestamp == 1795474338082
    (line,) = texts(list_cluster_changes(Engine(str(cut)), ListClusterChanges()))
    assert line.startswith("changes before offset 433 are only known as their sum, from a snapsh")
    reach = (
        r"from offset 433 \(2026-11-23T22:52:18.082Z\) to 433 \(2026-.*; there are earlier .* 168"
    )
    with pytest.raises(MetadataUnavailable, match=reach):
        cluster_state(Engine(str(cut)), 200)


def test_the_history_of_a_log_whose_beginning_is_lost(silent: Path, engine: Engine) -> None:
    for snapshot in (silent / QUORUM).glob("*.checkpoint"):
        snapshot.unlink()
    *lines, problem = texts(list_cluster_changes(Engine(str(silent)), ListClusterChanges()))
    whole = texts(list_cluster_changes(engine, ListClusterChanges()))
    assert lines[-1] == whole[-1]
    assert (
        "topic (id 2A6mlzwJQ9Weq_Si3hWsjg), partition 0: leader unknown -> none, ISR unknown -> [],"
        " ELR unknown -> [1], last known ELR unknown -> [1]"
    ) in lines
    what = "offsets 0 to 432 are in no snapshot and not in the log"
    assert problem == f"{silent}/{QUORUM}: {what}"
    with pytest.raises(MetadataUnavailable):
        list(list_cluster_changes(Engine(str(silent), at_ms=0), ListClusterChanges()))
    with pytest.raises(MetadataUnavailable, match="begins at offset 433, and no snapshot is besi"):
        cluster_state(Engine(str(silent)))


def values(*found: bytes) -> bytes:
    """Returns a batch after the end of groups43's log."""
    records = [SimpleRecord(value=each, timestamp=1_800_000_000_000) for each in found]
    return build_batch(records, BatchFields(base_offset=END, leader_epoch=2))


@pytest.fixture
def grown(writable_corpus: Corpus) -> Callable[[bytes], Engine]:
    path = writable_corpus("groups43")

    def append(data: bytes) -> Engine:
        with (path / QUORUM / LOG).open("ab") as log:
            log.write(data)
        return Engine(str(path))

    return append


CONFIG = bytes([1, 4, 0, 4, 2]) + b"7" + bytes([9]) + b"password" + bytes([4]) + b"abc" + bytes(1)


def test_damaged_and_unknown_records_are_reported_and_the_rest_counts(
    grown: Callable[[bytes], Engine],
) -> None:
    unregister = bytes([1, 1, 0]) + (1).to_bytes(4, "big") + bytes(9)
    garbage, unfence = b"\x01\x02", b"\x01\x08\0" + bytes(13)
    batch = values(b"\x01\x63\x00", garbage, CONFIG, unregister, unfence)
    engine = grown(batch)
    path = f"{engine.log_dirs.dirs[0].path}/{QUORUM}/{LOG}"
    size = Path(path).stat().st_size - len(batch)
    found = list(describe_cluster(engine, DescribeCluster(ClusterSubject.CONFIGS, None, ("7",))))
    problems = [row.error for row in found if isinstance(row, PartitionFailed)]
    assert problems == [
        f"{path}: position {size}: offset {END + 1}: a varint extends past the end of its record",
        f"{path}: position {size}: offset {END}: unknown metadata record type 99",
    ]
    assert found[-1].as_json() == {
        "resourceType": "broker",
        "resourceName": "7",
        "configs": {"password": "[hidden]"},
    }
    lines = texts(list_cluster_changes(engine, ListClusterChanges()))
    assert "unknown" not in lines[-7]
    assert lines[-6:] == [
        "unknown metadata record type 99",
        "configs of broker 7: password=[hidden] set",
        "broker 1 unregistered",
        "broker 0 unfenced",
        *problems,
    ]


def test_a_snapshot_has_nothing_that_the_log_did_not_have_at_a_time(
    writable_corpus: Corpus, entries: list[MetadataEntry]
) -> None:
    """Its last record is older than one before it, where the log ended at that time."""
    path = writable_corpus("groups43")
    (newest,) = (path / QUORUM).glob(f"{SNAPSHOTS[1]:020d}-*.checkpoint")
    data = newest.read_bytes()
    rest = next(iter(walk(data))).size
    at_ms = entries[300].timestamp
    header = struct.pack(">hq", 0, at_ms) + b"\0"
    record = SimpleRecord(key=b"\0\0\0\3", value=header)
    newest.chmod(0o600)
    newest.write_bytes(build_batch([record], BatchFields(is_control=True)) + data[rest:])
    found = cluster_state(Engine(str(path), at_ms=at_ms)).image
    end = next(entry.offset for entry in entries if entry.timestamp > at_ms)
    assert (found.offset, found, found.problems) == (end, replayed(entries, end), ())


def test_a_change_of_what_no_record_created_is_named(grown: Callable[[bytes], Engine]) -> None:
    fence = b"\x01\x07\0" + (9).to_bytes(4, "big") + bytes(9)
    engine = grown(values(fence, CONFIG))
    log = Path(engine.log_dirs.dirs[0].path) / QUORUM / LOG
    position = list(walk(log.read_bytes()))[-1].position
    what = f"offset {END}: a change of broker 9, which no record registered"
    assert cluster_state(engine).image.problems == (f"{log}: position {position}: {what}",)


def test_many_problems_are_counted(grown: Callable[[bytes], Engine]) -> None:
    engine = grown(values(*[b"\x01\x63\x00"] * 150, *[b"\x01"] * 120))
    problems = cluster_state(engine).image.problems
    assert len(problems) == 201
    assert problems[-1] == "70 more problems are not listed"


def test_records_of_a_transaction_are_one_change(grown: Callable[[bytes], Engine]) -> None:
    begin, end, abort = b"\x01\x17\0\1\0\5\5four", b"\x01\x18\0\0", b"\x01\x19\0\1\0\4\4why"
    engine = grown(values(begin, CONFIG, end, begin, CONFIG, abort, begin, CONFIG, CONFIG))
    changed = list(list_cluster_changes(engine, ListClusterChanges()))[-3:]
    assert [(each.as_json()["offset"], each.as_json()["lastOffset"]) for each in changed] == [
        (END + 1, END + 1), (END + 3, END + 5), (END + 6, END + 8)
    ]  # fmt: skip
    assert texts(iter(changed)) == [
        "configs of broker 7: password=[hidden] set",
        "transaction four was aborted: why; its records (1) have no effect",
        "transaction four is not complete; its records (2) have no effect",
    ]
    assert changed[0].as_json()["transaction"] == "four"
