"""Reads Kafka's messages by schema and formats them as JSON, like Kafka's generated classes.

A schema is a text with the fields in the order of Kafka's own (KIP-482 defines the encoding):

    OffsetCommitValue 1 versions 0-4 flexible 4+
      offset int64
      leaderEpoch int32 3+
      topicId uuid 4+ tag 0 = AAAAAAAAAAAAAAAAAAAAAA

The head has the name, the number (if the message has one), the valid versions, and the flexible
versions. Each field has a name, a type, the versions that have it (default: all), and, if tagged, a
tag and a default value, which is not encoded. `[]` before a type is an array, `?` after it means
nullable; the fields of a `struct` are indented below it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from itertools import groupby, pairwise
from math import isfinite
from struct import Struct
from typing import Any, Final

from ...errors import CorruptError
from .fields import ClassicFields, Fields

Message = dict[str, Any]
_Reader = Callable[[Fields], Any]
_RunReader = Callable[[Fields, Message], None]

_ALWAYS: Final = (0, (1 << 15) - 1)
#: In place of the tag of a field that has none.
NO_TAG: Final = -1
_HEAD: Final = re.compile(r"(\w+)(?: (\d+))? versions (\d+)-(\d+)(?: flexible (\d+)\+)?")
_FIELD: Final = re.compile(
    r"( +)(\w+) (\[\])?(\w+)(\?)?(?: (\d+)(?:-(\d+)|\+))?(?: tag (\d+) = (.*))?"
)
_INDENT: Final = 2


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a schema. `default`: the value of a tagged field that is absent."""

    name: str
    kind: str
    is_array: bool
    is_nullable: bool
    versions: tuple[int, int]
    tag: int
    default: Any
    parts: tuple[SchemaField, ...]

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """The schema of a message. `number`: its type number in stored records, -1 if none."""

    name: str
    number: int
    versions: tuple[int, int]
    flexible_from: int
    parts: tuple[SchemaField, ...]
    # Functions that read a version, made when the first such message is read.
    _readers: dict[int, _Reader] = field(default_factory=dict, repr=False, compare=False)

    def read(self, data: bytes | memoryview, version: int) -> Message:
        """Reads the message in `data` as Kafka's JSON converters do: without the fields that the
        version lacks and the tagged fields with their default value. Raises CorruptError if it is
        malformed or of an unknown version."""
        return self.read_first(data, version)[0]

    def read_first(self, data: bytes | memoryview, version: int) -> tuple[Message, int]:
        """Reads the message at the start of `data`; also returns how many bytes follow it. Raises
        as `read` does."""
        if not self.versions[0] <= version <= self.versions[1]:
            raise CorruptError(f"unknown version {version} of {self.name}")
        form = Fields if version >= self.flexible_from else ClassicFields
        read = self._readers.get(version)
        if read is None:
            read = self._readers[version] = _struct_reader(self.parts, version)
        fields = form(data)
        return read(fields), len(fields.rest())


def parse_schemas(text: str) -> list[MessageSchema]:
    """Parses the schemas in a text. Raises ValueError if it is malformed."""
    return [_schema(block.splitlines()) for block in text.strip().split("\n\n")]


def to_json(message: Any) -> str:
    """Formats a message as Jackson does, without spaces."""
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


def _struct_reader(parts: tuple[SchemaField, ...], version: int) -> _Reader:
    """Returns a function that reads a structure of a version."""
    there = [part for part in parts if part.is_in(version)]
    runs = list(_runs([part for part in there if part.tag == NO_TAG], version))
    by_tag = {part.tag: (part, _reader(part, version)) for part in there if part.tag != NO_TAG}

    def read(fields: Fields) -> Message:
        found: Message = {}
        for read_run in runs:
            read_run(fields, found)
        in_order = True
        for tag, inside in fields.tags():
            if tag in by_tag:
                part, read_value = by_tag[tag]
                value = read_value(inside)
                if value != part.default:
                    found[part.name] = value
                    in_order = False
        if in_order:
            return found
        return {part.name: found[part.name] for part in there if part.name in found}

    return read


def _runs(parts: list[SchemaField], version: int) -> Iterator[_RunReader]:
    """Yields functions that read fields into a message: one for each run of numbers, which are read
    at once, and for each other field."""
    for is_run, group in groupby(parts, lambda part: part.kind in _FORMS and not part.is_array):
        run = list(group)
        if is_run and len(run) > 1:
            yield _run_reader(run, version)
        else:
            yield from (_field_reader(part, version) for part in run)


