"""The Avro keys and values of the corpus become what Confluent's deserializers made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkafs.storage.errors import BytesLeft, DatumError
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.avro.decoder import AvroDecoder, compile_avro
from kafkafs.storage.schemas.avro.resolution import resolve
from kafkafs.storage.schemas.framing import datum_of, frame
from kafkafs.storage.schemas.registry.image import RegistryImage, read_registry
from kafkafs.storage.schemas.schema import Schema
from tests import answers

Corpus = Callable[[str], Path]


class Avro:
    """Decoders of the corpus's schemas."""

    def __init__(self, image: RegistryImage) -> None:
        self.image = image
        self._made: dict[Schema, AvroDecoder] = {}

    def decoder(self, schema: Schema) -> AvroDecoder:
        if schema not in self._made:
            self._made[schema] = compile_avro(schema, self.image.referenced(schema))
        return self._made[schema]


@pytest.fixture
def engine(corpus: Corpus) -> Iterator[Engine]:
    with closing(Engine(str(corpus("schemas43")))) as engine:
        yield engine


def payloads(engine: Engine, avro: Avro) -> Iterator[tuple[dict[str, Any], Schema, bytes]]:
    """Yields each Avro key and value with its schema and what is expected of it."""
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        record = engine.log(row["topic"], row["partition"]).view().find(row["offset"])
        for name, data in (("key", record.key), ("value", record.value)):
            if "guid" not in row[name] or data is None:
                continue
            found = frame(data, record.headers, is_key=name == "key")
            by_id = None if found.schema_id is None else avro.image.by_id(found.schema_id)
            schema = by_id or (avro.image.by_guid(found.guid) if found.guid else None)
            assert schema is not None
            if schema.type == "AVRO":
                yield row[name] | {"topic": row["topic"]}, schema, datum_of(found, data, "AVRO")[0]


def test_values_equal_those_of_confluents_deserializers(engine: Engine) -> None:
    avro = Avro(read_registry(engine, "_schemas"))
    outcomes = {"equal": 0, "left over": 0, "error": 0}
    for expected, schema, payload in payloads(engine, avro):
        try:
            found = avro.decoder(schema).to_json(payload)
            outcomes["equal"] += 1
        except BytesLeft as error:  # they take no notice of it
            found = error.value
            outcomes["left over"] += 1
        except DatumError:
            assert expected["error"].startswith("cannot decode")
            outcomes["error"] += 1
            continue
        assert "error" not in expected
        assert found == expected["value"]
    assert outcomes == {"equal": 279, "left over": 6, "error": 6}


def test_columns_of_the_newest_schema_take_older_versions(engine: Engine) -> None:
    """Fields that version 2 does not have any more are left out, new ones have their defaults."""
    avro = Avro(read_registry(engine, "_schemas"))
    newest = avro.image.newest("s-avro-value")
    assert newest is not None
    reader = avro.decoder(newest).type
    versions = set()
    for expected, schema, payload in payloads(engine, avro):
        if expected["topic"] != "s-avro":
            continue
        versions.add(expected["version"])
        columns = resolve(avro.decoder(schema).type, reader)
        values, errors = columns.build(memoryview(payload), np.array([[0, len(payload)]]))
        values.validate(full=True)
        assert errors.to_pylist() == [None]
        row, value = values[0].as_py(), expected["value"]
        assert "f" not in row
        assert row["channel"] == value.get("channel", "web")
        assert (row["id"], row["n"], row["status"]) == (value["id"], value["n"], value["status"])
        assert (str(row["total"]), str(row["rate"])) == (value["total"], value["rate"])
        assert dict(row["tags"]) == value["tags"]
        assert row["lines"] == value["lines"]
        assert row["placed"].isoformat(timespec="milliseconds")[:23] + "Z" == value["placed"]
        assert row["due"].isoformat() == value["due"]
    assert versions == {1, 2}
