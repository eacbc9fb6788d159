"""A real broker opens what kafkafs has erased records from, without a complaint, and its consumers
read all other records."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli
from kafkafs.storage.log_manager import LogManager
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.driver import Driver, Message
from tests.broker.handover import check_producers, warnings
from tests.broker.kafka import Broker
from tests.broker.readers import EngineReader, without_epoch
from tests.erasing import CONFIGS, KEY, TOPIC, fill, traces
from tests.waiting import wait_until


@pytest.mark.slow
def test_a_broker_serves_all_other_records(
    start_broker: Callable[..., Broker], start_driver: Callable[[Broker], Driver]
) -> None:
    broker = start_broker()
    driver = start_driver(broker)
    driver.create_topic(TOPIC, 1, CONFIGS)
    partition = broker.log_dir / f"{TOPIC}-0"
    wait_until(partition.is_dir)
    refused = CliRunner().invoke(cli, ["erase", "--offset", "0", str(broker.log_dir), f"{TOPIC}/0"])
    assert (refused.exit_code, refused.stderr) == (
        1,
        f"kafkafs: {TOPIC}/0: no record at offset 0 is on the disk\n",
    )
    driver.produce(TOPIC, [Message(KEY, b"of a person")], 0)
    line = ["--key", KEY.decode(), str(broker.log_dir), TOPIC]
    dry = CliRunner().invoke(cli, ["erase", "--dry-run", *line])
    assert dry.exit_code == 0
    assert "to be rewritten" in dry.stdout
    refused = CliRunner().invoke(cli, ["erase", *line])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "has it locked" in refused.stderr
    driver.close()
    broker.stop()
    assert CliRunner().invoke(cli, ["erase", *line]).exit_code == 0

    now = time.time_ns() // 1_000_000
    with LogManager(str(broker.log_dir)) as engine:
        fill(engine.writer(TOPIC, 0), now_ms=now)
        end = engine.writer(TOPIC, 0).end_offset
        states = {(TOPIC, 0): engine.writer(TOPIC, 0).producer_states()}
    levels = (READ_COMMITTED, READ_UNCOMMITTED)
    expected = {
        level: [
            each for each in EngineReader([broker.log_dir], level).records(TOPIC) if each.key != KEY
        ]
        for level in levels
    }
    done = CliRunner().invoke(cli, ["erase", "--key", KEY.decode(), str(broker.log_dir), TOPIC])
    assert done.exit_code == 0
    assert traces(partition) == []

    said = broker.output.stat().st_size
    for is_clean in (True, False):
        broker.start()
        driver = start_driver(broker)
        check_producers(states, driver)
        for level in levels:
            assert without_epoch(driver.records(TOPIC, 0, level)) == expected[level]
        assert driver.offsets(TOPIC).end == end
        driver.close()
        broker.stop() if is_clean else broker.kill()
        if is_clean:  # the next start has to rebuild everything from the `.log` files
            (broker.log_dir / ".kafka_cleanshutdown").unlink()
            (broker.log_dir / "recovery-point-offset-checkpoint").unlink()
            for snapshot in partition.glob("*.snapshot"):
                snapshot.unlink()
    assert warnings(broker, said) == []
    broker.start()
    driver = start_driver(broker)
    [offset] = driver.produce(TOPIC, [Message(b"k", b"appended", now)], 0)
    assert offset == end
    driver.close()
    broker.stop()
