"""Avro datums, as JSON and as columns: what fastavro and Confluent's deserializers read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import BytesLeft, DatumError, SchemaError
from kafkafs.storage.schemas.avro.decoder import MAX_EMPTY_ITEMS, AvroDecoder, compile_avro
from kafkafs.storage.schemas.avro.resolution import resolve
from kafkafs.storage.schemas.avro.shapes import branch_names, not_null
from kafkafs.storage.schemas.avro.types import AvroType, Kind
from kafkafs.storage.schemas.conventions import avro_converter
from kafkafs.storage.schemas.schema import Schema
from tests.avro_schemas import datums, doubling, encode, parsed, read, typed, without_logical

Json = Any


def decoder(schema: Json) -> AvroDecoder:
    return compile_avro(Schema("AVRO", json.dumps(schema)), {})


def columns(writer: Json, payloads: list[bytes], reader: Json = None) -> tuple[pa.Array, list[str]]:
    resolved = resolve(parsed(writer), parsed(writer if reader is None else reader))
    ends = np.cumsum([0, *map(len, payloads)])
    spans = np.stack([ends[:-1], ends[1:]], axis=1)
    values, errors = resolved.build(memoryview(b"".join(payloads)), spans)
    values.validate(full=True)
    assert values.type == resolved.type
    return values, errors.to_pylist()


def problem(use: Callable[..., object], *arguments: object) -> str | None:
    """Returns the message of the engine's error, None if there is none."""
    try:
        use(*arguments)
    except (DatumError, SchemaError) as error:
        return str(error)
    return None


# -- equality with fastavro ---------------------------------------------------------------------


def as_json(of: AvroType, value: Any) -> Any:
    """Returns what fastavro read as the conventions show it."""
    if of.kind is Kind.RECORD:
        return {each.name: as_json(each.type, value[each.name]) for each in of.fields}
    if of.kind is Kind.ARRAY:
        return [as_json(of.parts[0], each) for each in value]
    if of.kind is Kind.MAP:
        return {key: as_json(of.parts[0], each) for key, each in value.items()}
    if of.kind is Kind.UNION:
        return as_json(branch_of(of, value), value)
    convert = avro_converter(of.kind.name.lower(), of.logical, of.precision, of.scale)
    return value if convert is None else convert(value)


def fits(of: AvroType, value: Any) -> bool:
    kinds = {
        bool: {Kind.BOOLEAN},
        int: {Kind.INT, Kind.LONG},
        float: {Kind.FLOAT, Kind.DOUBLE},
        bytes: {Kind.BYTES, Kind.FIXED},
        str: {Kind.STRING, Kind.ENUM},
        list: {Kind.ARRAY},
        dict: {Kind.MAP, Kind.RECORD},
        type(None): {Kind.NULL},
    }
    return of.kind in kinds[type(value)]


def branch_of(of: AvroType, value: Any) -> AvroType:
    return next(part for part in of.parts if fits(part, value))


def has_ambiguous_union(of: AvroType) -> bool:
    """Whether the branch cannot be told from the value that fastavro returns."""
    groups = [
        {Kind.INT, Kind.LONG}, {Kind.FLOAT, Kind.DOUBLE}, {Kind.BYTES, Kind.FIXED},
        {Kind.STRING, Kind.ENUM}, {Kind.MAP, Kind.RECORD},
    ]  # fmt: skip
    kinds = [part.kind for part in of.parts] if of.kind is Kind.UNION else []
    mine = any(sum(kind in group for kind in kinds) > 1 for group in groups)
    inner = (*of.parts, *(each.type for each in of.fields))
    return mine or any(has_ambiguous_union(each) for each in inner)


@given(datums())
def test_datums_become_what_fastavro_reads(case: tuple[Json, list[bytes], list[Any]]) -> None:
    schema, payloads, values = case
    decode, of = decoder(schema), parsed(schema)
    for payload, value in zip(payloads, values, strict=True):
        found = decode.to_json(payload)
        json.dumps(found, allow_nan=False)
        if not has_ambiguous_union(of):
            assert found == as_json(of, value)


