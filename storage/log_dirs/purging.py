"""Finds and removes leftovers in log directories.

Leftovers are files in partition directories that belong to no log (see `log/leftovers.py`), the
directories of deleted partitions (`-delete`), and those of stray partitions (`-stray`), which a
broker renames if its cluster does not know them. Opening leaves all of them alone. A stray
partition is a whole log, so its directory is listed and removed only on request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from ..cleaner.cleaning_state import LogCleaningState
from ..errors import CleaningAborted, SegmentGone
from ..format.files.names import METADATA_TOPIC, PartitionState, TopicPartition
from ..io.directory import Directory
from ..log.delete import leftovers
from ..log.delete.leftovers import LeftoverKind
from ..wording import printable
from .engine import Engine
from .log_dir import PartitionDir
from .log_dirs import LogDirs
from .selection import Selection
from .writable_log_dirs import WritableLogDirs, do_all

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundLeftover:
    """A leftover of a partition. `directory` is its directory's name in `log_dir`; `name` that of a
    file in it, "" if the leftover is the directory itself. `size`: bytes of its files."""

    log_dir: str
    directory: str
    name: str
    kind: LeftoverKind
    size: int
    topic: str
    partition: int

    @property
    def path(self) -> str:
        return "/".join(filter(None, (self.log_dir.rstrip("/"), self.directory, self.name)))

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": str(self.kind),
            "bytes": self.size,
            "topic": self.topic,
            "partition": self.partition,
        }

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> FoundLeftover:
        """Restores an object from the result of `as_json`, for display."""
        log_dir, _, name = row["path"].rpartition("/")
        kind = LeftoverKind(row["kind"])
        return cls(log_dir, name, "", kind, row["bytes"], row["topic"], row["partition"])


#: Whether a file (or, with the name "", the directory) of a log directory's path is a leftover, and
#: not something that this process deleted and will remove when its delay has passed.
IsLeft = Callable[[str, str, TopicPartition, str], bool]


def find_leftovers(
    log_dirs: LogDirs, *, strays: bool = False, is_left: IsLeft | None = None
) -> Iterator[FoundLeftover]:
    """Yields the leftovers in the directories, by partition. `strays`: include stray partitions.
    Entries that vanish meanwhile are left out; OSError and LogDirError propagate."""
    for found in (found for log_dir in log_dirs.dirs for found in log_dir.partitions()):
        for each in _of_partition(found, strays):
            key = (each.topic, each.partition)
            if is_left is None or is_left(each.log_dir, each.directory, key, each.name):
                yield each


def select(
    engine: Engine, leftovers: Iterable[FoundLeftover], selection: Selection
) -> list[FoundLeftover]:
    """Returns the leftovers of the selected topics and partitions. Raises UnknownTopic or
    UnknownPartition for a name that neither exists nor has leftovers."""
    found = list(leftovers)
    for each in selection.names:
        named = Selection((each,))
        if not any(named.includes(leftover.topic, leftover.partition) for leftover in found):
            named.partitions(engine.topics())
    return [each for each in found if selection.includes(each.topic, each.partition)]


def _of_partition(found: PartitionDir, strays: bool) -> Iterator[FoundLeftover]:
    if found.topic == METADATA_TOPIC:
        return  # the KRaft quorum's own log
    leftover = partial(FoundLeftover, found.log_dir.path, found.name)
    key = (found.topic, found.partition)
    try:
        if found.state is PartitionState.NORMAL:
            for each in leftovers.find_leftovers(found.directory):
                yield leftover(each.name, each.kind, each.size, *key)
        elif found.state is PartitionState.DELETE:
            yield leftover("", LeftoverKind.DELETED_PARTITION, _size(found.directory), *key)
        elif found.state is PartitionState.STRAY and strays:
            yield leftover("", LeftoverKind.STRAY_PARTITION, _size(found.directory), *key)
    except SegmentGone:
        return


def _size(directory: Directory) -> int:
    """Returns the bytes of all files in a directory."""
    entries = directory.list(lambda name: True)
    return sum(each.stat.st_size for each in entries if each.is_file and each.stat is not None)


def purge(
    dirs: WritableLogDirs, cleaning_state: LogCleaningState, selected: Iterable[FoundLeftover]
) -> list[FoundLeftover]:
    """Removes leftovers, partition by partition; returns those removed. Skips what is no longer a
    leftover. Raises CleaningAborted for a partition that is being cleaned; the first failure is
    raised after all were tried."""
    removed: list[FoundLeftover] = []
    ordered = sorted(selected, key=lambda each: each.path)
    groups = groupby(ordered, key=lambda each: (each.log_dir, each.directory))
    together = [list(group) for _, group in groups]
    do_all(partial(_purge, dirs, cleaning_state, group, removed) for group in together)
    return removed


def _purge(
    dirs: WritableLogDirs,
    cleaning_state: LogCleaningState,
    group: Sequence[FoundLeftover],
    removed: list[FoundLeftover],
) -> None:
    first = group[0]
    log_dir = next(each for each in dirs.dirs if each.path == first.log_dir)
    if not first.name:
        if log_dir.purge_partition(first.directory):
            _note_removed([first], removed)
        return
    key = (first.topic, first.partition)
    with cleaning_state.in_progress(key) as is_mine:
        if not is_mine:
            raise CleaningAborted("the partition is already being cleaned or changed")
        names = log_dir.purge_files(key, {each.name for each in group})
        _note_removed([each for each in group if each.name in names], removed)


def _note_removed(found: Sequence[FoundLeftover], removed: list[FoundLeftover]) -> None:
    for each in found:
        logger.info("removed leftover %s, %d bytes", printable(each.path), each.size)
    removed += found
