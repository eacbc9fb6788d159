"""Verifies the offset and time index of a segment against its batches.

An index is right if every lookup in it finds what it should. Brokers differ in what they write: 3.9
and 4.x give an entry of the offset index a batch's last offset and its position, older ones the
last offset of a whole append and the position of its first batch. Both are right, so the check only
requires that a batch begins at an entry's position, and that its offset is the last one of that
batch or of a later one before the batch that the next entry points to. An offset inside a batch is
right if the cleaner removed records from the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import numpy as np

from ...format.layout import MAX_INT32, NO_TIMESTAMP
from ...format.records import batch as b
from ...format.records.batch import BatchTable, Int64s
from ...io.directory import ReadableFile
from ...wording import printable
from .. import offset_index, time_index

_BLOCK_BYTES = 1 << 20
_OFFSET_FIELDS = np.dtype([("relative offset", ">i4"), ("position", ">i4")])
_TIME_FIELDS = np.dtype([("timestamp", ">i8"), ("relative offset", ">i4")])


# The `lasting` text of findings that mention the end of the log.
BEYOND_END: Final = "beyond the log's end"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A violation of a rule in file `file` at byte `position` (-1 for the whole file).

    `lasting`: the part of `what` that does not change while the log grows; "" if all of it.
    """

    file: str
    position: int
    what: str
    lasting: str = field(default="", compare=False)

    @property
    def identity(self) -> tuple[str, int, str]:
        """A key by which two readings of a growing log recognize the same finding."""
        return self.file, self.position, self.lasting or self.what

    def as_json(self) -> dict[str, str | int]:
        return {"file": self.file, "position": self.position, "what": self.what}

    def __str__(self) -> str:
        place = f": position {self.position}" if self.position >= 0 else ""
        return f"{printable(self.file)}{place}: {self.what}"


