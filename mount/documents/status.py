"""Renders `status.json` of a partition and of the whole mount, and a partition's `why.json`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kafkafs.storage import (
    CorruptError,
    Log,
    LogDirOffline,
    PartitionNotOpened,
    Segment,
    UnknownPartition,
    View,
    config_texts,
    reader_config,
    remote_part,
    retry_if_gone,
)

from ..catalog import Catalog
from ..partition import MountedPartition
from ..vfs import render

if TYPE_CHECKING:
    from kafkafs.storage import ExplainedPartition

    from ..writes.changes import Changes


def partition_status(catalog: Catalog, partition: MountedPartition) -> bytes:
    """Returns `<topic>/<partition>/status.json`. -1 means "none", as in Kafka's own files."""
    view = partition.view()
    log_dir = catalog.engine.partition_dir(partition.topic, partition.number).log_dir
    key = (partition.topic, partition.number)
    remote = remote_part(catalog.engine, key, view)
    checkpoints = {
        "recoveryPoint": log_dir.recovery_points.get(key, -1),
        "logStartOffset": log_dir.log_start_offsets.get(key, -1),
        "highWatermark": log_dir.high_watermarks.get(key, -1),
        "firstDirtyOffset": log_dir.cleaner_offsets.get(key, -1),
    }
    return render.status(
        {
            "topic": partition.topic,
            "partition": partition.number,
            "topicId": catalog.engine.topic_id(partition.topic),
            "path": partition.log.path,
            "isolation": partition.isolation.value,
            "logStartOffset": view.start_offset,
            "localLogStartOffset": remote.local_start_offset,
            "logEndOffset": view.end_offset,
            "lastStableOffset": view.last_stable_offset,
            "servedEndOffset": partition.bound(view),
            **_timestamps(partition, view),
            "bytes": view.size,
            "segments": _segments(view),
            "remote": remote.as_json(),
            "checkpoints": checkpoints,
            "writer": _writer(catalog.changes, partition),
            "dirtyRatio": dirty_ratio(_rolled(view), checkpoints["firstDirtyOffset"]),
            "compacted": catalog.previews.status(partition),
            "damage": _damage(partition.log),
        }
    )


def _timestamps(partition: MountedPartition, view: View) -> dict[str, int]:
    """Returns the first record's timestamp and the largest of all, in ms."""
    first = view.first(partition.isolation)
    timestamp = -1
    if first is not None:
        timestamp = view.find(first, partition.isolation).timestamp
    return {"firstTimestamp": timestamp, "maxTimestamp": view.max_timestamp}


def _segments(view: View) -> dict[str, int]:
    active = view.segments[-1] if len(view.segments) else None
    return {
        "count": len(view.segments),
        "activeBaseOffset": active.base_offset if active is not None else -1,
        "activeBytes": active.size if active is not None else 0,
    }


def _writer(changes: Changes | None, partition: MountedPartition) -> dict[str, int] | None:
    """Returns the writer's present state, which may be ahead of the checkpoints. None on a
    read-only mount, and for partitions that are not open for writing: the quorum's own log, those
    that could not be opened, and those in an offline directory."""
    if changes is None:
        return None
    try:
        writer = changes.writer(partition)
    except (UnknownPartition, PartitionNotOpened, LogDirOffline):
        return None
    return {
        "highWatermark": writer.high_watermark,
        "recoveryPoint": writer.recovery_point,
        "lastFlush": writer.last_flush_ms,
    }


def _rolled(view: View) -> list[Segment]:
    return [segment for segment in view.segments if not segment.is_active]


class Sized(Protocol):
    """A segment; `size` is the bytes of its `.log`."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...


def dirty_ratio(rolled: Sequence[Sized], first_dirty: int) -> float:
    """Returns the share of bytes in rolled segments that were not cleaned yet (LogToClean): 1.0 if
    the log was never cleaned. The active segment is not counted."""
    total = sum(segment.size for segment in rolled)
    dirty = sum(segment.size for segment in rolled if segment.base_offset >= first_dirty)
    return round(dirty / total, 4) if total else 0.0


def _damage(log: Log) -> list[dict[str, Any]]:
    return [_damaged(error) for error in list(log.damage.values())]


def _damaged(error: CorruptError) -> dict[str, Any]:
    return {"file": error.file, "position": error.position, "what": error.what}


def partition_why(catalog: Catalog, partition: MountedPartition) -> bytes:
    """Returns `<topic>/<partition>/why.json`, which explains retention and compaction as of now."""
    from kafkafs.storage import copied_until, explained

    key = (partition.topic, partition.number)

    def look() -> ExplainedPartition:
        view = partition.view()
        checkpoint = catalog.engine.partition_dir(*key).log_dir.cleaner_offsets.get(key)
        config = catalog.engine.topic_config(partition.topic).config
        copied = copied_until(catalog.engine, view)
        return explained(view, config, checkpoint, catalog.clock.now_ms(), copied)

    return render.status(retry_if_gone(look).as_json())


def mount_status(catalog: Catalog) -> bytes:
    """Returns `.kafkafs/status.json`."""
    engine = catalog.engine
    topics = engine.topics()
    damaged = [
        {"topic": log.topic, "partition": log.partition, **found}
        for log in engine.opened()
        for found in _damage(log)
    ]
    return render.status(
        {
            "logDirs": [
                {
                    "path": log_dir.path,
                    "clusterId": log_dir.meta.cluster_id,
                    "nodeId": log_dir.meta.node_id,
                    "directoryId": log_dir.meta.directory_id,
                    "cleanShutdown": log_dir.is_clean,
                }
                for log_dir in engine.log_dirs.dirs
            ],
            "writable": catalog.changes is not None,
            "pid": os.getpid(),
            "isolation": catalog.options.isolation.value,
            "at": engine.at_ms,
            "keySeparator": catalog.options.key_separator.decode(errors="backslashreplace"),
            "allowOther": catalog.options.allow_other,
            "mountedAt": catalog.started_ns // 1_000_000,
            "topics": len(topics),
            "partitions": sum(map(len, topics.values())),
            "tasks": _tasks(catalog.changes),
            "problems": catalog.problems,
            "damage": damaged,
        }
    )


def _tasks(changes: Changes | None) -> list[dict[str, Any]]:
    """Returns the status of the background tasks; a read-only mount has none."""
    if changes is None:
        return []
    return [status.as_json() for status in changes.engine.task_status()]


def engine_configs(catalog: Catalog) -> dict[str, str]:
    """Returns the engine's reader configs and the configs given for this run."""
    configs = catalog.engine.configs
    return {**config_texts(reader_config(configs)), **configs}
