"""Batches to columns: checksums, decompression, and the kernels put together.

A ``Decoder`` owns the buffers that columns are written to and uses them again for every run,
because touching fresh memory costs more than decoding. So what ``decode`` yields is good until the
next is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptError
from . import batch as b
from . import layout
from .batch import BatchHeader, BatchTable, Bytes, Int32s, Int64s
from .checksum import crc32, crc32c
from .codecs import Scratch, decompress
from .columns import Columns, Lines
from .kernels import checksums as checksums_kernel
from .kernels import legacy as legacy_kernel
from .kernels import records as records_kernel
from .rooms import ROOMS

# Decompressed bytes after which columns are handed out, so that they are still in the cache.
_STRETCH_BYTES: Final = 768 << 10
# Records that are decoded at once, unless one batch has more: each takes 40 bytes of columns, and
# may be no longer than 7 itself.
_PIECE_ROWS: Final = 1 << 16
# Larger batches are never made lines of: those would be several times what is rendered at once.
_LINES_BYTES: Final = 4 << 20
_OVERHEAD: Final = layout.RECORD_BATCH_OVERHEAD
_MIN_RECORD: Final = layout.MIN_RECORD_BYTES
_CODEC_MASK: Final = layout.CODEC_MASK
_PLAIN, _COMPRESSED, _MESSAGE, _WRAPPER = range(4)
_CHECKSUM_FIELDS: Final = (b.POSITION, b.SIZE, b.MAGIC, b.CRC)
# What decompressing needs to know of a batch.
_PAYLOAD_FIELDS: Final = (b.POSITION, b.SIZE, b.ATTRIBUTES, b.RECORD_COUNT)

_RECORD_ERRORS: Final = {
    records_kernel.RECORD_LENGTH: "a record's length is negative or goes past its batch",
    records_kernel.VARINT: "a varint is too long or cut off",
    records_kernel.KEY_LENGTH: "a key goes past the end of its record",
    records_kernel.VALUE_LENGTH: "a value goes past the end of its record",
    records_kernel.HEADERS: "headers go past the end of their record",
    records_kernel.RECORD_END: "a record is not as long as it says",
    records_kernel.BATCH_END: "bytes remain after the last record, or records are missing",
    records_kernel.OFFSET: "record offsets do not rise, or leave the range of their batch",
}
_MESSAGE_ERRORS: Final = {
    legacy_kernel.KEY_LENGTH: "a key goes past the end of its message",
    legacy_kernel.VALUE_LENGTH: "a value goes past the end of its message",
    legacy_kernel.MESSAGE_END: "a message is not as long as it says",
}


@dataclass(frozen=True, slots=True)
class BadBatch:
    """A batch that could not be decoded; the error's position is that of the batch in its file."""

    batch: BatchHeader
    error: CorruptError


# What is made of the records of magic 2 batches.
Decoded = Iterator[Columns | Lines | BadBatch]
_Make = Callable[[memoryview, Int64s, Int64s, BatchTable, str], Decoded]


def checksum_is_right(data: memoryview, header: BatchHeader, base: int) -> bool:
    """Whether the batch has the CRC that its header says. ``data[0]`` is file position ``base``."""
    return _computed_crc(data, header.position - base, header.size, header.magic) == header.crc


def checksums_add_up(data: memoryview, table: BatchTable, base: int) -> bool:
    """Whether the CRC of all bytes is what those of the batches give together; of magic 2 alone.

    Several times as fast as looking at each. A wrong batch among right ones always shows; several
    are as unlikely to make up for each other as a CRC is to hide what is wrong with one, but may be
    made to.
    """
    expected: int = checksums_kernel.combined(data, base, table.rows, *_CRC_TABLES)
    return expected >= 0 and crc32c(data[_extent_of(table, base)]) == expected


def first_bad_checksum(data: memoryview, table: BatchTable, base: int) -> int:
    """Index of the first batch whose CRC is wrong, the table's length when none is."""
    fields = table.rows[:, _CHECKSUM_FIELDS].tolist()
    for index, (position, size, magic, crc) in enumerate(fields):
        at = position - base
        if magic == 2:
            computed = crc32c(data[at + layout.CRC_COVERS_FROM : at + size])
        else:
            computed = crc32(data[at + layout.LEGACY_CRC_COVERS_FROM : at + size])
        if computed != crc:
            return index
    return len(fields)


def _extent_of(table: BatchTable, base: int) -> slice:
    """Where batches that follow each other lie, the first byte being at file position ``base``."""
    first, last = table.rows[0], table.rows[-1]
    return slice(int(first[b.POSITION]) - base, int(last[b.POSITION] + last[b.SIZE]) - base)


def _crc_tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    steps, powers = np.empty(256, dtype=np.uint32), np.empty((4, 256), dtype=np.uint32)
    checksums_kernel.prepare(steps, powers)
    return steps, powers


