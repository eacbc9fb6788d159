"""Directories of several brokers read as one: replicas, and sources that contradict each other."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkafs.storage.errors import ConfigError, LogDirError
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.state.election import ReplicaEnd, elect
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.describe_topics import ListTopics, list_topics
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from kafkafs.storage.operations.request import PartitionFailed
from tests import answers
from tests.building import BatchFields, build_batch
from tests.logs import write_log_dir, write_partition
from tests.reading import read

ONE, OTHER = b"\x01" * 16, b"\x02" * 16
IDS = {ONE: "AQEBAQEBAQEBAQEBAQEBAQ", OTHER: "AgICAgICAgICAgICAgICAg"}
LATER_MS = 4_000_000_000_000
ADVICE = "; open one without the other, or say whose data to serve with -c kafkafs.prefer.dir="


def broker(
    root: Path,
    node: int,
    *epochs: int,
    name: str = "t-0",
    cluster: str = "c",
    topic_id: bytes = ONE,
    at: str = "",
) -> Path:
    """Makes or extends the directory of a broker. The partition `name` has a record for each of
    `epochs`, the leader epoch in which it was written; its value is the broker's directory."""
    log_dir = root / (at or f"broker-{node}")
    directory_id = base64.urlsafe_b64encode(log_dir.name.encode().ljust(16, b".")).decode()[:22]
    write_log_dir(log_dir, {}, node_id=node, cluster_id=cluster, directory_id=directory_id)
    batches = [
        build_batch(
            [SimpleRecord(100 + n, None, log_dir.name.encode())],
            BatchFields(base_offset=n, leader_epoch=epoch),
        )
        for n, epoch in enumerate(epochs)
    ]
    write_partition(log_dir / name, batches, topic_id=topic_id)
    return log_dir


def opened(*log_dirs: Path, prefer: Path | str = "") -> Engine:
    return Engine(list(map(str, log_dirs)), {"kafkafs.prefer.dir": str(prefer)})


def values(engine: Engine, topic: str = "t", number: int = 0) -> list[bytes | None]:
    return [record.value for record in read(engine.log(topic, number).view())]


def test_equal_replicas_are_no_problem(tmp_path: Path) -> None:
    engine = opened(broker(tmp_path, 1, 0, 0), broker(tmp_path, 2, 0, 0))
    assert values(engine) == [b"broker-1"] * 2
    assert engine.problems == []


def test_nothing_is_opened_before_it_is_used(tmp_path: Path) -> None:
    engine = opened(broker(tmp_path, 1, 0), broker(tmp_path, 2, 0, 0))
    assert engine.topics() == {"t": [0]}
    assert engine.problems == []
    assert len(engine.context.files) == 0


def test_the_longer_of_two_replicas_is_served(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0, 0, 0)
    engine = opened(one, two)
    assert values(engine) == [b"broker-2"] * 3
    behind = f"{one}/t-0: ends at offset 1, 2 before {two}/t-0, which is served"
    assert engine.problems == [behind]


def test_a_later_leader_epoch_outweighs_a_longer_log(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0, 0, 0, 0), broker(tmp_path, 2, 0, 3)
    engine = opened(one, two)
    assert values(engine) == [b"broker-2"] * 2
    assert engine.problems == [
        f"{one}/t-0: diverges from {two}/t-0 at offset 1: its latest leader epoch is 0, not 3;"
        " its 3 offsets from there on are not served"
    ]


def test_a_replica_without_leader_epochs_loses(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0, 0), broker(tmp_path, 2, 0)
    (one / "t-0" / "leader-epoch-checkpoint").unlink()
    engine = opened(one, two)
    assert values(engine) == [b"broker-2"]
    assert engine.problems == [
        f"{one}/t-0: ends at offset 2, 1 after {two}/t-0, which is served for its leader epoch 0:"
        " this replica has no leader epochs, because leader-epoch-checkpoint is missing or empty"
    ]


def test_a_new_leader_epoch_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.storage.log_dirs.replicas._ELECTION_SECONDS", 0.0)
    one, two = broker(tmp_path, 1, 0, 0), broker(tmp_path, 2, 0)
    engine = opened(one, two)
    log = engine.log("t", 0)
    assert engine.log("t", 0) is log
    broker(tmp_path, 2, 0, 5)
    assert values(engine) == [b"broker-2"] * 2
    engine.close_removed()
    assert [log.path for log in engine.opened()] == [f"{two}/t-0"]


