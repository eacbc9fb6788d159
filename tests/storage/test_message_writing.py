"""Tests of encoding messages by schema: what is encoded is read back, in every version of every
schema of Kafka's own topics."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from kafkafs.storage.format.messages.message import (
    NO_TAG,
    MessageSchema,
    SchemaField,
    parse_schemas,
)
from kafkafs.storage.format.messages.schemas import (
    group_coordinator,
    metadata,
    raft,
    share_coordinator,
    transaction_coordinator,
)
from kafkafs.storage.format.messages.writing import encode_message, unsigned_varint
from kafkafs.storage.format.primitives import uuid_text

SCHEMAS: Final = [
    schema
    for module in (group_coordinator, metadata, raft, share_coordinator, transaction_coordinator)
    for schema in parse_schemas(module.SCHEMAS)
]
BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def any_message(
    chance: random.Random, parts: tuple[SchemaField, ...], version: int
) -> dict[str, Any]:
    """Returns a message as it is read: tagged fields only with another value than the default."""
    found: dict[str, Any] = {}
    for part in parts:
        if part.is_in(version) and (part.tag == NO_TAG or chance.random() < 0.7):
            value = any_value(chance, part, version)
            if part.tag == NO_TAG or value != part.default:
                found[part.name] = value
    return found


def any_value(chance: random.Random, part: SchemaField, version: int) -> Any:
    if part.is_nullable and chance.random() < 0.3:
        return None
    if part.is_array:
        count = chance.choice((0, 1, 2) if part.kind == "struct" else (0, 1, 130))
        return [any_element(chance, part, version) for _ in range(count)]
    return any_element(chance, part, version)


def any_element(chance: random.Random, part: SchemaField, version: int) -> Any:
    kind = part.kind
    if kind == "struct":
        return any_message(chance, part.parts, version)
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "uint16":
        return chance.randrange(1 << 16)
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300))
    if kind == "uuid":
        return uuid_text(chance.randbytes(16))
    if kind == "string":
        return "".join(chance.choice("aé日😀\0") for _ in range(chance.choice((0, 1, 200))))
    if kind == "bytes":
        return chance.randbytes(chance.choice((0, 1, 200)))
    half = 1 << BITS[kind] - 1
    return chance.choice((-half, -1, 0, half - 1, chance.randrange(-half, half)))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.name)
def test_what_is_encoded_is_read_back(schema: MessageSchema) -> None:
    chance = random.Random(schema.name)
    for version in range(schema.versions[0], schema.versions[1] + 1):
        for _ in range(3):
            message = any_message(chance, schema.parts, version)
            assert schema.read(encode_message(schema, message, version), version) == message


def test_a_varint() -> None:
    """As the protocol's documentation has them."""
    encoded = {0: "00", 127: "7f", 128: "8001", 300: "ac02", (1 << 32) - 1: "ffffffff0f"}
    assert {number: unsigned_varint(number).hex() for number in encoded} == encoded


def test_what_does_not_fit() -> None:
    schema = next(each for each in SCHEMAS if each.name == "ConfigRecord")
    good = {"resourceType": 2, "resourceName": "t", "name": "n", "value": None}
    assert schema.read(encode_message(schema, good, 0), 0) == good
    for name, value in (
        ("resourceType", 128),
        ("resourceType", "2"),
        ("resourceName", None),
        ("resourceName", 5),
    ):
        with pytest.raises(ValueError, match="ConfigRecord"):
            encode_message(schema, {**good, name: value}, 0)
    with pytest.raises(ValueError, match="ConfigRecord"):
        encode_message(schema, {"name": "n"}, 0)
    with pytest.raises(ValueError, match="version 1"):
        encode_message(schema, good, 1)
