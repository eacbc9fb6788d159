"""The frames of a whole column of keys or values, by what they name.

`framing.frame` says what a frame is; here rows that have the same one are found together, so that
they can be decoded together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptError, DatumError
from ..format.kernels import gather
from ..format.records.batch import Int64s
from ..format.records.columns import (
    HEADER_COUNT,
    KEY_SIZE,
    KEY_START,
    VALUE_SIZE,
    VALUE_START,
    Columns,
    Header,
)
from .framing import (
    APICURIO_SIZE,
    GLUE_PLAIN,
    GLUE_SIZE,
    GLUE_VERSION,
    GLUE_ZLIB,
    PREFIX_SIZE,
    UNFRAMED,
    Frame,
    Framing,
    MessageRef,
    frame_of_headers,
    frame_of_prefix,
    header_names,
    read_message_indexes,
)

# Bytes of a value that are looked at for message indexes at once: the number of them and seven.
_INDEX_BYTES: Final = 8
# A longer header is looked at by itself.
_MAX_HEADER_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class FramedRows:
    """Rows whose keys or values have the same frame; int64, ascending."""

    frame: Frame
    rows: Int64s


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows with Protobuf data of the same message, which begins `start` bytes after the start of
    each value; or, with a `fault`, rows whose message indexes are wrong."""

    message: MessageRef
    rows: Int64s
    start: int
    fault: str = ""


class _Column:
    """The keys or values of columns as bytes, and where each begins and its size."""

    def __init__(self, columns: Columns, *, is_key: bool) -> None:
        start, size = (KEY_START, KEY_SIZE) if is_key else (VALUE_START, VALUE_SIZE)
        self.data: NDArray[np.uint8] = np.frombuffer(columns.data, dtype=np.uint8)
        self.starts: Int64s = columns.spans[:, start].astype(np.int64)
        self.sizes: Int64s = columns.spans[:, size].astype(np.int64)

    def byte(self, rows: Int64s, place: int) -> Int64s:
        """Returns one byte of each of these rows, which must be that long."""
        return self.data[self.starts[rows] + place].astype(np.int64)

    def number(self, rows: Int64s, place: int) -> Int64s:
        """Returns the four bytes at a place as an unsigned big-endian number."""
        found = self.byte(rows, place)
        for each in range(place + 1, place + 4):
            found = (found << 8) | self.byte(rows, each)
        return found

    def value(self, row: int) -> bytes:
        start = int(self.starts[row])
        return self.data[start : start + int(self.sizes[row])].tobytes()


def framed_rows(columns: Columns, *, is_key: bool = False) -> list[FramedRows]:
    """Returns all rows whose key or value is not null, by frame."""
    column = _Column(columns, is_key=is_key)
    left = column.sizes >= 0
    found: list[FramedRows] = []
    if columns.spans[:, HEADER_COUNT].any():
        for group in _of_headers(columns, left, is_key=is_key):
            left[group.rows] = False
            found.append(group)
    found += _of_prefixes(column, np.flatnonzero(left))
    return found


def _same_prefix(column: _Column, rows: Int64s) -> Frame | None:
    """Returns the frame if it is a prefix, the same in all rows, as in most topics; otherwise
    None."""
    if not len(rows):
        return None
    starts = column.starts if len(rows) == len(column.starts) else column.starts[rows]
    sizes = column.sizes if len(rows) == len(column.sizes) else column.sizes[rows]
    found = frame_of_prefix(column.value(int(rows[0])))
    if found.framing is not Framing.PREFIX or sizes.min() < PREFIX_SIZE or not found.schema_id:
        return None
    first = column.data[starts[0] : starts[0] + PREFIX_SIZE]
    # The last bytes of ids differ most.
    places = reversed(range(PREFIX_SIZE))
    is_same = all((column.data[starts + place] == first[place]).all() for place in places)
    return found if is_same else None


def _of_prefixes(column: _Column, rows: Int64s) -> Iterator[FramedRows]:
    same_frame = _same_prefix(column, rows)
    if same_frame is not None:
        yield FramedRows(same_frame, rows)
        return
    long_enough = rows[column.sizes[rows] >= PREFIX_SIZE]
    first = column.byte(long_enough, 0)
    zero = long_enough[first == 0]
    framed: NDArray[np.bool_] = np.zeros(len(column.sizes), dtype=np.bool_)
    framed[zero] = True
    glue = long_enough[(first == GLUE_VERSION) & (column.sizes[long_enough] >= GLUE_SIZE)]
    if len(glue):
        compression = column.byte(glue, 1)
        glue = glue[(compression == GLUE_PLAIN) | (compression == GLUE_ZLIB)]
        framed[glue] = True
    if len(zero):
        ids = column.number(zero, 1)
        is_long = (ids == 0) & (column.sizes[zero] >= APICURIO_SIZE)
        for number, same in _by_number(ids[~is_long], zero[~is_long]):
            yield FramedRows(Frame(Framing.PREFIX, number, start=PREFIX_SIZE), same)
        long_rows = zero[is_long]
        for number, same in _by_number(column.number(long_rows, 5), long_rows):
            yield FramedRows(Frame(Framing.APICURIO, number, start=APICURIO_SIZE), same)
    for same in _by_bytes(column.data, glue, column.starts[glue], GLUE_SIZE):
        yield FramedRows(frame_of_prefix(column.value(int(same[0]))), same)
    plain = rows[~framed[rows]]
    if len(plain):
        yield FramedRows(UNFRAMED, plain)


