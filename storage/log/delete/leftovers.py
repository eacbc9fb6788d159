"""Files in a partition's directory that belong to no log: leftovers.

A deletion renames a segment's files to `.deleted`; cleaning and splitting write `.cleaned` files,
which become `.swap` files once they are complete. A process that exits leaves such files. Kafka
removes them when it loads the partition. kafkafs keeps them until their removal is requested
(`remove`), since a `.deleted` file may hold the only copy of its records.

Until then leftovers must not interfere. A `.cleaned` file invalidates every `.swap` file at or
above its offset, so an old one would revert a new swap after a crash; and a deletion would replace
an old `.deleted` file of the same segment. Code that needs such a name first renames the leftover
(`set_aside`); its new name also ends in `.deleted`. Only a removal looks at files with these names,
and a broker removes them as it would have removed the leftovers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from ...errors import SegmentGone
from ...format.files.names import (
    LEADER_EPOCH_FILE,
    PARTITION_METADATA_FILE,
    FileState,
    parse_segment_file,
)
from ...io.directory import Directory
from ...io.durable import TEMPORARY_SUFFIX, WritableDirFd

_DELETED = str(FileState.DELETED)
# KRaft deletes its own snapshots.
_DELETED_METADATA_SNAPSHOT = ".checkpoint.deleted"


class LeftoverKind(StrEnum):
    """The kinds of leftovers. The first four are files in a partition's directory; the last two
    are directories of partitions."""

    DELETED = "deleted"  # a segment's file, or a renamed leftover
    SWAP = "swap"  # from a segment swap that was not committed
    CLEANED = "cleaned"  # output of an unfinished cleaning or split
    TEMPORARY = "temporary"  # a small file whose write was interrupted
    DELETED_PARTITION = "deleted partition"
    STRAY_PARTITION = "stray partition"


# The `.swap` files are removed first: without a `.cleaned` file they would be valid.
_ORDER = (
    (LeftoverKind.SWAP,),
    (LeftoverKind.CLEANED,),
    (LeftoverKind.DELETED, LeftoverKind.TEMPORARY),
)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A leftover file by its name in the partition's directory; `size` in bytes."""

    name: str
    kind: LeftoverKind
    size: int


def find_leftovers(directory: Directory) -> list[Leftover]:
    """Returns the leftovers in a partition's directory, by name. Raises SegmentGone if the
    directory no longer exists."""
    entries = [entry for entry in directory.list(may_be_leftover) if entry.is_file]
    kinds = leftover_kinds(entry.name for entry in entries)
    return sorted(
        (
            Leftover(entry.name, kinds[entry.name], entry.stat.st_size)
            for entry in entries
            if entry.name in kinds and entry.stat is not None
        ),
        key=lambda each: each.name,
    )


def may_be_leftover(name: str) -> bool:
    """Whether a file name may be a leftover's. Whether a `.swap` file is one depends on the other
    files."""
    if name.endswith(TEMPORARY_SUFFIX):
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        is_segments = parse_segment_file(stem) is not None
        return is_segments or stem in (LEADER_EPOCH_FILE, PARTITION_METADATA_FILE)
    if name.endswith(_DELETED):
        return not name.endswith(_DELETED_METADATA_SNAPSHOT)
    parsed = parse_segment_file(name)
    return parsed is not None and parsed.state is not FileState.LIVE


def leftover_kinds(names: Iterable[str]) -> dict[str, LeftoverKind]:
    """Returns the leftovers among the files in a partition's directory. A `.swap` file is one if a
    `.cleaned` file has the same or a lower offset; other `.swap` files belong to a committed
    swap."""
    kinds: dict[str, LeftoverKind] = {}
    swaps: dict[str, int] = {}
    uncommitted_from: int | None = None
    for name in filter(may_be_leftover, names):
        parsed = parse_segment_file(name)
        if name.endswith(TEMPORARY_SUFFIX):
            kinds[name] = LeftoverKind.TEMPORARY
        elif parsed is None or parsed.state is FileState.DELETED:
            kinds[name] = LeftoverKind.DELETED
        elif parsed.state is FileState.SWAP:
            swaps[name] = parsed.base_offset
        else:
            kinds[name] = LeftoverKind.CLEANED
            lowest = parsed.base_offset if uncommitted_from is None else uncommitted_from
            uncommitted_from = min(lowest, parsed.base_offset)
    for name, base in swaps.items():
        if uncommitted_from is not None and base >= uncommitted_from:
            kinds[name] = LeftoverKind.SWAP
    return kinds


def name_aside(name: str, is_taken: Callable[[str], bool]) -> str:
    """Returns a free name for the leftover `name`."""
    stem = name.removesuffix(_DELETED)
    names = (f"{stem}.{number}{_DELETED}" for number in count(1))
    return next(each for each in names if not is_taken(each))


def set_aside(directory: WritableDirFd, name: str) -> None:
    """Frees the name `name`: renames a leftover that has it."""
    if _is_there(directory, name):
        new = name_aside(name, lambda other: _is_there(directory, other))
        directory.rename(name, new)


def set_aside_unfinished(directory: WritableDirFd, spared: Collection[int] = ()) -> None:
    """Prepares a segment swap by renaming the files of other unfinished cleanings and splits. The
    caller must have exclusive access and call this before it creates the first new segment.
    `spared`: the base offsets of the new segments. The `.swap` files are renamed durably before the
    `.cleaned` files, without which they would be valid."""
    kinds = leftover_kinds(entry.name for entry in directory.list())
    for kind in (LeftoverKind.SWAP, LeftoverKind.CLEANED):
        names = [name for name, its in kinds.items() if its is kind and _base(name) not in spared]
        for name in names:
            set_aside(directory, name)
        if names:
            directory.sync()


def remove(directory: WritableDirFd, leftovers: Sequence[Leftover]) -> None:
    """Removes leftovers durably. On an OSError the rest of them remain."""
    for kinds in _ORDER:
        selected = [each for each in leftovers if each.kind in kinds]
        for each in selected:
            directory.remove(each.name, missing_ok=True)
        if selected:
            directory.sync()


def _base(name: str) -> int:
    parsed = parse_segment_file(name)
    return -1 if parsed is None else parsed.base_offset


def _is_there(directory: Directory, name: str) -> bool:
    try:
        directory.stat(name)
    except SegmentGone:
        return False
    return True
