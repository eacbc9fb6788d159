"""The live files in a partition's directory, as checks and jobs that read segments see them.

Leftovers do not count, and no swap is completed: see `read.segments.list_logs` for what readers
serve, and `load.partition_files` for what a load makes of a directory.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from ...errors import CorruptError
from ...format.files.names import FileKind, FileState, parse_segment_file
from ...io.directory import Directory, DirectoryEntry
from ...segment.check.verify import SegmentFacts
from ..state.epochs import read_leader_epochs

INDEXES = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


class PartitionListing:
    """The live files of a partition: `sizes` and `mtimes` (ns since 1970) of the logs by base
    offset, the base offsets of the `files` of each kind, the offsets of the `snapshots`; and
    entries that are not files."""

    def __init__(self, directory: Directory) -> None:
        """Raises SegmentGone if the directory no longer exists."""
        self._directory = directory
        self.sizes: dict[int, int] = {}
        self.mtimes: dict[int, int] = {}
        self.files: dict[FileKind, set[int]] = {kind: set() for kind in FileKind}
        self.no_files: list[DirectoryEntry] = []
        for entry in directory.list(lambda name: name.endswith(FileKind.LOG)):
            self._add(entry)

    @property
    def snapshots(self) -> list[int]:
        return sorted(self.files[FileKind.SNAPSHOT])

    def stops(self, start_offset: int) -> tuple[int, ...]:
        """Returns the offsets at which the rules between segments need the state, for digests:
        those of the snapshots, and the first known epoch's."""
        stops = {start_offset, *self.snapshots}
        with suppress(CorruptError):  # which is reported separately
            stops.update(e.start_offset for e in read_leader_epochs(self._directory).entries[:1])
        return tuple(sorted(stops))

    def segments(self, is_closed: bool) -> list[SegmentFacts]:
        """Returns the segments in order; `is_closed`: the last one is closed, too."""
        return [
            SegmentFacts(
                base,
                self.sizes[base],
                next_base,
                is_closed or next_base >= 0,
                frozenset(kind for kind in INDEXES if base in self.files[kind]),
            )
            for base, next_base in pairwise([*sorted(self.sizes), -1])
        ]

    def _add(self, entry: DirectoryEntry) -> None:
        name = parse_segment_file(entry.name)
        if name is None or name.state is not FileState.LIVE:
            return
        if not entry.is_file:
            self.no_files.append(entry)
            return
        self.files[name.kind].add(name.base_offset)
        if name.kind is FileKind.LOG:
            assert entry.stat is not None  # requested in __init__
            self.sizes[name.base_offset] = entry.stat.st_size
            self.mtimes[name.base_offset] = entry.stat.st_mtime_ns
