"""Every `.log` that the directories of a partition still hold: the segments of the log, and
leftovers.

Leftovers are segments that retention or a truncation deleted, or that compaction replaced
(`.deleted`), until they are removed; and the output of unfinished cleanings (`.cleaned`, `.swap`).
The files overlap: compaction leaves both the old segments and the new ones.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from ...errors import SegmentGone
from ...format.files.names import FileKind, FileState
from ...format.layout import MAX_OFFSET
from ...format.records.batch import BatchHeader
from ...format.records.columns import Columns, Damage
from ...io.directory import Directory
from ...io.retry import retry_if_gone
from ...segment.segment import FilePool, HeldFile, Segment, SegmentFiles
from .as_of import first_later
from .log import Log
from .segments import Segments
from .transactions import Isolation, read_markers
from .view import View

# What is or was a segment's `.log`. A leftover whose name was needed for another file has a number,
# too (`log.delete.leftovers.name_aside`).
_LOG: Final = re.compile(r"([0-9]{20})\.log(\.cleaned|\.swap)?(\.[0-9]+)?(\.deleted)?")
_SUFFIXES: Final = (str(FileKind.LOG), *(str(state) for state in FileState if state))
# A larger file is read by another thread, ahead of the search.
_AHEAD_BYTES: Final = 8 << 20


class _LeftoverFiles(SegmentFiles):
    """The files of a leftover, whose names have the same ending as that of its `.log`."""

    __slots__ = ("_log_name",)

    def __init__(
        self, directory: Directory, log_name: str, identity: tuple[int, int], pool: FilePool
    ) -> None:
        super().__init__(directory, int(log_name[:20]), identity, pool)
        self._log_name = log_name

    def name(self, kind: FileKind) -> str:
        return self._log_name.replace(FileKind.LOG, kind, 1)


@dataclass(frozen=True, slots=True)
class LogOnDisk:
    """A `.log` on the disk. `is_served`: it is a segment of the log, not a leftover.
    `is_of_replica`: it belongs to another replica than the one that is served. `is_unfinished`: it
    was still being written, so that its end may be missing."""

    segment: Segment
    is_served: bool
    is_of_replica: bool = False
    is_unfinished: bool = False

    @property
    def rank(self) -> int:
        """Of files with the same record, the one with the lowest rank counts."""
        return 2 * self.is_of_replica + (not self.is_served)


class PartitionOnDisk:
    """The `.log` files of a partition at one moment, by base offset. They are held open, so that
    they can be read even if they are removed meanwhile.

    `end_offset`: records from there on do not count; MAX_OFFSET, or the end of the log if `log`
    shows an earlier time. Of a leftover, those from its own first later record on do not count.
    """

    def __init__(
        self,
        log: Log,
        replicas: Sequence[Directory] = (),
        at_ms: int | None = None,
        *,
        deleted: Sequence[Directory] = (),
    ) -> None:
        """`replicas`: the directories of replicas that are not served; `deleted`: those of which a
        broker may be removing the files. `at_ms`: the time that `log` shows, in ms since 1970, None
        for now. Raises UnknownPartition if the log's directory no longer exists."""
        self.view, files, self._held = retry_if_gone(lambda: _held_files(log, replicas, deleted))
        is_ended = self.view.ended_at_ms is not None
        self.end_offset = self.view.end_offset if is_ended else MAX_OFFSET
        self._at_ms = at_ms
        self.files = tuple(each for each in files if each.segment.base_offset < self.end_offset)

    def scan(self, file: LogOnDisk) -> Iterator[Columns | Damage]:
        """Yields all records of a file, including those of aborted transactions, and its damage;
        valid as those of `View.scan`."""
        view = replace(self._view_of(file), end_offset=self._end_of(file))
        ahead = file.segment.size > _AHEAD_BYTES
        for part in view.scan(isolation=Isolation.READ_UNCOMMITTED, ahead=ahead):
            is_end = isinstance(part, Damage) and part.next_offset < 0
            if not (is_end and file.is_unfinished):
                yield part
        tail = self.view.tail
        if tail is not None and file.is_served and file.segment.is_active:
            yield Damage(tail.error, self.view.end_offset, -1)

    def _view_of(self, file: LogOnDisk) -> View:
        segments, start = Segments((file.segment,)), file.segment.base_offset
        return replace(
            self.view, segments=segments, start_offset=start, end_offset=self.end_offset, tail=None
        )

    def _end_of(self, file: LogOnDisk) -> int:
        """Returns the offset from which on the records of a file do not count."""
        if self._at_ms is None or file.is_served:
            return self.end_offset
        later = first_later(self._view_of(file), self._at_ms)
        return self.end_offset if later is None else min(later, self.end_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the first marker of a transactional batch's producer after it, in any file, is an
        ABORT."""
        offsets, aborts = self._markers.get(header.producer_id, ((), ()))
        at = bisect_left(offsets, header.base_offset)
        return at < len(offsets) and aborts[at]

    @cached_property
    def _markers(self) -> dict[int, tuple[Sequence[int], Sequence[bool]]]:
        """The transaction markers in all files by producer id: their offsets, ascending, and which
        are an ABORT. At the same offset, that of the file with the lowest rank counts."""
        found: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        for file in sorted(self.files, key=lambda file: file.rank):
            end = self._end_of(file)
            for producer_id, markers in read_markers(file.segment, self.view.context).items():
                for marker in markers:
                    if marker.offset < end:
                        found[producer_id].setdefault(marker.offset, marker.is_abort)
        return {
            producer_id: (sorted(aborts), [aborts[offset] for offset in sorted(aborts)])
            for producer_id, aborts in found.items()
        }


def _held_files(
    log: Log, replicas: Sequence[Directory], deleted: Sequence[Directory]
) -> tuple[View, tuple[LogOnDisk, ...], list[HeldFile]]:
    """Lists the directories and opens the files. Raises SegmentGone if one vanishes meanwhile; in
    `deleted` directories it is left out."""
    view = log.view()
    pool = view.context.files
    found = [LogOnDisk(segment, True) for segment in view.segments]
    served = {segment.files.identity for segment in view.segments}
    leftovers = list(_leftovers(log.directory, pool))
    for replica in replicas:
        leftovers += _leftovers(replica, pool, is_of_replica=True)
    found += (each for each in leftovers if each.segment.files.identity not in served)
    held = [file.segment.files.hold() for file in found]
    for directory in deleted:
        with suppress(SegmentGone):
            for file in _leftovers(directory, pool, is_of_replica=True):
                with suppress(SegmentGone):
                    held.append(file.segment.files.hold())
                    found.append(file)
    found.sort(key=lambda file: (file.segment.base_offset, file.rank))
    return view, tuple(found), held


def _leftovers(
    directory: Directory, pool: FilePool, *, is_of_replica: bool = False
) -> Iterator[LogOnDisk]:
    """Yields what the files of a directory are for a log that does not serve them."""
    names, _ = directory.files(*_SUFFIXES)
    for name, status in names.items():
        parsed = _LOG.fullmatch(name)
        if status is not None and parsed is not None and int(parsed[1]) <= MAX_OFFSET:
            files = _LeftoverFiles(directory, name, (status.st_dev, status.st_ino), pool)
            segment = Segment(files, status.st_size, status.st_mtime_ns)
            is_unfinished = parsed[2] == FileState.CLEANED
            yield LogOnDisk(segment, False, is_of_replica, is_unfinished)
