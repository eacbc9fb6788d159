"""The broker and its driver behave as the live tests assume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.broker.driver import Driver, Message
from tests.broker.jvm import KafkaError
from tests.broker.kafka import Broker


def test_what_was_produced_comes_back(broker: Broker, driver: Driver) -> None:
    driver.create_topic("echo", configs={"compression.type": "zstd"})
    sent = [
        Message(b"key", b"value", 1_700_000_000_000, (("name", b"\xff"), ("none", None))),
        Message(None, None, 1_700_000_000_001),
        Message(b"", b"", 1_700_000_000_002),
    ]
    assert driver.produce("echo", sent, batch=2) == [0, 1, 2]
    found = driver.records("echo")
    assert [Message(r.key, r.value, r.timestamp, r.headers) for r in found] == sent
    assert driver.call("times", topic="echo", partition=0, timestamps=[0, 1_700_000_000_002]) == [
        0,
        2,
    ]
    assert (broker.log_dir / "echo-0").is_dir()


def test_isolation_levels_differ_by_aborted_and_open_transactions(driver: Driver) -> None:
    driver.create_topic("isolation")
    for name, end in (("kept", "commit"), ("dropped", "abort"), ("open", None)):
        producer: dict[str, Any] = {"producer": f"isolation-{name}", "transactional": True}
        driver.call("begin", **producer)
        driver.produce("isolation", [Message(None, name.encode())], **producer)
        if end:
            driver.call(end, **producer)
    committed = driver.records("isolation")
    everything = driver.records("isolation", isolation="read_uncommitted")
    assert [record.value for record in committed] == [b"kept"]
    assert [record.value for record in everything] == [b"kept", b"dropped", b"open"]
    offsets = driver.offsets("isolation")
    assert (offsets.beginning, offsets.last_stable, offsets.end) == (0, 4, 5)


def test_a_refusal_is_an_error_that_says_why(driver: Driver) -> None:
    with pytest.raises(KafkaError, match="UnknownTopicOrPartition"):
        driver.call("delete_topic", topic="never-made")


def test_a_clean_stop_leaves_its_mark_and_a_crash_does_not(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    mark = broker.log_dir / ".kafka_cleanshutdown"
    driver = start_driver(broker)
    driver.create_topic("survivor")
    driver.call("generate", topic="survivor", partition=0, count=250, batch=50)
    broker.stop()
    assert mark.exists()
    broker.start()
    assert not mark.exists()
    broker.kill()
    assert not mark.exists()
    broker.start()
    found = start_driver(broker).records("survivor")
    assert [record.value for record in found] == [str(n).encode() for n in range(250)]
