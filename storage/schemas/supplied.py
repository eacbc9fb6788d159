"""Schemas that users give as files: for topics without a registry, and for ids of another one.

An entry is SELECTOR=TEXT. Several are separated by commas, or stand in a settings file (Java's
properties), which `@FILE` names; paths in it start at its directory. Selectors:

| selector         | text                                                                       |
| ---------------- | -------------------------------------------------------------------------- |
| `orders`         | the file with the schema of the values of topic orders                     |
| `orders:key`     | that of its keys; `orders:value` is the same as `orders`                   |
| `orders:message` | the full name of the Protobuf message; also `orders:key:message`           |
| `orders:framing` | what precedes the data: auto, or one of Framing; also `orders:key:framing` |
| `id:17`          | the file with the schema of an id                                          |
| `guid:<UUID>`    | the file with the schema of a GUID, or of a version in AWS Glue            |

A file is what its name ends with: `.avsc` Avro, `.proto` Protobuf, `.json` JSON Schema, and
`.desc`, `.pb`, `.binpb` or `.protoset` a FileDescriptorSet of protoc. What a `.proto` file imports
is looked for in its directory and those above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from ..errors import ConfigError, CorruptError, MissingReference, SchemaError, SegmentGone
from ..format.files.names import is_legal_topic
from ..format.files.properties import iter_properties
from ..io.disk import read_given
from ..log_dirs.log_dirs import SCHEMAS_CONFIG
from .framing import Framing
from .schema import Schema, SchemaReference, SchemaType

#: Text of a framing that is to be recognized record by record.
AUTO: Final = "auto"
_MAX_FILE_BYTES: Final = 64 << 20
_FORM: Final = "must be SELECTOR=FILE, such as orders=order.avsc"
_TYPES: Final = {
    "avsc": SchemaType.AVRO,
    "proto": SchemaType.PROTOBUF,
    "json": SchemaType.JSON,
    **dict.fromkeys(("desc", "pb", "binpb", "protoset"), SchemaType.PROTOBUF),
}
_ENDINGS: Final = ", ".join(f".{ending}" for ending in _TYPES)
_DESCRIPTOR_SETS: Final = ("desc", "pb", "binpb", "protoset")
_COMMENT: Final = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_IMPORT: Final = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"\n]+)"\s*;')
#: What protoc itself has.
_WELL_KNOWN: Final = "google/protobuf/"
_MAX_IMPORTS: Final = 1000


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """The schema of a topic's keys or values. `framing`: what precedes each; None: to be recognized
    record by record. `schema` is None if only the framing was given."""

    schema: Schema | None = None
    framing: Framing | None = None


@dataclass(slots=True)
class SuppliedSchemas:
    """The schemas that users gave."""

    topics: dict[tuple[str, bool], TopicSchema] = field(default_factory=dict)
    ids: dict[int, Schema] = field(default_factory=dict)
    guids: dict[UUID, Schema] = field(default_factory=dict)
    # What .proto files import, by the path of the file and the imported name.
    imports: dict[tuple[str, str], Schema] = field(default_factory=dict)

    def of_topic(self, topic: str, *, is_key: bool) -> TopicSchema | None:
        """Returns what was given for a topic's keys or values, None if nothing was."""
        return self.topics.get((topic, is_key))

    def all(self) -> Iterator[Schema]:
        """Yields the schemas that were given, but not what they import."""
        yield from (each.schema for each in self.topics.values() if each.schema is not None)
        yield from self.ids.values()
        yield from self.guids.values()

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Returns what a supplied .proto file imports, as `SchemaSource.referenced`."""
        found: dict[str, Schema] = {}
        self._add_imports(schema, found, ())
        return found

    def _add_imports(self, schema: Schema, found: dict[str, Schema], path: tuple[str, ...]) -> None:
        for each in schema.references:
            if each.name in path:
                raise SchemaError(schema.name, f"{each.name} imports itself")
            if each.name not in found:
                other = self.imports.get((schema.where, each.name))
                if other is None:
                    raise MissingReference(schema.name, f"{each.name} is missing")
                self._add_imports(other, found, (*path, each.name))
                found[each.name] = other


def parse_supplied(text: str) -> SuppliedSchemas:
    """Reads the schemas that the config names. Raises ConfigError for an entry that means nothing,
    SchemaError, LogDirError or OSError for a file that cannot be used."""
    supplied, messages = SuppliedSchemas(), {}
    for selector, value, directory in _entries(text):
        subject, _, what = selector.partition(":")
        if subject == "id" and what.isascii() and what.isdigit():
            supplied.ids[int(what)] = _load(supplied, directory, value)
        elif subject == "guid" and (guid := _uuid(what)) is not None:
            supplied.guids[guid] = _load(supplied, directory, value)
        else:
            key, what = _of_topic(selector)
            before = supplied.topics.get(key, TopicSchema())
            if what == "framing":
                supplied.topics[key] = replace(before, framing=_framing(selector, value))
            elif what == "message":
                messages[key] = value
            else:
                schema = _load(supplied, directory, value)
                supplied.topics[key] = replace(before, schema=schema)
    for key, message in messages.items():
        _set_message(supplied, key, message)
    return supplied


def read_schema(path: str) -> tuple[Schema, Mapping[str, Schema]]:
    """Reads one schema, and what it imports by name. Raises as `parse_supplied` does for a file."""
    supplied = SuppliedSchemas()
    schema = _load(supplied, "", path)
    return schema, supplied.referenced(schema)


def _set_message(supplied: SuppliedSchemas, key: tuple[str, bool], message: str) -> None:
    given = supplied.topics.get(key)
    if given is None or given.schema is None or given.schema.type != SchemaType.PROTOBUF:
        raise _refused(f"{key[0]}:message", "no Protobuf schema is given for this topic")
    schema = replace(given.schema, message=message)
    supplied.topics[key] = replace(given, schema=schema)


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yields selector, text, and the directory at which paths start, "" for the working one."""
    for entry in filter(None, map(str.strip, text.split(","))):
        if entry.startswith("@"):
            yield from _settings(entry[1:])
            continue
        selector, separator, value = entry.partition("=")
        if not separator or not value.strip():
            raise _refused(entry, f"{_FORM}, or @FILE")
        yield selector.strip(), value.strip(), ""


