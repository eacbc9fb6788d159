"""Records of a coordinator's topic: keys that start with their type, values with their version
(Kafka's CoordinatorRecordSerde)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ...errors import CorruptError
from .fields import Fields
from .message import Message, MessageSchema, parse_schemas
from .schemas import group_coordinator, share_coordinator
from .writing import encode_message

_TYPE_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """A record's type `number`, its key, and its value, None for a tombstone."""

    number: int
    key: Message
    value: Message | None


class CoordinatorRecords:
    """Reads and encodes the records that a coordinator's schemas describe. `keys`, `values`: the
    schemas by type number; `by_name`: all schemas."""

    def __init__(self, schemas: Sequence[MessageSchema]) -> None:
        self.by_name = {each.name: each for each in schemas}
        self.keys = {each.number: each for each in schemas if each.name.endswith("Key")}
        self.values = {each.number: each for each in schemas if each.name.endswith("Value")}

    def number(self, key: bytes | None) -> int:
        """Returns the type of a record. Raises CorruptError if it has no key, or a truncated
        one."""
        if key is None:
            raise CorruptError("the record has no key")
        return Fields(key).int16()

    def read(self, key: bytes | None, value: bytes | None) -> CoordinatorRecord:
        """Reads a record. Raises CorruptError if it is malformed or of an unknown type."""
        number = self.number(key)
        if number not in self.keys:
            raise CorruptError(f"unknown record type {number}")
        assert key is not None
        message = self.read_key(number, key)
        return CoordinatorRecord(
            number, message, None if value is None else self.read_value(number, value)[1]
        )

    def read_key(self, number: int, key: bytes) -> Message:
        """Reads the key of a record of a known type. Raises CorruptError if it is malformed."""
        return self.keys[number].read(memoryview(key)[_TYPE_BYTES:], 0)

    def read_value(self, number: int, value: bytes) -> tuple[int, Message]:
        """Reads the value of a record of a known type; returns its version, too. Raises
        CorruptError if it is malformed."""
        version = Fields(value).int16()
        return version, self.values[number].read(memoryview(value)[_TYPE_BYTES:], version)

    def encode_key(self, number: int, key: Message) -> bytes:
        """Encodes the key of a record. Raises ValueError as `encode_message` does."""
        return _int16(number) + encode_message(self.keys[number], key, 0)

    def encode_value(self, number: int, value: Message, version: int) -> bytes:
        """Encodes the value of a record. Raises ValueError as `encode_message` does."""
        return _int16(version) + encode_message(self.values[number], value, version)


def _int16(number: int) -> bytes:
    return number.to_bytes(_TYPE_BYTES, "big", signed=True)


@lru_cache(maxsize=1)
def group_coordinator_records() -> CoordinatorRecords:
    """Returns the reader of `__consumer_offsets`."""
    return CoordinatorRecords(parse_schemas(group_coordinator.SCHEMAS))


@lru_cache(maxsize=1)
def share_coordinator_records() -> CoordinatorRecords:
    """Returns the reader of `__share_group_state`."""
    return CoordinatorRecords(parse_schemas(share_coordinator.SCHEMAS))


def open_members(schemas: Mapping[str, MessageSchema], message: Message) -> None:
    """Decodes in place what the members of a classic consumer group have in the consumer protocol.
    `message`: a GroupMetadataValue; `schemas`: those of that protocol by name."""
    if message.get("protocolType") == "consumer":
        message["members"] = [opened_member(schemas, each) for each in message["members"]]


def opened_member(schemas: Mapping[str, MessageSchema], member: Message) -> Message:
    """Returns a member of a classic consumer group with its subscription and its assignment
    decoded, if these are valid. `schemas`: those of the consumer protocol by name."""
    opened = dict(member)
    for field, name in _MEMBERS_OWN.items():
        with suppress(CorruptError):  # leaves the bytes as they are
            data, schema = member[field], schemas[name]
            version = min(Fields(data).int16(), schema.versions[1])
            opened[field] = schema.read(data[_TYPE_BYTES:], version)
    return opened


_MEMBERS_OWN: Final = {
    "subscription": "ConsumerProtocolSubscription",
    "assignment": "ConsumerProtocolAssignment",
}