_CRC_TABLES: Final = _crc_tables()


def checksum_error(data: memoryview, header: BatchHeader, base: int) -> CorruptError:
    computed = _computed_crc(data, header.position - base, header.size, header.magic)
    return CorruptError(
        f"batch {header.base_offset}-{header.last_offset}: crc is {computed:08x}, "
        f"its header says {header.crc:08x}",
        position=header.position,
    )


def _computed_crc(data: memoryview, at: int, size: int, magic: int) -> int:
    if magic == 2:
        return crc32c(data[at + layout.CRC_COVERS_FROM : at + size])
    return crc32(data[at + layout.LEGACY_CRC_COVERS_FROM : at + size])


class Decoder:
    """Decodes runs of batches. One at a time: its buffers are shared by all that it yields."""

    def __init__(self, max_batch_bytes: int) -> None:
        self._scratch = Scratch(max_batch_bytes)
        self._capacity = 0
        self._reserve(16384)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._scratch.capacity + self._capacity * 40

    def decode(
        self, data: memoryview, base: int, table: BatchTable, file: str
    ) -> Iterator[Columns | BadBatch]:
        """Columns of the batches in ``table``, whose bytes lie in ``data`` (``data[0]`` being file
        position ``base``) and whose checksums were found right."""
        parts = self._decode(data, base, table, file, self._records)
        return cast(Iterator[Columns | BadBatch], parts)

    def lines(
        self, data: memoryview, base: int, table: BatchTable, file: str, field: int
    ) -> Decoded:
        """The same for who wants no more than lines of one field, KEY_START or VALUE_START, which
        are to be kept: in one go, without columns. Where batches are of another magic or large,
        there are columns all the same."""
        return self._decode(data, base, table, file, partial(self._lines, field))

    def _decode(
        self, data: memoryview, base: int, table: BatchTable, file: str, make: _Make
    ) -> Decoded:
        for kind, stretch in _stretches(table):
            if kind == _PLAIN:
                yield from self._plain(data, base, stretch, file, make)
            elif kind == _COMPRESSED:
                yield from self._compressed(data, base, stretch, file, make)
            elif kind == _MESSAGE:
                yield from self._messages(data, base, stretch, file)
            else:
                yield from self._wrappers(data, base, stretch, file)

    def _plain(
        self, data: memoryview, base: int, table: BatchTable, file: str, make: _Make
    ) -> Decoded:
        for piece in _pieces(table):
            positions = piece.column(b.POSITION) - base
            starts = positions + layout.RECORD_BATCH_OVERHEAD
            yield from make(data, starts, positions + piece.column(b.SIZE), piece, file)

    def _compressed(
        self, data: memoryview, base: int, table: BatchTable, file: str, make: _Make
    ) -> Decoded:
        """Decompress some batches side by side into the scratch, and decode them in one go."""
        fields = table.rows[:, _PAYLOAD_FIELDS].tolist()
        first = 0
        while first < len(fields):
            ends, error = self._decompress(data, base, fields, first)
            stop = first + len(ends)
            if ends:
                bounds = np.array([0, *ends], dtype=np.int64)
                batches = table.select(slice(first, stop))
                yield from make(self._scratch.data, bounds[:-1], bounds[1:], batches, file)
            if error is not None:
                yield BadBatch(table[stop], _located(error, table[stop]))
                stop += 1
            first = stop

    def _decompress(
        self, data: memoryview, base: int, fields: list[list[int]], first: int
    ) -> tuple[list[int], CorruptError | None]:
        """Fill the scratch from the batch ``first`` on: where each batch ends in it, and what was
        wrong with the one after these, if anything."""
        scratch = self._scratch
        scratch.clear()
        ends: list[int] = []
        used = 0
        for position, size, attributes, count in islice(fields, first, None):
            at = position - base
            try:
                if count:
                    codec = attributes & _CODEC_MASK
                    decompress(codec, data, at + _OVERHEAD, at + size, 2, scratch)
                start, used = used, scratch.used
                if count * _MIN_RECORD > used - start:
                    raise _too_few(count, used - start)
            except CorruptError as error:
                return ends, error
            ends.append(used)
            if used >= _STRETCH_BYTES:
                break
        return ends, None

    def _records(
        self, data: memoryview, starts: Int64s, ends: Int64s, table: BatchTable, file: str
    ) -> Iterator[Columns | BadBatch]:
        """Decode magic 2 batches whose records lie at ``data[starts[i]:ends[i]]``."""
        self._reserve(int(table.column(b.RECORD_COUNT).sum()))
        first = 0
        while first < len(table):
            first_row: Int64s = np.empty(len(table) - first + 1, dtype=np.int64)
            batches, rows, error, at = records_kernel.decode_records(
                data, starts, ends, table.rows, first,
                self._offsets, self._timestamps, self._spans, first_row,
            )  # fmt: skip
            stop = first + batches
            if rows:
                decoded = table if batches == len(table) else table.select(slice(first, stop))
                yield self._columns(data, rows, decoded, first_row[: batches + 1], file)
            first = stop
            if error:
                yield _bad_records(table[first], error, at - int(starts[first]))
                first += 1

    def _lines(
        self,
        field: int,
        data: memoryview,
        starts: Int64s,
        ends: Int64s,
        table: BatchTable,
        file: str,
    ) -> Decoded:
        """As ``_records``, straight from the batches to lines."""
        size = int((ends - starts).sum())
        if size > _LINES_BYTES:
            yield from self._records(data, starts, ends, table, file)
            return
        first = 0
        while first < len(table):
            room = ROOMS.lend(size)
            batches, written, error, at = records_kernel.copy_lines(
                data, starts, ends, table.rows, first, field,
                self._offsets, self._timestamps, self._spans, room,
            )  # fmt: skip
            if written:
                yield Lines(_cut(room, written), int(table.rows[first, b.BASE_OFFSET]))
            first += batches
            if error:
                yield _bad_records(table[first], error, at - int(starts[first]))
                first += 1

    def _messages(
        self, data: memoryview, base: int, table: BatchTable, file: str
    ) -> Iterator[Columns | BadBatch]:
        """Uncompressed messages of magic 0 and 1: each is a batch of its own."""
        self._reserve(len(table))
        starts = table.column(b.POSITION) - base
        first = 0
        while first < len(table):
            rest = table.select(slice(first, len(table)))
            count, error = self._spans_of(data, starts[first:], rest)
            if count:
                self._offsets[:count] = rest.column(b.LAST_OFFSET)[:count]
                self._timestamps[:count] = rest.column(b.MAX_TIMESTAMP)[:count]
                decoded = rest.select(slice(0, count))
                yield self._columns(data, count, decoded, np.arange(count + 1), file)
            first += count
            if error:
                yield BadBatch(
                    rest[count], _located(CorruptError(_MESSAGE_ERRORS[error]), rest[count])
                )
                first += 1

    def _wrappers(
        self, data: memoryview, base: int, table: BatchTable, file: str
    ) -> Iterator[Columns | BadBatch]:
        """Compressed message sets of magic 0 and 1, one at a time."""
        for index, header in enumerate(table):
            try:
                alone = table.select(slice(index, index + 1))
                columns = self._wrapper(data, header, base, alone, file)
            except CorruptError as error:
                yield BadBatch(header, _located(error, header))
            else:
                yield columns

    def _wrapper(
        self, data: memoryview, header: BatchHeader, base: int, table: BatchTable, file: str
    ) -> Columns:
        at = np.array([header.position - base], dtype=np.int64)
        _, error = self._spans_of(data, at, table)
        if error:
            raise CorruptError(_MESSAGE_ERRORS[error])
        start, size = self._spans[0, 2:4].tolist()
        if size < 0:
            raise CorruptError("a compressed message has no value")
        self._scratch.clear()
        decompress(header.codec, data, start, start + size, header.magic, self._scratch)
        inner = inner_messages(self._scratch.data, header)
        count = len(inner)
        self._reserve(count)
        _, error = self._spans_of(self._scratch.data, inner.column(b.POSITION).copy(), inner)
        if error:
            raise CorruptError(f"inside a compressed message: {_MESSAGE_ERRORS[error]}")
        self._offsets[:count] = inner.column(b.LAST_OFFSET) + _inner_base(header, inner)
        append_time = bool(header.attributes & layout.TIMESTAMP_TYPE_MASK) and header.magic == 1
        self._timestamps[:count] = (
            header.max_timestamp if append_time else inner.column(b.MAX_TIMESTAMP)
        )
        return self._columns(self._scratch.data, count, table, np.array([0, count]), file)

    def _spans_of(self, data: memoryview, starts: Int64s, table: BatchTable) -> tuple[int, int]:
        count, error = legacy_kernel.decode_messages(
            data,
            starts,
            starts + table.column(b.SIZE),
            np.ascontiguousarray(table.column(b.MAGIC)),
            self._spans,
        )
        return count, error

    def _columns(
        self, data: Bytes, rows: int, table: BatchTable, first_row: Int64s, file: str
    ) -> Columns:
        return Columns(
            data,
            self._offsets[:rows],
            self._timestamps[:rows],
            self._spans[:rows],
            table,
            first_row,
            file,
        )

    def _reserve(self, rows: int) -> None:
        if rows > self._capacity:
            self._capacity = max(rows, 2 * self._capacity)
            self._offsets: Int64s = np.empty(self._capacity, dtype=np.int64)
            self._timestamps: Int64s = np.empty(self._capacity, dtype=np.int64)
            self._spans: Int32s = np.empty((self._capacity, 6), dtype=np.int32)


