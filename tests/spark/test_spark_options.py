"""Tests of options named as in Spark's Kafka source: their meaning, and errors for wrong ones."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from kafkafs.spark.jobs.job_log_dirs import JobLogDirs
from kafkafs.spark.option_texts import OptionError
from kafkafs.spark.options import EARLIEST, LATEST, ReadOptions
from kafkafs.spark.topic_pattern import compile_topic_pattern
from kafkafs.spark.write.write_options import WriteOptions
from kafkafs.storage.log.read.transactions import Isolation


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/data", **options})


def test_what_is_read_when_nothing_is_said() -> None:
    options = parse()
    assert (options.topics, options.topic_pattern, options.assigned) == (None, None, None)
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert not options.starting.is_time
    assert not options.ending.is_time
    assert options.isolation is Isolation.READ_UNCOMMITTED
    assert options.fail_on_data_loss
    assert not options.permissive
    assert not options.losses
    assert not options.include_headers
    assert options.max_bytes_per_partition == 128 << 20
    assert options.min_partitions is options.max_records_per_partition is None


def test_names_are_compared_without_regard_to_case() -> None:
    options = parse(
        SUBSCRIBE=" a , b,a ", failondataloss="FALSE", **{"Kafka.Isolation.Level": "read_committed"}
    )
    assert options.topics == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.isolation is Isolation.READ_COMMITTED


def test_several_paths() -> None:
    assert parse(path="/a, /b,").paths == ("/a", "/b")
    assert ReadOptions.parse({"paths": '["/a", "file:///b,/c"]'}).paths == ("/a", "/b", "/c")


def test_options_travel_to_the_tasks() -> None:
    options = parse(subscribePattern="ord.*", startingOffsets='{"orders": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_limits_by_partition() -> None:
    options = parse(
        startingOffsets='{"a": {"0": 23, "1": -2}}', endingOffsets='{"a": {"0": -1, "1": 40}}'
    )
    assert options.starting.each == {("a", 0): 23, ("a", 1): EARLIEST}
    assert options.ending.each == {("a", 0): LATEST, ("a", 1): 40}
    assert options.ending.of(("a", 1)) == 40


def test_a_time_for_all_goes_before_times_by_partition_and_these_before_offsets() -> None:
    by_partition = json.dumps({"a": {"0": 7}})
    options = parse(
        startingTimestamp="5",
        startingOffsetsByTimestamp=by_partition,
        endingOffsetsByTimestamp=by_partition,
        endingOffsets="latest",
    )
    assert (options.starting.everywhere, options.starting.is_time) == (5, True)
    assert (options.ending.of(("a", 0)), options.ending.is_time) == (7, True)


def test_how_a_broker_is_reached_means_nothing_here() -> None:
    parse(
        **{
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.sasl.jaas.config": "x",
            "kafka.ssl.truststore.location": "x",
            "groupIdPrefix": "x",
            "maxOffsetsPerTrigger": "10",
        }
    )


def test_unknown_configs_of_kafkas_clients_are_ignored_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        parse(**{"kafka.bootstrp.servers": "x"})
        WriteOptions.parse({"path": "/data", "kafka.lingr.ms": "5"})
    why = "is ignored: kafkafs does not know this config; did you mean"
    assert caplog.messages == [
        f"option kafka.bootstrp.servers {why} kafka.bootstrap.servers?",
        f"option kafka.lingr.ms {why} kafka.linger.ms?",
    ]


def test_a_write_says_which_option_is_wrong_as_it_is_documented() -> None:
    WriteOptions.parse({"path": "/data", "includeheaders": "true"})
    with pytest.raises(OptionError, match="option createTopics: must be a whole number"):
        WriteOptions.parse({"path": "/data", "createtopics": "few"})
    with pytest.raises(OptionError, match=r"option kafka\.transactional\.id: not supported"):
        WriteOptions.parse({"path": "/data", "kafka.Transactional.id": "x"})


def test_settings_of_the_engine() -> None:
    name = "kafkafs.max.batch.bytes"
    assert parse(**{name: "1000000"}).configs == {name: "1000000"}


def test_a_preferred_directory_is_absolute_for_the_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have another working directory."""
    name = "kafkafs.prefer.dir"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    given, found = {name: "logs"}, {name: f"{tmp_path}/logs"}
    assert parse(**given).configs == found
    assert WriteOptions.parse({"path": "/data", **given}).configs == found
    assert dict(JobLogDirs.of("logs", given).configs) == found
    assert dict(JobLogDirs.new(["/new"], {name: f"file://{tmp_path}/logs"}).configs) == found
    (tmp_path / "other").mkdir()
    sides = JobLogDirs.of_both("logs", "other", given)
    assert [dict(each.configs) for each in sides] == [found, {}]
    assert parse(**{name: ""}).configs == {name: ""}
    with pytest.raises(OptionError, match=r"option kafkafs\.prefer\.dir: s3a:/.*of the scheme s3a"):
        parse(**{name: "s3a://logs"})


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("subscribr", "orders", "there is no such option"),
        ("STARTINGOFFSET", "x", "there is no such option; did you mean startingOffsets?"),
        ("kafka.auto.offset.reset", "earliest", "not supported"),
        ("subscribe", " , ", "names no topic"),
        ("subscribePattern", "", "is empty"),
        ("subscribePattern", "(", "a ( without its ) is not supported"),
        ("assign", "orders", 'JSON such as {"orders": [0, 1]}'),
        ("assign", '{"orders": ["0"]}', 'JSON such as {"orders": [0, 1]}'),
        ("assign", "{}", 'JSON such as {"orders": [0, 1]}'),
        ("startingOffsets", "latest", "cannot be latest (-1) in a batch"),
        ("startingOffsets", '{"a": {"0": -1}}', "cannot be latest (-1) in a batch"),
        ("startingOffsets", '{"a": {"0": -3}}', "a-0: -3 is less than -2"),
        ("startingOffsets", '{"a": {"0": true}}', "JSON such as"),
        ("startingOffsets", '{"a": {"0": 1e3}}', "JSON such as"),
        ("startingOffsets", "[" * 100_000, "JSON such as"),
        ("endingOffsets", "earliest", "cannot be earliest (-2) in a batch"),
        ("endingOffsets", '{"a": {"0": -2}}', "cannot be earliest (-2) in a batch"),
        ("endingOffsets", '{"a": [0]}', "JSON such as"),
        ("startingTimestamp", "2018-05-15", "must be a whole number of at least 0"),
        ("endingOffsetsByTimestamp", '{"a": {"0": -1}}', "a-0: -1 is less than 0"),
        ("startingOffsetsByTimestampStrategy", "earliest", "error or latest"),
        ("minPartitions", "0", "must be a whole number of at least 1"),
        ("maxRecordsPerPartition", "many", "must be a whole number of at least 1"),
        ("maxBytesPerPartition", "128m", "must be a whole number of at least 1"),
        ("includeHeaders", "yes", "true or false"),
        ("failOnDataLoss", "", "true or false"),
        ("kafka.isolation.level", "serializable", "read_committed or read_uncommitted"),
        ("mode", "DROPMALFORMED", "failfast or permissive"),
        ("pushFilters", "true", "the plan of one query on a DataFrame for all its other queries"),
        ("timestampDisorderMs", "0", "there is no such option"),
        ("path", "ftp://nn/data", "a URL of the scheme ftp"),
        ("path", " , ", "name the log directories"),
        ("paths", "{}", "not a JSON list"),
    ],
)
def test_what_is_refused_is_named(name: str, value: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(**{name: value})
    assert refused.value.name == name
    assert why in refused.value.why
    assert str(refused.value).startswith("option ")


def test_one_way_to_choose_topics() -> None:
    with pytest.raises(OptionError, match="option assign: cannot be combined with subscribe"):
        parse(subscribe="a", assign='{"a": [0]}')


def test_limits_by_partition_name_the_same_ones() -> None:
    with pytest.raises(OptionError, match=r"option endingOffsets: names other .*: a-1"):
        parse(startingOffsets='{"a": {"0": 1}}', endingOffsets='{"a": {"0": 1, "1": 1}}')


def test_an_end_before_the_start() -> None:
    with pytest.raises(OptionError, match="option endingOffsets: a-0: 3 is before the 4"):
        parse(startingOffsets='{"a": {"0": 4}}', endingOffsets='{"a": {"0": 3}}')


# -- patterns -------------------------------------------------------------------------------------

#: Patterns of java.util.regex, and which of NAMES each finds in Java 17.
NAMES = ("a", "B", "ab", "aB", "a.b", "a_b", "a-b", "9a", "orders", "Orders.v1", "__x")
PATTERNS = {
    "ord.*": "orders",
    "^ord|^a$": "a orders",
    "(?i)ORD": "orders Orders.v1",
    "^a(?i)b$|^b$": "B ab aB",
    "^(?!__|orders).*s$|^(?<first>9)a$": "9a",
    "^[a-z&&[^b-y]]+$": "a",
    r"^\Qa.b\E*$": "a.b",
    r"^a[\w-.]b$": "a.b a_b a-b",
    r"^\p{Lu}|\P{Alnum}$": "B Orders.v1",
    r"^[\p{Digit}\x61]++$": "a 9a",
    r"\u005f{2}+x": "__x",
    r"(?<=a)\W": "a.b a-b",
    "[é-ü]|}": "",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_find_what_they_find_in_java(pattern: str) -> None:
    compiled = compile_topic_pattern(pattern)
    assert " ".join(filter(compiled.search, NAMES)) == PATTERNS[pattern]


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            r"(a)\1",
            r"\Ga",
            r"\R",
            "(?x)a",
            "(?i)\\p{Lower}",
            "[^a[b]]",
            "[a-z&&[b]c]",
            "[a&&&b]",
            "[]a]",
        ),
        *("(?P<a>b)", "(?<=a+)b", "a{,3}", "a**", "*", "a)", "[a", "[b-a]", "\\", r"\p{Foo}"),
        *("a" * 5 + "{99999999999}", "(" * 5000),
    ],
)
def test_what_has_another_meaning_in_java_or_none_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="not supported"):
        compile_topic_pattern(pattern)


