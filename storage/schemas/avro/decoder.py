"""Decodes Avro datums: one to JSON values, many to Arrow columns (`columns.py`).

Datums are walked by the kernel `avro` before anything is made of them, so a hostile one costs no
more than its own bytes: sizes and counts are checked against them; depth, empty items, and the
values and names that a datum becomes are bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...errors import BytesLeft, DatumError, SchemaError
from ...format.kernels import avro as kernel
from ...format.records.batch import Bytes
from ..conventions import OUTSIDE_DAY, TOO_MANY_DIGITS, TOO_MANY_ITEMS, Converter, avro_converter
from ..in_chunks import MOST_VALUES, VALUES_PER_BYTE
from ..schema import Schema
from .texts import AvroTexts, text_writer
from .types import AvroType, Kind, parse_avro

#: The kernel's kind of a value whose parts are of no interest.
SPAN: Final = 14
#: Array items without bytes that a datum may have. With them, a few bytes can claim 2^60 items.
MAX_EMPTY_ITEMS: Final = 1024
#: What a datum may have, for the kernel: such items; the cost of its values, and more of that for
#: each of its bytes. A value costs 1, and this many bytes of a name that is shown with it, as well.
MOST: Final = np.array([MAX_EMPTY_ITEMS, MOST_VALUES, VALUES_PER_BYTE], dtype=np.int64)
_NAME_BYTES: Final = 16
#: The kernel's code of a datum that fits, but does not end with its bytes.
BYTES_LEFT: Final = -10
#: By the kernel's codes, negated.
_REASONS: Final = {
    1: "it ends within a value, or a length in it is longer than the datum",
    2: "a number is outside the range of int",
    3: "a boolean is neither 0 nor 1",
    4: "a length is negative or too large",
    5: "an enum has no symbol with that number",
    6: "a union has no branch with that number",
    7: "a string is not UTF-8",
    8: "values are nested too deeply",
    9: f"arrays have more than {MAX_EMPTY_ITEMS:,} items without any bytes",
    10: "bytes are left over",
    11: TOO_MANY_ITEMS,
    12: OUTSIDE_DAY,  # this one and the next only of the kernel `avro_text`
    13: TOO_MANY_DIGITS,
}


def reason(code: int) -> str:
    """Returns why a datum does not fit, for a code of the kernel."""
    return _REASONS[-code]


@dataclass(slots=True)
class Tables:
    """The kernel's tables for some types. `names` and `converters`: for each row, the names of its
    fields or symbols, and what makes its values JSON. `types`: the type for which `add_graph` added
    the row, None for others."""

    rows: list[list[int]] = field(default_factory=list)
    links: list[int] = field(default_factory=list)
    names: list[tuple[str, ...]] = field(default_factory=list)
    converters: list[Converter | None] = field(default_factory=list)
    types: list[AvroType | None] = field(default_factory=list)
    #: The row of each type that was added by `add_graph`.
    _known: dict[int, int] = field(default_factory=dict)

    def add_row(self, kind: int, a: int = 0, b: int = 0, *, emits: int = 0) -> int:
        """`emits`: 0 for no slots, otherwise 1; of an array or map, the values of an item. It is
        negative if they only cost something (see the kernel)."""
        self.rows.append([kind, a, b, emits])
        self.names.append(())
        self.converters.append(None)
        self.types.append(None)
        return len(self.rows) - 1

    def add_links(self, row: int, parts: list[int]) -> None:
        """Makes rows the branches or fields of another."""
        self.rows[row][1:3] = [len(parts), len(self.links)]
        self.links += parts

    def add_graph(self, of: AvroType) -> int:
        """Adds a type, each type once, so that cycles are no obstacle. Its rows emit nothing.
        Returns its row."""
        if id(of) in self._known:
            return self._known[id(of)]
        row = self._known[id(of)] = self.add_row(of.kind)
        self.types[row] = of  # this also keeps its id its own
        if of.kind in (Kind.UNION, Kind.RECORD):
            parts = of.parts or tuple(each.type for each in of.fields)
            self.names[row] = tuple(each.name for each in of.fields)
            self.add_links(row, [self.add_graph(part) for part in parts])
            self.rows[row][3] = -sum(_cost(each.name, each.type) for each in of.fields)
        elif of.kind in (Kind.ARRAY, Kind.MAP):
            self.rows[row][1] = self.add_graph(of.parts[0])
            self.rows[row][3] = -_cost("", of.parts[0])
            if of.kind is Kind.MAP:
                self.rows[row][2] = self.add_row(Kind.STRING)
        else:
            self._add_scalar(row, of)
        return row

    def _add_scalar(self, row: int, of: AvroType) -> None:
        self.converters[row] = avro_converter(
            of.kind.name.lower(), of.logical, of.precision, of.scale
        )
        if of.kind is Kind.FIXED:
            self.rows[row][1] = of.size
        elif of.kind is Kind.ENUM:
            self.rows[row][1] = len(of.symbols)
            self.names[row] = of.symbols

    def arrays(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns `nodes` and `links` for the kernel."""
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, 4)
        return rows, np.array(self.links, dtype=np.int64)


def _cost(name: str, of: AvroType) -> int:
    """Returns what a value with this name costs, unless it is a record; of an enum, also its
    longest symbol."""
    enums = [each for each in (of, *of.parts) if each.kind is Kind.ENUM]
    symbol = max((len(text) for each in enums for text in each.symbols), default=0)
    return 1 + (len(name) + symbol) // _NAME_BYTES


class AvroDecoder:
    """Decodes datums of one schema to JSON values, with the schema that wrote them. `texts`: what
    writes their JSON text; None if that is left to Python's encoder."""

    __slots__ = ("_arguments", "texts", "type")

    def __init__(self, of: AvroType) -> None:
        self.type = of
        tables = Tables()
        root = tables.add_graph(of)
        nodes, links = tables.arrays()
        self._arguments = nodes, links, root, MOST, list(tables.names), tables.converters
        self.texts: AvroTexts | None = text_writer(nodes, links, root, MOST, tables.types)

    @property
    def name(self) -> str:
        """The full name of the record, enum or fixed, "" for another type."""
        return self.type.name if self.type.is_named else ""

    def to_json_each(
        self, data: Bytes, starts: Sequence[int], ends: Sequence[int]
    ) -> list[tuple[int, Any]]:
        """Returns for each datum, which lies in `data` from its start to its end, 0 and its JSON
        values; or, if it does not fit, the kernel's code and None; of BYTES_LEFT, both."""
        place = np.zeros(2, dtype=np.int64)
        return [
            kernel.value(data, start, end, *self._arguments, place)
            for start, end in zip(starts, ends, strict=True)
        ]

    def to_json(self, payload: bytes | memoryview) -> Any:
        """Returns a datum as JSON values. Raises DatumError if the bytes are not one, or
        BytesLeft if more follow."""
        [(code, value)] = self.to_json_each(payload, (0,), (len(payload),))
        if code == BYTES_LEFT:
            raise BytesLeft(reason(code), value)
        if code:
            raise DatumError(reason(code))
        return value


def compile_avro(schema: Schema, referenced: Mapping[str, Schema]) -> AvroDecoder:
    """Raises SchemaError."""
    try:
        return AvroDecoder(parse_avro(schema, referenced))
    except RecursionError as error:
        raise SchemaError(schema.name, "its types are nested too deeply") from error
