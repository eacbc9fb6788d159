"""Keys and values as typed columns equal what decoding one record after another gives."""

from __future__ import annotations

import base64
import json
import math
import pickle
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from kafkafs.storage.errors import DatumError, SchemaError
from kafkafs.storage.format.records.arrow import TableLimits, record_tables
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.avro.resolution import resolve
from kafkafs.storage.schemas.avro.types import AvroType, Kind, parse_avro
from kafkafs.storage.schemas.catalog import SchemaCatalog, Schemas
from kafkafs.storage.schemas.decoding import Decoders
from kafkafs.storage.schemas.framing import Framing, datum_of, frame
from kafkafs.storage.schemas.registry.image import empty_image
from kafkafs.storage.schemas.schema import Schema
from kafkafs.storage.schemas.supplied import SuppliedSchemas, TopicSchema
from kafkafs.storage.schemas.typed.decoder import DecodedColumns, TypedDecoder
from kafkafs.storage.schemas.typed.reader_schema import ReaderSchema, TopicReaders
from kafkafs.storage.schemas.typed.sources import SchemaSourceDirs
from tests import answers
from tests.avro_schemas import Json, datums
from tests.columns import decoded

Corpus = Callable[[str], Path]
GUID = UUID("07b4fd29-566e-1170-b6cd-99c5871ad940")
TOPIC = "orders"


def columns_of(values: Sequence[bytes | None], headers: Any = ()) -> Columns:
    given = list(headers) or [()] * len(values)
    records = [
        SimpleRecord(1000, None, value, each) for value, each in zip(values, given, strict=True)
    ]
    (found,) = decoded(encode(RecordColumns.from_records(records), BatchPlan()).data)
    return found


def avro(declaration: Json, number: int | None = None) -> Schema:
    return Schema("AVRO", json.dumps(declaration), id=number)


def supplied(
    *,
    ids: Mapping[int, Schema] | None = None,
    topic: TopicSchema | None = None,
    guids: Mapping[UUID, Schema] | None = None,
) -> Schemas:
    topics = {} if topic is None else {(TOPIC, False): topic}
    return Schemas(SuppliedSchemas(topics, dict(ids or {}), dict(guids or {})), empty_image())


# -- one by one ------------------------------------------------------------------------------------


def in_python(array: pa.Array) -> list[Any]:
    """Returns the values; the example does not count if one is a time that Python does not have."""
    try:
        found: list[Any] = array.to_pylist()
    except OverflowError:
        reject()
    return found


def one_by_one(
    schemas: Schemas, reader: Schema, records: Sequence[tuple[bytes | None, Any]]
) -> tuple[list[Any], list[str | None]]:
    """Decodes each record by itself."""
    values: list[Any] = []
    reasons: list[str | None] = []
    for value, headers in records:
        found = frame(value, headers)
        values.append(None)
        reasons.append(None)
        if value is None:
            continue
        by_id = None if found.schema_id is None else schemas.by_id(found.schema_id)
        writer = by_id or (None if found.guid is None else schemas.by_guid(found.guid))
        if writer is None:
            reasons[-1] = found.fault or (
                "its bytes name no schema"
                if found.framing is Framing.NONE or found.schema_id == 0
                else schemas.missing(found.schema_id, found.guid)
            )
            continue
        try:
            payload, _ = datum_of(found, value, "AVRO")
        except DatumError as error:
            reasons[-1] = error.why
            continue
        columns = resolve(parse_avro(writer, {}), parse_avro(reader, {}))
        array, errors = columns.build(memoryview(payload), np.array([[0, len(payload)]]))
        [values[-1]], reasons[-1] = in_python(array), errors[0].as_py()
    return values, reasons


def framings(payload: bytes) -> st.SearchStrategy[tuple[bytes | None, Any]]:
    """Ways to write a datum of schema 7: framed, damaged, or unknown."""
    header = ((("__value_schema_id", b"\x01" + GUID.bytes),),)
    glue = b"\x03\x00" + GUID.bytes
    packed = b"\x03\x05" + GUID.bytes + zlib.compress(payload)
    plain: list[tuple[bytes | None, Any]] = [
        (b"\0\0\0\0\x07" + payload, ()),
        (payload, header[0]),
        (glue + payload, ()),
        (packed, ()),
        (b"\0" + (7).to_bytes(8, "big") + payload, ()),
        (b"\0\0\0\0\x08" + payload, ()),  # another schema
        (b"\0\0\0\0\x63" + payload, ()),  # no schema
        (packed[:-3], ()),
        (None, ()),
        (b"", ()),
    ]
    return st.one_of(
        st.sampled_from(plain),
        st.tuples(st.binary(max_size=40), st.just(())),
        st.tuples(st.binary(max_size=20).map(lambda tail: b"\0\0\0\0\x07" + tail), st.just(())),
    )


