"""The registry that is read from its topic: as the registry itself had it, and what it no longer
had."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.errors import MissingReference, SchemaError, UnknownSchema
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.request import PartitionFailed
from kafkafs.storage.operations.schemas import ListedSchema, ListSchemas, list_schemas, registry_of
from kafkafs.storage.schemas.registry.image import RegistryImage, read_registry
from kafkafs.storage.schemas.schema import SchemaDeletion
from tests import answers
from tests.building import BatchFields, build_batch
from tests.conftest import Corpora
from tests.logs import write_log_dir, write_partition
from tests.registry_records import record, schema

Answer = Mapping[str, Any]


@pytest.fixture(scope="module")
def expected() -> Answer:
    """What the registry's state was."""
    answer: Answer = json.loads((answers.directory("schemas43") / "registry.json").read_text())
    return answer


@pytest.fixture(scope="module")
def image(corpora: Corpora) -> RegistryImage:
    return registry_of(Engine(str(corpora.path("schemas43"))))


# -- the corpus ------------------------------------------------------------------------------------


def test_subjects_and_versions(image: RegistryImage, expected: Answer) -> None:
    found: defaultdict[str, dict[str, Answer]] = defaultdict(dict)
    for (subject, number), version in image.versions_by_key.items():
        is_deleted = version.deletion is SchemaDeletion.SOFT
        found[subject][str(number)] = {"id": version.schema.id, "deleted": is_deleted}
    assert found == expected["subjects"]
    assert image.problems == []


def test_schemas_by_id_and_guid(image: RegistryImage, expected: Answer) -> None:
    for number, answer in expected["schemas"].items():
        schema = image.by_id(int(number))
        assert schema is not None
        assert {
            "schemaType": str(schema.type),
            "guid": str(schema.guid),
            "references": [[each.name, each.subject, each.version] for each in schema.references],
            "schema": schema.text,
        } == answer
        assert image.by_guid(UUID(answer["guid"])) == schema
        names = set(image.referenced(schema))
        assert {name for name, _, _ in answer["references"]} <= names


def test_settings(image: RegistryImage, expected: Answer) -> None:
    assert image.compatibility == expected["compatibility"]
    assert image.modes == expected["mode"]


def test_what_was_deleted_for_good(image: RegistryImage, expected: Answer) -> None:
    gone = {
        str(each.schema.id): each.schema.text
        for each in image.versions
        if each.deletion is SchemaDeletion.HARD
    }
    assert gone == expected["gone"]
    for number, text in gone.items():
        assert image.by_id(int(number)) is None
        assert "it was deleted and is still on the disk" in image.missing(int(number), None)
        found = image.including_deleted().by_id(int(number))
        assert found is not None
        assert found.text == text


