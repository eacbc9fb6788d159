"""Runs a real broker on the loopback interface that serves a generated log to kcat."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.data import TOPIC
from tests.broker.driver import Driver
from tests.broker.kafka import Broker


@contextmanager
def serving(log_dir: Path) -> Iterator[Broker]:
    """Runs a broker with the partition of `log_dir`, which was copied in while it was stopped."""
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-broker-") as directory:
        broker = Broker(Path(directory))
        broker.start()
        try:
            client = Driver(broker.bootstrap, Path(directory) / "driver.log")
            client.create_topic(TOPIC)
            client.close()
            broker.stop()
            _put(log_dir / f"{TOPIC}-0", broker.log_dir / f"{TOPIC}-0")
            broker.start()
            yield broker
        finally:
            broker.close()


def _put(source: Path, target: Path) -> None:
    """Replaces the files of an empty partition, keeping its topic ID."""
    for path in target.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in source.iterdir():
        if path.name != "partition.metadata":
            shutil.copyfile(path, target / path.name)
