"""The tasks of a compaction: passes over small partitions, and pieces of passes over large ones.

Their output is in a staging directory next to the log directory, which only the driver changes. An
error of the log or the disk becomes the result of the piece, so that other pieces continue.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from kafkafs.storage.cleaner.cleaned import CleanedSegment
from kafkafs.storage.cleaner.cleaning import CleanedSink, CleaningResult, clean
from kafkafs.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap
from kafkafs.storage.cleaner.plan import LogToClean
from kafkafs.storage.cleaner.split import split_pass
from kafkafs.storage.cleaner.split.split_pass import Copied, StagedSegment
from kafkafs.storage.cleaner.split.split_plan import Learned, LogRange, SegmentGroup, SplitPass
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.errors import CleaningAborted, StorageError
from kafkafs.storage.io.durable import WritableDirFd
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log.state.producer_state import ProducerStateEntry
from kafkafs.storage.log_dirs.log_dir import TopicPartition

from ..places import JobLogDirs

Result = TypeVar("Result")

LOAD_FACTOR: Final = 0.9


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a piece that failed."""

    error: StorageError | OSError


@dataclass(frozen=True, slots=True)
class WholePass:
    """A pass over a whole partition. `segments`: base offset and size of those that it covers;
    `staging`: where it creates a directory for its output."""

    place: JobLogDirs
    key: TopicPartition
    config: TopicConfig
    first_dirty: int
    first_uncleanable: int
    now_ms: int
    producers: tuple[ProducerStateEntry, ...]
    segments: tuple[tuple[int, int], ...]
    staging: str

    @property
    def size(self) -> int:
        return sum(size for _, size in self.segments)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The new segments of a partition, ready to be swapped in, and the result of the pass."""

    segments: Sequence[StagedSegment]
    result: CleaningResult


@dataclass(frozen=True, slots=True)
class LargePartition:
    """A partition that is cleaned in pieces, and the directory for these."""

    place: JobLogDirs
    key: TopicPartition
    split: SplitPass
    staging: str


Pieces = Sequence[LargePartition]


def map_bytes(offsets: int) -> int:
    """Returns the memory of an offset map with capacity for the keys of `offsets` records."""
    return (int(offsets / LOAD_FACTOR) + 2) * SLOT_BYTES


def clean_whole(unit: WholePass) -> Cleaned | Failed:
    """Makes one pass, with a map that has capacity for all possible keys."""
    return _tried(lambda: _clean_whole(unit))


def learn(partitions: Pieces, unit: tuple[int, LogRange]) -> Learned | Failed:
    """Reads the keys of a range of a large partition; `unit`: number of the partition, and the
    range."""
    large, each = partitions[unit[0]], unit[1]
    staging = WritableDirFd(large.staging)
    return _tried(lambda: split_pass.learn(large.split, _view(large), each, staging))


def decide(partitions: Pieces, unit: tuple[int, int]) -> int | Failed:
    """Decides a part of a large partition's keys; returns their number."""
    large = partitions[unit[0]]
    return _tried(lambda: split_pass.decide(large.split, unit[1], WritableDirFd(large.staging)))


def copy(partitions: Pieces, unit: tuple[int, SegmentGroup]) -> Copied | Failed:
    """Copies a group of a large partition's segments."""
    large, each = partitions[unit[0]], unit[1]
    staging = WritableDirFd(large.staging)
    return _tried(
        lambda: split_pass.copy(large.split, _view(large), each, staging, _attempt(staging))
    )


def _clean_whole(unit: WholePass) -> Cleaned:
    view = unit.place.engine().log(*unit.key).view()
    there = [(s.base_offset, s.size) for s in view.segments[: len(unit.segments)]]
    if there != list(unit.segments):
        raise CleaningAborted("its segments have changed since the compaction was planned")
    into = _attempt(WritableDirFd(unit.staging))
    segments: list[StagedSegment] = []

    def made(cleaned: CleanedSegment, bases: Sequence[int]) -> None:
        segments.append(StagedSegment(into.path, cleaned.base_offset, cleaned.size, tuple(bases)))

    log = LogToClean(
        view, unit.config, unit.first_dirty, unit.first_uncleanable, unit.now_ms,
        lambda: unit.producers, lambda: None, lambda done, of: None,
    )  # fmt: skip
    offset_map = OffsetMap(map_bytes(unit.first_uncleanable - unit.first_dirty), LOAD_FACTOR)
    result = clean(log, offset_map, CleanedSink(into, unit.config, made))
    return Cleaned(segments, result)


def _attempt(staging: WritableDirFd) -> WritableDirFd:
    """Creates a directory that no other attempt at the same piece writes to."""
    return staging.make(f"attempt-{uuid.uuid4().hex}")


def _view(large: LargePartition) -> View:
    return large.place.engine().log(*large.key).view()


def _tried(work: Callable[[], Result]) -> Result | Failed:
    try:
        return work()
    except (StorageError, OSError) as error:
        return Failed(error)