def append(log_dir: Path, *offsets: int, epoch: int = 0) -> None:
    """Appends to the partition t-0 as a broker does, which writes no leader epoch that it has."""
    with (log_dir / "t-0" / "00000000000000000000.log").open("ab") as log:
        for offset in offsets:
            fields = BatchFields(base_offset=offset, leader_epoch=epoch)
            log.write(build_batch([SimpleRecord(100, None, log_dir.name.encode())], fields))


def test_a_replica_whose_broker_stops_is_not_served_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that stops changes no leader epoch, and the leader continues in the same one."""
    monkeypatch.setattr("kafkafs.storage.log_dirs.replicas._ELECTION_SECONDS", 0.0)
    one, two, three = (broker(tmp_path, node, 0) for node in (1, 2, 3))
    engine = opened(one, two, three)
    assert values(engine) == [b"broker-1"]
    append(two, 1, 2)
    append(three, 1, 2)
    assert values(engine) == [b"broker-2"] * 3
    behind = f"{one}/t-0: ends at offset 1, 2 before {two}/t-0, which is served"
    assert engine.problems == [behind]
    # Among equals, the one that is served stays.
    append(one, 1, 2)
    assert values(engine) == [b"broker-2"] * 3
    assert engine.problems == []
    append(three, 3)
    assert values(engine) == [b"broker-3"] * 4


def test_replicas_that_grow_together_are_not_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkafs.storage.log_dirs.replicas._ELECTION_SECONDS", 0.0)
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0)
    engine = opened(one, two)
    elections = 0

    def counted(ends: Sequence[ReplicaEnd]) -> int:
        nonlocal elections
        elections += 1
        return elect(ends)

    monkeypatch.setattr("kafkafs.storage.log_dirs.replicas.elect", counted)
    for offset in range(1, 5):
        append(one, offset)
        append(two, offset)
        assert values(engine) == [b"broker-1"] * (offset + 1)
    assert elections == 1


def test_a_replica_whose_leader_epochs_cannot_be_read_loses(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0, 0), broker(tmp_path, 2, 0)
    (one / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n?\n")
    engine = opened(one, two)
    assert values(engine) == [b"broker-2"]
    ahead, unreadable = engine.problems
    assert ahead == (
        f"{one}/t-0: ends at offset 2, 1 after {two}/t-0, which is served for its leader epoch 0:"
        " this replica has no leader epochs, because leader-epoch-checkpoint cannot be read"
    )
    why = f"{one}/t-0: leader epochs not readable: {one}/t-0/leader-epoch-checkpoint: position "
    assert unreadable.startswith(why)
    assert engine.log_dirs.unserved == engine.problems


def test_without_any_readable_leader_epochs_the_longest_replica_is_served(tmp_path: Path) -> None:
    one, two, three = (broker(tmp_path, node, *[0] * node) for node in (1, 2, 3))
    for path in (one, two, three):
        (path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"\xff")
    engine = opened(one, two, three)
    assert values(engine) == [b"broker-3"] * 3
    found = [each.partition("/leader-epoch-checkpoint:")[0] for each in engine.problems]
    assert found == [
        *(f"{path}/t-0: leader epochs not readable: {path}/t-0" for path in (one, two, three)),
        f"{one}/t-0: ends at offset 1, 2 before {three}/t-0, which is served",
        f"{two}/t-0: ends at offset 2, 1 before {three}/t-0, which is served",
    ]


def test_a_replica_that_cannot_be_read_loses(tmp_path: Path) -> None:
    """As one that is removed after its directory was listed."""
    one, two = broker(tmp_path, 1, 0, 0), broker(tmp_path, 2, 0)
    listed = opened(one, two).log_dirs.partitions()
    shutil.rmtree(one / "t-0")
    assert listed["t", 0].path == f"{two}/t-0"
    listed = opened(broker(tmp_path, 1, 0), two).log_dirs.partitions()
    shutil.rmtree(one / "t-0")
    shutil.rmtree(two / "t-0")
    why = f"{one}/t-0: no replica can be read; {one}/t-0: replica not readable: "
    with pytest.raises(LogDirError, match=re.escape(why)):
        listed["t", 0]


def test_of_three_equal_replicas_the_first_is_served(tmp_path: Path) -> None:
    engine = opened(*(broker(tmp_path, node, 0, 1) for node in (3, 1, 2)))
    assert values(engine) == [b"broker-3"] * 2
    assert engine.problems == []


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0, 0, cluster="d")
    broker(tmp_path, 2, 0, name="u-0", cluster="d")
    with pytest.raises(LogDirError) as caught:
        opened(one, two)
    assert str(caught.value).startswith(f"{two}: has cluster id d, but {one} has c{ADVICE}")
    engine = opened(one, two, prefer=one)
    assert values(engine) == [b"broker-1"]
    assert values(engine, "u") == [b"broker-2"]  # only that cluster has it
    assert engine.problems == [
        f"{two}: has cluster id d, but {one} has c",
        f"{two}/t-0: not served, because {one}/t-0 is preferred",
    ]


def test_two_lives_of_a_topic_are_refused(tmp_path: Path) -> None:
    """Also in partitions that only one of them has; everything else is served."""
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0, 0, topic_id=OTHER)
    broker(tmp_path, 2, 0, name="t-1", topic_id=OTHER)
    broker(tmp_path, 2, 0, name="u-0")
    engine = opened(one, two)
    why = f"{two}/t-0: has topic id {IDS[OTHER]}, but {one}/t-0 has {IDS[ONE]}{ADVICE}"
    for number in (0, 1):
        with pytest.raises(LogDirError) as caught:
            engine.log("t", number)
        assert str(caught.value).startswith(why)
    assert values(engine, "u") == [b"broker-2"]
    assert [problem.startswith(why) for problem in engine.problems] == [True]
    rows = list(list_topics(engine, ListTopics()))
    assert sum(isinstance(row, PartitionFailed) for row in rows) == 2
    assert values(opened(one, two, prefer=two)) == [b"broker-2"] * 2
    engine = opened(one, two, prefer=one)
    assert values(engine) == [b"broker-1"]
    with pytest.raises(LogDirError, match=r"topic id .*, which is preferred"):
        engine.log("t", 1)


def test_two_lives_in_one_directory_are_refused(tmp_path: Path) -> None:
    """As after a copy of single partitions: only one of them has another topic id."""
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0)
    broker(tmp_path, 1, 0, name="t-1")
    broker(tmp_path, 2, 0, 0, name="t-1", topic_id=OTHER)
    engine = opened(one, two)
    assert values(engine) == [b"broker-1"]
    with pytest.raises(LogDirError) as caught:
        engine.log("t", 1)
    why = f"{two}/t-1: has topic id {IDS[OTHER]}, but {one}/t-0 has {IDS[ONE]}{ADVICE}"
    assert str(caught.value).startswith(why)
    assert values(opened(one, two, prefer=two), "t", 1) == [b"broker-2"] * 2


def test_what_contradicts_the_preferred_directory_is_reported(tmp_path: Path) -> None:
    """Also in a partition that this directory does not have."""
    one, two, three, four = (broker(tmp_path, 1, 0), *(tmp_path / f"broker-{n}" for n in (2, 3, 4)))
    broker(tmp_path, 2, 0, name="t-1")
    broker(tmp_path, 3, 0, 0, name="t-1", topic_id=OTHER)
    contradicts = (
        f"{three}/t-1: not served, because it has topic id {IDS[OTHER]}, but {one}/t-0 has"
        f" {IDS[ONE]}, which is preferred"
    )
    engine = opened(one, two, three, prefer=one)
    assert values(engine, "t", 1) == [b"broker-2"]
    assert engine.problems == [contradicts]
    broker(tmp_path, 4, 0, 0, 0, name="t-1")
    engine = opened(one, two, three, four, prefer=one)
    assert values(engine, "t", 1) == [b"broker-4"] * 3
    behind = f"{two}/t-1: ends at offset 1, 2 before {four}/t-1, which is served"
    assert engine.problems == [contradicts, behind]


def test_a_refusal_is_forgotten_with_its_cause(tmp_path: Path) -> None:
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 2, 0, topic_id=OTHER)
    engine = opened(one, two)
    with pytest.raises(LogDirError, match="has topic id"):
        engine.log("t", 0)
    assert len(engine.problems) == 1
    shutil.rmtree(two / "t-0")
    assert engine.problems == []
    assert values(engine) == [b"broker-1"]


def test_one_brokers_partition_twice_is_refused(tmp_path: Path) -> None:
    """As after a move between directories that nobody completed."""
    one, two = broker(tmp_path, 1, 0), broker(tmp_path, 1, 0, 0, at="other")
    engine = opened(one, two)
    with pytest.raises(LogDirError) as caught:
        engine.log("t", 0)
    assert str(caught.value).startswith(
        f"{two}/t-0: the same partition of broker 1 as {one}/t-0{ADVICE}"
    )
    assert values(opened(one, two, prefer=two)) == [b"other"] * 2


def test_copies_of_one_directory_are_refused(tmp_path: Path) -> None:
    one, copy = broker(tmp_path, 1, 0), tmp_path / "copy"
    shutil.copytree(one, copy)
    with pytest.raises(LogDirError) as caught:
        opened(one, copy)
    why = f"{copy}: has the directory.id of {one}: one is a copy{ADVICE}"
    assert str(caught.value).startswith(why)
    engine = opened(one, copy, prefer=copy)
    assert engine.log("t", 0).path == f"{copy}/t-0"


def test_the_preferred_directory_must_be_one_of_them(tmp_path: Path) -> None:
    one = broker(tmp_path, 1, 0)
    (tmp_path / "loop").symlink_to("loop")
    wrong_paths = (tmp_path, tmp_path / "no", one / "meta.properties" / "x", tmp_path / "loop")
    for wrong in (*wrong_paths, "a\0b", "s3://bucket"):
        with pytest.raises(ConfigError, match=rf"kafkafs\.prefer\.dir: must be one of {one} "):
            opened(one, prefer=wrong)
    assert values(opened(one, prefer=f"{one}/")) == [b"broker-1"]


class TestCluster:
    """The three brokers of cluster43: broker 2 was killed early, and another leader was elected
    although it missed records; see tests/broker/make_cluster43.py."""

    @pytest.fixture
    def brokers(self, corpus: Callable[[str], Path]) -> list[Path]:
        return [corpus("cluster43") / str(node) for node in (2, 1, 3)]

    def test_records_are_those_of_the_last_leaders(self, brokers: list[Path]) -> None:
        engine = opened(*brokers, prefer="")
        keys = [key for key in answers.offsets("cluster43") if key[0] != "reborn"]
        for topic, number in keys:
            view = engine.log(topic, number).view()
            expected = list(answers.records("cluster43", topic, number))
            assert [(each.offset, each.key, each.value) for each in read(view)] == [
                (each.offset, each.key, each.value) for each in expected
            ]
        assert len(values(engine, "only-on-2")) == 30
        one, two, three = brokers[1], brokers[0], brokers[2]
        differing = [problem for problem in engine.problems if "offset" in problem]
        assert differing == [
            f"{two}/orders-0: ends at offset 150, 100 before {one}/orders-0, which is served",
            f"{two}/orders-1: ends at offset 100, 100 before {one}/orders-1, which is served",
            f"{two}/settings-0: ends at offset 100, 50 before {one}/settings-0, which is served",
            f"{two}/split-0: diverges from {three}/split-0 at offset 100: its latest leader epoch"
            " is 0, not 2; its 40 offsets from there on are not served",
        ]

    def test_two_lives_of_a_topic(self, brokers: list[Path]) -> None:
        with pytest.raises(LogDirError, match=r"2/reborn-0 has \S+ \(the cluster's metadata has "):
            opened(*brokers).log("reborn", 0)
        first = values(opened(*brokers, prefer=brokers[0]), "reborn")
        assert len(first) == 50
        assert b"first life 0" in first
        second = values(opened(*brokers, prefer=brokers[1]), "reborn")
        expected = answers.records("cluster43", "reborn", 0)
        assert second == [each.value for each in expected]

    def test_as_of_a_time_a_topic_with_two_lives_hides_no_other(self, brokers: list[Path]) -> None:
        engine = Engine([str(path) for path in brokers], at_ms=LATER_MS)
        assert engine.topics() == opened(*brokers).topics()
        assert len(values(engine, "split")) == 125
        with pytest.raises(LogDirError, match="has topic id"):
            engine.log("reborn", 0)

    def test_groups_and_topics_are_those_of_the_log_that_reaches_furthest(
        self, brokers: list[Path]
    ) -> None:
        engine = opened(*brokers)
        found: dict[str, dict[str, Any]] = {}
        for row in list_groups(engine, ListGroups()):
            assert isinstance(row, GroupOffset)
            offsets = found.setdefault(row.group.name, {})
            offsets[f"{row.topic}-{row.partition}"] = {"offset": row.offset}
        folder = answers.directory("cluster43")
        assert found == json.loads((folder / "groups.json").read_text())
        said = (folder / "topics.txt").read_text()
        assert {name: topic.topic_id for name, topic in engine.metadata().topics.items()} == dict(
            re.findall(r"^Topic: (\S+)\tTopicId: (\S+)", said, re.MULTILINE)
        )
        assert engine.topic_config("orders").changed["delete.retention.ms"] == "3600000"

    def test_one_broker_alone_knows_less(self, brokers: list[Path]) -> None:
        assert len(values(opened(brokers[0]), "split")) == 140
        rows = list_groups(opened(brokers[0]), ListGroups())
        assert {row.group.name for row in rows if isinstance(row, GroupOffset)} == {
            "billing",
            "early",
        }
