"""Protobuf datums, as JSON and as columns: what google.protobuf itself reads."""

from __future__ import annotations

import importlib.util
import json
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkafs.storage.errors import DatumError, MissingReference, SchemaError
from kafkafs.storage.schemas.framing import MessageRef
from kafkafs.storage.schemas.protobuf import ProtobufColumns, ProtobufDecoder, compile_protobuf
from kafkafs.storage.schemas.protobuf.compiler import MAX_TEXT_BYTES
from kafkafs.storage.schemas.schema import Schema, SchemaReference
from tests.profiles import percent
from tests.proto_schemas import (
    HEAD,
    Reference,
    as_base64,
    decoder,
    filled,
    reference,
    spans_of,
    texts,
)

#: Random files are made slowly, as are decoders of texts.
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
TOP = "test.of_protobuf.Top"


def columns(
    of: ProtobufDecoder, payloads: list[bytes], message: MessageRef = None
) -> tuple[pa.Array, list[str | None]]:
    made = ProtobufColumns(of, message)
    values, errors = made.build(*spans_of(payloads))
    values.validate(full=True)
    assert values.type == made.type
    return values, errors.to_pylist()


# -- equality with google.protobuf -------------------------------------------------------------


@settings(max_examples=percent(12), suppress_health_check=SLOW)
@given(texts(), st.data())
def test_texts_become_what_protoc_makes_of_them(text: str, data: st.DataObject) -> None:
    known = reference(text)
    check(known, decoder(text, message="Top"), data)


@settings(max_examples=percent(60), suppress_health_check=SLOW)
@given(texts(), st.data())
def test_files_that_clients_for_python_register(text: str, data: st.DataObject) -> None:
    known = reference(text)
    check(known, compile_protobuf(as_base64(known.files.file[-1]), {}), data)


def check(known: Reference, ours: ProtobufDecoder, data: st.DataObject) -> None:
    messages = [data.draw(filled(known.message(TOP))) for _ in range(3)]
    payloads = [each.SerializeToString() for each in messages]
    for each, payload in zip(messages, payloads, strict=True):
        assert json.dumps(ours.to_json(payload, TOP), sort_keys=True) == json.dumps(
            known.shown(each), sort_keys=True
        )
    values, errors = columns(ours, payloads, TOP)
    assert errors == [None] * 3
    for each, found in zip(
        messages, values.cast(without_times(values.type)).to_pylist(), strict=True
    ):
        assert same(found, as_columns(each, known, ()))


def without_times(of: pa.DataType) -> pa.DataType:
    """Replaces times by their nanoseconds, as Python has none."""
    if pa.types.is_struct(of):
        parts = [of.field(place) for place in range(of.num_fields)]
        return pa.struct([pa.field(each.name, without_times(each.type)) for each in parts])
    if pa.types.is_list(of):
        return pa.list_(without_times(of.value_type))
    if pa.types.is_map(of):
        return pa.map_(of.key_type, without_times(of.item_type))
    return pa.int64() if pa.types.is_timestamp(of) or pa.types.is_duration(of) else of


def as_columns(message: Message, known: Reference, outer: tuple[str, ...]) -> Any:
    """Returns a message as columns show it."""
    whole: Any = message
    name = message.DESCRIPTOR.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return whole.seconds * 10**9 + whole.nanos
    if name.startswith("google.protobuf.") and name.endswith(("StringValue", "64Value", "sValue")):
        return whole.value
    if name.startswith("google.protobuf.") or name in outer or not message.DESCRIPTOR.fields:
        return ("json", known.shown(message))
    made: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(whole, field.name)

        def one(value: Any, of: Any) -> Any:
            if of.message_type is not None:
                return as_columns(value, known, (*outer, name))
            if of.enum_type is not None:
                names = {each.number: each.name for each in of.enum_type.values}
                return names.get(value, str(value))
            return value

        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            made[field.name] = [(key, one(value[key], inner)) for key in sorted(value)]
        elif field.is_repeated:
            made[field.name] = [one(each, field) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            made[field.name] = None
        else:
            made[field.name] = one(value, field)
    return made


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple) and expected and expected[0] == "json":
        return bool(json.loads(found) == expected[1])
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same(found[name], each) for name, each in expected.items()
        )
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    is_nan = isinstance(expected, float) and math.isnan(expected)
    return math.isnan(found) if is_nan else bool(found == expected)


