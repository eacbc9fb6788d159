"""Avro datums as Arrow columns: shredded by the kernel `avro`, assembled with numpy and pyarrow.

Each value that has a column of its own leaves one or two numbers (slots) per datum: the number
itself, or where its bytes are. The classes here make an Arrow array of the slots of one row of the
kernel's table; the array is dense, with an element for each value that there is. `rows` says in
which datum each one lies, so that a value that does not fit the reader's type makes that datum, and
no other, an error.

Which class stands where follows from the writer's and the reader's type: see `resolution.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import CorruptError, DatumError
from ...format.kernels import avro as kernel
from ...format.kernels import gather as gather_kernel
from ..conventions import DAY_SECONDS, OUTSIDE_DAY
from .decoder import BYTES_LEFT, MOST, SPAN, AvroDecoder, reason
from .types import Kind

Int64s = NDArray[np.int64]
# The kinds of values with a start and a size.
_TWO_SLOTS: Final = (Kind.BYTES, Kind.STRING, SPAN)
# The most slots, of 8 bytes, for which room is made before it is known that they are needed.
_MAX_ROOM: Final = 8 << 20


@dataclass(slots=True)
class Shredded:
    """The slots of some datums in `data`: those of a row of the table from its start to its end.
    `failed`: by the number of a datum, why it does not fit the reader's type."""

    data: memoryview
    slots: Int64s
    starts: Int64s
    ends: Int64s
    failed: dict[int, str] = field(default_factory=dict)

    def of(self, row: int) -> Int64s:
        return self.slots[self.starts[row] : self.ends[row]]

    def spans(self, row: int) -> Int64s:
        """Returns start and size of each value: int64 of shape (n, 2)."""
        return self.of(row).reshape(-1, 2)

    def fail(self, rows: Int64s, why: str) -> None:
        for row in np.unique(rows).tolist():
            self.failed.setdefault(row, why)

    def gathered(self, spans: Int64s) -> tuple[pa.Buffer, pa.Buffer]:
        """Returns offsets (int32) and bytes of an Arrow array with the bytes in `spans`."""
        offsets = np.empty(len(spans) + 1, dtype=np.int32)
        data = np.empty(int(spans[:, 1].sum()), dtype=np.uint8)
        narrow = spans.astype(np.int32)
        if gather_kernel.gather(self.data, narrow, 0, offsets, data) != len(data):
            raise CorruptError("records changed while they were decoded")
        return pa.py_buffer(offsets), pa.py_buffer(data)


@dataclass(slots=True)
class Column:
    """Makes an Arrow array of type `type` from the slots of the table's row `row`. As it stands: of
    nulls."""

    row: int
    type: pa.DataType

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        """`rows`: for each value, the number of the datum that it is in."""
        return pa.nulls(len(rows), self.type)


@dataclass(slots=True)
class Mismatch(Column):
    """A value that the reader's type cannot take: each datum that has one is an error."""

    why: str

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        found.fail(rows, self.why)
        return pa.nulls(len(rows), self.type)


@dataclass(slots=True)
class Constant(Column):
    """The default of a field that the writer does not have: an array with one element."""

    value: pa.Array

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        return self.value.take(pa.array(np.zeros(len(rows), dtype=np.int64)))


def _no_change(values: Int64s) -> NDArray[Any]:
    return values


@dataclass(slots=True)
class Numbers(Column):
    """Numbers of any kind; `convert` makes the slots an array of the width of `type`. `factor` and
    `divisor` convert units of time."""

    convert: Callable[[Int64s], NDArray[Any]] = _no_change
    factor: int = 1
    divisor: int = 1

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        slots = found.of(self.row)
        if self.factor > 1:
            limit = np.iinfo(np.int64).max // self.factor
            outside = (slots > limit) | (slots < -limit)
            if outside.any():
                found.fail(rows[outside], "a time is outside the range of the reader's unit")
            slots = np.where(outside, 0, slots) * self.factor
        elif self.divisor > 1:
            slots = slots // self.divisor
        if pa.types.is_time(self.type):
            slots = self._within_day(slots, found, rows)
        values = np.ascontiguousarray(self.convert(slots))
        if pa.types.is_boolean(self.type):
            return pa.array(values, self.type)
        return pa.Array.from_buffers(self.type, len(values), [None, pa.py_buffer(values)])

    def _within_day(self, slots: Int64s, found: Shredded, rows: Int64s) -> Int64s:
        """Arrow has no other times of day, so those become 0 in a datum that is an error."""
        day = DAY_SECONDS * (10**3 if self.type.unit == "ms" else 10**6)
        outside = (slots < 0) | (slots >= day)
        if outside.any():
            found.fail(rows[outside], OUTSIDE_DAY)
        return np.where(outside, 0, slots)


