"""Formats records of Kafka's internal topics as text, like the decoders of kafka-dump-log.

Each decoder returns a record's key and payload as the tool prints them, None for a part that it
does not print. For an unknown key type or malformed bytes the text describes the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ...errors import CorruptError
from ..primitives import decode_utf8
from .fields import Fields
from .message import Message, Schema, parse_schemas, to_json
from .metadata import FRAME_VERSION
from .schemas import group_coordinator, metadata, share_coordinator, transaction_coordinator

#: Takes offset, key and value of a record, and returns the printed key and payload.
RecordDecoder = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]

_TYPE_BYTES: Final = 2
# Printed for a null value, which is a tombstone for the key.
_DELETED: Final = "<DELETE>"


def as_text(offset: int, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Decodes key and value as UTF-8, for any other topic (`StringDecoder`)."""
    return _text(key), _text(value)


def _text(data: bytes | None) -> str | None:
    return None if data is None else decode_utf8(data)


def offsets_decoder() -> RecordDecoder:
    """Returns the decoder of `__consumer_offsets` (`OffsetsMessageParser`)."""
    schemas = parse_schemas(group_coordinator.SCHEMAS)
    by_name = {schema.name: schema for schema in schemas}
    return _coordinator(schemas, partial(_open_members, by_name))


def transaction_log_decoder() -> RecordDecoder:
    """Returns the decoder of `__transaction_state` (`TransactionLogMessageParser`)."""
    return _coordinator(parse_schemas(transaction_coordinator.SCHEMAS))


def share_group_state_decoder() -> RecordDecoder:
    """Returns the decoder of `__share_group_state` (`ShareGroupStateMessageParser`)."""
    return _coordinator(parse_schemas(share_coordinator.SCHEMAS))


def cluster_metadata_decoder() -> RecordDecoder:
    """Returns the decoder of `__cluster_metadata` (`ClusterMetadataLogMessageParser`)."""
    schemas = {schema.number: schema for schema in parse_schemas(metadata.SCHEMAS)}

    def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[None, str]:
        try:
            return None, _metadata(schemas, value or b"")
        except CorruptError as error:
            return None, f"Error at {offset}, skipping. {error.what}"

    return decode


#: Topic name to the function that returns its decoder.
DECODERS: Final[Mapping[str, Callable[[], RecordDecoder]]] = {
    "__consumer_offsets": offsets_decoder,
    "__transaction_state": transaction_log_decoder,
    "__share_group_state": share_group_state_decoder,
    "__cluster_metadata": cluster_metadata_decoder,
}


def _metadata(schemas: Mapping[int, Schema], value: bytes) -> str:
    """Formats a value: frame version, then message number, version and content
    (`MetadataRecordSerde`)."""
    fields = Fields(value)
    if (frame := fields.unsigned_varint()) != FRAME_VERSION:
        raise CorruptError(f"metadata record has frame version {frame}, expected {FRAME_VERSION}")
    number, version = fields.unsigned_varint(), fields.unsigned_varint()
    schema = schemas.get(number)
    if schema is None:
        raise CorruptError(f"unknown metadata record type {number}")
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name).upper()
    data = schema.read(fields.rest(), version)
    return to_json({"type": name, "version": version, "data": data})


def _coordinator(
    schemas: Sequence[Schema], finish: Callable[[Message], object] | None = None
) -> RecordDecoder:
    """Returns the decoder of a coordinator's topic, whose keys start with their type and values
    with their version (`CoordinatorRecordSerde`). `finish` modifies a value's message in place."""
    keys = {schema.number: schema for schema in schemas if schema.name.endswith("Key")}
    values = {schema.number: schema for schema in schemas if schema.name.endswith("Value")}

    def value_text(number: int, value: bytes) -> str:
        version = Fields(value).int16()
        data = values[number].read(memoryview(value)[_TYPE_BYTES:], version)
        if finish is not None:
            finish(data)
        return to_json({"version": str(version), "data": data})

    def decode(
        offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[str | None, str | None]:
        try:
            if key is None:
                raise CorruptError("the record has no key")
            number = Fields(key).int16()
            if number not in keys:
                return f"Unknown record type {number} at offset {offset}, skipping.", None
            data = keys[number].read(memoryview(key)[_TYPE_BYTES:], 0)
            payload = _DELETED if value is None else value_text(number, value)
            return to_json({"type": str(number), "data": data}), payload
        except CorruptError as error:
            return f"Error at offset {offset}, skipping. {error.what}", None

    return decode


def _open_members(schemas: Mapping[str, Schema], message: Message) -> None:
    """Decodes the subscriptions and assignments of a classic consumer group's members in place,
    where they are valid."""
    if message.get("protocolType") != "consumer":
        return
    for member in message["members"]:
        for field, name in _MEMBERS_OWN.items():
            with suppress(CorruptError):  # leaves the bytes as they are
                data, schema = member[field], schemas[name]
                version = min(Fields(data).int16(), schema.versions[1])
                member[field] = schema.read(data[_TYPE_BYTES:], version)


_MEMBERS_OWN: Final = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}
