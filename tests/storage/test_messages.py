"""Tests messages by their schemas; tests/broker/test_messages.py verifies the schemas."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import CorruptError
from kafkafs.storage.format.layout import ControlType
from kafkafs.storage.format.messages.control import quorum_message
from kafkafs.storage.format.messages.internal_topics import DECODERS, MessageDecoder
from kafkafs.storage.format.messages.message import (
    MessageSchema,
    SchemaField,
    parse_schemas,
    to_json,
)
from kafkafs.storage.format.messages.schemas import (
    group_coordinator,
    metadata,
    raft,
    share_coordinator,
    transaction_coordinator,
)
from kafkafs.storage.format.records.columns import KEY_SIZE
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.columns import decoded as decoded_batches

MODULES = (group_coordinator, transaction_coordinator, share_coordinator, metadata, raft)
THING = """
Thing 7 versions 1-3 flexible 2+
  name string?
  sizes []int32
  parts []struct 3+
    id uuid
    ratio float64
  inner struct?
    data bytes
  level int16 2+ tag 0 = -1
  note string? 2+ tag 4 = null
"""


def thing() -> MessageSchema:
    (schema,) = parse_schemas(THING)
    return schema


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def test_the_encoding_before_tags() -> None:
    data = text("a") + struct.pack(">iii", 2, 5, -6) + b"\x01" + struct.pack(">i", 3) + b"xyz"
    message = thing().read(data, 1)
    assert message == {"name": "a", "sizes": [5, -6], "inner": {"data": b"xyz"}}
    assert to_json(message) == '{"name":"a","sizes":[5,-6],"inner":{"data":"eHl6"}}'
    null = struct.pack(">hi", -1, 0) + b"\xff"
    assert thing().read(null, 1) == {"name": None, "sizes": [], "inner": None}


def test_the_encoding_with_tags() -> None:
    part = bytes(range(16)) + struct.pack(">d", 0.5) + b"\x00"
    inner = b"\x01" + compact(b"xyz") + b"\x00"
    known = b"\x00\x02\xff\xff" + b"\x04\x02" + compact(b"n")
    data = compact(b"a") + b"\x02" + struct.pack(">i", 9) + b"\x02" + part + inner
    found = thing().read(data + b"\x03" + known + b"\x09\x03abc", 3)
    assert list(found) == ["name", "sizes", "parts", "inner", "note"]  # level has its default value
    assert found["parts"] == [{"id": "AAECAwQFBgcICQoLDA0ODw", "ratio": 0.5}]
    assert found["note"] == "n"
    assert thing().read(compact(b"a") + b"\x01\xff\x01\x00\x02\x00\x03", 2)["level"] == 3


def test_null_where_none_may_be() -> None:
    with pytest.raises(CorruptError, match="sizes is null"):
        thing().read(b"\x00\x00", 2)


@pytest.mark.parametrize("version", [0, 4, -1])
def test_versions_that_there_are_not(version: int) -> None:
    with pytest.raises(CorruptError, match=f"unknown version {version} of Thing"):
        thing().read(b"", version)


def test_a_claim_of_many_elements_costs_nothing() -> None:
    with pytest.raises(CorruptError, match="an array of 2147483647 extends past"):
        thing().read(text("a") + struct.pack(">i", (1 << 31) - 1), 1)


@pytest.mark.parametrize(
    "line",
    [
        *("  name", "  name text", "   name string", "  name string tag 0", "name string"),
        "  name string\n    other string",
        "  name string\n   other string",
    ],
)
def test_what_is_no_field(line: str) -> None:
    with pytest.raises(ValueError, match=r"invalid schema field|unknown field type"):
        parse_schemas(f"Thing versions 0-0\n{line}")


def test_what_is_no_head() -> None:
    with pytest.raises(ValueError, match="invalid schema head: Thing"):
        parse_schemas("Thing\n  name string")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(module: ModuleType, data: bytes) -> None:
    for schema in parse_schemas(module.SCHEMAS):
        for version in range(schema.versions[0], schema.versions[1] + 1):
            try:
                message = schema.read(data, version)
            except CorruptError:
                continue
            json.loads(to_json(message))


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_json_says_what_it_is_of(value: object) -> None:
    assert json.loads(to_json(value)) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0"),
        (-1.5, "-1.5"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12345678.0, "-1.2345678E7"),
        (0.00025, "2.5E-4"),
        (1e21, "1.0E21"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        ('a"\\\n\x1f/é', '"a\\"\\\\\\n\\u001F/é"'),
    ],
)
def test_json_is_java_s(value: object, shown: str) -> None:
    assert to_json(value) == shown


# -- records of Kafka's own topics ---------------------------------------------------------------


def decoded(
    topic: str, offset: int, key: bytes | None, value: bytes | None
) -> tuple[str | None, str | None]:
    """Returns what a decoder prints for a record, by the tables; the schemas alone say the same."""
    decoder = DECODERS[topic]()
    data = build_batch([SimpleRecord(1, key, value)], BatchFields(base_offset=offset))
    [columns] = decoded_batches(data)
    texts, spans = decoder.contents(columns)
    starts_and_sizes = spans[0].tolist()
    found = [
        bytes(texts[start : start + size]).decode() if size >= 0 else None
        for start, size in zip(starts_and_sizes[::2], starts_and_sizes[1::2], strict=True)
    ]
    printed = found[0], found[1]
    assert printed == decoder.decode(offset, key, value)
    return printed


COMMIT = struct.pack(">h", 1) + text("billing") + text("orders") + struct.pack(">i", 2)
COMMITTED = struct.pack(">hqi", 3, 600, 4) + text("") + struct.pack(">q", 1526384718288)


def test_a_commit() -> None:
    decode = partial(decoded, "__consumer_offsets")
    key = '{"type":"1","data":{"group":"billing","topic":"orders","partition":2}}'
    payload = (
        '{"version":"3","data":{"offset":600,"leaderEpoch":4,"metadata":"",'
        '"commitTimestamp":1526384718288}}'
    )
    assert decode(5, COMMIT, COMMITTED) == (key, payload)
    assert decode(5, COMMIT, None) == (key, "<DELETE>")


def test_what_a_coordinator_s_topic_does_not_say() -> None:
    decode = partial(decoded, "__consumer_offsets")
    unknown = "Unknown record type 99 at offset 5, skipping."
    assert decode(5, struct.pack(">h", 99), COMMITTED) == (unknown, None)
    for key, value, why in (
        (None, COMMITTED, "the record has no key"),
        (COMMIT[:-1], COMMITTED, "an int32 extends past the end of its record"),
        (COMMIT, COMMITTED[:-1], "an int64 extends past the end of its record"),
        (COMMIT, b"\x00\x63", "unknown version 99 of OffsetCommitValue"),
        (COMMIT, b"", "an int16 extends past the end of its record"),
    ):
        assert decode(5, key, value) == (f"Error at offset 5, skipping. {why}", None)


def member(subscription: bytes) -> bytes:
    """Returns the metadata of a classic group with one member."""
    data = struct.pack(">h", 3) + text("consumer") + struct.pack(">i", 1) + 2 * b"\xff\xff"
    data += struct.pack(">qi", 7, 1) + text("m") + b"\xff\xff" + text("c") + text("/h")
    data += struct.pack(">iii", 1, 2, len(subscription)) + subscription
    return data + struct.pack(">i", 0)


def test_what_consumers_tell_each_other() -> None:
    decode = partial(decoded, "__consumer_offsets")
    group = struct.pack(">h", 2) + text("billing")
    topics = struct.pack(">hi", 0, 1) + text("orders") + struct.pack(">i", -1)
    for subscription, shown in (
        (topics, {"topics": ["orders"], "userData": None}),
        (topics[:-1], base64.b64encode(topics[:-1]).decode()),  # unreadable, so it stays bytes
    ):
        _, payload = decode(0, group, member(subscription))
        assert payload is not None
        (found,) = json.loads(payload)["data"]["members"]
        assert found["subscription"] == shown
        assert found["assignment"] == ""


def test_a_metadata_record() -> None:
    decode = partial(decoded, "__cluster_metadata")
    value = b"\x01\x0c\x00" + compact(b"group.version") + b"\x00\x01\x00"
    shown = (
        '{"type":"FEATURE_LEVEL_RECORD","version":0,'
        '"data":{"name":"group.version","featureLevel":1}}'
    )
    assert decode(3, None, value) == (None, shown)
    for data, why in (
        (b"\x02", "metadata record has frame version 2, expected 1"),
        (b"\x01\x63\x00", "unknown metadata record type 99"),
        (b"\x01\x0c\x63", "unknown version 99 of FeatureLevelRecord"),
        (value[:-3], "an int16 extends past the end of its record"),
        (None, "a varint extends past the end of its record"),
    ):
        assert decode(3, None, data) == (None, f"Error at 3, skipping. {why}")


TEXTS = st.sampled_from(
    [b"", b"orders", b"long " * 60, "caf\u00e9 \U0001f40c".encode(), b'"\\\n\x1f\x7f/', b"\xff"]
)


@pytest.mark.parametrize("topic", DECODERS)
@given(key=st.none() | st.binary(max_size=40), value=st.none() | st.binary(max_size=40))
def test_decoders_take_anything(topic: str, key: bytes | None, value: bytes | None) -> None:
    for shown in decoded(topic, 1, key, value):
        assert shown is None or "\n" not in shown


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__cluster_metadata"])
def test_the_tables_write_nearly_all_records(corpus: Callable[[str], Path], topic: str) -> None:
    """Others take a hundred times as long."""
    decoder, left, written = DECODERS[topic](), 0, 0
    assert isinstance(decoder, MessageDecoder)
    for path in corpus("kafka43-clean").glob(f"{topic}-*/*.log"):
        for columns in decoded_batches(path.read_bytes()):
            part = columns.where(columns.spans[:, KEY_SIZE] != 4)  # no control records
            left += len(decoder.tables.write(part)[2])
            written += len(part)
    assert left < written / 10


@pytest.mark.parametrize("topic", [each for each in DECODERS if each != "__remote_log_metadata"])
@given(st.data())
def test_tables_write_what_the_schemas_read(topic: str, data: st.DataObject) -> None:
    """Messages of all types and versions, some of them cut or changed."""
    key: bytes | None = None
    if topic == "__cluster_metadata":
        schema = data.draw(st.sampled_from(parse_schemas(metadata.SCHEMAS)))
        version = data.draw(st.integers(*schema.versions))
        value = bytes([1, schema.number, version]) + data.draw(contents(schema, version))
    else:
        module = MODULES[list(DECODERS).index(topic)]
        schemas = parse_schemas(module.SCHEMAS)
        of_key = data.draw(st.sampled_from([one for one in schemas if one.name.endswith("Key")]))
        key = struct.pack(">h", of_key.number) + data.draw(contents(of_key, 0))
        name = f"{of_key.name.removesuffix('Key')}Value"
        schema = next(one for one in schemas if one.name == name)
        version = data.draw(st.integers(*schema.versions))
        value = struct.pack(">h", version) + data.draw(contents(schema, version))
    if data.draw(st.integers(0, 3)) == 0:
        at = data.draw(st.integers(0, len(value)))
        value = value[:at] + data.draw(st.binary(max_size=2)) + value[at + 1 :]
    decoded(topic, 1, key, value)


def contents(schema: MessageSchema, version: int) -> st.SearchStrategy[bytes]:
    """Draws an encoded message. Tagged fields are in the order of their tags, and some unknown."""
    is_flexible = version >= schema.flexible_from

    def length(count: int, form: str = ">i") -> bytes:
        return varint(count + 1) if is_flexible else struct.pack(form, count)

    def sized(data: bytes | None, form: str) -> bytes:
        return length(-1, form) if data is None else length(len(data), form) + data

    of_kind: dict[str, st.SearchStrategy[bytes]] = {
        "boolean": st.sampled_from([b"\x00", b"\x01"]),
        **{f"int{8 * size}": st.binary(min_size=size, max_size=size) for size in (1, 2, 4, 8)},
        "uint16": st.binary(min_size=2, max_size=2),
        "float64": st.binary(min_size=8, max_size=8),
        "uuid": st.sampled_from([bytes(16), bytes(range(240, 256))]),
        "string": TEXTS.map(lambda data: sized(data, ">h")),
        "bytes": st.binary(max_size=5).map(lambda data: sized(data, ">i")),
    }

    def one(part: SchemaField) -> st.SearchStrategy[bytes]:
        return struct_of(part.parts) if part.kind == "struct" else of_kind[part.kind]

    def value(part: SchemaField) -> st.SearchStrategy[bytes]:
        if part.is_array:
            null = [length(-1)] if part.is_nullable else []
            lists = st.lists(one(part), max_size=2).map(lambda a: length(len(a)) + b"".join(a))
            return lists | st.sampled_from(null) if null else lists
        if not part.is_nullable:
            return one(part)
        if part.kind == "struct":
            is_null, is_one = (b"\x00", b"\x01") if part.tag >= 0 else (b"\xff", b"\x01")
            return st.just(is_null) | one(part).map(lambda data: is_one + data)
        return one(part) | st.just(length(-1, ">h" if part.kind == "string" else ">i"))

    @st.composite
    def struct_of(draw: st.DrawFn, parts: tuple[SchemaField, ...]) -> bytes:
        there = [part for part in parts if part.is_in(version)]
        plain = b"".join(draw(value(part)) for part in there if part.tag < 0)
        tags = sorted((part.tag, part) for part in there if part.tag >= 0 and draw(st.booleans()))
        drawn = [(tag, draw(value(part))) for tag, part in tags]
        found = [bytes([tag]) + varint(len(data)) + data for tag, data in drawn]
        found += draw(st.sampled_from([[], [b"\x63\x02xy"]])) if is_flexible else []
        return plain + (bytes([len(found)]) + b"".join(found) if is_flexible else b"")

    return struct_of(schema.parts)


def varint(number: int) -> bytes:
    """Returns an unsigned varint of one byte or two."""
    return bytes([number]) if number < 128 else bytes([number & 127 | 128, number >> 7])


def test_a_quorum_s_messages() -> None:
    data = struct.pack(">hq", 0, 12) + b"\x00"
    number = ControlType.SNAPSHOT_HEADER
    assert quorum_message(number, data) == (
        'SnapshotHeader {"version":0,"lastContainedLogTimestamp":12}'
    )
    assert quorum_message(number, data[:5]).startswith("SnapshotHeader (damaged: an int64 extends")
    assert quorum_message(99, data) == "controlType: UNKNOWN(99)"
