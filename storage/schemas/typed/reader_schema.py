"""The schemas to which the data of topics are resolved."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..catalog import Schemas
from ..named_rows import subject_of
from ..schema import Schema, SchemaReference
from ..supplied import read_schema


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """The schema to which data are resolved, and those that it refers to, by name. Can be
    pickled."""

    schema: Schema
    referenced: Mapping[str, Schema] = field(default_factory=dict)

    @classmethod
    def of(cls, schemas: Schemas, schema: Schema) -> ReaderSchema:
        """Raises MissingReference or SchemaError."""
        return cls(schema, dict(schemas.referenced(schema)))

    @classmethod
    def of_file(cls, path: str) -> ReaderSchema:
        """Raises SchemaError, LogDirError or OSError for a file that cannot be used."""
        return cls(*read_schema(path))

    @classmethod
    def of_json(cls, found: Any) -> ReaderSchema:
        """Reads what `as_json` returned. Raises ValueError, KeyError or TypeError for other
        values."""
        others = {str(name): _schema(each) for name, each in found["referenced"].items()}
        return cls(_schema(found), others)

    def as_json(self) -> dict[str, Any]:
        others = {name: _json_of(each) for name, each in self.referenced.items()}
        return {**_json_of(self.schema), "referenced": others}

    @classmethod
    def of_topic(cls, schemas: Schemas, topic: str, *, is_key: bool = False) -> ReaderSchema | None:
        """Returns what was given for a topic's keys or values, or else the newest version of their
        subject; None if there is neither. Raises MissingReference or SchemaError."""
        given = schemas.of_topic(topic, is_key=is_key)
        schema = given.schema if given is not None else None
        found = schema or schemas.newest(subject_of(topic, is_key=is_key))
        return None if found is None else cls.of(schemas, found)


@dataclass(frozen=True, slots=True)
class ReaderUnion:
    """The schemas of several record types, to one of which each datum is resolved. `members`: by
    the names of the fields of a struct, all null but one. Can be pickled."""

    members: Mapping[str, ReaderSchema]

    def as_json(self) -> dict[str, Any]:
        return {"union": {name: each.as_json() for name, each in self.members.items()}}


Reader = ReaderSchema | ReaderUnion


def reader_of_json(found: Any) -> Reader:
    """As `ReaderSchema.of_json`."""
    if "union" not in found:
        return ReaderSchema.of_json(found)
    members = found["union"].items()
    return ReaderUnion({str(name): ReaderSchema.of_json(each) for name, each in members})


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """The schemas to which a topic's values and keys are resolved, None for what has none."""

    values: Reader | None = None
    keys: Reader | None = None

    @classmethod
    def of_topic(cls, schemas: Schemas, topic: str) -> TopicReaders:
        """Raises MissingReference or SchemaError."""
        return cls(
            ReaderSchema.of_topic(schemas, topic),
            ReaderSchema.of_topic(schemas, topic, is_key=True),
        )

    @classmethod
    def of_json(cls, found: Any) -> TopicReaders:
        """As `ReaderSchema.of_json`."""
        return cls(*(reader_of_json(found[name]) if name in found else None for name in _PARTS))

    def as_json(self) -> dict[str, Any]:
        both = zip(_PARTS, (self.values, self.keys), strict=True)
        return {name: each.as_json() for name, each in both if each is not None}

    def __bool__(self) -> bool:
        return self.values is not None or self.keys is not None


_PARTS: Final = ("value", "key")


def _json_of(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {"type": schema.type, "text": schema.text, "name": schema.name}
    if schema.id is not None:
        found["id"] = schema.id
    if schema.references:
        found["references"] = [each.as_json() for each in schema.references]
    if schema.message:
        found["message"] = schema.message
    if schema.descriptor_set is not None:
        found["descriptorSet"] = base64.b64encode(schema.descriptor_set).decode()
    return found


def _schema(found: Any) -> Schema:
    number, descriptors = found.get("id"), found.get("descriptorSet")
    references = tuple(SchemaReference(**each) for each in found.get("references", ()))
    texts = found["type"], found["text"], found["name"], found.get("message", "")
    if not all(isinstance(each, str) for each in texts) or not isinstance(number, int | None):
        raise TypeError("not a schema")
    return Schema(
        found["type"],
        found["text"],
        references,
        number,
        where=found["name"],
        descriptor_set=None if descriptors is None else base64.b64decode(descriptors),
        message=found.get("message", ""),
    )
