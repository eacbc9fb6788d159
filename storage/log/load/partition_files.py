"""The files in a partition's directory, as recovery finds them and as it wants them.

Nothing is changed here: the changes are collected as stages of actions, and `on_disk` returns the
name under which a file is stored until they are applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import CorruptError
from ...format.files.names import (
    FileKind,
    FileState,
    SegmentFileName,
    parse_segment_file,
    segment_file,
)
from ...io.directory import Directory, DirectoryEntry, ReadableFile
from ..delete.leftovers import LeftoverKind, leftover_kinds, name_aside
from .recovery_actions import Action, CopyBytes, Rename, Stages

_KINDS = {str(kind): kind for kind in FileKind}
_OFFSET_DIGITS = 20
_LOG = str(FileKind.LOG)
_SWAPPED_LOG = f"{FileKind.LOG}{FileState.SWAP}"

_SEGMENT_KINDS = (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)

# Base offset of a part of a `.log`, its first byte and the byte after it.
Part = tuple[int, int, int]
# Returns the offset after the last batch of a `.log`, given its name, the name of its index (""
# if none) and its base offset.
NextOffset = Callable[[str, str, int], int]


@dataclass(slots=True)
class _Found:
    """The names in the directory: live segment files, `.swap` files of a committed swap, and
    leftovers."""

    live: dict[FileKind, dict[int, str]]
    swaps: list[tuple[str, SegmentFileName]]
    leftovers: dict[str, LeftoverKind]


class PartitionFiles:
    """The files of one partition by kind."""

    def __init__(self, directory: Directory) -> None:
        """Raises CorruptError if an entry with a segment file's name is not a regular file."""
        self.directory = directory
        self.log_sizes: dict[str, int] = {}  # by name on disk
        self._stages: list[list[Action]] = [[]]
        self._found = _Found({kind: {} for kind in FileKind}, [], {})
        files, others = directory.files(_LOG, _SWAPPED_LOG)
        self._refuse(others)
        live = self._found.live
        rest: list[str] = []
        for text, status in files.items():
            size = -1 if status is None else status.st_size
            kind = _KINDS.get(text[_OFFSET_DIGITS:])
            digits = text[:_OFFSET_DIGITS]
            if kind is None or text[0] != "0" or not (digits.isascii() and digits.isdigit()):
                rest.append(text)
                self._sort_in(text, size)
            else:  # same result as parse_segment_file, but faster for the common names
                live[kind][int(digits)] = text
                if size >= 0:
                    self.log_sizes[text] = size
        self._found.leftovers = leftover_kinds(rest)
        self._found.swaps = sorted(
            each for each in self._found.swaps if each[0] not in self._found.leftovers
        )

    @property
    def stages(self) -> Stages:
        return tuple(tuple(stage) for stage in self._stages if stage)

    def add(self, *actions: Action) -> None:
        """Adds actions to the current stage."""
        self._stages[-1] += actions

    def next_stage(self) -> None:
        """Begins a new stage: its actions require the earlier ones to be on disk."""
        self._stages.append([])

    def live(self, kind: FileKind) -> Mapping[int, str]:
        """Returns the names on disk of the live files of a kind, by their offset."""
        return self._found.live[kind]

    def has(self, base_offset: int, kind: FileKind) -> bool:
        return base_offset in self._found.live[kind]

    def on_disk(self, base_offset: int, kind: FileKind) -> str:
        """Returns the present name of a live file, or the name it would have."""
        known = self._found.live[kind].get(base_offset)
        return segment_file(base_offset, kind) if known is None else known

    def open(self, base_offset: int, kind: FileKind) -> ReadableFile:
        """Opens a live file. Raises SegmentGone if it does not exist."""
        return self.directory.open(self.on_disk(base_offset, kind))

    def retire(self, base_offset: int, why: str) -> None:
        """Renames the files of a segment and the snapshot at its base with the suffix for delayed
        deletion, the `.log` first, since the others mean nothing without it."""
        for kind in FileKind:
            self._retire(base_offset, kind, why)

    def _retire(self, base_offset: int, kind: FileKind, why: str) -> None:
        if self._found.live[kind].pop(base_offset, None) is not None:
            deleted = segment_file(base_offset, kind, FileState.DELETED)
            if deleted in self._found.leftovers:
                self._set_aside(deleted)
            self.add(Rename(segment_file(base_offset, kind), deleted, why))
            self._found.leftovers[deleted] = LeftoverKind.DELETED

    def _set_aside(self, name: str) -> None:
        """Renames a leftover to a name that nothing needs."""
        leftovers = self._found.leftovers
        new = name_aside(name, leftovers.__contains__)
        self.add(Rename(name, new, "a leftover whose name is needed"))
        del leftovers[name]
        leftovers[new] = LeftoverKind.DELETED

    def split(self, base_offset: int, parts: Sequence[Part]) -> None:
        """Splits a segment into several. At every step the file names show whether the old or the
        new segments are valid (LocalLog.splitOverflowedSegment)."""
        why = "its offsets are too far apart for one index"
        for state in (LeftoverKind.SWAP, LeftoverKind.CLEANED):
            for name in [each for each, its in self._found.leftovers.items() if its is state]:
                self._set_aside(name)
            self.next_stage()
        source = segment_file(base_offset, FileKind.LOG)
        for base, start, end in parts:
            cleaned = segment_file(base, FileKind.LOG, FileState.CLEANED)
            self.add(CopyBytes(source, start, end, cleaned, why))
        self.next_stage()
        for base, _, _ in sorted(parts, reverse=True):
            cleaned = segment_file(base, FileKind.LOG, FileState.CLEANED)
            swap = segment_file(base, FileKind.LOG, FileState.SWAP)
            self.add(Rename(cleaned, swap, why))
            self.next_stage()
        for kind in _SEGMENT_KINDS:
            self._retire(base_offset, kind, why)
        self.next_stage()
        for base, _, _ in parts:
            swap = segment_file(base, FileKind.LOG, FileState.SWAP)
            self.add(Rename(swap, segment_file(base, FileKind.LOG), why))
        self.next_stage()

    def deleted_segments(self) -> dict[int, list[FileKind]]:
        """Returns the files of deleted segments by base offset. Omits segments that still have live
        files: their deletion did not finish, or they were replaced."""
        live = self._found.live
        deleted: dict[int, list[FileKind]] = {}
        for text, kind in sorted(self._found.leftovers.items()):
            name = parse_segment_file(text) if kind is LeftoverKind.DELETED else None
            if name is not None and not any(name.base_offset in live[k] for k in _SEGMENT_KINDS):
                deleted.setdefault(name.base_offset, []).append(name.kind)
        return deleted

    def complete_swaps(self, next_offset: NextOffset) -> None:
        """Finishes a committed segment swap: all files whose offsets the swapped logs cover become
        `.deleted`, and the `.swap` files get their names, the logs first."""
        swaps = self._found.swaps
        logs = [(text, name) for text, name in swaps if name.kind is FileKind.LOG]
        if logs:
            low = min(name.base_offset for _, name in logs)
            indexes = {
                name.base_offset: text for text, name in swaps if name.kind is FileKind.INDEX
            }
            high = max(
                next_offset(text, indexes.get(name.base_offset, ""), name.base_offset)
                for text, name in logs
            )
            self._retire_covered(low, high)
        self._rename_swaps(logs)
        self._rename_swaps([item for item in swaps if item[1].kind is not FileKind.LOG])

    def _rename_swaps(self, swaps: list[tuple[str, SegmentFileName]]) -> None:
        for text, name in swaps:
            final = segment_file(name.base_offset, name.kind)
            self.add(Rename(text, final, "its segment swap was committed"))
            self._found.live[name.kind][name.base_offset] = text
        self.next_stage()

    def _retire_covered(self, low: int, high: int) -> None:
        why = f"replaced by segments with the offsets {low} to {high - 1}"
        for kind, live in self._found.live.items():
            for base in sorted(base for base in live if low <= base < high):
                self._retire(base, kind, why)
        self.next_stage()

    def retire_orphans(self) -> None:
        """Finishes the deletion of segments whose `.log` was renamed but some of their indexes were
        not."""
        live = self._found.live
        for kind in (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX):
            for base in sorted(live[kind].keys() - live[FileKind.LOG].keys()):
                self._retire(base, kind, "an index without its .log")

    def _refuse(self, others: Sequence[DirectoryEntry]) -> None:
        for entry in others:
            if parse_segment_file(entry.name) is not None:
                what = f"a {entry.kind}, not a regular file"
                raise CorruptError(what, self.directory.path_of(entry.name))

    def _sort_in(self, text: str, size: int) -> None:
        name = parse_segment_file(text)
        if name is None:
            return
        if name.state is FileState.LIVE:
            self._found.live[name.kind][name.base_offset] = text
        elif name.state is FileState.SWAP:
            self._found.swaps.append((text, name))
        if size >= 0:
            self.log_sizes[text] = size
