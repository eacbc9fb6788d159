"""Tests of `kafkafs.open`: directories, their topics and partitions, single records."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import kafkafs
from kafkafs.api.reading import UnreadWarning
from kafkafs.storage.clock import milliseconds
from tests import answers

Corpus = Callable[[str], Path]


@pytest.fixture
def clean(corpus: Corpus) -> kafkafs.LogDirectories:
    return kafkafs.open(corpus("kafka43-clean"))


def test_everything_public_is_there_and_nothing_else() -> None:
    for name in kafkafs.__all__:
        assert hasattr(kafkafs, name)
    assert dir(kafkafs) == sorted(kafkafs.__all__)


def test_version_is_that_of_the_package() -> None:
    pyproject = Path(__file__).parents[2] / "pyproject.toml"
    project = tomllib.loads(pyproject.read_text())["project"]
    assert project["version"] == kafkafs.__version__


def test_topics_are_those_of_the_broker(clean: kafkafs.LogDirectories) -> None:
    topics = clean.topics
    listed = [(topic, number) for topic, numbers in topics.items() for number in numbers]
    # A broker hides the cluster metadata in the same directory from its clients.
    assert listed == [("__cluster_metadata", 0), *answers.partitions("kafka43-clean")]
    assert [(p.topic, p.partition) for p in clean] == listed
    assert list(topics) == sorted(topics)


def test_topics_are_a_copy(clean: kafkafs.LogDirectories) -> None:
    clean.topics["orders"].append(99)
    assert clean.topics["orders"] == [0, 1, 2]


@pytest.mark.parametrize("corpus_name", ["kafka28", "kafka39", "kafka43-clean"])
def test_offsets_are_those_of_the_broker(corpus: Corpus, corpus_name: str) -> None:
    with kafkafs.open(corpus(corpus_name)) as directory:
        for (topic, number), expected in answers.offsets(corpus_name).items():
            partition = directory[topic, number]
            assert partition.start_offset == expected.beginning
            assert partition.end_offset == expected.end
            assert partition.last_stable_offset == expected.last_stable


def test_topic_ids_are_those_of_the_broker(clean: kafkafs.LogDirectories) -> None:
    for topic, topic_id in answers.topic_ids("kafka43-clean").items():
        assert clean.topic_id(topic) == topic_id


@pytest.mark.parametrize(
    "form", [lambda a, b: f"{a},{b}", lambda a, b: [a, b], lambda a, b: [str(a), b]]
)
def test_several_directories_are_one(
    corpus: Corpus, form: Callable[[Path, Path], str | list[Path]]
) -> None:
    root = corpus("kafka43-two-dirs")
    with kafkafs.open(form(root / "dir1", root / "dir2")) as directory:
        listed = [(p.topic, p.partition) for p in directory]
    assert listed == [("__cluster_metadata", 0), *answers.partitions("kafka43-two-dirs")]


def test_a_path_may_have_a_comma(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "a,b").symlink_to(corpus("kafka43-clean"))
    assert "orders" in kafkafs.open(tmp_path / "a,b").topics


def test_a_record(clean: kafkafs.LogDirectories) -> None:
    expected = next(r for r in answers.records("kafka43-clean", "orders", 0) if r.offset == 600)
    record = clean["orders", 0].record(600)
    assert record.offset == 600
    assert record.timestamp == expected.timestamp
    assert record.timestamp_type.kafka_name == expected.timestamp_type
    assert (record.key, record.value) == (expected.key, expected.value)
    assert record.headers == list(expected.headers)


def test_a_record_that_is_not_there(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(kafkafs.OffsetNotFound, match="offset 6674 is past the end of orders/0"):
        clean["orders", 0].record(6674)


def test_a_record_of_an_aborted_transaction(clean: kafkafs.LogDirectories) -> None:
    partition = clean["txn", 0]
    with pytest.raises(kafkafs.OffsetNotFound):
        partition.record(12)
    assert partition.record(12, isolation="read_uncommitted").offset == 12


def test_no_such_topic_or_partition(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(kafkafs.UnknownTopic, match="did you mean orders or unordered"):
        clean["ordres", 0]
    with pytest.raises(kafkafs.UnknownPartition, match="orders has no partition 3"):
        clean["orders", 3]


def test_an_isolation_level_that_kafka_does_not_know(clean: kafkafs.LogDirectories) -> None:
    with pytest.raises(ValueError, match="serializable"):
        clean["orders", 0].record(1, isolation="serializable")


def test_offset_for_time(clean: kafkafs.LogDirectories) -> None:
    partition = clean["orders", 0]
    timestamp = partition.record(600).timestamp
    assert partition.offset_for_time(timestamp) == 600
    moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    assert partition.offset_for_time(moment) == 600
    assert partition.offset_for_time(datetime(2100, 1, 1, tzinfo=UTC)) is None
    assert partition.offset_for_time(0) == 0


@pytest.mark.parametrize(
    ("time", "expected_ms"),
    [
        (1526384718288, 1526384718288),
        (datetime(2018, 5, 15, 11, 45, 18, 288000, UTC), 1526384718288),
        (datetime(2018, 5, 15, 11, 45, 18, 288000), 1526384718288),
        (
            datetime(2018, 5, 15, 13, 45, 18, 288000, timezone(timedelta(hours=2))),
            1526384718288,
        ),
        # A record 0.001 ms before the requested time is not at or after it.
        (datetime(2018, 5, 15, 11, 45, 18, 288001, UTC), 1526384718289),
        (datetime(1969, 12, 31, 23, 59, 59, 999500, UTC), 0),
    ],
)
def test_times_in_milliseconds(time: int | datetime, expected_ms: int) -> None:
    assert milliseconds(time) == expected_ms


def test_a_time_is_no_float() -> None:
    time: Any = 1526384718.288
    with pytest.raises(TypeError):
        milliseconds(time)


def test_what_is_no_log_directory(tmp_path: Path) -> None:
    with pytest.raises(kafkafs.LogDirError, match="not a Kafka log directory"):
        kafkafs.open(tmp_path)
    with pytest.raises(kafkafs.LogDirError, match="no such directory"):
        kafkafs.open(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("retention.mz", "1", "no such config; did you mean retention.ms"),
        ("retention.ms", "-2", "-2"),
        ("kafkafs.open.files", "many", "many"),
    ],
)
def test_a_wrong_setting(corpus: Corpus, name: str, value: str, why: str) -> None:
    with pytest.raises(kafkafs.ConfigError, match=why) as caught:
        kafkafs.open(corpus("kafka43-clean"), configs={name: value})
    assert caught.value.name == name


def test_a_setting_counts(corpus: Corpus) -> None:
    small = kafkafs.open(corpus("kafka43-clean"), configs={"kafkafs.max.batch.bytes": "1000"})
    with pytest.raises(kafkafs.CorruptError, match=r"config kafkafs\.max\.batch\.bytes"):
        small["orders", 0].record(600)


def test_a_partition_outlives_the_closing_of_its_directory(corpus: Corpus) -> None:
    with kafkafs.open(corpus("kafka43-clean")) as directory:
        partition = directory["orders", 0]
    assert partition.record(600).offset == 600


def test_a_topic_alone_is_no_partition(clean: kafkafs.LogDirectories) -> None:
    name: Any = "orders"
    with pytest.raises(TypeError, match=r"directory\[TOPIC, NUMBER\], not directory\['orders'\]"):
        clean[name]


def test_a_directory_as_of_a_time(corpus: Corpus) -> None:
    """A time in any form, and the present beside it."""
    noon = datetime(2026, 9, 3, tzinfo=UTC)
    with kafkafs.open(corpus("kafka43-clean")) as now:
        orders = now["orders", 0]
        end = orders.offset_for_time(milliseconds(noon) + 1)
        latest = max(r.offset for r in orders.records(end=end) if r.key == b"customer-519")
        for at in (noon, "2026-09-03", milliseconds(noon)):
            with kafkafs.open(corpus("kafka43-clean"), at=at) as then:
                assert then["orders", 0].end_offset == end
                found = then["orders", 0].latest("customer-519")
                assert found is not None
                assert found.offset == latest
        compacted = orders.compacted(at=noon)
        assert compacted.summary["records"]["before"] == end
        assert compacted.summary["at"] == milliseconds(noon)


def test_the_past_cannot_be_changed(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"writable": True, "at": 5}  # which no overload accepts
    with pytest.raises(ValueError, match="the past cannot be changed"):
        kafkafs.open(tmp_path / "new", **arguments)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="'soon' is not a time"):
        kafkafs.open(tmp_path, at="soon")


def test_offsets_in_remote_storage_that_are_not_read_are_a_warning(
    corpus: Corpus, recwarn: pytest.WarningsRecorder
) -> None:
    tiered = corpus("tier43")
    unread = "t-gzip/0: offsets 0 to 350 are in remote storage, and were not read;"
    with kafkafs.open(tiered / "logs") as directory:
        partition = directory["t-gzip", 0]
        with pytest.warns(UnreadWarning, match=unread):
            partition.records()
        partition.records()  # warns once
        assert directory.problems == [f"{unread} see the config kafkafs.tier"]
        with pytest.warns(UnreadWarning, match="t-lz4/0: offsets 0 to 200 "):
            directory.views("t-lz4")
        directory["t-many", 0].records(start=directory["t-many", 0].start_offset)
    configs = {"kafkafs.tier": str(tiered / "tier")}
    with kafkafs.open(tiered / "logs", configs=configs) as directory:
        assert len(list(directory["t-gzip", 0].records())) == 351
        assert directory.problems == []
    assert not recwarn.list