def _by_number(numbers: Int64s, rows: Int64s) -> Iterator[tuple[int, Int64s]]:
    """Yields the rows with each number."""
    if not len(rows):
        return
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    ordered, rows = numbers[order], rows[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    bounds = [0, *edges.tolist(), len(rows)]
    for low, high in pairwise(bounds):
        yield int(ordered[low]), rows[low:high]


def _by_bytes(data: NDArray[np.uint8], rows: Int64s, starts: Int64s, size: int) -> Iterator[Int64s]:
    """Yields the rows that have the same `size` bytes at `starts`, one for each row."""
    if not len(rows):
        return
    parts = np.ascontiguousarray(data[starts[:, None] + np.arange(size)])
    if (parts == parts[0]).all():
        yield rows
        return
    whole: NDArray[Any] = parts.view(np.dtype((np.void, size)))[:, 0]
    _, inverse = np.unique(whole, return_inverse=True)
    for _, same in _by_number(inverse.astype(np.int64), rows):
        yield same


def _of_headers(
    columns: Columns, wanted: NDArray[np.bool_], *, is_key: bool
) -> Iterator[FramedRows]:
    """Yields the rows whose headers name a schema. Raises CorruptError if headers are malformed,
    which the decoder has checked."""
    counts = columns.spans[:, HEADER_COUNT]
    spans = np.empty((gather.count_headers(columns.spans), 4), dtype=np.int32)
    if gather.header_spans(columns.data, columns.spans, spans) != len(spans):
        raise CorruptError("malformed headers", columns.file)
    row_of = np.repeat(np.arange(len(counts)), counts)
    data: NDArray[np.uint8] = np.frombuffer(columns.data, dtype=np.uint8)
    confluent, *apicurio = header_names(is_key=is_key)[:3]
    done = ~wanted
    for name in (confluent, *apicurio):
        rows, headers = _last_named(data, spans, row_of, name)
        fresh = ~done[rows]
        rows, headers = rows[fresh], headers[fresh]
        done[rows] = True
        is_apicurio = name != confluent
        yield from _same_headers(
            columns, data, spans, rows, headers, has_message=is_apicurio, is_key=is_key
        )


def _last_named(
    data: NDArray[np.uint8], spans: NDArray[np.int32], row_of: Int64s, name: str
) -> tuple[Int64s, Int64s]:
    """Returns the rows that have a header with this name whose value is not null, and which header
    it is: of several the last one."""
    sought = np.frombuffer(name.encode(), dtype=np.uint8)
    found = np.flatnonzero((spans[:, 1] == len(sought)) & (spans[:, 3] >= 0))
    if len(found):
        at = spans[found, 0].astype(np.int64)[:, None] + np.arange(len(sought))
        found = found[(data[at] == sought).all(axis=1)]
    rows = row_of[found]
    is_last = np.ones(len(rows), dtype=np.bool_)
    is_last[:-1] = rows[1:] != rows[:-1]
    return rows[is_last], found[is_last]


def _same_headers(
    columns: Columns,
    data: NDArray[np.uint8],
    spans: NDArray[np.int32],
    rows: Int64s,
    headers: Int64s,
    *,
    has_message: bool,
    is_key: bool,
) -> Iterator[FramedRows]:
    """Yields the rows by the value of these headers. If another header may name the message, all
    headers of a row count."""
    sizes = spans[headers, 3].astype(np.int64)
    starts = spans[headers, 2].astype(np.int64)
    by_frame: dict[Frame, list[Int64s]] = {}
    for size, places in _by_number(sizes, np.arange(len(rows))):
        if has_message or size > _MAX_HEADER_BYTES:
            groups: Iterator[Int64s] = (places[at : at + 1] for at in range(len(places)))
        else:
            groups = _by_bytes(data, places, starts[places], size)
        for same in groups:
            found = _frame(columns, int(rows[same[0]]), is_key=is_key)
            by_frame.setdefault(found, []).append(rows[same])
    for found, parts in by_frame.items():
        yield FramedRows(found, np.sort(np.concatenate(parts)))


def _frame(columns: Columns, row: int, *, is_key: bool) -> Frame:
    headers: list[Header] = columns.headers(row)
    found = frame_of_headers(headers, is_key=is_key)
    assert found is not None
    return found


def message_rows(columns: Columns, rows: Int64s, start: int, *, is_key: bool) -> list[MessageRows]:
    """Splits rows of Protobuf data by their message indexes, which begin `start` bytes after the
    start of each value."""
    column = _Column(columns, is_key=is_key)
    found: list[MessageRows] = []
    is_enough = column.sizes[rows] > start
    first = rows[is_enough][column.byte(rows[is_enough], start) == 0]
    if len(first):
        found.append(MessageRows((0,), first, start + 1))
    others = np.setdiff1d(rows, first, assume_unique=True)
    by_bytes: dict[bytes, list[int]] = {}
    for row in others.tolist():
        at = int(column.starts[row]) + start
        end = min(at + _INDEX_BYTES, int(column.starts[row] + column.sizes[row]))
        by_bytes.setdefault(_indexes_of(column.data[at:end].tobytes()), []).append(row)
    for prefix, same in by_bytes.items():
        found += _read_messages(column, prefix, np.array(same, dtype=np.int64), start)
    return found


def _indexes_of(data: bytes) -> bytes:
    """Returns the message indexes in the first bytes of a value; all of the bytes if they are
    longer or wrong."""
    try:
        return data[: read_message_indexes(data)[1]]
    except DatumError:
        return data


def _read_messages(
    column: _Column, prefix: bytes, rows: Int64s, start: int
) -> Iterator[MessageRows]:
    try:
        indexes, end = read_message_indexes(prefix)
        yield MessageRows(indexes, rows, start + end)
        return
    except DatumError:
        pass
    for row in rows.tolist():
        one = np.array([row], dtype=np.int64)
        try:
            indexes, end = read_message_indexes(column.value(row), start)
            yield MessageRows(indexes, one, end)
        except DatumError as error:
            yield MessageRows(None, one, start, error.why)
