"""Tests single records of the metadata log, and the image that a sequence of them yields."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.messages.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    parse_metadata_record,
)
from kafkafs.storage.log_dirs.cluster_metadata import MetadataReplay

ORDERS = "nGzD2cX5TF6uAl_9vaE5hA"

# Values that Kafka 4.3.0 wrote.
WRITTEN = [
    ("010200076f72646572739c6cc3d9c5f94c5eae025ffdbda1398400", TopicRecord("orders", ORDERS)),
    (
        "010302000000009c6cc3d9c5f94c5eae025ffdbda13984020000000102000000010101000000010000000000"
        "000000027ff288e1fa09e2ae862a3ecc5eb6c92300",
        PartitionRecord(ORDERS, 0, (1,)),
    ),
    (
        "01040002076f726465727315696e6465782e696e74657276616c2e62797465730435313200",
        ConfigRecord(ResourceType.TOPIC, "orders", "index.interval.bytes", "512"),
    ),
    (
        "0104000401146d696e2e696e73796e632e7265706c69636173023100",
        ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "1"),
    ),
    ("0109007538edb2708c483aa0e1d6bb9101b6ec00", RemoveTopicRecord("dTjtsnCMSDqg4da7kQG27A")),
    ("01170001001212426f6f747374726170207265636f726473", BeginTransactionRecord()),
    ("01180000", EndTransactionRecord()),
    ("01190000", AbortTransactionRecord()),
    ("01140000", None),  # NoOpRecord
]


@pytest.mark.parametrize(("data", "record"), WRITTEN, ids=lambda value: type(value).__name__)
def test_records_that_kafka_wrote(data: str, record: MetadataRecord | None) -> None:
    assert parse_metadata_record(bytes.fromhex(data)) == record


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
        ("01020000", "null in place of a non-nullable string"),
        ("010200026f00", "an id extends past the end"),
        ("01020002ff" + "00" * 16, "a string that is not UTF-8"),
        ("0103000000", "an int32 extends past the end"),
    ],
)
def test_a_broken_record_says_why(data: str, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_metadata_record(bytes.fromhex(data))


def test_every_record_cut_short_is_corrupt() -> None:
    for text, record in WRITTEN[:5]:
        data = bytes.fromhex(text)
        needed = data[: -1 if not isinstance(record, PartitionRecord) else 28]
        assert parse_metadata_record(needed) == record
        for end in range(len(needed)):
            with pytest.raises(CorruptError):
                parse_metadata_record(needed[:end])


@given(
    data=st.binary()
    | st.tuples(st.sampled_from([2, 3, 4, 9]), st.binary()).map(
        lambda parts: bytes([1, parts[0], 0]) + parts[1]
    )
)
def test_any_bytes_are_a_record_or_corrupt(data: bytes) -> None:
    with suppress(CorruptError):
        parse_metadata_record(data)


def config(value: str | None, topic: str = "t", name: str = "retention.ms") -> ConfigRecord:
    return ConfigRecord(ResourceType.TOPIC, topic, name, value)


def replay(*records: MetadataRecord) -> dict[str, tuple[str, set[int], dict[str, str]]]:
    sums = MetadataReplay()
    for record in records:
        sums.apply(record)
    return {
        name: (topic.topic_id, set(topic.partitions), dict(topic.configs))
        for name, topic in sums.image().topics.items()
    }


def test_topics_partitions_and_settings_add_up() -> None:
    assert replay(
        config("1"),  # older brokers write a new topic's configs first
        TopicRecord("t", "ID1"),
        PartitionRecord("ID1", 0, (1,)),
        PartitionRecord("ID1", 1, (1,)),
        config("2"),
        config("compact", name="cleanup.policy"),
        TopicRecord("u", "ID2"),
        config(None, name="cleanup.policy"),
        config(None, topic="never set"),
    ) == {"t": ("ID1", {0, 1}, {"retention.ms": "2"}), "u": ("ID2", set(), {})}


def test_a_topic_made_again_has_nothing_of_the_old_one() -> None:
    assert replay(
        TopicRecord("t", "ID1"),
        PartitionRecord("ID1", 5, (1,)),
        config("1"),
        RemoveTopicRecord("ID1"),
        RemoveTopicRecord("never there"),
        TopicRecord("t", "ID2"),
        PartitionRecord("ID2", 0, (1,)),
    ) == {"t": ("ID2", {0}, {})}


def test_replicas_move() -> None:
    """Tag 1 is the leader and tag 2 the replicas, in the schema's encoding."""
    record = "01050200000000" + WRITTEN[1][0][14:46]
    moved = parse_metadata_record(bytes.fromhex(record + "020104000000020209030000000200000003"))
    assert moved == PartitionChangeRecord(ORDERS, 0, (2, 3))
    elected = parse_metadata_record(bytes.fromhex(record + "01010400000002"))
    assert elected == PartitionChangeRecord(ORDERS, 0, None)
    sums = MetadataReplay()
    for each in (TopicRecord("t", ORDERS), PartitionRecord(ORDERS, 0, (1,)), elected):
        sums.apply(each)
    assert sums.image().topics["t"].partitions == {0: {1}}
    sums.apply(moved)
    assert sums.image().topics["t"].partitions == {0: {2, 3}}


def test_a_transaction_counts_when_it_is_ended() -> None:
    begun = (TopicRecord("t", "ID1"), BeginTransactionRecord(), config("1"))
    assert replay(*begun) == {"t": ("ID1", set(), {})}
    assert replay(*begun, EndTransactionRecord()) == {"t": ("ID1", set(), {"retention.ms": "1"})}
    assert replay(*begun, AbortTransactionRecord(), EndTransactionRecord()) == replay(*begun)


def test_settings_of_brokers_are_kept_apart() -> None:
    sums = MetadataReplay()
    sums.apply(ConfigRecord(ResourceType.BROKER, "", "log.retention.ms", "1"))
    sums.apply(ConfigRecord(ResourceType.BROKER, "3", "log.retention.ms", "2"))
    sums.apply(ConfigRecord(16, "client", "metrics", "3"))
    assert sums.image().brokers == {"": {"log.retention.ms": "1"}, "3": {"log.retention.ms": "2"}}
