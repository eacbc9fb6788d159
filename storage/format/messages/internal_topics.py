"""Formats records of Kafka's internal topics as text, like the decoders of kafka-dump-log.

A record's key and payload are as the tool prints them, None for a part that it does not print. For
an unknown key type or malformed bytes the text describes the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np

from ...errors import CorruptError
from ..files.names import REMOTE_LOG_METADATA_TOPIC
from ..records.batch import Bytes, Int32s
from ..records.columns import Columns
from .coordinator_records import CoordinatorRecords, open_members
from .fields import Fields
from .message import Message, MessageSchema, parse_schemas, to_json
from .metadata import FRAME_VERSION
from .remote_log_metadata import parse_remote_log_metadata
from .schemas import group_coordinator, metadata, share_coordinator, transaction_coordinator
from .tables import DELETED, MessageTables

# Takes offset, key and value of a record, and returns the printed key and payload.
_Decode = Callable[[int, bytes | None, bytes | None], tuple[str | None, str | None]]


class RecordDecoder(Protocol):
    """Converts keys and values to text."""

    def contents(self, columns: Columns) -> tuple[Bytes, Int32s]:
        """Returns texts in UTF-8, and an array of shape (n, 4 or more), whose first columns are
        start and size in them of each record's printed key and payload; size -1 for none."""


class TextDecoder:
    """Keys and values are text already; for any other topic (`StringDecoder`)."""

    def contents(self, columns: Columns) -> tuple[Bytes, Int32s]:
        return columns.data, columns.spans


class RemoteLogMetadataDecoder:
    """Decodes values of `__remote_log_metadata`, one by one, as text
    (`RemoteMetadataLogMessageParser`). Keys are not printed."""

    def contents(self, columns: Columns) -> tuple[Bytes, Int32s]:
        texts = bytearray()
        spans = np.empty((len(columns), 4), dtype=np.int32)
        for row in range(len(columns)):
            _, text = self.decode(int(columns.offsets[row]), None, columns.value(row))
            encoded = text.encode()
            spans[row] = 0, -1, len(texts), len(encoded)
            texts += encoded
        return texts, spans

    def decode(self, offset: int, key: bytes | None, value: bytes | None) -> tuple[None, str]:
        """Returns the printed payload of a record."""
        try:
            return None, str(parse_remote_log_metadata(value))
        except CorruptError as error:
            return None, f"Error at offset {offset}, skipping. {error.what}"


@dataclass(frozen=True, slots=True)
class MessageDecoder:
    """Decodes messages. `tables` do so for nearly all records, `decode` for the others: for those
    that are malformed, of unknown type, or have something that the tables cannot express."""

    tables: MessageTables
    decode: _Decode

    def contents(self, columns: Columns) -> tuple[Bytes, Int32s]:
        texts, spans, left = self.tables.write(columns)
        if not left:
            return texts, spans
        longer = bytearray(texts)
        for row in left:
            span: list[int] = []
            offset = int(columns.offsets[row])
            for text in self.decode(offset, columns.key(row), columns.value(row)):
                encoded = b"" if text is None else text.encode()
                span += len(longer), -1 if text is None else len(encoded)
                longer += encoded
            spans[row] = span
        return longer, spans


def offsets_decoder() -> MessageDecoder:
    """Returns the decoder of `__consumer_offsets` (`OffsetsMessageParser`)."""
    schemas = parse_schemas(group_coordinator.SCHEMAS)
    by_name = {schema.name: schema for schema in schemas}
    # Its members are decoded, too.
    whole = [schema for schema in schemas if schema.name != "GroupMetadataValue"]
    decode = _coordinator(schemas, partial(open_members, by_name))
    return MessageDecoder(_coordinator_tables(whole), decode)


def transaction_log_decoder() -> MessageDecoder:
    """Returns the decoder of `__transaction_state` (`TransactionLogMessageParser`)."""
    schemas = parse_schemas(transaction_coordinator.SCHEMAS)
    return MessageDecoder(_coordinator_tables(schemas), _coordinator(schemas))


