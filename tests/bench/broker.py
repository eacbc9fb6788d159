"""Runs real brokers on the loopback interface: one that serves a generated log, and one with an
empty topic."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.bench import data, trial
from tests.bench.data import TOPIC
from tests.broker.driver import Driver
from tests.broker.kafka import Broker

#: The topics of brokers, as (process id, topic).
_created: set[tuple[int, str]] = set()


def serving(log_dir: Path) -> AbstractContextManager[Broker]:
    """Runs a broker with the partition of `log_dir`, which was copied in while it was stopped. The
    rows of a trial share it."""
    return trial.shared(f"serving {log_dir}", lambda: _serving(log_dir))


@contextmanager
def with_topic(
    topic: str, partitions: int = 1, jvm_options: Sequence[str] = ()
) -> Iterator[Broker]:
    """Runs a broker with an empty topic. The rows of a trial share one broker, whose topics may
    have records."""
    with trial.shared("with topics", lambda: _running(jvm_options)) as broker:
        if (broker.pid, topic) not in _created:
            client = Driver(broker.bootstrap, broker.output.with_name("driver.log"))
            client.create_topic(topic, partitions)
            client.close()
            _created.add((broker.pid, topic))
        yield broker


@contextmanager
def _running(jvm_options: Sequence[str]) -> Iterator[Broker]:
    data.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="broker-", dir=data.cache()) as directory:
        broker = Broker(Path(directory), jvm_options=jvm_options)
        broker.start()
        try:
            yield broker
        finally:
            broker.close()


@contextmanager
def _serving(log_dir: Path) -> Iterator[Broker]:
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
