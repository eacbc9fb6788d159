"""Groups as a broker of Kafka 4.3 described them, and as its coordinator would replay them."""

from __future__ import annotations

import base64
import errno
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import UnknownGroup
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.messages.coordinator_records import (
    CoordinatorRecord,
    group_coordinator_records,
)
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.groups.coordinator import GroupReplay, GroupType, ModernGroup
from kafkafs.storage.groups.groups import GroupsReader, coordinator_partition
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import (
    GroupMember,
    GroupOffset,
    ListGroups,
    ListMembers,
    list_groups,
    list_members,
)
from kafkafs.storage.operations.request import PartitionFailed
from tests import answers
from tests.batches import MUTATIONS, mutated
from tests.building import BatchFields, build_batch, build_end_txn_marker
from tests.group_records import (
    commit,
    commit_key,
    commit_value,
    group_record,
    group_tombstone,
    text,
)
from tests.logs import write_partition, write_topic
from tests.profiles import percent
from tests.reading import UNCOMMITTED

Corpus = Callable[[str], Path]
OFFSETS = "__consumer_offsets"
NOW = 1_800_000_000_000


def answered(name: str) -> list[dict[str, Any]]:
    """Returns the Admin API's answers about groups43, a JSON object for each line of a file."""
    lines = (answers.DATA / "expected/groups43" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def rows_of(engine: Engine, *names: str) -> list[GroupOffset]:
    """Returns the rows of groups, which must be without damage."""
    rows = list(list_groups(engine, ListGroups(names)))
    found = [row for row in rows if isinstance(row, GroupOffset)]
    assert found == rows
    return found


class TestTheBrokersAnswers:
    def test_offsets_and_lags(self, corpus: Corpus) -> None:
        rows = [row.as_json() for row in rows_of(Engine(str(corpus("groups43"))))]
        names = {"leaderEpoch": "leader_epoch", "logStartOffset": "log_start"}
        names |= {"logEndOffset": "log_end"}
        fields = ["group", "type", "state", "topic", "partition", "offset", "leaderEpoch"]
        fields += ["metadata", "logStartOffset", "logEndOffset", "lag"]
        expected = [
            {field: row[names.get(field, field)] for field in fields}
            for row in answered("groups.jsonl")
        ]
        assert [{field: row[field] for field in fields} for row in rows] == expected
        assert list(rows[0]) == [*fields[:8], "commitTimestamp", *fields[8:], "lagMs", "problem"]

    def test_problems(self, corpus: Corpus) -> None:
        found = {
            (row.group.name.removeprefix("billing-"), row.topic, row.partition): str(row.problem)
            for row in rows_of(Engine(str(corpus("groups43"))))
            if row.problem is not None
        }
        below = "below the log start offset"
        assert found == {
            ("beyond", "main", 0): "beyond the log end offset",
            ("early", "aged", 0): below,
            ("early", "trim", 0): below,
            ("kip848", "trim", 0): below,
            ("meta", "trim", 0): below,
            ("share", "trim", 0): below,
        }

    def test_groups_at_four_moments(self, corpus: Corpus) -> None:
        expected = answered("groups-at.jsonl")
        moments = sorted({row["at"] for row in expected})
        assert len(moments) == 4
        for at in moments:
            rows = rows_of(Engine(str(corpus("groups43")), at_ms=at))
            found = [
                (
                    *(row.group.name, row.group.type, row.group.state, row.topic, row.partition),
                    *(row.offset, row.leader_epoch, row.metadata),
                )
                for row in rows
            ]
            fields = ("group", "type", "state", "topic", "partition", "offset", "leader_epoch")
            assert found == [
                tuple(row[field] for field in (*fields, "metadata"))
                for row in expected
                if row["at"] == at
            ]

    def test_members(self, corpus: Corpus) -> None:
        rows = list(list_members(Engine(str(corpus("groups43"))), ListMembers()))
        fields = {
            "member_id": "memberId",
            "instance_id": "instanceId",
            "client_id": "clientId",
            **{name: name for name in ("group", "type", "host", "rack", "assignor", "assignment")},
        }
        found = {}
        for row in rows:
            assert isinstance(row, GroupMember)
            json_row = row.as_json()
            found[json_row["memberId"]] = {name: json_row[of] for name, of in fields.items()}
        expected = {row["member_id"]: row for row in answered("members.jsonl")}
        # The Admin API leaves out the rack that a classic member's subscription has.
        racks = {"c-amber-b7d8895d-5189-4f6a-81bd-8ebd8c2e422d": "r1"}
        for name, rack in racks.items():
            assert expected[name]["rack"] is None
            expected[name]["rack"] = rack
        assert found == expected

    @pytest.mark.parametrize("name", ["kafka28", "kafka39", "kafka43-clean", "kafka43-two-dirs"])
    def test_groups_of_other_brokers(self, name: str, corpus: Corpus) -> None:
        """Also those of old coordinators. Aborted commits do not count, and a deleted group is not
        there, even if it had no record of its own that could have been removed."""
        path = answers.directory(name) / "groups.json"
        root = corpus(name)
        dirs = sorted(root.glob("dir*")) or [root]
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for row in rows_of(Engine([str(each) for each in dirs])):
            found.setdefault(row.group.name, {})[f"{row.topic}-{row.partition}"] = {
                "offset": row.offset,
                "metadata": row.metadata,
                "leader_epoch": row.leader_epoch,
            }
        assert found == json.loads(path.read_text(encoding="utf-8"))

    def test_unknown_groups_are_reported_with_those_that_exist(self, corpus: Corpus) -> None:
        engine = Engine(str(corpus("groups43")))
        with pytest.raises(UnknownGroup, match="no group billing-walkre; did you mean billing-wal"):
            rows_of(engine, "billing-walkre")
        with pytest.raises(UnknownGroup, match=r"there are billing-beyond, .* and 10 more"):
            rows_of(engine, "zzz")
        then = Engine(str(corpus("groups43")), at_ms=1_700_000_000_000)
        with pytest.raises(UnknownGroup, match=r"no group x at 2023-11-14T22:13:20.000Z; no g"):
            rows_of(then, "x")
        with pytest.raises(UnknownGroup, match="no groups are recorded"):
            rows_of(Engine(str(corpus("kafka43-crash"))), "x")


# -- transactions ----------------------------------------------------------------------------------

Step = tuple[str, int, int, int | None]  # what, producer, partition, offset

steps = st.lists(
    st.tuples(
        st.sampled_from(("plain", "plain", "txn", "txn", "commit", "abort")),
        st.integers(0, 1),
        st.integers(0, 2),
        st.none() | st.integers(0, 99),
    ),
    max_size=14,
)


def batches(taken: list[Step]) -> Iterator[bytes]:
    """Yields a batch for each step, at the offset and time of its number."""
    for at, (what, producer, partition, offset) in enumerate(taken):
        fields = BatchFields(base_offset=at)
        if what != "plain":
            fields = replace(fields, producer_id=producer, producer_epoch=0)
        if what in ("commit", "abort"):
            kind = ControlType.COMMIT if what == "commit" else ControlType.ABORT
            yield build_end_txn_marker(kind, at, 0, fields)
            continue
        if what == "txn":
            fields = replace(fields, is_transactional=True, base_sequence=at)
        yield build_batch([commit("g", "t", partition, offset, timestamp=at)], fields)


def replayed(taken: list[Step]) -> tuple[dict[int, int], bool]:
    """Replays steps like Kafka's OffsetMetadataManager; returns the offsets by partition, and
    whether there are any, or some in open transactions."""
    offsets: dict[int, tuple[int, int]] = {}  # the record's offset, and the committed one
    pending: dict[int, dict[int, tuple[int, int]]] = {}
    for at, (what, producer, partition, offset) in enumerate(taken):
        if what in ("commit", "abort"):
            for key, (record, committed) in pending.pop(producer, {}).items():
                if what == "commit" and record > offsets.get(key, (-1, 0))[0]:
                    offsets[key] = record, committed
        elif offset is None:
            offsets.pop(partition, None)
            for each in pending.values():
                each.pop(partition, None)
        elif what == "txn":
            pending.setdefault(producer, {})[partition] = at, offset
        else:
            offsets[partition] = at, offset
    found = {partition: offset for partition, (_, offset) in offsets.items()}
    return found, bool(found) or any(pending.values())


@given(steps, st.integers(-1, 14))
def test_transactions_count_as_the_coordinator_replays_them(taken: list[Step], at: int) -> None:
    """Also as of a time, which is the number of the last step that is seen."""
    with tempfile.TemporaryDirectory() as place:
        log_dir = write_topic(Path(place), batches(taken), topic=OFFSETS)
        for at_ms, seen in ((None, taken), (at, taken[: at + 1])):
            image = GroupsReader(Engine(str(log_dir), at_ms=at_ms)).image()
            assert image.failed == []
            offsets, exists = replayed(seen)
            assert list(image.groups) == ["g"] * exists
            found = image.offsets(image.groups["g"]) if exists else []
            assert {each.partition: each.offset for each in found} == offsets


# -- lags ------------------------------------------------------------------------------------------


def engine_of(tmp_path: Path, records: list[SimpleRecord], *, log: list[int]) -> Engine:
    """Returns an engine of a topic t with records of these timestamps, and these records of
    `__consumer_offsets`."""
    write_topic(tmp_path, [build_batch([SimpleRecord(at) for at in log])] if log else [])
    write_topic(tmp_path, [build_batch(records)], topic=OFFSETS)
    return Engine(str(tmp_path), at_ms=NOW)


def test_the_age_is_that_of_the_oldest_unread_record(tmp_path: Path) -> None:
    records = [commit(f"g{at}", "t", 0, at) for at in range(4)]
    engine = engine_of(tmp_path, records, log=[NOW - 500, -1, NOW - 100])
    rows = rows_of(engine)
    assert [row.lag_ms for row in rows] == [500, None, 100, None]
    assert [row.lag for row in rows] == [3, 2, 1, 0]


def test_control_records_and_what_was_compacted_away_have_no_age(tmp_path: Path) -> None:
    transaction = BatchFields(producer_id=7, producer_epoch=0, is_transactional=True)
    marker = BatchFields(base_offset=1, producer_id=7, producer_epoch=0)
    log = [
        build_batch([SimpleRecord(NOW - 900)], transaction),
        build_end_txn_marker(ControlType.COMMIT, NOW - 800, 0, marker),
        build_batch([], BatchFields(base_offset=2, last_offset=4, max_timestamp=NOW - 700)),
        build_batch([SimpleRecord(NOW - 600)], BatchFields(base_offset=6, last_offset=8)),
        build_batch([], BatchFields(base_offset=9, last_offset=9, max_timestamp=NOW - 500)),
    ]
    write_topic(tmp_path, log)
    commits = [commit(f"g{at}", "t", 0, at) for at in range(11)]
    write_topic(tmp_path, [build_batch(commits)], topic=OFFSETS)
    rows = rows_of(Engine(str(tmp_path), at_ms=NOW))
    by_offset = {row.offset: (row.lag, row.lag_ms) for row in rows}
    assert by_offset[0] == (10, 900)
    assert [by_offset[at] for at in range(1, 7)] == [(10 - at, 600) for at in range(1, 7)]
    assert [by_offset[at] for at in range(7, 11)] == [(10 - at, None) for at in range(7, 11)]


def test_what_is_not_here_is_no_reason_to_stop(tmp_path: Path) -> None:
    records = [commit("g", "elsewhere", 0, 7), commit("g", "t", 1, 7), commit("g", "t", 0, 2)]
    rows = rows_of(engine_of(tmp_path, records, log=[NOW, NOW]))
    assert [(row.topic, row.partition, row.lag, str(row.problem)) for row in rows] == [
        ("elsewhere", 0, None, "the partition is not in these directories"),
        ("t", 0, 0, "None"),
        ("t", 1, None, "the partition is not in these directories"),
    ]


def test_a_partition_that_cannot_be_read_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr("kafkafs.storage.operations.groups._first_timestamp", fails)
    records = [commit("g", "t", 0, 0), commit("h", "t", 0, 0)]
    rows = list(list_groups(engine_of(tmp_path, records, log=[NOW]), ListGroups()))
    found = [row for row in rows if isinstance(row, GroupOffset)]
    assert [(row.group.name, row.lag, row.lag_ms) for row in found] == [
        ("g", 1, None),
        ("h", 1, None),
    ]
    failed = [row for row in rows if isinstance(row, PartitionFailed)]
    assert [row.where for row in failed] == ["t-0"]


def test_offsets_that_the_coordinator_would_remove(tmp_path: Path) -> None:
    """The rules of KIP-211, with a retention of 5 minutes, which a run must give."""
    minute = 60_000
    old = NOW - 5 * minute
    records = [
        commit("simple", "t", 0, 1, timestamp=old),
        commit("simple", "t", 1, 1, timestamp=old + 1),
        group_record("empty", emptied=old),
        commit("empty", "t", 0, 1, timestamp=NOW),
        group_record("emptied", emptied=old + 1),
        commit("emptied", "t", 0, 1, timestamp=0),
        group_record("stable", topics=("t",)),
        commit("stable", "t", 0, 1, timestamp=0),
        commit("stable", "u", 0, 1, timestamp=old),
        group_record("other", "connect", topics=("t",)),
        commit("other", "u", 0, 1, timestamp=0),
        *(
            SimpleRecord(0, commit_key("v1", "t", at), commit_value(1, 1, timestamp=0, expires=end))
            for at, end in enumerate((NOW, NOW + 1))
        ),
        commit("open", "t", 0, 1, timestamp=0),
    ]
    write_topic(tmp_path, [build_batch([SimpleRecord(NOW)] * 2)])
    pending = BatchFields(base_offset=len(records), producer_id=1, producer_epoch=0)
    batches = [
        build_batch(records),
        build_batch([commit("open", "t", 0, 2)], replace(pending, is_transactional=True)),
    ]
    write_topic(tmp_path, batches, topic=OFFSETS)
    configs = {"offsets.retention.minutes": "5"}
    rows = rows_of(Engine(str(tmp_path), configs, at_ms=NOW))
    expired = [row for row in rows if row.problem == "older than offsets.retention.minutes"]
    assert [(row.group.name, row.topic, row.partition) for row in expired] == [
        ("empty", "t", 0),
        ("simple", "t", 0),
        ("stable", "u", 0),
        ("v1", "t", 0),
    ]
    rows = rows_of(Engine(str(tmp_path), at_ms=NOW))
    assert {row.problem and str(row.problem) for row in rows} == {
        None,
        "the partition is not in these directories",
    }


def test_the_topics_that_a_group_subscribes_to() -> None:
    subscriber: dict[str, Any] = {**JOINED, "subscribedTopicNames": ["a"]}
    by_pattern: dict[str, Any] = {
        **JOINED,
        "subscribedTopicNames": [],
        "subscribedTopicRegex": "b.*",
    }
    matches = {"regularExpression": "b.*"}
    records: list[Applied] = [
        (5, M1, subscriber),
        (5, M2, by_pattern),
        (16, {"regularExpression": "c"}, {"topics": ["c"]}),
        (16, matches, {"topics": ["b1", "b2"]}),
    ]
    assert applied(*records).subscribed_topics() == {"a", "b1", "b2"}
    assert applied(*records, (16, matches, None)).subscribed_topics() == {"a"}
    assert applied(*records, (5, M1, None)).subscribed_topics() == {"b1", "b2"}
    part = {"sourceTopics": ["in"], "repartitionSourceTopics": [{"name": "again"}]}
    topology: Applied = (23, {}, {"epoch": 1, "subtopologies": [part]})
    assert applied((19, M1, JOINED), topology).subscribed_topics() == {"in", "again"}
    assert set(applied(topology).subscribed_topics()) == set()


def test_a_recreated_topic(tmp_path: Path) -> None:
    value = [commit_value(1, 4, tags=((0, bytes([number]) * 16),)) for number in (1, 2)]
    records = [
        SimpleRecord(0, commit_key(f"g{number}", "t", 0), value[number]) for number in (0, 1)
    ]
    rows = rows_of(engine_of(tmp_path, records, log=[NOW]))
    assert [row.problem and str(row.problem) for row in rows] == [
        None,
        "the topic was recreated with another id",
    ]


def test_topics_that_were_deleted_or_recreated(tmp_path: Path, corpus: Corpus) -> None:
    """The coordinator removes such offsets, but may have been stopped before."""
    log_dir = shutil.copytree(corpus("groups43"), tmp_path / "data")
    old_id = base64.urlsafe_b64decode("FUjfUkUxBPCZYv5QfqEH7Q==")
    records = [
        commit("late", "doomed", 0, 3),
        SimpleRecord(0, commit_key("late", "reborn", 0), commit_value(4, 4, tags=((0, old_id),))),
    ]
    with (log_dir / f"{OFFSETS}-0" / "00000000000000000000.log").open("ab") as log:
        log.write(build_batch(records, BatchFields(base_offset=24)))
    rows = rows_of(Engine(str(log_dir)), "late")
    assert [(row.topic, row.log_end_offset, row.lag, str(row.problem)) for row in rows] == [
        ("doomed", None, None, "the topic was deleted"),
        ("reborn", 9, 5, "the topic was recreated with another id"),
    ]


def test_damaged_and_unknown_records_are_reported_and_the_rest_is_shown(tmp_path: Path) -> None:
    key = commit_key("g", "t", 0)
    records = [
        commit("g", "t", 0, 1),
        SimpleRecord(0, key[:-1], commit_value(1)),
        SimpleRecord(0, key, commit_value(1)[:-1]),
        SimpleRecord(0, struct.pack(">h", 99) + text("g"), b""),
        SimpleRecord(0, None, b"x"),
        SimpleRecord(0, struct.pack(">h", 2) + text("g"), struct.pack(">h", 9)),
        commit("h", "t", 0, 1),
    ]
    rows = list(list_groups(engine_of(tmp_path, records, log=[NOW]), ListGroups()))
    failed = [row for row in rows if isinstance(row, PartitionFailed)]
    assert [row.group.name for row in rows if isinstance(row, GroupOffset)] == ["g", "h"]
    path = tmp_path / f"{OFFSETS}-0" / "00000000000000000000.log"
    assert {row.where for row in failed} == {f"{OFFSETS}-0"}
    assert [row.error.removeprefix(f"{path}: position 0: ") for row in failed] == [
        "offset 1: an int32 extends past the end of its record",
        "offset 2: an int64 extends past the end of its record",
        "offset 3: unknown record type 99",
        "offset 4: the record has no key",
        "offset 5: unknown version 9 of GroupMetadataValue",
    ]


def test_a_removed_group_comes_back_with_its_next_commit(tmp_path: Path) -> None:
    records = [commit("g", "t", 0, 1), commit("h", "t", 0, 1)]
    records += [commit("g", "t", 0, None), group_tombstone("g"), group_tombstone("h")]
    records += [commit("h", "t", 1, 5)]
    image = GroupsReader(engine_of(tmp_path, records, log=[])).image()
    assert list(image.groups) == ["h"]
    # The coordinator does not remove the offsets of a group that it removes: it does so before.
    assert [each.partition for each in image.offsets(image.groups["h"])] == [0, 1]


def test_partitions_are_listed_in_order(tmp_path: Path) -> None:
    record = group_record("g", topics=("t", "u"), assigned=(10, 9, 2))
    engine = engine_of(tmp_path, [record], log=[])
    (row,) = list_members(engine, ListMembers())
    assert isinstance(row, GroupMember)
    assert row.as_json()["assignment"] == ["t-2", "t-9", "t-10"]


def test_the_tombstone_of_a_consumer_group_removes_one_that_only_has_offsets(
    tmp_path: Path,
) -> None:
    removed = [SimpleRecord(0, struct.pack(">h", 3) + text(name), None) for name in "ghc"]
    records = [commit("g", "t", 0, 1), commit("h", "t", 0, 1), group_record("c")]
    records += [*removed, commit("h", "t", 1, 1)]
    image = GroupsReader(engine_of(tmp_path, records, log=[])).image()
    assert list(image.groups) == ["c", "h"]


def test_a_group_without_a_record_and_an_offset_does_not_exist(tmp_path: Path) -> None:
    """Coordinators before 4.0 write no tombstone for a group without a record."""
    gone = [commit("gone", "t", 0, 1), commit("gone", "t", 0, None)]
    records = [*gone, commit("half", "t", 0, 1), commit("half", "t", 1, 1)]
    records += [commit("half", "t", 1, None)]
    image = GroupsReader(engine_of(tmp_path, records, log=[])).image()
    assert list(image.groups) == ["half"]
    with pytest.raises(UnknownGroup):
        image.group("gone")


def test_the_image_is_read_again_only_after_a_change(tmp_path: Path) -> None:
    engine_of(tmp_path, [commit("g", "t", 0, 1)], log=[NOW])
    reader = GroupsReader(Engine(str(tmp_path)))
    image = reader.image()
    assert reader.image() is image
    assert image.offsets(image.group("g")) is image.offsets(image.group("g"))
    log = tmp_path / f"{OFFSETS}-0" / "00000000000000000000.log"
    with log.open("ab") as file:
        file.write(build_batch([commit("h", "t", 0, 1)], BatchFields(base_offset=1)))
    assert list(reader.image().groups) == ["g", "h"]


@pytest.fixture(scope="module")
def recorded(corpus: Corpus) -> list[SimpleRecord]:
    """Returns the records of groups43 in `__consumer_offsets`."""
    engine = Engine(str(corpus("groups43")))
    return [
        SimpleRecord(0, part.key(row), part.value(row))
        for number in range(3)
        for part in engine.log(OFFSETS, number).view().read(isolation=UNCOMMITTED)
        for row in range(len(part))
    ]


@settings(max_examples=percent(25))
@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans(), MUTATIONS), max_size=20))
def test_no_record_is_so_bad_that_the_others_are_not_shown(
    recorded: list[SimpleRecord], changes: list[tuple[int, bool, Any]]
) -> None:
    records = list(recorded)
    for which, is_key, mutations in changes:
        at = which % len(records)
        key, value = records[at].key, records[at].value
        if is_key and key is not None:
            key = mutated(key, mutations)
        elif value is not None:
            value = mutated(value, mutations)
        records[at] = SimpleRecord(0, key, value)
    with tempfile.TemporaryDirectory() as place:
        write_topic(Path(place), [build_batch(records)], topic=OFFSETS)
        engine = Engine(place)
        json.dumps([row.as_json() for row in list_members(engine, ListMembers())])
        json.dumps([row.as_json() for row in list_groups(engine, ListGroups())])
        assert len(GroupsReader(engine).image().groups) > 10


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "partitions", "expected"),
    # Kafka's Utils.abs(group.hashCode()) % partitions
    [
        ("billing", 50, 9),
        ("", 50, 0),
        ("polygenelubricants", 50, 0),
        ("ä日本😀", 3, 1),
        ("g", 0, -1),
    ],
)
def test_the_partition_of_a_group(group: str, partitions: int, expected: int) -> None:
    assert coordinator_partition(group, partitions) == expected


