"""How a writer's type is resolved to a reader's.

The rules are those of the Avro specification ("Schema Resolution"): fields by name or alias,
defaults for fields that the writer does not have, promotions, symbols by name, unions by the first
branch that fits. What cannot be resolved concerns only the datums that contain it. Beyond the
specification, times are converted between units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...errors import SchemaError
from ..conventions import avro_converter
from ..in_chunks import width_of
from . import columns as to
from .decimals import Decimals
from .decoder import SPAN, AvroDecoder, Tables
from .shapes import MAX_PRECISION, arrow_type, branch_names, not_null
from .types import NO_DEFAULT, AvroField, AvroType, Kind

# The rows of the kernel's tables: exponentially many if unions in each other have many branches
# that are resolved to the same type.
_MAX_ROWS: Final = 100_000
#: The bytes that the defaults of fields that a datum lacks may have together.
MAX_DEFAULT_BYTES: Final = 16 << 10
# What counts as a value of a default.
_VALUE_BYTES: Final = 8
_NUMBERS: Final = (Kind.INT, Kind.LONG, Kind.FLOAT, Kind.DOUBLE)
#: By the writer's kind, the reader's kinds that its values are promoted to.
_PROMOTIONS: Final = {
    Kind.INT: (Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.LONG: (Kind.FLOAT, Kind.DOUBLE),
    Kind.FLOAT: (Kind.DOUBLE,),
    Kind.STRING: (Kind.BYTES,),
    Kind.BYTES: (Kind.STRING,),
}
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def resolve(writer: AvroType, reader: AvroType) -> to.AvroColumns:
    """Returns what makes columns of the reader's type of datums of the writer's. Raises SchemaError
    if the reader's type has too many columns."""
    resolver = _Resolver()
    arrow_type(reader)
    root = resolver.column(writer, reader, ())
    nodes, links = resolver.tables.arrays()
    return to.AvroColumns(nodes, links, root)


