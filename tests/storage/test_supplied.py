"""Schemas that users give as files."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from kafkafs.storage.errors import ConfigError, MissingReference, SchemaError, StorageError
from kafkafs.storage.log_dirs.log_dirs import absolute_configs
from kafkafs.storage.schemas.framing import Framing
from kafkafs.storage.schemas.protobuf.decoder import compile_protobuf
from kafkafs.storage.schemas.supplied import SuppliedSchemas, parse_supplied

GUID = "07b4fd29-566e-1170-b6cd-99c5871ad940"
NOTE = 'syntax = "proto3"; package shop; message Note { string text = 1; }'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text('"string"')
    (tmp_path / "key.json").write_text("\ufeff{}")
    (tmp_path / "note.proto").write_text(NOTE)
    return tmp_path


def test_what_each_selector_means(files: Path) -> None:
    found = parse_supplied(
        f"orders={files}/order.avsc, orders:key={files}/key.json,orders:key:framing=none,"
        f"notes:value={files}/note.proto,notes:message=shop.Note,notes:framing=apicurio,"
        f"id:17={files}/order.avsc,guid:{GUID}={files}/order.avsc,plain:framing=auto"
    )
    order = found.of_topic("orders", is_key=False)
    assert order is not None
    assert order.framing is None
    assert order.schema is not None
    assert (order.schema.type, order.schema.text, order.schema.id) == ("AVRO", '"string"', None)
    assert order.schema.name == f"{files}/order.avsc"
    key = found.of_topic("orders", is_key=True)
    assert key is not None
    assert key.schema is not None
    assert (key.schema.type, key.schema.text, key.framing) == ("JSON", "{}", Framing.NONE)
    note = found.of_topic("notes", is_key=False)
    assert note is not None
    assert note.schema is not None
    assert (note.schema.message, note.framing) == ("shop.Note", Framing.APICURIO)
    assert found.ids == {17: order.schema}
    assert found.guids == {UUID(GUID): order.schema}
    plain = found.of_topic("plain", is_key=False)
    assert plain is not None
    assert (plain.schema, plain.framing) == (None, None)
    assert found.of_topic("notes", is_key=True) is None
    assert len(list(found.all())) == 5


def test_a_settings_file_has_the_same_entries_and_paths_from_its_directory(files: Path) -> None:
    (files / "schemas.properties").write_text(
        f"# schemas\norders:key = key.json\norders={files}/order.avsc\nid:17=order.avsc\n"
    )
    found = parse_supplied(f"@{files}/schemas.properties,id:18={files}/key.json")
    assert set(found.topics) == {("orders", True), ("orders", False)}
    assert set(found.ids) == {17, 18}


@pytest.mark.parametrize("line", ["orders", "orders=", "@more.properties"])
def test_a_line_of_a_settings_file_without_a_file(files: Path, line: str) -> None:
    (files / "schemas.properties").write_text(f"{line}\n")
    with pytest.raises(ConfigError) as caught:
        parse_supplied(f"@{files}/schemas.properties")
    why = f"{files}/schemas.properties: {line.rstrip('=')}: must be SELECTOR=FILE, such as orders="
    assert str(caught.value).startswith(f"kafkafs.schemas: {why}")


def test_files_that_a_proto_file_imports(files: Path) -> None:
    (files / "shop" / "v1").mkdir(parents=True)
    (files / "shop" / "v1" / "order.proto").write_text(
        'syntax = "proto3"; package shop; // import "commented.proto";\n'
        'import "note.proto"; import public "shop/v1/line.proto";\n'
        'import "google/protobuf/timestamp.proto";\n'
        "message Order { Note note = 1; Line line = 2; }"
    )
    (files / "shop" / "v1" / "line.proto").write_text(
        'syntax = "proto3"; package shop; import "note.proto"; message Line { Note note = 1; }'
    )
    found = parse_supplied(f"orders={files}/shop/v1/order.proto")
    [schema] = found.all()
    referenced = found.referenced(schema)
    assert list(referenced) == ["note.proto", "shop/v1/line.proto"]
    datum = b"\x0a\x04\x0a\x02hi\x12\x06\x0a\x04\x0a\x02ho"
    made = compile_protobuf(schema, referenced).to_json(datum)
    assert made == {"note": {"text": "hi"}, "line": {"note": {"text": "ho"}}}


def test_files_that_import_each_other(files: Path) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        text = f'syntax = "proto3"; import "{other}.proto";'
        (files / f"{one}.proto").write_text(text)
    found = parse_supplied(f"t={files}/a.proto")
    [schema] = found.all()
    with pytest.raises(SchemaError, match="imports itself"):
        found.referenced(schema)


def test_a_descriptor_set(files: Path) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    files_in_set = FileDescriptorSet()
    file = files_in_set.file.add(name="n.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Note").field.add(name="text", number=1, type=9, label=1)
    (files / "note.desc").write_bytes(files_in_set.SerializeToString())
    [schema] = parse_supplied(f"notes={files}/note.desc").all()
    assert compile_protobuf(schema, {}).to_json(b"\x0a\x02hi") == {"text": "hi"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("orders", "orders: must be SELECTOR=FILE, such as orders=order.avsc, or @FILE"),
        ("orders=", "orders=: must be SELECTOR=FILE, such as orders=order.avsc, or @FILE"),
        ("a/b=x.avsc", "a/b: must be TOPIC, TOPIC:key"),
        ("id:x=x.avsc", "id:x: must be TOPIC, TOPIC:key"),
        ("guid:7=x.avsc", "guid:7: must be TOPIC, TOPIC:key"),
        ("orders:keys=x.avsc", "orders:keys: must be TOPIC, TOPIC:key"),
        ("orders:framing=v9", "orders:framing: must be one of auto, none, prefix, header, glue"),
        ("orders:message=M", "orders:message: no Protobuf schema is given for this topic"),
    ],
)
def test_an_entry_that_means_nothing(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_supplied(text)
    assert str(caught.value).startswith(f"kafkafs.schemas: {why}")


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("none.avsc", None, "no such file"),
        ("a.txt", b"", "the name of a schema must end in one of .avsc, .proto, .json, .desc"),
        ("a.avsc", b"\xff", "not UTF-8 at position 0"),
        ("a.proto", b'import "/etc/passwd";', "it imports /etc/passwd, which is not below"),
        ("a.proto", b'import "../up.proto";', "it imports ../up.proto, which is not below"),
        ("a.proto", b'import "no.proto";', "no.proto, which it imports, is missing"),
    ],
)
def test_a_file_that_cannot_be_used(
    tmp_path: Path, name: str, data: bytes | None, why: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises((SchemaError, MissingReference)) as caught:
        parse_supplied(f"t={tmp_path}/{name}")
    assert str(caught.value).startswith(f"{tmp_path}/{name}: {why}")


def test_a_directory_is_no_schema(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").mkdir()
    with pytest.raises((StorageError, OSError)) as caught:
        parse_supplied(f"t={tmp_path}/a.avsc")
    assert f"{tmp_path}/a.avsc" in str(caught.value)


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch, files: Path) -> None:
    monkeypatch.chdir(files)
    text = "orders=order.avsc, @all.properties,t:message=shop.Note,t:framing=none,t=/x/y.avsc"
    found = absolute_configs([("kafkafs.schemas", text)])
    assert found["kafkafs.schemas"].split(",") == [
        f"orders={files}/order.avsc",
        f"@{files}/all.properties",
        *("t:message=shop.Note", "t:framing=none", "t=/x/y.avsc"),
    ]
    assert parse_supplied("orders=order.avsc") != SuppliedSchemas()