def test_a_group_in_two_partitions_is_the_one_in_its_own(tmp_path: Path) -> None:
    for number in (0, 1):
        records = [commit(group, "t", 0, number) for group in "gh"]
        write_partition(tmp_path / f"{OFFSETS}-{number}", [build_batch(records)])
    rows = rows_of(Engine(str(tmp_path)))
    assert [(row.group.name, row.offset) for row in rows] == [("g", 1), ("h", 0)]


Applied = tuple[int, dict[str, Any], dict[str, Any] | None]


def applied(*records: Applied) -> ModernGroup:
    """Returns group g after records of a type, with a member or none, and a value."""
    replay = GroupReplay(group_coordinator_records().by_name)
    for at, (number, key, value) in enumerate(records):
        replay.apply(CoordinatorRecord(number, {"groupId": "g", **key}, value), at)
    group = replay.groups["g"]
    assert isinstance(group, ModernGroup)
    return group


M1, M2 = {"memberId": "m1"}, {"memberId": "m2"}
JOINED = {"clientId": "c", "clientHost": "/h", "serverAssignor": None}


def current(epoch: int, state: int = 0) -> dict[str, Any]:
    return {"memberEpoch": epoch, "state": state, "assignedPartitions": []}


def test_the_states_of_a_consumer_group() -> None:
    records: list[Applied] = [(3, {}, {"epoch": 2})]
    states = [str(applied(*records).state)]
    later: list[Applied] = [
        (5, M1, JOINED),
        (6, {}, {"assignmentEpoch": 2}),
        (8, M1, current(1)),
        (8, M1, current(2, 1)),
        (8, M1, current(2)),
        (5, M2, JOINED),
        (8, M2, current(2)),
        (3, {}, {"epoch": 3}),
        (8, M1, None),
        (6, {}, {"assignmentEpoch": 3}),
        (5, M1, None),
        (8, M2, current(3)),
        (5, M2, None),
    ]
    for record in later:
        records.append(record)
        states.append(str(applied(*records).state))
    assert states == [
        *("Empty", "Assigning", "Reconciling", "Reconciling", "Reconciling", "Stable"),
        *("Reconciling", "Stable", "Assigning", "Assigning", "Reconciling", "Reconciling"),
        *("Stable", "Empty"),
    ]


