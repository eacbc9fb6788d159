"""JSON datums: what is valid by the library that Confluent's client uses, as JSON and as
columns."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import DatumError, SchemaError
from kafkafs.storage.schemas.json_schema.columns import JsonColumns
from kafkafs.storage.schemas.json_schema.decoder import (
    MAX_DEPTH,
    MAX_TEXT,
    JsonDecoder,
    compile_json_schema,
)
from kafkafs.storage.schemas.schema import MAX_COLUMNS, Schema, SchemaReference
from tests.proto_schemas import spans_of

Json = Any
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def decoder(schema: Json, **referenced: Json) -> JsonDecoder:
    """`referenced`: schemas by name, without `.json`."""
    others = {f"{name}.json": named(each) for name, each in referenced.items()}
    return compile_json_schema(named(schema), others)


def named(schema: Json, *references: str) -> Schema:
    text = json.dumps(schema)
    return Schema("JSON", text, tuple(SchemaReference(n, n, 1) for n in references), where="it")


def columns(of: JsonDecoder, payloads: list[bytes]) -> tuple[pa.Array, list[str | None]]:
    made = JsonColumns(of)
    values, errors = made.build(*spans_of(payloads))
    values.validate(full=True)
    assert values.type == made.type
    return values, errors.to_pylist()


def reason(of: JsonDecoder, payload: bytes) -> str:
    with pytest.raises(DatumError) as caught:
        of.to_json(payload)
    return caught.value.why


# -- equality with jsonschema ------------------------------------------------------------------

NUMBERS = st.integers(-5, 5) | st.sampled_from((0.5, 1.0, 1e300, 1 << 70))
TEXTS = st.text("abé0", max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def keywords(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    named_parts = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    parts = st.lists(inner, min_size=1, max_size=2)
    count = st.integers(0, 3)
    kinds = st.sampled_from(("null", "boolean", "integer", "number", "string", "array", "object"))
    return st.fixed_dictionaries(
        {},
        optional={
            "type": kinds | st.lists(kinds, min_size=1, max_size=3, unique=True),
            "properties": named_parts,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(("^a", "b$")), inner, max_size=1),
            "propertyNames": st.just({"maxLength": 1}),
            "items": inner,
            "contains": inner,
            "uniqueItems": st.booleans(),
            "minItems": count,
            "maxProperties": count,
            "minLength": count,
            "pattern": st.sampled_from(("^a", "[0-9]", "a(?=b)")),
            "minimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "anyOf": parts,
            "oneOf": parts,
            "allOf": parts,
            "not": inner,
            "if": inner,
            "then": inner,
        },
    )


#: A reference to the whole, which ends because it is for a place inside.
ITSELF: Json = {"properties": {"a": {"$ref": "#"}}}
SCHEMAS = st.recursive(
    st.booleans() | st.sampled_from(({}, {"type": "integer"}, {"type": "string"}, ITSELF)),
    keywords,
    max_leaves=8,
)


@given(SCHEMAS, st.lists(VALUES, min_size=1, max_size=4))
def test_what_fits_is_what_fits_by_jsonschema(schema: Json, values: list[Json]) -> None:
    expected = [jsonschema.Draft7Validator(schema).is_valid(each) for each in values]
    of = decoder(schema)
    payloads = [json.dumps(each).encode() for each in values]
    made, errors = columns(of, payloads)
    for value, payload, fits, error in zip(values, payloads, expected, errors, strict=True):
        if fits:
            assert of.to_json(payload) == value
            # columns also refuse what is outside int64, or has not the only type that is listed
            assert error is None or "a value is no " in error
        else:
            assert reason(of, payload) == error
    assert len(made) == len(values)


# -- the conventions ---------------------------------------------------------------------------

ORDER: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "http://example.com/order",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "n": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "paid": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "who": {"$ref": "#/definitions/person"},
        "either": {"type": ["string", "integer"]},
        "stock": {"type": "object", "additionalProperties": {"type": "integer"}},
        "color": {"enum": ["red", "blue"]},
        "free": {},
    },
    "definitions": {
        "person": {
            "properties": {
                "name": {"type": "string"},
                "boss": {"anyOf": [{"$ref": "#/definitions/person"}, {"type": "null"}]},
            }
        }
    },
}


def test_columns() -> None:
    rows = [
        {
            "id": "a", "n": 1.0, "price": 1, "paid": True, "tags": ["x", "y"], "either": 5,
            "who": {"name": "z", "boss": {"name": "q"}}, "stock": {"k": 1}, "color": "red",
            "free": [1, {"é": None}], "more": 1,
        },
        {"id": "b", "n": None, "price": None},
        {"id": "c"},
        {"id": "d", "n": 1 << 70},
    ]  # fmt: skip
    of = decoder(
        {**ORDER, "properties": {**ORDER["properties"], "n": {"type": ["integer", "null"]}}}
    )
    values, errors = columns(of, [json.dumps(each).encode() for each in rows])
    assert str(values.type) == (
        "struct<id: string, n: int64, price: double, paid: bool, tags: list<item: string>,"
        " who: struct<name: string, boss: string>, either: string, stock: map<string, int64>,"
        " color: string, free: string>"
    )
    empty = dict.fromkeys(ORDER["properties"])
    assert values.to_pylist() == [
        {
            "id": "a", "n": 1, "price": 1.0, "paid": True, "tags": ["x", "y"], "either": "5",
            "who": {"name": "z", "boss": '{"name": "q"}'}, "stock": [("k", 1)], "color": "red",
            "free": '[1, {"é": null}]',
        },
        empty | {"id": "b"},
        empty | {"id": "c"},
        None,
    ]  # fmt: skip
    assert errors == [None, None, None, "a value is no int64"]


def test_properties_that_no_datum_has_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a type of many properties, they are not looked for; the columns are the same."""
    rows = [{"id": "a"}, {"id": "b", "who": {"name": "z"}}, {"id": "c", "n": "no integer"}, {}]
    payloads = [json.dumps(each).encode() for each in rows]
    expected, why = columns(decoder(ORDER), payloads)
    monkeypatch.setattr("kafkafs.storage.schemas.json_schema.columns.FEW_FIELDS", 0)
    found, same = columns(decoder(ORDER), payloads)
    found.validate(full=True)
    assert same == why
    assert serialized(found) == serialized(expected)


