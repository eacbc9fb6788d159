"""Decodes record batches into columns: verifies checksums, decompresses, and runs the kernels.

A ``Decoder`` owns the buffers that columns are written to and reuses them for every run, because
touching fresh memory costs more than decoding. So an item that ``decode`` yields is valid only
until the next one is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptError
from .. import layout
from ..checksum import crc32, crc32c
from ..kernels import checksums as checksums_kernel
from ..kernels import legacy as legacy_kernel
from ..kernels import records as records_kernel
from . import batch as b
from .batch import BatchHeader, BatchTable, Bytes, Int32s, Int64s
from .buffer_pool import BUFFERS
from .codecs import Scratch, decompress
from .columns import Columns, Lines

# Yield columns after this many decompressed bytes, so that they are still in the CPU cache.
_STRETCH_BYTES: Final = 768 << 10
# The most records decoded at once, unless one batch has more: each takes 40 bytes of columns, while
# the record itself may be as short as 7 bytes.
_PIECE_ROWS: Final = 1 << 16
# Larger batches are not rendered as lines directly: the result would be several times the usual
# rendering unit.
_LINES_BYTES: Final = 4 << 20
_OVERHEAD: Final = layout.RECORD_BATCH_OVERHEAD
_MIN_RECORD: Final = layout.MIN_RECORD_BYTES
_CODEC_MASK: Final = layout.CODEC_MASK
_OF_TRANSACTIONS: Final = layout.CONTROL_MASK | layout.TRANSACTIONAL_MASK
_PLAIN, _COMPRESSED, _MESSAGE, _WRAPPER = range(4)
_CHECKSUM_FIELDS: Final = (b.POSITION, b.SIZE, b.MAGIC, b.CRC)
# The fields of a batch that decompression needs.
_PAYLOAD_FIELDS: Final = (b.POSITION, b.SIZE, b.ATTRIBUTES, b.RECORD_COUNT)

_RECORD_ERRORS: Final = {
    records_kernel.RECORD_LENGTH: "a record's length is negative or extends past its batch",
    records_kernel.VARINT: "a varint is too long or truncated",
    records_kernel.KEY_LENGTH: "a key extends past the end of its record",
    records_kernel.VALUE_LENGTH: "a value extends past the end of its record",
    records_kernel.HEADERS: "headers extend past the end of their record",
    records_kernel.RECORD_END: "a record's length does not match its content",
    records_kernel.BATCH_END: "bytes remain after the last record, or records are missing",
    records_kernel.OFFSET: "record offsets do not ascend, or leave the range of their batch",
}
_MESSAGE_ERRORS: Final = {
    legacy_kernel.KEY_LENGTH: "a key extends past the end of its message",
    legacy_kernel.VALUE_LENGTH: "a value extends past the end of its message",
    legacy_kernel.MESSAGE_END: "a message's size does not match its content",
}


@dataclass(frozen=True, slots=True)
class BadBatch:
    """A batch that could not be decoded; the error has the position of the batch in its file."""

    batch: BatchHeader
    error: CorruptError


# The results of decoding, and the method that builds them from magic 2 batches.
Decoded = Iterator[Columns | Lines | BadBatch]
_Make = Callable[[memoryview, Int64s, Int64s, BatchTable, str], Decoded]


def checksum_is_right(data: memoryview, header: BatchHeader, base: int) -> bool:
    """Returns whether the batch matches the CRC in its header. ``data[0]`` is at file position
    ``base``."""
    return _computed_crc(data, header.position - base, header.size, header.magic) == header.crc


def checksums_add_up(data: memoryview, table: BatchTable, base: int) -> bool:
    """Returns whether the CRC of all bytes equals the combined CRCs of the batches; False unless
    all batches have magic 2.

    Several times as fast as checking each batch. A single corrupt batch is always detected. Several
    corrupt batches cancel each other out only as rarely as a CRC misses an error in one batch,
    unless someone constructs them to.
    """
    expected: int = checksums_kernel.combined(data, base, table.rows, *_CRC_TABLES)
    return expected >= 0 and crc32c(data[_extent_of(table, base)]) == expected


def first_bad_checksum(data: memoryview, table: BatchTable, base: int) -> int:
    """Returns the index of the first batch with a wrong CRC, the table's length if none has."""
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


def are_plain(data: memoryview, table: BatchTable, base: int) -> bool:
    """Returns whether all batches have magic 2, records, a right CRC, and no transaction. Faster
    than ``first_bad_checksum`` for a few batches."""
    for row in table.rows.tolist():
        if row[b.MAGIC] != 2 or row[b.ATTRIBUTES] & _OF_TRANSACTIONS or not row[b.RECORD_COUNT]:
            return False
        at = row[b.POSITION] - base
        if crc32c(data[at + layout.CRC_COVERS_FROM : at + row[b.SIZE]]) != row[b.CRC]:
            return False
    return True


