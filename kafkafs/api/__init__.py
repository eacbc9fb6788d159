"""The Python API for log directories: `open`, partitions, reading, and writing.

    with kafkafs.open("/data") as d:
        for topic, partitions in d.topics.items():
            print(topic, partitions)
        p = d["orders", 0]
        p.record(600).value
        p.scan(columns=["offset", "value"]).read_all()

The engine, numpy and pyarrow are imported when they are first needed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Literal, overload

from kafkafs.storage import location

from .reading import LogDirectories, Partition, Time
from .writing import ProducerRecord, Transaction, WritableLogDirectories, WritablePartition

__all__ = [
    "LogDirectories",
    "Partition",
    "ProducerRecord",
    "Transaction",
    "WritableLogDirectories",
    "WritablePartition",
    "open",
]

_logger = logging.getLogger("kafkafs")

Path = str | os.PathLike[str]


@overload
def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: Literal[False] = ...,
    maintain: Literal[False] = ...,
    configs: Mapping[str, str] | None = ...,
    at: Time | None = ...,
    tier: Path | None = ...,
) -> LogDirectories: ...


@overload
def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: Literal[True],
    maintain: bool = ...,
    configs: Mapping[str, str] | None = ...,
    at: None = ...,
    tier: None = ...,
) -> WritableLogDirectories: ...


def open(
    log_dirs: Path | Sequence[Path],
    *,
    writable: bool = False,
    maintain: bool = False,
    configs: Mapping[str, str] | None = None,
    at: Time | None = None,
    tier: Path | None = None,
) -> LogDirectories:
    """Opens log directories together: a path, several joined by commas as in Kafka's `log.dirs`, or
    a sequence of paths.

    By default they are opened read-only and without a lock, even while a broker uses them. With
    `writable` they are locked, created if missing, and recovered after an unclean shutdown. Nothing
    is deleted automatically, unless `maintain` runs a broker's retention, log cleaner and removal
    of leftover files while they are open. `configs` are the configs that `kafkafs -c` takes.

    With `at` (milliseconds since 1970, ISO 8601, a datetime or a date; UTC if there is no time
    zone) everything is shown as it was at that time: each partition ends before the first record
    that is later.

    `tier` is where the remote storage of the topics is (tiered storage): each partition continues
    from there into the local log.

    Raises LogDirError if a path is not a log directory or is a URL of an unknown scheme,
    LogDirLocked if another process has locked one, ConfigError for an unknown config or an invalid
    value, and ValueError for `maintain` without `writable`, for `at` with it, and for what is not a
    time.
    """
    paths = _paths(log_dirs)
    if maintain and not writable:
        raise ValueError("maintain=True needs writable=True")
    if at is not None and writable:
        raise ValueError("at needs writable=False: the past cannot be changed")
    if tier is not None and writable:
        raise ValueError("tier needs writable=False: remote storage is only read")
    from kafkafs.storage import TIER_CONFIG, milliseconds, warn_if_uncompiled

    warn_if_uncompiled(_logger.warning)
    if writable:
        from kafkafs.storage import LogManager

        return WritableLogDirectories(LogManager(paths, configs, maintain=maintain))
    from kafkafs.storage import Engine

    if tier is not None:
        configs = {**(configs or {}), TIER_CONFIG: location(os.fspath(tier))}
    return LogDirectories(Engine(paths, configs, None if at is None else milliseconds(at)))


def _paths(log_dirs: Path | Sequence[Path]) -> list[str]:
    if isinstance(log_dirs, str):
        return [location(path.strip()) for path in log_dirs.split(",")]
    listed = [log_dirs] if isinstance(log_dirs, os.PathLike) else log_dirs
    return [location(os.fspath(path)) for path in listed]