def _field_reader(part: SchemaField, version: int) -> _RunReader:
    name, read_value = part.name, _reader(part, version)

    def read(fields: Fields, found: Message) -> None:
        found[name] = read_value(fields)

    return read


def _run_reader(run: list[SchemaField], version: int) -> _RunReader:
    names = [part.name for part in run]
    form = Struct(">" + "".join(_FORMS[part.kind] for part in run))
    one_by_one = [_field_reader(part, version) for part in run]

    def read(fields: Fields, found: Message) -> None:
        numbers = fields.numbers(form)
        if numbers is not None:
            found.update(zip(names, numbers, strict=True))
            return
        for read_one in one_by_one:  # one of them raises the error
            read_one(fields, found)

    return read


def _reader(part: SchemaField, version: int) -> _Reader:
    """Returns a function that reads the value of a field."""
    read = _READERS.get(part.kind) or _struct_reader(part.parts, version)
    if part.is_array:
        return _array_reader(part, read)
    if part.kind == "struct":
        return _nullable_struct_reader(part, read) if part.is_nullable else read
    if part.is_nullable or part.kind in _FORMS:
        return read
    return _not_null(part.name, read)


def _not_null(name: str, read: _Reader) -> _Reader:
    def checked(fields: Fields) -> Any:
        found = read(fields)
        if found is None:
            raise CorruptError(f"{name} is null")
        return found

    return checked


def _array_reader(part: SchemaField, element: _Reader) -> _Reader:
    def read(fields: Fields) -> Any:
        return fields.nullable_array(partial(element, fields))

    return read if part.is_nullable else _not_null(part.name, read)


def _nullable_struct_reader(part: SchemaField, struct: _Reader) -> _Reader:
    def read(fields: Fields) -> Any:
        # Tagged structs encode null differently (MessageDataGenerator).
        is_null = fields.int8() < 0 if part.tag == NO_TAG else fields.unsigned_varint() == 0
        return None if is_null else struct(fields)

    return read


#: The numbers of which several can be read at once, by kind.
_FORMS: Final = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
}
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


def _schema(lines: list[str]) -> MessageSchema:
    head = _HEAD.fullmatch(lines[0])
    if head is None:
        raise ValueError(f"invalid schema head: {lines[0]}")
    name, number, first, last, flexible = head.groups()
    flexible_from = _ALWAYS[1] if flexible is None else int(flexible)
    parts = _parts(lines[1:], 1)
    return MessageSchema(name, int(number or -1), (int(first), int(last)), flexible_from, parts)


def _parts(lines: list[str], depth: int) -> tuple[SchemaField, ...]:
    """Parses the fields at this depth, with their subfields."""
    return tuple(_field(own[0], own[1:], depth) for own in _split(lines, depth))


def _split(lines: list[str], depth: int) -> Iterator[list[str]]:
    start = " " * (_INDENT * depth)
    begins = [at for at, line in enumerate(lines) if line[: len(start) + 1].strip(" ")]
    if lines and 0 not in begins:
        raise ValueError(f"invalid schema field: {lines[0]}")
    for at, end in pairwise([*begins, len(lines)]):
        yield lines[at:end]


def _field(line: str, below: list[str], depth: int) -> SchemaField:
    found = _FIELD.fullmatch(line)
    if found is None or len(found[1]) != _INDENT * depth:
        raise ValueError(f"invalid schema field: {line}")
    _, name, array, kind, null, first, last, tag, default = found.groups()
    if kind != "struct" and kind not in _READERS:
        raise ValueError(f"unknown field type: {kind}")
    parts = _parts(below, depth + 1)
    if parts and kind != "struct":
        raise ValueError(f"invalid schema field: {below[0]}")
    versions = _ALWAYS
    if first is not None:
        versions = int(first), _ALWAYS[1] if last is None else int(last)
    number = NO_TAG if tag is None else int(tag)
    value = None if tag is None else _default(default, parts)
    return SchemaField(
        name, kind, array is not None, null is not None, versions, number, value, parts
    )


def _default(text: str, parts: tuple[SchemaField, ...]) -> Any:
    """Parses a default: JSON, a UUID, or `{}` for a struct whose fields are all empty."""
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
    """Formats like Java's Double.toString: with an exponent from 10**7 and below 10**-3."""
    if not isfinite(value):
        return f'"{value}"'.replace("nan", "NaN").replace("inf", "Infinity")
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{len(rest) + exponent}"
