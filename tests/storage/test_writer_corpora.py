"""Appends the partitions of real brokers again with the engine: every file is the same."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import Configs, TopicConfig, topic_config
from kafkafs.storage.format.checksum import crc32c
from kafkafs.storage.format.records.validate import AppendOrigin
from kafkafs.storage.log.append.writer import LogWriter
from tests.logs import Header, walk
from tests.test_logs import as_appended, contents
from tests.writing import open_log

LOG_APPEND_TIME = 0x08
LATER = 1_800_000_000_000


def settings_of(expected: Path, topic: str) -> TopicConfig:
    """Returns the config with which the broker wrote `topic`."""
    topics = json.loads((expected / "partitions.json").read_text())
    configs = topics.get(topic, {"configs": {}})["configs"]
    texts = {name: config["value"] for name, config in configs.items()}
    return topic_config(Configs(topic=texts)).config


def as_sent(header: Header) -> bytes:
    """Returns a batch as its producer sent it, without the offset and the append time."""
    if not header.attributes & LOG_APPEND_TIME:
        return bytes(8) + header.data[8:]
    covered = struct.pack(">h", header.attributes & ~LOG_APPEND_TIME) + header.data[23:]
    return bytes(8) + header.data[8:17] + struct.pack(">I", crc32c(covered)) + covered


def append(writer: LogWriter, header: Header, clock: SetClock, topic: str) -> None:
    """Appends one batch, as the producer or the coordinator sent it."""
    is_append_time = bool(header.attributes & LOG_APPEND_TIME)
    clock.value = header.max_timestamp if is_append_time else LATER
    if header.magic < 2:
        appended = writer.append(header.data, AppendOrigin.REPLICATION)
    else:
        from_client = not header.is_control and not topic.startswith("__")
        origin = AppendOrigin.CLIENT if from_client else AppendOrigin.COORDINATOR
        appended = writer.append(as_sent(header), origin)
        assert appended.first_offset == header.base_offset
    assert appended.last_offset == header.last_offset
    assert not appended.is_duplicate


@pytest.mark.parametrize(("name", "count"), [("kafka43-clean", 25), ("kafka39", 14)])
def test_a_brokers_partitions_are_written_alike(
    name: str,
    count: int,
    corpus: Callable[[str], Path],
    expected: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    partitions = as_appended(corpus(name))
    assert len(partitions) == count
    for theirs in partitions:
        topic = theirs.name.rpartition("-")[0]
        clock = SetClock(LATER)
        writer = open_log(tmp_path / theirs.name, settings_of(expected(name), topic), clock)
        for log in sorted(theirs.glob("*.log")):
            for header in walk(log.read_bytes()):
                append(writer, header, clock, topic)
        writer.close()
        assert contents(tmp_path / theirs.name) == contents(theirs), theirs.name