@dataclass(slots=True)
class TextColumn(Column):
    """Strings and bytes. `is_checked`: the kernel has seen that they are UTF-8."""

    is_checked: bool

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        spans = found.spans(self.row)
        offsets, data = found.gathered(spans)
        made = pa.Array.from_buffers(self.type, len(spans), [None, offsets, data])
        if pa.types.is_string(self.type) and not self.is_checked:
            try:
                made.validate(full=True)
            except pa.ArrowInvalid:
                return self._checked_one_by_one(made, found, rows)
        return made

    def _checked_one_by_one(self, made: pa.Array, found: Shredded, rows: Int64s) -> pa.Array:
        texts: list[str | None] = []
        for row, data in zip(rows.tolist(), made.cast(pa.binary()).to_pylist(), strict=True):
            try:
                texts.append(data.decode())
            except UnicodeDecodeError:
                texts.append(None)
                found.failed.setdefault(row, reason(-7))
        return pa.array(texts, self.type)


@dataclass(slots=True)
class Fixed(Column):
    """Bytes of a fixed `size`; with `convert`, the text that it makes of them."""

    size: int
    convert: Callable[[bytes], str] | None = None

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        starts = found.of(self.row)
        spans = np.stack([starts, np.full(len(starts), self.size, dtype=np.int64)], axis=1)
        _, data = found.gathered(spans)
        made = pa.Array.from_buffers(pa.binary(self.size), len(starts), [None, data])
        if self.convert is None:
            return made
        return pa.array([self.convert(each) for each in made.to_pylist()], self.type)


@dataclass(slots=True)
class Symbols(Column):
    """Symbols of an enum. `texts`: by the writer's number, the reader's symbol; None for one that
    the reader does not know."""

    texts: Sequence[str | None]

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        numbers = found.of(self.row)
        for number, text in enumerate(self.texts):
            if text is None and (unknown := numbers == number).any():
                found.fail(rows[unknown], "the reader's enum does not have the symbol")
        return pa.array(list(self.texts), self.type).take(pa.array(numbers))


@dataclass(slots=True)
class Items(Column):
    """Arrays and, with `keys`, maps."""

    items: Column
    keys: Column | None = None

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        lengths = found.of(self.row)
        ends = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=ends[1:])
        offsets = pa.array(ends.astype(np.int32))
        inner = np.repeat(rows, lengths)
        items = self.items.build(found, inner)
        if self.keys is None:
            return pa.ListArray.from_arrays(offsets, items)
        return pa.MapArray.from_arrays(offsets, self.keys.build(found, inner), items)


@dataclass(slots=True)
class Branches(Column):
    """A union of the writer's, each branch of which was resolved to the reader's type."""

    parts: Sequence[Column]

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        chosen = found.of(self.row)
        wholes: list[pa.Array] = []
        places = np.zeros(len(chosen), dtype=np.int64)
        is_null = np.zeros(len(chosen), dtype=np.bool_)
        total = 0
        for number, part in enumerate(self.parts):
            mine = chosen == number
            made = part.build(found, rows[mine])
            if type(part) in (Column, Mismatch):  # nothing but nulls
                is_null |= mine
                continue
            places[mine] = total + np.arange(len(made))
            total += len(made)
            wholes.append(made)
        if not wholes:
            return pa.nulls(len(chosen), self.type)
        dense = wholes[0] if len(wholes) == 1 else pa.concat_arrays(wholes)
        if len(dense) == len(chosen) and len(wholes) == 1:
            return dense
        return dense.take(pa.array(places, mask=is_null))


@dataclass(slots=True)
class Wrapped(Column):
    """A value in a union of several types of the reader's: a struct with a field for each of them,
    of which `inner` is at `place`."""

    inner: Column
    place: int

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        made = self.inner.build(found, rows)
        fields = [self.type.field(place) for place in range(self.type.num_fields)]
        arrays = [
            made if place == self.place else pa.nulls(len(rows), each.type)
            for place, each in enumerate(fields)
        ]
        return pa.StructArray.from_arrays(arrays, fields=fields)


