"""Encodes Kafka's messages by schema: the inverse of `MessageSchema.read`.

A message is as `MessageSchema.read` returns it: the fields that the version has, and only those
tagged fields whose value is not the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct, error
from typing import Any, Final

from ..primitives import uuid_bytes
from .message import NO_TAG, Message, MessageSchema, SchemaField

_FORMS: Final[Mapping[str, Struct]] = {
    "int8": Struct(">b"),
    "int16": Struct(">h"),
    "uint16": Struct(">H"),
    "int32": Struct(">i"),
    "int64": Struct(">q"),
    "float64": Struct(">d"),
    "boolean": Struct(">?"),
}
_NULL_STRUCT: Final = (b"\xff", b"\x01")  # untagged: null, not null
_NULL_TAGGED: Final = (b"\x00", b"\x01")
_SEVEN_BITS: Final = 0x7F


def encode_message(schema: MessageSchema, message: Message, version: int) -> bytes:
    """Encodes a message in a version of its schema. Raises ValueError if the schema has no such
    version, or for a message that lacks one of its fields or has a value that does not fit."""
    if not schema.versions[0] <= version <= schema.versions[1]:
        raise ValueError(f"unknown version {version} of {schema.name}")
    writer = _Compact if version >= schema.flexible_from else _Classic
    try:
        return writer.struct(schema.parts, message, version)
    except (KeyError, error, AttributeError, TypeError) as wrong:
        raise ValueError(f"not a message of {schema.name}: {wrong}") from wrong


def unsigned_varint(value: int) -> bytes:
    """Encodes a number that is not negative, the lowest seven bits first."""
    out = bytearray()
    while value > _SEVEN_BITS:
        out.append(value & _SEVEN_BITS | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Compact:
    """The flexible encoding (see `fields.py`)."""

    @classmethod
    def struct(cls, parts: tuple[SchemaField, ...], message: Message, version: int) -> bytes:
        there = [part for part in parts if part.is_in(version)]
        plain = [part for part in there if part.tag == NO_TAG]
        values = [cls.value(part, message[part.name], version) for part in plain]
        return b"".join(values) + cls.tags(there, message, version)

    @classmethod
    def tags(cls, there: list[SchemaField], message: Message, version: int) -> bytes:
        tagged = [
            part
            for part in sorted(there, key=lambda part: part.tag)
            if part.tag != NO_TAG and message.get(part.name, part.default) != part.default
        ]
        out = [unsigned_varint(len(tagged))]
        for part in tagged:
            data = cls.value(part, message[part.name], version)
            out += unsigned_varint(part.tag), unsigned_varint(len(data)), data
        return b"".join(out)

    @classmethod
    def value(cls, part: SchemaField, value: Any, version: int) -> bytes:
        if value is None and not part.is_nullable:
            raise TypeError(f"{part.name} is null")
        if part.is_array:
            if value is None:
                return cls.array_size(-1)
            return cls.array_size(len(value)) + b"".join(
                cls.element(part, each, version) for each in value
            )
        if part.kind == "struct" and part.is_nullable:
            null, present = _NULL_STRUCT if part.tag == NO_TAG else _NULL_TAGGED
            return null if value is None else present + cls.element(part, value, version)
        return cls.element(part, value, version)

    @classmethod
    def element(cls, part: SchemaField, value: Any, version: int) -> bytes:
        if part.kind == "struct":
            return cls.struct(part.parts, value, version)
        return _WRITERS[part.kind](cls, value)

    @classmethod
    def string(cls, value: str | None) -> bytes:
        data = b"" if value is None else value.encode()
        return cls.string_size(-1 if value is None else len(data)) + data

    @classmethod
    def bytes_(cls, value: bytes | None) -> bytes:
        return cls.bytes_size(-1 if value is None else len(value)) + (value or b"")

    @classmethod
    def array_size(cls, size: int) -> bytes:
        return unsigned_varint(size + 1)

    @classmethod
    def string_size(cls, size: int) -> bytes:
        return unsigned_varint(size + 1)

    @classmethod
    def bytes_size(cls, size: int) -> bytes:
        return unsigned_varint(size + 1)


class _Classic(_Compact):
    """The classic encoding."""

    @classmethod
    def tags(cls, there: list[SchemaField], message: Message, version: int) -> bytes:
        return b""

    @classmethod
    def array_size(cls, size: int) -> bytes:
        return _FORMS["int32"].pack(size)

    @classmethod
    def string_size(cls, size: int) -> bytes:
        return _FORMS["int16"].pack(size)

    @classmethod
    def bytes_size(cls, size: int) -> bytes:
        return _FORMS["int32"].pack(size)


_Write = Callable[[type[_Compact], Any], bytes]


def _number(form: Struct) -> _Write:
    return lambda _, value: form.pack(value)


_WRITERS: Final[Mapping[str, _Write]] = {
    **{kind: _number(form) for kind, form in _FORMS.items()},
    "uuid": lambda _, value: uuid_bytes(value),
    "string": lambda writer, value: writer.string(value),
    "bytes": lambda writer, value: writer.bytes_(value),
}