def test_a_group_begins_with_epoch_1_and_an_empty_target_assignment_of_it() -> None:
    records: list[Applied] = [(5, M1, JOINED)]
    group = applied(*records)
    assert (group.state, group.epoch) == ("Reconciling", 1)
    assert applied(*records, (8, M1, current(1))).state == "Stable"
    assert applied(*records, (3, {}, {"epoch": 2})).state == "Assigning"


def test_the_topology_of_epoch_0_is_valid_at_first() -> None:
    records: list[Applied] = [(19, M1, JOINED), (23, {}, {"epoch": 0, "subtopologies": []})]
    assert applied(*records).state == "Reconciling"
    assert applied(*records, (17, {}, {"epoch": 1})).state == "NotReady"


def test_a_streams_group() -> None:
    topology = {"epoch": 1, "subtopologies": []}
    tasks = [{"subtopologyId": "0", "partitions": [2, 1]}]
    records: list[Applied] = [
        (17, {}, {"epoch": 2, "validatedTopologyEpoch": 0}),
        (19, M1, {**JOINED, "instanceId": "i", "rackId": "r"}),
        (23, {}, topology),
    ]
    assert applied(*records).state == "NotReady"
    records += [
        (17, {}, {"epoch": 2, "validatedTopologyEpoch": 1}),
        (20, {}, {"assignmentEpoch": 2}),
        (22, M1, {"memberEpoch": 2, "state": 1, "activeTasks": tasks, "standbyTasks": tasks}),
    ]
    group = applied(*records)
    assert (group.type, group.state, group.protocol_type) == (
        GroupType.STREAMS,
        "Stable",
        "streams",
    )
    (member,) = group.members()
    assert (member.instance_id, member.rack, member.assignor) == ("i", "r", None)
    assert [(each.kind, each.topic, each.partitions) for each in member.assignment] == [
        ("active", "0", (2, 1)),
        ("standby", "0", (2, 1)),
    ]
