"""Tests single records of the metadata log, and the image that a sequence of them yields."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.messages.message import NO_TAG, SchemaField, parse_schemas
from kafkafs.storage.format.messages.metadata import (
    MetadataRecord,
    RecordType,
    ResourceType,
    metadata_schemas,
    parse_metadata_record,
)
from kafkafs.storage.format.messages.schemas import raft
from kafkafs.storage.metadata.cluster_metadata import MetadataHistory
from kafkafs.storage.metadata.history import changes
from kafkafs.storage.metadata.image import (
    DelegationToken,
    Endpoint,
    MetadataImage,
    PartitionRegistration,
    Quorum,
    Voter,
)
from kafkafs.storage.metadata.reading import MetadataEntry, Problems, QuorumRecord
from kafkafs.storage.metadata.replay import MetadataReplay
from kafkafs.storage.metadata.words import shown_configs
from kafkafs.storage.operations.cluster import ClusterState, ClusterSubject

ORDERS = "nGzD2cX5TF6uAl_9vaE5hA"
_DIRECTORY = "f_KI4foJ4q6GKj7MXrbJIw"


def record(number: RecordType, **data: object) -> MetadataRecord:
    return MetadataRecord(number, data)


# Values that Kafka 4.3.0 wrote.
WRITTEN = [
    (
        "010200076f72646572739c6cc3d9c5f94c5eae025ffdbda1398400",
        record(RecordType.TOPIC, name="orders", topicId=ORDERS),
    ),
    (
        "010302000000009c6cc3d9c5f94c5eae025ffdbda13984020000000102000000010101000000010000000000"
        "000000027ff288e1fa09e2ae862a3ecc5eb6c92300",
        record(
            RecordType.PARTITION,
            partitionId=0,
            topicId=ORDERS,
            replicas=[1],
            isr=[1],
            removingReplicas=[],
            addingReplicas=[],
            leader=1,
            leaderEpoch=0,
            partitionEpoch=0,
            directories=[_DIRECTORY],
        ),
    ),
    (
        "01040002076f726465727315696e6465782e696e74657276616c2e62797465730435313200",
        record(
            RecordType.CONFIG,
            resourceType=ResourceType.TOPIC,
            resourceName="orders",
            name="index.interval.bytes",
            value="512",
        ),
    ),
    (
        "0109007538edb2708c483aa0e1d6bb9101b6ec00",
        record(RecordType.REMOVE_TOPIC, topicId="dTjtsnCMSDqg4da7kQG27A"),
    ),
    (
        "01170001001212426f6f747374726170207265636f726473",
        record(RecordType.BEGIN_TRANSACTION, name="Bootstrap records"),
    ),
    ("01180000", record(RecordType.END_TRANSACTION)),
    ("01190000", record(RecordType.ABORT_TRANSACTION)),
    ("01140000", record(RecordType.NO_OP)),
]


@pytest.mark.parametrize(("data", "found"), WRITTEN, ids=lambda value: type(value).__name__)
def test_records_that_kafka_wrote(data: str, found: MetadataRecord) -> None:
    assert parse_metadata_record(bytes.fromhex(data)) == found


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ("", "a varint extends past the end"),
        ("0002", "frame version 0"),
        ("0202", "frame version 2"),
        ("01", "a varint extends past the end"),
        ("01ffffffffff01", "a varint of more than 5 bytes"),
        ("010200076f7264", "a string extends past the end"),
        ("010200ffffffff0f6f7264", "a string extends past the end"),
        ("01020000", "name is null"),
        ("010200026f00", "an id extends past the end"),
        ("01020002ff" + "00" * 16, "a string that is not UTF-8"),
        ("0103000000", "an int32 extends past the end"),
        (f"{WRITTEN[0][0]}00", "1 bytes after the end of a TopicRecord"),
        (f"{WRITTEN[1][0]}0001", "2 bytes after the end of a PartitionRecord"),
    ],
)
def test_a_broken_record_says_why(data: str, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_metadata_record(bytes.fromhex(data))


def test_every_record_cut_short_is_corrupt() -> None:
    for text, found in WRITTEN[:4]:
        data = bytes.fromhex(text)
        assert parse_metadata_record(data) == found
        for end in range(len(data)):
            with pytest.raises(CorruptError):
                parse_metadata_record(data[:end])


def test_what_a_newer_broker_wrote_is_named() -> None:
    assert parse_metadata_record(b"\x01\x63\0anything") == (
        99, None, "unknown metadata record type 99"
    )  # fmt: skip
    newer = bytes.fromhex(WRITTEN[0][0].replace("010200", "010209", 1))
    assert parse_metadata_record(newer) == (
        *WRITTEN[0][1][:2], "version 9 of TopicRecord, read as version 0, the last known"
    )  # fmt: skip


def changed(version: int, tags: list[tuple[int, bytes]]) -> bytes:
    """Returns the value of a PartitionChangeRecord of partition 0 of ORDERS."""
    head = bytes([1, RecordType.PARTITION_CHANGE, version]) + bytes(4)
    topic_id = bytes.fromhex(WRITTEN[1][0][14:46])
    fields = (bytes([tag, len(data)]) + data for tag, data in tags)
    return head + topic_id + bytes([len(tags)]) + b"".join(fields)


NODES = st.lists(st.integers(-3, 300), max_size=20).map(
    lambda nodes: bytes([len(nodes) + 1]) + struct.pack(f">{len(nodes)}i", *nodes)
)
TAGS = st.tuples(st.sampled_from([0, 2, 6, 7, 9]), NODES | st.just(b"\0")) | st.tuples(
    st.just(1), st.sampled_from([-2, -1, 5]).map(struct.Struct(">i").pack)
)


@given(version=st.integers(0, 2), tags=st.lists(TAGS, max_size=4), end=st.integers(0, 3))
def test_frequent_records_are_read_as_by_their_schema(
    version: int, tags: list[tuple[int, bytes]], end: int
) -> None:
    changes = changed(version, tags)
    partition = bytes.fromhex(WRITTEN[1][0])
    others = partition[:2] + bytes([version]) + partition[3 : len(partition) - end]
    for value in (changes, others):
        schema = metadata_schemas()[value[1]]
        try:
            expected, left = schema.read_first(value[3:], version)
        except CorruptError:
            left = 1
        if left:
            with pytest.raises(CorruptError):
                parse_metadata_record(value)
        else:
            assert parse_metadata_record(value).data == expected


@given(
    data=st.binary()
    | st.tuples(st.sampled_from([2, 3, 4, 9]), st.binary()).map(
        lambda parts: bytes([1, parts[0], 0]) + parts[1]
    )
)
def test_any_bytes_are_a_record_or_corrupt(data: bytes) -> None:
    with suppress(CorruptError):
        parse_metadata_record(data)


def config(value: str | None, topic: str = "t", name: str = "retention.ms") -> MetadataRecord:
    return configured(ResourceType.TOPIC, topic, name, value)


def configured(kind: int, resource: str, name: str, value: str | None) -> MetadataRecord:
    return record(
        RecordType.CONFIG, resourceType=kind, resourceName=resource, name=name, value=value
    )


def topic(name: str, topic_id: str) -> MetadataRecord:
    return record(RecordType.TOPIC, name=name, topicId=topic_id)


def partition(topic_id: str, number: int, nodes: Sequence[int] = (1,)) -> MetadataRecord:
    return record(
        RecordType.PARTITION,
        topicId=topic_id,
        partitionId=number,
        replicas=nodes,
        isr=nodes,
        addingReplicas=[],
        removingReplicas=[],
        leader=nodes[0],
        leaderEpoch=0,
        partitionEpoch=0,
        directories=[f"directory {node}" for node in nodes],
    )


def image(*records: MetadataRecord) -> MetadataImage:
    sums = MetadataReplay()
    for each in records:
        sums.apply(each)
    assert sums.complaints == []
    return sums.image(len(records), 0)


def replay(*records: MetadataRecord) -> dict[str, tuple[str, set[int], dict[str, str]]]:
    return {
        name: (topic.topic_id, set(topic.partitions), dict(topic.configs))
        for name, topic in image(*records).topics.items()
    }


def test_topics_partitions_and_settings_add_up() -> None:
    assert replay(
        config("1"),  # older brokers write a new topic's configs first
        topic("t", "ID1"),
        partition("ID1", 0),
        partition("ID1", 1),
        config("2"),
        config("compact", name="cleanup.policy"),
        topic("u", "ID2"),
        config(None, name="cleanup.policy"),
        config(None, topic="never set"),
    ) == {"t": ("ID1", {0, 1}, {"retention.ms": "2"}), "u": ("ID2", set(), {})}


def test_a_topic_made_again_has_nothing_of_the_old_one() -> None:
    assert replay(
        topic("t", "ID1"),
        partition("ID1", 5),
        config("1"),
        record(RecordType.REMOVE_TOPIC, topicId="ID1"),
        record(RecordType.REMOVE_TOPIC, topicId="never there"),
        topic("t", "ID2"),
        partition("ID2", 0),
    ) == {"t": ("ID2", {0}, {})}


def test_a_partition_changes() -> None:
    begun = topic("t", ORDERS), partition(ORDERS, 0, (1, 2))
    elected = parse_metadata_record(changed(2, [(0, b"\2\0\0\0\2"), (1, b"\0\0\0\2")]))
    now = image(*begun, elected).topics["t"].partitions[0]
    assert now == PartitionRegistration(
        (1, 2), (2,), 2, 1, 1, directories=("directory 1", "directory 2")
    )
    moved = record(RecordType.PARTITION_CHANGE, topicId=ORDERS, partitionId=0, replicas=[3, 2])
    now = image(*begun, elected, moved).topics["t"].partitions[0]
    assert (now.replicas, now.directories, now.leader_epoch, now.partition_epoch) == (
        (3, 2), ("AAAAAAAAAAAAAAAAAAAAAQ", "directory 2"), 1, 2
    )  # fmt: skip
    sums = MetadataReplay()
    sums.apply(moved)
    assert sums.complaints == [
        f"a change of partition 0 of the topic with id {ORDERS}, which no record created"
    ]


def test_the_eligible_leader_replicas_are_cleared() -> None:
    begun = [topic("t", "ID1"), partition("ID1", 0), topic("u", "ID2"), partition("ID2", 0)]
    begun += [
        record(
            RecordType.PARTITION_CHANGE,
            topicId=topic_id,
            partitionId=0,
            eligibleLeaderReplicas=[1],
            lastKnownElr=[2],
        )
        for topic_id in ("ID1", "ID2")
    ]
    for name, left in (("t", {"u"}), ("", set())):
        now = image(*begun, record(RecordType.CLEAR_ELR, topicName=name)).topics
        assert {each for each in now if now[each].partitions[0].elr} == left


def test_a_transaction_counts_when_it_is_ended() -> None:
    begun = (topic("t", "ID1"), record(RecordType.BEGIN_TRANSACTION), config("1"))
    end, abort = record(RecordType.END_TRANSACTION), record(RecordType.ABORT_TRANSACTION)
    assert replay(*begun) == {"t": ("ID1", set(), {})}
    assert replay(*begun, end) == {"t": ("ID1", set(), {"retention.ms": "1"})}
    assert replay(*begun, abort, end) == replay(*begun)


def test_a_transaction_within_another_is_reported() -> None:
    begin = record(RecordType.BEGIN_TRANSACTION, name="second")
    sums = MetadataReplay()
    found = (topic("t", "ID1"), begin, config("1"), begin, config("2", name="cleanup.policy"))
    for each in (*found, record(RecordType.END_TRANSACTION)):
        sums.apply(each)
    assert sums.image(6, 0).topics["t"].configs == {"cleanup.policy": "2"}
    assert sums.complaints == [
        "a transaction begins before the last one ended, whose records (1) have no effect"
    ]
    entries = [MetadataEntry(n, 0, n // 3, 0, each) for n, each in enumerate(found)]
    history = MetadataHistory(MetadataReplay(), MetadataImage(), Problems(), iter(entries))
    assert [each.text for each in changes(history)] == [
        "topic t created, with 0 partitions",
        *(["transaction second is not complete; its records (1) have no effect"] * 2),
    ]


def test_settings_of_resources_are_kept_apart() -> None:
    now = image(
        configured(ResourceType.BROKER, "", "log.retention.ms", "1"),
        configured(ResourceType.BROKER, "3", "log.retention.ms", "2"),
        configured(ResourceType.CLIENT_METRICS, "client", "metrics", "3"),
        configured(ResourceType.GROUP, "g", "x", "4"),
        configured(ResourceType.GROUP, "g", "x", None),
    )
    assert now.configs[ResourceType.BROKER] == {
        "": {"log.retention.ms": "1"}, "3": {"log.retention.ms": "2"}
    }  # fmt: skip
    assert now.configs[ResourceType.CLIENT_METRICS] == {"client": {"metrics": "3"}}
    assert now.configs[ResourceType.GROUP] == {}


def test_an_image_does_not_change() -> None:
    user = {"name": "u", "mechanism": 1}
    begun = [
        *(topic("t", "ID1"), partition("ID1", 0), config("1"), config("1", name="cleanup.policy")),
        record(RecordType.USER_SCRAM_CREDENTIAL, **user, iterations=1),
        quota(b=1.0),
    ]
    sums = MetadataReplay()
    for each in begun:
        sums.apply(each)
    before, copy = sums.image(3, 0), image(*begun)
    for each in (
        *(config("2"), config(None, name="cleanup.policy"), partition("ID1", 1), topic("u", "ID2")),
        record(RecordType.REMOVE_USER_SCRAM_CREDENTIAL, **user),
        *(quota(b=None), quota(c=2.0)),
    ):
        sums.apply(each)
    assert before == copy
    assert sums.image(4, 0).quotas == {(("user", "u"),): {"c": 2.0}}
    assert set(sums.image(6, 0).topics["t"].partitions) == {0, 1}


def quota(**values: float | None) -> MetadataRecord:
    ((key, value),) = values.items()
    entity = [{"entityType": "user", "entityName": "u"}]
    remove = value is None
    return record(
        RecordType.CLIENT_QUOTA, entity=entity, key=key, value=value or 0.0, remove=remove
    )


def test_a_config_is_set_without_a_copy_of_all_others() -> None:
    """A log may be made to slow its reader down."""
    sums = MetadataReplay()
    for n in range(3):
        sums.apply(configured(ResourceType.BROKER, "1", f"n{n}", "1"))
        found = sums._configs[ResourceType.BROKER]["1"]
        sums.apply(configured(ResourceType.BROKER, "1", f"m{n}", "1"))
        assert sums._configs[ResourceType.BROKER]["1"] is found
        sums.image(n, 0)


def test_values_that_may_be_secrets_are_hidden() -> None:
    names = (
        *("listener.name.ssl.ssl.key.password", "Custom.bindPassword", "ssl.keystore.key"),
        *("listener.name.sasl.plain.sasl.jaas.config", "delegation.token.secret.key"),
    )
    assert set(shown_configs(dict.fromkeys(names, "s")).values()) == {"[hidden]"}
    shown = {"password.encoder.iterations": "1", "ssl.key.password.x": "2"}
    assert shown_configs(shown) == shown


def test_a_level_that_a_node_lacks_is_not_supported_by_all() -> None:
    def node(number: int, **features: tuple[int, int]) -> MetadataRecord:
        return record(
            RecordType.REGISTER_CONTROLLER,
            controllerId=number,
            incarnationId="I",
            endPoints=[],
            features=[
                {"name": name, "minSupportedVersion": low, "maxSupportedVersion": high}
                for name, (low, high) in features.items()
            ],
        )

    now = image(node(1, a=(0, 2), b=(3, 9), c=(0, 1)), node(2, a=(0, 1), b=(4, 7)))
    rows = [row.as_json() for row in ClusterState("", now).rows(ClusterSubject.FEATURES)]
    found = {row["feature"]: row["supported"] for row in rows}
    assert found == {"a": [0, 1], "b": [4, 7], "c": [0, 0]}
    now = image(node(1, b=(3, 9)), node(2))
    assert [
        row.as_json()["supported"] for row in ClusterState("", now).rows(ClusterSubject.FEATURES)
    ] == [None]


SMALL = st.sampled_from([-(1 << 15), -2, -1, 0, 1, 2, 3, 4, 16, 127])
VALUES: dict[str, st.SearchStrategy[object]] = {
    "boolean": st.booleans(),
    "float64": st.sampled_from([0.5, 1e9, float("nan"), float("inf")]),
    "uuid": st.sampled_from(["ID1", "ID2"]),
    "string": st.sampled_from(["", "t", "1", "a\n\ud800"]),
    "bytes": st.binary(max_size=2),
}


def messages(parts: Sequence[SchemaField]) -> st.SearchStrategy[dict[str, object]]:
    """Returns what a record with these fields may contain."""

    def values(part: SchemaField) -> st.SearchStrategy[object]:
        one: st.SearchStrategy[object] = VALUES.get(part.kind, SMALL)
        if part.kind == "struct":
            one = messages(part.parts)
        if part.is_array:
            one = st.lists(one, max_size=3)
        return one | st.none() if part.is_nullable else one

    fixed = {part.name: values(part) for part in parts if part.tag == NO_TAG}
    tagged = {part.name: values(part) for part in parts if part.tag != NO_TAG}
    return st.fixed_dictionaries(fixed, optional=tagged)


RECORDS = st.sampled_from(sorted(metadata_schemas().items())).flatmap(
    lambda each: messages(each[1].parts).map(partial(MetadataRecord, each[0]))
)
CONTROLS = st.sampled_from(parse_schemas(raft.SCHEMAS)).flatmap(
    lambda schema: messages(schema.parts).map(
        partial(QuorumRecord, {"L": 2, "S": 3, "K": 5, "V": 6}[schema.name[0]])
    )
)


@given(found=st.lists(RECORDS | CONTROLS, max_size=12))
def test_any_records_add_up_and_are_described(
    found: list[MetadataRecord | QuorumRecord],
) -> None:
    """Whatever they refer to, and whatever their numbers are."""
    entries = [MetadataEntry(n, 0, n // 2, 0, each) for n, each in enumerate(found)]
    problems, replay = Problems(), MetadataReplay()
    history = MetadataHistory(replay, MetadataImage(), problems, iter(entries))
    for change in changes(history):
        json.dumps(change.as_json(), allow_nan=False)
    sums = MetadataReplay()
    for each in found:
        if isinstance(each, QuorumRecord):
            sums.apply_control(*each, 0)
        else:
            sums.apply(each)
    state = ClusterState("", sums.image(1, 0))
    for subject in ClusterSubject:
        json.dumps([row.as_json() for row in state.rows(subject)], allow_nan=False)


def test_tokens_name_their_owners() -> None:
    token = record(
        RecordType.DELEGATION_TOKEN,
        owner="User:a",
        requester="User:b",
        renewers=["User:c"],
        issueTimestamp=1,
        maxTimestamp=3,
        expirationTimestamp=2,
        tokenId="T",
    )
    assert image(token).tokens == {
        "T": DelegationToken("T", "User:a", "User:b", ("User:c",), 1, 3, 2)
    }
    assert image(token, record(RecordType.REMOVE_DELEGATION_TOKEN, tokenId="T")).tokens == {}


def test_a_broker_is_fenced_and_leaves() -> None:
    registered = record(
        RecordType.REGISTER_BROKER,
        brokerId=3,
        brokerEpoch=7,
        incarnationId="I",
        endPoints=[{"name": "SSL", "host": "::1", "port": 9, "securityProtocol": 1}],
        features=[{"name": "f", "minSupportedVersion": 1, "maxSupportedVersion": 2}],
        rack="r",
        fenced=True,
    )
    before = image(registered).brokers[3]
    assert (before.endpoints, before.rack, before.features) == (
        (Endpoint("SSL", "::1", 9, "SSL"),), "r", {"f": (1, 2)}
    )  # fmt: skip
    unfenced = record(RecordType.UNFENCE_BROKER, id=3, epoch=7)
    assert not image(registered, unfenced).brokers[3].fenced
    assert image(registered, unfenced, record(RecordType.FENCE_BROKER, id=3)).brokers[3] == before
    changed = record(RecordType.BROKER_REGISTRATION_CHANGE, brokerId=3, fenced=-1, logDirs=["D"])
    now = image(registered, changed).brokers[3]
    assert (now.fenced, now.log_dirs, now.in_controlled_shutdown) == (False, ("D",), False)
    stopped = record(
        RecordType.BROKER_REGISTRATION_CHANGE,
        brokerId=3,
        fenced=1,
        inControlledShutdown=1,
        cordonedLogDirs=["D"],
    )
    now = image(registered, changed, stopped).brokers[3]
    assert (now.fenced, now.cordoned_log_dirs, now.in_controlled_shutdown) == (True, ("D",), True)
    assert texts(registered, changed, stopped, changed)[1:] == [
        *("broker 3 unfenced", "broker 3 has the log directories: D", "broker 3 fenced"),
        *("broker 3 is in controlled shutdown", "broker 3 has the cordoned log directories: D"),
        "broker 3 unfenced",
    ]
    assert image(registered, record(RecordType.UNREGISTER_BROKER, brokerId=3)).brokers == {}


def texts(*found: MetadataRecord) -> list[str]:
    """Returns the history of records that were written one by one."""
    entries = [MetadataEntry(n, 0, n, 0, each) for n, each in enumerate(found)]
    history = MetadataHistory(MetadataReplay(), MetadataImage(), Problems(), iter(entries))
    return [each.text for each in changes(history)]


def test_features_and_the_migration_from_zookeeper() -> None:
    levels = [record(RecordType.FEATURE_LEVEL, name="f", featureLevel=level) for level in (2, 3, 0)]
    assert image(*levels[:2]).features == {"f": 3}
    assert image(*levels).features == {}
    states = [record(RecordType.ZK_MIGRATION_STATE, zkMigrationState=each) for each in (2, 9)]
    assert texts(*levels, *states) == [
        *("feature f set to level 2", "feature f set to level 3, before 2"),
        "feature f set to level 0, before 3",
        *("migration from ZooKeeper: MIGRATION", "migration from ZooKeeper: 9"),
    ]


def test_a_config_belongs_to_a_new_topic_only_by_its_type() -> None:
    begun = [topic("t", "ID1"), config("1"), configured(ResourceType.GROUP, "t", "a", "2")]
    entries = [MetadataEntry(n, 0, 0, 0, each) for n, each in enumerate(begun)]
    history = MetadataHistory(MetadataReplay(), MetadataImage(), Problems(), iter(entries))
    assert [each.text for each in changes(history)] == [
        "topic t created, with 0 partitions and retention.ms=1",
        "configs of group t: a=2 set",
    ]


def test_a_quorum_with_voters_of_its_own() -> None:
    sums = MetadataReplay()
    voters: list[dict[str, object]] = [
        {
            "voterId": voter,
            "voterDirectoryId": f"D{voter}",
            "endpoints": [{"name": "CONTROLLER", "host": "h", "port": voter}],
        }
        for voter in (1, 2)
    ]
    sums.apply_control(ControlType.KRAFT_VERSION, {"kRaftVersion": 1}, 3)
    sums.apply_control(ControlType.KRAFT_VOTERS, {"voters": voters}, 3)
    elected = {"leaderId": 2, "voters": [{"voterId": 1}, {"voterId": 2}]}
    sums.apply_control(ControlType.LEADER_CHANGE, elected, 4)
    expected = {n: Voter(n, f"D{n}", (Endpoint("CONTROLLER", "h", n, ""),)) for n in (1, 2)}
    assert sums.image(0, 0).quorum == Quorum(2, 4, expected, 1)
