"""A broker and an engine refuse each other, whichever opens the directory first."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkafs.storage.errors import LogDirLocked
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.io.lock import DirectoryLock
from tests.broker.jvm import KafkaError
from tests.broker.kafka import Broker


def test_broker_and_engine_refuse_each_other(start_broker: Callable[..., Broker]) -> None:
    broker = start_broker()
    directory = WritableDirFd(broker.log_dir)
    with pytest.raises(LogDirLocked, match=f"process {broker.pid} has it locked") as caught:
        DirectoryLock(directory)
    assert caught.value.pid == broker.pid
    broker.stop()
    with DirectoryLock(directory):
        with pytest.raises(KafkaError, match="the broker ended with"):
            broker.start()
        assert "Failed to acquire lock on file .lock" in broker.output.read_text()
        assert (broker.log_dir / ".lock").exists()
        assert (broker.log_dir / ".kafka_cleanshutdown").exists()
    broker.start()
    broker.kill()
    assert (broker.log_dir / ".lock").exists()
    DirectoryLock(directory).release()
