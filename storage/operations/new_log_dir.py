"""What a new log directory is made of: logs written from others' batches, recovered, and closed.

Each `.log` appears atomically. Then a partition is recovered as after a crash, which creates its
indexes, snapshots and leader epochs. Finally the directory is marked as cleanly shut down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from ..config.kafka import broker_config
from ..config.topic_file import TOPIC_CONFIGS_FILE
from ..errors import SegmentGone, fresh
from ..format.files import names
from ..format.files.checkpoints import format_clean_shutdown, format_offsets
from ..format.files.names import FileKind, TopicPartition, segment_file
from ..io.durable import TEMPORARY_SUFFIX, WritableDirFd, WritableFile
from ..log.load.log_loader import LogLoader
from ..log_dirs.engine import Engine

_NO_BROKER_EPOCH: Final = -1
_MAX_SMALL_FILE: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SettleUnit:
    """A partition to recover, which begins at `start_offset`. `size`: the bytes of its logs."""

    topic: str
    partition: int
    start_offset: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """A recovered partition of the new directory: offsets [`start_offset`, `end_offset`)."""

    topic: str
    partition: int
    segments: int
    size: int
    start_offset: int
    end_offset: int

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "segments": self.segments,
            "bytes": self.size,
            "startOffset": self.start_offset,
            "endOffset": self.end_offset,
        }


def make_partition(
    engine: Engine, key: TopicPartition, log_dir: WritableDirFd, without: Sequence[str] = ()
) -> None:
    """Creates the directory of a partition like the engine's, with its small files except those in
    `without`. An existing directory is kept."""
    found = engine.partition_dir(*key)
    with suppress(FileExistsError):
        log_dir.make(found.name)
    directory = log_dir.child(found.name)
    for entry in found.directory.list():
        # Excludes files that depend on offsets and those that are about to be deleted.
        is_small = entry.is_file and names.parse_segment_file(entry.name) is None
        if is_small and entry.name not in without:
            data = found.directory.read_small(entry.name, _MAX_SMALL_FILE)
            directory.write_atomically(entry.name, data)
    directory.sync()


@contextmanager
def new_log(directory: WritableDirFd, base_offset: int, mtime_ns: int) -> Iterator[WritableFile]:
    """Yields a `.log` to write to, which appears durably and atomically when the block ends."""
    name = segment_file(base_offset, FileKind.LOG)
    # Attempts of one task may run at the same time.
    temporary = f"{name}.{uuid4().hex}{TEMPORARY_SUFFIX}"
    file = directory.create(temporary)
    try:
        yield file
        file.set_mtime_ns(mtime_ns)
        file.sync()
        directory.rename(temporary, name)
        directory.sync()
    except BaseException:
        directory.remove(temporary, missing_ok=True)
        raise


def settle_unit(key: TopicPartition, start_offset: int, directory: WritableDirFd) -> SettleUnit:
    """Returns the unit for a partition whose logs are all written."""
    listed = directory.list(lambda name: name.endswith(FileKind.LOG))
    size = sum(entry.stat.st_size for entry in listed if entry.stat is not None)
    return SettleUnit(*key, start_offset, size)


def settle(engine: Engine, unit: SettleUnit, directory: WritableDirFd) -> Settled:
    """Recovers a partition with the configs that its topic has in the engine. Idempotent."""
    for entry in directory.list():
        if entry.name.endswith(TEMPORARY_SUFFIX):
            directory.remove(entry.name, missing_ok=True)
    plan = LogLoader(
        directory,
        recovery_point=0,
        start_offset=unit.start_offset,
        is_clean=False,
        config=engine.topic_config(unit.topic).config,
        now_ms=engine.clock.now_ms(),
        limits=engine.context.limits,
        expiration_ms=broker_config(engine.configs).producer_id_expiration_ms,
    ).plan()
    if plan.faults:  # unexpected: only valid batches were written
        raise fresh(plan.faults[0])
    plan.apply(directory)
    size = sum(segment.size for segment in plan.segments)
    offsets = plan.start_offset, plan.end_offset
    return Settled(unit.topic, unit.partition, len(plan.segments), size, *offsets)


def close_log_dir(engine: Engine, settled: Iterable[Settled], directory: WritableDirFd) -> None:
    """Writes the files of the log directory itself, whose owner and topic configs are the engine's,
    after all partitions are recovered."""
    source = engine.log_dirs.dirs[0].directory
    for name in (names.META_PROPERTIES_FILE, TOPIC_CONFIGS_FILE):
        with suppress(SegmentGone):
            directory.write_atomically(name, source.read_small(name, _MAX_SMALL_FILE))
    ends: dict[TopicPartition, int] = {}
    starts: dict[TopicPartition, int] = {}
    for each in settled:
        ends[each.key] = each.end_offset
        if each.start_offset:
            starts[each.key] = each.start_offset
    offsets: Mapping[str, Mapping[TopicPartition, int]] = {
        names.RECOVERY_POINT_FILE: ends,
        names.HIGH_WATERMARK_FILE: ends,
        names.LOG_START_OFFSET_FILE: starts,
    }
    for name, values in offsets.items():
        directory.write_atomically(name, format_offsets(values))
    directory.write_atomically(names.CLEAN_SHUTDOWN_FILE, format_clean_shutdown(_NO_BROKER_EPOCH))
