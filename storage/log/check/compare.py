"""Compares two copies of a partition, offset by offset.

Equal bytes are equal records, so batches are decoded only where the bytes of the two copies differ:
where a copy has other records, or has them in other batches, because it was compressed or compacted
on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...concurrency.read_ahead import read_ahead
from ...errors import CorruptError
from ...format.layout import MAX_OFFSET
from ...format.records import batch as b
from ...format.records.batch import BatchTable, Int64s
from ...format.records.columns import Columns, Damage
from ...format.records.decoder import BadBatch, Decoder
from ...segment.extent import Fault
from ...segment.walk import BatchRun, read_runs
from ..read.lookup import extent_from, position_for
from ..read.scan import lost_batch, lost_between, within
from ..read.view import View
from .compare_records import different_batches, different_epochs, different_records

_RUN_BYTES: Final = 4 << 20
# The first bytes that are compared at once, of batches that may differ, and how many more at each
# further comparison.
_FIRST_BYTES: Final = 64 << 10
_GROWTH: Final = 4
# Batches decoded at once after a difference; twice as many while no equal batches follow.
_MOST_BATCHES: Final = 4096


class RangeKind(StrEnum):
    """What is different about the records of a range of offsets."""

    CONTENT = "content"  # both copies have records there, but other ones
    EPOCH = "leader epoch"  # equal records, written in different leader epochs
    BATCHES = "batches"  # equal records in batches with different bytes
    ONE_SIDED = "one-sided"  # only one copy has them


class Absence(StrEnum):
    """Why one copy lacks records that the other has."""

    BELOW_START = "below the log start offset"
    PAST_END = "past the log end offset"
    COMPACTED = "compacted away"
    DAMAGED = "damaged"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class DifferentRange:
    """Records with offsets in [`start`, `end`) that differ; `records`: how many, -1 if unknown.
    `side`, 0 or 1: the only copy that has them, and `absence`: why the other lacks them; -1 and
    None if both have a record at each of these offsets.

    A cleaner leaves records between those that it removes: there is one range for all records that
    one copy has lost by compaction, in which both may have others.
    """

    kind: RangeKind
    start: int
    end: int
    records: int
    side: int = -1
    absence: Absence | None = None


@dataclass(frozen=True, slots=True)
class LogCopy:
    """One of the two copies. Records below `cleaned_end` may have been removed by compaction."""

    view: View
    cleaned_end: int


OnRead = Callable[[int], object]


class Comparison:
    """Compares the offsets that both copies serve. `damage` of each copy is complete once `ranges`
    is exhausted."""

    def __init__(
        self, copies: tuple[LogCopy, LogCopy], on_read: OnRead, *, compares_batches: bool
    ) -> None:
        """`on_read` is called with the number of bytes read. `compares_batches`: whether equal
        records in different batches differ."""
        self.start = max(copy.view.start_offset for copy in copies)
        self.end = min(copy.view.end_offset for copy in copies)
        self._copies = copies
        self._readers = tuple(_Reader(copy.view, self.start, self.end, on_read) for copy in copies)
        self._compares_batches = compares_batches
        self._bytes = _FIRST_BYTES  # to compare next
        self._batches = 1  # to decode next
        self._found = _Ranges()

    @property
    def damage(self) -> tuple[Sequence[CorruptError], Sequence[CorruptError]]:
        first, second = ([lost.error for lost in reader.lost] for reader in self._readers)
        return first, second

    def ranges(self) -> list[DifferentRange]:
        """Reads both copies, and returns the ranges that differ, by start. Raises SegmentGone if
        files vanish meanwhile."""
        outer = list(self._outside())
        if self.start < self.end:
            self._compare()
        return sorted([*outer, *self._found.ranges()], key=lambda each: (each.start, each.side))

    def _outside(self) -> Iterator[DifferentRange]:
        """Yields what lies before the start or after the end of one of the copies."""
        for side, copy in enumerate(self._copies):
            start, end = copy.view.start_offset, copy.view.end_offset
            before, after = min(end, self.start), max(start, self.end)
            if start < before:
                yield _one_sided(start, before, side, Absence.BELOW_START)
            if max(after, before) < end:
                yield _one_sided(max(after, before), end, side, Absence.PAST_END)

    def _compare(self) -> None:
        first, second = self._readers
        while True:
            if first.piece is None and second.piece is None:
                left = first.fill(), second.fill()
                if not any(left):
                    return
                if all(left) and self._skip_equal():
                    continue
            self._decode()
            self._compare_pieces()

    def _skip_equal(self) -> bool:
        """Skips batches whose bytes are equal in both copies; returns whether there were any."""
        first, second = self._readers
        sizes = _common_sizes(first.sizes, second.sizes)
        ends = np.cumsum(sizes)
        count = int(np.searchsorted(ends, self._bytes, side="right"))
        count = min(max(count, 1), len(sizes))
        if count == 0:
            return False
        differ = first.bytes(int(ends[count - 1])) != second.bytes(int(ends[count - 1]))
        if differ.any():
            self._bytes = _FIRST_BYTES
            count = int(np.searchsorted(ends, int(differ.argmax()), side="right"))
            if count == 0:
                return False
        else:
            self._bytes = min(self._bytes * _GROWTH, _RUN_BYTES)
        self._batches = 1
        self._found.note_equal()
        first.skip(count)
        second.skip(count)
        return True

    def _decode(self) -> None:
        """Gets records of both copies, of about the same offsets."""
        leading = next(each for each in self._readers if each.piece is not None or each.fill())
        upto = leading.last_offset(self._batches)
        for reader in self._readers:
            reader.decode(upto)
        self._batches = min(2 * self._batches, _MOST_BATCHES)

    def _compare_pieces(self) -> None:
        """Compares the records up to the last offset that both pieces reach."""
        pieces = [reader.piece for reader in self._readers]
        lasts = [int(piece.offsets[-1]) for piece in pieces if piece is not None]
        if not lasts:
            return
        upto = min(lasts) + 1
        first, second = (reader.below(upto) for reader in self._readers)
        self._compare_columns(first, second)
        for reader in self._readers:
            reader.drop_below(upto)

    def _compare_columns(self, first: Columns | None, second: Columns | None) -> None:
        if first is None or second is None:
            for side, columns in enumerate((first, second)):
                if columns is not None:
                    self._add(columns.offsets, self._one_sided_codes(columns.offsets, side))
            return
        if not np.array_equal(first.offsets, second.offsets):
            offsets = np.union1d(first.offsets, second.offsets)
            codes = np.zeros(len(offsets), dtype=np.int64)
            has = [np.isin(offsets, each.offsets) for each in (first, second)]
            for side in (0, 1):
                alone = has[side] & ~has[1 - side]
                codes[alone] = self._one_sided_codes(offsets[alone], side)
            both = has[0] & has[1]
            first = first.where(np.isin(first.offsets, offsets[both]))
            second = second.where(np.isin(second.offsets, offsets[both]))
            codes[both] = self._common_codes(first, second)
            self._add(offsets, codes)
            return
        self._add(first.offsets, self._common_codes(first, second))

    def _common_codes(self, first: Columns, second: Columns) -> Int64s:
        codes = np.zeros(len(first), dtype=np.int64)
        if self._compares_batches:
            codes[different_batches(first, second)] = _CODES.index((RangeKind.BATCHES, -1, None))
        codes[different_epochs(first, second)] = _CODES.index((RangeKind.EPOCH, -1, None))
        codes[different_records(first, second)] = _CODES.index((RangeKind.CONTENT, -1, None))
        return codes

    def _one_sided_codes(self, offsets: Int64s, side: int) -> Int64s:
        """Returns why the other copy lacks records at these offsets."""
        other = 1 - side
        codes = np.full(len(offsets), _one_sided_code(side, Absence.MISSING))
        cleaned = offsets < self._copies[other].cleaned_end
        codes[cleaned] = _one_sided_code(side, Absence.COMPACTED)
        for lost in reversed(self._readers[other].lost):  # by offset, so few matter
            if 0 <= lost.next_offset <= offsets[0]:
                break
            end = lost.next_offset if lost.next_offset >= 0 else self.end
            is_lost = (offsets >= lost.first_offset) & (offsets < end)
            codes[is_lost] = _one_sided_code(side, Absence.DAMAGED)
        return codes

    def _add(self, offsets: Int64s, codes: Int64s) -> None:
        edges = np.flatnonzero(np.diff(codes)) + 1
        for low, high in zip([0, *edges.tolist()], [*edges.tolist(), len(codes)], strict=True):
            if low < high:
                code = int(codes[low])
                self._found.add(code, int(offsets[low]), int(offsets[high - 1]) + 1, high - low)


# What is different about a record, by number; 0 is nothing.
_CODES: Final[Sequence[tuple[RangeKind, int, Absence | None] | None]] = (
    None,
    *((kind, -1, None) for kind in (RangeKind.CONTENT, RangeKind.EPOCH, RangeKind.BATCHES)),
    *((RangeKind.ONE_SIDED, side, absence) for side in (0, 1) for absence in Absence),
)


def _one_sided_code(side: int, absence: Absence) -> int:
    return _CODES.index((RangeKind.ONE_SIDED, side, absence))


def _one_sided(start: int, end: int, side: int, absence: Absence) -> DifferentRange:
    return DifferentRange(RangeKind.ONE_SIDED, start, end, -1, side, absence)


def _common_sizes(first: Int64s, second: Int64s) -> Int64s:
    """Returns the sizes that two sequences begin with."""
    count = min(len(first), len(second))
    differ = first[:count] != second[:count]
    return first[: int(differ.argmax()) if differ.any() else count]


class _Ranges:
    """Joins the records found to ranges: those with the same code, without a record between them
    that is equal or differs in another way."""

    def __init__(self) -> None:
        self._closed: list[DifferentRange] = []
        self._open: tuple[int, int, int, int] | None = None  # code, start, end, records
        self._compacted: dict[int, tuple[int, int, int, int]] = {}  # the same by code

    def add(self, code: int, start: int, end: int, records: int) -> None:
        """Adds the next records. Code 0: they are equal."""
        meaning = _CODES[code]
        if meaning is not None and meaning[2] is Absence.COMPACTED:
            _, first, _, count = self._compacted.get(code, (code, start, end, 0))
            self._compacted[code] = code, first, end, count + records
            return
        if self._open is not None and self._open[0] == code:
            _, first, _, count = self._open
            self._open = code, first, end, count + records
            return
        self.note_equal()
        if code:
            self._open = code, start, end, records

    def note_equal(self) -> None:
        """Notes that the next records are equal in both copies."""
        if self._open is not None:
            self._closed.append(_range(*self._open))
            self._open = None

    def ranges(self) -> list[DifferentRange]:
        self.note_equal()
        return [*self._closed, *(_range(*each) for each in self._compacted.values())]


def _range(code: int, start: int, end: int, records: int) -> DifferentRange:
    meaning = _CODES[code]
    assert meaning is not None
    kind, side, absence = meaning
    return DifferentRange(kind, start, end, records, side, absence)


class _Reader:
    """Reads the batches of one copy that have records in [`start`, `end`).

    It is at a batch of a run, or has decoded batches: then `piece` has their next records. `lost`:
    the offsets that damage has made unreadable so far.
    """

    def __init__(self, view: View, start: int, end: int, on_read: OnRead) -> None:
        self.piece: Columns | None = None
        self.lost: list[Damage] = []
        self._view = view
        self._start, self._end = start, end
        self._on_read = on_read
        self._decoder = Decoder(view.context.limits.max_batch_bytes)
        self._runs = self._all_runs()
        self._run = BatchRun(memoryview(b""), 0, BatchTable.empty())
        self._at = 0  # of the run's batches, the next one
        self._file = ""  # of the run
        self._reached = start  # offsets below the run are read or lost
        self._pieces: Iterator[Columns] = iter(())

    # -- runs -----------------------------------------------------------------------------------

    def fill(self) -> bool:
        """Reads the next run if the last one is used up. Returns whether there is a batch."""
        while self._at >= len(self._run.table):
            run = next(self._runs, None)
            if run is None:
                return False
            self._run, self._at = run, 0
            self._on_read(int(self.sizes.sum()))
        return True

    def _all_runs(self) -> Iterator[BatchRun]:
        limit = self._view.context.limits.max_batch_bytes
        for segment in self._view.segments.from_offset(self._start):
            if segment.base_offset >= self._end:
                return
            position = 0
            if self._start > segment.base_offset:
                position = position_for(segment, self._start, limit)
            extent = extent_from(segment, position, limit)
            faults: list[Fault] = []
            self._file = segment.path
            for run in read_ahead(read_runs(extent, _RUN_BYTES, stay_valid=True, together=True)):
                if isinstance(run, Fault):
                    faults.append(run)
                    continue
                self._note_faults(faults, int(run.table.rows[0, b.BASE_OFFSET]))
                faults = []
                yield self._trimmed(run)
                self._reached = int(run.table.rows[-1, b.LAST_OFFSET]) + 1
                if self._reached >= self._end:
                    return
            self._note_faults(faults, segment.next_base)

    def _note_faults(self, faults: Sequence[Fault], resumed: int) -> None:
        if faults:
            args = self._reached, resumed, self._start, self._end
            self.lost.extend(lost_between(faults, *args))

    def _trimmed(self, run: BatchRun) -> BatchRun:
        """Returns the run without the batches that have no record in [`start`, `end`)."""
        lasts = run.table.column(b.LAST_OFFSET)
        low, high = np.searchsorted(lasts, (self._start, self._end - 1)).tolist()
        if low == 0 and high + 1 >= len(lasts):
            return run
        return BatchRun(run.data, run.base, run.table.select(slice(low, high + 1)))

    @property
    def sizes(self) -> Int64s:
        """The sizes of the run's remaining batches, in bytes."""
        return self._run.table.column(b.SIZE)[self._at :]

    def bytes(self, size: int) -> NDArray[np.uint8]:
        """Returns the first bytes of the run's remaining batches."""
        start = int(self._run.table.rows[self._at, b.POSITION]) - self._run.base
        return np.frombuffer(self._run.data, dtype=np.uint8, count=size, offset=start)

    def skip(self, batches: int) -> None:
        self._at += batches

    # -- records --------------------------------------------------------------------------------

    def last_offset(self, batches: int) -> int:
        """Returns the last offset of `piece` or, without one, of the next batches."""
        if self.piece is not None:
            return int(self.piece.offsets[-1])
        lasts = self._run.table.column(b.LAST_OFFSET)[self._at :]
        return int(lasts[min(batches, len(lasts)) - 1])

    def decode(self, upto: int) -> None:
        """Decodes the next batches, up to that of the offset `upto` or the end of the run; more if
        they have no records."""
        while self.piece is None and self.fill():
            lasts = self._run.table.column(b.LAST_OFFSET)[self._at :]
            stop = self._at + min(int(np.searchsorted(lasts, upto)) + 1, len(lasts))
            self._pieces = self._decoded(self._run, slice(self._at, stop))
            self._at = stop
            self.piece = next(self._pieces, None)

    def _decoded(self, run: BatchRun, batches: slice) -> Iterator[Columns]:
        """Yields columns, each valid until the next."""
        for part in self._decoder.decode(run.data, run.base, run.table.select(batches), self._file):
            if isinstance(part, BadBatch):
                args = self._file, run.table, self._reached, self._start, self._end
                self.lost.append(lost_batch(part, *args))
            elif len(found := within(part, self._start, self._end)):
                yield found

    def below(self, offset: int) -> Columns | None:
        """Returns the records of `piece` below an offset, None if there are none."""
        if self.piece is None:
            return None
        found = within(self.piece, 0, offset)
        return found if len(found) else None

    def drop_below(self, offset: int) -> None:
        """Advances `piece` to an offset. It becomes None if all decoded records are used up."""
        if self.piece is not None:
            rest = within(self.piece, offset, MAX_OFFSET)
            self.piece = rest if len(rest) else next(self._pieces, None)
