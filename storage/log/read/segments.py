"""The ordered segments of one partition: which files form them, and which one holds an offset.

An immutable set. A changed log gets a new one, so readers of the old one are not affected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from os import stat_result
from typing import Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from ...format.files.names import FileKind, FileState, SegmentFileName, parse_segment_file
from ...format.layout import MAX_OFFSET
from ...io.directory import HeldDirectory
from ...segment.segment import Segment, SegmentFiles

_UNKNOWN: Final = MAX_OFFSET
_INDEXES: Final = (str(FileKind.INDEX), str(FileKind.TIMEINDEX))
# The names whose status is read.
_LOGS: Final = (str(FileKind.LOG), f"{FileKind.LOG}{FileState.SWAP}")
# Python looks up members of an enumeration slowly.
_LIVE, _CLEANED, _SNAPSHOT = FileState.LIVE, FileState.CLEANED, FileKind.SNAPSHOT


class RolledTimestamps:
    """Largest timestamps of rolled segments, each computed on demand."""

    __slots__ = ("_largest", "_segments")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        # Any thread may store a result: all threads would compute the same.
        self._largest: NDArray[np.int64] | None = None

    def first_reaching(
        self, timestamp: int, index: int, find_largest: Callable[[Segment], int]
    ) -> int:
        """Returns the index of the first segment from ``index`` on whose largest timestamp,
        computed by ``find_largest``, is >= ``timestamp``; the number of segments if there is
        none."""
        largest = self._largest
        if largest is None:
            self._largest = largest = np.full(len(self._segments), _UNKNOWN, dtype=np.int64)
        while index < len(largest):
            if largest[index] == _UNKNOWN:
                largest[index] = find_largest(self._segments[index])
            if largest[index] >= timestamp:
                return index
            index += 1
            if index < len(largest) and largest[index] != _UNKNOWN:
                reaching = largest[index:] >= timestamp  # true for unknown ones, too
                index += int(reaching.argmax()) if reaching.any() else len(reaching)
        return index


class Segments(Sequence[Segment]):
    """Segments by ascending base offset; the last one is the active one.

    ``rolled`` are all others. They and their cached timestamps are shared with the copies that
    ``with_active`` returns.
    """

    __slots__ = ("_bases", "_segments", "rolled", "timestamps")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = tuple(segments)
        self._bases = [segment.base_offset for segment in segments]
        self.rolled = self._segments[:-1]
        self.timestamps = RolledTimestamps(self.rolled)

    def with_active(self, active: Segment) -> Segments:
        """Returns a copy with another state of the active segment."""
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
        """Returns the index of the last segment with a base offset <= ``offset``, -1 if none."""
        return bisect_right(self._bases, offset) - 1

    def from_offset(self, offset: int) -> Sequence[Segment]:
        """Returns the segment that holds ``offset`` and those after it."""
        return self._segments[max(self.floor_index(offset), 0) :]


class LogFile(NamedTuple):
    """A ``.log`` as listed. ``inode`` distinguishes it from another file of the same name."""

    base_offset: int
    state: FileState
    inode: tuple[int, int]
    size: int
    mtime_ns: int


def list_logs(
    directory: HeldDirectory, report: Callable[[CorruptError], object]
) -> tuple[list[LogFile], tuple[int, ...]]:
    """Lists the ``.log`` files that form the partition now, by ascending base offset; also returns
    the offsets of its snapshots, ascending.

    An entry with such a name that is not a regular file is reported. If its name is that of a live
    ``.log`` it stays in the list, as a segment with no readable bytes: it is damaged, not missing.

    Of the leftovers only a committed swap counts: the cleaner's complete output is renamed to
    ``.log.swap``, the originals become ``.deleted`` one by one, and then it gets its final name.
    Until then (forever, if the broker died meanwhile) the ``.swap`` is the segment, even beside an
    original without a batch, which ingested segments replace; recovery in ``LogLoader`` decides the
    same way. While any ``.cleaned`` file exists at the same or a lower offset, a ``.swap`` is void.
    """
    live: dict[int, LogFile] = {}
    swaps: dict[int, LogFile] = {}
    cleaned: list[int] = []
    snapshots: list[int] = []
    files, others = directory.files(*_LOGS)
    for text, status in files.items():
        name = None if text.endswith(_INDEXES) else parse_segment_file(text)
        if name is None:
            continue
        base, kind, state = name
        if state is _CLEANED:
            cleaned.append(base)  # of any kind: the `.log` is renamed first
        elif status is not None:
            (live if state is _LIVE else swaps)[base] = _log_file(name, status)
        elif kind is _SNAPSHOT and state is _LIVE:
            snapshots.append(base)
    for entry in others:
        name = parse_segment_file(entry.name)
        if name is not None and name.kind is FileKind.LOG:
            what = f"a {entry.kind}, not a regular file"
            report(CorruptError(what, directory.path_of(entry.name)))
            if name.state is _LIVE and entry.stat is not None:
                live[name.base_offset] = _log_file(name, entry.stat)
    uncommitted_from = min(cleaned, default=None)
    for base, swap in swaps.items():
        is_covered = base in live and live[base].size > 0
        if not is_covered and (uncommitted_from is None or base < uncommitted_from):
            live[base] = swap
    return [live[base] for base in sorted(live)], tuple(sorted(snapshots))


def drop_covered(logs: list[LogFile], next_offset: Callable[[LogFile], int]) -> list[LogFile]:
    """Drops originals that a swap in the list has replaced, and swaps whose original still exists:
    a split segment yields several, and is deleted only after all are committed."""
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


def _log_file(name: SegmentFileName, status: stat_result) -> LogFile:
    identity = (status.st_dev, status.st_ino)
    return LogFile(name.base_offset, name.state, identity, status.st_size, status.st_mtime_ns)
