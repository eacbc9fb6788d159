"""Keys and values of records, decoded with the schemas that they name."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from kafkafs.storage.errors import ConfigError
from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.format.records.encoder import BatchPlan, encode
from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.lines.decoded_lines import decoded_lines
from kafkafs.storage.lines.json_output import json_lines
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.catalog import SchemaCatalog, Schemas
from kafkafs.storage.schemas.conventions import raw_value
from kafkafs.storage.schemas.decoding import (
    Decoded,
    DecoderCatalog,
    Decoders,
    TopicDecoder,
    check_supplied,
    choose_subject,
)
from kafkafs.storage.schemas.framing import Framing
from kafkafs.storage.schemas.registry.image import empty_image
from kafkafs.storage.schemas.schema import Schema, SchemaDeletion, SubjectVersion
from kafkafs.storage.schemas.supplied import SuppliedSchemas, TopicSchema, parse_supplied
from tests import answers
from tests.building import BatchFields, build_batch
from tests.columns import decoded
from tests.logs import write_topic
from tests.registry_records import record, schema

Corpus = Callable[[str], Path]
#: What Confluent's deserializers take no notice of, and we show with the value.
BYTES_LEFT: Final = "bytes are left over"


def as_json(found: Decoded, *, is_key: bool) -> dict[str, Any]:
    """Returns a key or value as in the corpus."""
    row: dict[str, Any] = {"kind": found.kind, "value": found.value}
    named = found.named
    if named.framing == "none":
        return row
    row["framing"] = named.framing
    row["schema_id"] = named.schema_id
    if named.guid is not None:
        row["guid"] = str(named.guid)
    if named.message:
        row |= {"message_index": list(named.message_index), "message": named.message}
    if found.error is not None and found.error != BYTES_LEFT:
        row["error"] = found.error
    if named.subject is not None and not is_key:
        row |= {"subject": named.subject.subject, "version": named.subject.version}
    return row


def scanned(engine: Engine, topic: str, number: int) -> Iterator[Columns]:
    for part in engine.log(topic, number).view().scan():
        assert isinstance(part, Columns)
        yield part


@pytest.fixture
def engine(corpus: Corpus) -> Iterator[Engine]:
    with closing(Engine(str(corpus("schemas43")))) as engine:
        yield engine


def test_records_equal_those_of_confluents_deserializers(engine: Engine) -> None:
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in lines]
    decoders = Decoders(SchemaCatalog(engine).schemas())
    left_over = 0
    found: dict[tuple[str, int, int], tuple[Decoded, Decoded]] = {}
    for topic, number in dict.fromkeys((row["topic"], row["partition"]) for row in expected):
        decoder = decoders.for_topic(topic)
        for columns in scanned(engine, topic, number):
            keys = decoder.decoded(columns, is_key=True)
            values = decoder.decoded(columns)
            places = ((topic, number, offset) for offset in columns.offsets.tolist())
            found |= dict(zip(places, zip(keys, values, strict=True), strict=True))
    assert len(found) == len(expected)
    for row in expected:
        key, value = found[row["topic"], row["partition"], row["offset"]]
        left_over += value.error == BYTES_LEFT
        for one, name in ((key, "key"), (value, "value")):
            want = row[name]
            subjects = want.pop("subjects", None)
            if subjects is not None:
                assert one.named.schema is not None
                of_id = decoders.schemas.subjects_of(one.named.schema)
                assert [[e.subject, e.version, e.is_deleted] for e in of_id] == subjects
            made = as_json(one, is_key=name == "key")
            assert ("error" in made) == ("error" in want), (row, made)
            if "error" in want and want.pop("error") == "no schema with this id":
                assert made["error"].startswith("no schema with this id")
            made.pop("error", None)
            assert made == want, (row["topic"], row["offset"], name)
    assert left_over == 6


NAME: Final = '{"type":"record","name":"shop.Name","fields":[{"name":"first","type":"string"}]}'
PROTO: Final = """
syntax = "proto3";
package shop;
message Note { string text = 1; }
message Order { int64 n = 1; string id = 2; }
"""
#: The datum of NAME with "Ada".
ADA: Final = b"\x06Ada"


def columns_of(*values: bytes | None, key: bytes | None = None, headers: Any = ()) -> Columns:
    records = [SimpleRecord(5, key, value, tuple(headers)) for value in values]
    [found] = decoded(encode(RecordColumns.from_records(records), BatchPlan()).data)
    return found


@pytest.fixture
def given(tmp_path: Path) -> Callable[..., TopicDecoder]:
    """`given(entries)` decodes the topic t with schemas given as files: NAME is in name.avsc."""
    (tmp_path / "name.avsc").write_text(NAME)
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "name.json").write_text('{"type":"object","required":["first"]}')

    def make(*entries: str, topic: str = "t") -> TopicDecoder:
        text = ",".join(entry.replace("=/", f"={tmp_path}/") for entry in entries)
        return Decoders(Schemas(parse_supplied(text), empty_image())).for_topic(topic)

    return make


def outcomes(decoder: TopicDecoder, columns: Columns, *, is_key: bool = False) -> list[Any]:
    """Returns what each row is shown as, with the reason if there is one."""
    rows = decoder.decoded(columns, is_key=is_key)
    return [(row.value, row.error) if row.error else row.value for row in rows]


def lines(decoder: TopicDecoder, columns: Columns) -> list[dict[str, Any]]:
    text = bytes(decoded_lines(columns, "t", 3, decoder)).decode()
    return [json.loads(line, parse_constant=pytest.fail) for line in text.split("\n")[:-1]]


def compact(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


class TestSchemasGivenForATopic:
    def test_data_without_a_frame(self, given: Callable[..., TopicDecoder]) -> None:
        columns = columns_of(ADA, None, b"\x08Ada", key=b'{"first":1}')
        decoder = given("t=/name.avsc", "t:key=/name.json")
        [ada, null, cut] = decoder.decoded(columns)
        assert (ada.kind, ada.value, ada.error) == ("avro", {"first": "Ada"}, None)
        assert (ada.named.framing, ada.named.schema_id, ada.named.subject) == ("none", None, None)
        assert (null.kind, null.value) == ("null", None)
        assert (cut.kind, cut.value) == ("binary", "CEFkYQ==")
        assert cut.error is not None
        assert outcomes(decoder, columns, is_key=True) == [{"first": 1}] * 3
        assert outcomes(given("u=/name.avsc"), columns_of(b"text")) == ["text"]

    def test_protobuf_has_the_first_message_or_the_one_that_is_named(
        self, given: Callable[..., TopicDecoder]
    ) -> None:
        note, order = b"\x0a\x02hi", b"\x08\x07\x12\x01x"
        assert outcomes(given("t=/order.proto"), columns_of(note)) == [{"text": "hi"}]
        named = given("t=/order.proto", "t:message=shop.Order")
        [found] = named.decoded(columns_of(order))
        assert (found.value, found.named.message) == ({"n": "7", "id": "x"}, "shop.Order")

    def test_a_frame_whose_schema_is_unknown_means_the_one_of_the_topic(
        self, given: Callable[..., TopicDecoder]
    ) -> None:
        framed = b"\0\0\0\0\x07" + ADA
        [found] = given("t=/name.avsc").decoded(columns_of(framed))
        assert (found.value, found.error) == ({"first": "Ada"}, None)
        assert (found.named.framing, found.named.schema_id) == ("prefix", 7)
        # A datum that only begins like a frame: an empty string, and four other ones.
        begins_so = b"\0\0\0\0\0"
        five = ",".join(f'{{"name":"{name}","type":"string"}}' for name in "abcde")
        decoder = _given("AVRO", f'{{"type":"record","name":"R","fields":[{five}]}}')
        [found] = decoder.decoded(columns_of(begins_so))
        assert (found.value, found.named.framing) == (dict.fromkeys("abcde", ""), "none")

    def test_a_framing_that_is_given_is_not_guessed(
        self, given: Callable[..., TopicDecoder]
    ) -> None:
        framed, long_id = b"\0\0\0\0\x07" + ADA, b"\0\0\0\0\x01\0\0\0\x07" + ADA
        none = given("t=/name.avsc", "t:framing=none")
        [(_, why)] = outcomes(none, columns_of(framed))
        assert why == "bytes are left over"
        prefix = given("t=/name.avsc", "t:framing=prefix")
        [found, (_, why)] = outcomes(prefix, columns_of(framed, ADA))
        assert (found, why) == ({"first": "Ada"}, "it has no frame of the kind prefix")
        apicurio = given("t=/name.avsc", "t:framing=apicurio")
        [one] = apicurio.decoded(columns_of(long_id))
        assert (one.value, one.named.schema_id) == ({"first": "Ada"}, (1 << 32) + 7)


def _given(kind: str, text: str) -> TopicDecoder:
    """Returns the decoder of the topic t, whose values have this schema."""
    return _decoder_of(SuppliedSchemas({("t", False): TopicSchema(Schema(kind, text))}))


class TestFramesOfOtherRegistries:
    GUID: Final = "07b4fd29-566e-1170-b6cd-99c5871ad940"

    def test_glue(self, given: Callable[..., TopicDecoder]) -> None:
        guid = bytes.fromhex(self.GUID.replace("-", ""))
        plain, packed = b"\x03\0" + guid + ADA, b"\x03\x05" + guid + zlib.compress(ADA)
        torn = b"\x03\x05" + guid + b"torn"
        decoder = given(f"guid:{self.GUID}=/name.avsc")
        [one, other, (_, why)] = outcomes(decoder, columns_of(plain, packed, torn))
        assert one == other == {"first": "Ada"}
        assert why.startswith("not compressed with zlib")
        [row, _, _] = lines(decoder, columns_of(plain, packed, torn))
        assert (row["value"], row["valueSchemaId"]) == ({"first": "Ada"}, self.GUID)
        [(_, why)] = outcomes(given(), columns_of(plain))
        assert why == "no schema with this GUID"

    def test_apicurio(self, given: Callable[..., TopicDecoder]) -> None:
        decoder = given("id:9=/name.avsc")
        prefixed = b"\0" + struct.pack(">q", 9) + ADA
        assert outcomes(decoder, columns_of(prefixed)) == [{"first": "Ada"}]
        header = ("apicurio.value.globalId", struct.pack(">q", 9))
        [found] = decoder.decoded(columns_of(ADA, headers=[header]))
        assert (found.value, found.named.framing) == ({"first": "Ada"}, "apicurio-header")

    def test_a_header_that_names_nothing(self, given: Callable[..., TopicDecoder]) -> None:
        columns = columns_of(ADA, headers=[("__value_schema_id", b"\7")])
        [(value, why)] = outcomes(given(), columns)
        assert value == "BkFkYQ=="
        assert why == "the header __value_schema_id is neither 1 and a GUID nor 0 and an id"


class TestRegistries:
    def decoder(self, path: Path, *records: SimpleRecord, **configs: str) -> TopicDecoder:
        batch = build_batch(records, BatchFields())
        write_topic(path, [batch], topic="_schemas")
        engine = Engine(str(path), {name.replace("_", "."): each for name, each in configs.items()})
        return DecoderCatalog(engine).decoders().for_topic("t")

    def value(self, number: int) -> Columns:
        return columns_of(b"\0" + struct.pack(">i", number) + ADA)

    def test_a_missing_reference_is_the_reason_for_each_record(self, tmp_path: Path) -> None:
        text = '{"type":"record","name":"R","fields":[{"name":"a","type":"shop.Name"}]}'
        made = schema("t-value", 1, 7, text, [("shop.Name", "names", 4)])
        [(_, why)] = outcomes(self.decoder(tmp_path, made), self.value(7))
        assert why == (
            "schema 7 (t-value version 1): names version 4, to which it refers as shop.Name,"
            " is missing"
        )

    def test_a_schema_that_cannot_be_used(self, tmp_path: Path) -> None:
        made = [schema("a", 1, 1, '{"type":"recor"}'), schema("b", 1, 2, "x", schemaType="XSD")]
        decoder = self.decoder(tmp_path, *made)
        [(_, why)] = outcomes(decoder, self.value(1))
        assert why == "schema 1 (a version 1): no type is named 'recor'"
        [(_, why)] = outcomes(decoder, self.value(2))
        assert why == "schema 2 (b version 1): schemas of type XSD are not decoded"

    def test_a_hard_deleted_schema_is_used_if_that_is_configured(self, tmp_path: Path) -> None:
        key = {"keytype": "SCHEMA", "subject": "t-value", "version": 1, "magic": 1}
        records = schema("t-value", 1, 7, NAME), record(key, None)
        [(_, why)] = outcomes(self.decoder(tmp_path / "a", *records), self.value(7))
        assert why == (
            "no schema with this id; it was deleted and is still on the disk (t-value version 1)"
        )
        decoder = self.decoder(tmp_path / "b", *records, kafkafs_schemas_deleted="true")
        [found] = decoder.decoded(self.value(7))
        assert found.value == {"first": "Ada"}
        assert found.named.subject == SubjectVersion("t-value", 1, SchemaDeletion.HARD)

    def test_a_schema_that_is_registered_later(self, tmp_path: Path) -> None:
        path = write_topic(tmp_path, [build_batch([schema("a", 1, 1)])], topic="_schemas")
        catalog = DecoderCatalog(Engine(str(path)))
        before = catalog.decoders()
        assert catalog.decoders() is before
        assert catalog.last is before
        [log] = (path / "_schemas-0").glob("*.log")
        with log.open("ab") as output:
            output.write(build_batch([schema("t-value", 1, 7, NAME)], BatchFields(base_offset=1)))
        after = catalog.decoders()
        assert after.number != before.number
        assert outcomes(after.for_topic("t"), self.value(7)) == [{"first": "Ada"}]
        [(_, why)] = outcomes(before.for_topic("t"), self.value(7))
        assert why == "no schema with this id"

    def test_kafkas_own_topics_name_no_schemas(self, tmp_path: Path) -> None:
        data = b"\0\1\0\5group"
        decoders = Decoders(SchemaCatalog(Engine(str(write_topic(tmp_path, [])))).schemas())
        assert outcomes(decoders.for_topic("__consumer_offsets"), columns_of(data)) == [
            "AAEABWdyb3Vw"
        ]
        [(_, why)] = outcomes(decoders.for_topic("t"), columns_of(data))
        assert why == "no schema with this id"
        # A long in 8 bytes is no id.
        assert outcomes(decoders.for_topic("t"), columns_of(bytes(8))) == ["AAAAAAAAAAA="]


@pytest.mark.parametrize(
    "datum",
    [
        b"\xfe\xff\xff\xff\x0fx",  # 2 GiB of text
        b"\xff" * 11,  # a number without an end
        b"\x01",  # a negative length
        b"\x02\xff",  # not UTF-8
        b"",
    ],
)
def test_a_hostile_datum_is_shown_as_it_is(
    given: Callable[..., TopicDecoder], datum: bytes
) -> None:
    decoder = given("t=/name.avsc")
    [found, after] = decoder.decoded(columns_of(datum, ADA))
    assert (found.kind, found.value) == raw_value(datum)
    assert found.error
    assert after.value == {"first": "Ada"}


FRAMES = (b"", b"\0\0\0\0\x07", b"\3\0" + bytes(16), b"\3\5" + bytes(16), bytes(9))
HEADER_NAMES = ("__value_schema_id", "__key_schema_id", "apicurio.value.globalId", "h")


@hypothesis_given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=30),
            st.builds(bytes.__add__, st.sampled_from(FRAMES), st.binary(max_size=40)),
            st.lists(
                st.tuples(st.sampled_from(HEADER_NAMES), st.none() | st.binary(max_size=20)),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(["AVRO", "JSON", "PROTOBUF", "OTHER"]),
    st.sampled_from([None, *Framing]),
)
def test_whatever_records_contain_each_has_a_line(
    parts: list[Any], kind: str, framing: Framing | None
) -> None:
    text = {"AVRO": NAME, "JSON": '{"type":["object","string"]}', "PROTOBUF": PROTO}.get(kind, "x")
    made = Schema(kind, text)
    topics = {("t", False): TopicSchema(made, framing)}
    supplied = SuppliedSchemas(topics, {7: made}, {UUID(int=0): made})
    decoder = _SHARED.setdefault((kind, framing), _decoder_of(supplied))
    records = [SimpleRecord(5, key, value, tuple(headers)) for key, value, headers in parts]
    [columns] = decoded(encode(RecordColumns.from_records(records), BatchPlan()).data)
    rows = lines(decoder, columns)
    text = bytes(decoded_lines(columns, "t", 3, decoder)).decode()
    assert text == "".join(map(compact, rows))
    plain = map(json.loads, bytes(json_lines(columns, "t", 3)).splitlines())
    values = decoder.decoded(columns)
    assert len(rows) == len(parts)
    for row, before, value in zip(rows, plain, values, strict=True):
        assert (row["offset"], row["headers"]) == (before["offset"], before["headers"])
        is_raw = value.kind in ("text", "binary", "null")
        assert row["value"] == (before["value"] if is_raw else value.value)
        assert ("error" in row) >= (value.error is not None)


_SHARED: dict[tuple[str, Framing | None], TopicDecoder] = {}


def _decoder_of(supplied: SuppliedSchemas) -> TopicDecoder:
    return Decoders(Schemas(supplied, empty_image())).for_topic("t")


@pytest.mark.parametrize(
    ("subjects", "record_name", "expected"),
    [
        (("a", "t-shop.R", "shop.R", "t-value"), "shop.R", "t-value"),
        (("a", "t-shop.R", "shop.R"), "shop.R", "shop.R"),
        (("a", "t-other", "t-shop.R"), "shop.R", "t-shop.R"),
        (("a", "t-other"), "shop.R", "t-other"),
        (("b", "a"), "shop.R", "a"),
        (("a", ":.staging:t-value"), "", ":.staging:t-value"),
        ((), "shop.R", None),
    ],
)
def test_the_subject_for_which_a_record_was_written(
    subjects: Sequence[str], record_name: str, expected: str | None
) -> None:
    versions = [SubjectVersion(name, 1) for name in subjects]
    found = choose_subject(versions, "t", record_name, is_key=False)
    assert (found and found.subject) == expected


def test_a_version_that_is_not_deleted_is_chosen() -> None:
    versions = [
        SubjectVersion("t-key", 1),
        SubjectVersion("t-key", 2),
        SubjectVersion("t-key", 3, SchemaDeletion.SOFT),
    ]
    assert choose_subject(versions, "t", "", is_key=True) == versions[1]


class TestLines:
    def test_lines_of_the_corpus_have_the_values_of_confluents_deserializers(
        self, engine: Engine
    ) -> None:
        text = (answers.directory("schemas43") / "decoded.jsonl").read_text()
        expected = {
            (row["topic"], row["partition"], row["offset"]): row
            for row in map(json.loads, text.splitlines())
        }
        decoders = Decoders(SchemaCatalog(engine).schemas())
        for topic, number in dict.fromkeys(place[:2] for place in expected):
            for columns in scanned(engine, topic, number):
                made = bytes(decoded_lines(columns, topic, number, decoders.for_topic(topic)))
                plain = bytes(json_lines(columns, topic, number))
                for line, raw in zip(made.splitlines(), plain.splitlines(), strict=True):
                    row, before = json.loads(line, parse_constant=pytest.fail), json.loads(raw)
                    want = expected[row["topic"], row["partition"], row["offset"]]
                    assert list(row)[:8] == list(before)
                    for name in ("key", "value"):
                        is_raw = want[name]["kind"] in ("text", "binary", "null")
                        shown = before[name] if is_raw else want[name]["value"]
                        assert row.pop(name) == shown
                        number_there = row.pop(f"{name}SchemaId", None)
                        assert number_there == want[name].get("schema_id")
                        before.pop(name)
                    why = row.pop("error", None)
                    assert row == before
                    is_wrong = "error" in want["value"] or "error" in want["key"]
                    assert why is not None or not is_wrong
                    assert is_wrong or why in (None, f"value: {BYTES_LEFT}")

    def test_what_names_no_schema_is_as_in_records_jsonl(
        self, given: Callable[..., TopicDecoder]
    ) -> None:
        columns = columns_of(b"text", b"\xff", None, b"", key=b'"k"\n', headers=[("h", b"\0\1")])
        assert decoded_lines(columns, "t", 3, given()) == json_lines(columns, "t", 3)

    def test_errors_of_both(self, given: Callable[..., TopicDecoder]) -> None:
        columns = columns_of(b"\0\0\0\0\x09x", b"text", key=b"\0\0\0\0\x08k")
        first, second = lines(given(), columns)
        assert (first["keySchemaId"], first["valueSchemaId"]) == (8, 9)
        assert first["error"] == "value: no schema with this id; key: no schema with this id"
        assert second["error"] == "key: no schema with this id"
        assert list(first)[8:] == ["keySchemaId", "valueSchemaId", "error"]

    def test_they_do_not_depend_on_how_many_are_rendered_at_a_time(
        self, given: Callable[..., TopicDecoder], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Keys and values name many schemas, fit them or not, and are longer than was expected."""
        decoder = given("id:7=/name.avsc", "t:key=/name.json")
        long = b"\x88\x27" + b"\1" * 2500
        datums = [ADA, b"\x08Ada", ADA + b"x", long, b""]
        records = [
            SimpleRecord(
                5,
                (None, b'{"first":1}', b"\0\0\0\0\x09k", b"\1" * 300)[n % 4],
                b"\0\0\0\0" + bytes([7 if n % 3 else n % 100]) + datums[n % 5],
                (("h", b"\2" * 200),) if n % 7 == 0 else (),
            )
            for n in range(300)
        ]
        [columns] = decoded(encode(RecordColumns.from_records(records), BatchPlan()).data)
        at_once = bytes(decoded_lines(columns, "t", 3, decoder))
        assert {row["error"] for row in lines(decoder, columns) if "error" in row}
        parts = [columns.slice(row, row + 1) for row in range(len(columns))]
        each = b"".join(bytes(decoded_lines(part, "t", 3, decoder)) for part in parts)
        assert each == at_once
        sizes = {"_FEW_ROWS": 0, "_BLOCK_ROWS": 7, "_PIECE_BYTES": 3000, "_SPARE_BYTES": 0}
        for name, size in sizes.items():
            monkeypatch.setattr(f"kafkafs.storage.lines.json_output.{name}", size)
        assert bytes(decoded_lines(columns, "t", 3, decoder)) == at_once
        assert bytes(json_lines(columns, "t", 3)) == b"".join(
            bytes(json_lines(part, "t", 3)) for part in parts
        )

    def test_a_key_cannot_pass_for_the_rest_of_a_line(
        self, given: Callable[..., TopicDecoder]
    ) -> None:
        key = b',"value":null,"topic":"x"}\n{"key":null'
        [row] = lines(given("t=/name.avsc"), columns_of(ADA, key=key))
        assert (row["key"], row["value"]) == (key.decode(), {"first": "Ada"})

    def test_what_json_does_not_have(self, given: Callable[..., TopicDecoder]) -> None:
        doubles = _given("AVRO", '{"type":"array","items":"double"}')
        datum = b"\x04" + struct.pack("<dd", float("nan"), float("-inf")) + b"\0"
        [row] = lines(doubles, columns_of(datum))
        assert row["value"] == ["NaN", "-Infinity"]
        deep = b"[" * 20_000 + b"]" * 20_000
        numbers = [b"NaN", b"1e999", b"9" * 5000, b'"\\ud800"', deep]
        decoder = _given("JSON", "true")
        for each in numbers:
            [row] = lines(decoder, columns_of(each))
            assert row["value"] == each.decode()
            assert row["error"].startswith("value: ")
        [row] = lines(decoder, columns_of('"é\U0001f600"'.encode()))
        assert row["value"] == "é\U0001f600"


def test_schemas_that_are_given_are_checked_at_once(tmp_path: Path) -> None:
    (tmp_path / "bad.avsc").write_text('{"type":"recor"}')
    (tmp_path / "good.avsc").write_text(NAME)
    data = str(write_topic(tmp_path / "data", []))
    check_supplied(Engine(data))
    check_supplied(Engine(data, {"kafkafs.schemas": f"t={tmp_path}/good.avsc"}))
    for text, why in (
        (f"t={tmp_path}/bad.avsc", "no type is named 'recor'"),
        (f"id:7={tmp_path}/none.avsc", "none.avsc: no such file"),
        ("t", "must be SELECTOR=FILE"),
    ):
        with pytest.raises(ConfigError, match=why):
            check_supplied(Engine(data, {"kafkafs.schemas": text}))
