"""Protobuf datums as Arrow columns.

Each datum is parsed by google.protobuf; then the values of one field in all messages make an array.
A field without presence (proto3's scalars without `optional`) has its default where it is not set,
one with presence is null. Extensions and unknown fields have no column.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter, methodcaller
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DatumError, SchemaError
from ..framing import MessageRef
from ..in_chunks import Built, FailedDatums, Int64s, built_in_chunks, item_offsets, with_reasons
from ..schema import FEW_FIELDS, MAX_COLUMNS
from .decoder import TOO_DEEP, ProtobufDecoder
from .walk import is_map

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

_NANOS: Final = 10**9
#: By FieldDescriptor.cpp_type.
_SCALARS: Final = {
    1: pa.int32(), 2: pa.int64(), 3: pa.uint32(), 4: pa.uint64(), 5: pa.float64(), 6: pa.float32(),
    7: pa.bool_(), 8: pa.string(), 9: pa.string(),
}  # fmt: skip
_CPPTYPE_ENUM: Final = 8
_TYPE_BYTES: Final = 12
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
#: Those without a type of their own in Arrow.
_AS_JSON: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Any", "Struct", "Value", "ListValue", "FieldMask")
)


@dataclass(slots=True)
class _Build:
    """What the columns of some datums share. `failed`: by the number of a datum, why it does not
    fit."""

    decoder: ProtobufDecoder
    failed: FailedDatums

    def fail(self, rows: Iterable[int], why: str) -> None:
        for row in rows:
            self.failed.setdefault(row, why)


@dataclass(slots=True)
class _Column:
    """Makes an array of values, none of which is None. `rows`: for each value, the number of the
    datum that it is in."""

    type: pa.DataType

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        return pa.array(values, self.type)


@dataclass(slots=True)
class _Enum(_Column):
    """Names; the number if it has none."""

    names: dict[int, str]

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        names = self.names
        return pa.array([names.get(each) or str(each) for each in values], self.type)


@dataclass(slots=True)
class _Wrapper(_Column):
    """The value of a message such as Int64Value."""

    inner: _Column

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        return self.inner.build([each.value for each in values], rows, found)


@dataclass(slots=True)
class _Time(_Column):
    """Timestamp or Duration, in nanoseconds."""

    is_duration: bool

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        count = len(values)
        seconds = np.fromiter(map(attrgetter("seconds"), values), np.int64, count)
        nanos = np.fromiter(map(attrgetter("nanos"), values), np.int64, count)
        limit = np.iinfo(np.int64).max // _NANOS - 1
        wrong = (nanos >= _NANOS) | (nanos <= (-_NANOS if self.is_duration else -1))
        if self.is_duration:
            wrong |= (seconds > 0) & (nanos < 0) | (seconds < 0) & (nanos > 0)
        if wrong.any():
            found.fail(rows[wrong].tolist(), "the nanoseconds of a time are impossible")
        outside = (seconds > limit) | (seconds < -limit)
        if outside.any():
            found.fail(rows[outside].tolist(), "a time is outside the range of 64-bit nanoseconds")
        return pa.array(np.where(wrong | outside, 0, seconds) * _NANOS + nanos).cast(self.type)


@dataclass(slots=True)
class _Json(_Column):
    """Messages as JSON text."""

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        texts: list[str | None] = []
        for row, each in zip(rows.tolist(), values, strict=True):
            try:
                shown = found.decoder.message_to_json(each)
                texts.append(json.dumps(shown, ensure_ascii=False))
            except (DatumError, RecursionError) as error:
                found.fail([row], error.why if isinstance(error, DatumError) else TOO_DEEP)
                texts.append(None)
        return pa.array(texts, self.type)


@dataclass(slots=True)
class _Field:
    """A field of a message. `has_presence`: it may be absent, and is null then."""

    name: str
    column: _Column
    keys: _Column | None = None
    is_repeated: bool = False
    has_presence: bool = False

    def build(self, messages: Sequence[Message], rows: Int64s, found: _Build) -> pa.Array:
        if self.keys is not None:
            return self._map(messages, rows, found, self.keys)
        if self.is_repeated:
            return self._list(messages, rows, found)
        if not self.has_presence:
            values = list(map(attrgetter(self.name), messages))
            return self.column.build(values, rows, found)
        is_there = np.fromiter(
            map(methodcaller("HasField", self.name), messages), np.bool_, len(messages)
        )
        if is_there.all():
            values = list(map(attrgetter(self.name), messages))
            return self.column.build(values, rows, found)
        present = [messages[place] for place in np.flatnonzero(is_there).tolist()]
        inner = rows[is_there]
        values = list(map(attrgetter(self.name), present))
        return _spread(self.column.build(values, inner, found), is_there)

    def _list(self, messages: Sequence[Message], rows: Int64s, found: _Build) -> pa.Array:
        lists = self._admitted([getattr(each, self.name) for each in messages], rows, found)
        offsets, inner = item_offsets(_lengths(lists), rows)
        values = list(chain.from_iterable(lists))
        return pa.ListArray.from_arrays(pa.array(offsets), self.column.build(values, inner, found))

    def _map(
        self, messages: Sequence[Message], rows: Int64s, found: _Build, keys: _Column
    ) -> pa.Array:
        maps = self._admitted([getattr(each, self.name) for each in messages], rows, found)
        offsets, inner = item_offsets(_lengths(maps), rows)
        # Sorted: the library has them in an order that differs from process to process.
        names = [key for each in maps for key in sorted(each)]
        values = [each[key] for each in maps for key in sorted(each)]
        made = keys.build(names, inner, found), self.column.build(values, inner, found)
        return pa.MapArray.from_arrays(pa.array(offsets), *made)

    def _admitted(self, values: list[Any], rows: Int64s, found: _Build) -> list[Any]:
        refused = found.failed.refuse(_lengths(values), rows, self.column.type)
        if refused.any():
            for place in np.flatnonzero(refused).tolist():
                values[place] = {}
        return values


@dataclass(slots=True)
class _Struct(_Column):
    """A message."""

    fields: Sequence[_Field]

    def build(self, values: Sequence[Any], rows: Int64s, found: _Build) -> pa.Array:
        known = self._known(values)
        arrays = [
            each.build(values, rows, found)
            if each.name in known
            else pa.nulls(len(values), each.column.type)
            for each in self.fields
        ]
        types = [self.type.field(place) for place in range(self.type.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=types)

    def _known(self, messages: Sequence[Message]) -> Collection[str]:
        """Returns the names of fields that are not absent from all messages: of very many, those
        that are set in one of them, and those that are never absent."""
        names = {each.name for each in self.fields}
        if len(names) <= FEW_FIELDS:
            return names
        never_absent = {each.name for each in self.fields if not each.has_presence}
        present = (field.name for each in messages for field, _ in each.ListFields())
        return never_absent.union(present)


def _lengths(values: Sequence[Any]) -> Int64s:
    return np.fromiter(map(len, values), np.int64, len(values))


def _spread(dense: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    """Returns an array with nulls where a value is absent."""
    places = np.cumsum(is_there) - 1
    return dense.take(pa.array(places, mask=~is_there))


@dataclass(slots=True)
class _Shapes:
    """Makes the columns of messages; counts them, as their number can be exponential in that of
    the schema's types."""

    name: str
    count: int = 0

    def message(self, of: Descriptor, outer: tuple[str, ...]) -> _Column:
        name = of.full_name
        if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
            is_duration = name.endswith("Duration")
            kind = pa.duration("ns") if is_duration else pa.timestamp("ns", "UTC")
            return _Time(kind, is_duration=is_duration)
        if name in _WRAPPERS:
            inner = _scalar(of.fields_by_name["value"])
            return _Wrapper(inner.type, inner)
        if name in _AS_JSON or name in outer or not of.fields:
            return _Json(pa.string())
        fields = [self.field(each, (*outer, name)) for each in of.fields]
        types = [pa.field(each.name, _field_type(each)) for each in fields]
        return _Struct(pa.struct(types), fields)

    def field(self, of: FieldDescriptor, outer: tuple[str, ...]) -> _Field:
        self.count += 1
        if self.count > MAX_COLUMNS:
            raise SchemaError(self.name, f"it has more than {MAX_COLUMNS:,} columns")
        if is_map(of):
            key, value = (of.message_type.fields_by_name[each] for each in ("key", "value"))
            return _Field(of.name, self.value(value, outer), keys=_scalar(key))
        presence = of.has_presence and not of.is_repeated
        column = self.value(of, outer)
        return _Field(of.name, column, is_repeated=of.is_repeated, has_presence=presence)

    def value(self, of: FieldDescriptor, outer: tuple[str, ...]) -> _Column:
        return _scalar(of) if of.message_type is None else self.message(of.message_type, outer)


