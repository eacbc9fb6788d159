"""Which Arrow type the values of an Avro type have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from ...errors import SchemaError
from ..schema import MAX_COLUMNS
from .types import AvroType, Kind

_PLAIN: Final = {
    Kind.NULL: pa.null(),
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.BYTES: pa.binary(),
    Kind.STRING: pa.string(),
    Kind.ENUM: pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
#: The largest precision of decimal128.
_DECIMAL128: Final = 38
#: That of decimal256, the largest that a decimal in Arrow has.
MAX_PRECISION: Final = 76


def arrow_type(of: AvroType, outer: tuple[AvroType, ...] = ()) -> pa.DataType:
    """Returns the Arrow type of a reader's type inside the records `outer`. A union of null and one
    type is that type; one of several types is a struct with a field for each, all null but one. A
    record inside itself is JSON text."""
    return _Shapes().type(of, outer)


@dataclass(slots=True)
class _Shapes:
    """Counts the columns, whose number can be exponential in that of the schema's types."""

    count: int = 0

    def type(self, of: AvroType, outer: tuple[AvroType, ...]) -> pa.DataType:
        self.count += 1
        if self.count > MAX_COLUMNS:
            raise SchemaError(of.name, f"it has more than {MAX_COLUMNS:,} columns")
        if any(of is each for each in outer):
            return pa.string()
        if of.kind is Kind.RECORD:
            inner = (*outer, of)
            fields = [pa.field(each.name, self.type(each.type, inner)) for each in of.fields]
            return pa.struct(fields)
        if of.kind is Kind.ARRAY:
            return pa.list_(self.type(of.parts[0], outer))
        if of.kind is Kind.MAP:
            return pa.map_(pa.string(), self.type(of.parts[0], outer))
        if of.kind is Kind.UNION:
            return self._union(of, outer)
        return _scalar_type(of)

    def _union(self, of: AvroType, outer: tuple[AvroType, ...]) -> pa.DataType:
        parts = not_null(of)
        types = [self.type(part, outer) for part in parts]
        if len(parts) == 1:
            return types[0]
        if not parts:
            return pa.null()
        names = branch_names(parts)
        return pa.struct([pa.field(name, each) for name, each in zip(names, types, strict=True)])


def _scalar_type(of: AvroType) -> pa.DataType:
    if of.logical == "decimal":
        if of.precision <= _DECIMAL128:
            return pa.decimal128(of.precision, of.scale)
        if of.precision <= MAX_PRECISION:
            return pa.decimal256(of.precision, of.scale)
        return pa.string()
    if of.kind is Kind.FIXED:
        return pa.string() if of.logical == "uuid" else pa.binary(of.size)
    return _LOGICAL.get(of.logical) or _PLAIN[of.kind]


def not_null(union: AvroType) -> list[AvroType]:
    return [part for part in union.parts if part.kind is not Kind.NULL]


def branch_names(parts: list[AvroType]) -> list[str]:
    """Returns the branches' names without namespace where that is unique."""
    short = [part.short_name for part in parts]
    return [
        name if short.count(name) == 1 else part.name
        for name, part in zip(short, parts, strict=True)
    ]
