"""Tests configs: Kafka's own definitions, valid values, and which source takes precedence."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.config.kafka import (
    BrokerConfig,
    Configs,
    ConfigSource,
    TopicConfig,
    broker_config,
    run_configs,
    topic_config,
)
from kafkafs.storage.config.schema import declared
from kafkafs.storage.errors import ConfigError
from tests import answers

DEFINITIONS = [
    line.split("|")
    for line in (answers.DATA / "settings.txt").read_text().splitlines()
    if not line.startswith("#")
]
TOPIC = {name: rest for kind, name, *rest in DEFINITIONS if kind == "topic"}
BROKER = {name: rest for kind, name, *rest in DEFINITIONS if kind == "broker"}


def as_java_prints(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case tuple():
            return f"[{', '.join(value)}]"
        case float():
            return str(value).replace("e+", "E")
    return str(value)


def test_every_topic_config_of_kafka_has_its_name_default_and_brokers_names() -> None:
    table = declared(TopicConfig)
    assert set(table) == set(TOPIC)
    for field in dataclasses.fields(TopicConfig):
        _, default, _, servers = TOPIC[name := field.name.replace("_", ".")]
        assert (name, as_java_prints(field.default)) == (name, default)
        assert f"[{', '.join(server.name for server in table[name].servers)}]" == servers


def test_every_broker_config_has_its_default() -> None:
    for field in dataclasses.fields(BrokerConfig):
        assert as_java_prints(field.default) == BROKER[field.name.replace("_", ".")][1], field.name


@pytest.mark.parametrize("name", [*TOPIC, *declared(BrokerConfig)])
def test_the_range_is_kafkas(name: str) -> None:
    kind, _, validator, *_ = TOPIC.get(name) or BROKER[name]
    if kind not in ("INT", "LONG") or "or" in validator:
        return
    bits = 31 if kind == "INT" else 63
    low, high = -(2**bits), 2**bits - 1
    if validator != "null":
        first, *_, last = validator.strip("[]").split(",")
        low, high = int(first), high if last == "..." else int(last)
    for value in (low, high):
        assert run_configs([(name, str(value))]) == {name: str(value)}
    for value in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=name):
            run_configs([(name, str(value))])


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cleanup.policy", "compact,delete", ("compact", "delete")),
        ("cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "", ()),
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("internal.segment.bytes", "10", 10),
        ("min.cleanable.dirty.ratio", "1.0", 1.0),
        ("min.cleanable.dirty.ratio", "1e-2", 0.01),
        ("preallocate", "TRUE", True),
        ("preallocate", " false ", False),
        ("compression.type", " zstd ", "zstd"),
        ("compression.gzip.level", "-1", -1),
        ("retention.bytes", "-5", -5),
    ],
)
def test_values_as_kafka_reads_them(name: str, text: str, value: object) -> None:
    found = topic_config(Configs(run=run_configs([(name, text)])))
    assert getattr(found.config, name.replace(".", "_")) == value
    assert found.sources == {name: ConfigSource.RUN}


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("cleanup.policy", "Delete", "must be a comma-separated list of: compact, delete"),
        ("cleanup.policy", "compact,", "a comma-separated list of: compact, delete"),
        ("retention.ms", "-2", r"must be a whole number, at least -1 \(got '-2'\)"),
        ("retention.ms", "5.0", "a whole number"),
        ("retention.ms", "", "a whole number"),
        ("retention.ms", "0x5", "a whole number"),
        ("retention.ms", "1_000", "a whole number"),
        ("retention.ms", "9223372036854775808", "a whole number"),
        ("retention.bytes", "x", r"must be a whole number \(got 'x'\)$"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("min.cleanable.dirty.ratio", "1.1", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "NaN", "a number"),
        ("min.cleanable.dirty.ratio", "inf", "a number"),
        ("preallocate", "yes", "true or false"),
        ("compression.type", "none", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "-1, or a whole number from 1 to 9"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("log.retention.hours", "x", "log.retention.hours: must be a whole number"),
        ("log.cleaner.threads", "-1", "at least 0"),
        ("retention.hours", "1", "retention.hours: no such config; did you mean .*retention"),
        ("retention.ms\x1b", "1", r"retention.ms\\x1b: no such config"),
        ("message.format.version", "2.8", "no such config"),
    ],
)
def test_what_kafka_would_refuse_says_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        run_configs([(name, text)])


@given(name=st.sampled_from([*TOPIC, *BROKER]), text=st.text())
def test_any_text_is_a_value_or_refused(name: str, text: str) -> None:
    try:
        run = run_configs([(name, text)])
    except ConfigError as error:
        assert str(error).isprintable()  # noqa: PT017  both outcomes are right
    else:
        topic_config(Configs(run=run))
        broker_config(run)


def test_the_first_source_that_has_a_config_counts() -> None:
    sources: dict[str, Any] = {
        "run": {"retention.ms": "1", "log.retention.hours": "2"},
        "topic_file": {"retention.ms": "3"},
        "topic": {"retention.ms": "4"},
        "broker": {"log.retention.ms": "5"},
        "all_brokers": {"log.retention.ms": "6", "log.retention.minutes": "7"},
    }
    hour, minute = 3_600_000, 60_000
    expected = [
        (("run", "retention.ms"), 1, ConfigSource.RUN),
        (("topic_file", "retention.ms"), 3, ConfigSource.TOPIC_FILE),
        (("topic", "retention.ms"), 4, ConfigSource.TOPIC),
        (("run", "log.retention.hours"), 2 * hour, ConfigSource.RUN_BROKER),
        (("broker", "log.retention.ms"), 5, ConfigSource.BROKER),
        (("all_brokers", "log.retention.ms"), 6, ConfigSource.ALL_BROKERS),
        (("all_brokers", "log.retention.minutes"), 7 * minute, ConfigSource.ALL_BROKERS),
    ]
    for (source, name), value, told in expected:
        found = topic_config(Configs(**sources))
        assert (found.config.retention_ms, found.sources["retention.ms"]) == (value, told)
        del sources[source][name]
    assert topic_config(Configs(**sources)) == topic_config(Configs())


def test_a_negative_time_in_any_unit_is_no_limit() -> None:
    for name in ("log.retention.hours", "log.retention.minutes", "log.retention.ms"):
        run = run_configs([(name, "-7")])
        assert topic_config(Configs(run=run)).config.retention_ms == -1


def test_internal_segment_bytes_may_be_small_and_counts() -> None:
    found = topic_config(Configs(topic={"internal.segment.bytes": "40000"}))
    assert found.config.segment_size == 40000
    assert found.config.segment_bytes == 1 << 30
    assert TopicConfig().segment_size == 1 << 30


def test_what_an_older_broker_wrote_is_used_or_told_and_never_refused() -> None:
    found = topic_config(
        Configs(
            topic={
                "segment.bytes": "11666",
                "message.format.version": "0.9.0",
                "retention.ms": "soon",
                "min.compaction.lag.ms": "10",
                "max.compaction.lag.ms": "9",
            },
            broker={"log.retention.ms": "5", "listeners": "PLAINTEXT://:9092"},
        )
    )
    assert (found.config.segment_size, found.config.retention_ms) == (11666, 5)
    assert [problem.split(": ")[1] for problem in found.problems[:2]] == [
        "retention.ms",
        "message.format.version",
    ]
    assert found.problems[2] == (
        "min.compaction.lag.ms: 10 is greater than max.compaction.lag.ms (9)"
    )


def test_configs_of_a_run_that_contradict_each_other_are_refused() -> None:
    run = run_configs([("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9")])
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms: 10 is greater than max"):
        topic_config(Configs(run=run))


def test_a_brokers_own_configs() -> None:
    run = run_configs([("log.cleaner.threads", "4"), ("retention.ms", "5")])
    assert broker_config(run) == BrokerConfig(log_cleaner_threads=4)


@pytest.mark.parametrize("name", sorted(answers.CORPORA))
def test_the_configs_of_the_corpora_resolve(name: str) -> None:
    for topic in answers.topic_configs(name).values():
        found = topic_config(Configs(topic=topic))
        assert set(found.sources) == set(topic) - {"message.format.version"}
