"""The records of `_schemas`, in which Confluent's registry keeps its state.

Keys and values are JSON. A key's `keytype` says of what a record is (SchemaRegistryKeyType); a null
value removes what its key names. Names follow SchemaKey, SchemaValue, ConfigValue, ModeValue,
DeleteSubjectValue, ClearSubjectValue and ContextKey.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ...errors import CorruptError
from ...format.layout import MAX_INT32
from ..schema import Schema, SchemaReference, SchemaType, context_of, guid_of

SCHEMAS_TOPIC: Final = "_schemas"
# The most references of one schema; a registry's schemas have a few.
_MAX_REFERENCES: Final = 10_000


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A version of a subject; `schema` is None if it was hard-deleted. `is_deleted`: softly.
    `metadata`, `rule_set`: as in the JSON, None if there are none."""

    subject: str
    version: int
    schema: Schema | None
    is_deleted: bool = False
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeleteSubjectRecord:
    """The soft deletion of a subject's versions up to `version`."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ClearSubjectRecord:
    """The removal of a subject's softly deleted versions; without a name, of a context's."""

    subject: str


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """The config of a subject, of a context, or with "" the global one; None if removed."""

    subject: str
    config: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ModeRecord:
    """The mode of a subject, of a context, or with "" the global one; None if removed."""

    subject: str
    mode: str | None


@dataclass(frozen=True, slots=True)
class ContextRecord:
    """A context that exists."""

    context: str


RegistryRecord = (
    SchemaRecord
    | DeleteSubjectRecord
    | ClearSubjectRecord
    | ConfigRecord
    | ModeRecord
    | ContextRecord
)


def parse_record(key: bytes | None, value: bytes | None) -> RegistryRecord | None:
    """Returns what a record says; None if it says nothing about schemas (NOOP, ASSOC, and null
    values that remove a record of a deletion). Raises CorruptError."""
    if key is None:
        raise CorruptError("a record without a key")
    names = _object(key, "the key")
    kind = names.get("keytype")
    if kind in ("NOOP", "ASSOC"):
        return None
    if kind == "CONTEXT":
        return ContextRecord(_text(names, "context")) if value is not None else None
    fields = None if value is None else _object(value, f"the value of a {kind} record")
    subject = names.get("subject")
    if subject is not None and not isinstance(subject, str):
        raise CorruptError("the key's subject is not a string")
    if kind == "CONFIG":
        return ConfigRecord(subject or "", fields)
    if kind == "MODE":
        return ModeRecord(subject or "", None if fields is None else _text(fields, "mode"))
    if kind == "SCHEMA":
        return _schema_record(_text(names, "subject"), _number(names, "version", 1), fields)
    if kind == "DELETE_SUBJECT":
        if fields is None:
            return None
        return DeleteSubjectRecord(_text(names, "subject"), _number(fields, "version", 0))
    if kind == "CLEAR_SUBJECT":
        return ClearSubjectRecord(subject or "") if fields is not None else None
    raise CorruptError(f"an unknown keytype {kind!r}"[:200])


def _schema_record(subject: str, version: int, fields: Mapping[str, Any] | None) -> SchemaRecord:
    if fields is None:
        return SchemaRecord(subject, version, None)
    if (fields.get("subject", subject), fields.get("version", version)) != (subject, version):
        raise CorruptError("the value is of another subject or version than its key")
    text, references = _text(fields, "schema"), _references(fields)
    metadata, rule_set = _map(fields, "metadata"), _map(fields, "ruleSet")
    number = _number(fields, "id", 0)
    schema = Schema(
        fields.get("schemaType") or SchemaType.AVRO,
        text,
        references,
        id=number,
        guid=_stored_guid(fields) or guid_of(text, references, metadata, rule_set),
        context=context_of(subject)[0],
        where=f"schema {number} ({subject} version {version})",
    )
    if not isinstance(schema.type, str):
        raise CorruptError("schemaType is not a string")
    is_deleted = fields.get("deleted") is True
    return SchemaRecord(subject, version, schema, is_deleted, metadata, rule_set)


def _stored_guid(fields: Mapping[str, Any]) -> UUID | None:
    """Returns the GUID that a registry has stored as `md5` (SchemaValue.getMd5Bytes)."""
    md5 = fields.get("md5")
    try:
        data = base64.b64decode(md5, validate=True) if isinstance(md5, str) else b""
    except (binascii.Error, ValueError):
        return None
    return UUID(bytes=data) if len(data) == 16 else None


def _references(fields: Mapping[str, Any]) -> tuple[SchemaReference, ...]:
    found = fields.get("references") or []
    if not isinstance(found, list) or len(found) > _MAX_REFERENCES:
        raise CorruptError(f"references are not a list of at most {_MAX_REFERENCES}")
    references = []
    for each in found:
        if not isinstance(each, dict):
            raise CorruptError("a reference is not an object")
        version = _number(each, "version", -1)
        references.append(SchemaReference(_text(each, "name"), _text(each, "subject"), version))
    return tuple(references)


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise CorruptError(f"{what} is not JSON: {reason}") from None
    if not isinstance(found, dict):
        raise CorruptError(f"{what} is not a JSON object")
    return found


def _text(fields: Mapping[str, Any], name: str) -> str:
    found = fields.get(name)
    if not isinstance(found, str):
        raise CorruptError(f"{name} is {'missing' if found is None else 'not a string'}")
    return found


def _number(fields: Mapping[str, Any], name: str, least: int) -> int:
    found = fields.get(name)
    if type(found) is not int or not least <= found <= MAX_INT32:
        raise CorruptError(f"{name} is not an integer from {least} to {MAX_INT32}")
    return found


def _map(fields: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    found = fields.get(name)
    return found if isinstance(found, dict) else None