def from_arrow(of: AvroType, value: Any) -> Any:
    """Returns an element of a column (without logical types) as fastavro reads it."""
    if of.kind is Kind.UNION:
        parts = not_null(of)
        if value is None or not parts:
            return None
        if len(parts) == 1:
            return from_arrow(parts[0], value)
        given = [
            (part, value[name])
            for name, part in zip(branch_names(parts), parts, strict=True)
            if value[name] is not None
        ]
        # A branch of null arrays and the like has no value of its own.
        return from_arrow(*given[0]) if given else None
    if of.kind is Kind.RECORD:
        return {each.name: from_arrow(each.type, value[each.name]) for each in of.fields}
    if of.kind is Kind.ARRAY:
        return [from_arrow(of.parts[0], each) for each in value]
    if of.kind is Kind.MAP:
        return {key: from_arrow(of.parts[0], each) for key, each in value}
    return value


def same(one: Any, other: Any) -> bool:
    """Compares values, NaN with NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


@given(datums(most=8))
def test_columns_are_what_fastavro_reads(case: tuple[Json, list[bytes], list[Any]]) -> None:
    schema, payloads, values = case
    plain = without_logical(schema)
    array, errors = columns(plain, payloads)
    assert errors == [None] * len(payloads)
    found = [from_arrow(parsed(plain), each) for each in array.to_pylist()]
    assert all(map(same, found, values)), (found, values)


@given(datums(most=8))
def test_columns_with_logical_types_are_whole(case: tuple[Json, list[bytes], list[Any]]) -> None:
    schema, payloads, _ = case
    array, errors = columns(schema, payloads)
    assert len(array) == len(payloads)
    assert errors == [None] * len(payloads)


@given(datums(most=5), st.data())
def test_a_damaged_datum_changes_no_other(
    case: tuple[Json, list[bytes], list[Any]], data: st.DataObject
) -> None:
    """The decoder and the columns agree about which datums fit."""
    schema, payloads, _ = case
    for place in range(len(payloads)):
        if data.draw(st.booleans()):
            payloads[place] = data.draw(st.binary(max_size=30))
    array, errors = columns(schema, payloads)
    decode = decoder(schema)
    for place, payload in enumerate(payloads):
        alone, alone_errors = columns(schema, [payload])
        assert alone_errors[0] == errors[place]
        assert same(array[place].as_py(), alone[0].as_py())
        assert problem(decode.to_json, payload) == errors[place]


@given(typed(), st.binary(max_size=60))
def test_any_bytes_are_a_datum_or_an_error(case: tuple[Json, Any], payload: bytes) -> None:
    decode = decoder(case[0])
    why = problem(lambda: json.dumps(decode.to_json(payload), allow_nan=False))
    assert why is None or "\n" not in why


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(
            ["record", "enum", "fixed", "array", "map", "int", "null", "R", "decimal", "ns.R"]
        ),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "fields", "items", "values", "symbols", "size", "logicalType",
                 "precision", "scale", "default", "aliases", "namespace"]
            ),
            inner,
            max_size=5,
        ),
        max_leaves=20,
    )
)  # fmt: skip
def test_any_json_is_a_schema_or_an_error(declaration: Json) -> None:
    def use() -> None:
        made = decoder(declaration)
        resolve(made.type, made.type)

    why = problem(use)
    assert why is None or "\n" not in why


# -- resolution ---------------------------------------------------------------------------------

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "old", "type": "string"},
        {"name": "gone", "type": {"type": "array", "items": "long"}},
        {"name": "status", "type": {"type": "enum", "name": "S", "symbols": ["A", "B", "C"]}},
        {"name": "maybe", "type": ["null", "int"]},
    ],
}
NEWER = {
    "type": "record",
    "name": "trade.Order",
    "aliases": ["shop.Order"],
    "fields": [
        {"name": "status", "type": {
            "type": "enum", "name": "S", "symbols": ["A", "B", "OTHER"], "default": "OTHER"}},
        {"name": "n", "type": "double"},
        {"name": "new", "type": ["string", "null"], "aliases": ["old"]},
        {"name": "added", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "raw", "type": "bytes", "default": "\u00ff\u0000"},
        {"name": "maybe", "type": "long"},
    ],
}  # fmt: skip


def test_fields_are_resolved_by_the_rules_of_avro() -> None:
    wrote = fastavro.parse_schema(ORDER)
    rows = [
        {"n": 1, "old": "x", "gone": [1, 2], "status": "A", "maybe": 7},
        {"n": 2, "old": "y", "gone": [], "status": "C", "maybe": -1},
        {"n": 3, "old": "z", "gone": [5], "status": "B", "maybe": None},
    ]
    payloads = [encode(wrote, row) for row in rows]
    array, errors = columns(ORDER, payloads, NEWER)
    added = {"added": [1, 2], "raw": b"\xff\x00"}
    assert array.to_pylist() == [
        {"status": "A", "n": 1.0, "new": "x", "maybe": 7, **added},
        {"status": "OTHER", "n": 2.0, "new": "y", "maybe": -1, **added},
        None,
    ]
    assert errors == [None, None, "null does not fit long"]
    expected = read(wrote, payloads[0], fastavro.parse_schema(NEWER))
    assert array[0].as_py() == expected | {
        "raw": b"\xff\x00"
    }  # fastavro returns the default's text


def test_another_record_is_never_taken_for_the_readers() -> None:
    """With defaults for all fields it would be a row of defaults."""
    other = {"type": "record", "name": "Refund", "fields": [{"name": "why", "type": "string"}]}
    reader = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "string", "default": "-"}],
    }
    payload = encode(fastavro.parse_schema(other), {"why": "broken"})
    array, errors = columns(other, [payload], reader)
    assert array.to_pylist() == [None]
    assert errors == ["record Refund does not fit record Order"]


def test_times_are_converted_between_units() -> None:
    def of(logical: str) -> Json:
        return {"type": "long", "logicalType": f"timestamp-{logical}"}

    payloads = [encode("long", value) for value in (1_700_000_000_123, -1, (1 << 63) - 1)]
    array, errors = columns(of("millis"), payloads, of("micros"))
    assert array.cast(pa.int64()).to_pylist() == [1_700_000_000_123_000, -1000, None]
    assert errors == [None, None, "a time is outside the range of the reader's unit"]
    array, _ = columns(of("micros"), payloads[:2], of("millis"))
    assert array.cast(pa.int64()).to_pylist() == [1_700_000_000, -1]


@given(datums(most=4))
def test_a_schema_resolves_to_itself_in_a_union(case: tuple[Json, list[bytes], list[Any]]) -> None:
    schema, payloads, _ = case
    if isinstance(schema, list) or schema == "null":
        return
    plain, _ = columns(schema, payloads)
    nullable, errors = columns(schema, payloads, ["null", schema])
    assert same(nullable.to_pylist(), plain.to_pylist())
    assert errors == [None] * len(payloads)


# -- decimals -----------------------------------------------------------------------------------


def decimal_bytes(value: int, pad: int = 0) -> bytes:
    size = value.bit_length() // 8 + 1 + pad
    return value.to_bytes(size, "big", signed=True)


@pytest.mark.parametrize("precision", [1, 2, 18, 19, 37, 38, 39, 76, 77])
@given(data=st.data())
def test_decimals_are_exact_or_errors(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    bound = 10**precision
    near = st.sampled_from(
        [bound, bound - 1, -bound, 1 - bound, 0, -1, (1 << 127) - 1, -(1 << 127)]
    )
    values = data.draw(st.lists(st.integers(-2 * bound, 2 * bound) | near, max_size=5))
    pads = data.draw(st.lists(st.integers(0, 20), min_size=len(values), max_size=len(values)))
    payloads = [
        encode("bytes", decimal_bytes(value, pad)) for value, pad in zip(values, pads, strict=True)
    ]
    array, errors = columns(schema, payloads)
    decode = decoder(schema)
    for value, found, error, payload in zip(
        values, array.to_pylist(), errors, payloads, strict=True
    ):
        if abs(value) >= bound:
            assert (found, error) == (None, "a decimal has more digits than its precision")
            with pytest.raises(DatumError, match="more digits"):
                decode.to_json(payload)
        else:
            assert error is None
            text = decode.to_json(payload)
            assert int(text.replace(".", "")) == value
            assert len(text.partition(".")[2]) == scale
            assert str(found) == text or f"{found:f}" == text


# -- hostile datums and schemas -----------------------------------------------------------------

LIST = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def test_a_datum_nested_a_million_times_is_an_error() -> None:
    payload = b"\x02" * 1_000_000 + b"\x00"
    with pytest.raises(DatumError, match="nested too deeply"):
        decoder(LIST).to_json(payload)
    assert columns(LIST, [payload])[1] == ["values are nested too deeply"]


def test_a_recursive_type_is_json_text_where_it_recurs() -> None:
    array, errors = columns(LIST, [b"\x02\x02\x00", b"\x00"])
    assert array.type == pa.struct([("next", pa.string())])
    assert array.to_pylist() == [{"next": '{"next": {"next": null}}'}, {"next": None}]
    assert errors == [None, None]


@pytest.mark.parametrize("of", ["string", "bytes"])
def test_a_datum_that_claims_two_gibibytes_is_an_error(of: str) -> None:
    payload = encode("long", (1 << 31) - 1) + b"x"
    with pytest.raises(DatumError, match="longer than the datum"):
        decoder(of).to_json(payload)


@pytest.mark.parametrize("count", [1 << 60, -(1 << 60), (1 << 31) - 1, MAX_EMPTY_ITEMS + 1])
def test_items_without_bytes_are_bounded(count: int) -> None:
    for items in ("null", {"type": "fixed", "name": "F", "size": 0}):
        schema = {"type": "array", "items": items}
        payload = encode("long", count) + (b"\x00" if count < 0 else b"") + b"\x00"
        with pytest.raises(DatumError, match=r"without any bytes|too large"):
            decoder(schema).to_json(payload)
        assert columns(schema, [payload])[1] != [None]


def test_as_many_items_without_bytes_as_allowed_are_read() -> None:
    payload = encode("long", MAX_EMPTY_ITEMS) + b"\x00"
    assert decoder({"type": "array", "items": "null"}).to_json(payload) == [None] * MAX_EMPTY_ITEMS


def test_items_that_cost_nothing_are_bounded_by_their_fields_and_defaults() -> None:
    """An item of one byte has all defaults of the fields that its writer did not have."""
    one = {"name": "a", "type": "boolean"}
    small, large = "x" * 100, "x" * 16_000
    for count, default, most in ((1000, 0, 170), (1, large, 130), (20, small, 880)):
        of = "string" if default else "int"
        more = [{"name": f"f{n}", "type": of, "default": default} for n in range(count)]
        writer, reader = (
            {"type": "array", "items": {"type": "record", "name": "R", "fields": [one, *fields]}}
            for fields in ([], more)
        )
        lengths = 1, 10 * most, most
        payloads = [encode("long", items) + b"\x01" * items + b"\x00" for items in lengths]
        array, errors = columns(writer, payloads, reader)
        why = "it has more values than a datum of its size may have"
        assert errors == [None, why, None]
        found = [None if each is None else len(each) for each in array.to_pylist()]
        assert found == [1, None, most]


def test_records_of_records_without_bytes_are_bounded() -> None:
    """Also those that the reader skips. A schema of some lines has billions of values."""
    why = "it has more values than a datum of its size may have"
    with pytest.raises(DatumError, match=why):
        decoder(doubling(40)).to_json(b"")
    assert decoder(doubling(3)).to_json(b"")["a"]["b"] == {"a": None, "b": None}
    last = {"name": "n", "type": "int"}
    writer, reader = (
        {"type": "record", "name": "W", "fields": [*skipped, last]}
        for skipped in ([{"name": "s", "type": doubling(40)}], [])
    )
    array, errors = columns(writer, [b"\x02"], reader)
    assert (array.to_pylist(), errors) == ([None], [why])


def test_blocks_with_sizes_are_read() -> None:
    """Writers that do not know the number of items first write it negative, then the size."""
    payload = encode("long", -2) + encode("long", 2) + b"\x02\x04" + b"\x02\x06" + b"\x00"
    assert decoder({"type": "array", "items": "int"}).to_json(payload) == [1, 2, 3]
    assert columns({"type": "array", "items": "int"}, [payload])[0].to_pylist() == [[1, 2, 3]]


def test_bytes_left_over_are_reported_with_the_value() -> None:
    with pytest.raises(BytesLeft, match="left over") as caught:
        decoder("int").to_json(b"\x02\x00")
    assert caught.value.value == 1
    array, errors = columns("int", [b"\x02\x00", b"\x04"])
    assert array.to_pylist() == [1, 2]
    assert errors == ["bytes are left over", None]


def test_a_type_with_more_columns_than_atoms_is_an_error() -> None:
    of = doubling(40, "int")
    with pytest.raises(SchemaError, match="columns"):
        resolve(parsed(of), parsed(of))
    with pytest.raises(DatumError):
        decoder(of).to_json(b"\x02" * 1000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "S"}]}', "no type"),
        ('{"type": "enum", "name": "E", "symbols": "A"}', "symbols"),
        ('{"type": "fixed", "name": "E", "size": -1}', "size"),
        ('[["int"]]', "union"),
        ("{", "not JSON"),
        ("7", "a type is"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        compile_avro(Schema("AVRO", text), {})
