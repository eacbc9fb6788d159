"""Topics whose serializers named subjects by record types, so that none has the topic's name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kafkafs
from kafkafs.storage.errors import SchemaError
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.catalog import SchemaCatalog
from kafkafs.storage.schemas.typed.decoder import DecodedColumns
from kafkafs.storage.schemas.typed.reader_schema import ReaderUnion, TopicReaders
from kafkafs.storage.schemas.typed.record_types import topic_readers
from tests import answers, registry_records

ORDER = {"type": "record", "name": "com.shop.Order", "fields": [{"name": "n", "type": "int"}]}
WIDER = {**ORDER, "fields": [*ORDER["fields"], {"name": "m", "type": "long", "default": 7}]}
REFUND = {"type": "record", "name": "com.shop.Refund", "fields": [{"name": "n", "type": "int"}]}
OTHER = {"type": "record", "name": "org.Order", "fields": [{"name": "n", "type": "string"}]}
NOTE = {"title": "Note", "type": "object", "properties": {"n": {"type": "integer"}}}
PROTO = """
syntax = "proto3";
package shop;
message A { int32 n = 1; }
message B { string s = 1; }
message C { bytes b = 1; }
"""


def framed(number: int, datum: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + datum


def write(
    path: Path, schemas: Sequence[tuple[str, int, int, str, str]], values: Sequence[bytes | None]
) -> None:
    with kafkafs.open(path, writable=True) as d:
        for topic in ("_schemas", "t"):
            d.create_topic(topic)
        for subject, version, number, kind, text in schemas:
            record = registry_records.schema(subject, version, number, text, schemaType=kind)
            d["_schemas", 0].append([kafkafs.ProducerRecord(record.value, key=record.key)])
        d["t", 0].append([kafkafs.ProducerRecord(each) for each in values])


def scanned(path: Path) -> pa.Table:
    with kafkafs.open(path) as d:
        return d.scan("t", decode=True, columns=["decoded", "decodeError"]).read_all()


def test_two_record_types_of_the_corpus(corpus: Callable[[str], Path]) -> None:
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    rows = [each for each in map(json.loads, lines) if each["topic"] == "s-records"]
    with kafkafs.open(corpus("schemas43")) as d:
        table = d.scan("s-records", decode=True).read_all()
    assert [field.name for field in table.schema.field("decoded").type] == ["Order", "Refund"]
    assert table["decodeError"].null_count == len(rows) == 20
    for row, found in zip(rows, table["decoded"].to_pylist(), strict=True):
        name = "Refund" if "why" in row["value"]["value"] else "Order"
        assert [each for each in found if found[each] is not None] == [name]
        for field in ("why", "cents") if name == "Refund" else ("id", "n", "customer"):
            assert found[name][field] == row["value"]["value"][field]


def test_one_record_type_has_its_newest_schema(tmp_path: Path) -> None:
    schemas = [
        ("com.shop.Order", 1, 7, "AVRO", json.dumps(ORDER)),
        ("com.shop.Order", 2, 9, "AVRO", json.dumps(WIDER)),
    ]
    write(tmp_path / "data", schemas, [framed(7, b"\x02"), None, b"plain"])
    table = scanned(tmp_path / "data")
    assert table["decoded"].to_pylist() == [{"n": 1, "m": 7}, None, None]
    assert table["decodeError"].to_pylist() == [None, None, "its bytes name no schema"]


def test_types_of_all_kinds(tmp_path: Path) -> None:
    """Records of the same name in two namespaces have their full names. A type that only records in
    the middle have is an error of theirs."""
    schemas = [
        ("com.shop.Order", 1, 7, "AVRO", json.dumps(ORDER)),
        ("org.Order", 1, 8, "AVRO", json.dumps(OTHER)),
        ("Note", 1, 9, "JSON", json.dumps(NOTE)),
        ("shop.A", 1, 10, "PROTOBUF", PROTO),
        ("com.shop.Refund", 1, 11, "AVRO", json.dumps(REFUND)),
    ]
    b = framed(10, b"\x02\x02\x0a\x01x")
    ends = [
        *(framed(7, b"\x02"), framed(8, b"\x02a"), framed(9, b'{"n": 3}')),
        *(framed(10, b"\0\x08\x05"), b, framed(7, b"")),
    ]
    middle = [framed(11, b"\x02"), framed(10, b"\x02\x04\x0a\x01x"), *ends]
    write(tmp_path / "data", schemas, [*ends, *[None] * 40, *middle, *[None] * 40])
    table = scanned(tmp_path / "data")
    kind = table.schema.field("decoded").type
    assert [field.name for field in kind] == ["com.shop.Order", "org.Order", "Note", "A", "B"]
    values = [each for each in table["decoded"].to_pylist() if each is not None]
    found = [{name: value for name, value in each.items() if value is not None} for each in values]
    expected: list[dict[str, Any]] = [
        {"com.shop.Order": {"n": 1}},
        {"org.Order": {"n": "a"}},
        {"Note": {"n": 3}},
        {"A": {"n": 5}},
        {"B": {"s": "x"}},
    ]
    assert found == expected * 2
    reasons = [each for each in table["decodeError"].to_pylist() if each is not None]
    assert [each.split(",")[0].split(": ")[-1] for each in reasons[1:3]] == [
        "it is a com.shop.Refund",
        "it is a shop.C",
    ]
    assert reasons[0] == reasons[3] != reasons[1]


def test_a_number_that_begins_like_a_frame_names_no_schema(tmp_path: Path) -> None:
    schemas = [("com.shop.Order", 1, 1, "AVRO", json.dumps(ORDER))]
    write(tmp_path / "data", schemas, [(1 << 24 | 200).to_bytes(8, "big")])
    with pytest.raises(SchemaError, match="there is no subject t-value"):
        scanned(tmp_path / "data")


def test_unions_go_to_other_processes(corpus: Callable[[str], Path]) -> None:
    engine = Engine(str(corpus("schemas43")))
    schemas = SchemaCatalog(engine).schemas()
    readers = topic_readers(engine, schemas, "s-records")
    assert isinstance(readers.values, ReaderUnion)
    assert pickle.loads(pickle.dumps(readers)) == readers
    again = TopicReaders.of_json(json.loads(json.dumps(readers.as_json())))
    types = {
        str(DecodedColumns.of_topic(schemas, "s-records", each).schema) for each in (readers, again)
    }
    assert len(types) == 1