def decode_alone(data: memoryview, header: Sequence[int], file: str) -> Columns | None:
    """The columns, to be kept, of one uncompressed batch of magic 2 that is all of ``data``; None
    when something is wrong with its records."""
    rows = header[b.RECORD_COUNT]
    table = BatchTable(np.array([header], dtype=np.int64))
    offsets, timestamps = np.empty((2, rows), dtype=np.int64)
    spans, first_row = np.empty((rows, 6), dtype=np.int32), np.empty(2, dtype=np.int64)
    bounds = np.array([layout.RECORD_BATCH_OVERHEAD, len(data)])
    _, _, error, _ = records_kernel.decode_records(
        data, bounds[:1], bounds[1:], table.rows, 0, offsets, timestamps, spans, first_row
    )
    return None if error else Columns(data, offsets, timestamps, spans, table, first_row, file)


def _stretches(table: BatchTable) -> Iterator[tuple[int, BatchTable]]:
    """Batches that follow each other and need the same: _PLAIN, _COMPRESSED, _MESSAGE, _WRAPPER."""
    if not len(table):
        return
    magics = table.column(b.MAGIC)
    if int(magics.min()) == 2 and not table.union(b.ATTRIBUTES) & layout.CODEC_MASK:
        yield _PLAIN, table  # nearly always, or what follows is dearer than this
        return
    compressed = (table.column(b.ATTRIBUTES) & layout.CODEC_MASK) != 0
    kinds = np.where(magics == 2, _PLAIN, _MESSAGE) + compressed
    edges = np.flatnonzero(np.diff(kinds)) + 1
    for low, high in pairwise([0, *edges.tolist(), len(table)]):
        yield int(kinds[low]), table.select(slice(low, high))


