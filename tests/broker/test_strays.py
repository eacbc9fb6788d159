"""Topics that a KRaft broker does not know: creating them is refused, and strays can be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkafs.cli.main import cli
from kafkafs.storage.errors import Unregistered
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests.broker.driver import Driver, Message
from tests.broker.kafka import Broker
from tests.building import build_batch


def kafkafs(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def test_a_topic_made_offline_becomes_a_stray_whose_records_are_read(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    driver = start_driver(broker)
    known_id = driver.create_topic("known", partitions=2)
    driver.produce("known", [Message(b"k", b"v")])
    driver.close()
    broker.stop()
    data = broker.log_dir

    refused = kafkafs("topic", "create", data, "made")
    assert refused.exit_code == 1
    assert "belongs to a KRaft cluster" in refused.stderr
    assert "--unregistered" in refused.stderr
    assert not list(data.glob("made-*"))
    with LogManager(str(data)) as engine:
        with pytest.raises(Unregistered):
            engine.create_partitions("known", 3)
        assert engine.topics()["known"] == [0, 1]
        assert engine.topic_id("known") == known_id

    assert kafkafs("topic", "create", "--unregistered", data, "made").exit_code == 0
    with LogManager(str(data)) as engine:
        records = [SimpleRecord(5, b"key", b"value %d" % n) for n in range(7)]
        engine.writer("made", 0).append(build_batch(records))
    broker.start()
    broker.stop()

    (stray,) = data.glob("made-0.*-stray")
    listed = kafkafs("topic", "list", "--json", data)
    (row,) = [each for each in map(json.loads, listed.stdout.splitlines()) if each["isStray"]]
    assert row["topic"] == stray.name
    assert row["partitions"][0]["endOffset"] == 7
    assert f"{stray.name} " in kafkafs("topic", "list", data).stdout
    values = kafkafs("cat", data, f"{stray.name}/0/values").stdout
    assert values.splitlines() == [f"value {n}" for n in range(7)]
    assert kafkafs("cat", data, f"{stray.name}/0/key/key").stdout == "value 6"
    assert kafkafs("stat", data, f"{stray.name}/0/offset/3").exit_code == 0
    assert kafkafs("why", data, f"{stray.name}/0").exit_code == 0
    assert stray.name not in kafkafs("ls", data).stdout
    assert kafkafs("topic", "delete", data, stray.name).exit_code == 1
    assert stray.is_dir()


def test_directories_that_no_broker_has_used_take_topics(tmp_path: Path) -> None:
    assert kafkafs("topic", "create", tmp_path / "own", "made").exit_code == 0
    with LogManager(str(tmp_path / "own")) as engine:
        engine.create_partitions("made", 4)
        assert engine.topics() == {"made": [0, 1, 2, 3]}


def test_a_topic_that_the_cluster_knows_can_be_made_by_its_id(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    driver = start_driver(broker)
    topic_id = driver.create_topic("lost", partitions=1)
    driver.close()
    broker.stop()
    (lost,) = broker.log_dir.glob("lost-0")
    lost.rename(broker.log_dir.parent / "lost-0")
    assert kafkafs("topic", "create", broker.log_dir, "lost").exit_code == 1
    words = ("topic", "create", "--topic-id", topic_id, broker.log_dir, "lost")
    assert kafkafs(*words).exit_code == 0
    broker.start()
    broker.stop()
    assert (broker.log_dir / "lost-0").is_dir()
    assert not list(broker.log_dir.glob("*-stray"))