def _extent_of(table: BatchTable, base: int) -> slice:
    """Returns the slice of adjacent batches in a buffer that starts at file position ``base``."""
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
    """Decodes runs of batches, one run at a time, because all its results share its buffers."""

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
        """Yields columns of the batches in ``table``. Their bytes are in ``data`` (``data[0]`` is
        at file position ``base``), and the caller has verified their checksums."""
        parts = self._decode(data, base, table, file, self._records)
        return cast(Iterator[Columns | BadBatch], parts)

    def lines(
        self, data: memoryview, base: int, table: BatchTable, file: str, field: int
    ) -> Decoded:
        """Yields lines of one field, KEY_START or VALUE_START, straight from the batches. Unlike
        columns, they remain valid. Large batches and those of magic 0 and 1 still become columns.
        """
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
        """Decompresses several batches into the scratch buffer, then decodes them at once."""
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
        """Fills the scratch buffer, starting with batch ``first``. Returns where each batch ends in
        it, and the error of the batch after these, if any."""
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
        """Decodes magic 2 batches whose records are in ``data[starts[i]:ends[i]]``."""
        self._reserve(table.summary().records)
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
        """Like ``_records``, but renders lines without building columns."""
        size = int((ends - starts).sum())
        if size > _LINES_BYTES:
            yield from self._records(data, starts, ends, table, file)
            return
        first = 0
        while first < len(table):
            buffer = BUFFERS.acquire(size)
            batches, written, error, at = records_kernel.copy_lines(
                data, starts, ends, table.rows, first, field,
                self._offsets, self._timestamps, self._spans, buffer,
            )  # fmt: skip
            if written:
                yield Lines(_cut(buffer, written), int(table.rows[first, b.BASE_OFFSET]))
            first += batches
            if error:
                yield _bad_records(table[first], error, at - int(starts[first]))
                first += 1

    def _messages(
        self, data: memoryview, base: int, table: BatchTable, file: str
    ) -> Iterator[Columns | BadBatch]:
        """Decodes uncompressed messages of magic 0 and 1, each of which is a batch of its own."""
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
        """Decodes compressed message sets of magic 0 and 1, one at a time."""
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
    """Decodes one uncompressed batch of magic 2, which is all of ``data``, into columns that own
    their arrays. Returns None if its records are malformed."""
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
    """Yields runs of batches of one kind: _PLAIN, _COMPRESSED, _MESSAGE or _WRAPPER."""
    if not len(table):
        return
    summary = table.summary()
    if summary.least_magic == 2 and not summary.any_has & layout.CODEC_MASK:
        yield _PLAIN, table  # the common case: skips the costlier code below
        return
    magics = table.column(b.MAGIC)
    compressed = (table.column(b.ATTRIBUTES) & layout.CODEC_MASK) != 0
    kinds = np.where(magics == 2, _PLAIN, _MESSAGE) + compressed
    edges = np.flatnonzero(np.diff(kinds)) + 1
    for low, high in pairwise([0, *edges.tolist(), len(table)]):
        yield int(kinds[low]), table.select(slice(low, high))


def _bad_records(header: BatchHeader, error: int, at: int) -> BadBatch:
    what = f"{_RECORD_ERRORS[error]} (at byte {at} of its records)"
    return BadBatch(header, _located(CorruptError(what), header))


def _cut(buffer: memoryview, size: int) -> memoryview:
    """Returns the first ``size`` bytes of a buffer, copied if they fill less than half of it."""
    return buffer[:size] if 2 * size >= len(buffer) else memoryview(bytes(buffer[:size]))


def _too_few(count: int, size: int) -> CorruptError:
    return CorruptError(f"record count is {count}, but there are {size} bytes")


def _pieces(table: BatchTable) -> Iterator[BatchTable]:
    """Yields the batches in pieces of at most _PIECE_ROWS records, or of one larger batch."""
    if table.summary().records <= _PIECE_ROWS:
        yield table
        return
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
    """Returns the headers of the messages in a decompressed set (``AbstractLegacyRecordBatch``).
    Raises CorruptError if they are not valid."""
    room = BatchTable.empty(len(data) // (layout.LOG_OVERHEAD + layout.V0_MIN_SIZE) + 1)
    inner, walk = b.scan(data, len(data), 0, room, whole=True)
    if walk.is_fault or walk.end != len(data):
        raise CorruptError(f"inside a compressed message: {walk.what or 'the last is truncated'}")
    if not len(inner):
        raise CorruptError("a compressed message holds no messages")
    if (inner.column(b.MAGIC) != header.magic).any():
        raise CorruptError("inside a compressed message: magic differs from the outer one")
    if (inner.column(b.ATTRIBUTES) & layout.CODEC_MASK).any():
        raise CorruptError("inside a compressed message: a message is compressed")
    bad = first_bad_checksum(data, inner, 0)
    if bad < len(inner):
        raise CorruptError(
            f"inside a compressed message: {checksum_error(data, inner[bad], 0).what}"
        )
    return inner


def _inner_base(header: BatchHeader, inner: BatchTable) -> int:
    """Returns what to add to inner offsets. In magic 0 they are absolute; in magic 1 relative to
    the first, while the wrapper has the last one's offset (0 if an old librdkafka wrote it)."""
    if header.last_offset == 0:
        return 0
    last = int(inner.column(b.LAST_OFFSET)[-1])
    if header.last_offset < last:
        raise CorruptError(
            f"a compressed message's offset {header.last_offset} is less than {last} inside it"
        )
    return 0 if header.magic == 0 else header.last_offset - last