@dataclass(slots=True)
class _Resolver:
    """Builds columns and, for each value that has one, a row in the kernel's tables."""

    tables: Tables = field(default_factory=Tables)
    #: The bytes of all defaults that datums lack: each row of a column has them.
    default_bytes: int = 0

    def column(self, writer: AvroType, reader: AvroType, outer: tuple[AvroType, ...]) -> to.Column:
        """`outer`: the reader's records that the value is in."""
        if len(self.tables.rows) > _MAX_ROWS:
            raise SchemaError(writer.name, f"resolving it takes more than {_MAX_ROWS:,} steps")
        of = arrow_type(reader, outer)
        if any(reader is each for each in outer):
            graph = self.tables.add_graph(writer)
            row = self.tables.add_row(SPAN, graph, emits=1)
            return to.JsonTexts(row, of, AvroDecoder(writer))
        if writer.kind is Kind.UNION:
            row = self.tables.add_row(Kind.UNION, emits=1)
            parts = [self.column(part, reader, outer) for part in writer.parts]
            self.tables.add_links(row, [part.row for part in parts])
            return to.Branches(row, of, parts)
        if reader.kind is Kind.UNION:
            return self._in_union(writer, reader, outer, of)
        if not _fits(writer, reader):
            return self._mismatch(writer, of, f"{_what(writer)} does not fit {_what(reader)}")
        if reader.kind is Kind.RECORD:
            return self._record(writer, reader, outer, of)
        if reader.kind in (Kind.ARRAY, Kind.MAP):
            return self._items(writer, reader, outer, of)
        return self._scalar(writer, reader, of)

    def _mismatch(self, writer: AvroType, of: pa.DataType, why: str) -> to.Column:
        return to.Mismatch(self.tables.add_graph(writer), of, why)

    def _in_union(
        self, writer: AvroType, reader: AvroType, outer: tuple[AvroType, ...], of: pa.DataType
    ) -> to.Column:
        branch = _branch_for(writer, reader)
        if branch is None:
            return self._mismatch(
                writer, of, f"{_what(writer)} fits no branch of the reader's union"
            )
        if branch.kind is Kind.NULL:
            return to.Column(self.tables.add_graph(writer), of)
        inner = self.column(writer, branch, outer)
        parts = not_null(reader)
        if len(parts) == 1:
            return inner
        if isinstance(inner, to.Mismatch):
            return to.Mismatch(inner.row, of, inner.why)
        place = next(place for place, each in enumerate(parts) if each is branch)
        return to.Wrapped(inner.row, of, inner, place)

    def _record(
        self, writer: AvroType, reader: AvroType, outer: tuple[AvroType, ...], of: pa.DataType
    ) -> to.Column:
        inner = (*outer, reader)
        row = self.tables.add_row(Kind.RECORD)
        rows: dict[str, int] = {}
        parts: list[to.Column] = []
        written = {each.name: each for each in writer.fields}
        for each in reader.fields:
            names = (each.name, *each.aliases)
            name = next((name for name in names if name in written and name not in rows), None)
            if name is not None:
                part = self.column(written[name].type, each.type, inner)
                rows[name] = part.row
            elif each.default is NO_DEFAULT:
                why = f"the field {each.name!r} is missing and has no default"
                return self._mismatch(writer, of, why)
            else:
                part = self._default(each, arrow_type(each.type, inner))
            parts.append(part)
        # What the reader does not have is walked over.
        links = [
            rows[each.name] if each.name in rows else self.tables.add_graph(each.type)
            for each in writer.fields
        ]
        self.tables.add_links(row, links)
        return to.Struct(row, of, parts)

    def _default(self, of: AvroField, arrow: pa.DataType) -> to.Column:
        found = _default(of, arrow)
        if isinstance(found, to.Constant):
            self.default_bytes += found.value.nbytes
            if self.default_bytes > MAX_DEFAULT_BYTES:
                why = f"the defaults of missing fields have more than {MAX_DEFAULT_BYTES:,} bytes"
                return to.Mismatch(-1, arrow, why)
        return found

    def _items(
        self, writer: AvroType, reader: AvroType, outer: tuple[AvroType, ...], of: pa.DataType
    ) -> to.Column:
        row = self.tables.add_row(writer.kind, emits=1)
        before = self.default_bytes
        items = self.column(writer.parts[0], reader.parts[0], outer)
        # Each item has its defaults, which no bytes of the datum pay for.
        defaults = (self.default_bytes - before) // _VALUE_BYTES
        self.tables.rows[row][1] = items.row
        self.tables.rows[row][3] = width_of(items.type) + defaults
        if reader.kind is Kind.ARRAY:
            return to.Items(row, of, items)
        keys = self.tables.add_row(Kind.STRING, emits=1)
        self.tables.rows[row][2] = keys
        return to.Items(row, of, items, to.TextColumn(keys, pa.string(), True))

    def _scalar(self, writer: AvroType, reader: AvroType, of: pa.DataType) -> to.Column:
        if writer.kind is Kind.NULL:
            return to.Column(self.tables.add_graph(writer), of)
        size = {Kind.FIXED: writer.size, Kind.ENUM: len(writer.symbols)}.get(writer.kind, 0)
        row = self.tables.add_row(writer.kind, size, emits=1)
        if reader.logical == "decimal":
            size = writer.size if writer.kind is Kind.FIXED else -1
            return Decimals(row, of, size, reader.precision, reader.scale)
        if writer.kind is Kind.FIXED:
            convert = avro_converter("fixed", "uuid") if reader.logical == "uuid" else None
            return to.Fixed(row, of, writer.size, convert)
        if writer.kind is Kind.ENUM:
            known = set(reader.symbols)
            texts = [each if each in known else reader.default for each in writer.symbols]
            return to.Symbols(row, of, texts)
        if writer.kind in (Kind.STRING, Kind.BYTES):
            return to.TextColumn(row, of, writer.kind is Kind.STRING)
        return _numbers(row, of, writer, reader)


def _numbers(row: int, of: pa.DataType, writer: AvroType, reader: AvroType) -> to.Column:
    convert = _CONVERSIONS[writer.kind, reader.kind]
    made = to.Numbers(row, of, convert)
    units = [_PER_SECOND.get(each.logical.rpartition("-")[2], 0) for each in (writer, reader)]
    if all(units) and _clock(writer) == _clock(reader):
        made.factor, made.divisor = max(units[1] // units[0], 1), max(units[0] // units[1], 1)
    return made


def _clock(of: AvroType) -> str:
    """Returns the logical type of a time without its unit."""
    return of.logical.rpartition("-")[0]


def _narrow(values: to.Int64s) -> Any:
    return values.astype(np.int32)


def _wide(values: to.Int64s) -> Any:
    return values


def _as_float(values: to.Int64s) -> Any:
    return values.astype(np.float32)


def _as_double(values: to.Int64s) -> Any:
    return values.astype(np.float64)


def _single(values: to.Int64s) -> Any:
    return values.astype(np.uint32).view(np.float32)


def _single_as_double(values: to.Int64s) -> Any:
    return values.astype(np.uint32).view(np.float32).astype(np.float64)


def _double(values: to.Int64s) -> Any:
    return values.view(np.float64)


def _truth(values: to.Int64s) -> Any:
    return values.astype(np.bool_)


#: What makes the slots of the writer's kind an array of the reader's.
_CONVERSIONS: Final[dict[tuple[Kind, Kind], Callable[[to.Int64s], Any]]] = {
    (Kind.BOOLEAN, Kind.BOOLEAN): _truth,
    (Kind.INT, Kind.INT): _narrow,
    (Kind.INT, Kind.LONG): _wide,
    (Kind.INT, Kind.FLOAT): _as_float,
    (Kind.INT, Kind.DOUBLE): _as_double,
    (Kind.LONG, Kind.LONG): _wide,
    (Kind.LONG, Kind.FLOAT): _as_float,
    (Kind.LONG, Kind.DOUBLE): _as_double,
    (Kind.FLOAT, Kind.FLOAT): _single,
    (Kind.FLOAT, Kind.DOUBLE): _single_as_double,
    (Kind.DOUBLE, Kind.DOUBLE): _double,
}


def _what(of: AvroType) -> str:
    """Returns what messages call a type."""
    return f"{of.kind.name.lower()} {of.name}" if of.is_named else (of.logical or of.name)


def _same_name(writer: AvroType, reader: AvroType) -> bool:
    """The specification compares names without their namespaces; aliases are full names."""
    return writer.short_name == reader.short_name or writer.name in reader.aliases


def _fits(writer: AvroType, reader: AvroType) -> bool:
    """Returns whether the types match, without what is inside them."""
    if writer.kind is not reader.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ()) and not (
            writer.logical == "decimal" or reader.logical == "decimal"
        )
    if writer.is_named and not _same_name(writer, reader):
        return False
    if writer.kind is Kind.FIXED and writer.size != reader.size:
        return False
    if writer.logical == "decimal" and reader.logical == "decimal":
        return writer.scale == reader.scale
    return True