def serialized(values: pa.Array) -> bytes:
    """As exported files have them, which do not depend on what was decoded at once."""
    return bytes(pa.RecordBatch.from_arrays([values], ["values"]).serialize())


def test_many_datums_are_built_in_parts() -> None:
    payloads = [json.dumps({"id": str(n), "n": n}).encode() for n in range(3000)]
    payloads[2000] = b"{}"
    values, errors = columns(decoder(ORDER), payloads)
    assert [row["n"] if row else None for row in values.to_pylist()] == [
        *range(2000), None, *range(2001, 3000)
    ]  # fmt: skip
    assert [row for row, why in enumerate(errors) if why] == [2000]


def test_a_schema_without_a_version_is_of_draft_7() -> None:
    of = decoder({"items": [{"type": "integer"}], "prefixItems": [{"type": "string"}]})
    assert of.to_json(b"[1]") == [1]
    newer = decoder({"$schema": DRAFT_2020, "prefixItems": [{"type": "string"}]})
    assert reason(newer, b"[1]") == '$[0]: 1 is not of type "string"'


def test_formats_are_not_checked() -> None:
    of = decoder({"type": "string", "format": "date-time"})
    assert of.to_json(b'"yesterday"') == "yesterday"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not JSON: Expecting value"),
        (b"{", "not JSON: "),
        (b"\xff", "not JSON: not UTF-8 at position 0"),
        (b"1 2", "not JSON: Extra data at character 2"),
        (b'{"a": NaN}', "not JSON: NaN"),
        (b"-Infinity", "not JSON: -Infinity"),
        (b"1e400", "the number 1e400 is outside the range of double"),
        (b"1" * 5000, "a number has too many digits"),
        (b'"\\ud800"', "a string has half of a surrogate pair"),
        (b'{"\\udfff": 1}', "a string has half of a surrogate pair"),
        (b"[" * 100_000, f"values are nested more than {MAX_DEPTH} deep"),
        (b"[" * 257 + b"]" * 257, f"values are nested more than {MAX_DEPTH} deep"),
    ],
)
def test_what_is_not_json(payload: bytes, why: str) -> None:
    of = decoder(True)
    assert reason(of, payload).startswith(why)
    assert columns(of, [payload])[1][0] == reason(of, payload)


