"""Avro datums as JSON text: both forms of the kernel write what Python's encoder makes of the
values that the decoder returns."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import BytesLeft, DatumError
from kafkafs.storage.format.records.buffer_pool import BUFFERS
from kafkafs.storage.schemas.avro import texts
from kafkafs.storage.schemas.avro.decoder import MAX_EMPTY_ITEMS, AvroDecoder, compile_avro, reason
from kafkafs.storage.schemas.avro.texts import LEFT
from kafkafs.storage.schemas.conventions import json_text
from kafkafs.storage.schemas.schema import Schema
from tests.avro_schemas import LONG, datums, doubling, encode, typed
from tests.kernel_forms import in_use, uncompiled

Json = Any
#: The text of a datum, None if it does not fit, and what is wrong.
Text = tuple[bytes | None, str | None]
FORMS: Final = ("compiled", "uncompiled")


def decoder(schema: Json) -> AvroDecoder:
    return compile_avro(Schema("AVRO", json.dumps(schema)), {})


def kernel(form: str) -> ModuleType:
    return in_use("avro_text") if form == "compiled" else uncompiled("avro_text")


@contextmanager
def running(form: str) -> Iterator[None]:
    with mock.patch.object(texts, "kernel", kernel(form)):
        yield


def expected(of: AvroDecoder, payload: bytes) -> Text:
    try:
        return json_text(of.to_json(payload)), None
    except BytesLeft as error:
        return json_text(error.value), error.why
    except DatumError as error:
        return None, error.why


def written(of: AvroDecoder, payloads: list[bytes]) -> list[Text | None]:
    """Returns what the kernel writes, None for a datum that it leaves to its caller."""
    ends = np.cumsum([0, *map(len, payloads)])
    assert of.texts is not None
    found = of.texts.write(b"".join(payloads), np.stack([ends[:-1], ends[1:]], axis=1))
    return [
        None
        if code == LEFT
        else (
            bytes(found.data[start : start + size]) if size >= 0 else None,
            reason(code) if code else None,
        )
        for (start, size), code in zip(found.places.tolist(), found.status.tolist(), strict=True)
    ]


def check(schema: Json, payloads: list[bytes]) -> int:
    """Compares both forms of the kernel with Python's encoder, and returns how many datums they
    leave to it."""
    of = decoder(schema)
    want = [expected(of, payload) for payload in payloads]
    left = [0, 0]
    for place, form in enumerate(FORMS):
        with running(form):
            found = written(of, payloads)
        left[place] = found.count(None)
        assert [each or want[n] for n, each in enumerate(found)] == want
    assert left[0] == left[1]
    return left[0]


def damaged(payload: bytes) -> st.SearchStrategy[bytes]:
    """Returns a strategy for a datum with a byte changed, cut off, or with more after it."""
    changed = st.builds(
        lambda at, byte: payload[:at] + bytes([byte]) + payload[at + 1 :],
        st.integers(0, max(len(payload) - 1, 0)),
        st.integers(0, 255),
    )
    cut = st.integers(0, len(payload)).map(lambda size: payload[:size])
    return changed | cut | st.binary(max_size=9).map(lambda more: payload + more)


@given(datums(most=5), st.data())
def test_whole_and_damaged_datums(
    case: tuple[Json, list[bytes], list[Any]], data: st.DataObject
) -> None:
    schema, payloads, _ = case
    check(schema, [data.draw(st.just(each) | damaged(each)) for each in payloads])


@given(typed(), st.lists(st.binary(max_size=40), max_size=4))
def test_any_bytes(case: tuple[Json, Any], payloads: list[bytes]) -> None:
    check(case[0], payloads)


def logical(of: str, name: str, **more: int) -> Json:
    return {"type": of, "logicalType": name, **more}


TIMES: Final = [
    logical("int", "date"),
    logical("int", "time-millis"),
    *(
        logical("long", f"{name}-{unit}")
        for name in ("timestamp", "local-timestamp")
        for unit in ("millis", "micros", "nanos")
    ),
    logical("long", "time-micros"),
]
#: Seconds at the ends of days, years, leap days, and of what Python's dates can be.
MOMENTS: Final = [-62135596800, 253402300800, 0, 86400, 951782400, 951868800, 4107542400, -1]


@given(st.sampled_from(TIMES), st.data())
def test_times_in_and_outside_their_range(schema: Json, data: st.DataObject) -> None:
    unit = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}.get(
        schema["logicalType"].rpartition("-")[2], 1
    )
    near = st.builds(
        lambda moment, more: moment * unit // (86400 if unit == 1 else 1) + more,
        st.sampled_from(MOMENTS),
        st.integers(-2 * unit, 2 * unit) | st.integers(-3, 3),
    )
    bound = 31 if schema["type"] == "int" else 63
    values = near.filter(lambda value: -(1 << bound) <= value < 1 << bound)
    any_value = st.integers(-(1 << bound), (1 << bound) - 1) | st.integers(-(10**12), 10**12).map(
        lambda value: value if bound == 63 else value % 10**8
    )
    payloads = [encode("long", data.draw(values | any_value)) for _ in range(4)]
    assert check(schema, payloads) == 0


def decimal_bytes(value: int, pad: int) -> bytes:
    size = value.bit_length() // 8 + 1 + pad
    return value.to_bytes(size, "big", signed=True)


@given(st.integers(1, 40), st.data())
def test_decimals(precision: int, data: st.DataObject) -> None:
    """Those of more than 56 bits are left to Python, however they are padded."""
    scale = data.draw(st.integers(0, precision))
    schema = logical("bytes", "decimal", precision=precision, scale=scale)
    bound = 10**precision
    near = st.sampled_from([bound, bound - 1, -bound, 1 - bound, 0, -1, 1 << 55, -(1 << 56)])
    values = data.draw(st.lists(st.integers(-2 * bound, 2 * bound) | near, max_size=5))
    pads = [data.draw(st.integers(0, 20)) for _ in values]
    payloads = [
        encode("bytes", decimal_bytes(value, pad)) for value, pad in zip(values, pads, strict=True)
    ]
    short = sum(-(1 << 55) <= value < 1 << 55 for value in values)
    left = check(schema, [*payloads, b"\0"])
    assert left <= (len(values) - short if precision <= 38 else len(values) + 1)


def test_uuids_and_decimals_of_fixed_size() -> None:
    rng = random.Random(7)
    size = {"type": "fixed", "name": "F", "size": 16}
    payloads = [bytes(16), b"\xff" * 16, *(rng.randbytes(16) for _ in range(9))]
    assert check({**size, "logicalType": "uuid"}, payloads) == 0
    small = [value.to_bytes(16, "big", signed=True) for value in (0, -1, 12345, -(10**12), 10**16)]
    assert check({**size, **logical("fixed", "decimal", precision=38, scale=9)}, small) == 0


@given(st.lists(st.floats(allow_nan=True) | st.floats(width=32), max_size=20))
def test_floats_are_written_as_repr_writes_them(values: list[float]) -> None:
    assert check("double", [struct.pack("<d", each) for each in values]) == 0
    narrow = [each for each in values if math.isinf(each) or not abs(each) > 3.4e38]
    assert check("float", [struct.pack("<f", each) for each in narrow]) == 0


def test_doubles_that_are_hard_to_write() -> None:
    """Powers of two and of ten and their neighbours, subnormal numbers, few and many digits."""
    rng = random.Random()
    values = [sign * 2.0**power for power in range(-1074, 1024) for sign in (1, -1)]
    values += [float(f"{digits}e{power}") for power in range(-325, 309) for digits in (1, 5, 9.5)]
    values = [value for value in values if math.isfinite(value)]
    values += [math.nextafter(value, toward) for value in values for toward in (0.0, 1.7e308)]
    values += [rng.randrange(10**18) / 10 ** rng.randrange(18) for _ in range(4000)]
    values += struct.unpack("<4000d", np.array(rng.choices(range(1 << 52), k=4000)).tobytes())
    values += filter(math.isfinite, struct.unpack("<9000d", rng.randbytes(72_000)))
    found = written(decoder("double"), [struct.pack("<d", each) for each in values])
    assert found == [(repr(value).encode(), None) for value in values]


MAP: Final = {"type": "map", "values": "int"}


def map_bytes(*keys: str) -> bytes:
    entries = b"".join(encode("string", key) + encode("int", n) for n, key in enumerate(keys))
    return encode("long", len(keys)) + entries + b"\0" if keys else b"\0"


def test_maps_with_the_same_key_twice_are_left_to_python() -> None:
    long_size = b"\x82\x00a\x02"  # a, whose size takes two bytes
    twice = [map_bytes("a", "b", "a"), map_bytes("", ""), b"\x04\x02a\x00" + long_size + b"\0"]
    assert check(MAP, twice) == 3
    assert expected(decoder(MAP), twice[0])[0] == b'{"a":2,"b":1}'
    assert check(MAP, [map_bytes(), map_bytes("a"), map_bytes("a", "b", "ab", '"', "é\n")]) == 0
    in_blocks = [b"\x02\x02a\x00\x02\x02b\x02\x00", b"\x01\x08\x02a\x00\x02\x02a\x02\x00"]
    assert check(MAP, in_blocks) == 1


def test_maps_with_many_entries_are_left_to_python() -> None:
    keys = [f"key-{n}" for n in range(65)]
    assert check(MAP, [map_bytes(*keys[:64]), map_bytes(*keys)]) == 1
    nested: Json = "int"
    payload = b"\x02"
    for _ in range(20):
        nested = {"type": "map", "values": nested}
        entries = b"".join(b"\x06" + f"{n:03}".encode() + payload for n in range(1))
        payload = b"\x02" + entries + b"\0"
    assert check(nested, [payload]) == 0


def test_keys_in_each_other_are_compared_only_with_those_of_the_same_map() -> None:
    schema = {"type": "map", "values": {"type": "map", "values": "int"}}
    inner = map_bytes("a", "b")
    whole = b"\x04\x02a" + inner + b"\x02b" + inner + b"\0"
    assert check(schema, [whole, whole[:-1], b"\x04\x02a" + inner + b"\x02a" + inner + b"\0"]) == 1


NODE: Final = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}


@pytest.mark.parametrize("depth", [1, 127, 128, 129, 10_000])
def test_values_in_each_other(depth: int) -> None:
    assert check(NODE, [b"\x02\x02" * depth + b"\x00\x00"]) == 0


@pytest.mark.parametrize("count", [MAX_EMPTY_ITEMS, MAX_EMPTY_ITEMS + 1, 1 << 60, -(1 << 60)])
def test_items_without_bytes(count: int) -> None:
    payload = encode("long", count) + (b"\x00" if count < 0 else b"") + b"\x00"
    for items in ("null", {"type": "record", "name": "R", "fields": []}):
        assert check({"type": "array", "items": items}, [payload, b"\0"]) == 0


def test_records_of_records_without_bytes() -> None:
    """A schema of some lines has billions of values in no bytes."""
    for levels in (10, 40):
        assert check({"type": "map", "values": doubling(levels)}, [b"\x02\x02k\0", b"\0"]) == 0


@pytest.mark.parametrize("count", [10, 300])
def test_long_names_of_small_values(count: int) -> None:
    """Each name is shown as often as there are values."""
    name = "n" * 16_000
    symbols = {"type": "enum", "name": "E", "symbols": [name]}
    record = {"type": "record", "name": "R", "fields": [{"name": name, "type": "int"}]}
    for items in (symbols, record, ["null", symbols], ["null", record]):
        item = b"\x02\0" if isinstance(items, list) else b"\0"
        payload = encode("long", count) + item * count + b"\0"
        schema = {"type": "array", "items": items}
        assert check(schema, [payload]) == 0
        text, why = expected(decoder(schema), payload)
        assert (text is None) == (why == reason(-11)) == (count == 300)


def test_names_that_need_escapes() -> None:
    fields = [{"name": name, "type": "int"} for name in ('"', "\\\n", "é", "\u2028", "", "\x7f")]
    symbols = ['"', "\\", "\0", "ß"]
    enum = {"name": "e", "type": {"type": "enum", "name": "E", "symbols": symbols}}
    schema = {"type": "record", "name": "R", "fields": [*fields, enum]}
    assert check(schema, [b"\x02" * 6 + bytes([2 * n]) for n in range(5)]) == 0
    lone = {"type": "record", "name": "R", "fields": [{"name": "\ud800", "type": "int"}]}
    assert decoder(lone).texts is None


@pytest.mark.parametrize("form", FORMS)
def test_texts_that_are_much_longer_than_their_datums(form: str) -> None:
    """The room for them is estimated; what it does not suffice for is written again."""
    fields = [{"name": f"field-{n}", "type": "null"} for n in range(20)]
    item = {"type": "record", "name": "R", "fields": [*fields, {"name": "b", "type": "boolean"}]}
    schema = {"type": "array", "items": item}
    of = decoder(schema)
    long = encode("long", 60) + b"\1" * 60 + b"\0"
    payloads = [b"\0", long, b"\0", b"\x02\1", b"\x02\1\0\0", long, *[b"\x02\1\0"] * 200]
    with running(form):
        assert written(of, payloads) == [expected(of, each) for each in payloads]
        of = decoder("string")
        text = encode("string", "\0" * 3000 + "é" * 1000)
        payloads = [text, b"\x02a", text, b"\x02\xff", text[:-1], text + b"x"]
        assert written(of, payloads) == [expected(of, each) for each in payloads]


def test_one_long_text_makes_no_room_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def acquire(size: int) -> memoryview:
        asked.append(size)
        return BUFFERS.acquire(size)

    pool = mock.Mock(acquire=acquire)
    monkeypatch.setattr("kafkafs.storage.schemas.avro.texts.BUFFERS", pool)
    branches = [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "x" * 1000, "type": "null"}]}
        for n in range(100)
    ]
    schema = {"type": "array", "items": [*branches, "boolean"]}
    long = encode("long", 4000) + b"\0" * 4000 + b"\0"
    payloads = [long, *[b"\x02\xc8\1\1\0"] * 3000]
    found = written(decoder(schema), payloads)
    assert [len(text or b"") for text, _ in filter(None, found)] == [4000 * 1010 + 1, *[6] * 3000]
    assert max(asked) <= 16 << 20
    assert len(asked) < 5


NUMBER: Final = st.integers(0, 3) | st.integers(0, 3) | st.integers(-1, 17)
COST: Final = st.integers(-9, 1)
ROW: Final = st.one_of(
    st.tuples(st.integers(0, 7), NUMBER, NUMBER, COST, st.just(0), NUMBER, NUMBER),
    st.tuples(st.integers(9, 14), NUMBER, NUMBER, COST, st.just(0), NUMBER, NUMBER),
    st.tuples(
        st.sampled_from((2, 3, 6, 8)), st.just(16), NUMBER, st.just(0), st.integers(0, 6),
        NUMBER | st.just(1000), NUMBER,
    ),
    st.tuples(*[LONG] * 7),
)  # fmt: skip


def mend(table: Any, links: int) -> None:
    """Makes the rows of types lead to each other."""
    is_list, has_links = np.isin(table[:, 0], (10, 11)), np.isin(table[:, 0], (12, 13))
    table[is_list, 1:3] %= len(table)
    table[has_links, 1] %= links + 1
    table[has_links, 2] = 0
    table[np.isin(table[:, 0], (9, 13)), 5] = 0
    table[table[:, 0] == 8, 1] %= 1 << 40
    table[(table[:, 0] < 0) | (table[:, 0] > 13), 0] = 7


@given(
    st.lists(ROW, min_size=1, max_size=4),
    st.lists(st.integers(0, 1), min_size=3, max_size=4) | st.lists(st.integers(-1, 4)),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=6)
    | st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 9))),
    st.binary(max_size=30) | st.lists(st.integers(0, 6)).map(bytes),
    st.integers(0, 300),
    st.sampled_from((True, True, True, False)),
)
def test_both_forms_bear_any_tables(
    rows: list[tuple[int, ...]],
    links: list[int],
    labels: list[tuple[int, int]],
    data: bytes,
    room: int,
    is_mended: bool,
) -> None:
    table = np.array(rows, dtype=np.int64)
    if is_mended:
        links = [each % len(rows) for each in links]
        mend(table, len(links))
    spans = np.array([[0, len(data)], [1, 9], [-1, 2], [3, 2]], dtype=np.int64)
    found: list[object] = []
    for form in FORMS:
        places = np.zeros((4, 2), dtype=np.int64)
        status = np.zeros(4, dtype=np.int64)
        out = np.zeros(room, dtype=np.uint8)
        try:
            done: object = kernel(form).write_texts(
                data, spans, table[:, :4].copy(), np.array(links, dtype=np.int64), 0,
                np.array([5, 20, 3]), table[:, 4:].copy(),
                np.array(labels, dtype=np.int64).reshape(-1, 2), b"text,text",
                bytes(256), texts._powers(), np.zeros((3, 2), dtype=np.int64), 0, places, status,
                out,
            )  # fmt: skip
            assert isinstance(done, tuple)
            found.append((done, bytes(out[: done[1]]), places.tolist(), status.tolist()))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]
