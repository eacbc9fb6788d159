"""The tasks of a compaction: passes over small partitions, and pieces of passes over large ones.

Their output is in a staging directory next to the log directory, which only the driver changes. An
error of the log or the disk becomes the result of the piece, so that other pieces continue.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import Final, TypeVar

from kafkafs.storage import (
    SLOT_BYTES,
    CleanedSegment,
    CleanedSink,
    CleaningAborted,
    CleaningResult,
    Copied,
    LogRange,
    LogToClean,
    OffsetMap,
    ProducerStateEntry,
    RangeTransactions,
    SegmentGroup,
    SplitPass,
    StagedSegment,
    StorageError,
    TopicConfig,
    TopicPartition,
    View,
    WritableDirFd,
    clean,
    copy_range,
    decide_range,
    write_keys,
)

from ..job_log_dirs import JobLogDirs

Result = TypeVar("Result")

LOAD_FACTOR: Final = 0.9

#: Smaller partitions are never cleaned in pieces.
LEAST_BYTES: Final = 512 << 20
# The cost of a byte in pieces relative to a single pass, measured with two processors.
_WORK_IN_PIECES: Final = 1.25
# A partition below this part of a processor's average load keeps no other processor waiting.
_LEAST_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a piece that failed."""

    error: StorageError | OSError


@dataclass(frozen=True, slots=True)
class WholePass:
    """A pass over a whole partition. `segments`: base offset and size of those that it covers;
    `staging`: where it creates a directory for its output."""

    dirs: JobLogDirs
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

    dirs: JobLogDirs
    key: TopicPartition
    split: SplitPass
    staging: str


Pieces = Sequence[LargePartition]


def map_bytes(offsets: int) -> int:
    """Returns the memory of an offset map with capacity for the keys of `offsets` records."""
    return (int(offsets / LOAD_FACTOR) + 2) * SLOT_BYTES


def how_many_to_cut(sizes: Sequence[int], processors: int) -> int:
    """Returns how many of the first partitions, given by size with the largest first, to divide so
    that all are done soonest.

    Cleaning a whole partition occupies one processor for one pass. In pieces it takes three steps
    and more work, but any number of processors share it. A partition is therefore divided if its
    single pass would keep other processors waiting for longer than that.
    """
    least = max(LEAST_BYTES, sum(sizes) / processors * _LEAST_SHARE)
    most = sum(size > least for size in sizes)

    def cost(cut: int) -> float:
        in_pieces = sum(sizes[:cut]) * _WORK_IN_PIECES / processors
        return in_pieces + _until_all_are_done(sizes[cut:], processors)

    return min({most >> n for n in range(most.bit_length() + 1)}, key=lambda cut: (cost(cut), cut))


def _until_all_are_done(sizes: Sequence[int], processors: int) -> int:
    """Returns the total time if each idle processor takes the next partition; unit: the time for a
    byte."""
    busy_until = [0] * processors
    for size in sizes:
        heapreplace(busy_until, busy_until[0] + size)
    return max(busy_until)


def clean_whole(unit: WholePass) -> Cleaned | Failed:
    """Makes one pass, with a map that has capacity for all possible keys."""
    return _tried(lambda: _clean_whole(unit))


def learn(partitions: Pieces, unit: tuple[int, LogRange]) -> RangeTransactions | Failed:
    """Reads the keys of a range of a large partition; `unit`: number of the partition, and the
    range."""
    large, each = partitions[unit[0]], unit[1]
    staging = WritableDirFd(large.staging)
    return _tried(lambda: write_keys(large.split, _view(large), each, staging))


def decide(partitions: Pieces, unit: tuple[int, int]) -> int | Failed:
    """Decides a part of a large partition's keys; returns their number."""
    large = partitions[unit[0]]
    return _tried(lambda: decide_range(large.split, unit[1], WritableDirFd(large.staging)))


def copy(partitions: Pieces, unit: tuple[int, SegmentGroup]) -> Copied | Failed:
    """Copies a group of a large partition's segments."""
    large, each = partitions[unit[0]], unit[1]
    staging = WritableDirFd(large.staging)
    return _tried(lambda: copy_range(large.split, _view(large), each, staging, _attempt(staging)))


def _clean_whole(unit: WholePass) -> Cleaned:
    view = unit.dirs.engine().log(*unit.key).view()
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
    return large.dirs.engine().log(*large.key).view()


def _tried(work: Callable[[], Result]) -> Result | Failed:
    try:
        return work()
    except (StorageError, OSError) as error:
        return Failed(error)