def test_what_is_json_all_the_same() -> None:
    of = decoder(True)
    assert of.to_json(b'\xef\xbb\xbf {"a": 1, "a": 2} ') == {"a": 2}
    assert of.to_json(b'"\\ud83d\\ude00"') == "😀"
    assert of.to_json(b"123456789012345678901234567890") == 123456789012345678901234567890
    assert of.to_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None


def test_why_and_where_a_datum_does_not_fit() -> None:
    of = decoder(ORDER)
    assert reason(of, b"{}") == '"id" is a required property'
    assert reason(of, b'{"id": "a", "who": {"boss": {"name": 5}}}').startswith("$.who.boss: ")
    assert reason(of, b'{"id": "a", "tags": ["x", 7]}') == '$.tags[1]: 7 is not of type "string"'
    assert len(reason(of, b'{"id": "a", "n": "%s"}' % (b"x" * 100_000))) < 400


# -- references --------------------------------------------------------------------------------


def test_references_by_name_and_by_uri() -> None:
    order = named(
        {"$id": "http://x/order.json", "properties": {"who": {"$ref": "people/who.json"}}},
        "people/who.json",
    )
    who = named({"properties": {"n": {"$ref": "name.json#/definitions/n"}}}, "name.json")
    name = named({"definitions": {"n": {"type": "string"}}})
    of = compile_json_schema(order, {"name.json": name, "people/who.json": who})
    assert of.to_json(b'{"who": {"n": "a"}}') == {"who": {"n": "a"}}
    assert reason(of, b'{"who": {"n": 5}}') == '$.who.n: 5 is not of type "string"'
    plain = decoder({"properties": {"a": {"$ref": "other.json"}}}, other={"type": "integer"})
    assert reason(plain, b'{"a": "x"}') == '$.a: "x" is not of type "integer"'


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:9/x", "https://example.com/x", "file:///etc/passwd", "/etc/passwd",
            "other.json", "#/nowhere", "urn:x", "http://[", "\ud83d\ude00"],
)  # fmt: skip
def test_nothing_is_fetched(uri: str) -> None:
    begun = time.monotonic()
    with pytest.raises(SchemaError):
        decoder({"$ref": uri})
    assert time.monotonic() - begun < 1


# -- bad input ---------------------------------------------------------------------------------


def doubling(levels: int) -> Json:
    """A schema that is applied 2 ** levels times to each value."""
    parts = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {
        "$defs": {**parts, f"a{levels}": {"type": "integer"}},
        "allOf": [{"$ref": "#/$defs/a0"}],
    }


def unevaluated(levels: int) -> Json:
    found: Json = {"type": "object"}
    for _ in range(levels):
        found = {"allOf": [found], "unevaluatedProperties": {"type": "object"}}
    return {"$schema": DRAFT_2020, **found}


def hidden(levels: int) -> Json:
    """The same as `doubling`, where a harmless object has the same ids."""
    parts = [
        {"$id": f"http://x/{n}", "allOf": [{"$ref": f"http://x/{n + 1}"}] * 2}
        for n in range(levels)
    ]
    decoys = [{"$id": f"http://x/{n}"} for n in range(levels + 1)]
    last = {"$id": f"http://x/{levels}", "type": "integer"}
    return {"enum": decoys, "definitions": dict(enumerate([*parts, last])), "$ref": "http://x/0"}


@pytest.mark.parametrize("schema", [doubling(40), unevaluated(30), hidden(40)])
def test_a_schema_that_takes_for_ever(schema: Json) -> None:
    begun = time.monotonic()
    with pytest.raises(SchemaError, match="may apply more than"):
        decoder(schema)
    assert time.monotonic() - begun < 1


def test_a_datum_that_is_too_large_for_its_schema() -> None:
    of = decoder({"items": doubling(12), **doubling(12)})
    assert "too large to be validated" in reason(of, json.dumps([[1] * 30_000]).encode())


RECURSIVE = {
    "type": "object",
    "properties": {"x": {"allOf": [{"$ref": "#"}, {"$ref": "#", "minProperties": 0}]}},
}


