"""Copies a partition into the new log directory, and loads it there as a broker would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...format.files.checkpoints import PartitionMetadata, format_partition_metadata
from ...format.files.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileKind,
    FileState,
    TopicPartition,
    parse_segment_file,
    partition_dir,
)
from ...io.disk import DirectoryEntry, DirFd
from ...io.durable import WritableDirFd
from ...log.load.log_loader import LogLoader, RecoveryPlan
from ...log_dirs.engine import Engine
from ...log_dirs.log_dir import PartitionDir

# Producers are never too old: the greatest of their ids counts.
_NO_EXPIRATION: Final = 1 << 62
# Of segments, what a broker serves or completes; leftovers of deletions and cleanings stay behind.
_KEPT_STATES: Final = (FileState.LIVE, FileState.SWAP)


@dataclass(frozen=True, slots=True)
class LoadedPartition:
    """A partition and how it is loaded. `source`: the path of the directory that it is from."""

    topic: str
    partition: int
    source: str
    plan: RecoveryPlan

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.plan.segments)

    @property
    def has_moved_start(self) -> bool:
        """Whether the log starts after the base offset of its first segment."""
        return self.plan.start_offset > self.plan.segments[0].base_offset

    @property
    def latest_epoch(self) -> int:
        return max(self.plan.latest_epoch, self.plan.epochs.latest)


def load_partition(
    engine: Engine, found: PartitionDir, directory: DirFd | None = None
) -> LoadedPartition:
    """Plans the load of a partition, by default where it is. Only reads."""
    key = (found.topic, found.partition)
    log_dir = found.log_dir
    plan = LogLoader(
        found.directory if directory is None else directory,
        log_dir.recovery_points.get(key, 0),
        log_dir.log_start_offsets.get(key, 0),
        log_dir.is_clean,
        engine.topic_config(found.topic).config,
        engine.clock.now_ms(),
        engine.context.limits,
        _NO_EXPIRATION,
    ).plan()
    return LoadedPartition(*key, found.path, plan)


def copy_partition(
    engine: Engine, found: PartitionDir, topic_id: str, data: WritableDirFd, *, link: bool
) -> LoadedPartition:
    """Copies a partition into the log directory `data`, and loads it there. With `link`, sealed
    segments that were closed cleanly become hard links."""
    target = data.make(partition_dir(found.topic, found.partition))
    source = WritableDirFd(found.log_dir.path).child(found.name)
    kept = [entry for entry in source.list() if entry.is_file and _is_kept(entry)]
    sealed = _sealed(kept) if link and found.log_dir.is_clean else frozenset()
    for entry in kept:
        if entry.name in sealed:
            target.link(entry.name, source, entry.name)
        else:
            _copy(source, entry.name, target)
    metadata = format_partition_metadata(PartitionMetadata(0, topic_id))
    target.write_atomically(PARTITION_METADATA_FILE, metadata)
    target.sync()
    loaded = load_partition(engine, found, target)
    loaded.plan.apply(target)
    return loaded


def _is_kept(entry: DirectoryEntry) -> bool:
    """Whether a file is copied: those of segments, and Kafka's other files, but no file that is
    being deleted or replaced."""
    parsed = parse_segment_file(entry.name)
    if parsed is None:
        return entry.name in (LEADER_EPOCH_FILE,)
    return parsed.state in _KEPT_STATES


def _sealed(kept: list[DirectoryEntry]) -> frozenset[str]:
    """Returns the names of the logs that are never written to again: all but the last."""
    logs = sorted(entry.name for entry in kept if entry.name.endswith(FileKind.LOG))
    return frozenset(logs[:-1])


def _copy(source: DirFd, name: str, target: WritableDirFd) -> None:
    file = source.open(name)
    status = file.stat()
    copied = target.create(name)
    copied.copy_from(file, status.st_size)
    copied.set_mtime_ns(status.st_mtime_ns)
    copied.sync()