def _branch_for(writer: AvroType, reader: AvroType) -> AvroType | None:
    """Returns the branch of a reader's union that takes a writer's type: one of the same kind and
    full name, otherwise the first that matches without a promotion, otherwise the first."""
    fitting = [part for part in reader.parts if _fits(writer, part)]
    exact = [part for part in fitting if part.kind is writer.kind]
    same = [part for part in exact if part.name == writer.name]
    return next(iter(same or exact or fitting), None)


def _default(of: AvroField, arrow: pa.DataType) -> to.Column:
    """Returns the column of a field that the writer does not have. A default that does not fit its
    type makes every datum an error."""
    try:
        value = default_value(of.type, of.default)
        return to.Constant(-1, arrow, pa.array([value], arrow))
    except (ValueError, TypeError, KeyError, OverflowError, ArithmeticError) as error:
        return to.Mismatch(-1, arrow, f"the default of {of.name!r} does not fit: {error}")


def default_value(of: AvroType, default: Any) -> Any:
    """Returns a default, as a schema's JSON has it, as a Python value for pyarrow. Raises
    ValueError or the like if it is not of the type."""
    if of.kind is Kind.UNION:
        return _union_default(of, default)
    if of.kind is Kind.RECORD:
        if not isinstance(default, dict):
            raise ValueError(f"{default!r:.80} is not an object")
        return {
            each.name: default_value(each.type, default.get(each.name, each.default))
            for each in of.fields
        }
    if of.kind is Kind.ARRAY:
        return [default_value(of.parts[0], each) for each in default]
    if of.kind is Kind.MAP:
        return [(key, default_value(of.parts[0], each)) for key, each in default.items()]
    if default is NO_DEFAULT or (default is None) != (of.kind is Kind.NULL):
        raise ValueError(f"no {_what(of)}")
    if of.kind in (Kind.BYTES, Kind.FIXED):
        return _bytes_default(of, default.encode("latin-1"))
    if of.kind in _NUMBERS and (isinstance(default, bool) or not isinstance(default, int | float)):
        raise ValueError(f"{default!r:.80} is not a number")
    if of.kind is Kind.STRING and not isinstance(default, str):
        raise ValueError(f"{default!r:.80} is not a string")
    if of.kind is Kind.ENUM and default not in of.symbols:
        raise ValueError(f"{default!r:.80} is not a symbol")
    return default


def _union_default(of: AvroType, default: Any) -> Any:
    """Since Avro 1.12 the default may be of any branch, before of the first one."""
    parts = not_null(of)
    for part in of.parts:
        try:
            value = default_value(part, default)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
        if part.kind is Kind.NULL or len(parts) == 1:
            return value
        names = branch_names(parts)
        place = next(place for place, each in enumerate(parts) if each is part)
        return {names[place]: value}
    raise ValueError(f"{default!r:.80} is of no branch")


def _bytes_default(of: AvroType, data: bytes) -> Any:
    if of.logical == "decimal":
        unscaled = int.from_bytes(data, "big", signed=True)
        value = Decimal(unscaled).scaleb(-of.scale)
        return value if of.precision <= MAX_PRECISION else str(value)
    convert = avro_converter("fixed", "uuid") if of.logical == "uuid" else None
    return convert(data) if convert else data