# -- the conventions ---------------------------------------------------------------------------

ANY = HEAD + (
    'import "google/protobuf/any.proto";'
    "message A { google.protobuf.Any any = 1; repeated google.protobuf.Timestamp at = 2;"
    " map<string, google.protobuf.Value> values = 3; google.protobuf.Struct free = 4; A a = 5; }"
)


def test_what_json_format_refuses_is_shown_as_fields() -> None:
    of, known = decoder(ANY), reference(ANY)
    message: Any = known.message("test.of_protobuf.A")
    message.any.type_url, message.any.value = "type.googleapis.com/x.Y", b"abc"
    message.at.add(seconds=5)
    message.at.add(seconds=10**13, nanos=7)
    message.values["b"].string_value = "fine"
    message.values["a"].number_value = math.nan
    message.free["x"] = math.inf
    message.a.any.type_url = "type.googleapis.com/test.of_protobuf.A"
    message.a.any.value = known.message("test.of_protobuf.A").SerializeToString()
    shown = of.to_json(message.SerializeToString())
    assert shown == {
        "any": {"@type": "type.googleapis.com/x.Y", "value": "YWJj"},
        "at": ["1970-01-01T00:00:05Z", {"seconds": "10000000000000", "nanos": 7}],
        "values": {"a": {"number_value": "NaN"}, "b": "fine"},
        "free": {"fields": {"x": {"number_value": "Infinity"}}},
        "a": {"any": {"@type": "type.googleapis.com/test.of_protobuf.A"}},
    }
    assert list(shown["values"]) == ["a", "b"]


def test_an_any_in_an_any_without_end() -> None:
    of, known = decoder(ANY), reference(ANY)
    payload = b""
    for _ in range(2000):
        message: Any = known.message("test.of_protobuf.A")
        message.any.type_url, message.any.value = "x/test.of_protobuf.A", payload
        payload = message.SerializeToString()
    with pytest.raises(DatumError, match="nested too deeply"):
        of.to_json(payload)
    values, [error] = columns(of, [payload])
    assert values.to_pylist() == [None]
    assert error == "values are nested too deeply"


PROTO2 = """syntax = "proto2"; package two;
message T {
  required int32 id = 1; optional string text = 2 [default = "x"]; repeated string texts = 3;
  optional group Inner = 4 { optional int64 n = 1; }
  extensions 100 to 200;
}
extend T { optional string more = 100; }
"""


def test_groups_extensions_and_defaults_of_proto2() -> None:
    of = decoder(PROTO2)
    payload = b"\x08\x05\x23\x08\x07\x24" + b"\xa2\x06\x01m"
    assert of.to_json(payload) == {"id": 5, "inner": {"n": "7"}, "[two.more]": "m"}
    values, _ = columns(of, [payload])
    assert values.to_pylist() == [{"id": 5, "text": None, "texts": [], "inner": {"n": 7}}]


def test_strings_of_proto2_that_are_not_utf8() -> None:
    payloads = [b"\x08\x01\x12\x01\xff", b"\x08\x01\x1a\x01\xff\x1a\x01a", b"\x08\x01"]
    of = decoder(PROTO2)
    for payload in payloads[:2]:
        with pytest.raises(DatumError, match="not UTF-8"):
            of.to_json(payload)
    values, errors = columns(of, payloads)
    assert [each is None for each in values.to_pylist()] == [True, True, False]
    assert [each is None for each in errors] == [False, False, True]