def _settings(path: str) -> Iterator[tuple[str, str, str]]:
    """Yields the entries of a settings file. Java's properties separate with a colon, too, which
    selectors contain, so that only the first `=` counts here."""
    data = _read(path)
    directory = path.rpartition("/")[0]
    base = f"{directory}/" if "/" in path else ""
    try:
        for each in iter_properties(data.replace(b":", b"\\:")):
            if not each.value:
                raise _refused(f"{path}: {each.key}", _FORM)
            yield each.key, each.value, base
    except CorruptError as error:
        raise _refused(path, error.what) from None


def _of_topic(selector: str) -> tuple[tuple[str, bool], str]:
    """Splits a selector of a topic: topic and whether it is of keys, and "", "framing" or
    "message"."""
    topic, *parts = selector.split(":")
    part = parts.pop(0) if parts and parts[0] in ("key", "value") else "value"
    what = parts.pop(0) if parts else ""
    if parts or what not in ("", "framing", "message") or not is_legal_topic(topic):
        known = "TOPIC, TOPIC:key, TOPIC:framing, TOPIC:message, id:NUMBER or guid:UUID"
        raise _refused(selector, f"must be {known}")
    return (topic, part == "key"), what


def _framing(selector: str, text: str) -> Framing | None:
    if text == AUTO:
        return None
    try:
        return Framing(text)
    except ValueError:
        raise _refused(selector, f"must be one of {AUTO}, {', '.join(Framing)}") from None


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _refused(entry: str, why: str) -> ConfigError:
    return ConfigError(SCHEMAS_CONFIG, f"{entry}: {why}")


def _load(supplied: SuppliedSchemas, directory: str, path: str) -> Schema:
    """Reads a schema and what it imports. Raises SchemaError."""
    path = path if path.startswith("/") else directory + path
    ending = path.rpartition(".")[2]
    if ending not in _TYPES:
        raise SchemaError(path, f"the name of a schema must end in one of {_ENDINGS}")
    data = _read(path)
    if ending in _DESCRIPTOR_SETS:
        return Schema(SchemaType.PROTOBUF, "", where=path, descriptor_set=data)
    text = _text(path, data)
    if ending == "proto":
        return _with_imports(supplied, path, text, path.rpartition("/")[0])
    return Schema(_TYPES[ending], text, where=path)


def _text(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SchemaError(path, f"not UTF-8 at position {error.start}") from None


def _with_imports(supplied: SuppliedSchemas, path: str, text: str, directory: str) -> Schema:
    """Returns a .proto file, and reads those that it imports, each once."""
    references = tuple(SchemaReference(name, name, 1) for name in _imports(text))
    schema = Schema(SchemaType.PROTOBUF, text, references, where=path)
    for each in references:
        if (path, each.name) in supplied.imports:
            continue
        if len(supplied.imports) >= _MAX_IMPORTS:
            raise SchemaError(path, f"more than {_MAX_IMPORTS} files are imported")
        found = _find_import(path, directory, each.name)
        # Known before what it imports itself is read, so that a cycle ends.
        supplied.imports[path, each.name] = Schema(SchemaType.PROTOBUF, "", where=found)
        imported = _with_imports(supplied, found, _text(found, _read(found)), directory)
        supplied.imports[path, each.name] = imported
    return schema


def _imports(text: str) -> Sequence[str]:
    """Returns the names that a .proto file imports, without those that protoc itself has."""
    plain = _COMMENT.sub(lambda match: match[0] if match[0][0] == '"' else " ", text)
    names = dict.fromkeys(_IMPORT.findall(plain))
    return [name for name in names if not name.startswith(_WELL_KNOWN)]


def _find_import(path: str, directory: str, name: str) -> str:
    """Returns the path of an imported file: in the directory of the file that was given, or the
    nearest one above it. Raises MissingReference."""
    if name.startswith("/") or ".." in name.split("/"):
        raise SchemaError(path, f"it imports {name}, which is not below its directory")
    above = directory
    while True:
        found = f"{above}/{name}" if above or path.startswith("/") else name
        try:
            read_given(found, _MAX_FILE_BYTES)
        except (SegmentGone, OSError, CorruptError):
            if not above:
                raise MissingReference(path, f"{name}, which it imports, is missing") from None
            above = above.rpartition("/")[0]
        else:
            return found


def _read(path: str) -> bytes:
    """Returns the content of a file. Raises SchemaError, or OSError with its path."""
    try:
        return read_given(path, _MAX_FILE_BYTES)
    except SegmentGone:
        raise SchemaError(path, "no such file") from None
    except CorruptError as error:
        raise SchemaError(path, error.what) from None