def same(one: Any, other: Any) -> bool:
    """Compares values, NaN with NaN."""
    return repr(one) == repr(other)


@given(datums(most=6), datums(most=1), st.data())
def test_each_record_is_decoded_as_if_alone(
    case: tuple[Json, list[bytes], list[Any]], other: tuple[Json, Any, Any], data: st.DataObject
) -> None:
    schema, payloads, _ = case
    written = avro(schema, 7)
    schemas = supplied(ids={7: written, 8: avro(other[0], 8)}, guids={GUID: written})
    records: list[Any] = [(None, ())]
    records += [
        data.draw(framings(payload))
        for payload in payloads
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    columns = columns_of([value for value, _ in records], [headers for _, headers in records])
    decoder = TypedDecoder(schemas, TOPIC, reader=ReaderSchema(written))
    values, reasons = decoder.columns(columns)
    values.validate(full=True)
    assert values.type == decoder.type
    expected = one_by_one(schemas, written, records)
    assert reasons.to_pylist() == expected[1]
    assert same(in_python(values), expected[0])


@pytest.mark.parametrize("framing", [None, *Framing])
@given(case=datums(most=3), data=st.data())
def test_schemas_given_for_a_topic_mean_what_they_mean_for_json(
    framing: Framing | None, case: tuple[Json, list[bytes], list[Any]], data: st.DataObject
) -> None:
    schema, payloads, _ = case
    written = avro(schema)
    schemas = supplied(topic=TopicSchema(written, framing), ids={8: avro("long", 8)})
    records: list[Any] = [(None, ())]
    for payload in payloads:
        records += [data.draw(framings(payload)), data.draw(st.just((payload, ())))]
    columns = columns_of([value for value, _ in records], [headers for _, headers in records])
    values, reasons = TypedDecoder(schemas, TOPIC, reader=ReaderSchema(written)).columns(columns)
    as_json = Decoders(schemas).for_topic(TOPIC).decoded(columns)
    resolved = {"long does not fit", "fits no branch"}
    for found, reason, expected in zip(
        in_python(values), reasons.to_pylist(), as_json, strict=True
    ):
        if expected.named.schema_id == 8 and reason is not None:
            assert any(each in reason for each in resolved) or reason == expected.error
        else:
            assert reason == expected.error
            assert found is None or expected.kind == "avro"


# -- the corpus ------------------------------------------------------------------------------------


def as_json(of: AvroType, value: Any, outer: tuple[AvroType, ...] = ()) -> Any:
    """Returns an element of a column as `decoded.jsonl` has it."""
    if value is None:
        return None
    if any(of is each for each in outer):
        return json.loads(value)
    if of.kind is Kind.UNION:
        parts = [part for part in of.parts if part.kind is not Kind.NULL]
        if len(parts) == 1:
            return as_json(parts[0], value, outer)
        ((place, chosen),) = (
            (place, each) for place, each in enumerate(value.values()) if each is not None
        )
        return as_json(parts[place], chosen, outer)
    if of.kind is Kind.RECORD:
        fields = of.fields
        return {each.name: as_json(each.type, value[each.name], (*outer, of)) for each in fields}
    if of.kind is Kind.ARRAY:
        return [as_json(of.parts[0], each, outer) for each in value]
    if of.kind is Kind.MAP:
        return {key: as_json(of.parts[0], each, outer) for key, each in value}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, datetime):
        digits = "microseconds" if value.microsecond % 1000 else "milliseconds"
        text = value.replace(tzinfo=None).isoformat(timespec=digits)
        return f"{text}Z" if value.tzinfo else text
    if isinstance(value, time):
        return value.isoformat("microseconds" if value.microsecond % 1000 else "milliseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


@pytest.fixture
def engine(corpus: Corpus) -> Iterator[Engine]:
    with closing(Engine(str(corpus("schemas43")))) as engine:
        yield engine


@pytest.mark.parametrize(
    ("topic", "is_key", "equal"),
    [
        ("s-avro", False, 56),
        ("s-keyed", False, 20),
        ("s-keyed", True, 30),
        ("s-refs", False, 20),
        ("s-headers", False, 16),
        ("s-headers", True, 8),
        ("s-mixed", False, 24),
        ("s-soft", False, 10),
    ],
)
def test_values_equal_those_of_confluents_deserializers(
    engine: Engine, topic: str, is_key: bool, equal: int
) -> None:
    """Those of the newest version do; each of the others has the fields that are in both."""
    schemas = SchemaCatalog(engine).schemas()
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    part = "key" if is_key else "value"
    expected = {
        (row["partition"], row["offset"]): row[part]
        for row in map(json.loads, lines)
        if row["topic"] == topic
    }
    decoder = TypedDecoder(schemas, topic, is_key=is_key)
    reader = ReaderSchema.of_topic(schemas, topic, is_key=is_key)
    assert reader is not None
    of = parse_avro(reader.schema, reader.referenced)
    count = 0
    for number in engine.partitions_of(topic):
        for columns in engine.log(topic, number).view().scan():
            assert isinstance(columns, Columns)
            values, reasons = decoder.columns(columns)
            values.validate(full=True)
            for offset, value, reason in zip(
                columns.offsets.tolist(), values.to_pylist(), reasons.to_pylist(), strict=True
            ):
                want = expected.pop((number, offset))
                if want["kind"] == "null":
                    assert (value, reason) == (None, None)
                elif want.get("schema_id") == reader.schema.id and "error" not in want:
                    assert as_json(of, value) == want["value"]
                    assert reason in (None, "bytes are left over")
                    count += 1
                elif reason is None:
                    found = as_json(of, value)
                    common = found.keys() & want["value"].keys()
                    assert common
                    assert {n: found[n] for n in common} == {n: want["value"][n] for n in common}
                else:
                    assert value is None
    assert not expected
    assert count == equal


@pytest.mark.parametrize(
    ("topic", "reasons"),
    [
        ("s-json", {None: 40}),
        (
            "s-proto",
            {
                None: 37,
                "it is a shop_v1.Order.Note, not a shop_v1.Order": 12,
                "it is a shop_v1.Order.Line.Part, not a shop_v1.Order": 7,
                "it is a shop_v1.Refund, not a shop_v1.Order": 4,
            },
        ),
    ],
)
def test_protobuf_and_json_schema(
    engine: Engine, topic: str, reasons: Mapping[str | None, int]
) -> None:
    decoder = TypedDecoder(SchemaCatalog(engine).schemas(), topic)
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    expected = {
        (row["partition"], row["offset"]): row["value"]["value"]
        for row in map(json.loads, lines)
        if row["topic"] == topic
    }
    found: Counter[str | None] = Counter()
    for number in engine.partitions_of(topic):
        for columns in engine.log(topic, number).view().scan():
            assert isinstance(columns, Columns)
            values, whys = decoder.columns(columns)
            values.validate(full=True)
            found.update(whys.to_pylist())
            for offset, value in zip(columns.offsets.tolist(), values.field("id"), strict=True):
                if value.is_valid:
                    assert str(value.as_py()) == str(expected[number, offset]["id"])
    assert found == reasons


def test_the_schema_is_that_of_the_newest_version(engine: Engine) -> None:
    schemas = SchemaCatalog(engine).schemas()
    of = DecodedColumns.of_topic(schemas, "s-avro").schema.field("decoded").type
    assert "channel" in {each.name for each in of}
    assert "f" not in {each.name for each in of}
    first = schemas.by_id(1)
    assert first is not None
    given = TypedDecoder(schemas, "s-avro", reader=ReaderSchema.of(schemas, first)).type
    assert "f" in {each.name for each in given}


# -- what cannot be decoded ------------------------------------------------------------------------


def test_a_topic_without_a_schema_says_what_to_do() -> None:
    why = (
        "topic orders: the schema of its values is unknown: there is no subject orders-value; "
        "name a file with it in the config kafkafs.schemas: orders=FILE"
    )
    with pytest.raises(SchemaError) as raised:
        TypedDecoder(supplied(), TOPIC)
    assert str(raised.value) == why


@pytest.mark.parametrize(
    ("writer", "why"),
    [
        (avro({"type": "record"}, 8), "schema 8: a record has no name"),
        (Schema("PROTOBUF", "", id=8), "schema 8: it is of type PROTOBUF, but schema 7 of AVRO"),
        (avro("string", 8), "string does not fit long"),
    ],
)
def test_a_schema_that_cannot_be_used_concerns_its_records_alone(writer: Schema, why: str) -> None:
    schemas = supplied(ids={7: avro("long", 7), 8: writer})
    columns = columns_of([b"\0\0\0\0\x07\x02", b"\0\0\0\0\x08\x02a", b"\0\0\0\0\x07\x04"])
    decoder = TypedDecoder(schemas, TOPIC, reader=ReaderSchema(avro("long", 7)))
    values, reasons = decoder.columns(columns)
    assert values.to_pylist() == [1, None, 2]
    assert reasons.to_pylist() == [None, why, None]


def test_large_defaults_do_not_multiply() -> None:
    """A field that each of many records lacks would have them all take its default."""
    old = avro({"type": "record", "name": "R", "fields": []}, 7)
    field = {"name": "f", "type": "string", "default": "x" * 20_000}
    reader = avro({"type": "record", "name": "R", "fields": [field]}, 8)
    decoder = TypedDecoder(supplied(ids={7: old}), TOPIC, reader=ReaderSchema(reader))
    values, reasons = decoder.columns(columns_of([b"\0\0\0\0\x07"]))
    assert values.to_pylist() == [None]
    assert reasons.to_pylist() == ["the defaults of missing fields have more than 16,384 bytes"]


def test_a_union_of_unions_is_resolved_in_bounded_time() -> None:
    """Both branches of each union in each other are resolved to the same record."""
    wide: Json = ["int"]
    narrow: Json = "int"
    for level in range(30):
        fields = [{"name": "f", "type": wide}]
        again = [{"name": "f", "type": [f"a.R{level - 1}", f"b.R{level - 1}"] if level else "int"}]
        wide = [
            {"type": "record", "name": f"a.R{level}", "fields": fields},
            {"type": "record", "name": f"b.R{level}", "fields": again},
        ]
        narrow = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": narrow}]}
    schemas = supplied(ids={7: avro(wide, 7)})
    decoder = TypedDecoder(schemas, TOPIC, reader=ReaderSchema(avro(narrow)))
    _, reasons = decoder.columns(columns_of([b"\0\0\0\0\x07\0"]))
    assert str(reasons[0]).endswith("resolving it takes more than 100,000 steps")


# -- in other processes ----------------------------------------------------------------------------


def test_readers_survive_as_json(engine: Engine) -> None:
    schemas = SchemaCatalog(engine).schemas()
    for topic in engine.topics():
        readers = TopicReaders.of_topic(schemas, topic)
        again = TopicReaders.of_json(json.loads(json.dumps(readers.as_json())))
        assert again.as_json() == readers.as_json()
        assert bool(again) is bool(readers)


@pytest.mark.parametrize("found", [None, 1, {"value": 1}, {"value": {"type": "AVRO"}}])
def test_other_json_is_refused(found: Any) -> None:
    with pytest.raises((TypeError, KeyError, ValueError, AttributeError)):
        TopicReaders.of_json(found)


def test_another_process_decodes_alike(engine: Engine) -> None:
    schemas = SchemaCatalog(engine).schemas()
    readers = TopicReaders.of_topic(schemas, "s-headers")
    paths = tuple(each.path for each in engine.log_dirs.dirs)
    sent = pickle.loads(pickle.dumps((SchemaSourceDirs(paths), readers)))
    there = sent[0].decoded_columns("s-headers", sent[1])
    here = DecodedColumns.of_topic(schemas, "s-headers")
    assert there.schema == here.schema
    for columns in engine.log("s-headers", 0).view().scan():
        assert isinstance(columns, Columns)
        found = there.arrays(columns, there.schema.names)
        assert found == here.arrays(columns, there.schema.names)


def test_tables_of_decoded_columns_do_not_depend_on_how_a_scan_split_the_records(
    corpus: Corpus,
) -> None:
    engine = Engine(str(corpus("schemas43")))
    schemas = SchemaCatalog(engine).schemas()

    def parts(topic: str, step: int) -> Iterator[Columns]:
        for part in engine.log(topic, 0).view().scan(None, None, Isolation.READ_COMMITTED):
            assert isinstance(part, Columns)
            starts = range(0, len(part), step)
            yield from (part.slice(low, min(low + step, len(part))) for low in starts)

    for topic in ("s-avro", "s-keyed", "s-json", "s-proto", "s-mixed", "s-headers"):
        made = DecodedColumns.of_topic(schemas, topic)
        to_batch = partial(made.record_batch, topic=topic, partition=0)
        found = set()
        for step in (1, 7, 1000):
            tables = record_tables(parts(topic, step), to_batch, TableLimits(20, 4 << 20))
            batches = [batch for _, table in tables for batch in table.to_batches()]
            assert max(batch.num_rows for batch in batches) <= 20
            found.add(b"".join(batch.serialize().to_pybytes() for batch in batches))
        assert len(found) == 1


def test_a_table_with_many_columns_has_few_rows() -> None:
    wide = [{"name": f"f{number}", "type": "long"} for number in range(5000)]
    given = TopicSchema(avro({"type": "record", "name": "Wide", "fields": wide}))
    made = DecodedColumns.of_topic(supplied(topic=given), TOPIC)
    assert made.limits(TableLimits(1 << 17, 1)).rows < 1000
