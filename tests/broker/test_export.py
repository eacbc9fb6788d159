"""Exports of a topic while a broker writes to it, and a broker on what was imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.transfer.export import export
from kafkafs.storage.operations.transfer.import_ import Import, import_logs
from kafkafs.storage.operations.transfer.request import Export, Format
from tests.broker.driver import Driver
from tests.broker.kafka import Broker
from tests.broker.test_live import SMALL_SEGMENTS, check_while
from tests.crash.exporting import exported
from tests.reading import read


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_beside_a_broker_that_writes(
    broker: Broker, driver: Driver, topic: Callable[..., str], tmp_path: Path, format: Format
) -> None:
    """Each run has what was there, a prefix; in the end, everything, and once. An import of that is
    what the broker has."""
    name = topic(SMALL_SEGMENTS)
    output = tmp_path / "out"
    seen = 0

    def check() -> None:
        nonlocal seen
        request = Export(
            str(output),
            Selection.of(name),
            format,
            isolation=Isolation.READ_COMMITTED,
        )
        list(export(Engine(str(broker.log_dir)), request))
        found = exported(output).get((name, 0), [])
        assert found == list(range(len(found)))
        assert len(found) >= seen
        seen = len(found)

    how = {"count": 4_000, "batch": 7, "value_size": 40, "pause_ms": 2}
    check_while(driver.submit("generate", topic=name, partition=0, **how), check)
    assert seen == 4_000
    with LogManager(str(tmp_path / "in")) as engine:
        list(import_logs(engine, Import.of(str(output))))
    logs = [Engine(str(path)).log(name, 0) for path in (broker.log_dir, tmp_path / "in")]
    assert read(logs[0].view()) == read(logs[1].view())
