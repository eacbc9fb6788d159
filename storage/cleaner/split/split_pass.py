"""Divides one pass of the cleaner into pieces that any number of processes can do.

All pieces use the log and a shared directory; those of the same step are independent of each other:

1. `write_keys` writes the keys of a range of the log to a file, by slices of their hashes.
2. `decide_range` finds which records are the newest of the keys in some slices.
3. `copy_range` filters segments that are merged into one, as `cleaning` does, into a `.cleaned`
   segment.

The result is that of a single pass whose offset map has capacity for all keys. Pieces are
idempotent, even if done twice at the same time, and `write_keys` and `decide_range` skip a piece
that is already done. The log must not change from the plan until the last piece is done.

Memory of a piece: in `write_keys` two runs of entries, in `decide_range` the offset map of a slice
and 8 bytes for each key, in `copy_range` 16 bytes for each retained record.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ...errors import CleaningAborted, CorruptError, SegmentGone
from ...format.checksum import crc32c
from ...format.layout import CONTROL_MASK, TRANSACTIONAL_MASK
from ...format.records import batch as b
from ...format.records.batch import Int64s
from ...format.records.decoder import Decoder
from ...io.directory import Directory, ReadableFile
from ...io.durable import WritableDirFd
from ...log.read.lookup import header_at, position_for
from ...log.read.view import View
from ...segment.segment import Segment
from ..cleaned import CleanedSegment
from ..cleaning import CleanedSink, CleaningResult, Copying
from ..kept_offsets import KeptOffsets
from ..live_keys import FIRST_BYTES
from ..offset_map import OffsetMap
from ..offset_map_builder import records_to_map
from ..plan import SegmentToClean
from ..reading import Chunk, read_chunks
from ..record_filter import NewestAmong, OpenTransactions, Outcomes, RecordFilter
from .key_entries import EntryFile, EntryWriter, checksum
from .split_plan import (
    LOAD_FACTOR,
    LogRange,
    RangeTransactions,
    SegmentGroup,
    Shape,
    SplitPass,
    SplitPiece,
)

_OPEN_FILES: Final = 256
# The number of keys, and a checksum.
_TRAILER_BYTES: Final = 16


# -- reading keys ---------------------------------------------------------------------------------


def write_keys(
    split: SplitPass, view: View, each: LogRange, place: WritableDirFd
) -> RangeTransactions:
    """Writes the keys of a range to a file. Raises CorruptError if the log is damaged."""
    name = _keys_name(split.shape, each.number)
    with suppress(SegmentGone, CorruptError):
        there = EntryFile(place, name, split.shape.slices)
        if there.is_whole():
            return RangeTransactions.of_json(there.note())
    new = f"{name}.{uuid.uuid4().hex}"
    writer = EntryWriter(place.create(new), split.shape.hash_key, split.shape.slices)
    found = _RangeKeys(split, view, writer).write(each)
    writer.finish(found.as_json())
    place.rename(new, name)
    return found


class _RangeKeys:
    """The state of one range while its keys are written."""

    def __init__(self, split: SplitPass, view: View, writer: EntryWriter) -> None:
        self._split = split
        self._view = view
        self._writer = writer
        self._outcomes = Outcomes(view)
        self._open = OpenTransactions({})

    def write(self, each: LogRange) -> RangeTransactions:
        with self._view.context.decoder() as decoder:
            for piece in each.pieces:
                segment = _segment(self._view, piece.base_offset, piece.size)
                for chunk in _chunks_of(segment, piece, self._view):
                    self._follow(chunk)
                    self._put_clean(chunk, decoder)
                    low = self._split.first_dirty
                    for columns, first in records_to_map(chunk, low, self._outcomes, decoder):
                        self._writer.put(columns, first, len(columns), latest=True)
        return RangeTransactions(self._open.begun, frozenset(self._open.ended))

    def _follow(self, chunk: Chunk) -> None:
        control = chunk.table.flagged(CONTROL_MASK)
        data = chunk.table.flagged(TRANSACTIONAL_MASK) & ~control
        if (data | control).any():
            for _ in self._open.follow(chunk, data, control):
                pass

    def _put_clean(self, chunk: Chunk, decoder: Decoder) -> None:
        """Puts records that are already clean: each is only looked up among the dirty ones."""
        low, table = self._split.first_dirty, chunk.table
        before = (table.column(b.BASE_OFFSET) < low) | (table.column(b.MAGIC) < 2)
        before &= (table.column(b.RECORD_COUNT) != 0) & ~table.flagged(CONTROL_MASK)
        if low <= chunk.segment.base_offset or not before.any():
            return
        for columns in chunk.decode(table.select(before), decoder):
            end = int(columns.offsets.searchsorted(low))
            self._writer.put(columns, 0, end, latest=False)


def _segment(view: View, base_offset: int, size: int) -> Segment:
    """Returns the segment. Raises CleaningAborted if it is no longer the planned one."""
    at = view.segments.floor_index(base_offset)
    if at < 0 or view.segments[at].base_offset != base_offset or view.segments[at].size != size:
        raise CleaningAborted(f"segment {base_offset} has changed since the pass was planned")
    return view.segments[at]


def _chunks_of(segment: Segment, piece: SplitPiece, view: View) -> Iterator[Chunk]:
    """Yields the batches of a piece; a wrong index cannot change the result."""
    limit = view.context.limits.max_batch_bytes
    is_first = piece.start == piece.base_offset
    position = 0 if is_first else position_for(segment, piece.start - 1, limit)
    end = _end_of(segment, piece.end, limit)
    for chunk in read_chunks(segment, position, limit, end=end):
        lasts = chunk.table.column(b.LAST_OFFSET)
        low, high = lasts.searchsorted((piece.start, piece.end)).tolist()
        if low < high:
            table = chunk.table.select(slice(low, high))
            yield chunk if len(table) == len(lasts) else _with(chunk, table)
        if high < len(lasts):
            return


def _with(chunk: Chunk, table: b.BatchTable) -> Chunk:
    return replace(chunk, run=replace(chunk.run, table=table))


def _end_of(segment: Segment, offset: int, limit: int) -> int:
    """Returns the end position of the batch whose last offset is `offset` - 1, if the index has it;
    else a later position."""
    position = position_for(segment, offset - 1, limit) if offset < segment.next_base else 0
    header = header_at(segment.files.log(), position) if position else None
    if header is None or header.last_offset != offset - 1:
        return segment.size
    return header.next_position


def _keys_name(shape: Shape, number: int) -> str:
    return f"{number:08}.{shape.tag}.keys"


# -- deciding -------------------------------------------------------------------------------------


def decide_range(split: SplitPass, part: int, place: WritableDirFd) -> int:
    """Finds the newest records of the keys in one part of the slices; the keys of all ranges
    must be written.
    Returns the number of keys."""
    name = _newest_name(split.shape, part)
    with suppress(SegmentGone):
        known = _decided(place.open(name))
        if known is not None:
            return known
    slices, parts = split.shape.slices, split.shape.parts
    found: list[Int64s] = []
    count = 0
    ranges = _Ranges(split, place)
    for number in range(slices * part // parts, slices * (part + 1) // parts):
        newest, keys = ranges.newest(number)
        found.append(newest)
        count += keys
    offsets = np.sort(np.concatenate(found))
    starts = offsets.searchsorted(np.array(split.bounds, dtype=np.int64))
    new = f"{name}.{uuid.uuid4().hex}"
    data = offsets.tobytes() + np.array([*starts, count], dtype=np.int64).tobytes()
    place.create(new).write(0, data, crc32c(data).to_bytes(8, "little"))
    place.rename(new, name)
    return count


class _Ranges:
    """The key files of all ranges."""

    def __init__(self, split: SplitPass, place: Directory) -> None:
        self._split = split
        self._open = lru_cache(_OPEN_FILES)(
            lambda number: EntryFile(place, _keys_name(split.shape, number), split.shape.slices)
        )
        # Ranges are in order, those of the clean part first.
        self._first_dirty = max(bisect_right(split.bounds, split.first_dirty) - 1, 0)

    def newest(self, number: int) -> tuple[Int64s, int]:
        """Returns for a slice the offsets of the records that are the newest of their keys,
        unordered, and the number of dirty keys."""
        low = self._split.first_dirty
        keys = OffsetMap(FIRST_BYTES, LOAD_FACTOR)
        for entries in self._entries(number):
            row = 0
            while (row := keys.put_entries(entries, row, low)) < len(entries):
                keys = keys.moved_to(2 * keys.nbytes)
        newest = [keys.offsets()]
        if low > self._split.bounds[0]:
            for entries in self._entries(number):
                clean = entries[entries[:, 2] < low]
                is_kept = keys.get_entries(np.ascontiguousarray(clean)) < 0
                newest.append(clean[is_kept, 2].astype(np.int64))
        return np.concatenate(newest), len(keys)

    def _entries(self, number: int) -> Iterator[Any]:
        for each in range(self._split.ranges):
            file = self._open(each)
            for run in range(file.runs):
                yield file.entries(run, number)


def _newest_name(shape: Shape, part: int) -> str:
    return f"{part:08}.{shape.tag}.newest"


def _decided(file: ReadableFile) -> int | None:
    """Returns the number of keys if the file is intact, else None."""
    size = file.size()
    trailer = file.read(max(size - _TRAILER_BYTES, 0), _TRAILER_BYTES)
    count, crc = (int.from_bytes(word, "little") for word in (trailer[:8], trailer[8:]))
    return count if len(trailer) == _TRAILER_BYTES and checksum(file, size - 8) == crc else None


# -- copying --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A `.cleaned` segment in a directory of its own, to be swapped in for the segments with base
    offsets `bases`."""

    directory: str
    base_offset: int
    size: int
    bases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copied:
    """The new segment of a group, and the pass's result for that group."""

    segment: StagedSegment
    result: CleaningResult