# -- streams --------------------------------------------------------------------------------------


def parse_stream(**options: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/data", **options}, streaming=True)


def test_a_stream_begins_with_what_comes() -> None:
    options = parse_stream()
    assert options.starting.everywhere == LATEST
    assert options.max_offsets_per_trigger is options.min_offsets_per_trigger is None
    assert options.max_trigger_delay_ms == 15 * 60 * 1000
    assert parse_stream(startingOffsets='{"a": {"0": -1}}').starting.each == {("a", 0): LATEST}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        *(("700", 700), ("20ms", 20), ("30s", 30_000), (" 2 M ", 120_000), ("1h", 3_600_000)),
        *(("1 hour", 3_600_000), ("interval 1 hour 30 Minutes", 5_400_000), ("1500us", 1)),
    ],
)
def test_times_are_written_as_sparks(text: str, ms: int) -> None:
    assert parse_stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", "latest"),
        ("endingTimestamp", "5"),
        ("endingOffsetsByTimestamp", '{"a": {"0": 5}}'),
        ("at", "2026-09-03"),
    ],
)
def test_what_a_stream_does_not_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: cannot be used in a stream"):
        parse_stream(**{name: value})
    ReadOptions.parse({"path": "/data", name: value}, streaming=None)
    parse(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("minOffsetsPerTrigger", "few"),
        ("maxTriggerDelay", "0"),
        ("maxTriggerDelay", "7 parsecs"),
        ("maxTriggerDelay", "1 hour 30"),
        ("maxTriggerDelay", "soon"),
    ],
)
def test_limits_of_a_stream_that_cannot_be(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=f"option {name}: "):
        parse_stream(**{name: value})


def test_what_only_a_batch_refuses_is_known_when_it_is_one() -> None:
    latest = {"path": "/data", "startingOffsets": "latest"}
    ReadOptions.parse(latest, streaming=None)
    with pytest.raises(OptionError, match="cannot be latest"):
        ReadOptions.parse(latest)
