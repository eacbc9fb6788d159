"""Turns the result of a recovery into actions on a partition's files.

A crash may happen after any stage: thanks to this order, the next recovery reaches the same result.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...format.files.checkpoints import format_leader_epochs
from ...format.files.names import LEADER_EPOCH_FILE, FileKind, parse_segment_file, segment_file
from ..state.epochs import LeaderEpochFileCache
from .loading_segment import LoadingSegment
from .partition_files import Part, PartitionFiles
from .producer_rebuild import Snapshots
from .recovery_actions import Cut, Remove, WriteFile


class RecoverySteps:
    """Adds actions to `files`. The methods must be called in the order in which they appear."""

    def __init__(self, files: PartitionFiles) -> None:
        self._files = files

    def retire(self, retired: Sequence[tuple[LoadingSegment, str]]) -> None:
        """Deletes segments, each with a reason. The last one first: as long as one of them exists,
        so does the damage before it, and the log does not begin later than it did."""
        for segment, why in sorted(retired, key=lambda each: _file_base(each[0]), reverse=True):
            self._files.retire(_file_base(segment), why)
            self._files.next_stage()

    def split(self, segments: Sequence[LoadingSegment]) -> None:
        """Splits segments, in the steps of LocalLog.splitOverflowedSegment."""
        parts: dict[int, list[Part]] = {}
        for segment in segments:
            if segment.is_part:
                part = (segment.base_offset, segment.start, segment.start + segment.size)
                parts.setdefault(_file_base(segment), []).append(part)
        for base, those in parts.items():
            self._files.split(base, those)

    def cut(self, segments: Sequence[LoadingSegment]) -> None:
        """Truncates segments after their valid part."""
        for segment in segments:
            was = segment.end - segment.start
            if segment.size < was and not segment.is_part:
                name = segment_file(segment.base_offset, FileKind.LOG)
                why = "" if segment.fault is None else segment.fault.what
                self._files.add(Cut(name, segment.size, was, why))
        self._files.next_stage()

    def write_state(
        self, epochs: tuple[LeaderEpochFileCache, str] | None, snapshots: Snapshots
    ) -> None:
        """Writes the state of the whole log: changed `epochs`, if any, with the reason, and the
        snapshots. This precedes the indexes: a missing index makes the next recovery redo it
        all."""
        files = self._files
        if epochs is not None:
            found, why = epochs
            files.add(WriteFile(LEADER_EPOCH_FILE, format_leader_epochs(found.entries), why))
        for offset, why in sorted(snapshots.gone.items()):
            if files.has(offset, FileKind.SNAPSHOT):
                files.add(Remove(segment_file(offset, FileKind.SNAPSHOT), why))
        for offset, data in sorted(snapshots.written.items()):
            self._write(offset, FileKind.SNAPSHOT, data, f"the producers at offset {offset}")
        files.next_stage()

    def write_indexes(self, segments: Sequence[LoadingSegment], start_offset: int) -> None:
        """Writes the indexes of rebuilt segments; creates a segment at `start_offset` if there is
        none."""
        for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX) if not segments else ():
            self._write(start_offset, kind, b"", "the log has no segment")
        for segment in segments:
            base, rebuilt = segment.base_offset, segment.rebuilt
            if rebuilt is not None:
                self._write(base, FileKind.INDEX, rebuilt.offsets, rebuilt.why)
                self._write(base, FileKind.TIMEINDEX, rebuilt.times, rebuilt.why)
                if rebuilt.aborted or self._files.has(base, FileKind.TXNINDEX):
                    self._write(base, FileKind.TXNINDEX, rebuilt.aborted, rebuilt.why)
            elif not self._files.has(base, FileKind.TIMEINDEX):
                self._write(base, FileKind.TIMEINDEX, b"", "it is missing")

    def _write(self, base: int, kind: FileKind, data: bytes, why: str) -> None:
        """Writes a file unless it already has that content."""
        if self._files.has(base, kind) and self._files.open(base, kind).holds(data):
            return
        self._files.add(WriteFile(segment_file(base, kind), data, why))


def _file_base(segment: LoadingSegment) -> int:
    """Returns the base offset in the name of the file that holds the segment's bytes now."""
    name = parse_segment_file(segment.name)
    assert name is not None
    return name.base_offset