def copy_range(
    split: SplitPass, view: View, each: SegmentGroup, place: Directory, into: WritableDirFd
) -> Copied:
    """Writes a durable `.cleaned` segment for a group in the directory `into`; all parts must be
    decided. Raises CorruptError if the log is damaged."""
    newest = NewestAmong(_newest_of(split, each, place), split.first_uncleanable - 1)
    record_filter = RecordFilter(
        view,
        newest,
        split.first_uncleanable,
        split.now_ms,
        split.config.delete_retention_ms,
        split.legacy_horizon_ms,
        each.begun,
    )
    record_filter.set_producers(split.producers)
    limit = view.context.limits.max_batch_bytes
    segments = [SegmentToClean(_segment(view, *named), limit) for named in each.segments]
    made: list[CleanedSegment] = []
    sink = CleanedSink(into, split.config, lambda cleaned, _: made.append(cleaned))
    with view.context.decoder() as decoder:
        copying = Copying(record_filter, decoder, lambda segment: read_chunks(segment, 0, limit))
        sink.begin(segments)
        copying.put(segments, sink)
        sink.end()
    result = copying.result(split.first_uncleanable, len(segments), 1, each.size, 0)
    (cleaned,) = made
    staged = StagedSegment(into.path, cleaned.base_offset, cleaned.size, tuple(each.bases))
    return Copied(staged, result)


def _newest_of(split: SplitPass, each: SegmentGroup, place: Directory) -> KeptOffsets:
    """Returns the newest records in a group, collected from all parts."""
    bounds = len(split.bounds)
    found = []
    for part in range(split.shape.parts):
        file = place.open(_newest_name(split.shape, part))
        starts_at = file.size() - _TRAILER_BYTES - 8 * bounds
        low, high = np.frombuffer(file.read(starts_at + 8 * each.number, 16), np.int64).tolist()
        if not 0 <= 8 * low <= 8 * high <= starts_at:
            raise CorruptError("not a file of offsets", file.path)
        found.append(np.frombuffer(file.read(8 * low, 8 * (high - low)), dtype=np.int64))
    kept = KeptOffsets()
    kept.add(np.sort(np.concatenate(found)))
    kept.finish()
    return kept