@dataclass(slots=True)
class Struct(Column):
    """A record; `parts`: the columns of the reader's fields."""

    parts: Sequence[Column]

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        arrays = [part.build(found, rows) for part in self.parts]
        if not arrays:
            return pa.array([{}] * len(rows), self.type)
        fields = [self.type.field(place) for place in range(self.type.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=fields)


@dataclass(slots=True)
class JsonTexts(Column):
    """Values as JSON text, for recursive types, which Arrow does not have."""

    decoder: AvroDecoder

    def build(self, found: Shredded, rows: Int64s) -> pa.Array:
        texts: list[str | None] = []
        for row, (start, size) in zip(rows.tolist(), found.spans(self.row).tolist(), strict=True):
            try:
                value = self.decoder.to_json(found.data[start : start + size])
                texts.append(json.dumps(value, ensure_ascii=False))
            except DatumError as error:
                found.failed.setdefault(row, error.why)
                texts.append(None)
        return pa.array(texts, self.type)


@dataclass(slots=True)
class AvroColumns:
    """Makes Arrow columns of datums of one writer's schema, resolved to a reader's. `nodes` and
    `links` are the kernel's tables, `root` makes the whole values."""

    nodes: Int64s
    links: Int64s
    root: Column
    # By row, the slots of a value that emits any; and whether no such value is in an array or map.
    _widths: Int64s = field(init=False)
    _is_flat: bool = field(init=False)

    def __post_init__(self) -> None:
        kinds, emits = self.nodes[:, 0], self.nodes[:, 3] != 0
        self._widths = np.where(np.isin(kinds, _TWO_SLOTS), 2, 1) * emits
        self._is_flat = not (np.isin(kinds, (Kind.ARRAY, Kind.MAP)) & emits).any()

    @property
    def type(self) -> pa.DataType:
        return self.root.type

    def build(self, data: memoryview, spans: Int64s) -> tuple[pa.Array, pa.Array]:
        """Returns the values of the datums whose start and end in `data` are in each row of `spans`
        (int64, shape (n, 2)), and a string column with why a datum does not fit, null if it does.
        The value of one that does not fit is null, unless bytes are left over."""
        status = np.zeros(len(spans), dtype=np.int64)
        found = self._shredded(data, np.ascontiguousarray(spans, dtype=np.int64), status)
        fitting = np.flatnonzero((status == 0) | (status == BYTES_LEFT))
        dense = self.root.build(found, fitting)
        is_null = np.ones(len(spans), dtype=np.bool_)
        is_null[fitting] = False
        is_null[list(found.failed)] = True
        places = np.zeros(len(spans), dtype=np.int64)
        places[fitting] = np.arange(len(fitting))
        values = dense.take(pa.array(places, mask=is_null)) if is_null.any() else dense
        return values, _errors(status, found.failed)

    def _shredded(self, data: memoryview, spans: Int64s, status: Int64s) -> Shredded:
        room = self._widths * len(spans)
        if self._is_flat and room.sum() <= _MAX_ROOM:
            return self._shredded_at_once(data, spans, status, room)
        counts, saved = np.zeros((2, len(self.nodes)), dtype=np.int64)
        left = np.zeros(2, dtype=np.int64)
        tables = self.nodes, self.links, self.root.row, MOST
        kernel.check(data, spans, *tables, counts, saved, left, status)
        ends = np.cumsum(counts)
        starts = ends - counts
        slots = np.zeros(int(counts.sum()), dtype=np.int64)
        cursors = starts.copy()
        if (
            not kernel.shred(data, spans, *tables, status, cursors, left, slots)
            or (cursors != ends).any()
        ):
            raise CorruptError("records changed while they were decoded")
        return Shredded(data, slots, starts, ends)

    def _shredded_at_once(
        self, data: memoryview, spans: Int64s, status: Int64s, room: Int64s
    ) -> Shredded:
        """Does the same in one walk: each value occurs once in a datum, or not at all."""
        starts = np.cumsum(room) - room
        slots = np.empty(int(room.sum()), dtype=np.int64)
        ends, saved, left = starts.copy(), starts.copy(), np.zeros(2, dtype=np.int64)
        tables = self.nodes, self.links, self.root.row, MOST
        kernel.check_and_shred(data, spans, *tables, saved, left, status, ends, slots)
        return Shredded(data, slots, starts, ends)


def _errors(status: Int64s, failed: dict[int, str]) -> pa.Array:
    if not failed and not status.any():
        return pa.nulls(len(status), pa.string())
    texts: list[str | None] = [reason(code) if code else None for code in status.tolist()]
    for row, why in failed.items():
        texts[row] = why
    return pa.array(texts, pa.string())
