"""The segments of one partition, in order: which files make them up, and which one holds an offset.

An immutable set. A log that changed gets a new one; whoever reads the old one is not disturbed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from ..disk import Directory, Entry
from ..errors import CorruptError
from ..format.layout import MAX_OFFSET
from ..format.names import FileKind, FileState, parse_segment_file
from ..segment.segment import Segment, SegmentFiles

_UNKNOWN: Final = MAX_OFFSET


class RolledTimestamps:
    """Largest timestamps of segments that are no longer written, each found when it is needed."""

    __slots__ = ("_largest", "_segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        # Any thread may fill in what it found: another one would find the same.
        self._largest = np.full(len(segments), _UNKNOWN, dtype=np.int64)

    def first_reaching(
        self, timestamp: int, index: int, find_largest: Callable[[Segment], int]
    ) -> int:
        """Number of the first segment from ``index`` on whose largest timestamp, which
        ``find_largest`` finds, is >= ``timestamp``; how many there are when none is."""
        largest = self._largest
        while index < len(largest):
            if largest[index] == _UNKNOWN:
                largest[index] = find_largest(self._segments[index])
            if largest[index] >= timestamp:
                return index
            index += 1
            if index < len(largest) and largest[index] != _UNKNOWN:
                reaching = largest[index:] >= timestamp  # or are unknown
                index += int(reaching.argmax()) if reaching.any() else len(reaching)
        return index


class Segments(Sequence[Segment]):
    """Segments by ascending base offset; the last one is the active one.

    ``rolled`` are all others. They, and what is known of them, are shared with those that
    ``with_active`` makes.
    """

    __slots__ = ("_bases", "_segments", "rolled", "timestamps")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = tuple(segments)
        self._bases = [segment.base_offset for segment in segments]
        self.rolled = self._segments[:-1]
        self.timestamps = RolledTimestamps(self.rolled)

    def with_active(self, active: Segment) -> Segments:
        """The same with another reading of the active segment."""
        segments = Segments.__new__(Segments)
        segments._segments = (*self.rolled, active)
        segments._bases = self._bases
        segments.rolled = self.rolled
        segments.timestamps = self.timestamps
        return segments

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | Sequence[Segment]:
        return self._segments[index]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def floor_index(self, offset: int) -> int:
        """Index of the segment with the greatest base offset <= ``offset``, -1 if there is none."""
        return bisect_right(self._bases, offset) - 1

    def from_offset(self, offset: int) -> Sequence[Segment]:
        """The segment that holds ``offset`` and those after it."""
        return self._segments[max(self.floor_index(offset), 0) :]


@dataclass(frozen=True, slots=True)
class LogFile:
    """A ``.log`` as the directory lists it. ``inode`` tells it from another of the same name."""

    base_offset: int
    state: FileState
    inode: tuple[int, int]
    size: int
    mtime_ns: int


def list_logs(directory: Directory, report: Callable[[CorruptError], object]) -> list[LogFile]:
    """The ``.log`` files that make up the partition now, by ascending base offset.

    What has the name of one but is no regular file is reported. Where it has the name of a live
    one it stays in the list, as a segment without a byte that can be read: what should be there is
    damaged, and not missing.

    Of the leftovers only a committed swap counts: when the cleaner's output is complete it is
    ``.log.swap``, the originals become ``.deleted`` one by one, and then it gets its name. For that
    moment (or for ever, if the broker died in it) the ``.swap`` is the segment, also beside an
    original without a batch, which new segments take the place of when they are placed; recovery in
    ``LogLoader`` decides the same way. As long as any ``.cleaned`` file is there, at the same or a
    lower offset, it does not count yet.
    """
    live: dict[int, LogFile] = {}
    swaps: dict[int, LogFile] = {}
    cleaned: list[int] = []
    for entry in directory.list(_is_log):
        name = parse_segment_file(entry.name)
        if name is not None and name.state is FileState.CLEANED and entry.is_file:
            cleaned.append(name.base_offset)  # of any kind: the `.log` is renamed first
        if name is None or name.kind is not FileKind.LOG:
            continue
        if not entry.is_file:
            what = f"a {entry.kind}, not a regular file"
            report(CorruptError(what, directory.path_of(entry.name)))
        if not entry.is_file and name.state is not FileState.LIVE:
            continue
        if name.state is FileState.LIVE:
            live[name.base_offset] = _log_file(name.base_offset, name.state, entry)
        elif name.state is FileState.SWAP:
            swaps[name.base_offset] = _log_file(name.base_offset, name.state, entry)
    uncommitted_from = min(cleaned, default=None)
    for base, swap in swaps.items():
        is_covered = base in live and live[base].size > 0
        if not is_covered and (uncommitted_from is None or base < uncommitted_from):
            live[base] = swap
    return sorted(live.values(), key=lambda log: log.base_offset)


def drop_covered(logs: list[LogFile], next_offset: Callable[[LogFile], int]) -> list[LogFile]:
    """Leave out originals that a swap in the list has taken the place of, and swaps whose original
    is still there: a segment that was split has several, and is deleted after all are committed."""
    kept: list[LogFile] = []
    covered = -1
    for log in logs:
        if log.state is FileState.SWAP:
            if (
                kept
                and kept[-1].state is FileState.LIVE
                and next_offset(kept[-1]) > log.base_offset
            ):
                continue
            covered = max(covered, next_offset(log))
        elif log.base_offset < covered:
            continue
        kept.append(log)
    return kept


def unchanged(files: SegmentFiles, log: LogFile) -> bool:
    return files.identity == log.inode and files.state is log.state


def _is_log(name: str) -> bool:
    return ".log" in name


def _log_file(base_offset: int, state: FileState, entry: Entry) -> LogFile:
    status = entry.stat
    assert status is not None  # asked for by _is_log
    return LogFile(
        base_offset, state, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns
    )
