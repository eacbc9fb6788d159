"""JSON datums as Arrow columns, as far as their schema says what they are.

Objects are structs of the properties that the schema lists; members that it does not list have no
column. What may be of several types, or of a type without a column of its own, is JSON text. A
member that is absent is null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ...errors import DatumError, SchemaError
from ..in_chunks import Built, FailedDatums, Int64s, built_in_chunks, item_offsets, with_reasons
from ..schema import FEW_FIELDS, MAX_COLUMNS
from .cost import joined, pointed
from .decoder import JsonDecoder

#: Keywords that give a value a type if `type` does not.
_IMPLYING: Final = {"properties": "object", "items": "array"}
#: Keywords that combine schemas.
_COMBINING: Final = ("allOf", "anyOf", "oneOf", "if", "not")


@dataclass(slots=True)
class _Column:
    """Makes an array of values, None for null. As it stands: of JSON text."""

    type: pa.DataType

    def build(self, values: Sequence[Any], rows: Int64s, failed: FailedDatums) -> pa.Array:
        """`rows`: for each value, the number of the datum that it is in; `failed`: by that number,
        why a datum does not fit."""
        texts = [None if each is None else json.dumps(each, ensure_ascii=False) for each in values]
        return pa.array(texts, self.type)


def _integer(value: Any) -> int:
    """Takes 1.0, too, which is an integer in JSON Schema."""
    if isinstance(value, bool) or value != int(value) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _exactly(kind: type) -> Callable[[Any], Any]:
    def same(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError
        return value

    return same


_text: Final = _exactly(str)
_boolean: Final = _exactly(bool)


@dataclass(slots=True)
class _Scalar(_Column):
    """`convert` raises TypeError, ValueError or OverflowError for a value of another type."""

    convert: Callable[[Any], Any]

    def build(self, values: Sequence[Any], rows: Int64s, failed: FailedDatums) -> pa.Array:
        convert = self.convert
        try:
            made = [None if each is None else convert(each) for each in values]
        except (TypeError, ValueError, OverflowError):
            made = self._one_by_one(values, rows, failed)
        return pa.array(made, self.type)

    def _one_by_one(
        self, values: Sequence[Any], rows: Int64s, failed: FailedDatums
    ) -> list[Any | None]:
        made: list[Any | None] = []
        for row, each in zip(rows.tolist(), values, strict=True):
            try:
                made.append(None if each is None else self.convert(each))
            except (TypeError, ValueError, OverflowError):
                made.append(None)
                failed.setdefault(row, f"a value is no {self.type}")
        return made


@dataclass(slots=True)
class _Struct(_Column):
    parts: Mapping[str, _Column]

    def build(self, values: Sequence[Any], rows: Int64s, failed: FailedDatums) -> pa.Array:
        values = _of_kind(dict, values, rows, failed)
        known = self._known(values)
        arrays = [
            column.build(
                [None if each is None else each.get(name) for each in values], rows, failed
            )
            if name in known
            else pa.nulls(len(values), column.type)
            for name, column in self.parts.items()
        ]
        fields = [self.type.field(place) for place in range(self.type.num_fields)]
        mask = pa.array([each is None for each in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def _known(self, values: Sequence[Any]) -> Collection[str]:
        """Returns the names of properties that objects may have: of very many only those that one
        of them has."""
        if len(self.parts) <= FEW_FIELDS:
            return self.parts
        return set[str]().union(*(each for each in values if each is not None))


@dataclass(slots=True)
class _Items(_Column):
    """Arrays or, with `is_map`, objects as maps."""

    items: _Column
    is_map: bool

    def build(self, values: Sequence[Any], rows: Int64s, failed: FailedDatums) -> pa.Array:
        values = _of_kind(dict if self.is_map else list, values, rows, failed)
        values = self._admitted(values, rows, failed)
        there = [each for each in values if each is not None]
        lengths = np.array([0 if each is None else len(each) for each in values], dtype=np.int64)
        ends, inner = item_offsets(lengths, rows)
        mask = np.array([*(each is None for each in values), False], dtype=np.bool_)
        offsets = pa.array(ends, mask=mask)
        flat = [item for each in there for item in (each.values() if self.is_map else each)]
        items = self.items.build(flat, inner, failed)
        if not self.is_map:
            return pa.ListArray.from_arrays(offsets, items)
        keys = pa.array([key for each in there for key in each], pa.string())
        return pa.MapArray.from_arrays(offsets, keys, items)

    def _admitted(self, values: Sequence[Any], rows: Int64s, failed: FailedDatums) -> Sequence[Any]:
        lengths = np.array([0 if each is None else len(each) for each in values], dtype=np.int64)
        refused = failed.refuse(lengths, rows, self.items.type)
        if not refused.any():
            return values
        return [None if no else each for each, no in zip(values, refused.tolist(), strict=True)]


def _of_kind(
    kind: type, values: Sequence[Any], rows: Int64s, failed: FailedDatums
) -> Sequence[Any]:
    """Makes values of another type null; their datums fail."""
    wrong = [n for n, each in enumerate(values) if each is not None and not isinstance(each, kind)]
    if not wrong:
        return values
    made = list(values)
    for place in wrong:
        made[place] = None
        failed.setdefault(int(rows[place]), f"a value is no {_KINDS[kind]}")
    return made


_KINDS: Final[Mapping[type, str]] = {dict: "object", list: "array"}


@dataclass(slots=True)
class _Shapes:
    """Makes the columns of a schema; counts them, as their number can be exponential in its
    size."""

    decoder: JsonDecoder
    count: int = 0
    _outer: list[int] = field(default_factory=list)

    def column(self, base: str, schema: Any) -> _Column:
        self.count += 1
        if self.count > MAX_COLUMNS:
            raise SchemaError("the schema", f"it has more than {MAX_COLUMNS:,} columns")
        base, schema = self._followed(base, schema)
        if not isinstance(schema, dict) or id(schema) in self._outer:
            return _Column(pa.string())
        self._outer.append(id(schema))
        try:
            return self._of_type(base, schema)
        finally:
            self._outer.pop()

    def _followed(self, base: str, schema: Any) -> tuple[str, Any]:
        """Returns what a schema is that only refers to another, or allows null besides another."""
        for _ in range(100):
            if not isinstance(schema, dict):
                break
            if isinstance(schema.get("$ref"), str):
                base, schema = self._referenced(base, schema["$ref"])
                continue
            choices = schema.get("anyOf", schema.get("oneOf"))
            if "type" in schema or "properties" in schema or not isinstance(choices, list):
                break
            left = [each for each in choices if each != {"type": "null"}]
            if len(left) != 1 or "allOf" in schema:
                break
            schema = left[0]
        return base, schema

    def _referenced(self, base: str, reference: str) -> tuple[str, Any]:
        where, _, fragment = joined(base, reference).partition("#")
        root = self.decoder.document if where == self.decoder.uri else None
        return where, pointed(self.decoder.documents.get(where, root), fragment)

    def _of_type(self, base: str, schema: dict[str, Any]) -> _Column:
        kind = _type_of(schema)
        if kind == "object":
            return self._object(base, schema)
        if kind == "array" and isinstance(schema.get("items"), dict):
            items = self.column(base, schema["items"])
            return _Items(pa.list_(items.type), items, is_map=False)
        if kind == "integer":
            return _Scalar(pa.int64(), _integer)
        if kind == "number":
            return _Scalar(pa.float64(), _number)
        if kind == "string":
            return _Scalar(pa.string(), _text)
        return _Scalar(pa.bool_(), _boolean) if kind == "boolean" else _Column(pa.string())

    def _object(self, base: str, schema: dict[str, Any]) -> _Column:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            parts = {name: self.column(base, each) for name, each in properties.items()}
            return _Struct(pa.struct([pa.field(n, each.type) for n, each in parts.items()]), parts)
        if isinstance(others, dict) and "patternProperties" not in schema:
            items = self.column(base, others)
            return _Items(pa.map_(pa.string(), items.type), items, is_map=True)
        return _Column(pa.string())


def _type_of(schema: dict[str, Any]) -> str:
    """Returns the one type, besides null, that values have; "" if there may be several."""
    kinds = schema.get("type")
    if kinds is None and not any(each in schema for each in _COMBINING):
        kinds = [implied for keyword, implied in _IMPLYING.items() if keyword in schema]
        values = schema.get("enum", [schema.get("const")])
        if not kinds and all(isinstance(each, str) for each in values):
            kinds = "string"
    if isinstance(kinds, list):
        kinds = [each for each in kinds if each != "null"]
        kinds = kinds[0] if len(kinds) == 1 else None
    return kinds if isinstance(kinds, str) else ""


class JsonColumns:
    """Makes Arrow columns of datums of one schema."""

    def __init__(self, decoder: JsonDecoder) -> None:
        """Raises SchemaError if the schema has too many columns."""
        self._decoder = decoder
        self._root = _Shapes(decoder).column(decoder.uri, decoder.document)

    @property
    def type(self) -> pa.DataType:
        return self._root.type

    def build(self, data: memoryview, spans: Int64s) -> Built:
        """Returns the values of the datums whose start and end in `data` are in each row of `spans`
        (int64, shape (n, 2)), and a string column with why a datum does not fit, null if it does.
        The value of one that does not fit is null."""
        return built_in_chunks(spans, partial(self._built, data))

    def _built(self, data: memoryview, spans: Int64s) -> Built:
        values: list[Any] = []
        failed = FailedDatums(spans)
        for row, (start, end) in enumerate(spans.tolist()):
            try:
                values.append(self._decoder.to_json(data[start:end]))
            except DatumError as error:
                failed[row] = error.why
                values.append(None)
        made = self._root.build(values, np.arange(len(values)), failed)
        return with_reasons(made, np.ones(len(values), dtype=np.bool_), failed)