class _Entries:
    """The entries of an index file, sorted by one of their columns, `keys`; `others` is the other
    column. `findings` are the findings so far."""

    def __init__(
        self, file: ReadableFile, layout: Struct, fields: np.dtype[np.void], key: str
    ) -> None:
        self.file = file.path
        self.findings: list[Finding] = []
        self.entry_bytes = layout.size
        rows = np.frombuffer(self._content(file), dtype=fields)
        self._columns = {name: rows[name].astype(np.int64) for name in fields.names or ()}
        self._order = np.argsort(self._columns[key], kind="stable")
        (other,) = self._columns.keys() - {key}
        self.keys, self.others = (self._columns[name][self._order] for name in (key, other))
        self._is_right = np.zeros(len(rows), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.keys)

    def right(self, entries: slice | Int64s) -> None:
        """Marks entries as agreeing with the log."""
        self._is_right[self._order[entries]] = True

    def wrong(self, entry: int, what: str, lasting: str = "") -> None:
        """Adds a finding for an entry that disagrees with the log; `lasting`: as in Finding."""
        slot = int(self._order[entry])
        self._is_right[slot] = False
        self._find(slot, what, lasting)

    def check_order(self, strict: Sequence[str]) -> None:
        """Checks that right entries ascend, strictly in the columns `strict`."""
        slots = np.flatnonzero(self._is_right)
        rises = np.ones(max(len(slots) - 1, 0), dtype=np.bool_)
        for name, column in self._columns.items():
            rises &= np.diff(column[slots]) >= (1 if name in strict else 0)
        for slot in slots[1:][~rises].tolist():
            self._find(slot, "it does not ascend from the entry before it")

    def check_padding(self, allowed: int = 0) -> None:
        """Checks that zeros were truncated when the file was closed; a broker would take them for
        entries."""
        if self._padding >= self.entry_bytes and self._padding != allowed:
            what = f"{self._padding} bytes of zeros after the last entry, which brokers would use"
            self.findings.append(Finding(self.file, self._end, what))

    def _find(self, slot: int, what: str, lasting: str = "") -> None:
        values = ", ".join(f"{name} {int(self._columns[name][slot])}" for name in self._columns)
        about = f"entry {slot} ({values})"
        place = slot * self.entry_bytes
        self.findings.append(
            Finding(self.file, place, f"{about}: {what}", lasting and f"{about}: {lasting}")
        )

    def _content(self, file: ReadableFile) -> bytes:
        """Returns the bytes of the entries."""
        size, entry = file.size(), self.entry_bytes
        if size > MAX_INT32:
            what = f"{size} bytes, more than an index can have"
            self.findings.append(Finding(file.path, -1, what))
            size = 0
        if size % entry:
            what = f"{size} bytes, not a multiple of the entry size {entry}"
            self.findings.append(Finding(file.path, size - size % entry, what))
        data = _written(file, size)
        self._end = min(-(-len(data) // entry) * entry, size // entry * entry)
        self._padding = size - self._end
        return data[: self._end].ljust(self._end, b"\0")


class OffsetIndexCheck:
    """Checks the entries of an `.index` while the batches of its `.log` are read in order."""

    def __init__(self, file: ReadableFile, base_offset: int, is_closed: bool) -> None:
        """`is_closed`: the segment is complete, so its indexes must have been truncated."""
        self._entries = _Entries(file, offset_index.ENTRY, _OFFSET_FIELDS, "position")
        self._positions, self._offsets = self._entries.keys, self._entries.others + base_offset
        self._is_closed = is_closed
        self._next = 0  # entries before it have been checked
        self._pointing = -1  # the last of them that points to a batch
        # Entries that point to a batch, and whose offset was not seen yet.
        self._endless: Int64s = np.empty(0, dtype=np.int64)

    def batches(self, table: BatchTable) -> None:
        """Checks entries against the next batches."""
        starts = table.column(b.POSITION)
        end = int(starts[-1] + table.rows[-1, b.SIZE])
        self._skip(int(starts[0]), "no batch begins there")
        last = int(np.searchsorted(self._positions, end))
        entries = np.arange(self._next, max(last, self._next))
        rows = np.searchsorted(starts, self._positions[entries], side="right") - 1
        points = starts[rows] == self._positions[entries]
        for entry in entries[~points].tolist():
            self._entries.wrong(entry, "no batch begins there")
        self._check_offsets(entries[points], table.column(b.BASE_OFFSET)[rows[points]])
        self._next = max(last, self._next)
        self._check_ends(table)

    def _check_offsets(self, entries: Int64s, bases: Int64s) -> None:
        """Checks entries that point to batches with these base offsets: their own must be at least
        that, and less than the base offset of the next."""
        if not len(entries):
            return
        offsets = self._offsets[entries]
        is_right = offsets >= bases
        self._entries.right(entries[is_right])
        for number in np.flatnonzero(~is_right).tolist():
            what = f"the batch there begins at offset {bases[number]}"
            self._entries.wrong(int(entries[number]), what)
        before = np.concatenate(([self._pointing], np.where(is_right, entries, -1)[:-1]))
        is_late = (before >= 0) & (self._offsets[before] >= bases)
        for number in np.flatnonzero(is_late).tolist():
            what = f"the batch of a later entry begins at offset {bases[number]} already"
            self._entries.wrong(int(before[number]), what)
        self._pointing = int(entries[-1]) if is_right[-1] else -1
        self._endless = np.concatenate((self._endless, entries[is_right]))

    def _check_ends(self, table: BatchTable) -> None:
        """Checks that the offsets of entries that point to a batch are last offsets of batches."""
        last_offsets, bases = table.column(b.LAST_OFFSET), table.column(b.BASE_OFFSET)
        rows = np.searchsorted(last_offsets, self._offsets[self._endless])
        is_there = rows < len(table)
        entries, rows = self._endless[is_there], rows[is_there]
        is_whole = table.column(b.RECORD_COUNT)[rows] == last_offsets[rows] - bases[rows] + 1
        is_wrong = is_whole & (last_offsets[rows] != self._offsets[entries])
        for entry, row in zip(entries[is_wrong].tolist(), rows[is_wrong].tolist(), strict=True):
            held = f"the batch there has {bases[row]} to {last_offsets[row]}"
            self._entries.wrong(entry, f"no batch ends at that offset, {held}")
        self._endless = self._endless[~is_there]

    def lost(self, resume: int) -> None:
        """Skips the entries for a part of the log that is unreadable, up to position `resume`."""
        self._endless = self._endless[:0]
        self._next = max(self._next, int(np.searchsorted(self._positions, resume)))

    def finish(self, next_offset: int) -> list[Finding]:
        """Returns all findings; `next_offset` is the offset after the last batch."""
        self._skip(MAX_INT32 + 1, "it lies past the log's last batch")
        if self._pointing >= 0 and int(self._offsets[self._pointing]) >= next_offset:
            what = f"the log's last offset is {next_offset - 1}"
            self._entries.wrong(self._pointing, what, BEYOND_END)
        self._entries.check_order(("relative offset", "position"))
        if self._is_closed:
            self._entries.check_padding()
        return sorted(self._entries.findings)

    def _skip(self, position: int, what: str) -> None:
        """Rejects the remaining entries below `position`, for which there was no batch."""
        last = int(np.searchsorted(self._positions, position))
        for entry in range(self._next, last):
            self._entries.wrong(entry, what)
        self._next = max(self._next, last)


class TimeIndexCheck:
    """Checks the entries of a `.timeindex` while the batches of its `.log` are read in order: an
    entry's timestamp must be the largest up to its offset, and the batch of that offset must have
    it."""

    def __init__(self, file: ReadableFile, base_offset: int, is_closed: bool) -> None:
        self._entries = _Entries(file, time_index.ENTRY, _TIME_FIELDS, "relative offset")
        self._offsets, self._times = self._entries.keys + base_offset, self._entries.others
        self._is_closed = is_closed
        self._next = 0
        self._largest = NO_TIMESTAMP
        self._is_whole = True  # nothing of the log was unreadable
        self._is_behind_damage = False

    def batches(self, table: BatchTable) -> None:
        last_offsets, times = table.column(b.LAST_OFFSET), table.column(b.MAX_TIMESTAMP)
        largest = np.maximum.accumulate(np.maximum(times, self._largest))
        if self._is_behind_damage:
            lost = int(np.searchsorted(self._offsets, table.rows[0, b.BASE_OFFSET]))
            self._next, self._is_behind_damage = max(self._next, lost), False
        last = int(np.searchsorted(self._offsets, last_offsets[-1], side="right"))
        chosen = slice(self._next, max(last, self._next))
        rows = np.searchsorted(last_offsets, self._offsets[chosen], side="left")
        # A wrapper's header does not show its first offset.
        firsts = np.where(table.column(b.RECORD_COUNT) < 0, 0, table.column(b.BASE_OFFSET))
        is_held = firsts[rows] <= self._offsets[chosen]
        is_right = is_held & (times[rows] == self._times[chosen])
        if self._is_whole:
            is_right &= largest[rows] == self._times[chosen]
        self._entries.right(self._next + np.flatnonzero(is_right))
        for number in np.flatnonzero(~is_right).tolist():
            what = "no batch holds that offset"
            if is_held[number]:
                what = f"the largest timestamp up to there is {int(largest[rows[number]])}"
                if times[rows[number]] != largest[rows[number]]:
                    what += f", that of the batch there {int(times[rows[number]])}"
            self._entries.wrong(self._next + number, what)
        self._next, self._largest = chosen.stop, int(largest[-1])

    def lost(self, _resume: int) -> None:
        """Skips the entries for a part of the log that is unreadable."""
        self._is_whole, self._is_behind_damage = False, True

    def finish(self, next_offset: int) -> list[Finding]:
        """Returns all findings; `next_offset` is the offset after the last batch."""
        entries = self._entries
        if not self._is_behind_damage:
            for entry in range(self._next, len(entries)):
                what = f"the log's last offset is {next_offset - 1}"
                entries.wrong(entry, what, BEYOND_END)
        entries.check_order(("timestamp",))
        if self._is_closed:
            # A timestamp of 0 at the base offset produces an entry of zeros.
            is_entry = self._largest == 0 and not len(entries)
            entries.check_padding(entries.entry_bytes if is_entry else 0)
            known = 0 if is_entry else int(self._times.max(initial=NO_TIMESTAMP))
            if self._is_whole and known < self._largest:
                what = f"its last timestamp is {known}, the log's largest is {self._largest}"
                entries.findings.append(Finding(entries.file, -1, what))
        return sorted(entries.findings)


def _written(file: ReadableFile, size: int) -> bytes:
    """Reads the file without the zeros at its end; skips holes."""
    parts: list[bytes] = []
    position = zeros = 0
    while position < size:
        start = min(file.next_data(position), size)
        data = file.read(start, min(_BLOCK_BYTES, size - start))
        zeros += start - position
        stripped = data.rstrip(b"\0")
        if stripped:
            parts += [bytes(zeros), stripped]
            zeros = 0
        zeros += len(data) - len(stripped)
        position = start + len(data)
        if not data:
            break
    return b"".join(parts)
