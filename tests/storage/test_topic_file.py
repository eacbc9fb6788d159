"""Tests kafkafs's own file of topic configs: it round-trips, and damage is rejected."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.config.topic_file import (
    TOPIC_CONFIGS_FILE,
    TopicConfigFiles,
    format_topic_configs,
    parse_topic_configs,
)
from kafkafs.storage.errors import ConfigError, CorruptError
from kafkafs.storage.format.files.names import is_legal_topic
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log_dirs.engine import Engine
from tests.logs import write_log_dir

topics = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(is_legal_topic)
printable = st.characters(codec="utf-8").filter(str.isprintable)
texts = st.text(printable, min_size=1).map(str.strip).filter(bool)
configs = st.dictionaries(
    topics, st.dictionaries(st.sampled_from(["retention.ms", "cleanup.policy"]), texts, min_size=1)
)


@given(configs)
def test_what_is_written_is_read_back(given_configs: dict[str, dict[str, str]]) -> None:
    assert parse_topic_configs(format_topic_configs(given_configs)) == given_configs


@given(
    st.binary() | st.text(st.sampled_from("[]=:#;% \n\r\tab.\x1c\x85"), max_size=60).map(str.encode)
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        found = parse_topic_configs(data)
    except CorruptError as error:
        assert str(error).isprintable()  # noqa: PT017  both outcomes are right
    else:
        assert all(map(is_legal_topic, found))
        assert parse_topic_configs(format_topic_configs(found)) == found


def test_a_file_written_by_hand() -> None:
    text = b"""\
# mine
[DEFAULT]
retention.ms=5
[a.b-c]
cleanup.policy = compact,delete
# and a level
compression.gzip.level   =   9
"""
    assert parse_topic_configs(text) == {
        "DEFAULT": {"retention.ms": "5"},
        "a.b-c": {"cleanup.policy": "compact,delete", "compression.gzip.level": "9"},
    }
    assert parse_topic_configs(b"") == {}


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"retention.ms = 5\n", "^position 0: line 1"),
        (b"[a]\n[a]\n", "^position 4: line 2"),
        (b"[a]\nx = 1\nx = 2\n", "line 3"),
        (b"[a]\nretention.ms\n", "line 2"),
        (b"[a]\nretention.ms = 1\n 2\n", "a config of a is not one line"),
        (b"[../a]\n", "not a legal topic name"),
        (b"[a b]\n", "not a legal topic name"),
        (b"[\xff]\n", "not UTF-8"),
    ],
)
def test_a_damaged_file_is_refused_and_the_place_told(data: bytes, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        parse_topic_configs(data)


@pytest.fixture
def dirs(tmp_path: Path) -> list[WritableDirFd]:
    for number, name in enumerate(("one", "two")):
        write_log_dir(tmp_path / name, {}, directory_id=f"{'A' * 20}{number}A")
        (tmp_path / name / f"orders-{number}").mkdir()
    return [WritableDirFd(tmp_path / name) for name in ("one", "two")]


def put(directory: WritableDirFd, text: str, changed_ns: int) -> None:
    path = Path(directory.path, TOPIC_CONFIGS_FILE)
    path.write_text(text)
    os.utime(path, ns=(changed_ns, changed_ns))


def test_the_file_that_was_changed_last_counts(dirs: list[WritableDirFd]) -> None:
    put(dirs[0], "[orders]\nretention.ms = 1\n", 10**18)
    put(dirs[1], "[orders]\nretention.ms = 2\n", 10**18 + 1)
    found = TopicConfigFiles(dirs)
    assert found.of("orders") == {"retention.ms": "2"}
    assert found.stale == (dirs[0],)
    found.write(dirs[0])
    assert TopicConfigFiles(dirs).stale == ()
    # The reading engine follows the same rule.
    engine = Engine([directory.path for directory in dirs])
    assert engine.topic_config("orders").config.retention_ms == 2
    put(dirs[1], "[orders]\nretention.ms = soon\n", 2 * 10**18)
    resolved = engine.topic_config("orders")
    assert resolved.config.retention_ms == 604_800_000
    assert resolved.problems[0].startswith("kafkafs's configs of the topic: retention.ms: must be")


def test_changes(dirs: list[WritableDirFd]) -> None:
    found = TopicConfigFiles(dirs)
    assert (found.of("orders"), found.stale) == ({}, ())
    found.replace("orders", found.changed("orders", {"retention.ms": " 5 ", "flush.ms": "1"}))
    found.replace("orders", found.changed("orders", {"flush.ms": None, "preallocate": "true"}))
    for directory in dirs:
        found.write(directory)
    again = TopicConfigFiles(dirs)
    assert again.of("orders") == {"retention.ms": "5", "preallocate": "true"}
    again.replace("orders", {})
    again.write(dirs[0])
    assert TopicConfigFiles(dirs[:1]).of("orders") == {}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("retention.hours", "5", "no such config; did you mean .*retention"),
        ("log.retention.ms", "5", "no such config"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "1000", "at least 1048576"),
        ("leader.replication.throttled.replicas", "a\n[b]\nx", "must be one line"),
        ("nothing.such", None, "no such config"),
    ],
)
def test_what_kafka_would_refuse_is_refused(
    dirs: list[WritableDirFd], name: str, text: str | None, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        TopicConfigFiles(dirs).changed("orders", {name: text})


def test_a_damaged_file_stops_who_would_write_and_is_told_to_who_reads(
    dirs: list[WritableDirFd],
) -> None:
    put(dirs[0], "no section\n", 10**18)
    with pytest.raises(CorruptError, match=TOPIC_CONFIGS_FILE):
        TopicConfigFiles(dirs)
    engine = Engine([directory.path for directory in dirs])
    assert engine.topic_config("orders").changed == {}
    assert [line for line in engine.problems if TOPIC_CONFIGS_FILE in line]


def test_its_absence_is_no_problem(dirs: list[WritableDirFd]) -> None:
    engine = Engine([directory.path for directory in dirs])
    engine.topic_config("orders")
    assert [line for line in engine.problems if TOPIC_CONFIGS_FILE in line] == []
