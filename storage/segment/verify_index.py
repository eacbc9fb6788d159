"""The indexes of a segment held against its batches.

An index is right when every look-up in it finds what it should. Brokers differ in what they write:
3.9 and 4.x give an entry of the offset index a batch's last offset and its position, older ones the
last offset of a whole append and the position of its first batch. Both are right, so what is asked
of an entry is that a batch begins at its position, and that its offset is the last one of that or a
later batch, before the one that the next entry points to. An offset inside a batch is right where
the cleaner took records out of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

import numpy as np

from ..disk import OpenFile
from ..errors import printable
from ..format import batch as b
from ..format.batch import BatchTable, Int64s
from ..format.layout import MAX_INT32, NO_TIMESTAMP
from . import offset_index, time_index

_BLOCK_BYTES = 1 << 20
_OFFSET_FIELDS = np.dtype([("relative offset", ">i4"), ("position", ">i4")])
_TIME_FIELDS = np.dtype([("timestamp", ">i8"), ("relative offset", ">i4")])


# What findings have in common that say where the log ends.
BEYOND_END: Final = "beyond the log's end"


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A rule that is broken, in file `file` at byte `position` (-1 where it is about the whole).

    `lasting`: what stays of `what` while the log grows; "" where all of it does.
    """

    file: str
    position: int
    what: str
    lasting: str = field(default="", compare=False)

    @property
    def identity(self) -> tuple[str, int, str]:
        """What two readings of a growing log have in common when they find the same fault."""
        return self.file, self.position, self.lasting or self.what

    def as_json(self) -> dict[str, str | int]:
        return {"file": self.file, "position": self.position, "what": self.what}

    def __str__(self) -> str:
        place = f": position {self.position}" if self.position >= 0 else ""
        return f"{printable(self.file)}{place}: {self.what}"


