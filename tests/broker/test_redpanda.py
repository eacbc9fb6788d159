"""A new Kafka on what `kafkafs revive` makes of a data directory of Redpanda."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.format.files.checkpoints import parse_offsets
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import GroupOffset, ListGroups, list_groups
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.revive.request import Revive
from kafkafs.storage.operations.revive.revive import revive
from tests import answers
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.driver import Driver
from tests.broker.jvm import VERSION
from tests.broker.kafka import Broker, RevivedBroker, free_listener
from tests.broker.test_revive import STILL
from tests.redpanda import convert

CORPUS = "kafka43-clean"
OFFSETS = "__consumer_offsets"
#: A line of kafka-consumer-groups: the group, the topic, the partition, its offset, the log's end.
OFFSET = re.compile(r"(\S+) +(\S+) +(\d+) +(\d+) +(\d+) +\d+ +\S+ +\S+ +\S+ *")


@pytest.mark.slow
def test_a_new_kafka_from_a_data_directory_of_redpanda(
    corpus: Callable[[str], Path],
    tmp_path: Path,
    start_driver: Callable[[Broker], Driver],
) -> None:
    """Redpanda records a group in another partition than Kafka, which finds its offsets anyway."""
    original, data = corpus(CORPUS), tmp_path / "redpanda"
    starts = parse_offsets((original / "log-start-offset-checkpoint").read_bytes())
    convert(original, data, starts)
    topic = data / "kafka" / OFFSETS
    directories = sorted(topic.iterdir())
    for number, directory in enumerate(directories):
        directory.rename(topic / f"moved-{(number + 1) % len(directories)}")
    for directory in sorted(topic.iterdir()):
        directory.rename(topic / f"{directory.name.removeprefix('moved-')}_40")
    for name in ("__cluster_metadata", "__transaction_state"):
        (data / "kafka" / name).rename(data / name)  # which Redpanda does not have
    listener = ("127.0.0.1", free_listener())
    rows = list(revive(Engine(str(data)), Revive(str(tmp_path / "new"), listener=listener)))
    assert not [row for row in rows if isinstance(row, PartitionFailed)]
    broker = RevivedBroker(tmp_path / "new", listener[1], VERSION, STILL)
    try:
        broker.start()
        driver = start_driver(broker)
        for name, level in (("orders", READ_COMMITTED), ("txn", READ_UNCOMMITTED)):
            known = list(answers.records(CORPUS, name, 0, level))
            assert driver.records(name, 0, level) == known
        named = driver.offsets("orders")
        assert (named.beginning, named.end) == (
            answers.offsets(CORPUS)["orders", 0].beginning,
            answers.offsets(CORPUS)["orders", 0].end,
        )
        text = broker.ask("consumer.group.ConsumerGroupCommand", "--describe", "--all-groups")
    finally:
        broker.close()
    found = {match.groups() for line in text.decode().splitlines() if (match := OFFSET.match(line))}
    assert found == {
        tuple(map(str, (row.group.name, row.topic, row.partition, row.offset, row.log_end_offset)))
        for row in list_groups(Engine(str(original)), ListGroups())
        if isinstance(row, GroupOffset) and row.offset is not None
    }
    assert found
