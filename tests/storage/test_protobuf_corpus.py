"""The Protobuf and JSON keys and values of the corpus become what Confluent's deserializers made of
them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.framing import MessageRef, datum_of, frame
from kafkafs.storage.schemas.json_schema.decoder import JsonDecoder, compile_json_schema
from kafkafs.storage.schemas.protobuf import ProtobufDecoder, compile_protobuf
from kafkafs.storage.schemas.registry.image import RegistryImage, read_registry
from kafkafs.storage.schemas.schema import Schema
from tests import answers

Corpus = Callable[[str], Path]


@pytest.fixture
def engine(corpus: Corpus) -> Iterator[Engine]:
    with closing(Engine(str(corpus("schemas43")))) as engine:
        yield engine


class Decoders:
    """Decoders of the corpus's schemas."""

    def __init__(self, image: RegistryImage) -> None:
        self._image = image
        self._made: dict[Schema, ProtobufDecoder | JsonDecoder] = {}

    def of(self, schema: Schema) -> ProtobufDecoder | JsonDecoder:
        if schema not in self._made:
            compile_schema = compile_protobuf if schema.type == "PROTOBUF" else compile_json_schema
            self._made[schema] = compile_schema(schema, self._image.referenced(schema))
        return self._made[schema]


def test_values_equal_those_of_confluents_deserializers(engine: Engine) -> None:
    image = read_registry(engine, "_schemas")
    decoders = Decoders(image)
    equal: Counter[str] = Counter()
    expected: Counter[str] = Counter()
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    for row in map(json.loads, lines):
        record = engine.log(row["topic"], row["partition"]).view().find(row["offset"])
        for name, data in (("key", record.key), ("value", record.value)):
            kind = row[name]["kind"]
            if kind not in ("protobuf", "json") or data is None:
                continue
            expected[kind] += 1
            found = frame(data, record.headers, is_key=name == "key")
            by_id = None if found.schema_id is None else image.by_id(found.schema_id)
            schema = by_id or (image.by_guid(found.guid) if found.guid else None)
            assert schema is not None
            payload, message = datum_of(found, data, schema.type)
            decoder = decoders.of(schema)
            assert _decoded(decoder, payload, message) == row[name]["value"]
            if isinstance(decoder, ProtobufDecoder):
                assert message == tuple(row[name]["message_index"])
                assert decoder.message_names(message)[0] == row[name]["message"]
            equal[kind] += 1
    assert equal == expected == {"protobuf": 67, "json": 47}


def _decoded(decoder: ProtobufDecoder | JsonDecoder, payload: bytes, message: MessageRef) -> object:
    if isinstance(decoder, ProtobufDecoder):
        return decoder.to_json(payload, message)
    return decoder.to_json(payload)