class _Entries:
    """The entries of an index file in the order of one of their columns, `keys`; `others` is the
    other one. `findings` is what was found so far."""

    def __init__(self, file: OpenFile, layout: Struct, fields: np.dtype[np.void], key: str) -> None:
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
        """These entries agree with the log."""
        self._is_right[self._order[entries]] = True

    def wrong(self, entry: int, what: str, lasting: str = "") -> None:
        """An entry disagrees with the log; `lasting`: as in Finding."""
        slot = int(self._order[entry])
        self._is_right[slot] = False
        self._find(slot, what, lasting)

    def check_order(self, strict: Sequence[str]) -> None:
        """What is right must also rise from entry to entry, strictly in the columns `strict`."""
        slots = np.flatnonzero(self._is_right)
        rises = np.ones(max(len(slots) - 1, 0), dtype=np.bool_)
        for name, column in self._columns.items():
            rises &= np.diff(column[slots]) >= (1 if name in strict else 0)
        for slot in slots[1:][~rises].tolist():
            self._find(slot, "it does not rise above the one before it")

    def check_padding(self, allowed: int = 0) -> None:
        """Zeros that nobody cut off when the file was closed; a broker takes them for entries."""
        if self._padding >= self.entry_bytes and self._padding != allowed:
            what = f"{self._padding} bytes of zeros behind the last entry, taken for entries"
            self.findings.append(Finding(self.file, self._end, what))

    def _find(self, slot: int, what: str, lasting: str = "") -> None:
        values = ", ".join(f"{name} {int(self._columns[name][slot])}" for name in self._columns)
        about = f"entry {slot} ({values})"
        place = slot * self.entry_bytes
        self.findings.append(
            Finding(self.file, place, f"{about}: {what}", lasting and f"{about}: {lasting}")
        )

    def _content(self, file: OpenFile) -> bytes:
        """The entries' bytes."""
        size, entry = file.size(), self.entry_bytes
        if size > MAX_INT32:
            what = f"{size} bytes, more than an index can have"
            self.findings.append(Finding(file.path, -1, what))
            size = 0
        if size % entry:
            what = f"{size} bytes, no multiple of an entry's {entry}"
            self.findings.append(Finding(file.path, size - size % entry, what))
        data = _written(file, size)
        self._end = min(-(-len(data) // entry) * entry, size // entry * entry)
        self._padding = size - self._end
        return data[: self._end].ljust(self._end, b"\0")


class OffsetIndexCheck:
    """The entries of an `.index`, checked as the batches of its `.log` go by."""

    def __init__(self, file: OpenFile, base_offset: int, is_closed: bool) -> None:
        """`is_closed`: a segment that is not written any more, whose indexes have been cut."""
        self._entries = _Entries(file, offset_index.ENTRY, _OFFSET_FIELDS, "position")
        self._positions, self._offsets = self._entries.keys, self._entries.others + base_offset
        self._is_closed = is_closed
        self._next = 0  # entries before it have been looked at
        self._pointing = -1  # the last of them that points to a batch
        self._endless: list[int] = []  # such whose offset has not been seen yet

    def batches(self, table: BatchTable) -> None:
        """These batches follow those before."""
        starts = table.column(b.POSITION)
        end = int(starts[-1] + table.rows[-1, b.SIZE])
        self._skip(int(starts[0]), "no batch begins there")
        last = int(np.searchsorted(self._positions, end))
        rows = np.searchsorted(starts, self._positions[self._next : last], side="right") - 1
        bases = table.column(b.BASE_OFFSET)[rows].tolist()
        points = (starts[rows] == self._positions[self._next : last]).tolist()
        for entry, base, is_start in zip(range(self._next, last), bases, points, strict=True):
            if is_start:
                self._check(entry, base)
            else:
                self._entries.wrong(entry, "no batch begins there")
        self._next = last
        self._check_ends(table)

    def _check_ends(self, table: BatchTable) -> None:
        """Whether the offsets of entries that point to a batch are the last ones of batches."""
        last_offsets = table.column(b.LAST_OFFSET)
        rows = np.searchsorted(last_offsets, self._offsets[self._endless]).tolist()
        later = []
        for entry, row in zip(self._endless, rows, strict=True):
            if row == len(table):
                later.append(entry)
                continue
            offset, header = int(self._offsets[entry]), table[row]
            offsets = header.last_offset - header.base_offset + 1
            if header.last_offset != offset and header.record_count == offsets:
                held = f"the batch there has {header.base_offset} to {header.last_offset}"
                self._entries.wrong(entry, f"no batch ends at that offset, {held}")
        self._endless = later

    def _check(self, entry: int, base: int) -> None:
        """An entry that points to a batch; `base` is that one's offset."""
        if self._pointing >= 0 and int(self._offsets[self._pointing]) >= base:
            what = f"the batch that another entry points to begins at offset {base} already"
            self._entries.wrong(self._pointing, what)
        self._pointing = -1
        if int(self._offsets[entry]) < base:
            self._entries.wrong(entry, f"the batch there begins at offset {base}")
        else:
            self._entries.right(slice(entry, entry + 1))
            self._pointing = entry
            self._endless.append(entry)

    def lost(self, resume: int) -> None:
        """The log cannot be read up to position `resume`: its entries are not to be judged."""
        self._endless = []
        self._next = max(self._next, int(np.searchsorted(self._positions, resume)))

    def finish(self, next_offset: int) -> list[Finding]:
        """All that is wrong; `next_offset` is the one after the last batch."""
        self._skip(MAX_INT32 + 1, "it lies behind the log's last batch")
        if self._pointing >= 0 and int(self._offsets[self._pointing]) >= next_offset:
            what = f"the log's last offset is {next_offset - 1}"
            self._entries.wrong(self._pointing, what, BEYOND_END)
        self._entries.check_order(("relative offset", "position"))
        if self._is_closed:
            self._entries.check_padding()
        return sorted(self._entries.findings)

    def _skip(self, position: int, what: str) -> None:
        """The entries below `position` that no batch was there for."""
        last = int(np.searchsorted(self._positions, position))
        for entry in range(self._next, last):
            self._entries.wrong(entry, what)
        self._next = max(self._next, last)


class TimeIndexCheck:
    """The entries of a `.timeindex`, checked as the batches of its `.log` go by: up to an entry's
    offset its timestamp is the largest, and the batch of that offset has it."""

    def __init__(self, file: OpenFile, base_offset: int, is_closed: bool) -> None:
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
        # A wrapper does not tell its first offset.
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
        """Here the log cannot be read: entries for what it held are not to be judged."""
        self._is_whole, self._is_behind_damage = False, True

    def finish(self, next_offset: int) -> list[Finding]:
        """All that is wrong; `next_offset` is the one after the last batch."""
        entries = self._entries
        if not self._is_behind_damage:
            for entry in range(self._next, len(entries)):
                what = f"the log's last offset is {next_offset - 1}"
                entries.wrong(entry, what, BEYOND_END)
        entries.check_order(("timestamp",))
        if self._is_closed:
            # An entry of zeros is what a timestamp of 0 at the base offset gives.
            is_entry = self._largest == 0 and not len(entries)
            entries.check_padding(entries.entry_bytes if is_entry else 0)
            known = 0 if is_entry else int(self._times.max(initial=NO_TIMESTAMP))
            if self._is_whole and known < self._largest:
                what = f"its last timestamp is {known}, the log's largest is {self._largest}"
                entries.findings.append(Finding(entries.file, -1, what))
        return sorted(entries.findings)


def _written(file: OpenFile, size: int) -> bytes:
    """The file without the zeros at its end; holes are not read."""
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