def _bad_records(header: BatchHeader, error: int, at: int) -> BadBatch:
    what = f"{_RECORD_ERRORS[error]} (at byte {at} of its records)"
    return BadBatch(header, _located(CorruptError(what), header))


def _cut(room: memoryview, size: int) -> memoryview:
    """The first bytes of a room that was lent, in a smaller one where most of it would be empty."""
    return room[:size] if 2 * size >= len(room) else memoryview(bytes(room[:size]))


def _too_few(count: int, size: int) -> CorruptError:
    return CorruptError(f"record count is {count}, but there are {size} bytes")


def _pieces(table: BatchTable) -> Iterator[BatchTable]:
    """The batches in pieces of at most _PIECE_ROWS records, or of one batch."""
    rows = np.cumsum(table.column(b.RECORD_COUNT))
    first, done = 0, 0
    while first < len(table):
        stop = max(int(rows.searchsorted(done + _PIECE_ROWS, side="right")), first + 1)
        yield table if stop - first == len(table) else table.select(slice(first, stop))
        first, done = stop, int(rows[stop - 1])


def _located(error: CorruptError, header: BatchHeader) -> CorruptError:
    return CorruptError(
        f"batch {header.base_offset}-{header.last_offset}: {error.what}", position=header.position
    )


def inner_messages(data: memoryview, header: BatchHeader) -> BatchTable:
    """Headers of the messages in a decompressed set (``AbstractLegacyRecordBatch``)."""
    room = BatchTable.empty(len(data) // (layout.LOG_OVERHEAD + layout.V0_MIN_SIZE) + 1)
    inner, walk = b.scan(data, len(data), 0, room, whole=True)
    if walk.is_fault or walk.end != len(data):
        raise CorruptError(f"inside a compressed message: {walk.what or 'the last one is cut off'}")
    if not len(inner):
        raise CorruptError("a compressed message holds no messages")
    if (inner.column(b.MAGIC) != header.magic).any():
        raise CorruptError("inside a compressed message: magic differs from the outer one")
    if (inner.column(b.ATTRIBUTES) & layout.CODEC_MASK).any():
        raise CorruptError("inside a compressed message: compressed again")
    bad = first_bad_checksum(data, inner, 0)
    if bad < len(inner):
        raise CorruptError(
            f"inside a compressed message: {checksum_error(data, inner[bad], 0).what}"
        )
    return inner


def _inner_base(header: BatchHeader, inner: BatchTable) -> int:
    """What to add to inner offsets. Magic 0 has absolute ones; magic 1 counts from the first, the
    wrapper having the last one's, or 0 when an old librdkafka wrote it."""
    if header.last_offset == 0:
        return 0
    last = int(inner.column(b.LAST_OFFSET)[-1])
    if header.last_offset < last:
        raise CorruptError(
            f"a compressed message's offset {header.last_offset} is less than {last} inside it"
        )
    return 0 if header.magic == 0 else header.last_offset - last