def share_group_state_decoder() -> MessageDecoder:
    """Returns the decoder of `__share_group_state` (`ShareGroupStateMessageParser`)."""
    schemas = parse_schemas(share_coordinator.SCHEMAS)
    return MessageDecoder(_coordinator_tables(schemas), _coordinator(schemas))


def cluster_metadata_decoder() -> MessageDecoder:
    """Returns the decoder of `__cluster_metadata` (`ClusterMetadataLogMessageParser`)."""
    schemas = {schema.number: schema for schema in parse_schemas(metadata.SCHEMAS)}

    def decode(offset: int, key: bytes | None, value: bytes | None) -> tuple[None, str]:
        try:
            return None, _metadata(schemas, value or b"")
        except CorruptError as error:
            return None, f"Error at {offset}, skipping. {error.what}"

    def value_text(schema: MessageSchema, version: int) -> str:
        return f'{{"type":"{_metadata_type(schema)}","version":{version},"data":'

    return MessageDecoder(
        MessageTables([], schemas.values(), lambda schema: "", value_text), decode
    )


#: Topic name to the function that returns its decoder.
DECODERS: Final[Mapping[str, Callable[[], MessageDecoder | RemoteLogMetadataDecoder]]] = {
    "__consumer_offsets": offsets_decoder,
    "__transaction_state": transaction_log_decoder,
    "__share_group_state": share_group_state_decoder,
    "__cluster_metadata": cluster_metadata_decoder,
    REMOTE_LOG_METADATA_TOPIC: RemoteLogMetadataDecoder,
}


def _metadata(schemas: Mapping[int, MessageSchema], value: bytes) -> str:
    """Formats a value: frame version, then message number, version and content
    (`MetadataRecordSerde`)."""
    fields = Fields(value)
    if (frame := fields.unsigned_varint()) != FRAME_VERSION:
        raise CorruptError(f"metadata record has frame version {frame}, expected {FRAME_VERSION}")
    number, version = fields.unsigned_varint(), fields.unsigned_varint()
    schema = schemas.get(number)
    if schema is None:
        raise CorruptError(f"unknown metadata record type {number}")
    data = schema.read(fields.rest(), version)
    return to_json({"type": _metadata_type(schema), "version": version, "data": data})


def _metadata_type(schema: MessageSchema) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name).upper()


def _coordinator_tables(schemas: Sequence[MessageSchema]) -> MessageTables:
    """Returns the tables of a coordinator's topic."""

    def value_text(schema: MessageSchema, version: int) -> str:
        return f'{{"version":"{version}","data":'

    records = CoordinatorRecords(schemas)
    return MessageTables(
        records.keys.values(),
        records.values.values(),
        lambda schema: f'{{"type":"{schema.number}","data":',
        value_text,
    )


def _coordinator(
    schemas: Sequence[MessageSchema], finish: Callable[[Message], object] | None = None
) -> _Decode:
    """Returns the decoder of a coordinator's topic, whose keys start with their type and values
    with their version (`CoordinatorRecordSerde`). `finish` modifies a value's message in place."""
    records = CoordinatorRecords(schemas)

    def value_text(number: int, value: bytes) -> str:
        version, data = records.read_value(number, value)
        if finish is not None:
            finish(data)
        return to_json({"version": str(version), "data": data})

    def decode(
        offset: int, key: bytes | None, value: bytes | None
    ) -> tuple[str | None, str | None]:
        try:
            number = records.number(key)
            if number not in records.keys:
                return f"Unknown record type {number} at offset {offset}, skipping.", None
            assert key is not None
            data = records.read_key(number, key)
            payload = DELETED if value is None else value_text(number, value)
            return to_json({"type": str(number), "data": data}), payload
        except CorruptError as error:
            return f"Error at offset {offset}, skipping. {error.what}", None

    return decode
