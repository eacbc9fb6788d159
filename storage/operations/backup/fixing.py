"""Fixes what a point in time has of each partition, before anything is copied.

The order matters beside a live broker. First the internal topics: so no group's committed offset is
beyond the end of its log, which is fixed later. Then the partitions are listed, and the cluster's
metadata fixed: they know every topic that is listed, because a broker makes a partition's directory
after it has read of the topic there. Last all other partitions.

A broker goes on meanwhile. It may delete or replace segments of a partition, which is then fixed
again with a later end; but not an internal topic or the metadata, whose logs are held open for
that. If a partition disappears, or one of those changes nevertheless, everything is fixed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...errors import SegmentGone, UnknownPartition
from ...format.files.names import INTERNAL_TOPICS, METADATA_TOPIC, PartitionState
from ...io.directory import NoFile
from ...io.lock import who_holds
from ...log.read.context import ReadContext
from ...log.read.log import Log
from ...log.read.view import View
from ...log_dirs.log_dir import LogDir, PartitionDir
from ...log_dirs.selection import Selection
from ...segment.segment import HeldFile

# More files are not held open; a segment of them that is deleted has everything fixed again.
_MOST_HELD: Final = 500


class Changed(Exception):
    """A partition disappeared, or what is fixed first changed. `path`: where."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True, slots=True)
class FixedPartition:
    """A partition up to the end of a view. `is_first`: it must not be fixed again on its own.
    `held` keeps its logs readable."""

    found: PartitionDir
    log: Log
    view: View
    is_first: bool = False
    held: Sequence[HeldFile] = ()

    def again(self) -> FixedPartition:
        """Fixes a partition again whose segments changed. Raises Changed if that is not allowed, or
        if it has disappeared."""
        if self.is_first:
            raise Changed(self.found.path)
        try:
            return FixedPartition(self.found, self.log, self.log.view())
        except (UnknownPartition, SegmentGone):
            raise Changed(self.found.path) from None


@dataclass(slots=True)
class FixedLogDir:
    """A log directory with the partitions that are copied. `is_clean`: its broker had shut down
    cleanly, and no process holds it."""

    log_dir: LogDir
    is_clean: bool
    partitions: list[FixedPartition] = field(default_factory=list)

    @classmethod
    def of(cls, log_dir: LogDir) -> FixedLogDir:
        return cls(log_dir, log_dir.is_clean and who_holds(log_dir.directory) == 0)

    def is_still_clean(self) -> bool:
        """Whether it was clean all the time."""
        log_dir = self.log_dir
        return self.is_clean and log_dir.is_clean and who_holds(log_dir.directory) == 0


def fix(
    log_dirs: Sequence[LogDir], selection: Selection, context: ReadContext
) -> list[FixedLogDir]:
    """Fixes the selected partitions, all internal ones and the metadata. Raises Changed."""
    fixed = [FixedLogDir.of(log_dir) for log_dir in log_dirs]
    first = _First(context)
    first.add(fixed, INTERNAL_TOPICS)
    listed = [list(_normal(each.log_dir)) for each in fixed]
    first.add(fixed, (*INTERNAL_TOPICS, METADATA_TOPIC))  # also an internal topic that is new
    for each, partitions in zip(fixed, listed, strict=True):
        each.partitions += (
            _fixed(found, context)
            for found in partitions
            if found.topic not in (*INTERNAL_TOPICS, METADATA_TOPIC)
            and selection.includes(found.topic, found.partition)
        )
    return fixed


class _First:
    """Fixes what comes before the other partitions, and holds its logs open."""

    def __init__(self, context: ReadContext) -> None:
        self._context, self._left = context, _MOST_HELD

    def add(self, fixed: Sequence[FixedLogDir], topics: Sequence[str]) -> None:
        for each in fixed:
            known = {partition.found for partition in each.partitions}
            for found in _normal(each.log_dir):
                if found.topic in topics and found not in known:
                    each.partitions.append(self._held(_fixed(found, self._context)))

    def _held(self, fixed: FixedPartition) -> FixedPartition:
        held: list[HeldFile] = []
        try:
            for segment in fixed.view.segments[: self._left]:
                if not isinstance(segment.files.log(), NoFile):
                    held.append(segment.files.hold())
        except SegmentGone:
            raise Changed(fixed.found.path) from None
        self._left -= len(held)
        return replace(fixed, is_first=True, held=held)


def _normal(log_dir: LogDir) -> Iterator[PartitionDir]:
    return (found for found in log_dir.partitions() if found.state is PartitionState.NORMAL)


def _fixed(found: PartitionDir, context: ReadContext) -> FixedPartition:
    log = Log(found.directory, found.topic, found.partition, found.log_start_offset, context)
    try:
        return FixedPartition(found, log, log.view())
    except (UnknownPartition, SegmentGone):
        raise Changed(found.path) from None
