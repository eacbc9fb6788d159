"""Writes partitions with the engine itself, for tests: opened, and reopened as after a crash."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkafs.storage.clock import Clock, SetClock
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.io.durable import Calls, WritableDirFd
from kafkafs.storage.log.append.writer import LogWriter
from kafkafs.storage.log.load.log_loader import LogLoader
from tests.building import BatchFields, build_batch

NOW = 1_790_000_000_000  # September 2026


class Unsynced(Calls):
    """Calls without fsync, for tests with many files that do not test durability."""

    def fsync(self, fd: int) -> None:
        pass


def config(**changes: Any) -> TopicConfig:
    """Returns a topic's configs; `segment_bytes` may be small."""
    if "segment_bytes" in changes:
        changes["internal_segment_bytes"] = changes.pop("segment_bytes")
    return TopicConfig(**changes)


def open_log(
    path: Path,
    settings: TopicConfig | None = None,
    clock: Clock | None = None,
    *,
    recovery_point: int = 0,
    start_offset: int = 0,
    is_clean: bool = False,
    **options: Any,
) -> LogWriter:
    """Opens or creates the partition in `path`, loading it as after a crash unless `is_clean`."""
    settings, clock = settings or TopicConfig(), clock or SetClock(NOW)
    path.mkdir(parents=True, exist_ok=True)
    directory = WritableDirFd(str(path))
    plan = LogLoader(
        directory, recovery_point, start_offset, is_clean, settings, clock.now_ms()
    ).plan()
    plan.apply(directory)
    return LogWriter(directory, "t", 0, config=settings, clock=clock, loaded=plan, **options)


def batch(
    count: int = 1, timestamp: int = NOW, size: int = 100, value: bytes = b"", **fields: Any
) -> bytes:
    """Returns a producer's batch: `count` records whose values are `value` and `size` zeros."""
    records = [SimpleRecord(timestamp + n, b"k%d" % n, value + bytes(size)) for n in range(count)]
    return build_batch(records, BatchFields(**fields))


def files(path: Path) -> dict[str, bytes]:
    """Returns the contents of a partition's directory."""
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}
