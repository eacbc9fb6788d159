"""Kafka's messages by their schema: what Kafka's generated classes read, and print as JSON.

A schema is a text, in the order of Kafka's own (KIP-482 says how each is encoded):

    OffsetCommitValue 1 versions 0-4 flexible 4+
      offset int64
      leaderEpoch int32 3+
      topicId uuid 4+ tag 0 = AAAAAAAAAAAAAAAAAAAAAA

which is: the name, the number that stands for it if there is one, the versions that there are, and
which of them are flexible. Then the fields: name, type, the versions that have it (all, if none are
named), and of a tagged field its tag and the value that is not written. `[]` before a type is an
array, `?` behind it says that it may be null; the fields of a `struct` are indented below it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from ..errors import CorruptError
from .fields import ClassicFields, Fields

Message = dict[str, Any]

_ALWAYS: Final = (0, (1 << 15) - 1)
_NO_TAG: Final = -1
_HEAD: Final = re.compile(r"(\w+)(?: (\d+))? versions (\d+)-(\d+)(?: flexible (\d+)\+)?")
_FIELD: Final = re.compile(
    r"( +)(\w+) (\[\])?(\w+)(\?)?(?: (\d+)(?:-(\d+)|\+))?(?: tag (\d+) = (.*))?"
)
_INDENT: Final = 2


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a schema. `default`: of a tagged one, the value that stands for its absence."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    versions: tuple[int, int]
    tag: int
    default: Any
    parts: tuple[Field, ...]

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]


@dataclass(frozen=True, slots=True)
class Schema:
    """`number`: what stands for the message where it is kept, -1 for nothing."""

    name: str
    number: int
    versions: tuple[int, int]
    flexible_from: int
    parts: tuple[Field, ...]

    def read(self, data: bytes | memoryview, version: int) -> Message:
        """The message in `data`, as Kafka's converters to JSON give it: fields that the version
        does not have are left out, as are tagged ones that have their default. CorruptError."""
        if not self.versions[0] <= version <= self.versions[1]:
            raise CorruptError(f"version {version} of {self.name} is not known")
        form = Fields if version >= self.flexible_from else ClassicFields
        return _struct(form(data), self.parts, version)


def parse_schemas(text: str) -> list[Schema]:
    """The schemas in a text. ValueError."""
    return [_schema(block.splitlines()) for block in text.strip().split("\n\n")]


def to_json(message: Any) -> str:
    """As Jackson writes it, without spaces."""
    if isinstance(message, dict):
        return "{" + ",".join(f"{_text(k)}:{to_json(v)}" for k, v in message.items()) + "}"
    if isinstance(message, list):
        return "[" + ",".join(map(to_json, message)) + "]"
    if isinstance(message, str):
        return _text(message)
    if isinstance(message, bytes):
        return f'"{base64.b64encode(message).decode("ascii")}"'
    if isinstance(message, float):
        return _double(message)
    return json.dumps(message)


# Reading


def _struct(fields: Fields, parts: tuple[Field, ...], version: int) -> Message:
    there = [part for part in parts if part.is_in(version)]
    plain = {part.name: _value(fields, part, version) for part in there if part.tag == _NO_TAG}
    by_tag = {part.tag: part for part in there if part.tag != _NO_TAG}
    for tag, inside in fields.tags():
        if (part := by_tag.get(tag)) is not None:
            value = _value(inside, part, version)
            if value != part.default:
                plain[part.name] = value
    return {part.name: plain[part.name] for part in there if part.name in plain}


def _value(fields: Fields, part: Field, version: int) -> Any:
    found: Any
    if part.is_array:
        found = fields.nullable_array(lambda: _element(fields, part, version))
    elif part.kind == "struct" and part.is_nullable:
        # Of a tagged one it is another number that says so (MessageDataGenerator).
        is_null = fields.int8() < 0 if part.tag == _NO_TAG else fields.unsigned_varint() == 0
        found = None if is_null else _struct(fields, part.parts, version)
    else:
        found = _element(fields, part, version)
    if found is None and not part.is_nullable:
        raise CorruptError(f"{part.name} is null")
    return found


def _element(fields: Fields, part: Field, version: int) -> Any:
    if part.kind == "struct":
        return _struct(fields, part.parts, version)
    return _READERS[part.kind](fields)


_READERS: Final[dict[str, Callable[[Fields], Any]]] = {
    "boolean": lambda fields: fields.int8() != 0,
    "int8": Fields.int8,
    "int16": Fields.int16,
    "uint16": Fields.uint16,
    "int32": Fields.int32,
    "int64": Fields.int64,
    "float64": Fields.float64,
    "uuid": Fields.uuid,
    "string": Fields.nullable_string,
    "bytes": Fields.nullable_bytes,
}


# Schemas


def _schema(lines: list[str]) -> Schema:
    head = _HEAD.fullmatch(lines[0])
    if head is None:
        raise ValueError(f"no head of a schema: {lines[0]}")
    name, number, first, last, flexible = head.groups()
    flexible_from = _ALWAYS[1] if flexible is None else int(flexible)
    parts = _parts(lines[1:], 1)
    return Schema(name, int(number or -1), (int(first), int(last)), flexible_from, parts)


def _parts(lines: list[str], depth: int) -> tuple[Field, ...]:
    """The fields that are indented so deep, with those below them."""
    return tuple(_field(own[0], own[1:], depth) for own in _split(lines, depth))


def _split(lines: list[str], depth: int) -> Iterator[list[str]]:
    start = " " * (_INDENT * depth)
    begins = [at for at, line in enumerate(lines) if line[: len(start) + 1].strip(" ")]
    if lines and 0 not in begins:
        raise ValueError(f"no field of a schema: {lines[0]}")
    for at, end in pairwise([*begins, len(lines)]):
        yield lines[at:end]


def _field(line: str, below: list[str], depth: int) -> Field:
    found = _FIELD.fullmatch(line)
    if found is None or len(found[1]) != _INDENT * depth:
        raise ValueError(f"no field of a schema: {line}")
    _, name, array, kind, null, first, last, tag, default = found.groups()
    if kind != "struct" and kind not in _READERS:
        raise ValueError(f"no type of a field: {kind}")
    parts = _parts(below, depth + 1)
    if parts and kind != "struct":
        raise ValueError(f"no field of a schema: {below[0]}")
    versions = _ALWAYS
    if first is not None:
        versions = int(first), _ALWAYS[1] if last is None else int(last)
    number = _NO_TAG if tag is None else int(tag)
    value = None if tag is None else _default(default, parts)
    return Field(name, kind, array is not None, null is not None, versions, number, value, parts)


def _default(text: str, parts: tuple[Field, ...]) -> Any:
    """What a text says: JSON, an id, or `{}` for a struct of which every field is empty."""
    if text == "{}":
        return {part.name: [] if part.is_array else _EMPTY[part.kind] for part in parts}
    try:
        return json.loads(text)
    except ValueError:
        return text


_EMPTY: Final = {"int32": 0, "string": ""}


# JSON


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


_ESCAPES: Final = {code: f"\\u{code:04X}" for code in range(0x20)} | str.maketrans(
    {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
)


def _double(value: float) -> str:
    """As Java's Double.toString: an exponent from ten million on, and below a thousandth."""
    if not isfinite(value):
        return f'"{value}"'.replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{len(rest) + exponent}"