def _scalar(of: FieldDescriptor) -> _Column:
    if of.type == _TYPE_BYTES:
        return _Column(pa.binary())
    if of.cpp_type == _CPPTYPE_ENUM:
        return _Enum(pa.string(), {each.number: each.name for each in of.enum_type.values})
    return _Column(_SCALARS[of.cpp_type])


def _field_type(of: _Field) -> pa.DataType:
    if of.keys is not None:
        return pa.map_(of.keys.type, of.column.type)
    return pa.list_(of.column.type) if of.is_repeated else of.column.type


class ProtobufColumns:
    """Makes Arrow columns of datums of one message of a schema."""

    def __init__(self, decoder: ProtobufDecoder, message: MessageRef = None) -> None:
        """Raises DatumError if there is no such message, SchemaError if it has too many columns."""
        self._decoder = decoder
        self._names = decoder.message_names(message)
        self._root = _Shapes(self._names[0]).message(decoder.descriptor(self._names[0]), ())

    @property
    def type(self) -> pa.DataType:
        return self._root.type

    def build(self, data: memoryview, spans: Int64s) -> Built:
        """Returns the values of the datums whose start and end in `data` are in each row of `spans`
        (int64, shape (n, 2)), and a string column with why a datum does not fit, null if it does.
        The value of one that does not fit is null."""
        return built_in_chunks(spans, partial(self._built, data))

    def _built(self, data: memoryview, spans: Int64s) -> Built:
        found = _Build(self._decoder, FailedDatums(spans))
        messages: list[Message] = []
        is_there = np.ones(len(spans), dtype=np.bool_)
        for row, (start, end) in enumerate(spans.tolist()):
            try:
                messages.append(self._parse(data[start:end]))
            except DatumError as error:
                found.failed[row] = error.why
                is_there[row] = False
        rows = np.flatnonzero(is_there)
        return with_reasons(self._root.build(messages, rows, found), is_there, found.failed)

    def _parse(self, data: memoryview) -> Message:
        parsed = self._decoder.parse(data, self._names)
        if parsed.DESCRIPTOR.full_name != self._names[0]:
            raise DatumError(f"it is a {parsed.DESCRIPTOR.full_name}, not a {self._names[0]}")
        return parsed
