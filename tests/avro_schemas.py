"""Hypothesis strategies: Avro schemas with datums of them, encoded by fastavro."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from hypothesis import strategies as st

from kafkafs.storage.schemas.avro.types import AvroType, parse_avro
from kafkafs.storage.schemas.schema import Schema

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
#: Names of fields that need quoting somewhere, or look like other things.
FIELDS = ("id", "value", "Größe", "n", "type", "kafka", "x")

Json = Any
Typed = tuple[Json, st.SearchStrategy[Any]]

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": INT,
    "long": LONG,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}
#: Logical types; the values are those that are stored.
LOGICAL: list[Typed] = [
    ({"type": "int", "logicalType": "date"}, st.integers(-719162, 2932896)),
    ({"type": "int", "logicalType": "time-millis"}, st.integers(0, 86_399_999)),
    ({"type": "long", "logicalType": "time-micros"}, st.integers(0, 86_399_999_999)),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(0, 1 << 41)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.integers(0, 1 << 51)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, st.integers(0, 1 << 41)),
    ({"type": "string", "logicalType": "uuid"}, st.uuids().map(str)),
]


def doubling(levels: int, innermost: Json = "null") -> Json:
    """Returns a record with two fields of the same record, and so on: 2**levels values."""
    of = innermost
    for level in range(levels):
        inner = f"D{level - 1}" if level else innermost
        fields = [{"name": "a", "type": of}, {"name": "b", "type": inner}]
        of = {"type": "record", "name": f"D{level}", "fields": fields}
    return of


@st.composite
def typed(draw: st.DrawFn, depth: int = 3, names: Iterator[int] | None = None) -> Typed:
    """Returns a schema and a strategy for its values, in which a branch of a union is (name,
    value)."""
    names = names or itertools.count()
    kinds = ["primitive", "primitive", "enum", "fixed", "logical"]
    kinds += ["record", "array", "map", "union"] if depth else []
    kind = draw(st.sampled_from(kinds))
    schema: Json
    if kind == "primitive":
        name = draw(st.sampled_from(sorted(PRIMITIVES)))
        return name, PRIMITIVES[name]
    if kind == "logical":
        return draw(st.sampled_from(LOGICAL))
    if kind == "enum":
        symbols = [f"S{i}" for i in range(draw(st.integers(1, 4)))]
        schema = {"type": "enum", "name": f"ns.E{next(names)}", "symbols": symbols}
        return schema, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 17))
        schema = {"type": "fixed", "name": f"ns.F{next(names)}", "size": size}
        return schema, st.binary(min_size=size, max_size=size)
    if kind == "array":
        of, values = draw(typed(depth - 1, names))
        return {"type": "array", "items": of}, st.lists(values, max_size=3)
    if kind == "map":
        of, values = draw(typed(depth - 1, names))
        return {"type": "map", "values": of}, st.dictionaries(
            st.text(max_size=4), values, max_size=3
        )
    if kind == "record":
        return _record(draw, depth, names)
    return _union(draw, depth, names)


def _record(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Typed:
    name = f"ns{next(names) % 2}.R{next(names)}"
    fields = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=4))
    parts = [draw(typed(depth - 1, names)) for _ in fields]
    schema = {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": of} for each, (of, _) in zip(fields, parts, strict=True)],
    }
    values = {each: values for each, (_, values) in zip(fields, parts, strict=True)}
    return schema, st.fixed_dictionaries(values)


def _union(draw: st.DrawFn, depth: int, names: Iterator[int]) -> Typed:
    count = draw(st.integers(1, 4))
    parts: dict[str, Typed] = {}
    for _ in range(count):
        of, values = draw(typed(depth - 1, names))
        label = branch_label(of)
        if label != "union":
            parts.setdefault(label, (of, values))
    if not parts:
        parts["null"] = ("null", st.none())
    tagged = [st.tuples(st.just(label), values) for label, (_, values) in parts.items()]
    return [of for of, _ in parts.values()], st.one_of(tagged)


def branch_label(of: Json) -> str:
    """Returns the name by which fastavro selects a branch."""
    if isinstance(of, list):
        return "union"
    if isinstance(of, str):
        return of
    return str(of.get("name") or of["type"])


@st.composite
def datums(draw: st.DrawFn, most: int = 4) -> tuple[Json, list[bytes], list[Any]]:
    """Returns a schema, datums of it, and their values as fastavro reads them without logical
    types."""
    schema, values = draw(typed())
    drawn = draw(st.lists(values, max_size=most))
    plain = fastavro.parse_schema(without_logical(schema))
    encoded = [encode(plain, each) for each in drawn]
    return schema, encoded, [read(plain, each) for each in encoded]


def without_logical(schema: Json) -> Json:
    """Returns the schema without logical types, by which fastavro would convert values."""
    if isinstance(schema, list):
        return [without_logical(each) for each in schema]
    if isinstance(schema, dict):
        kept = {key: each for key, each in schema.items() if key != "logicalType"}
        return {
            key: without_logical(each) if key in ("type", "items", "values", "fields") else each
            for key, each in kept.items()
        }
    return schema


def encode(schema: Json, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def read(schema: Json, data: bytes, reader: Json = None) -> Any:
    return fastavro.schemaless_reader(io.BytesIO(data), schema, reader)


def parsed(schema: Json) -> AvroType:
    return parse_avro(Schema("AVRO", json.dumps(schema)), {})