def test_presence_in_columns() -> None:
    of = decoder(
        HEAD + "message P { int32 a = 1; optional int32 b = 2; oneof o { string c = 3; P p = 4; }"
        " google.protobuf.Int64Value w = 5; Color e = 6; google.protobuf.Timestamp at = 7; }"
    )
    payload = b"\x10\x00\x2a\x00\x30\x02\x3a\x02\x08\x05"
    values, errors = columns(of, [b"", payload])
    assert errors == [None, None]
    empty = {"a": 0, "b": None, "c": None, "p": None, "w": None, "e": "NONE", "at": None}
    at = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert values.to_pylist() == [empty, empty | {"b": 0, "w": 0, "e": "2", "at": at}]
    assert values.type.field("p").type == pa.string()


def test_fields_that_no_message_has_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a message of many fields, they are not looked for; the columns are the same."""
    of = decoder(
        HEAD + "message P { int32 a = 1; optional int32 b = 2; oneof o { string c = 3; P p = 4; }"
        " google.protobuf.Int64Value w = 5; Color e = 6; google.protobuf.Timestamp at = 7;"
        " repeated int32 list = 8; map<string, P> map = 9; Inner in = 10;"
        " message Inner { optional bool x = 1; optional string y = 2; } }"
    )
    payloads = [b"", b"\x10\x00", b"\x08\x01\x52\x02\x08\x01", b"\xff"]
    expected, why = columns(of, payloads)
    monkeypatch.setattr("kafkafs.storage.schemas.protobuf.columns.FEW_FIELDS", 0)
    found, same = columns(of, payloads)
    found.validate(full=True)
    assert same == why
    made = (pa.RecordBatch.from_arrays([each], ["values"]) for each in (expected, found))
    assert len({bytes(each.serialize()) for each in made}) == 1


def test_times_that_columns_cannot_have() -> None:
    of = decoder(HEAD + "message T { google.protobuf.Timestamp at = 1; }")
    late = b"\x0a\x06\x08\xff\xd1\xd9\xc2\xdc\x02"
    odd = b"\x0a\x06\x10\x80\x94\xeb\xdc\x03"
    values, errors = columns(of, [late[:1] + bytes([len(late) - 2]) + late[2:], odd])
    assert values.to_pylist() == [None, None]
    assert errors == [
        "a time is outside the range of 64-bit nanoseconds",
        "the nanoseconds of a time are impossible",
    ]


def test_files_that_confluents_registry_knows() -> None:
    of = decoder(
        'syntax = "proto3"; import "confluent/meta.proto"; import "google/type/date.proto";'
        'import "confluent/type/decimal.proto"; message D { google.type.Date day = 1;'
        '  confluent.type.Decimal price = 2 [(confluent.field_meta).doc = "x"]; }'
    )
    assert of.to_json(b"\x0a\x03\x08\xea\x0f\x12\x03\x0a\x01\x05") == {
        "day": {"year": 2026},
        "price": {"value": "BQ=="},
    }


# -- which message -----------------------------------------------------------------------------

NESTED = (
    'syntax = "proto3"; package a.b; message Outer { map<string, int32> stock = 1;'
    " message Line { string sku = 2; } message Note { bytes text = 3; } int32 n = 5; }"
    "message Other { string why = 1; message Line { int32 q = 9; } }"
)


@pytest.mark.parametrize(
    ("message", "payload", "expected"),
    [
        (None, b"\x28\x05", {"n": 5}),
        ((0,), b"\x28\x05", {"n": 5}),
        ((1,), b"\x0a\x01w", {"why": "w"}),
        ((0, 1), b"\x12\x01s", {"sku": "s"}),  # with the entry of the map, as most count
        ((0, 0), b"\x12\x01s", {"sku": "s"}),  # without it, as Java counts
        ((0, 2), b"\x1a\x01t", {"text": "dA=="}),
        ((0, 1), b"\x1a\x01t", {"text": "dA=="}),  # only as Java counts it has known fields
        ("a.b.Other", b"\x0a\x01w", {"why": "w"}),
        (".a.b.Other", b"\x0a\x01w", {"why": "w"}),
        ("Other", b"\x0a\x01w", {"why": "w"}),
        ("Note", b"\x1a\x01t", {"text": "dA=="}),
        (0, b"\x0a\x01w", {"why": "w"}),  # Other, Other.Line, Outer, Outer.Line …
        (3, b"\x12\x01s", {"sku": "s"}),
    ],
)
def test_the_message_is_named(message: MessageRef, payload: bytes, expected: object) -> None:
    assert decoder(NESTED).to_json(payload, message) == expected


@pytest.mark.parametrize("message", [(2,), (0, 3), (0, 1, 0), (), 6, "Line", "", "nope", "a.b"])
def test_a_message_that_is_not_there(message: MessageRef) -> None:
    with pytest.raises(DatumError, match="the schema has"):
        decoder(NESTED).to_json(b"", message)


def test_the_message_of_a_supplied_schema() -> None:
    assert decoder(NESTED, message="Other").to_json(b"\x0a\x01w") == {"why": "w"}
    with pytest.raises(SchemaError, match=r"it: .* no message Nope, but a\.b\.Outer"):
        decoder(NESTED, message="Nope")
    with pytest.raises(SchemaError, match="it has no message"):
        decoder('syntax = "proto3"; enum E { A = 0; }')


def test_datums_of_another_message_have_no_columns() -> None:
    values, errors = columns(decoder(NESTED), [b"\x12\x01s", b"\x1a\x01t"], (0, 1))
    assert values.to_pylist() == [{"sku": "s"}, None]
    assert errors == [None, "it is a a.b.Outer.Note, not a a.b.Outer.Line"]


# -- references and descriptor sets ------------------------------------------------------------


def test_references_of_both_forms() -> None:
    plain = 'syntax = "proto3"; package r; message Money { int64 units = 1; }'
    binary = FileDescriptorProto(name="x", package="r", syntax="proto3")
    binary.message_type.add(name="Part").field.add(name="n", number=1, type=5, label=1)
    user = (
        'syntax = "proto3"; import "money.proto"; import "deep/part.proto";'
        "message U { r.Money m = 1; r.Part p = 2; }"
    )
    referenced = {"money.proto": Schema("PROTOBUF", plain), "deep/part.proto": as_base64(binary)}
    payload = b"\x0a\x02\x08\x05\x12\x02\x08\x06"
    expected = {"m": {"units": "5"}, "p": {"n": 6}}
    assert compile_protobuf(Schema("PROTOBUF", user), referenced).to_json(payload) == expected
    whole = FileDescriptorProto(name="u", syntax="proto3")
    whole.dependency.extend(["money.proto", "deep/part.proto"])
    fields = whole.message_type.add(name="U").field
    fields.add(name="m", number=1, type=11, label=1, type_name=".r.Money")
    fields.add(name="p", number=2, type=11, label=1, type_name=".r.Part")
    assert compile_protobuf(as_base64(whole), referenced).to_json(payload) == expected


def test_a_reference_that_protoc_has_itself_changes_nothing() -> None:
    hostile = Schema("PROTOBUF", "message Timestamp { string seconds = 1; }")
    text = HEAD + "message T { google.protobuf.Timestamp at = 1; }"
    of = compile_protobuf(Schema("PROTOBUF", text), {"google/protobuf/timestamp.proto": hostile})
    assert of.to_json(b"\x0a\x02\x08\x05") == {"at": "1970-01-01T00:00:05Z"}


def test_descriptor_sets() -> None:
    files = reference(HEAD + "message T { google.protobuf.Timestamp at = 1; }").files
    payload = b"\x0a\x02\x08\x05"
    for given_files in (files, FileDescriptorSet(file=files.file[-1:])):
        data = given_files.SerializeToString()
        of = compile_protobuf(Schema("PROTOBUF", "", descriptor_set=data), {})
        assert of.to_json(payload) == {"at": "1970-01-01T00:00:05Z"}
    files.file[-1].dependency.append("other.proto")
    for data, why in (
        (files.SerializeToString(), "other.proto, which it imports, is missing"),
        (b"", "the descriptor set is empty"),
        (b"\xff", "not a descriptor set"),
    ):
        with pytest.raises(SchemaError, match=why):
            compile_protobuf(Schema("PROTOBUF", "", descriptor_set=data), {})


# -- bad input ---------------------------------------------------------------------------------

PROTO3 = 'syntax = "proto3"; '


def deep(levels: int) -> str:
    return PROTO3 + "message M { " * levels + "}" * levels


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no message"),
        ("nonsense", "Expected top-level statement"),
        ("\ud800", "half of a surrogate pair"),
        (PROTO3 + "message M { Nope n = 1; }", '"Nope" is not defined'),
        (PROTO3 + 'import "nope.proto"; message M {}', "nope.proto, which it imports, is missing"),
        (PROTO3 + 'import "/etc/passwd"; message M {}', "passwd"),
        (PROTO3 + 'import "../../../../etc/passwd"; message M {}', "passwd"),
        (PROTO3 + 'import "google/../../protoc.py"; message M {}', "protoc.py"),
        (PROTO3 + 'import "schema.proto"; message M {}', "recursively imports itself"),
        (deep(1000), "Reached maximum recursion limit"),
        (PROTO3 + "message M {} " + "/" * (10 << 20), f"more than {MAX_TEXT_BYTES:,}"),
        (PROTO3 + "message M { int32 a = 1;" + "int32 b = 2;" * 2000 + "}", "already"),
        (PROTO3 + "package google.protobuf; message Timestamp { string s = 1; }", ""),
    ],
)
def test_a_hostile_text(text: str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(SchemaError) as caught:
        decoder(text)
    assert why in caught.value.why
    assert "root:" not in caught.value.why
    assert caught.value.name == "it"
    assert len(caught.value.why) < 500
    assert time.monotonic() - begun < 10


def test_a_text_that_takes_protoc_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.storage.schemas.protobuf.compiler._SECONDS", 1)
    with pytest.raises(SchemaError, match="protoc needs more than 1 s"):
        decoder(PROTO3 + "message M { int32 a = 1;" + "int32 b = 2;" * 100_000 + "}")


def test_a_missing_import_is_a_missing_reference() -> None:
    with pytest.raises(MissingReference):
        decoder(PROTO3 + 'import "nope.proto"; message M {}')


def test_imports_in_a_circle() -> None:
    one = PROTO3 + 'import "two.proto"; message One {}'
    two = PROTO3 + 'import "one.proto"; message Two {}'
    user = PROTO3 + 'import "one.proto"; message M {}'
    with pytest.raises(SchemaError, match="recursively imports itself"):
        decoder(user, one=one, two=two)
    files = [
        FileDescriptorProto(name=name, syntax="proto3", dependency=[other])
        for name, other in (("a", "b"), ("b", "a"))
    ]
    data = FileDescriptorSet(file=files).SerializeToString()
    with pytest.raises(SchemaError, match="imports itself"):
        compile_protobuf(Schema("PROTOBUF", "", descriptor_set=data), {})


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/x", "../x", "a/../x", "a//b", "", ".", "a\0b", "a\nb", "a\\b"),
        *("n" * 5000, "\ud800", "é" * 150),
    ],
)
def test_a_hostile_name_of_a_reference(name: str) -> None:
    text = PROTO3 + "message M {}"
    schema = Schema("PROTOBUF", text, (SchemaReference(name, "s", 1),), where="it")
    with pytest.raises(SchemaError, match="protoc cannot import a file with the name"):
        compile_protobuf(schema, {name: Schema("PROTOBUF", text)})


def test_names_of_references_that_exclude_one_another() -> None:
    text = Schema("PROTOBUF", PROTO3 + "message M {}", where="it")
    with pytest.raises(SchemaError, match="also the directory of another file"):
        compile_protobuf(text, {"a": text, "a/b": text})


def outcome(make: Callable[[], object]) -> object:
    """Returns what is made, or why it cannot be."""
    try:
        return make()
    except (SchemaError, DatumError) as error:
        return error.why


@settings(max_examples=percent(12), suppress_health_check=SLOW)
@given(st.data())
def test_damaged_texts(data: st.DataObject) -> None:
    text = list(HEAD + NESTED.partition("package a.b;")[2])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.text(max_size=4))
    assert outcome(lambda: decoder("".join(text)))


@settings(suppress_health_check=SLOW)
@given(st.data())
def test_damaged_descriptors(data: st.DataObject) -> None:
    file = bytearray(reference(NESTED).files.file[-1].SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    whole = b"\x0a" + bytes([len(file) & 127 | 128, len(file) >> 7]) + file
    schema = Schema("PROTOBUF", "", descriptor_set=whole)
    assert outcome(lambda: ProtobufColumns(compile_protobuf(schema, {})).type)


FUZZED = decoder(ANY)


@given(st.one_of(st.binary(max_size=60), st.lists(st.sampled_from(
    [b"\x0a\x02\x0a\x00", b"\x12\x02\x08\x05", b"\x12\x01", b"\x1a\x05\x0a\x01k\x12", b"\x00",
     b"\x22\x07\x0a\x05\x0a\x01k\x12\x00", b"\x2a\x02", b"\xff\xff\xff\xff\x07", b"\x11"]
)).map(b"".join)))  # fmt: skip
def test_random_datums(payload: bytes) -> None:
    values, [error] = columns(FUZZED, [payload])
    shown = outcome(lambda: FUZZED.to_json(payload))
    if isinstance(shown, dict):  # columns also refuse times that do not fit
        assert error is None or "time" in error
    else:
        assert values.to_pylist() == [None]
        assert error == shown


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"\x0a\xff\xff\xff\xff\x07", "a length in it is impossible"),
        (b"\x12", "it is truncated"),
        (b"\x2a\x00" * 3 + b"\x08", "it is truncated"),
        (b"plain text", "not a message"),
        (b"\x38\x01", "it has none of its fields"),
        (b"\xd8\x3e\x01", "it has none of its fields"),
    ],
)
def test_a_datum_that_does_not_fit(payload: bytes, why: str) -> None:
    with pytest.raises(DatumError, match=why):
        FUZZED.to_json(payload)
    assert why in str(columns(FUZZED, [payload])[1][0])


def test_a_datum_nested_too_deeply() -> None:
    payload = b""
    for _ in range(300):
        size = len(payload)
        prefix = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
        payload = b"\x2a" + prefix + payload
    with pytest.raises(DatumError, match="too deep"):
        FUZZED.to_json(payload)


def test_too_many_columns() -> None:
    lines = [
        f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; M{n + 1} c = 3; }}" for n in range(40)
    ]
    of = decoder(PROTO3 + "\n".join([*lines, "message M40 { int32 n = 1; }"]))
    with pytest.raises(SchemaError, match="more than 10,000 columns"):
        ProtobufColumns(of)


@pytest.mark.parametrize(
    "text",
    [
        "message M { int32 % = 1; }",
        "message M { message In { repeated int32 % = 1; } }",
        "message M { enum E { % = 0; } }",
        "message M {} enum E { % = 0; }",
        "message M { oneof o { int32 % = 1; } }",
    ],
)
def test_long_names(text: str) -> None:
    """JSON repeats them with every value."""
    decoder(PROTO3 + text.replace("%", "n" * 1024))
    with pytest.raises(SchemaError, match=r"the name n{20}… has 1,025 characters, more than"):
        decoder(PROTO3 + text.replace("%", "n" * 1025))


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkafs.storage.schemas.schema.find_spec", lambda _name: None)
    with pytest.raises(SchemaError, match=r"not installed: pip install 'kafkafs\[schemas\]'"):
        decoder(NESTED)
    assert importlib.util.find_spec("grpc_tools") is not None


def test_items_that_cost_nothing_are_bounded_by_the_fields_of_their_type() -> None:
    fields = "".join(f"int64 f{number} = {number + 1};" for number in range(1000))
    made = ProtobufColumns(
        decoder(f'syntax = "proto3"; message T {{ repeated W w = 1; }} message W {{ {fields} }}')
    )
    values, reasons = made.build(*spans_of([b"\x0a\x00" * 20_000, b"\x0a\x00" * 2]))
    assert reasons.to_pylist() == [
        "it has more values than a datum of its size may have",
        None,
    ]
    assert values.is_valid().to_pylist() == [False, True]