def nested(levels: int, inner: Json) -> bytes:
    return b'{"x":' * levels + json.dumps(inner).encode() + b"}" * levels


def test_recursion_takes_no_longer_the_deeper_it_is() -> None:
    of = decoder({**RECURSIVE, "$schema": DRAFT_2020})
    begun = time.monotonic()
    assert of.to_json(nested(200, {})) is not None
    assert reason(of, nested(200, 5)) == "it does not fit its schema"
    assert reason(of, nested(3, 5)) == '$.x.x.x: 5 is not of type "object"'
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a+)+(?=c)$", "^(?=(a+)+$)b", r"(a*)*\1b"])
def test_patterns_that_go_back(pattern: str) -> None:
    of = decoder({"items": {"pattern": pattern}})
    begun = time.monotonic()
    why = reason(of, json.dumps(["a" * 5000 + "!"] * 20).encode())
    assert why.startswith("$[0]: ")
    assert "does not match" in why or "Max limit for backtracking" in why
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("5", "is not of types"),
        ('{"type": 5}', "$.type"),
        ('{"pattern": "("}', "$.pattern"),
        ('{"pattern": "(\\\\w{1000}){1000}"}', "$.pattern"),
        ('{"$schema": "http://example.com/own"}', "meta-schema"),
        ("[" * 300 + "]" * 300, "nested more than"),
        ('{"title": "\ud800"}', "half of a surrogate pair"),
        ('"' + "a" * MAX_TEXT + '"', "characters"),
        ('{"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "nope"}}}', "nope"),
    ],
)
def test_a_hostile_schema(text: str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(SchemaError) as caught:
        compile_json_schema(Schema("JSON", text, where="it"), {})
    assert caught.value.name == "it"
    assert why in caught.value.why
    assert len(caught.value.why) < 500
    assert time.monotonic() - begun < 2


def test_a_referenced_schema_that_is_not_json() -> None:
    bad = Schema("JSON", "{", where="schema 7")
    with pytest.raises(SchemaError, match="it: schema 7, to which it refers: not JSON"):
        compile_json_schema(named({"$ref": "bad"}), {"bad": bad})


@given(st.data())
def test_damaged_schemas_and_datums(data: st.DataObject) -> None:
    text = list(json.dumps(ORDER))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 5))] = data.draw(st.text('{}[]":,1$#', max_size=3))
    payload = data.draw(st.text('{}[]":,1aidn', max_size=20)).encode()
    try:
        of = compile_json_schema(Schema("JSON", "".join(text), where="it"), {})
    except SchemaError as error:
        assert str(error).startswith("it: ")  # noqa: PT017
        return
    _, [error_text] = columns(of, [payload])
    try:
        of.to_json(payload)
    except DatumError as error:
        assert error_text == error.why  # noqa: PT017
    else:
        assert error_text is None or "a value is no" in error_text


def test_too_many_columns() -> None:
    parts = {
        f"a{n}": {"properties": {key: {"$ref": f"#/definitions/a{n + 1}"} for key in "xyz"}}
        for n in range(30)
    }
    schema = {"definitions": {**parts, "a30": {"type": "string"}}, "$ref": "#/definitions/a0"}
    with pytest.raises(SchemaError, match=f"more than {MAX_COLUMNS:,} columns"):
        JsonColumns(decoder(schema))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.storage.schemas.schema.find_spec", lambda _name: None)
    with pytest.raises(SchemaError, match=r"not installed: pip install 'kafkafs\[schemas\]'"):
        decoder(True)


def test_items_that_cost_nothing_are_bounded_by_the_fields_of_their_type() -> None:
    item = {"type": "object", "properties": {f"f{n}": {"type": "integer"} for n in range(1000)}}
    text = json.dumps({"type": "array", "items": item})
    made = JsonColumns(compile_json_schema(Schema("JSON", text), {}))
    data = [b"[" + b",".join([b"{}"] * 5000) + b"]", b"[{}]"]
    ends = np.cumsum([0, *map(len, data)])
    values, reasons = made.build(
        memoryview(b"".join(data)), np.stack([ends[:-1], ends[1:]], axis=1)
    )
    assert reasons.to_pylist() == [
        "it has more values than a datum of its size may have",
        None,
    ]
    assert values.is_valid().to_pylist() == [False, True]