def test_usage(corpora: Corpora) -> None:
    """As many records as Confluent's deserializers found to name each schema."""
    named: Counter[tuple[int, str, str]] = Counter()
    for line in (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines():
        row = json.loads(line)
        for field in ("key", "value"):
            if "schema_id" in row[field]:
                named[row[field]["schema_id"], row["topic"], field] += 1
    engine = Engine(str(corpora.path("schemas43")))
    found: Counter[tuple[int, str, str]] = Counter()
    for each in list_schemas(engine, ListSchemas(with_usage=True)):
        assert isinstance(each, ListedSchema)
        schema_id = each.version.schema.id
        assert schema_id is not None
        for use in each.uses or ():
            found[schema_id, use.topic, use.field] = use.records
    # Ids that no schema has ever had are in no row.
    assert found == Counter({key: n for key, n in named.items() if key[0] in range(1, 18)})


# -- topics of our own -----------------------------------------------------------------------------


def registry(directory: Path, *records: SimpleRecord, topic: str = "_schemas") -> RegistryImage:
    """Writes the topic, a batch for each record, and reads it."""
    batches = [build_batch([each], BatchFields(base_offset=n)) for n, each in enumerate(records)]
    write_log_dir(directory, {(topic, 0): len(records)})
    write_partition(directory / f"{topic}-0", batches)
    return read_registry(Engine(str(directory)), topic)


def test_a_version_that_was_deleted_and_registered_again(tmp_path: Path) -> None:
    key = {"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1}
    image = registry(
        tmp_path,
        schema("s", 1, 1, '"int"'),
        record(key, None),
        schema("s", 1, 2, '"long"'),
    )
    assert [(each.schema.text, each.deletion) for each in image.of_subject("s")] == [
        ('"int"', SchemaDeletion.HARD),
        ('"long"', SchemaDeletion.NONE),
    ]
    newest = image.newest("s")
    assert newest is not None
    assert newest.text == '"long"'


def test_contexts_and_aliases(tmp_path: Path) -> None:
    config = {"keytype": "CONFIG", "subject": "alias", "magic": 0}
    image = registry(
        tmp_path,
        schema("s", 1, 7, '"int"'),
        schema(":.other:s", 1, 7, '"long"'),
        record(config, {"alias": "s"}),
    )
    texts = {}
    for subject in ("", "s", ":.other:s"):
        found = image.by_id(7, subject)
        assert found is not None
        texts[subject] = found.text
    assert texts == {"": '"int"', "s": '"int"', ":.other:s": '"long"'}
    assert image.newest("alias") == image.newest("s")


def test_references_that_are_missing_or_form_a_cycle(tmp_path: Path) -> None:
    image = registry(
        tmp_path,
        schema("a", 1, 1, references=[("B", "b", 1)]),
        schema("b", 1, 2, references=[("A", "a", 1)]),
        schema("c", 1, 3, references=[("D", "d", 4)]),
    )
    cyclic, missing = image.newest("a"), image.newest("c")
    assert cyclic is not None
    assert missing is not None
    with pytest.raises(SchemaError, match="its references form a cycle: B → A → B"):
        image.referenced(cyclic)
    with pytest.raises(MissingReference, match="d version 4, to which it refers as D, is missing"):
        image.referenced(missing)


def test_an_id_with_two_texts(tmp_path: Path) -> None:
    image = registry(tmp_path, schema("a", 1, 1, '"int"'), schema("b", 1, 1, '"long"'))
    [problem] = image.problems
    assert "id 1 has two texts, of a version 1 and of b version 1" in str(problem)
    found = image.by_id(1)
    assert found is not None
    assert found.text == '"int"'


def test_an_unknown_subject_suggests_the_nearest(tmp_path: Path) -> None:
    image = registry(tmp_path, schema("orders-value", 1, 1))
    with pytest.raises(UnknownSchema, match="no subject order-value; did you mean orders-value"):
        image.of_subject("order-value")


def test_another_topic(tmp_path: Path) -> None:
    registry(tmp_path, schema("s", 1, 1), topic="registry")
    assert registry_of(Engine(str(tmp_path))).versions == []
    named = Engine(str(tmp_path), {"kafkafs.schemas.topic": "registry"})
    assert [each.subject for each in registry_of(named).versions] == ["s"]


def test_damage_hides_no_other_schema(tmp_path: Path) -> None:
    registry(tmp_path, *(schema(f"s{number}", 1, number) for number in range(1, 6)))
    log = tmp_path / "_schemas-0" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    at = data.index(b"s3")
    data[at] ^= 0xFF
    log.write_bytes(data)
    rows = list(list_schemas(Engine(str(tmp_path)), ListSchemas()))
    assert [type(row) for row in rows].count(PartitionFailed) == 1
    found = [row.version.subject for row in rows if isinstance(row, ListedSchema)]
    assert found == ["s1", "s2", "s4", "s5"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = st.fixed_dictionaries(
    {"keytype": st.sampled_from(["SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CONTEXT", "X"])},
    optional={
        "subject": st.sampled_from(["a", "b\n../", ":.c:a", ""]) | JSON,
        "version": st.integers(-2, 3) | JSON,
        "magic": st.just(1) | JSON,
    },
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "subject": st.sampled_from(["a", "b\n../", ":.c:a", ""]) | JSON,
        "version": st.integers(-2, 3) | JSON,
        "id": st.integers(-1, 3) | JSON,
        "schema": st.sampled_from(['"int"', "{"]) | JSON,
        "schemaType": st.sampled_from(["AVRO", "PROTOBUF", "X"]) | JSON,
        "references": JSON,
        "deleted": st.booleans() | JSON,
        "alias": JSON,
        "compatibilityLevel": JSON,
        "mode": JSON,
    },
)
RECORDS = st.builds(
    SimpleRecord,
    st.just(1000),
    st.binary(max_size=8) | KEYS.map(lambda key: json.dumps(key).encode()),
    st.none() | st.binary(max_size=8) | VALUES.map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(RECORDS, max_size=6))
def test_any_records_are_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, records: list[SimpleRecord]
) -> None:
    image = registry(tmp_path_factory.mktemp("fuzz"), *records)
    for each in image.versions:
        assert each in image.of_subject(each.subject)
        with suppress(SchemaError):
            image.referenced(each.schema)
    assert all("\n" not in str(problem) for problem in image.problems)
